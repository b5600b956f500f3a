//! Ids of the workflows domain: their forms and nothing else.
//!
//! Not here: uniqueness (the database holds it), clocks and randomness (the caller brings both).

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use holdpoint_state::sql::{
    FromSql, FromSqlError, FromSqlResult, SqlError, ToSql, ToSqlOutput, ValueRef,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::definition::EXIT_PREFIX;

/// A text that is not an id of the wanted kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a {kind}: {rule}")]
pub struct InvalidId {
    /// What the text should have been.
    pub kind: &'static str,
    /// The text as given, cut to 200 characters.
    pub text: String,
    /// The form that it must have.
    pub rule: &'static str,
}

/// One id newtype: shared text that is checked once, where it enters the program.
macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident, $kind:literal, $rule:literal, $check:path) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks the form of `text`.
            ///
            /// # Errors
            ///
            /// [`InvalidId`] names the form that the text does not have.
            pub fn new(text: impl AsRef<str>) -> Result<Self, InvalidId> {
                let text = text.as_ref();
                if $check(text) {
                    Ok(Self(text.into()))
                } else {
                    Err(InvalidId { kind: $kind, text: text.chars().take(200).collect(), rule: $rule })
                }
            }

            /// The id as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        // `str` and the newtype order, hash and compare alike, so maps can be asked with text.
        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl PartialEq<str> for $name {
            fn eq(&self, other: &str) -> bool {
                &*self.0 == other
            }
        }

        impl PartialEq<&str> for $name {
            fn eq(&self, other: &&str) -> bool {
                &*self.0 == *other
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, InvalidId> {
                Self::new(text)
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidId;

            fn try_from(text: String) -> Result<Self, InvalidId> {
                Self::new(text)
            }
        }

        impl ToSql for $name {
            fn to_sql(&self) -> Result<ToSqlOutput<'_>, SqlError> {
                Ok(ToSqlOutput::Borrowed(ValueRef::Text(self.0.as_bytes())))
            }
        }

        impl FromSql for $name {
            fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
                Self::new(value.as_str()?).map_err(|error| FromSqlError::Other(error.into()))
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                Self::new(text).map_err(serde::de::Error::custom)
            }
        }
    };
}

text_id!(
    /// The id of a run: one for its whole life, through checkpoints, pauses and recoveries.
    RunId,
    "run id",
    "1 to 200 of A-Z a-z 0-9 . _ - and a letter or digit first",
    is_run_id
);

text_id!(
    /// The id of a node in a compiled graph: `review`, or `mount/review` for one that an include brought.
    NodeId,
    "node id",
    "segments of A-Z a-z 0-9 _ - that begin with a letter or _, joined by /",
    is_qualified_node_id
);

text_id!(
    /// The id of one attempt at one visit of a node.
    AttemptId,
    "attempt id",
    "1 to 256 characters without control characters",
    is_attempt_id
);

text_id!(
    /// The id of a settings scope: the run that made it, the mount path (`$root` for the root) and the invocation.
    ScopeId,
    "settings scope id",
    "run id, mount path or $root, and the number of the invocation, joined by :",
    is_scope_id
);

impl ScopeId {
    /// The id of the scope of one invocation of a workflow of a run.
    pub fn of(run: &RunId, mount_path: &str, invocation: u32) -> Self {
        let mount_path = if mount_path.is_empty() {
            ROOT_SCOPE
        } else {
            mount_path
        };
        Self(format!("{run}:{mount_path}:{invocation}").into())
    }
}

impl RunId {
    /// Makes the id of a new run: UTC stamp, workflow name, eight hex digits, joined by `-`.
    ///
    /// `now_ms` is Unix time in milliseconds; `random` should be random, since two runs that one
    /// workflow starts in the same millisecond differ in nothing else.
    ///
    /// ```
    /// use holdpoint_workflows::id::RunId;
    ///
    /// let id = RunId::generate(1_757_160_000_123, "release notes", [0xde, 0xad, 0xbe, 0xef]);
    /// assert_eq!(id.as_str(), "20250906T120000123Z-releasenotes-deadbeef");
    /// ```
    pub fn generate(now_ms: i64, workflow_name: &str, random: [u8; 4]) -> Self {
        let mut name: String = workflow_name
            .chars()
            .filter(|&c| is_run_id_char(c))
            .take(80)
            .collect();
        if name.is_empty() {
            name.push_str("workflow");
        }
        let stamp = compact_utc(now_ms);
        let [a, b, c, d] = random;
        Self(format!("{stamp}-{name}-{a:02x}{b:02x}{c:02x}{d:02x}").into())
    }
}

impl NodeId {
    /// The id without the mounts it lies under.
    pub fn local(&self) -> &str {
        self.0.rsplit_once('/').map_or(&*self.0, |(_, local)| local)
    }

    /// The path of the workflow that the node belongs to; empty for a node of the root workflow. The node by which a workflow is
    /// entered belongs to its parent.
    pub fn mount(&self) -> &str {
        self.0.rsplit_once('/').map_or("", |(mount, _)| mount)
    }

