//! The one status word that is shown to people, and the controls that go with it. Total functions of committed facts.
#![warn(clippy::wildcard_enum_match_arm)]

use serde::Serialize;

use crate::model::{RequestKind, RunStatus};

/// The status word of a run: a closed set, derived, never stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DisplayStatus {
    /// Waits for a runner.
    Queued,
    /// A runner executes it.
    Running,
    /// Waits for an answer.
    Waiting,
    /// Somebody paused it.
    Paused,
    /// Ended with an output.
    Completed,
    /// Ended with an error.
    Failed,
    /// Ended because a time budget was spent.
    TimedOut,
    /// Ended because somebody asked for it.
    Cancelled,
    /// The outcome of an effect is unknown; a person must look.
    Ambiguous,
}

impl DisplayStatus {
    /// The word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Paused => "paused",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::TimedOut => "timed_out",
            Self::Cancelled => "cancelled",
            Self::Ambiguous => "ambiguous",
        }
    }
}

/// What the status is derived from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a committed fact of its own"
)]
pub struct DisplayFacts {
    /// The run's status.
    pub status: RunStatus,
    /// Whether somebody paused it.
    pub paused: bool,
    /// Whether an effect of it is ambiguous.
    pub ambiguous: bool,
    /// The kind of its pending request.
    pub asks: Option<RequestKind>,
    /// Whether a live runner executes it.
    pub active: bool,
    /// Whether a model turn goes on for it in its session.
    pub turn: bool,
    /// Whether its queue row is parked.
    pub parked: bool,
    /// Whether a restart would be accepted now.
    pub restartable: bool,
}

/// The status, in order of precedence: terminal facts, an ambiguous effect, the pause, a pending request, a live runner
/// or an open turn.
pub fn display_status(facts: &DisplayFacts) -> DisplayStatus {
    match facts.status {
        RunStatus::Completed => DisplayStatus::Completed,
        RunStatus::Failed => DisplayStatus::Failed,
        RunStatus::TimedOut => DisplayStatus::TimedOut,
        RunStatus::Cancelled => DisplayStatus::Cancelled,
        RunStatus::Queued | RunStatus::Running | RunStatus::Waiting => {
            if facts.ambiguous {
                DisplayStatus::Ambiguous
            } else if facts.paused {
                DisplayStatus::Paused
            } else if facts.asks.is_some() {
                DisplayStatus::Waiting
            } else if facts.active || facts.turn {
                DisplayStatus::Running
            } else {
                DisplayStatus::Queued
            }
        }
    }
}

/// What goes on for a run at this moment, whatever its status word is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Activity {
    /// A live runner executes it, or looks at a candidate.
    SupervisedWorker,
    /// A model turn goes on in its session.
    OriginTurn,
}

/// What goes on for a run; nothing when it is idle.
pub fn activity(facts: &DisplayFacts) -> Vec<Activity> {
    let mut activity = Vec::new();
    if facts.active {
        activity.push(Activity::SupervisedWorker);
    }
    if facts.turn {
        activity.push(Activity::OriginTurn);
    }
    activity
}

/// What a person can do with a run now. Hints: each command checks the exact facts again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Control {
    /// Let it go on.
    Resume,
    /// Hold it.
    Pause,
    /// End it.
    Cancel,
    /// Publish progress of an agent.
    Update,
    /// Submit the output of an agent.
    Submit,
    /// Answer a checkpoint.
    Answer,
    /// Decide as a verified person.
    HumanAnswer,
    /// Say what became of an ambiguous effect.
    Review,
    /// Run it again.
    Restart,
}

