//! The report of a verification: what was checked, and each break with its table and rows.

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::error::{Refusal, StateError};

/// What a verification found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VerifyReport {
    /// The file.
    pub path: PathBuf,
    /// What was checked, in this order.
    pub checks: Vec<CheckRun>,
    /// Every break; empty when the store is sound.
    pub findings: Vec<Finding>,
}

impl VerifyReport {
    /// Whether nothing was found.
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }
}

/// One kind of check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Check {
    /// SQLite's own check of pages, indexes and constraints.
    Integrity,
    /// Every reference leads to a row.
    ForeignKeys,
    /// Identity, version, digest and exact shape.
    Schema,
    /// The rules of every composed domain.
    Invariants,
    /// Length, digest and form of every blob.
    Blobs,
    /// Digest and form of the payloads that lie beside their digests.
    Payloads,
}

/// That a check was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CheckRun {
    /// Which.
    pub check: Check,
    /// How many things it looked at: rows, rules or objects.
    pub examined: u64,
    /// How many findings it made.
    pub findings: u64,
}

/// One broken rule with the rows that break it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// The check that found it.
    pub check: Check,
    /// The rule's name; for an invariant, its own.
    pub name: String,
    /// The rule in words.
    pub summary: String,
    /// The domain whose rule or table it is.
    pub domain: Option<String>,
    /// The table of the rows, where there is one.
    pub table: Option<String>,
    /// The rows: public ids or keys, at most a hundred.
    pub ids: Vec<String>,
    /// How many rows there are in all.
    pub count: u64,
    /// What SQLite or the check says, at most a hundred lines.
    pub details: Vec<String>,
}

/// The error for a copy that must not be used.
pub(in crate::maintenance) fn refuse(path: &Path, report: &VerifyReport) -> Result<(), StateError> {
    let Some(first) = report.findings.first() else {
        return Ok(());
    };
    let refusal = match first.check {
        Check::Integrity => Refusal::Integrity {
            problems: first.details.clone(),
        },
        Check::ForeignKeys => Refusal::ForeignKeys {
            problems: first.details.clone(),
        },
        Check::Schema => Refusal::Shape {
            differences: first.details.clone(),
        },
        Check::Invariants | Check::Blobs | Check::Payloads => {
            return Err(StateError::Corrupt {
                what: path.display().to_string(),
                problem: format!(
                    "{} ({}): {}",
                    first.name,
                    first.summary,
                    first.ids.join(", ")
                ),
            });
        }
    };
    Err(StateError::Refused {
        path: path.to_owned(),
        refusal: Box::new(refusal),
    })
}
