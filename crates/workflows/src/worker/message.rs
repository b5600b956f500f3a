//! What a host and its worker process say to each other. Values only: whether a proposal is right is for the commands.
//!
//! A worker says what its code made: attempts, values, errors. What the host can know better it does not take from a worker: the
//! identity, key and payload of an effect, which try of it is settled, and what an applied one stored.

use holdpoint_state::effects::{EffectAttempt, EffectStart, Settlement};
use holdpoint_state::{Digest, EffectId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::commands::{
    Advanced, Ask, FinishedAttempt, Move, NewAttempt, Notification, Plan, Route, SettingsBinding,
    Unsettled,
};
use crate::definition::{NotificationKind, TimeBudget};
use crate::error::WorkflowError;
use crate::id::{AttemptId, NodeId};
use crate::model::{RequestKind, TerminalStatus};
use crate::routing::{NodeResult, present};
use crate::updates::{Update, UpdateError};
use crate::views::LoadedRun;

/// The version of this protocol. Both sides are one program, so that another version is another program.
pub(crate) const PROTOCOL: u32 = 1;

/// The kinds of frames from a host.
pub(crate) mod host {
    /// [`Launch`](super::Launch): the run as it was read.
    pub(crate) const LAUNCH: &str = "launch";
    /// A step of the run's history, in order.
    pub(crate) const STEP: &str = "step";
    /// That was all; [`Nothing`](super::Nothing).
    pub(crate) const GO: &str = "go";
    /// [`Reply`](super::Reply) to a message.
    pub(crate) const REPLY: &str = "reply";
    /// The run is to be given back at its next boundary.
    pub(crate) const DRAIN: &str = "drain";
    /// [`StopNow`](super::StopNow): its node is to be stopped.
    pub(crate) const STOP: &str = "stop";
}

/// The kinds of frames from a worker.
pub(crate) mod worker {
    /// [`Ready`](super::Ready).
    pub(crate) const READY: &str = "ready";
    /// It is alive; wants no reply.
    pub(crate) const HEARTBEAT: &str = "heartbeat";
    /// [`SaidPlan`](super::SaidPlan): the first move.
    pub(crate) const BEGIN: &str = "begin";
    /// [`SaidStep`](super::SaidStep): the candidate is the output, with the move after it.
    pub(crate) const ACCEPT: &str = "accept";
    /// [`Rejected`](super::Rejected): the candidate is none.
    pub(crate) const REJECT: &str = "reject";
    /// [`SaidStep`](super::SaidStep): a step with the move after it.
    pub(crate) const ADVANCE: &str = "advance";
    /// [`SaidBudget`](super::SaidBudget).
    pub(crate) const SET_TIMEOUT: &str = "setTimeout";
    /// [`SaidUpdate`](super::SaidUpdate).
    pub(crate) const PUBLISH: &str = "publish";
    /// [`SaidWait`](super::SaidWait).
    pub(crate) const WAIT: &str = "wait";
    /// Nobody will know what the present effect did.
    pub(crate) const DOUBT: &str = "doubt";
    /// The run is given back.
    pub(crate) const HAND_OVER: &str = "handOver";
    /// [`GaveUp`](super::GaveUp).
    pub(crate) const GIVE_UP: &str = "giveUp";
    /// [`AskDocument`](super::AskDocument): a document of live settings that it was told of.
    pub(crate) const DOCUMENT: &str = "document";
    /// [`AskSettings`](super::AskSettings): what the settings of a mount are now.
    pub(crate) const SETTINGS: &str = "settings";
    /// [`LoadFailed`](super::LoadFailed).
    pub(crate) const LOAD_FAILED: &str = "loadFailed";
}

/// A body without content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Nothing {}

/// The run that a worker executes, as its host read it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Launch {
    pub(crate) protocol: u32,
    /// The host's wall clock.
    pub(crate) now: i64,
    /// How often the worker says that it is alive, in milliseconds.
    pub(crate) heartbeat_ms: u64,
    /// The longest message in either direction, in bytes.
    pub(crate) message_bytes_max: usize,
    pub(crate) run: LoadedRun,
}

/// A worker is ready to begin.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Ready {
    pub(crate) protocol: u32,
}

