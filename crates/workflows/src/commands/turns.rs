//! Reports of a session about its model turns: an open turn shows what goes on and lets the clock run; it is no right to write.
//!
//! A turn's row is beside its run, so that a report moves no revision. The one exception is a turn that a person stopped, which
//! pauses its run. Not here: what a session has to show (`messages`).

use std::sync::Arc;

use holdpoint_state::{Actor, ActorKind, Change, Command, Database, Outcome, Payload};
use serde_json::json;

use super::intervals::{self, Clocks};
use crate::error::WorkflowError;
use crate::id::RunId;
use crate::model::{MessageKind, MessageStatus, PAUSED, RequestStatus, TurnEnd, resource};
use crate::operations;
use crate::sessions::Sessions;
use crate::store;

/// A turn that a session began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnStart {
    /// The session's own id of the turn.
    pub turn: String,
    /// The message that it answers.
    pub message: String,
    /// The run of the message.
    pub run: RunId,
}

/// The end of a turn: reported once, when everything that the agent did has settled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnStop {
    /// The turn.
    pub turn: String,
    /// The run that it was begun for.
    pub run: RunId,
    /// How it ended.
    pub end: TurnEnd,
    /// The entry of the response, if there is one.
    pub entry: Option<String>,
}

/// What a report of a turn met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub enum TurnReport {
    /// It is noted.
    Noted,
    /// It was noted before.
    Adopted,
    /// There is nothing to do for this message: the session must stop the turn, and nothing is kept of it.
    Absent,
}

/// Who reports: the session's present connection.
#[derive(Clone)]
pub(crate) struct Reporter {
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) session: String,
    pub(crate) epoch: u64,
}

impl Reporter {
    /// Refuses a connection that was replaced.
    pub(crate) fn check(&self) -> Result<(), WorkflowError> {
        if self.sessions.is_current(&self.session, self.epoch) {
            return Ok(());
        }
        Err(WorkflowError::Replaced {
            session: self.session.clone(),
        })
    }

    pub(super) fn command(
        &self,
        operation: &'static holdpoint_state::Operation,
        run: &RunId,
    ) -> Command {
        Command::new(operation, resource(run))
            .by(Actor::new(ActorKind::Session, self.session.as_str()))
    }
}

/// Begins a turn.
pub(crate) fn start(
    db: &Database,
    reporter: &Reporter,
    turn: &TurnStart,
) -> Result<TurnReport, WorkflowError> {
    reporter.check()?;
    let (by, turn) = (reporter.clone(), turn.clone());
    let command = reporter.command(&operations::REPORT_TURN, &turn.run);
    let receipt = db
        .commit(command, move |change| {
            // Again, on the writer's thread: what was queued before a newer connection came does not count after it.
            by.check()?;
            let mut clocks = Clocks::default();
            let report = begin(change, &by, &turn, &mut clocks)?;
            Ok::<_, WorkflowError>(Outcome::Refused((report, clocks)))
        })
        .map_err(super::answer::no_run)?;
    let (report, clocks) = receipt.value;
    clocks.committed(&reporter.sessions);
    Ok(report)
}

