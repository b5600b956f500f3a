//! Session capture: what a recorder keeps of the sessions that work for a run.
//!
//! A recording is a resource of its own (`session`). Nothing here reads or moves the revision of a run, so that a recording that fails, or
//! that ends after its run did, holds nothing up. Not here: the forms of entries and events (`capture`), replaying (`views`).

use holdpoint_state::id::derived_id;
use holdpoint_state::{
    Actor, Change, Command, Database, Outcome, Payload, Receipt, Resource, StateError,
};
use serde_json::{Value, json};

use crate::capture::{self, HOST_INTERRUPTED, SessionEntry, SessionEvent, visible_text};
use crate::error::WorkflowError;
use crate::id::{AttemptId, RunId};
use crate::model::{EntryRole, SegmentStatus};
use crate::operations;
use crate::store;
use crate::store::capture::SegmentRow;
use crate::views;

/// A recording to begin.
#[derive(Debug, Clone)]
pub struct BindSession {
    run: RunId,
    capture_key: String,
    session: String,
    attempt: Option<AttemptId>,
    binding: Value,
    recorder: String,
}

impl BindSession {
    /// The recording of a session for a run, by a recorder. The capture key names it in the run: the same key is the same recording.
    pub fn new(
        run: &RunId,
        capture_key: impl Into<String>,
        session: impl Into<String>,
        recorder: impl Into<String>,
    ) -> Self {
        Self {
            run: run.clone(),
            capture_key: capture_key.into(),
            session: session.into(),
            attempt: None,
            binding: Value::Null,
            recorder: recorder.into(),
        }
    }

    /// Says that the session works for this attempt only.
    #[must_use]
    pub fn of_attempt(mut self, attempt: &AttemptId) -> Self {
        self.attempt = Some(attempt.clone());
        self
    }

    /// Adds facts that make it this session and no other, such as its file.
    #[must_use]
    pub fn binding(mut self, binding: Value) -> Self {
        self.binding = binding;
        self
    }
}

/// A recording.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BoundSession {
    /// Its id.
    pub segment_id: String,
    /// Where it stands.
    pub status: SegmentStatus,
    /// How many entries it has.
    pub entry_count: i64,
    /// How many events it has: the next one follows it.
    pub event_count: i64,
}

fn resource(segment: &str) -> Resource {
    Resource::new("session", segment)
}

/// Begins a recording, or finds it again.
///
/// # Errors
///
/// [`WorkflowError::Conflict`] when the capture key is bound to another session, attempt or binding; [`WorkflowError::NoRun`];
/// [`WorkflowError::Input`] for an empty name or an attempt of another run.
pub fn bind_session(
    db: &Database,
    bind: &BindSession,
) -> Result<Receipt<BoundSession>, WorkflowError> {
    for (what, text) in [("session", &bind.session), ("recorder", &bind.recorder)] {
        if text.is_empty() {
            let problem = "it must not be empty".to_owned();
            return Err(WorkflowError::Input { what, problem });
        }
    }
    let id = derived_id("segment", &[bind.run.as_str(), &bind.capture_key]);
    let binding = Payload::json(&json!({
        "attemptId": bind.attempt, "binding": bind.binding, "sessionId": bind.session,
    }))?;
    let command = Command::new(&operations::BIND_SESSION, resource(&id))
        .by(Actor::host(bind.recorder.as_str()))
        .creating();
    let bind = bind.clone();
    db.commit(command, move |change| {
        let Some((run_key, _)) = store::runs::revision_of(change, bind.run.as_str())? else {
            return Err(WorkflowError::NoRun {
                run: bind.run.to_string(),
            });
        };
        let bound = |status, entry_count, event_count| BoundSession {
            segment_id: id.clone(),
            status,
            entry_count,
            event_count,
        };
        if let Some(earlier) = store::capture::segment(change)? {
            if earlier.binding != binding.digest() {
                return Err(WorkflowError::Conflict {
                    what: format!("recording {:?} of run {}", bind.capture_key, bind.run),
                    problem: "it is bound to another session".to_owned(),
                });
            }
            return Ok(Outcome::Adopted(bound(
                earlier.status,
                earlier.entry_count,
                earlier.event_count,
            )));
        }
        let attempt = match &bind.attempt {
            None => None,
            Some(attempt) => Some(attempt_of(change, run_key, attempt)?.key),
        };
        let stored = change.put_blob(&binding)?;
        let new = store::capture::NewSegment {
            run_key,
            attempt,
            capture_key: &bind.capture_key,
            session: &bind.session,
            recorder: &bind.recorder,
            binding: stored,
        };
        store::capture::insert_segment(change, &new)?;
        change.transition("none", "recording")?;
        change.record(Payload::json(
            &json!({ "runId": bind.run, "attemptId": bind.attempt }),
        )?);
        Ok(Outcome::Accepted(bound(SegmentStatus::Recording, 0, 0)))
    })
}