/// What a host says about a message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "camelCase")]
pub(crate) enum Reply {
    /// It is committed.
    #[serde(rename_all = "camelCase")]
    Accepted {
        /// The instant of the commit, by the host's wall clock.
        now: i64,
        /// When the next attempt began, if one did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        started_at: Option<i64>,
        /// What its action may do.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        effect: Option<SaidStart>,
        /// Its effect's key is taken: it began without one and can only fail.
        is_effectless: bool,
        /// The settings that the next attempt began with, or that a settings route has to read now.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        settings: Option<SettingsBinding>,
        /// Whether nothing ended, since the settings changed after a settings route read them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        unsettled: Option<Unsettled>,
    },
    /// What was asked for; none when there is no such thing.
    Found {
        #[serde(
            default,
            skip_serializing_if = "Option::is_none",
            deserialize_with = "present"
        )]
        value: Option<Value>,
    },
    /// It changed nothing. After anything but an update the worker must end.
    #[serde(rename_all = "camelCase")]
    Refused {
        /// The code of the error.
        code: String,
        /// Which precondition fails.
        problem: String,
        /// Whether the same may succeed in a moment.
        is_passing: bool,
    },
}

impl Reply {
    pub(crate) fn accepted(now: i64, advanced: Option<&Advanced>, is_effectless: bool) -> Self {
        Self::Accepted {
            now,
            started_at: advanced.and_then(|advanced| advanced.started_at.map(|at| at.0)),
            effect: advanced.and_then(|advanced| advanced.effect.as_ref().map(SaidStart::of)),
            is_effectless,
            settings: advanced.and_then(|advanced| advanced.settings.clone()),
            unsettled: advanced.and_then(|advanced| advanced.unsettled),
        }
    }
}

/// [`EffectStart`] without what only the store knows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "camelCase")]
pub(crate) enum SaidStart {
    #[serde(rename_all = "camelCase")]
    Execute { effect_id: EffectId, number: u32 },
    #[serde(rename_all = "camelCase")]
    Adopted {
        effect_id: EffectId,
        #[serde(
            default,
            skip_serializing_if = "Option::is_none",
            deserialize_with = "present"
        )]
        result: Option<Value>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        external_ref: Option<String>,
    },
    #[serde(rename_all = "camelCase")]
    Ambiguous { effect_id: EffectId },
    #[serde(rename_all = "camelCase")]
    Rejected { effect_id: EffectId, error: String },
    #[serde(rename_all = "camelCase")]
    Cancelled { effect_id: EffectId },
}

impl SaidStart {
    fn of(start: &EffectStart) -> Self {
        match start.clone() {
            EffectStart::Execute(attempt) => Self::Execute {
                effect_id: attempt.effect_id,
                number: attempt.number,
            },
            EffectStart::Adopted {
                effect_id,
                result,
                external_ref,
            } => Self::Adopted {
                effect_id,
                // The store has checked it as JSON when it was stored; other bytes are no result of an action.
                result: result.map(|bytes| serde_json::from_slice(&bytes).unwrap_or_default()),
                external_ref,
            },
            EffectStart::Ambiguous { effect_id } => Self::Ambiguous { effect_id },
            EffectStart::Rejected { effect_id, error } => Self::Rejected { effect_id, error },
            EffectStart::Cancelled { effect_id } => Self::Cancelled { effect_id },
        }
    }

    /// What the stepper of the worker acts on. Its attempt can't be settled there.
    pub(crate) fn start(self) -> EffectStart {
        match self {
            Self::Execute { effect_id, number } => {
                EffectStart::Execute(EffectAttempt::named(effect_id, number))
            }
            Self::Adopted {
                effect_id,
                result,
                external_ref,
            } => EffectStart::Adopted {
                effect_id,
                result: result.map(|result| result.to_string().into_bytes()),
                external_ref,
            },
            Self::Ambiguous { effect_id } => EffectStart::Ambiguous { effect_id },
            Self::Rejected { effect_id, error } => EffectStart::Rejected { effect_id, error },
            Self::Cancelled { effect_id } => EffectStart::Cancelled { effect_id },
        }
    }
}

/// Why a worker must stop its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum StopReason {
    /// The claim is lost: nothing more is accepted.
    Lost,
    /// The host stops: the run is given back.
    Drain,
}

/// The body of `stop`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StopNow {
    pub(crate) reason: StopReason,
}

/// The first move.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "plan", rename_all = "camelCase")]
pub(crate) enum SaidPlan {
    First {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        title: Option<String>,
        next: SaidMove,
    },
    Answered {
        finished: SaidFinish,
        next: SaidMove,
    },
    Expired {
        finished: SaidFinish,
        next: SaidMove,
    },
    Again {
        next: SaidMove,
    },
}

