//! What one connection watches: which documents it has got, when the next may be due, and what the next one is.
//!
//! A document is made at the moment in which it is written, so that nothing unsent is ever kept and the newest wins. Revisions that a
//! client sees grow with every change of what it is shown, also where no transaction made it: a lease that runs out, a turn that begins.
//! Not here: sockets.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use holdpoint_state::clock::MonotonicMillis;
use holdpoint_state::{Database, Digest, StateError, json};
use holdpoint_viewer::ViewerError;
use holdpoint_viewer::documents::{Budget, ListPage, RunView, Window};
use holdpoint_viewer::views::{self, ListPosition};
use serde::Serialize;
use serde_json::{Value, json};

use super::frame;
use super::protocol::{Answer, Ask, Event, Outcome, SCHEMA};

/// How long a subscription is left alone after it was looked at, in milliseconds: at most four documents a second.
const LOOK_MS: u64 = 250;
/// How often what no transaction changes is looked for, in milliseconds.
const MOVING_MS: u64 = 1_000;
/// How many runs a connection may watch at once. The published client watches one.
const RUNS_MAX: usize = 8;
/// Of how many runs the server remembers what it showed last.
const SHOWN_MAX: usize = 1_024;
/// By how many bits the epoch of the server stands above the revisions of views: a successor's are greater than all of its
/// predecessor's, and a double holds both.
const EPOCH_BITS: u32 = 32;

/// What the connections of one server share: by how much the revisions that they show are greater than the stored ones.
#[derive(Debug)]
pub(super) struct Shown {
    runs: Mutex<Shifts>,
}

#[derive(Debug)]
struct Shifts {
    /// Where a run begins that nobody looked at yet.
    base: u64,
    runs: BTreeMap<String, Shift>,
}

#[derive(Debug, Clone, Copy)]
struct Shift {
    revision: u64,
    digest: Digest,
    by: u64,
}

impl Shown {
    pub(super) fn new(epoch: u64) -> Self {
        Self {
            runs: Mutex::new(Shifts {
                base: epoch << EPOCH_BITS,
                runs: BTreeMap::new(),
            }),
        }
    }

    /// The revision under which a document of that content is shown.
    fn revision_of(&self, run: &str, revision: u64, digest: Digest) -> u64 {
        let mut shifts = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        if !shifts.runs.contains_key(run) && SHOWN_MAX <= shifts.runs.len() {
            // Forgetting may only make revisions greater.
            let greatest = shifts.runs.values().map(|shift| shift.by).max();
            shifts.base = greatest.unwrap_or(shifts.base).saturating_add(1);
            shifts.runs.clear();
        }
        let base = shifts.base;
        let shift = shifts.runs.entry(run.to_owned()).or_insert(Shift {
            revision,
            digest,
            by: base,
        });
        if shift.revision == revision && shift.digest != digest {
            shift.by = shift.by.saturating_add(1);
            shift.digest = digest;
        } else if shift.revision < revision {
            (shift.revision, shift.digest) = (revision, digest);
        }
        revision.saturating_add(shift.by)
    }

    /// The revision that a page of a stored one belongs to.
    fn revision_of_page(&self, run: &str, revision: u64) -> u64 {
        let shifts = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        let shift = shifts.runs.get(run).map_or(shifts.base, |shift| shift.by);
        revision.saturating_add(shift)
    }

    /// Makes the next revision of a run greater though nothing changed.
    fn raise(&self, run: &str) {
        let mut shifts = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(shift) = shifts.runs.get_mut(run) {
            shift.by = shift.by.saturating_add(1);
        }
    }
}

/// What a connection watches.
pub(super) struct Subscriptions<'a> {
    db: &'a Database,
    shown: &'a Shown,
    list: Option<ListWatch>,
    runs: Vec<RunWatch>,
}

