//! The nouns of the domain and what they may be. Pure: no SQL, no clock, no I/O.
//!
//! Here are the rules that a pass is judged by: what a patch makes of a status ([`StatusPatch::apply`]), what the result of a pass may be
//! ([`Next`]), how long a failure rests ([`back_off_ms`]), and which run an attempt of a child has.
//!
//! Not here: rows (`store`, `views`), and who may do what (`operations`).
#![warn(clippy::wildcard_enum_match_arm)]

mod child;
mod document;
mod effect;
mod invalid;
mod names;
mod result;

pub(crate) use child::reserved_run_id;
pub use child::{ChildRecord, ChildRequest, ChildState, Completion};
pub use document::{
    Condition, ConditionInput, ConditionStatus, ManagedResource, Metadata, StatusPatch, StatusView,
};
pub(crate) use document::{check_finalizers, limited};
pub use effect::{EffectOutcome, EffectRecord, EffectRequest, EffectStep};
pub use invalid::{
    DOCUMENT_BYTES_MAX, ERROR_CHARS_MAX, EVENT_BYTES_MAX, Invalid, NAME_CHARS_MAX, REQUEUE_MS_MAX,
};
pub use names::{
    ControllerName, EffectKey, FinalizerName, Key, ProjectPath, RequestKey, Target, Uid,
};
pub(crate) use result::cut;
pub use result::{Next, back_off_ms};

/// The resource type of the domain.
pub const RESOURCE_TYPE: &str = "controller";

/// A closed set of words, as they are stored.
macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$doc])* $variant,)*
        }

        impl $name {
            /// Every one.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The word that is stored.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)*
                }
            }

            /// Reads the stored word.
            pub fn from_text(text: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|one| one.as_str() == text)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str(self.as_str())
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str> as serde::Deserialize>::deserialize(deserializer)?;
                Self::from_text(&text).ok_or_else(|| serde::de::Error::custom("not a word of this set"))
            }
        }

        impl holdpoint_state::sql::ToSql for $name {
            fn to_sql(&self) -> Result<holdpoint_state::sql::ToSqlOutput<'_>, holdpoint_state::sql::SqlError> {
                Ok(holdpoint_state::sql::ToSqlOutput::from(self.as_str()))
            }
        }

        impl holdpoint_state::sql::FromSql for $name {
            fn column_result(value: holdpoint_state::sql::ValueRef<'_>) -> holdpoint_state::sql::FromSqlResult<Self> {
                Self::from_text(value.as_str()?).ok_or(holdpoint_state::sql::FromSqlError::InvalidType)
            }
        }
    };
}
pub(crate) use words;