impl SaidPlan {
    pub(crate) fn of(plan: &Plan) -> Result<Self, WorkflowError> {
        Ok(match plan {
            Plan::First { title, next } => Self::First {
                title: title.clone(),
                next: SaidMove::of(next)?,
            },
            Plan::Answered { finished, next } => Self::Answered {
                finished: SaidFinish::of(finished)?,
                next: SaidMove::of(next)?,
            },
            Plan::Expired { finished, next } => Self::Expired {
                finished: SaidFinish::of(finished)?,
                next: SaidMove::of(next)?,
            },
            Plan::Again { next } => Self::Again {
                next: SaidMove::of(next)?,
            },
        })
    }
}

/// A step with the move after it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SaidStep {
    pub(crate) finished: SaidFinish,
    pub(crate) next: SaidMove,
}

/// [`FinishedAttempt`] as a worker may say it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SaidFinish {
    pub(crate) result: NodeResult,
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "present"
    )]
    pub(crate) receipt: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) prompt: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) notification: Option<SaidNotification>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) settlement: Option<SaidSettlement>,
    /// Whether it is a settings route whose settings never stood still.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) unsettled: bool,
}

/// A text for the origin session.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SaidNotification {
    pub(crate) kind: NotificationKind,
    pub(crate) text: String,
}

/// How the act of the present attempt ended.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "camelCase")]
pub(crate) enum SaidSettlement {
    /// Done. The execution is said when the attempt has no output that shows it: it was done too late.
    Applied {
        #[serde(
            default,
            skip_serializing_if = "Option::is_none",
            deserialize_with = "present"
        )]
        execution: Option<Value>,
    },
    /// Provably not done.
    Rejected { error: String },
    /// Stopped on the way, and safe to try again.
    Interrupted,
}

impl SaidFinish {
    pub(crate) fn of(finished: &FinishedAttempt) -> Result<Self, WorkflowError> {
        let read =
            |payload: &holdpoint_state::Payload| crate::commands::read_json(payload.as_bytes());
        let is_ok = finished.result.output.is_some();
        let settlement = match &finished.effect {
            None => None,
            Some((_, Settlement::Applied { .. })) if is_ok => {
                Some(SaidSettlement::Applied { execution: None })
            }
            Some((_, Settlement::Applied { result, .. })) => Some(SaidSettlement::Applied {
                execution: result.as_ref().map(read).transpose()?,
            }),
            Some((_, Settlement::Rejected { error })) => Some(SaidSettlement::Rejected {
                error: error.clone(),
            }),
            Some((_, Settlement::Interrupted)) => Some(SaidSettlement::Interrupted),
            Some((_, Settlement::Ambiguous { .. })) => {
                return Err(WorkflowError::Input {
                    what: "settlement",
                    problem: "BUG: what nobody can know parks the run and is no step".to_owned(),
                });
            }
        };
        Ok(Self {
            result: finished.result.clone(),
            receipt: finished.receipt.as_ref().map(read).transpose()?,
            prompt: finished
                .prompt
                .as_ref()
                .map(|prompt| String::from_utf8_lossy(prompt.as_bytes()).into_owned()),
            notification: match &finished.notification {
                Some(notification) => {
                    let said = serde_json::from_slice(notification.content().as_bytes());
                    Some(said.map_err(|error| WorkflowError::Input {
                        what: "notification",
                        problem: error.to_string(),
                    })?)
                }
                None => None,
            },
            settlement,
            unsettled: finished.route == Route::GivenUp,
        })
    }

    /// The attempt as it is proposed, with the settlement of the try that the host itself began.
    pub(crate) fn finished(
        self,
        acting: Option<&EffectAttempt>,
        route: Route,
    ) -> Result<FinishedAttempt, WorkflowError> {
        let executed = self
            .result
            .output
            .as_ref()
            .map(|output| crate::engine::execution(output, self.receipt.as_ref()));
        let settlement = match self.settlement {
            None => None,
            Some(SaidSettlement::Applied { execution }) => Some(Settlement::Applied {
                result: executed
                    .or(execution)
                    .map(|execution| holdpoint_state::Payload::json(&execution))
                    .transpose()?,
                external_ref: None,
            }),
            Some(SaidSettlement::Rejected { error }) => Some(Settlement::Rejected { error }),
            Some(SaidSettlement::Interrupted) => Some(Settlement::Interrupted),
        };
        let mut finished = FinishedAttempt::new(self.result, self.receipt.as_ref())?
            .prompted(self.prompt.as_deref())
            .routed(route);
        if let Some(SaidNotification { kind, text }) = self.notification {
            finished = finished.notifying(Notification::new(kind, &text)?);
        }
        if let (Some(acting), Some(settlement)) = (acting, settlement) {
            finished = finished.settling(acting.clone(), settlement);
        }
        Ok(finished)
    }
}