struct ListWatch {
    subscription: String,
    limit: u64,
    events: u64,
    /// The stored revision that was shown last, and how often something else changed since the first one.
    revision: Option<String>,
    changes: u64,
    digest: Option<Digest>,
    next: Option<ListPosition>,
    looked: MonotonicMillis,
    built: MonotonicMillis,
    due: bool,
}

struct RunWatch {
    subscription: String,
    run: String,
    events: u64,
    /// The stored revision that was shown last, and the one that the client saw.
    stored: u64,
    seen: u64,
    looked: MonotonicMillis,
    built: MonotonicMillis,
    due: bool,
    /// The client took content: it does not draw the next view, so that one more has to follow (client protocol, 4.9).
    took_content: bool,
    repeat_at: Option<MonotonicMillis>,
}

impl<'a> Subscriptions<'a> {
    pub(super) fn new(db: &'a Database, shown: &'a Shown) -> Self {
        Self {
            db,
            shown,
            list: None,
            runs: Vec::new(),
        }
    }

    /// How long nothing can become due.
    pub(super) fn rest(&self) -> Duration {
        if self.list.is_none() && self.runs.is_empty() {
            return Duration::from_mins(1);
        }
        let now = self.db.clock().monotonic();
        let looked = self.runs.iter().map(|watch| (watch.looked, watch.due));
        let least = looked
            .chain(self.list.iter().map(|watch| (watch.looked, watch.due)))
            .map(|(looked, due)| {
                if due {
                    0
                } else {
                    LOOK_MS.saturating_sub(now.since(looked))
                }
            })
            .min();
        Duration::from_millis(least.unwrap_or(LOOK_MS))
    }

    /// Answers what is asked about views.
    pub(super) fn answer(&mut self, ask: Ask) -> Answer {
        match self.try_answer(ask) {
            Ok(answer) => answer,
            Err(ViewerError::NoRun { .. }) => {
                Answer::refused(Outcome::NotFound, "Workflow run not found")
            }
            Err(ViewerError::NoContent { .. }) => {
                Answer::refused(Outcome::NotFound, "Workflow run content not found")
            }
            Err(error) => {
                tracing::warn!(error = %error, "a document could not be read");
                Answer::refused(Outcome::Unavailable, "the store can't be read now")
            }
        }
    }

    fn try_answer(&mut self, ask: Ask) -> Result<Answer, ViewerError> {
        let now = self.db.clock().now();
        Ok(match ask {
            Ask::WatchRuns {
                subscription,
                limit,
            } => {
                let earlier = self.list.as_ref().map_or(0, |watch| watch.changes);
                self.list = Some(ListWatch {
                    subscription,
                    limit: limit.unwrap_or(Budget::LIST.items),
                    events: 0,
                    revision: None,
                    changes: earlier,
                    digest: None,
                    next: None,
                    looked: MonotonicMillis(0),
                    built: MonotonicMillis(0),
                    due: true,
                });
                Answer::accepted(json!({ "subscribed": true }))
            }
            Ask::RunsPage { revision, cursor } => self.list_page(&revision, cursor)?,
            Ask::WatchRun { subscription, run } => {
                views::revision(&self.db.snapshot()?, &run)?;
                self.runs.retain(|watch| watch.subscription != subscription);
                if RUNS_MAX <= self.runs.len() {
                    return Ok(Answer::refused(
                        Outcome::Rejected,
                        "this connection watches too many runs",
                    ));
                }
                self.runs.push(RunWatch {
                    subscription,
                    run,
                    events: 0,
                    stored: 0,
                    seen: 0,
                    looked: MonotonicMillis(0),
                    built: MonotonicMillis(0),
                    due: true,
                    took_content: false,
                    repeat_at: None,
                });
                Answer::accepted(json!({ "subscribed": true }))
            }
            Ask::UnwatchRun { subscription } => {
                self.runs.retain(|watch| watch.subscription != subscription);
                Answer::accepted(json!({ "subscribed": false }))
            }
            Ask::Page { run, kind, cursor } => {
                let mut page = views::page(&self.db.snapshot()?, &run, (kind, cursor), now)?;
                page.revision = self.shown.revision_of_page(&run, page.revision);
                receipt(&page)?
            }
            Ask::Content { run, path, offset } => {
                let chunk = views::content(&self.db.snapshot()?, &run, &path, offset)?;
                for watch in self.runs.iter_mut().filter(|watch| watch.run == run) {
                    watch.took_content = true;
                }
                receipt(&chunk)?
            }
            Ask::Status | Ask::Stop => Answer::refused(Outcome::Rejected, "this is no view"),
        })
    }

