//! Progress of a job that runs somewhere else: one snapshot that the job writes, again and again, to where a node can read it.
//!
//! A snapshot says where the whole job stands and has a track for each part, whose data follows the [convention](super::progress). Who
//! watches the job publishes the updates that a snapshot makes; their keys are those of the tracks, so that one snapshot replaces what
//! the one before said. Not here: where a snapshot is kept, and how often it is read.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::Value;

use super::{OVERALL, Progress, ProgressStatus, Update, UpdateError, progress};

/// What the field `schema` of a snapshot says.
pub const JOB_SCHEMA: &str = "pi-workflows.job-progress.v1";
/// The most bytes that a snapshot has as it is written.
pub const JOB_LIMIT_BYTES: usize = 64 * 1024;

/// Why bytes are no snapshot of a job.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// It is too large.
    #[error("a snapshot of a job has {size_bytes} bytes; {JOB_LIMIT_BYTES} are allowed")]
    TooLarge {
        /// Its size.
        size_bytes: usize,
    },
    /// It is no JSON, or a field is missing or of another type.
    #[error("a snapshot of a job: {0}")]
    Shape(#[from] serde_json::Error),
    /// It is a snapshot of another version, or of something else.
    #[error("the schema of a snapshot of a job must be {JOB_SCHEMA:?}, not {given:?}")]
    Schema {
        /// What it says.
        given: String,
    },
    /// Two tracks would replace each other.
    #[error("a snapshot of a job has two tracks with the key {key:?}")]
    TrackTwice {
        /// Their key.
        key: String,
    },
    /// A track does not follow the convention of progress, or its key has not the form of one.
    #[error("track {key:?} of a snapshot of a job: {problem}")]
    Track {
        /// Its key.
        key: String,
        /// What is wrong.
        problem: Box<UpdateError>,
    },
}

/// A snapshot of a job.
///
/// ```
/// use holdpoint_workflows::updates::JobSnapshot;
/// use serde_json::json;
///
/// let snapshot = JobSnapshot::read(
///     json!({
///         "schema": "pi-workflows.job-progress.v1",
///         "jobId": "job-7",
///         "state": "running",
///         "phase": "processing",
///         "tracks": [{
///             "key": "records",
///             "data": {
///                 "schema": "pi-workflows.progress.v1",
///                 "status": "running",
///                 "completed": 400,
///                 "total": 1000,
///                 "unit": "records",
///             },
///         }],
///     })
///     .to_string()
///     .as_bytes(),
/// )?;
/// let keys: Vec<&str> = snapshot.updates().iter().map(|update| update.key()).collect();
/// assert_eq!(keys, ["overall", "records"]);
/// # Ok::<(), holdpoint_workflows::updates::JobError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct JobSnapshot {
    job_id: String,
    state: ProgressStatus,
    updates: Vec<Update>,
}

/// What of a snapshot is read. Whatever else its source says of itself, its version or its cost, is its own.
#[derive(Deserialize)]
#[serde(
    rename_all = "camelCase",
    expecting = "an object with schema, jobId and state"
)]
struct Said {
    schema: String,
    job_id: String,
    state: ProgressStatus,
    #[serde(default)]
    phase: Option<String>,
    #[serde(default)]
    started_at: Option<String>,
    #[serde(default)]
    updated_at: Option<String>,
    #[serde(default)]
    finished_at: Option<String>,
    #[serde(default)]
    tracks: Vec<Track>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Track {
    key: String,
    data: Value,
}

impl JobSnapshot {
    /// Reads a snapshot as a job wrote it.
    ///
    /// # Errors
    ///
    /// [`JobError`]. Nothing of a snapshot with a wrong track is taken.
    pub fn read(json: &[u8]) -> Result<Self, JobError> {
        if JOB_LIMIT_BYTES < json.len() {
            return Err(JobError::TooLarge {
                size_bytes: json.len(),
            });
        }
        let said: Said = serde_json::from_slice(json)?;
        if said.schema != JOB_SCHEMA {
            return Err(JobError::Schema { given: said.schema });
        }
        let mut keys = BTreeSet::new();
        let mut updates = Vec::new();
        for track in &said.tracks {
            if !keys.insert(track.key.as_str()) {
                let key = track.key.clone();
                return Err(JobError::TrackTwice { key });
            }
            updates.push(update(&track.key, &track.data)?);
        }
        // The main track is what a person is shown. A job that counts parts only still says where the whole stands.
        if !keys.contains(OVERALL) {
            let mut overall = Progress::new(said.state);
            overall.phase = said.phase;
            overall.started_at = said.started_at;
            overall.updated_at = said.updated_at;
            overall.finished_at = said.finished_at;
            updates.insert(0, update(OVERALL, &overall)?);
        }
        Ok(Self {
            job_id: said.job_id,
            state: said.state,
            updates,
        })
    }

