//! The nouns of the domain: states, ids, and the facts that commands take and views give. No SQL, no clock.

use std::fmt;

use holdpoint_state::sql::{
    FromSql, FromSqlError, FromSqlResult, SqlError, ToSql, ToSqlOutput, ValueRef,
};
use holdpoint_state::{Resource, id::derived_id};
use serde::Serialize;

use crate::id::{AttemptId, NodeId, RunId};
use crate::routing::NodeOutcome;

/// A closed set of words, stored as text.
macro_rules! words {
    ($(#[$meta:meta])* pub enum $name:ident { $($(#[$variant_meta:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$variant_meta])* $variant,)* }

        impl $name {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The word that is stored and shown.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }

            /// Reads the word.
            pub fn from_text(text: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|word| word.as_str() == text)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.pad(self.as_str())
            }
        }

        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <String as serde::Deserialize>::deserialize(deserializer)?;
                Self::from_text(&text).ok_or_else(|| serde::de::Error::custom(
                    format!("{text:?} is not a {}", stringify!($name))
                ))
            }
        }

        impl ToSql for $name {
            fn to_sql(&self) -> Result<ToSqlOutput<'_>, SqlError> {
                Ok(ToSqlOutput::Borrowed(ValueRef::Text(self.as_str().as_bytes())))
            }
        }

        impl FromSql for $name {
            fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
                let text = value.as_str()?;
                Self::from_text(text).ok_or_else(|| FromSqlError::Other(
                    format!("{text:?} is not a {}", stringify!($name)).into()
                ))
            }
        }
    };
}

words! {
    /// Where a run stands.
    pub enum RunStatus {
        /// Reserved, never executed.
        Queued = "queued",
        /// A runner executes it, or will.
        Running = "running",
        /// It waits for an answer, or for a person to look at an effect.
        Waiting = "waiting",
        /// It ended with an output.
        Completed = "completed",
        /// It ended with an error.
        Failed = "failed",
        /// It ended because a time budget was spent.
        TimedOut = "timed_out",
        /// It ended because somebody asked for it.
        Cancelled = "cancelled",
    }
}

impl RunStatus {
    /// Whether the run is over.
    pub const fn is_terminal(self) -> bool {
        match self {
            Self::Queued | Self::Running | Self::Waiting => false,
            Self::Completed | Self::Failed | Self::TimedOut | Self::Cancelled => true,
        }
    }
}

words! {
    /// How a run ends: the parameter of the one terminal fan-out.
    pub enum TerminalStatus {
        /// With an output.
        Completed = "completed",
        /// With an error.
        Failed = "failed",
        /// Because a time budget was spent.
        TimedOut = "timed_out",
        /// Because somebody asked for it.
        Cancelled = "cancelled",
    }
}

impl RequestKind {
    /// Whether a model answers it, so that its time is that of the model's turns.
    pub const fn is_of_agent(self) -> bool {
        match self {
            Self::Agent | Self::Assistant => true,
            Self::Checkpoint | Self::Decision | Self::External => false,
        }
    }
}

impl TerminalStatus {
    /// The status of the run.
    pub const fn run(self) -> RunStatus {
        match self {
            Self::Completed => RunStatus::Completed,
            Self::Failed => RunStatus::Failed,
            Self::TimedOut => RunStatus::TimedOut,
            Self::Cancelled => RunStatus::Cancelled,
        }
    }

    /// The settled state of its queue row.
    pub const fn queue(self) -> QueueStatus {
        match self {
            Self::Completed => QueueStatus::Done,
            Self::Failed | Self::TimedOut => QueueStatus::Failed,
            Self::Cancelled => QueueStatus::Cancelled,
        }
    }

    /// What becomes of an attempt that is still open.
    pub const fn open_attempt(self) -> AttemptStatus {
        match self {
            Self::Failed => AttemptStatus::Failed,
            Self::TimedOut => AttemptStatus::TimedOut,
            Self::Completed | Self::Cancelled => AttemptStatus::Cancelled,
        }
    }
}