    fn list_page(&mut self, revision: &str, cursor: u64) -> Result<Answer, ViewerError> {
        let now = self.db.clock().now();
        let Some(watch) = &mut self.list else {
            return Ok(Answer::refused(Outcome::Rejected, "watch the list first"));
        };
        let present = watch.shown_revision();
        let stored = watch.revision.clone().filter(|_| present == revision);
        let found = match &stored {
            Some(stored) => {
                let position =
                    watch
                        .next
                        .filter(|next| next.start == cursor)
                        .unwrap_or(ListPosition {
                            start: cursor,
                            after: None,
                        });
                views::list_page(
                    &self.db.snapshot()?,
                    Some(stored),
                    position,
                    watch.limit,
                    now,
                )
            }
            None => Err(ViewerError::ListChanged { revision: present }),
        };
        match found {
            Ok((mut page, next)) => {
                watch.next = next;
                revision.clone_into(&mut page.revision);
                Ok(receipt(&page)?)
            }
            Err(ViewerError::ListChanged { revision }) => {
                // The client waits for the next event of the list.
                watch.due = true;
                watch.digest = None;
                let window = Window {
                    items: Vec::new(),
                    start: cursor,
                    total: 0,
                };
                let receipt = serde_json::to_value(ListPage::new(revision, window))
                    .map_err(unserializable)?;
                Ok(Answer {
                    receipt: Some(receipt),
                    ..Answer::refused(Outcome::Conflict, "run list changed while paging")
                })
            }
            Err(error) => Err(error),
        }
    }

    /// Gives what is due to `send`, one frame at a time; each is read when the one before it was taken. Fails only when `send` does.
    pub(super) fn publish<E>(
        &mut self,
        mut send: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let now = self.db.clock().monotonic();
        if let Some(watch) = &mut self.list
            && (watch.due || LOOK_MS <= now.since(watch.looked))
        {
            match watch.next_frame(self.db, now) {
                Ok(Some(frame)) => send(&frame)?,
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(error = %error, "the list of runs could not be read; it is tried again");
                }
            }
        }
        let mut gone = Vec::new();
        for watch in &mut self.runs {
            let now = self.db.clock().monotonic();
            if !watch.due && now.since(watch.looked) < LOOK_MS {
                continue;
            }
            match watch.next_frame(self.db, self.shown, now) {
                Ok(Some(frame)) => send(&frame)?,
                Ok(None) => {}
                Err(ViewerError::NoRun { .. }) => {
                    if let Some(frame) = watch.unavailable("the run was deleted") {
                        send(&frame)?;
                    }
                    gone.push(watch.subscription.clone());
                }
                Err(error) => {
                    tracing::warn!(run = %watch.run, error = %error, "a run could not be read; it is tried again");
                }
            }
        }
        self.runs
            .retain(|watch| !gone.contains(&watch.subscription));
        Ok(())
    }
}

impl ListWatch {
    /// What the client is told: the stored revision says nothing of leases and turns, which the entries show.
    fn shown_revision(&self) -> String {
        format!(
            "{}.{}",
            self.revision.as_deref().unwrap_or_default(),
            self.changes
        )
    }

