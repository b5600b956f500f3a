//! The clock of an agent's turns: when it runs, and how it is measured.
//!
//! Elapsed time comes from the monotonic clock of the process in which the session is attached; the wall clock only labels it. A
//! row that nobody here has an anchor for can be closed, never measured. Not here: what follows a spent budget (`claim`).

use std::sync::Arc;

use holdpoint_state::{Actor, Change, Command, Database, Outcome};

use crate::error::WorkflowError;
use crate::id::RunId;
use crate::model::{RequestStatus, resource};
use crate::operations;
use crate::sessions::{Anchor, Sessions};
use crate::store;
use crate::store::attempts::AttemptRow;
use crate::views;

/// What a transaction did to clocks; the anchors follow once it is committed.
#[derive(Debug, Clone, Default)]
pub(super) struct Clocks {
    opened: Option<Anchor>,
    closed: Vec<(i64, i64)>,
}

impl Clocks {
    /// The transaction is committed.
    pub(super) fn committed(self, sessions: &Sessions) {
        for (attempt, number) in self.closed {
            sessions.drop_anchor(attempt, number);
        }
        if let Some(anchor) = self.opened {
            sessions.keep(anchor);
        }
    }
}

/// Lets the clock of an attempt run. An attempt without a budget has none. A clock that runs goes on.
///
/// # Errors
///
/// [`WorkflowError::Conflict`] when an interval is open that this process does not measure: it must be recovered first.
pub(super) fn start(
    change: &mut Change<'_>,
    sessions: &Sessions,
    clocks: &mut Clocks,
    (run, session): (&RunId, &str),
    attempt: &AttemptRow,
) -> Result<(), WorkflowError> {
    if attempt.timeout_ms.is_none() {
        return Ok(());
    }
    if let Some(number) = store::intervals::open(change, attempt.key)? {
        let is_ours = sessions
            .anchor(attempt.key)
            .is_some_and(|anchor| anchor.number == number);
        if is_ours {
            return Ok(());
        }
        return Err(WorkflowError::Conflict {
            what: format!("the clock of attempt {}", attempt.attempt_id),
            problem: "it is open and not measured here; attach the session again".to_owned(),
        });
    }
    let number = store::intervals::insert(change, attempt.key)?;
    clocks.opened = Some(Anchor {
        run: run.clone(),
        session: session.to_owned(),
        attempt: attempt.key,
        number,
        since: change.monotonic(),
    });
    Ok(())
}

/// Measures the open interval of an attempt, if there is one, and closes it.
pub(super) fn stop(
    change: &mut Change<'_>,
    sessions: &Sessions,
    clocks: &mut Clocks,
    attempt: i64,
) -> Result<(), WorkflowError> {
    let Some(number) = store::intervals::open(change, attempt)? else {
        return Ok(());
    };
    if let Some(anchor) = sessions
        .anchor(attempt)
        .filter(|anchor| anchor.number == number)
    {
        let elapsed = anchor.elapsed_ms(change.monotonic());
        store::intervals::observe(change, (attempt, number), elapsed)?;
    }
    store::intervals::close(change, attempt)?;
    clocks.closed.push((attempt, number));
    Ok(())
}

/// Measures the attempt that the run of this change is at, and closes its clock.
pub(super) fn stop_of_run(
    change: &mut Change<'_>,
    sessions: &Sessions,
    clocks: &mut Clocks,
) -> Result<(), WorkflowError> {
    match store::attempts::active(change)? {
        Some(active) => stop(change, sessions, clocks, active.key),
        None => Ok(()),
    }
}

fn observing(run: &RunId) -> Command {
    Command::new(&operations::OBSERVE_CLOCK, resource(run)).by(Actor::system())
}

/// Saves how long each clock that this process measures has run by now.
pub(crate) fn sample(db: &Database, sessions: &Sessions) -> Result<(), WorkflowError> {
    for anchor in sessions.anchors(None) {
        let (attempt, number) = (anchor.attempt, anchor.number);
        let receipt = db.commit(observing(&anchor.run), move |change| {
            let elapsed = anchor.elapsed_ms(change.monotonic());
            let is_open =
                store::intervals::observe(change, (anchor.attempt, anchor.number), elapsed)?;
            Ok::<_, WorkflowError>(Outcome::Refused(is_open))
        })?;
        if !receipt.value {
            // Somebody closed it: a pause, the end of the run, another process.
            sessions.drop_anchor(attempt, number);
        }
    }
    Ok(())
}

/// Closes intervals that no process measures any more at their last observation: what happened since is not charged. Of one
/// session, or of all: then no other process may have sessions.
pub(crate) fn recover(
    db: &Database,
    sessions: &Arc<Sessions>,
    session: Option<&str>,
) -> Result<(), WorkflowError> {
    let open = views::open_clocks(&db.snapshot()?, session)?;
    for (run, attempt) in open {
        let sessions = Arc::clone(sessions);
        db.commit(observing(&run), move |change| {
            let measured = match store::intervals::open(change, attempt)? {
                None => true,
                Some(number) => sessions
                    .anchor(attempt)
                    .is_some_and(|anchor| anchor.number == number),
            };
            if !measured {
                store::intervals::close(change, attempt)?;
            }
            Ok::<_, WorkflowError>(Outcome::Refused(()))
        })?;
    }
    Ok(())
}

/// Lets the clock of a session's open turn run again, when the run is not paused and its request still asks: after a resume, and
/// when a session attaches.
pub(crate) fn reopen(
    db: &Database,
    sessions: &Arc<Sessions>,
    session: &str,
) -> Result<(), WorkflowError> {
    let Some(run) = views::resting_clock(&db.snapshot()?, session)? else {
        return Ok(());
    };
    let (shared, session) = (Arc::clone(sessions), session.to_owned());
    let receipt = db.commit(observing(&run), move |change| {
        let mut clocks = Clocks::default();
        let row = store::runs::run(change)?;
        let turn = store::turns::open(change, &session)?;
        let request = match &turn {
            Some(turn) => store::requests::named(change, &turn.source)?,
            None => None,
        };
        let asks = request.is_some_and(|request| {
            request.status == RequestStatus::Pending && request.kind.is_of_agent()
        });
        if asks
            && !row.paused
            && shared.is_attached(&session)
            && let Some(active) = store::attempts::active(change)?
            && store::intervals::open(change, active.key)?.is_none()
        {
            start(
                change,
                &shared,
                &mut clocks,
                (&row.run_id, &session),
                &active,
            )?;
        }
        Ok::<_, WorkflowError>(Outcome::Refused(clocks))
    })?;
    receipt.value.committed(sessions);
    Ok(())
}

/// A session's connection is gone: its clocks are measured a last time and closed.
pub(crate) fn close_of_session(
    db: &Database,
    sessions: &Arc<Sessions>,
    session: &str,
) -> Result<(), WorkflowError> {
    for anchor in sessions.anchors(Some(session)) {
        let shared = Arc::clone(sessions);
        let receipt = db.commit(observing(&anchor.run), move |change| {
            let mut clocks = Clocks::default();
            stop(change, &shared, &mut clocks, anchor.attempt)?;
            // One that somebody else closed has no anchor to keep.
            clocks.closed.push((anchor.attempt, anchor.number));
            Ok::<_, WorkflowError>(Outcome::Refused(clocks))
        })?;
        receipt.value.committed(sessions);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