words! {
    /// Where the work of a run stands.
    pub enum QueueStatus {
        /// Waits for a runner.
        Queued = "queued",
        /// Claimed, not yet executing.
        Starting = "starting",
        /// A runner executes it.
        Running = "running",
        /// No runner executes it now.
        Parked = "parked",
        /// The run completed.
        Done = "done",
        /// The run failed or timed out.
        Failed = "failed",
        /// The run was cancelled.
        Cancelled = "cancelled",
    }
}

impl QueueStatus {
    /// Whether nothing will happen any more.
    pub const fn is_settled(self) -> bool {
        match self {
            Self::Queued | Self::Starting | Self::Running | Self::Parked => false,
            Self::Done | Self::Failed | Self::Cancelled => true,
        }
    }
}

words! {
    /// Where an attempt stands.
    pub enum AttemptStatus {
        /// Made, not begun.
        Pending = "pending",
        /// Going on.
        Running = "running",
        /// Waits for an answer.
        Waiting = "waiting",
        /// Its runner is gone.
        Interrupted = "interrupted",
        /// Ended with an output.
        Completed = "completed",
        /// Ended with an error.
        Failed = "failed",
        /// Spent its time budget.
        TimedOut = "timed_out",
        /// Given up.
        Cancelled = "cancelled",
    }
}

impl From<NodeOutcome> for AttemptStatus {
    fn from(outcome: NodeOutcome) -> Self {
        match outcome {
            NodeOutcome::Ok => Self::Completed,
            NodeOutcome::Failed => Self::Failed,
            NodeOutcome::TimedOut => Self::TimedOut,
            NodeOutcome::Cancelled => Self::Cancelled,
        }
    }
}

impl AttemptStatus {
    /// The outcome of a finished attempt.
    pub const fn outcome(self) -> Option<NodeOutcome> {
        match self {
            Self::Completed => Some(NodeOutcome::Ok),
            Self::Failed => Some(NodeOutcome::Failed),
            Self::TimedOut => Some(NodeOutcome::TimedOut),
            Self::Cancelled => Some(NodeOutcome::Cancelled),
            Self::Pending | Self::Running | Self::Waiting | Self::Interrupted => None,
        }
    }
}

words! {
    /// Where a worker process stands.
    pub enum WorkerStatus {
        /// It was launched, and has not said anything yet.
        Starting = "starting",
        /// It has its run and is known as a process; it has proposed nothing yet.
        Ready = "ready",
        /// It executes its run.
        Running = "running",
        /// It ended by itself.
        Exited = "exited",
        /// Its host stopped, and stopped it.
        Cancelled = "cancelled",
        /// It said nothing any more and was killed.
        TimedOut = "timedOut",
        /// It broke down, or was killed because it did not keep to the rules.
        Crashed = "crashed",
        /// Its run belonged to somebody else.
        ClaimLost = "claimLost",
        /// Its host is gone, and nobody saw its end.
        Orphaned = "orphaned",
    }
}

impl WorkerStatus {
    /// Whether its process may be alive.
    pub fn is_live(self) -> bool {
        matches!(self, Self::Starting | Self::Ready | Self::Running)
    }
}

words! {
    /// What became of a message of a worker process.
    pub enum MessageOutcome {
        /// It was committed.
        Accepted = "accepted",
        /// It was refused, and its worker ended.
        Rejected = "rejected",
        /// Its run belonged to somebody else.
        ClaimLost = "claimLost",
    }
}

words! {
    /// Who executes a run.
    pub enum ExecutionMode {
        /// An origin session, which the run reserves.
        Interactive = "interactive",
        /// Whichever host is there; the session is only a record.
        Headless = "headless",
    }
}

words! {
    /// Who must answer a request, and how.
    pub enum RequestKind {
        /// A model, with a validated submission.
        Agent = "agent",
        /// A model, with its visible text.
        Assistant = "assistant",
        /// A model or a person, with any JSON value.
        Checkpoint = "checkpoint",
        /// A verified person, with one of the choices.
        Decision = "decision",
        /// The domain that brought the node's kind.
        External = "external",
    }
}

words! {
    /// Where a request stands.
    pub enum RequestStatus {
        /// Waits for an answer.
        Pending = "pending",
        /// Has its one accepted answer.
        Settled = "settled",
        /// Will not be answered.
        Cancelled = "cancelled",
    }
}

