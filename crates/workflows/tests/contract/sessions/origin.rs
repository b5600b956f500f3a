//! Plays an origin session strictly, through the public surface only: what it shows comes from the store, and what it reports is what
//! its branch has.

use holdpoint_workflows::commands::{
    BranchReport, BranchReported, Start, Submission, TurnReport, TurnStart, TurnStop,
};
use holdpoint_workflows::definition::Definition;
use holdpoint_workflows::model::TurnEnd;
use holdpoint_workflows::views::{MessageView, RunView, Verdict};
use holdpoint_workflows::{Coordinator, RunId, WorkflowError, Workflows};
use serde_json::Value;

use crate::support::LONG;

/// A session with its branch.
pub(crate) struct Origin {
    pub(crate) workflows: Workflows,
    pub(crate) id: String,
    pub(crate) connection: Option<Coordinator>,
    /// The messages on the active branch, with their entries.
    pub(crate) branch: Vec<(String, String)>,
    entries: usize,
    turns: usize,
    /// The turn that goes on.
    pub(crate) turn: Option<(String, RunId)>,
}

impl Origin {
    pub(crate) fn new(workflows: &Workflows, id: &str) -> Self {
        let mut origin = Self {
            workflows: workflows.clone(),
            id: id.to_owned(),
            connection: None,
            branch: Vec::new(),
            entries: 0,
            turns: 0,
            turn: None,
        };
        origin.attach();
        origin
    }

    pub(crate) fn attach(&mut self) {
        self.connection = Some(self.workflows.session(self.id.as_str()).attach().unwrap());
    }

    /// The session goes on with another process.
    pub(crate) fn move_to(&mut self, workflows: &Workflows) {
        self.lose_process();
        self.workflows = workflows.clone();
        self.attach();
    }

    /// The connection ends; the branch stays.
    pub(crate) fn disconnect(&mut self) {
        self.connection = None;
    }

    /// The process of the connection is gone: nothing is closed.
    pub(crate) fn lose_process(&mut self) {
        std::mem::forget(self.connection.take());
    }

    pub(crate) fn connection(&self) -> &Coordinator {
        self.connection.as_ref().unwrap()
    }

    /// Starts an interactive run and waits until it asks or is over.
    pub(crate) fn start(&self, definition: &Definition, input: Value) -> RunView {
        let start = Start::new(definition, input).in_session(self.id.as_str());
        let run = self.workflows.start(&start).unwrap().value;
        self.workflows.wait(&run, LONG).unwrap()
    }

    /// Adds the next message to the branch, without saying so.
    pub(crate) fn add_next(&mut self) -> Option<MessageView> {
        let message = self.connection().next_message().unwrap()?;
        // What is offered again is on the branch already, and nobody said so yet.
        if !self.branch.iter().any(|(id, _)| *id == message.message_id) {
            self.put(&message.message_id);
        }
        Some(message)
    }

    /// Puts a message on the branch.
    pub(crate) fn put(&mut self, message: &str) {
        self.entries += 1;
        let entry = format!("{}-entry-{}", self.id, self.entries);
        self.branch.push((message.to_owned(), entry));
    }

    pub(crate) fn report(&self, is_idle: bool) -> BranchReported {
        self.try_report(is_idle, false).unwrap()
    }

    pub(crate) fn try_report(
        &self,
        is_idle: bool,
        has_pending_messages: bool,
    ) -> Result<BranchReported, WorkflowError> {
        self.connection().report_branch(&BranchReport {
            entries: self.branch.clone(),
            is_idle,
            has_pending_messages,
        })
    }

    /// Shows the next message and proves it.
    pub(crate) fn show(&mut self) -> Option<MessageView> {
        let message = self.add_next()?;
        self.report(false);
        Some(message)
    }

    /// Begins a turn with a message.
    pub(crate) fn begin(&mut self, message: &MessageView) -> TurnReport {
        self.turns += 1;
        let turn = format!("{}-turn-{}", self.id, self.turns);
        let report = self
            .connection()
            .start_turn(&TurnStart {
                turn: turn.clone(),
                message: message.message_id.clone(),
                run: message.run_id.clone(),
            })
            .unwrap();
        if report == TurnReport::Noted {
            self.turn = Some((turn, message.run_id.clone()));
        }
        report
    }

    /// Shows the next message and begins a turn with it.
    pub(crate) fn show_and_begin(&mut self) -> MessageView {
        let message = self.show().unwrap();
        assert_eq!(self.begin(&message), TurnReport::Noted);
        message
    }

    /// Ends the turn that goes on.
    pub(crate) fn end(&mut self, end: TurnEnd) -> TurnReport {
        let (turn, run) = self.turn.take().unwrap();
        self.connection()
            .end_turn(&TurnStop {
                turn,
                run,
                end,
                entry: None,
            })
            .unwrap()
    }

    pub(crate) fn submission(&self, run: &RunId, value: Value, key: &str) -> Submission {
        Submission::new(run, value)
            .key(key)
            .in_session(self.id.as_str())
    }

    /// Submits and waits for the verdict; needs a scheduler.
    pub(crate) fn submit(&self, run: &RunId, value: Value, key: &str) -> Verdict {
        let submitted = self
            .workflows
            .submit(&self.submission(run, value, key))
            .unwrap()
            .value;
        self.workflows
            .wait_for_verdict(run, &submitted.submission_id, LONG)
            .unwrap()
    }
}
