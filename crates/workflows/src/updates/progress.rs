//! The convention of updates of the type `progress`: what a bar or an ETA can be drawn from.
//!
//! An update of this type is refused when its data does not follow the convention, so that readers need not guess. The key `overall`
//! is the main one. Not here: the ETA ([`super::estimate`]).

use holdpoint_state::clock::UnixMillis;
use serde::{Deserialize, Serialize};

use super::instant;

/// The type of these updates.
pub const TYPE: &str = "progress";
/// The key of the whole work of an attempt; other keys are of parts of it.
pub const OVERALL: &str = "overall";
/// What the field `schema` says.
pub const SCHEMA: &str = "pi-workflows.progress.v1";

/// Where some work stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProgressStatus {
    /// Not begun.
    Pending,
    /// Going on.
    Running,
    /// Waits for its turn, an answer or a time.
    Waiting,
    /// Can't go on until somebody does something.
    Blocked,
    /// Done.
    Completed,
    /// Ended with an error.
    Failed,
    /// Given up.
    Cancelled,
    /// Its source does not know.
    Unknown,
}

impl ProgressStatus {
    /// Whether the work is over: what comes after it is other work.
    pub const fn is_terminal(self) -> bool {
        match self {
            Self::Completed | Self::Failed | Self::Cancelled => true,
            Self::Pending | Self::Running | Self::Waiting | Self::Blocked | Self::Unknown => false,
        }
    }
}

/// Why data is no progress.
#[derive(Debug, thiserror::Error)]
pub enum ProgressError {
    /// A field is unknown, missing or of another type.
    #[error("{0}")]
    Shape(#[from] serde_json::Error),
    /// A field breaks its own rule.
    #[error("`{field}` {rule}")]
    Rule {
        /// The field.
        field: &'static str,
        /// What it must be.
        rule: &'static str,
    },
}

/// The data of an update of the type `progress`.
///
/// ```
/// use holdpoint_workflows::updates::{Progress, ProgressStatus};
///
/// let progress = Progress::new(ProgressStatus::Running).counting(3.0, Some(10.0), "files");
/// assert!(progress.check().is_ok());
/// assert!(Progress::new(ProgressStatus::Running).counting(11.0, Some(10.0), "files").check().is_err());
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Progress {
    schema: SchemaWord,
    /// Where the work stands.
    pub status: ProgressStatus,
    /// What it is, at most 200 characters.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "given"
    )]
    pub label: Option<String>,
    /// Which part of it goes on, at most 128 characters. Another phase is other work to the ETA.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "given"
    )]
    pub phase: Option<String>,
    /// How much is done.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "given"
    )]
    pub completed: Option<f64>,
    /// How much there is to do.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "given"
    )]
    pub total: Option<f64>,
    /// What is counted, 1 to 32 characters; required with counts.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "given"
    )]
    pub unit: Option<String>,
    /// When the work began.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "given"
    )]
    pub started_at: Option<String>,
    /// When its source looked at it.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "given"
    )]
    pub updated_at: Option<String>,
    /// When it ended.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "given"
    )]
    pub finished_at: Option<String>,
    /// When its source expects it to end. As long as that is in the future, it comes before any estimate.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "given"
    )]
    pub eta: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum SchemaWord {
    #[serde(rename = "pi-workflows.progress.v1")]
    V1,
}

/// A field that is there has a value: null is none.
fn given<'de, T: Deserialize<'de>, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

impl Progress {
    /// Progress that only says where the work stands.
    pub fn new(status: ProgressStatus) -> Self {
        Self {
            schema: SchemaWord::V1,
            status,
            label: None,
            phase: None,
            completed: None,
            total: None,
            unit: None,
            started_at: None,
            updated_at: None,
            finished_at: None,
            eta: None,
        }
    }

    /// The same with counts.
    #[must_use]
    pub fn counting(mut self, completed: f64, total: Option<f64>, unit: impl Into<String>) -> Self {
        self.completed = Some(completed);
        self.total = total;
        self.unit = Some(unit.into());
        self
    }

    /// The same with a label.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// The same with a phase.
    #[must_use]
    pub fn phase(mut self, phase: impl Into<String>) -> Self {
        self.phase = Some(phase.into());
        self
    }

    /// Reads and checks the data of an update.
    ///
    /// # Errors
    ///
    /// [`ProgressError`].
    pub fn read(json: &[u8]) -> Result<Self, ProgressError> {
        let progress: Self = serde_json::from_slice(json)?;
        progress.check()?;
        Ok(progress)
    }