fn begin(
    change: &mut Change<'_>,
    by: &Reporter,
    turn: &TurnStart,
    clocks: &mut Clocks,
) -> Result<TurnReport, WorkflowError> {
    let conflict = |problem: String| WorkflowError::Conflict {
        what: format!("turn {}", turn.turn),
        problem,
    };
    if turn.turn.is_empty() {
        return Err(WorkflowError::Input {
            what: "turn",
            problem: "its id must not be empty".to_owned(),
        });
    }
    if let Some(earlier) = store::turns::named(change, &turn.turn)? {
        let same = earlier.message_id == turn.message
            && earlier.session == by.session
            && earlier.run == change.resource_key()?;
        return if same {
            Ok(TurnReport::Adopted)
        } else {
            Err(conflict("the id was used for another turn".to_owned()))
        };
    }
    let run = store::runs::run(change)?;
    let message = store::messages::named(change, &turn.message)?
        .filter(|message| message.session == by.session)
        .ok_or_else(|| WorkflowError::NoMessage {
            message: turn.message.clone(),
        })?;
    if !message.kind.starts_turn() {
        return Err(run.rejected(format!("a message of kind {} begins no turn", message.kind)));
    }
    let request = match message.kind {
        MessageKind::Step => store::requests::named(change, &message.source)?,
        _ => None,
    };
    let asks = request
        .as_ref()
        .is_some_and(|request| request.status == RequestStatus::Pending);
    let is_gone = message.was_cancelled
        || run.paused
        || (message.kind == MessageKind::Step && (run.status.is_terminal() || !asks));
    if is_gone {
        return Ok(TurnReport::Absent);
    }
    if message.status != MessageStatus::Sent {
        return Err(conflict(format!(
            "message {} is not on the session's branch yet; report the branch first",
            turn.message
        )));
    }
    if let Some(open) = store::turns::open(change, &by.session)? {
        return Err(conflict(format!(
            "turn {} of the session goes on; report its end first",
            open.turn_id
        )));
    }
    store::turns::insert(change, &turn.turn, message.key, &by.session)?;
    if let Some(request) = request {
        // A replacement that was still to be shown is not needed any more.
        store::messages::cancel_of_source(change, &message.source)?;
        if request.kind.is_of_agent()
            && let Some(active) = store::attempts::active(change)?
        {
            intervals::start(
                change,
                &by.sessions,
                clocks,
                (&run.run_id, &by.session),
                &active,
            )?;
        }
    }
    Ok(TurnReport::Noted)
}

/// Ends a turn.
pub(crate) fn end(
    db: &Database,
    reporter: &Reporter,
    stop: &TurnStop,
) -> Result<TurnReport, WorkflowError> {
    reporter.check()?;
    let (by, stop) = (reporter.clone(), stop.clone());
    let command = reporter.command(&operations::REPORT_TURN, &stop.run);
    let receipt = db
        .commit(command, move |change| {
            by.check()?;
            let mut clocks = Clocks::default();
            let (report, pauses) = finish(change, &by, &stop, &mut clocks)?;
            Ok::<_, WorkflowError>(if pauses {
                Outcome::Accepted((report, clocks))
            } else {
                Outcome::Refused((report, clocks))
            })
        })
        .map_err(super::answer::no_run)?;
    let (report, clocks) = receipt.value;
    clocks.committed(&reporter.sessions);
    Ok(report)
}

fn finish(
    change: &mut Change<'_>,
    by: &Reporter,
    stop: &TurnStop,
    clocks: &mut Clocks,
) -> Result<(TurnReport, bool), WorkflowError> {
    let run = store::runs::run(change)?;
    let Some(turn) = store::turns::named(change, &stop.turn)? else {
        // It was absent when it began, or nobody said that it began.
        return Ok((TurnReport::Absent, false));
    };
    if turn.session != by.session || turn.run != change.resource_key()? {
        return Err(WorkflowError::Conflict {
            what: format!("turn {}", stop.turn),
            problem: "it is a turn of another session or run".to_owned(),
        });
    }
    if let Some(end) = turn.end {
        let same = end == stop.end && turn.entry == stop.entry;
        // Its end was not heard because the run ended first.
        let was_cut_off = end == TurnEnd::Lost && run.status.is_terminal();
        return if same || was_cut_off {
            Ok((TurnReport::Adopted, false))
        } else {
            Err(WorkflowError::Conflict {
                what: format!("the end of turn {}", stop.turn),
                problem: format!("it ended already, {end}"),
            })
        };
    }
    store::turns::end(change, &stop.turn, stop.end, stop.entry.as_deref())?;
    intervals::stop_of_run(change, &by.sessions, clocks)?;
    let asks = store::requests::named(change, &turn.source)?
        .is_some_and(|request| request.status == RequestStatus::Pending);
    if stop.end == TurnEnd::Aborted && asks && !run.paused {
        store::messages::cancel_of_source(change, &turn.source)?;
        change.instead(&operations::PAUSE_PARKED)?;
        change.transition(run.status.as_str(), run.status.as_str())?;
        change.record(Payload::json(
            &json!({ "queue": "parked", "turnId": stop.turn, "reason": "the turn was aborted" }),
        )?);
        // Whoever looks at a candidate meanwhile loses it to the pause; it is looked at again after the resume.
        store::queue::park(change, None, None)?;
        let now = change.now();
        if change.lease()?.is_live(now) {
            change.release()?;
        }
        store::runs::set_paused(change, true, Some(PAUSED))?;
        return Ok((TurnReport::Noted, true));
    }
    Ok((TurnReport::Noted, false))
}