/// [`Move`] as a worker may say it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "move", rename_all = "camelCase")]
pub(crate) enum SaidMove {
    Start(SaidAttempt),
    Complete,
    End {
        status: TerminalStatus,
        error: String,
    },
    HandOver,
}

/// An attempt that is to begin.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SaidAttempt {
    pub(crate) attempt_id: AttemptId,
    pub(crate) node_id: NodeId,
    pub(crate) visit: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) timeout: Option<TimeBudget>,
    /// What the author's function made of the effect's request.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "present"
    )]
    pub(crate) request: Option<Value>,
}

impl SaidMove {
    pub(crate) fn of(next: &Move) -> Result<Self, WorkflowError> {
        Ok(match next {
            Move::Start(NewAttempt {
                attempt_id,
                node_id,
                visit,
                timeout,
                effect,
            }) => Self::Start(SaidAttempt {
                attempt_id: attempt_id.clone(),
                node_id: node_id.clone(),
                visit: *visit,
                timeout: *timeout,
                request: match effect {
                    Some(effect) => {
                        let mut payload = crate::commands::read_json(effect.payload.as_bytes())?;
                        Some(
                            payload
                                .get_mut("request")
                                .map(Value::take)
                                .unwrap_or_default(),
                        )
                    }
                    None => None,
                },
            }),
            Move::Complete => Self::Complete,
            Move::End(status, error) => Self::End {
                status: *status,
                error: error.clone(),
            },
            Move::HandOver => Self::HandOver,
        })
    }
}

/// Why a candidate is no output.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Rejected {
    pub(crate) message: String,
}

/// The budget of the present attempt.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SaidBudget {
    pub(crate) attempt_id: AttemptId,
    pub(crate) timeout: TimeBudget,
}

/// Progress of the present attempt.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SaidUpdate {
    pub(crate) attempt_id: AttemptId,
    pub(crate) update_type: String,
    pub(crate) key: String,
    pub(crate) data: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) request_id: Option<String>,
}

impl SaidUpdate {
    pub(crate) fn of(attempt_id: &AttemptId, update: &Update) -> Result<Self, WorkflowError> {
        Ok(Self {
            attempt_id: attempt_id.clone(),
            update_type: update.update_type().to_owned(),
            key: update.key().to_owned(),
            data: crate::commands::read_json(update.data().as_bytes())?,
            request_id: update.request_id().map(str::to_owned),
        })
    }

    /// The update, checked as its publisher's own check did.
    pub(crate) fn update(&self) -> Result<Update, UpdateError> {
        let update = Update::new(&self.update_type, &self.key, &self.data)?;
        match &self.request_id {
            Some(request) => update.calling(request),
            None => Ok(update),
        }
    }
}

/// What the present attempt waits for.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SaidWait {
    pub(crate) attempt_id: AttemptId,
    pub(crate) kind: RequestKind,
    pub(crate) contract: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) detail: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) prompt: Option<String>,
    /// Whether another domain makes the request or writes rows beside it, which only the host can.
    pub(crate) has_rows: bool,
}

impl SaidWait {
    pub(crate) fn of(attempt_id: &AttemptId, ask: &Ask) -> Self {
        Self {
            attempt_id: attempt_id.clone(),
            kind: ask.kind,
            contract: ask.contract.clone(),
            detail: ask.detail.clone(),
            prompt: ask.prompt.clone(),
            has_rows: ask.has_code(),
        }
    }
}

/// The body of `document`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct AskDocument {
    pub(crate) hash: Digest,
}

/// The body of `settings`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AskSettings {
    pub(crate) mount_path: String,
}

/// A worker that can't go on.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GaveUp {
    pub(crate) detail: String,
    /// Whether another worker may try at once.
    pub(crate) is_passing: bool,
}

/// A worker whose source is unchanged and gives no definition.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct LoadFailed {
    pub(crate) error: String,
}
