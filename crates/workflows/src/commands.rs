//! The public verbs. Each checks its input, builds a command and calls the store: one transaction, no other I/O, safe to send
//! twice.
//!
//! The verbs of people are [`start()`], [`answer()`], [`pause()`], [`resume()`], [`cancel()`], [`restart()`],
//! [`change_settings()`] and [`accept_definition()`]. Those of a runner are [`claim()`], [`advance()`], [`wait()`] and the others that take a claim; a
//! program that uses the [`Scheduler`](crate::Scheduler) never calls them. Not here: executing nodes (`engine`), reading for
//! people (`views`).

mod accept;
mod advance;
mod answer;
mod budget;
mod capture;
mod claim;
mod control;
mod domain;
mod follow_ups;
mod host;
mod intervals;
mod messages;
mod park;
mod restart;
mod settings;
mod start;
mod submit;
mod terminal;
mod turns;
mod update;
mod worker;

use holdpoint_state::{Change, Operation, Payload, StateError};

pub use accept::accept_definition;
pub(crate) use advance::Route;
pub use advance::{
    Advanced, FinishedAttempt, Move, NewAttempt, Notification, SETTINGS_ROUTE_RETRIES_MAX,
    Unsettled, advance,
};
pub(crate) use advance::{advance_said, read_json, run_of};
pub use answer::{Answer, Answered, answer, settle};
pub use budget::set_timeout;
pub(crate) use budget::set_timeout_said;
pub use capture::{
    BindSession, BoundSession, SessionEnd, append_entries, append_events, bind_session,
    finish_session, interrupt_dead_recordings, interrupt_recordings, link_entry,
};
pub(crate) use claim::Begun;
pub use claim::{Claimed, Claiming, Plan, claim};
pub use control::{Control, ForeignClaim, Paused, cancel, pause, resume};
pub use domain::{
    OwnerAct, OwnerRight, Settlement, act_as_owner, cancel_in, settle_with, withdraw,
};
pub use follow_ups::{
    PROMPT_LIMIT_BYTES, QueueFollowUp, QueuedFollowUp, RemoveFollowUp, queue_follow_up,
    remove_follow_up,
};
pub(crate) use host::HOST;
pub use host::{start_host, stop_host};
pub(crate) use intervals::{close_of_session, recover, reopen, sample};
pub use messages::{BranchReport, BranchReported, tell_end};
pub(crate) use messages::{clear_end, report_branch};
pub use park::{
    Ask, doubt, fail_unclaimed, give_up, hand_over, park_settings_broken, park_source_changed, wait,
};
pub(crate) use park::{doubt_said, hand_over_said, wait_said};
pub use restart::{Restart, restart};
pub use settings::{SettingsBinding, SettingsChange, SettingsChanged, change_settings};
pub(crate) use start::Prepared;
pub use start::{Start, start};
pub use submit::{
    AssistantText, Submission, Submitted, Validating, accept_candidate, assistant,
    begin_validation, reject_candidate, submit,
};
pub(crate) use submit::{accept_candidate_said, reject_candidate_said};
pub(crate) use turns::{Reporter, end as end_turn, start as start_turn};
pub use turns::{TurnReport, TurnStart, TurnStop};
pub(crate) use update::publish_said;
pub use update::{Published, SessionUpdate, publish, publish_from_session};
pub(crate) use worker::{
    Aftermath, Launching, RefusedMessage, Said, WorkerExit, begin, launch, worker_exited,
    worker_gone, worker_ready,
};

/// The touches that one command makes of its run, in order. The last one is the command's own.
#[derive(Default)]
pub(crate) struct Touches {
    last: Option<Touch>,
}

struct Touch {
    operation: &'static Operation,
    transition: Option<(&'static str, &'static str)>,
    payload: Option<Payload>,
}

impl Touches {
    /// Adds a touch. What the body writes from here on belongs to its revision.
    pub(crate) fn add(
        &mut self,
        change: &mut Change<'_>,
        operation: &'static Operation,
        transition: Option<(&'static str, &'static str)>,
        payload: Option<Payload>,
    ) -> Result<(), StateError> {
        let touch = Touch {
            operation,
            transition,
            payload,
        };
        if let Some(before) = self.last.replace(touch) {
            change.advance(before.operation, before.transition, before.payload)?;
        }
        Ok(())
    }

    /// Makes the last touch the command's own; the body must accept now.
    pub(crate) fn finish(self, change: &mut Change<'_>) -> Result<(), StateError> {
        let Some(last) = self.last else {
            return Ok(());
        };
        change.instead(last.operation)?;
        if let Some((from, to)) = last.transition {
            change.transition(from, to)?;
        }
        if let Some(payload) = last.payload {
            change.record(payload);
        }
        Ok(())
    }
}