words! {
    /// What became of a candidate answer.
    pub enum SubmissionOutcome {
        /// A runner looks at it.
        Validating = "validating",
        /// It is the answer.
        Accepted = "accepted",
        /// It is not.
        Rejected = "rejected",
        /// It repeated an earlier one.
        Adopted = "adopted",
    }
}

words! {
    /// Where the recording of a session stands.
    pub enum SegmentStatus {
        /// It goes on.
        Recording = "recording",
        /// All of it is there.
        Complete = "complete",
        /// Something is missing.
        Failed = "failed",
    }
}

words! {
    /// What a captured entry is for an attempt.
    pub enum EntryRole {
        /// What the agent was told.
        Prompt = "prompt",
        /// What it answered.
        Response = "response",
        /// The first entry of its work.
        First = "first",
        /// The last entry of its work.
        Last = "last",
    }
}

words! {
    /// Where a follow-up stands. That it was sent is a fact of its message.
    pub enum FollowUpStatus {
        /// It will be shown when the run has completed.
        Queued = "queued",
        /// Somebody took it back.
        Removed = "removed",
        /// The run ended in another way.
        Cancelled = "cancelled",
    }
}

words! {
    /// What a message to a session is about.
    pub enum MessageKind {
        /// A request that the session is asked to answer.
        Step = "step",
        /// A decision that a person has to make.
        Decision = "decision",
        /// A text of a notify node.
        Notification = "notification",
        /// How the run ended.
        Terminal = "terminal",
        /// A prompt that was queued during the run.
        FollowUp = "followUp",
    }
}

impl MessageKind {
    /// Whether the session may begin a model turn with it.
    pub const fn starts_turn(self) -> bool {
        match self {
            Self::Step | Self::FollowUp => true,
            Self::Decision | Self::Notification | Self::Terminal => false,
        }
    }
}

words! {
    /// Where a message to a session stands.
    pub enum MessageStatus {
        /// The session has still to show it.
        Pending = "pending",
        /// It is on the session's branch.
        Sent = "sent",
        /// It need not be shown any more.
        Cancelled = "cancelled",
    }
}

words! {
    /// How a model turn in a session ended.
    pub enum TurnEnd {
        /// The model came to its end.
        Completed = "completed",
        /// A person stopped it.
        Aborted = "aborted",
        /// The model or its provider failed.
        Error = "error",
        /// Nobody reported its end: the session was idle, or the run ended.
        Lost = "lost",
    }
}

words! {
    /// Why a run is parked although nobody paused it and no answer is missing: `run_queue.error_code`.
    pub enum ParkCode {
        /// The source is no longer the one that the run was started with.
        SourceChanged = "workflowSourceChanged",
        /// The runner ended without advancing the run.
        NoProgress = "runnerNoProgress",
        /// The outcome of an effect can't be known.
        EffectAmbiguous = "effectAmbiguous",
        /// The history of its live settings does not add up.
        SettingsBroken = "settingsHistoryBroken",
    }
}

/// The `error_code` of a run whose workflow could not be loaded; such a run fails.
pub const LOAD_FAILED: &str = "workflowLoadFailed";

/// The most characters that a stored detail or error keeps.
pub const DETAIL_LIMIT_CHARS: usize = 8_192;

/// What `runs.status_detail` says while a run waits at a checkpoint.
pub const WAITING_FOR_CHECKPOINT: &str = "waiting for checkpoint input";
/// What `runs.status_detail` says while a run waits for a human decision.
pub const WAITING_FOR_DECISION: &str = "waiting for a human decision";
/// What `runs.status_detail` says while a run waits for its origin session.
pub const WAITING_FOR_SESSION: &str = "waiting for origin-session input";
/// What `runs.status_detail` says while a run waits for the domain that brought its node's kind.
pub const WAITING_FOR_DOMAIN: &str = "waiting for another domain";
/// What `runs.status_detail` says while a run waits because of an ambiguous effect.
pub const WAITING_FOR_REVIEW: &str =
    "an effect's outcome is unknown; review it, then resume the run";