fn attempt_of(
    change: &mut Change<'_>,
    run: holdpoint_state::ResourceKey,
    attempt: &AttemptId,
) -> Result<store::capture::LinkedAttempt, WorkflowError> {
    store::capture::attempt_of_run(change, run, attempt.as_str())?.ok_or_else(|| {
        WorkflowError::Input {
            what: "attempt",
            problem: format!("{attempt} is no attempt of the run that is recorded"),
        }
    })
}

/// The recording of a change, as long as it goes on.
fn recording(change: &mut Change<'_>) -> Result<SegmentRow, WorkflowError> {
    let segment = known(change)?;
    if segment.status != SegmentStatus::Recording {
        return Err(refuse(change, format!("it is {}", segment.status)));
    }
    Ok(segment)
}

fn known(change: &mut Change<'_>) -> Result<SegmentRow, WorkflowError> {
    store::capture::segment(change)?.ok_or_else(|| WorkflowError::NoRecording {
        segment: change.resource().key().to_owned(),
    })
}

fn refuse(change: &Change<'_>, problem: impl Into<String>) -> WorkflowError {
    WorkflowError::Recording {
        segment: change.resource().key().to_owned(),
        problem: problem.into(),
    }
}

/// A recording that does not exist is told in this domain's words.
fn no_recording(error: WorkflowError) -> WorkflowError {
    match error {
        WorkflowError::State(StateError::NotFound { resource }) => WorkflowError::NoRecording {
            segment: resource.key().to_owned(),
        },
        other => other,
    }
}

fn batch_input(problem: String) -> WorkflowError {
    WorkflowError::Input {
        what: "batch",
        problem,
    }
}

/// Appends settled entries in the order in which they are given. One that is there already, with the same content, is passed over.
/// Returns the place of each. Also after the run is over: the last entries settle late.
///
/// # Errors
///
/// [`WorkflowError::Recording`] when the recording is over, or an entry of the same id has other content: nothing of the batch is kept.
pub fn append_entries(
    db: &Database,
    segment: &str,
    recorder: &str,
    entries: &[SessionEntry],
) -> Result<Receipt<Vec<i64>>, WorkflowError> {
    let contents = capture::prepare(entries, |entry| &entry.content)?.map_err(batch_input)?;
    if entries.iter().any(|entry| entry.entry_id.is_empty()) {
        return Err(batch_input(
            "the id of an entry must not be empty".to_owned(),
        ));
    }
    let ids: Vec<String> = entries.iter().map(|entry| entry.entry_id.clone()).collect();
    let command =
        Command::new(&operations::APPEND_ENTRIES, resource(segment)).by(Actor::host(recorder));
    db.commit(command, move |change| {
        let row = known(change)?;
        let mut count = row.entry_count;
        let mut places = Vec::with_capacity(ids.len());
        for (id, content) in ids.iter().zip(&contents) {
            match store::capture::entry(change, id)? {
                Some((place, hash)) if hash == content.digest() => places.push(place),
                Some(_) => {
                    return Err(refuse(
                        change,
                        format!("entry {id} has other content already"),
                    ));
                }
                None if row.status != SegmentStatus::Recording => {
                    return Err(refuse(change, format!("it is {}", row.status)));
                }
                None => {
                    let stored = change.put_blob(content)?;
                    count += 1;
                    store::capture::insert_entry(change, row.run_key, (count, id), stored)?;
                    places.push(count);
                }
            }
        }
        if count == row.entry_count {
            return Ok(Outcome::Adopted(places));
        }
        store::capture::set_counts(change, count, row.event_count)?;
        change.transition("recording", "recording")?;
        change.record(Payload::json(
            &json!({ "from": row.entry_count + 1, "to": count }),
        )?);
        Ok(Outcome::Accepted(places))
    })
    .map_err(no_recording)
}