    /// The paths of all mounts that the node lies under, outermost first.
    pub(crate) fn mounts(&self) -> impl Iterator<Item = &str> {
        self.0
            .match_indices('/')
            .filter_map(|(at, _)| self.0.get(..at))
    }

    /// The path of the mount that the node is an exit of, if it is one.
    pub(crate) fn exit_mount(&self) -> Option<Self> {
        let (mount, local) = self.0.rsplit_once('/')?;
        local.starts_with(EXIT_PREFIX).then(|| Self(mount.into()))
    }

    /// The id as the workflow that the node belongs to knows it.
    pub(crate) fn as_local(&self) -> Self {
        match self.0.rsplit_once('/') {
            None => self.clone(),
            Some((_, local)) => Self(local.into()),
        }
    }

    /// The mounts that the node lies under, outermost first; empty for a node of the root workflow.
    pub fn mount_path(&self) -> Vec<&str> {
        self.0
            .rsplit_once('/')
            .map_or_else(Vec::new, |(mounts, _)| mounts.split('/').collect())
    }
}

fn is_run_id_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-')
}

fn is_run_id(text: &str) -> bool {
    text.len() <= 200
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(is_run_id_char)
}

/// Whether `text` is a node id as an author writes it: one segment, without `/`.
pub(crate) fn is_local_node_id(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
}

fn is_qualified_node_id(text: &str) -> bool {
    text.split('/').all(is_local_node_id)
}

/// What stands for the mount path of the root in the id of a scope.
const ROOT_SCOPE: &str = "$root";

fn is_scope_id(text: &str) -> bool {
    let mut parts = text.split(':');
    let (Some(run), Some(mount), Some(invocation), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return false;
    };
    is_run_id(run)
        && (mount == ROOT_SCOPE || is_qualified_node_id(mount))
        && !invocation.starts_with(['0', '+'])
        && invocation.parse::<u32>().is_ok()
}

fn is_attempt_id(text: &str) -> bool {
    (1..=256).contains(&text.chars().count()) && !text.chars().any(char::is_control)
}

/// `20250906T120000123Z`: ISO 8601 without `-`, `:` and `.`.
fn compact_utc(now_ms: i64) -> String {
    let days = now_ms.div_euclid(86_400_000);
    let of_day = now_ms.rem_euclid(86_400_000);
    let (year, month, day) = civil_from_days(days);
    let (hour, minute) = (of_day / 3_600_000, of_day / 60_000 % 60);
    let (second, milli) = (of_day / 1000 % 60, of_day % 1000);
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}{milli:03}Z")
}

/// Proleptic Gregorian date of a day number since 1970-01-01 (Hinnant, "chrono-compatible
/// low-level date algorithms").
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms() {
        let long = "x".repeat(200);
        let too_long = "x".repeat(201);
        for good in ["a", "9.x_y-z", long.as_str()] {
            assert!(RunId::new(good).is_ok(), "{good}");
        }
        for bad in ["", ".a", "-a", "_a", "a b", "a/b", "ä", too_long.as_str()] {
            assert!(RunId::new(bad).is_err(), "{bad}");
        }
        for good in ["a", "_a", "__piw_exit_x", "a/b/c", "a-b"] {
            assert!(NodeId::new(good).is_ok(), "{good}");
        }
        for bad in ["", "1a", "-a", "a/", "/a", "a//b", "a.b", "ä"] {
            assert!(NodeId::new(bad).is_err(), "{bad}");
        }
        let run = RunId::new("run-1").unwrap();
        for (mount, text) in [("", "run-1:$root:1"), ("a/b", "run-1:a/b:1")] {
            let scope = ScopeId::of(&run, mount, 1);
            assert_eq!(
                (scope.as_str(), ScopeId::new(text)),
                (text, Ok(scope.clone()))
            );
        }
        for bad in [
            "",
            "run-1:$root",
            "run-1::1",
            "run-1:$root:0",
            "run-1:$root:+1",
            "run-1:$root:1:1",
            ":$root:1",
        ] {
            assert!(ScopeId::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn generated_run_ids_have_the_form_whatever_the_name() {
        for name in ["", "日本", "a b/c", &"n".repeat(300), "..."] {
            let id = RunId::generate(0, name, [0, 1, 2, 255]);
            assert_eq!(RunId::new(id.as_str()), Ok(id.clone()));
            assert!(id.as_str().starts_with("19700101T000000000Z-"));
        }
        assert_eq!(compact_utc(951_782_400_000), "20000229T000000000Z");
        assert_eq!(compact_utc(-1), "19691231T235959999Z");
    }

    #[test]
    fn mounts() {
        let id = NodeId::new("plan/review/ask").unwrap();
        assert_eq!(
            (id.local(), id.mount_path()),
            ("ask", vec!["plan", "review"])
        );
        assert!(NodeId::new("ask").unwrap().mount_path().is_empty());
    }
}
