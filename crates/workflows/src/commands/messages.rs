//! What an origin session is shown: the messages of requests, the report of its branch, and how a run ended.
//!
//! There is no sender and no lease for sending: a session asks what it should show next, and the report of its branch proves what it
//! shows. Not here: eligibility and order, which are a view (`views::messages`).

use std::collections::{BTreeMap, BTreeSet};

use holdpoint_state::{Actor, Change, Command, Database, Outcome, Payload};
use serde_json::{Value, json};

use super::intervals::{self, Clocks};
use super::turns::Reporter;
use crate::error::WorkflowError;
use crate::id::RunId;
use crate::model::{ExecutionMode, MessageKind, MessageStatus, RequestKind, TurnEnd, resource};
use crate::operations;
use crate::store;
use crate::store::messages::NewMessage;
use crate::store::requests::RequestRow;
use crate::store::runs::RunRow;
use crate::views;

/// Why a request is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reason {
    /// It was made.
    Initial,
    /// It is asked again, after a pause or because its message left the branch.
    Resumed,
}

impl Reason {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Initial => "initial",
            Self::Resumed => "resumed",
        }
    }
}

/// Makes the message that shows a request to the origin session of the run of this change. Headless runs have none, and a kind of
/// another crate shows what it wants by itself. `key` tells it from other messages of the request.
pub(super) fn ask(
    change: &mut Change<'_>,
    run: &RunRow,
    request: &RequestRow,
    (reason, key): (Reason, &str),
    contract: &Value,
) -> Result<(), WorkflowError> {
    let kind = match (run.mode, request.kind) {
        (ExecutionMode::Headless, _) | (_, RequestKind::External) => return Ok(()),
        (_, RequestKind::Decision) => MessageKind::Decision,
        (_, RequestKind::Agent | RequestKind::Assistant | RequestKind::Checkpoint) => {
            MessageKind::Step
        }
    };
    let content = Payload::json(&json!({
        "reason": reason.as_str(),
        "runId": run.run_id,
        "workflowName": run.workflow_name,
        "requestId": request.request_id,
        "requestKind": request.kind,
        "requestRevision": request.revision,
        "contract": contract,
    }))?;
    store::messages::create(
        change,
        &NewMessage {
            kind,
            source: &request.request_id,
            key,
            content: &content,
        },
    )?;
    Ok(())
}

/// The contract of a stored request.
pub(super) fn contract(
    change: &mut Change<'_>,
    request: &RequestRow,
) -> Result<Value, WorkflowError> {
    super::advance::read_json(&store::attempts::content(change, request.contract)?)
}

/// What a session says of its active branch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BranchReport {
    /// The messages on the branch, all of them, each with its entry.
    pub entries: Vec<(String, String)>,
    /// Whether no model turn goes on.
    pub is_idle: bool,
    /// Whether the session has texts that it will still send to its model.
    pub has_pending_messages: bool,
}

/// What came of a branch report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BranchReported {
    /// Messages that are proved to be shown by this report.
    pub sent: usize,
    /// Turns that ended without anybody saying so.
    pub lost_turns: usize,
    /// Messages that were made because the branch lost their predecessors.
    pub replaced: usize,
}

/// Takes a branch report: one transaction for each run that it concerns. The same report again changes nothing.
pub(crate) fn report_branch(
    db: &Database,
    reporter: &Reporter,
    report: &BranchReport,
) -> Result<BranchReported, WorkflowError> {
    reporter.check()?;
    // Absence and idleness prove something only together.
    let settled = report.is_idle && !report.has_pending_messages;
    let mut runs: BTreeMap<RunId, Vec<(String, String)>> = BTreeMap::new();
    {
        let snapshot = db.snapshot()?;
        for (message, entry) in &report.entries {
            let known = views::message(&snapshot, message)?
                .filter(|known| known.session == reporter.session)
                .ok_or_else(|| WorkflowError::NoMessage {
                    message: message.clone(),
                })?;
            match known.entry {
                Some(before) if before == *entry => {}
                Some(before) => {
                    return Err(WorkflowError::Conflict {
                        what: format!("the entry of message {message}"),
                        problem: format!("it is entry {before} of the session"),
                    });
                }
                None => runs
                    .entry(known.run_id)
                    .or_default()
                    .push((message.clone(), entry.clone())),
            }
        }
        if settled {
            for run in views::runs_of_session(&snapshot, &reporter.session)? {
                runs.entry(run).or_default();
            }
        }
    }
    let on_branch: BTreeSet<String> = report.entries.iter().map(|(id, _)| id.clone()).collect();
    let mut total = BranchReported::default();
    for (run, entries) in runs {
        let (by, on_branch) = (reporter.clone(), on_branch.clone());
        let command = reporter.command(&operations::REPORT_BRANCH, &run);
        let receipt = db.commit(command, move |change| {
            by.check()?;
            let mut noted = BranchReported::default();
            let mut clocks = Clocks::default();
            for (message, entry) in &entries {
                noted.sent += usize::from(show(change, message, entry)?);
            }
            if settled {
                noted.lost_turns += usize::from(lose_turn(change, &by, &mut clocks)?);
                noted.replaced += usize::from(replace(change, &on_branch)?);
            }
            Ok::<_, WorkflowError>(Outcome::Refused((noted, clocks)))
        })?;
        let (of_run, clocks) = receipt.value;
        clocks.committed(&reporter.sessions);
        total.sent += of_run.sent;
        total.lost_turns += of_run.lost_turns;
        total.replaced += of_run.replaced;
    }
    Ok(total)
}