/// Appends live events whose first has this place, from 1. A batch that is there already, as a whole, is adopted.
///
/// # Errors
///
/// [`WorkflowError::Recording`] when the recording is over or the batch does not follow what is there: nothing of it is kept.
/// [`WorkflowError::Input`] for an empty batch, or one above [`BATCH_LIMIT_BYTES`](capture::BATCH_LIMIT_BYTES).
pub fn append_events(
    db: &Database,
    segment: &str,
    recorder: &str,
    (first, events): (i64, &[SessionEvent]),
) -> Result<Receipt<()>, WorkflowError> {
    let payloads = capture::prepare(events, |event| &event.payload)?.map_err(batch_input)?;
    let events = events.to_vec();
    let command =
        Command::new(&operations::APPEND_EVENTS, resource(segment)).by(Actor::host(recorder));
    db.commit(command, move |change| {
        let row = known(change)?;
        let places = first..;
        let last = first.saturating_add(i64::try_from(events.len()).unwrap_or(i64::MAX)) - 1;
        if 0 < first && last <= row.event_count {
            for ((place, event), payload) in places.zip(&events).zip(&payloads) {
                let stored = store::capture::event(change, place)?;
                let same = stored.is_some_and(|(event_type, hash)| {
                    event_type == event.event_type.as_str() && hash == payload.digest()
                });
                if !same {
                    return Err(refuse(
                        change,
                        format!("event {place} is another one already"),
                    ));
                }
            }
            return Ok(Outcome::Adopted(()));
        }
        let row = recording(change)?;
        if first != row.event_count + 1 {
            let problem = format!("its next event is {}, not {first}", row.event_count + 1);
            return Err(refuse(change, problem));
        }
        for ((place, event), payload) in places.zip(&events).zip(&payloads) {
            let stored = change.put_blob(payload)?;
            store::capture::insert_event(change, row.run_key, (place, event), stored)?;
        }
        store::capture::set_counts(change, row.entry_count, last)?;
        change.transition("recording", "recording")?;
        Ok(Outcome::Accepted(()))
    })
    .map_err(no_recording)
}

/// Says which entry is the prompt, the response, the first or the last of an attempt, once for each role. The prompt is then read from
/// its entry, and is not stored twice.
///
/// # Errors
///
/// [`WorkflowError::Recording`] when there is no such entry, when it is not what the attempt was told or answered, or when the attempt
/// has another entry in that role.
pub fn link_entry(
    db: &Database,
    segment: &str,
    recorder: &str,
    (attempt, role, entry_id): (&AttemptId, EntryRole, &str),
) -> Result<Receipt<()>, WorkflowError> {
    let command =
        Command::new(&operations::LINK_ENTRY, resource(segment)).by(Actor::host(recorder));
    let (attempt, entry_id) = (attempt.clone(), entry_id.to_owned());
    db.commit(command, move |change| {
        let row = known(change)?;
        let found = attempt_of(change, row.run_key, &attempt)?;
        let Some((place, content)) = store::capture::entry(change, &entry_id)? else {
            return Err(refuse(change, format!("it has no entry {entry_id}")));
        };
        let key = change.resource_key()?;
        match store::capture::linked(change, found.key, role)? {
            Some(linked) if linked == (key, place) => return Ok(Outcome::Adopted(())),
            Some(_) => {
                return Err(refuse(
                    change,
                    format!("another entry is the {role} of attempt {attempt}"),
                ));
            }
            None => {}
        }
        let held = match role {
            EntryRole::First | EntryRole::Last => None,
            EntryRole::Prompt => Some(found.prompt),
            EntryRole::Response => Some(found.output),
        };
        if let Some(held) = held {
            let entry: Value =
                super::advance::read_json(&store::attempts::content(change, content)?)?;
            let text = visible_text(&entry);
            let is_it = match (role, text) {
                (_, None) => false,
                (EntryRole::Response, Some(text)) => held == Some(Payload::json(&text)?.digest()),
                (_, Some(text)) => held == Some(Payload::text(text)?.digest()),
            };
            if !is_it {
                let problem = format!(
                    "the visible text of entry {entry_id} is not the {role} of attempt {attempt}"
                );
                return Err(refuse(change, problem));
            }
        }
        store::capture::link(change, found.key, role, place)?;
        if let (EntryRole::Prompt, Some(prompt)) = (role, found.prompt) {
            store::capture::take_prompt(change, found.key, prompt)?;
        }
        change.transition(row.status.as_str(), row.status.as_str())?;
        change.record(Payload::json(
            &json!({ "attemptId": attempt, "role": role, "entryId": entry_id }),
        )?);
        Ok(Outcome::Accepted(()))
    })
    .map_err(no_recording)
}