    fn next_frame(
        &mut self,
        db: &Database,
        now: MonotonicMillis,
    ) -> Result<Option<Vec<u8>>, ViewerError> {
        self.looked = now;
        let snapshot = db.snapshot()?;
        let revision = views::list_revision(&snapshot)?;
        let is_new = self.revision.as_ref() != Some(&revision);
        if !self.due && !is_new && now.since(self.built) < MOVING_MS {
            return Ok(None);
        }
        let (mut page, next) = views::list_page(
            &snapshot,
            None,
            ListPosition::default(),
            self.limit,
            db.clock().now(),
        )?;
        drop(snapshot);
        (self.built, self.due) = (now, false);
        let digest = digest(&page)?;
        if self.digest == Some(digest) {
            return Ok(None);
        }
        if !is_new {
            self.changes = self.changes.saturating_add(1);
        }
        (self.digest, self.revision, self.next) = (Some(digest), Some(page.revision.clone()), next);
        page.revision = self.shown_revision();
        self.events = self.events.saturating_add(1);
        Ok(event(
            &self.subscription,
            ("runs", self.events),
            None,
            &page,
        ))
    }
}

impl RunWatch {
    fn next_frame(
        &mut self,
        db: &Database,
        shown: &Shown,
        now: MonotonicMillis,
    ) -> Result<Option<Vec<u8>>, ViewerError> {
        self.looked = now;
        let snapshot = db.snapshot()?;
        let stored = views::revision(&snapshot, &self.run)?;
        let repeats = self.repeat_at.is_some_and(|at| at <= now);
        if !self.due && stored == self.stored && !repeats && now.since(self.built) < MOVING_MS {
            return Ok(None);
        }
        let mut view: RunView = views::run_view(&snapshot, &self.run, db.clock().now())?;
        drop(snapshot);
        if repeats {
            self.repeat_at = None;
            shown.raise(&self.run);
        }
        let revision = shown.revision_of(&self.run, view.revision, digest(&view)?);
        let is_first = self.due;
        (self.built, self.due, self.stored) = (now, false, view.revision);
        if !is_first && revision <= self.seen {
            return Ok(None);
        }
        self.seen = revision;
        view.revision = revision;
        if std::mem::take(&mut self.took_content) {
            self.repeat_at = Some(MonotonicMillis(now.0.saturating_add(MOVING_MS)));
        }
        self.events = self.events.saturating_add(1);
        let frame = event(
            &self.subscription,
            ("run_snapshot", self.events),
            Some(&self.run),
            &view,
        );
        if frame.is_none() {
            tracing::warn!(run = %self.run, "the view of a run is too large for a frame");
            return Ok(self.unavailable("the view of the run is too large"));
        }
        Ok(frame)
    }

    fn unavailable(&self, why: &str) -> Option<Vec<u8>> {
        let numbered = ("unavailable", self.events);
        event(
            &self.subscription,
            numbered,
            Some(&self.run),
            &json!({ "error": why }),
        )
    }
}

fn event<T: Serialize>(
    subscription_id: &str,
    (event, revision): (&'static str, u64),
    run_id: Option<&str>,
    payload: &T,
) -> Option<Vec<u8>> {
    frame::write(&Event {
        schema: SCHEMA,
        r#type: "event",
        subscription_id,
        event,
        revision,
        run_id,
        payload,
    })
}

fn receipt<T: Serialize>(document: &T) -> Result<Answer, StateError> {
    let value: Value = serde_json::to_value(document).map_err(unserializable)?;
    Ok(Answer::accepted(value))
}

fn digest<T: Serialize>(document: &T) -> Result<Digest, StateError> {
    let bytes = json::to_canonical(document).map_err(|error| StateError::Corrupt {
        what: "a document of a view".to_owned(),
        problem: error.to_string(),
    })?;
    Ok(Digest::of(&bytes))
}

#[expect(clippy::needless_pass_by_value, reason = "the shape of map_err")]
fn unserializable(error: serde_json::Error) -> StateError {
    StateError::Corrupt {
        what: "a document of a view".to_owned(),
        problem: error.to_string(),
    }
}