/// The message is on the branch.
fn show(change: &mut Change<'_>, id: &str, entry: &str) -> Result<bool, WorkflowError> {
    let message = store::messages::named(change, id)?.ok_or_else(|| WorkflowError::NoMessage {
        message: id.to_owned(),
    })?;
    match (message.status, message.entry.as_deref()) {
        (MessageStatus::Sent, Some(before)) if before == entry => Ok(false),
        (MessageStatus::Sent, before) => Err(WorkflowError::Conflict {
            what: format!("the entry of message {id}"),
            problem: format!("it is entry {} of the session", before.unwrap_or_default()),
        }),
        (MessageStatus::Pending | MessageStatus::Cancelled, _) => {
            store::messages::mark_sent(change, message.key, entry)?;
            Ok(true)
        }
    }
}

/// The session is idle: a turn that goes on for us has ended, and nobody said so.
fn lose_turn(
    change: &mut Change<'_>,
    by: &Reporter,
    clocks: &mut Clocks,
) -> Result<bool, WorkflowError> {
    let key = change.resource_key()?;
    let Some(turn) = store::turns::open(change, &by.session)?.filter(|turn| turn.run == key) else {
        return Ok(false);
    };
    store::turns::end(change, &turn.turn_id, TurnEnd::Lost, None)?;
    intervals::stop_of_run(change, &by.sessions, clocks)?;
    Ok(true)
}

/// Shows a request again whose message was shown and is not on the branch any more.
fn replace(change: &mut Change<'_>, on_branch: &BTreeSet<String>) -> Result<bool, WorkflowError> {
    let run = store::runs::run(change)?;
    let Some(request) = store::requests::pending(change)?.filter(|_| !run.paused) else {
        return Ok(false);
    };
    let kind = if request.kind == RequestKind::Decision {
        MessageKind::Decision
    } else {
        MessageKind::Step
    };
    let shown = store::messages::of_source(change, &request.request_id, kind)?;
    let is_lost = !shown.sent.is_empty() && !shown.sent.iter().any(|id| on_branch.contains(id));
    if !is_lost || shown.has_pending {
        return Ok(false);
    }
    let contract = contract(change, &request)?;
    // Counted, so that each loss gets a message of its own; that there is no pending one is what makes a repeat harmless.
    let key = format!("{}:replaced:{}", request.revision, shown.count);
    ask(change, &run, &request, (Reason::Resumed, &key), &contract)?;
    Ok(true)
}

/// Makes the message that tells the origin session how a run ended, if it is owed one. Made outside the transaction that ends the
/// run: what goes wrong here leaves the end as it is, and is tried again.
///
/// # Errors
///
/// [`WorkflowError::State`], also with `Corrupt` when what the run gave can't be read.
pub fn tell_end(db: &Database, run: &RunId) -> Result<bool, WorkflowError> {
    let content = {
        let snapshot = db.snapshot()?;
        if !views::owes_end(&snapshot, run)? {
            return Ok(false);
        }
        let Some(facts) = views::terminal_facts(&snapshot, run)? else {
            return Ok(false);
        };
        Payload::json(&facts)?
    };
    let source = format!("terminal:{run}");
    let command = Command::new(&operations::TELL_END, resource(run)).by(Actor::system());
    let receipt = db.commit(command, move |change| {
        let made = store::messages::settle_terminal(change)?;
        if made {
            store::messages::create(
                change,
                &NewMessage {
                    kind: MessageKind::Terminal,
                    source: &source,
                    key: "terminal",
                    content: &content,
                },
            )?;
        }
        Ok::<_, WorkflowError>(Outcome::Refused(made))
    })?;
    Ok(receipt.value)
}

/// Takes the end of a run off the view of its session.
pub(crate) fn clear_end(
    db: &Database,
    run: &RunId,
    session: &str,
    actor: Actor,
) -> Result<(), WorkflowError> {
    let session = session.to_owned();
    let command = Command::new(&operations::CLEAR_END, resource(run)).by(actor);
    db.commit(command, move |change| {
        let row = store::runs::run(change)?;
        if row.session != session {
            return Err(WorkflowError::NoRun {
                run: row.run_id.to_string(),
            });
        }
        if !row.status.is_terminal() {
            return Err(row.rejected("only the end of a run is cleared"));
        }
        store::messages::clear_terminal(change, &session)?;
        Ok(Outcome::Refused(()))
    })
    .map_err(super::answer::no_run)?;
    Ok(())
}