    /// Checks the rules that the types do not keep.
    ///
    /// # Errors
    ///
    /// [`ProgressError::Rule`]: the first rule that is broken, in the order of the fields.
    pub fn check(&self) -> Result<(), ProgressError> {
        let at_most = |text: &Option<String>, most| {
            text.as_ref()
                .is_none_or(|text| text.chars().count() <= most)
        };
        let is_instant = |text: &Option<String>| {
            text.as_ref()
                .is_none_or(|text| instant::parse(text).is_some())
        };
        let is_count =
            |count: Option<f64>| count.is_none_or(|count| count.is_finite() && 0.0 <= count);
        let counts = self.completed.is_some() || self.total.is_some();
        let rules = [
            (
                at_most(&self.label, 200),
                "label",
                "must have at most 200 characters",
            ),
            (
                at_most(&self.phase, 128),
                "phase",
                "must have at most 128 characters",
            ),
            (is_count(self.completed), "completed", "must be 0 or more"),
            (
                is_count(self.total) && self.total != Some(0.0),
                "total",
                "must be more than 0",
            ),
            (
                !matches!((self.completed, self.total), (Some(completed), Some(total)) if total < completed),
                "total",
                "must not be less than `completed`",
            ),
            (
                self.unit.as_ref().is_none_or(|unit| !unit.is_empty()) && at_most(&self.unit, 32),
                "unit",
                "must have 1 to 32 characters",
            ),
            (
                !counts || self.unit.is_some(),
                "unit",
                "must say what is counted",
            ),
            (is_instant(&self.started_at), "startedAt", INSTANT),
            (is_instant(&self.updated_at), "updatedAt", INSTANT),
            (is_instant(&self.finished_at), "finishedAt", INSTANT),
            (is_instant(&self.eta), "eta", INSTANT),
        ];
        match rules.into_iter().find(|(holds, ..)| !holds) {
            None => Ok(()),
            Some((_, field, rule)) => Err(ProgressError::Rule { field, rule }),
        }
    }

    /// When its source expects it to end.
    pub fn eta(&self) -> Option<UnixMillis> {
        self.eta.as_deref().and_then(instant::parse)
    }
}

const INSTANT: &str = "must be a time of RFC 3339 with its offset";

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn told(mut data: Value) -> String {
        data["schema"] = json!(SCHEMA);
        match Progress::read(data.to_string().as_bytes()) {
            Ok(progress) => {
                // What is written is what was read.
                assert_eq!(serde_json::to_value(&progress).unwrap(), data);
                "good".to_owned()
            }
            Err(ProgressError::Rule { field, .. }) => field.to_owned(),
            Err(ProgressError::Shape(_)) => "shape".to_owned(),
        }
    }

    #[test]
    fn every_rule_of_the_convention() {
        for (data, verdict) in [
            (json!({ "status": "running" }), "good"),
            (json!({}), "shape"),
            (json!({ "status": "done" }), "shape"),
            (json!({ "status": "running", "percent": 3 }), "shape"),
            (json!({ "status": "running", "label": null }), "shape"),
            (
                json!({ "status": "running", "completed": "3", "unit": "x" }),
                "shape",
            ),
            (
                json!({ "status": "running", "label": "ä".repeat(200) }),
                "good",
            ),
            (
                json!({ "status": "running", "label": "ä".repeat(201) }),
                "label",
            ),
            (
                json!({ "status": "running", "phase": "p".repeat(128) }),
                "good",
            ),
            (
                json!({ "status": "running", "phase": "p".repeat(129) }),
                "phase",
            ),
            (
                json!({ "status": "running", "completed": 0.5, "total": 1.5, "unit": "x" }),
                "good",
            ),
            (
                json!({ "status": "running", "completed": 0.0, "unit": "x" }),
                "good",
            ),
            (
                json!({ "status": "running", "completed": -1.0, "unit": "x" }),
                "completed",
            ),
            (
                json!({ "status": "running", "total": 0.0, "unit": "x" }),
                "total",
            ),
            (
                json!({ "status": "running", "total": -1.0, "unit": "x" }),
                "total",
            ),
            (
                json!({ "status": "running", "completed": 2.0, "total": 2.0, "unit": "x" }),
                "good",
            ),
            (
                json!({ "status": "running", "completed": 3.0, "total": 2.0, "unit": "x" }),
                "total",
            ),
            (json!({ "status": "running", "completed": 1.0 }), "unit"),
            (json!({ "status": "running", "total": 1.0 }), "unit"),
            (json!({ "status": "running", "unit": "" }), "unit"),
            (
                json!({ "status": "running", "unit": "u".repeat(32) }),
                "good",
            ),
            (
                json!({ "status": "running", "unit": "u".repeat(33) }),
                "unit",
            ),
            (
                json!({ "status": "running", "startedAt": "2026-01-02T03:04:05Z" }),
                "good",
            ),
            (
                json!({ "status": "running", "startedAt": "2026-01-02T03:04:05" }),
                "startedAt",
            ),
            (
                json!({ "status": "running", "updatedAt": "yesterday" }),
                "updatedAt",
            ),
            (
                json!({ "status": "running", "finishedAt": "2026-01-02" }),
                "finishedAt",
            ),
            (
                json!({ "status": "running", "eta": "2026-02-30T00:00:00Z" }),
                "eta",
            ),
        ] {
            assert_eq!(told(data.clone()), verdict, "{data}");
        }
    }

    #[test]
    fn the_schema_and_the_words_of_the_status() {
        let without = json!({ "status": "running" }).to_string();
        assert!(
            Progress::read(without.as_bytes()).is_err(),
            "the schema is not named"
        );
        let other =
            json!({ "schema": "pi-workflows.progress.v2", "status": "running" }).to_string();
        assert!(Progress::read(other.as_bytes()).is_err(), "another schema");
        for status in [
            "pending",
            "running",
            "waiting",
            "blocked",
            "completed",
            "failed",
            "cancelled",
            "unknown",
        ] {
            assert_eq!(told(json!({ "status": status })), "good");
        }
    }
}