/// The controls of a run, in the order in which they are shown.
pub fn controls(facts: &DisplayFacts) -> Vec<Control> {
    match display_status(facts) {
        DisplayStatus::Queued if facts.parked => vec![Control::Resume, Control::Cancel],
        DisplayStatus::Queued => vec![Control::Cancel],
        DisplayStatus::Running => vec![Control::Pause, Control::Cancel],
        DisplayStatus::Waiting => {
            let mut controls = vec![Control::Pause, Control::Cancel];
            match facts.asks {
                Some(RequestKind::Agent) => controls.extend([Control::Update, Control::Submit]),
                Some(RequestKind::Checkpoint) => controls.push(Control::Answer),
                Some(RequestKind::Decision) => controls.push(Control::HumanAnswer),
                Some(RequestKind::Assistant | RequestKind::External) | None => {}
            }
            controls
        }
        DisplayStatus::Paused => vec![Control::Resume, Control::Cancel],
        DisplayStatus::Ambiguous => vec![Control::Review, Control::Cancel],
        DisplayStatus::Completed
        | DisplayStatus::Failed
        | DisplayStatus::TimedOut
        | DisplayStatus::Cancelled => {
            let mut controls = Vec::new();
            if facts.restartable {
                controls.push(Control::Restart);
            }
            if facts.ambiguous {
                controls.push(Control::Review);
            }
            controls
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPEN: DisplayFacts = DisplayFacts {
        status: RunStatus::Running,
        paused: false,
        ambiguous: false,
        asks: None,
        active: false,
        turn: false,
        parked: false,
        restartable: false,
    };

    #[test]
    #[expect(clippy::too_many_lines, reason = "a table")]
    fn precedence_and_controls() {
        let table = [
            ("idle", OPEN),
            (
                "parked",
                DisplayFacts {
                    parked: true,
                    ..OPEN
                },
            ),
            (
                "active",
                DisplayFacts {
                    active: true,
                    ..OPEN
                },
            ),
            ("turn", DisplayFacts { turn: true, ..OPEN }),
            (
                "asks in a turn",
                DisplayFacts {
                    asks: Some(RequestKind::Agent),
                    turn: true,
                    ..OPEN
                },
            ),
            (
                "paused in a turn",
                DisplayFacts {
                    paused: true,
                    asks: Some(RequestKind::Agent),
                    turn: true,
                    ..OPEN
                },
            ),
            (
                "completed in a turn",
                DisplayFacts {
                    status: RunStatus::Completed,
                    turn: true,
                    ..OPEN
                },
            ),
            (
                "asks",
                DisplayFacts {
                    asks: Some(RequestKind::Checkpoint),
                    active: true,
                    ..OPEN
                },
            ),
            (
                "asks agent",
                DisplayFacts {
                    asks: Some(RequestKind::Agent),
                    ..OPEN
                },
            ),
            (
                "asks assistant",
                DisplayFacts {
                    asks: Some(RequestKind::Assistant),
                    ..OPEN
                },
            ),
            (
                "asks decision",
                DisplayFacts {
                    asks: Some(RequestKind::Decision),
                    ..OPEN
                },
            ),
            (
                "paused",
                DisplayFacts {
                    paused: true,
                    asks: Some(RequestKind::Checkpoint),
                    active: true,
                    ..OPEN
                },
            ),
            (
                "ambiguous",
                DisplayFacts {
                    ambiguous: true,
                    paused: true,
                    ..OPEN
                },
            ),
            (
                "completed",
                DisplayFacts {
                    status: RunStatus::Completed,
                    active: true,
                    restartable: true,
                    ..OPEN
                },
            ),
            (
                "cancelled",
                DisplayFacts {
                    status: RunStatus::Cancelled,
                    ambiguous: true,
                    ..OPEN
                },
            ),
            (
                "timed out",
                DisplayFacts {
                    status: RunStatus::TimedOut,
                    restartable: true,
                    ..OPEN
                },
            ),
            (
                "failed",
                DisplayFacts {
                    status: RunStatus::Failed,
                    ..OPEN
                },
            ),
        ];
        let lines: Vec<String> = table
            .iter()
            .map(|(name, facts)| {
                format!(
                    "{name}: {} {:?} {:?}",
                    display_status(facts).as_str(),
                    controls(facts),
                    activity(facts)
                )
            })
            .collect();
        insta::assert_snapshot!(lines.join("\n"), @r"
        idle: queued [Cancel] []
        parked: queued [Resume, Cancel] []
        active: running [Pause, Cancel] [SupervisedWorker]
        turn: running [Pause, Cancel] [OriginTurn]
        asks in a turn: waiting [Pause, Cancel, Update, Submit] [OriginTurn]
        paused in a turn: paused [Resume, Cancel] [OriginTurn]
        completed in a turn: completed [] [OriginTurn]
        asks: waiting [Pause, Cancel, Answer] [SupervisedWorker]
        asks agent: waiting [Pause, Cancel, Update, Submit] []
        asks assistant: waiting [Pause, Cancel] []
        asks decision: waiting [Pause, Cancel, HumanAnswer] []
        paused: paused [Resume, Cancel] [SupervisedWorker]
        ambiguous: ambiguous [Review, Cancel] []
        completed: completed [Restart] [SupervisedWorker]
        cancelled: cancelled [Review] []
        timed out: timed_out [Restart] []
        failed: failed [] []
        ");
    }
}