/// The receipt of a candidate whose runner was lost, or could not load the workflow.
pub const VALIDATION_LOST: &str = "the runner ended before validation finished; submit it again";
/// What `runs.status_detail` says of a run whose agent spent its time.
pub const DEADLINE_EXPIRED: &str = "the model-turn deadline expired";
/// What `runs.status_detail` says of a paused run.
pub const PAUSED: &str = "paused";
/// What comes before the reason of whoever paused a run, if there is one, in the same column.
pub const PAUSED_BECAUSE: &str = "paused: ";
/// The most characters that the title of a run keeps.
pub const TITLE_LIMIT_CHARS: usize = 500;

/// The session of runs that belong to none: headless runs of a program or a command line.
pub const LOCAL_SESSION: &str = "local";

/// The resource of a run.
pub fn resource(run: &RunId) -> Resource {
    Resource::new("run", run.as_str())
}

/// The id of the request of one attempt. Deterministic, so that a repeat meets its earlier self.
pub fn request_id(run: &RunId, attempt: &AttemptId) -> String {
    let canonical = serde_json::json!([run, attempt]).to_string();
    format!(
        "request-{}",
        holdpoint_state::Digest::of(canonical.as_bytes())
    )
}

/// The longest id of a request that a domain names itself.
pub const REQUEST_ID_LIMIT_BYTES: usize = 200;

/// Whether a domain may name its request so: letters, digits, `.`, `_` and `-`, the first one a letter or digit.
pub(crate) fn is_request_id(id: &str) -> bool {
    id.len() <= REQUEST_ID_LIMIT_BYTES
        && id.starts_with(|first: char| first.is_ascii_alphanumeric())
        && id
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
}

/// The id of the restart child of a run at one of its revisions.
pub fn restart_run_id(source: &RunId, revision: u64) -> String {
    let canonical = serde_json::json!([source, revision]).to_string();
    format!(
        "restart-{}",
        holdpoint_state::Digest::of(canonical.as_bytes())
    )
}

/// The id of a workflow message: the same text for the same reason is the same message.
pub fn message_id(kind: &str, source: &str, key: &str) -> String {
    let canonical =
        serde_json::json!({ "idempotencyKey": key, "kind": kind, "sourceId": source }).to_string();
    format!(
        "workflow-message-{}",
        holdpoint_state::Digest::of(canonical.as_bytes())
    )
}

/// The id of one submission: a repeat of the key is the same submission.
pub fn submission_id(request: &str, key: &str) -> String {
    derived_id("submission", &[request, key])
}

/// The idempotency key of the managed effect of one visit (effects reference, section 3).
pub fn effect_key(run: &RunId, effect_type: &str, node: &NodeId, visit: u32) -> String {
    let canonical = serde_json::json!([run, effect_type, node, visit]).to_string();
    let mut hex = holdpoint_state::Digest::of(canonical.as_bytes()).to_hex();
    hex.truncate(40);
    format!("node-{hex}")
}

/// Cuts a text that is kept only for people.
pub fn cut(text: &str) -> String {
    cut_to(text, DETAIL_LIMIT_CHARS)
}

/// Cuts a text after so many characters.
pub(crate) fn cut_to(text: &str, chars: usize) -> String {
    match text.char_indices().nth(chars) {
        None => text.to_owned(),
        Some(_) => text.chars().take(chars).chain(['…']).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn derived_ids_follow_the_references() {
        let run = RunId::new("run-1").unwrap();
        let node = NodeId::new("build/deploy").unwrap();
        assert_eq!(
            effect_key(&run, "preview.deploy", &node, 1),
            "node-2acb586bb4bdb96c94001dfb398fc50e2bc34e0a"
        );
        assert_eq!(restart_run_id(&run, 3), restart_run_id(&run, 3));
        assert_ne!(restart_run_id(&run, 3), restart_run_id(&run, 4));
    }

    #[test]
    fn long_details_are_cut_at_a_character() {
        let text = "ä".repeat(DETAIL_LIMIT_CHARS + 1);
        assert_eq!(cut(&text).chars().count(), DETAIL_LIMIT_CHARS + 1);
        assert!(cut(&text).ends_with('…'));
        assert_eq!(cut("short"), "short");
    }

    #[test]
    fn every_word_reads_back() {
        for status in RunStatus::ALL {
            assert_eq!(RunStatus::from_text(status.as_str()), Some(*status));
        }
        assert_eq!(RunStatus::from_text("done"), None);
    }
}
