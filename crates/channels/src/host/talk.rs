//! The conversation with one adapter: each line is relayed and answered before the next is read.

use holdpoint_state::{Claim, Database, StateError};

use super::bot::{Bot, Held};
use super::supervise::Supervisor;
use crate::commands::{self, Session};
use crate::config::Profile;
use crate::error::ChannelError;
use crate::model::Relayed;
use crate::protocol::{ErrorCode, FromAdapter, Order, Report, ToAdapter, Verdict};

/// How often a message is relayed again while the store is busy.
const TRIES: usize = 3;

/// What is said back, and what it means for the process.
pub(super) struct Reply {
    pub(super) line: Vec<u8>,
    pub(super) then: Then,
}

/// What a reply means for the process.
pub(super) enum Then {
    /// It goes on. The report may have said what keeps it from reading updates.
    GoOn {
        /// The report was a `ready`.
        is_ready: bool,
        /// What the `ready` said.
        impeded: Option<ErrorCode>,
    },
    /// It said that it ends, and why.
    Exits(Option<ErrorCode>),
    /// It is told to stop, because another profile has its bot.
    BotElsewhere,
    /// It is ended, because it broke a rule.
    End,
}

/// What is known of one process while it runs.
pub(super) struct Talk<'a> {
    pub(super) db: &'a Database,
    pub(super) supervisor: &'a Supervisor,
    pub(super) claim: &'a Claim,
    pub(super) profile: &'a Profile,
    pub(super) adapter_epoch: String,
    pub(super) sequence: u64,
    pub(super) bot: &'a mut Bot,
    /// This process has said who its bot is, and the bot is this host's. Before that it is ordered nothing else.
    pub(super) has_bot: bool,
}

impl Talk<'_> {
    /// Answers one line.
    pub(super) fn answer(&mut self, line: &[u8], is_stopping: bool) -> Result<Reply, ChannelError> {
        let message = FromAdapter::from_line(line)?;
        let mut session = Session {
            db: self.db,
            claim: self.claim,
            channel: &self.supervisor.channel,
            profile: self.profile,
            adapter_epoch: &self.adapter_epoch,
            sequence: self.sequence,
        };
        let (relayed, mut revision) = again(|| commands::relay(&mut session, &message))?;
        self.sequence = session.sequence;
        let answer = match relayed {
            Relayed::Taken { answer } | Relayed::Repeated { answer } => answer,
            Relayed::Rejected { reason } => {
                tracing::warn!(channel = %self.supervisor.channel, reason = reason.as_str(), "a message of an adapter was rejected");
                let reply = ToAdapter {
                    sequence: message.sequence,
                    outcome: Verdict::Rejected,
                    revision,
                    command: None,
                    answer: None,
                    error: Some(reason.as_str().to_owned()),
                };
                return Ok(Reply {
                    line: reply.to_line()?,
                    then: Then::End,
                });
            }
        };
        let mut is_elsewhere = false;
        let (command, then) = match &message.report {
            Report::Exiting { error_code, .. } => (None, Then::Exits(*error_code)),
            Report::Part { .. } | Report::Answer(_) => (
                None,
                Then::GoOn {
                    is_ready: false,
                    impeded: None,
                },
            ),
            Report::Ready { .. } | Report::Present(_) | Report::Settle(_) => {
                let (is_ready, impeded) = match &message.report {
                    Report::Ready { error_code, .. } => (true, *error_code),
                    _ => (false, None),
                };
                if let Report::Ready {
                    bot_id: Some(bot_id),
                    ..
                } = message.report
                    && !is_stopping
                {
                    self.has_bot = self.bot.hold(self.supervisor, bot_id)? == Held::Here;
                    is_elsewhere = !self.has_bot;
                }
                let order = if is_stopping || is_elsewhere {
                    Order::Stop
                } else if !self.has_bot {
                    Order::Identify
                } else {
                    let next = again(|| commands::next(&session, &self.supervisor.config))?;
                    revision = next.revision;
                    next.order
                };
                let then = if is_elsewhere {
                    Then::BotElsewhere
                } else {
                    Then::GoOn { is_ready, impeded }
                };
                (Some(order), then)
            }
        };
        let reply = ToAdapter {
            sequence: message.sequence,
            outcome: Verdict::Accepted,
            revision,
            command,
            answer,
            error: None,
        };
        Ok(Reply {
            line: reply.to_line()?,
            then,
        })
    }
}

/// Does it again while the store is busy: nothing was written then.
fn again<T>(mut body: impl FnMut() -> Result<T, ChannelError>) -> Result<T, ChannelError> {
    for _ in 1..TRIES {
        match body() {
            Err(ChannelError::State(StateError::Busy { .. })) => {}
            done => return done,
        }
    }
    body()
}