    /// The job's own id.
    pub fn job_id(&self) -> &str {
        &self.job_id
    }

    /// Where the whole job stands. Who watches it reads on until this is terminal; what the job made is elsewhere.
    pub fn state(&self) -> ProgressStatus {
        self.state
    }

    /// What to publish: an update of the type `progress` for each track, and one of the key `overall` for the whole where no track has
    /// it.
    pub fn updates(&self) -> &[Update] {
        &self.updates
    }

    /// The same, taken out.
    pub fn into_updates(self) -> Vec<Update> {
        self.updates
    }
}

fn update<T: serde::Serialize>(key: &str, data: &T) -> Result<Update, JobError> {
    Update::new(progress::TYPE, key, data).map_err(|problem| JobError::Track {
        key: key.to_owned(),
        problem: Box::new(problem),
    })
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use serde_json::json;

    use super::*;

    fn track(key: &str, status: &str) -> Value {
        json!({ "key": key, "data": { "schema": progress::SCHEMA, "status": status } })
    }

    fn job(tracks: &[Value]) -> Value {
        json!({ "schema": JOB_SCHEMA, "jobId": "job-7", "state": "running", "phase": "second", "tracks": tracks })
    }

    #[test]
    fn tracks_become_updates_with_their_keys() {
        let mut said = job(&[track("b", "running"), track("a", "completed")]);
        said["startedAt"] = json!("2026-01-02T03:04:05Z");
        // Its source may say more of itself.
        said["application"] = json!("example");
        said["costTotal"] = json!(3.5);
        let snapshot = JobSnapshot::read(said.to_string().as_bytes()).unwrap();
        assert_eq!(snapshot.job_id(), "job-7");
        assert_eq!(snapshot.state(), ProgressStatus::Running);
        let mut table = String::new();
        for update in snapshot.updates() {
            let data = String::from_utf8_lossy(update.data().as_bytes()).into_owned();
            writeln!(table, "{} {}: {data}", update.update_type(), update.key()).unwrap();
        }
        insta::assert_snapshot!(table, @r#"
        progress overall: {"phase":"second","schema":"pi-workflows.progress.v1","startedAt":"2026-01-02T03:04:05Z","status":"running"}
        progress b: {"schema":"pi-workflows.progress.v1","status":"running"}
        progress a: {"schema":"pi-workflows.progress.v1","status":"completed"}
        "#);
        // The job's own main track is not replaced.
        let own = job(&[track(OVERALL, "blocked")]);
        let updates = JobSnapshot::read(own.to_string().as_bytes())
            .unwrap()
            .into_updates();
        assert_eq!(updates.len(), 1);
        let data = Progress::read(updates[0].data().as_bytes()).unwrap();
        assert_eq!(data.status, ProgressStatus::Blocked);
    }

    #[test]
    fn what_is_no_snapshot_is_refused_whole() {
        let mut other = job(&[]);
        other["schema"] = json!("pi-workflows.job-progress.v2");
        let mut unknown = job(&[]);
        unknown["state"] = json!("done");
        let mut phase = job(&[]);
        phase["phase"] = json!("p".repeat(129));
        let mut fields = track("a", "running");
        fields["data"]["percent"] = json!(3);
        let mut table = String::new();
        for said in [
            json!([]),
            json!({ "schema": JOB_SCHEMA }),
            other,
            unknown,
            phase,
            job(&[fields, track("b", "running")]),
            job(&[track("a", "running"), track("a", "running")]),
            job(&[track("a b", "running")]),
        ] {
            let error = JobSnapshot::read(said.to_string().as_bytes()).unwrap_err();
            writeln!(table, "{error}").unwrap();
        }
        insta::assert_snapshot!(table);
        // A snapshot of the whole limit is read, one byte more is not looked at.
        let whole = job(&[]).to_string();
        let padded = |bytes: usize| whole.clone() + &" ".repeat(bytes - whole.len());
        assert!(JobSnapshot::read(padded(JOB_LIMIT_BYTES).as_bytes()).is_ok());
        assert!(matches!(
            JobSnapshot::read(padded(JOB_LIMIT_BYTES + 1).as_bytes()),
            Err(JobError::TooLarge { size_bytes }) if size_bytes == JOB_LIMIT_BYTES + 1
        ));
    }
}