/// How a recording ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionEnd {
    /// All of it is there.
    Complete,
    /// Something is missing.
    Failed {
        /// Why, as a word.
        code: String,
        /// Why, for people.
        message: String,
    },
}

/// Ends a recording. The first end stays; the same end again is adopted.
///
/// # Errors
///
/// [`WorkflowError::Recording`] when it ended in another way.
pub fn finish_session(
    db: &Database,
    segment: &str,
    recorder: &str,
    end: &SessionEnd,
) -> Result<Receipt<()>, WorkflowError> {
    let operation = match end {
        SessionEnd::Complete => &operations::COMPLETE_SESSION,
        SessionEnd::Failed { .. } => &operations::FAIL_SESSION,
    };
    let command = Command::new(operation, resource(segment)).by(Actor::host(recorder));
    let end = end.clone();
    db.commit(command, move |change| {
        let row = known(change)?;
        let (to, failure) = match &end {
            SessionEnd::Complete => (SegmentStatus::Complete, None),
            SessionEnd::Failed { code, message } => (SegmentStatus::Failed, Some((code, message))),
        };
        if row.status != SegmentStatus::Recording {
            let same = row.status == to
                && match (row.failure, failure) {
                    (None, None) => true,
                    (Some(stored), Some((code, message))) => {
                        let stored =
                            super::advance::read_json(&store::attempts::content(change, stored)?)?;
                        stored.get("code") == Some(&json!(code))
                            && stored.get("message") == Some(&json!(message))
                    }
                    _ => false,
                };
            if same {
                return Ok(Outcome::Adopted(()));
            }
            return Err(refuse(change, format!("it is {} already", row.status)));
        }
        let failure = match failure {
            None => None,
            Some((code, message)) => {
                let failed_at = change.now().0;
                let failure = Payload::json(
                    &json!({ "code": code, "failedAt": failed_at, "message": message }),
                )?;
                Some(change.put_blob(&failure)?)
            }
        };
        store::capture::finish(change, to, failure)?;
        change.transition("recording", to.as_str())?;
        change.record(Payload::json(&json!({
            "runId": row.run_id, "entryCount": row.entry_count, "eventCount": row.event_count,
        }))?);
        Ok(Outcome::Accepted(()))
    })
    .map_err(no_recording)
}

/// Fails the recordings of all recorders but this one, for a program that knows that it is the only one; what they had recorded stays as
/// it is. Returns which they were. A scheduler fails those of [dead recorders](interrupt_dead_recordings) without being told.
///
/// # Errors
///
/// Those of the database; some may have been failed.
pub fn interrupt_recordings(db: &Database, recorder: &str) -> Result<Vec<String>, WorkflowError> {
    let abandoned = views::abandoned_recordings(&db.snapshot()?, recorder)?;
    interrupt(db, abandoned, recorder)
}

/// Fails the recordings whose recorder announced itself ([`Database::announce_owner`]) and is dead. Those of a recorder that lives, or
/// that never said so, go on. Returns which they were.
///
/// # Errors
///
/// Those of the database; some may have been failed.
pub fn interrupt_dead_recordings(db: &Database, actor: &str) -> Result<Vec<String>, WorkflowError> {
    let abandoned = views::recordings_of_dead(&db.snapshot()?)?;
    interrupt(db, abandoned, actor)
}

fn interrupt(
    db: &Database,
    abandoned: Vec<String>,
    actor: &str,
) -> Result<Vec<String>, WorkflowError> {
    let end = SessionEnd::Failed {
        code: HOST_INTERRUPTED.to_owned(),
        message: "its recorder ended before it".to_owned(),
    };
    let mut interrupted = Vec::new();
    for segment in abandoned {
        match finish_session(db, &segment, actor, &end) {
            Ok(_) => interrupted.push(segment),
            // Its recorder was faster.
            Err(WorkflowError::Recording { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(interrupted)
}
