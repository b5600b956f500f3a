//! A host takes a profile, makes its channel, and gives the profile back; and the same with the bot that speaks for it.

use holdpoint_state::{Actor, Claim, Command, Database, Outcome, Owner};

use super::attempts::doubt_in;
use super::profile_of;
use crate::error::ChannelError;
use crate::identity::{ChannelId, bot_resource};
use crate::protocol::ErrorCode;
use crate::{operations, store};

/// Takes the profile of a channel for a host, before any adapter runs. The generation of the claim is the host's epoch.
///
/// The channel is made or adopted, and everything that an earlier host left in flight is in doubt from then on: claim, channel and
/// doubt are one transaction.
///
/// # Errors
///
/// [`StateError::LeaseHeld`](holdpoint_state::StateError::LeaseHeld) while another host has it and lives.
pub fn start_host(
    db: &Database,
    channel: &ChannelId,
    owner: &Owner,
    lease_ms: i64,
) -> Result<Claim, ChannelError> {
    let profile = profile_of(channel)?.to_owned();
    // The command that makes a resource may do nothing else when it is there already.
    let command = Command::new(&operations::HOST_CREATE, channel.host_resource())
        .by(Actor::host(owner.id()))
        .creating();
    db.commit(command, |change| {
        if !change.is_new() {
            return Ok::<_, ChannelError>(Outcome::Adopted(()));
        }
        change.resource_key()?;
        Ok(Outcome::Accepted(()))
    })?;
    let command =
        Command::new(&operations::HOST_START, channel.host_resource()).by(Actor::host(owner.id()));
    let (channel, owner) = (channel.clone(), owner.clone());
    let claimed = db.commit(command, move |change| {
        let claim = change.claim(&owner, lease_ms)?;
        let create = Command::new(&operations::CREATE, channel.resource())
            .by(Actor::host(owner.id()))
            .under(&claim)
            .creating();
        change.also(&create, |change| {
            if !change.is_new() {
                return Ok::<_, ChannelError>(Outcome::Adopted(()));
            }
            store::channels::insert(change, &channel, &profile)?;
            Ok(Outcome::Accepted(()))
        })?;
        let doubt = Command::new(&operations::DOUBT, channel.resource())
            .by(Actor::host(owner.id()))
            .under(&claim);
        change.also(&doubt, |change| {
            doubt_in(change, &channel, ErrorCode::HostRestarted)
        })?;
        Ok::<_, ChannelError>(Outcome::Accepted(claim))
    })?;
    Ok(claimed.value)
}

/// Gives a profile back, once its adapter has ended.
///
/// # Errors
///
/// [`StateError::ClaimLost`](holdpoint_state::StateError::ClaimLost) when another host has it.
pub fn stop_host(db: &Database, claim: &Claim) -> Result<(), ChannelError> {
    let command = Command::new(&operations::HOST_STOP, claim.resource().clone())
        .by(Actor::host(claim.owner().id()))
        .holding(claim);
    db.commit(command, |change| {
        change.release()?;
        Ok::<_, ChannelError>(Outcome::Accepted(()))
    })?;
    Ok(())
}

/// Takes a bot for a host, so that no other profile of this store reads its updates or sends with it: two readers of one bot each lose
/// what the other reads (field case 84). A profile is no guard, since two of them may have one token.
///
/// # Errors
///
/// [`StateError::LeaseHeld`](holdpoint_state::StateError::LeaseHeld) while somebody else has it and lives.
pub fn hold_bot(
    db: &Database,
    bot_id: u64,
    owner: &Owner,
    lease_ms: i64,
) -> Result<Claim, ChannelError> {
    let command = Command::new(&operations::BOT_CREATE, bot_resource(bot_id))
        .by(Actor::host(owner.id()))
        .creating();
    db.commit(command, |change| {
        if !change.is_new() {
            return Ok::<_, ChannelError>(Outcome::Adopted(()));
        }
        change.resource_key()?;
        Ok(Outcome::Accepted(()))
    })?;
    let command =
        Command::new(&operations::BOT_HOLD, bot_resource(bot_id)).by(Actor::host(owner.id()));
    let owner = owner.clone();
    let held = db.commit(command, move |change| {
        Ok::<_, ChannelError>(Outcome::Accepted(change.claim(&owner, lease_ms)?))
    })?;
    Ok(held.value)
}

/// Gives a bot back, once the adapter that spoke for it has ended.
///
/// # Errors
///
/// [`StateError::ClaimLost`](holdpoint_state::StateError::ClaimLost) when somebody else has it.
pub fn release_bot(db: &Database, claim: &Claim) -> Result<(), ChannelError> {
    let command = Command::new(&operations::BOT_RELEASE, claim.resource().clone())
        .by(Actor::host(claim.owner().id()))
        .holding(claim);
    db.commit(command, |change| {
        change.release()?;
        Ok::<_, ChannelError>(Outcome::Accepted(()))
    })?;
    Ok(())
}
