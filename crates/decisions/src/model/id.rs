//! The ids of the domain: their forms and nothing else.

use std::borrow::Borrow;
use std::fmt;

use holdpoint_state::Resource;
use holdpoint_state::sql::{
    FromSql, FromSqlError, FromSqlResult, SqlError, ToSql, ToSqlOutput, ValueRef,
};

use super::RESOURCE_TYPE;
use super::invalid::Invalid;

macro_rules! names {
    ($($(#[$doc:meta])* $name:ident, $what:literal, $rule:literal, $check:path;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);

        impl $name {
            /// Checks the form of a text.
            ///
            /// # Errors
            ///
            /// [`Invalid::Name`] says which form it must have.
            pub fn new(text: impl Into<String>) -> Result<Self, Invalid> {
                let text = text.into();
                if $check(&text) {
                    Ok(Self(text))
                } else {
                    Err(Invalid::Name { what: $what, rule: $rule })
                }
            }

            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(formatter, "{:?}", self.0)
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl PartialEq<str> for $name {
            fn eq(&self, other: &str) -> bool {
                self.0 == other
            }
        }

        impl PartialEq<&str> for $name {
            fn eq(&self, other: &&str) -> bool {
                self.0 == *other
            }
        }

        impl std::str::FromStr for $name {
            type Err = Invalid;

            fn from_str(text: &str) -> Result<Self, Invalid> {
                Self::new(text)
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <String as serde::Deserialize>::deserialize(deserializer)?;
                Self::new(text).map_err(serde::de::Error::custom)
            }
        }

        impl ToSql for $name {
            fn to_sql(&self) -> Result<ToSqlOutput<'_>, SqlError> {
                Ok(ToSqlOutput::from(self.0.as_str()))
            }
        }

        impl FromSql for $name {
            fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
                Self::new(value.as_str()?).map_err(|error| FromSqlError::Other(error.into()))
            }
        }
    )*};
}

names! {
    /// Names one decision: `decision-` and 40 hex digits, derived from run, node, attempt and what is asked. It is also the id of the
    /// interactive request that waits for it, and the key of its resource. The public id of that resource has the same prefix and other
    /// digits.
    DecisionId, "decision id", "1 to 200 letters, digits, `.`, `_` and `-`, the first one a letter or digit", is_decision_id;
    /// Names one choice of a decision.
    ChoiceId, "choice id", "1 to 128 letters, digits, `_` and `-`, the first one a letter or `_`", is_name;
    /// To whom a decision is addressed, such as `operator`. Private configuration says which channels that is.
    Audience, "audience", "1 to 128 letters, digits, `_` and `-`, the first one a letter or `_`", is_name;
    /// Names one channel: `pi`, or `telegram:` and a profile.
    ChannelId, "channel id", "1 to 200 letters, digits, `.`, `_`, `:` and `-`, the first one a letter or digit", is_channel;
}

impl DecisionId {
    /// The resource of the decision.
    pub fn resource(&self) -> Resource {
        Resource::new(RESOURCE_TYPE, self.as_str())
    }
}

impl ChannelId {
    /// The local channel.
    pub fn local() -> Self {
        Self(super::LOCAL_CHANNEL.to_owned())
    }
}

fn is_decision_id(text: &str) -> bool {
    starts_and_goes_on(text, 200, |c| c.is_ascii_alphanumeric(), "._-")
}

fn is_channel(text: &str) -> bool {
    starts_and_goes_on(text, 200, |c| c.is_ascii_alphanumeric(), "._:-")
}

pub(super) fn is_name(text: &str) -> bool {
    starts_and_goes_on(text, 128, |c| c.is_ascii_alphabetic() || c == '_', "_-")
}

fn starts_and_goes_on(text: &str, most: usize, starts: impl Fn(char) -> bool, marks: &str) -> bool {
    text.len() <= most
        && text.starts_with(starts)
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || marks.contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms() {
        let (longest_id, longest_name) = ("a".repeat(200), "a".repeat(128));
        for right in ["a", "0", "decision-1.x_y", &longest_id] {
            assert!(DecisionId::new(right).is_ok(), "{right}");
        }
        for wrong in ["", "-a", ".a", "a b", "ä", "a:b", &format!("{longest_id}a")] {
            assert!(DecisionId::new(wrong).is_err(), "{wrong}");
        }
        for right in ["a", "_", "Go-on_2", &longest_name] {
            assert!(
                ChoiceId::new(right).is_ok() && Audience::new(right).is_ok(),
                "{right}"
            );
        }
        for wrong in ["", "2a", "-a", "a.b", "a b", &format!("{longest_name}a")] {
            assert!(
                ChoiceId::new(wrong).is_err() && Audience::new(wrong).is_err(),
                "{wrong}"
            );
        }
        for right in ["pi", "telegram:ops", "0.x"] {
            assert!(ChannelId::new(right).is_ok(), "{right}");
        }
        for wrong in ["", ":ops", "a b"] {
            assert!(ChannelId::new(wrong).is_err(), "{wrong}");
        }
    }
}
