//! The nouns of the domain and what they may be. Pure: no SQL, no clock, no I/O.
//!
//! What a person sees ([`Presentation`], [`Choice`], [`ChannelRequest`]) is an explicit list of texts and never derived from the
//! machine data under decision. What is private ([`Source`], [`Submission`], [`AcceptedRecord`]) shows neither actor nor key nor
//! text in `Debug`; what models, runs and viewers may see of an answer is its [`DecisionReceipt`].
//!
//! Not here: digests (`digest`), the order in which a request is shown (`document`), rows (`store`, `views`).
#![warn(clippy::wildcard_enum_match_arm)]

mod choice;
mod fields;
mod id;
mod instant;
mod invalid;
mod judge;
mod presentation;
pub(crate) mod record;
mod request;
mod response;
mod submission;
mod text;

pub use choice::{Choice, Choices, TextInput};
pub use id::{Audience, ChannelId, ChoiceId, DecisionId};
pub use instant::{from_iso, from_rfc3339, to_iso};
pub use invalid::{
    BLOCKS_MAX, FINGERPRINT_CHARS, IDENTITY_BYTES_MAX, ITEMS_MAX, Invalid, Limit,
    PRESENTATION_UNITS_MAX, REASON_UNITS_MAX, STRING_UNITS_MAX, TRANSPORT_PARTS_MAX,
};
pub use judge::{Candidate, Earlier, Situation, Verdict, judge};
pub use presentation::{Block, Field, PRESENTATION_SCHEMA, Presentation};
pub use record::{
    ACCEPTED_SCHEMA, AcceptedRecord, CANCELLATION_SCHEMA, CancelReason, CancellationRecord,
    DecisionReceipt, Outcome, Provenance, RECEIPT_SCHEMA, RESOLUTION_SCHEMA, Resolution, Source,
};
pub use request::{
    Answerers, CHANNEL_SCHEMA, ChannelRequest, Draft, OnTimeout, REQUEST_SCHEMA, Request,
    StoredProblem,
};
pub use response::{RejectCode, Response};
pub use submission::{
    Adopted, Conflict, Judged, Rejection, Submission, SubmissionResult, SubmissionSource,
    submission_id,
};
pub(crate) use text::check_reason;
pub use text::units;

/// The resource type of the domain.
pub const RESOURCE_TYPE: &str = "decision";
/// The local channel: the session of the run itself.
pub const LOCAL_CHANNEL: &str = "pi";

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
