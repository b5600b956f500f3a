//! The bot that speaks for a profile: known once an adapter has asked the provider, and held by a lease while one speaks for it.
//!
//! Two profiles with one token are one bot, whichever configuration they stand in, and two readers of one bot each lose what the other
//! reads. The lease is in the store, so that the processes of one store are kept apart; of anybody else the provider tells (409).

use holdpoint_state::{Claim, StateError};

use super::supervise::Supervisor;
use crate::commands;
use crate::error::ChannelError;

/// What one supervision knows of its bot.
#[derive(Default)]
pub(super) struct Bot {
    /// Who it is, while somebody else has it: then it is asked for before anything is done for the profile.
    wanted: Option<u64>,
    held: Option<(u64, Claim)>,
}

/// Whether a bot could be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Held {
    /// It is this supervision's until it is given back.
    Here,
    /// Another profile of this store has it.
    Elsewhere,
}

impl Bot {
    /// The claim, to be kept.
    pub(super) fn claim(&self) -> Option<&Claim> {
        self.held.as_ref().map(|(_, claim)| claim)
    }

    /// Takes this bot, or notes that somebody else has it.
    pub(super) fn hold(
        &mut self,
        supervisor: &Supervisor,
        bot_id: u64,
    ) -> Result<Held, ChannelError> {
        if self.held.as_ref().is_some_and(|(held, _)| *held == bot_id) {
            return Ok(Held::Here);
        }
        self.give_back(supervisor);
        let (owner, lease_ms) = (&supervisor.owner, supervisor.options.lease_ms);
        match commands::hold_bot(&supervisor.db, bot_id, owner, lease_ms) {
            Ok(claim) => {
                (self.held, self.wanted) = (Some((bot_id, claim)), None);
                Ok(Held::Here)
            }
            Err(ChannelError::State(StateError::LeaseHeld { .. })) => {
                self.wanted = Some(bot_id);
                Ok(Held::Elsewhere)
            }
            Err(error) => Err(error),
        }
    }

    /// Takes the bot that was held elsewhere, if there is one.
    pub(super) fn hold_wanted(&mut self, supervisor: &Supervisor) -> Result<Held, ChannelError> {
        match self.wanted {
            Some(bot_id) => self.hold(supervisor, bot_id),
            None => Ok(Held::Here),
        }
    }

    /// Gives the bot back, once the adapter that spoke for it has ended.
    pub(super) fn give_back(&mut self, supervisor: &Supervisor) {
        if let Some((_, claim)) = self.held.take()
            && let Err(error) = commands::release_bot(&supervisor.db, &claim)
        {
            tracing::debug!(channel = %supervisor.channel, error = %error, "the claim on a bot was gone already");
        }
    }
}
