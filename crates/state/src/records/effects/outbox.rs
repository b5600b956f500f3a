//! What an outbox worker does with effects: find what is due, claim and begin, take over, settle (effects reference, section 5).
//!
//! Claim and begin are one transaction and one event, `effect.applying`, whose generation is that of the claim; settling releases
//! the claim as part of its own event. Not here: the act itself, threads and waiting (`effects::worker`).

use rusqlite::named_params;

use super::model::{EffectAttempt, EffectState, OwnerScope, Settlement, resource};
use super::steps::{attempt_facts, check_attempt, target, write_settlement};
use super::store::{self, AttemptOwner, EffectRow, Settled};
use super::{APPLY, BEGIN, CANCEL, CHANNEL_ATTEMPTS_MAX, GIVE_UP};
use crate::clock::UnixMillis;
use crate::command::{Actor, Change, Command, Outcome, Place, Sql};
use crate::effects::{EffectCall, EffectHandler, LocalHandler};
use crate::error::StateError;
use crate::id::EffectId;
use crate::records::leases::{self, Claim, Owner};
use crate::records::resources::{AggregateKey, ResourceKey};

/// Why a moot effect was cancelled, for its owner.
const MOOT: &str = "it is not wanted any more";

/// An effect that is due, as a snapshot saw it. The transaction that takes it looks again.
#[derive(Debug, Clone)]
pub(crate) struct Candidate {
    pub(crate) key: ResourceKey,
    pub(crate) effect_id: EffectId,
    pub(crate) effect_type: String,
    pub(crate) state: EffectState,
    /// How often the effect's own lease was claimed.
    pub(crate) generation: u64,
}

/// The start of every search.
pub(crate) const FIRST: ResourceKey = ResourceKey(0);

/// What is due at `now`, in the order of creation, after the row `after`: intents whose time has come, whose lease is free and
/// before whom nothing stands in their line; and acts whose owner's lease ran out.
pub(crate) fn due(
    sql: &Sql<'_>,
    now: UnixMillis,
    after: ResourceKey,
    limit: u32,
) -> Result<Vec<Candidate>, StateError> {
    let mut statement = sql.prepare_cached(
        "SELECT e.resource_key, r.aggregate_key, e.effect_type, e.status, coalesce(l.generation, 0)
         FROM effects e INDEXED BY effects_open
         JOIN resources r ON r.resource_key = e.resource_key
         LEFT JOIN leases l ON l.resource_key = e.resource_key
         WHERE (e.status IN ('pending', 'applying') OR e.next_attempt_at IS NOT NULL)
           AND :after < e.resource_key
           AND (e.next_attempt_at IS NULL OR e.next_attempt_at <= :now)
           AND (l.expires_at <= :now OR (l.expires_at IS NULL AND e.status <> 'applying'))
           AND (e.ordering_key IS NULL OR NOT EXISTS (
               SELECT 1 FROM effects b INDEXED BY effects_in_line
               WHERE b.ordering_key = e.ordering_key AND b.ordering_key IS NOT NULL
                 AND b.resource_key < e.resource_key
                 AND (b.status = 'pending' OR b.status = 'applying' OR b.status = 'ambiguous'
                      OR b.next_attempt_at IS NOT NULL)))
         ORDER BY e.resource_key LIMIT :limit",
    )?;
    let rows = statement.query_map(
        named_params! { ":after": after, ":now": now, ":limit": limit },
        |row| {
            Ok(Candidate {
                key: row.get(0)?,
                effect_id: row.get::<_, AggregateKey>(1)?.0.into(),
                effect_type: row.get(2)?,
                state: store::word(row, 3, EffectState::from_text)?,
                generation: row.get::<_, i64>(4)?.unsigned_abs(),
            })
        },
    )?;
    rows.collect::<Result<_, _>>().map_err(StateError::from)
}

/// Who takes effects, and for how long.
#[derive(Debug, Clone)]
pub(crate) struct Taker {
    pub(crate) owner: Owner,
    pub(crate) actor: Actor,
    pub(crate) lease_ms: i64,
}

/// What became of the wish to take an effect.
#[derive(Debug)]
pub(crate) enum Taken {
    /// Somebody else was faster, or it must wait.
    Gone,
    /// It was not wanted any more and is settled.
    Moot,
    /// A local effect was done and settled.
    Done,
    /// An attempt has begun: act.
    Begun(Held),
    /// An attempt of somebody whose lease ran out: observe.
    Orphan(Held),
}

/// An attempt in flight under this worker's claim.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) claim: Claim,
    pub(crate) call: EffectCall,
    pub(crate) attempt: EffectAttempt,
    /// Whether the request declares that trying again is safe.
    pub(crate) is_idempotent: bool,
}

/// The command of [`begin`].
pub(crate) fn begin_command(candidate: &Candidate, taker: &Taker) -> Command {
    Command::of_kernel(&BEGIN, resource(&candidate.effect_id))
        .by(taker.actor.clone())
        .at(Place::At(candidate.key))
}

/// E1 to E3: claims the effect and opens its next attempt, if it is still due and still wanted.
pub(crate) fn begin(
    change: &mut Change<'_>,
    taker: &Taker,
    handler: &dyn EffectHandler,
) -> Result<Outcome<Taken>, StateError> {
    let row = change.own_effect_row()?;
    if !is_due(change, &row)? {
        return Ok(Outcome::Refused(Taken::Gone));
    }
    let call = call(&change.kernel_sql(), &row, row.attempts + 1)?;
    if !handler.still_wanted(&change.reading_sql(), &call)? {
        return drop_moot(change, &row);
    }
    let claim = change.claim(&taker.owner, taker.lease_ms)?;
    change.transition(row.state.as_str(), EffectState::Applying.as_str())?;
    change.record(attempt_facts(call.attempt)?);
    let owner = AttemptOwner {
        owner_id: taker.owner.id().to_owned(),
        generation: Some(claim.generation()),
    };
    let (sql, now) = (change.kernel_sql(), change.now());
    store::begin(&sql, row.key, row.state, call.attempt, &owner, now)?;
    let held = hold(change, &row, claim, call)?;
    Ok(Outcome::Accepted(Taken::Begun(held)))
}

/// The command of [`take_over`].
pub(crate) fn take_over_command(candidate: &Candidate, taker: &Taker) -> Command {
    Command::of_kernel(&leases::CLAIM, resource(&candidate.effect_id))
        .by(taker.actor.clone())
        .at(Place::At(candidate.key))
}

/// Claims an effect that is applying and whose owner's lease ran out. The attempt stays open: the provider is asked about it.
pub(crate) fn take_over(
    change: &mut Change<'_>,
    taker: &Taker,
) -> Result<Outcome<Taken>, StateError> {
    let row = change.own_effect_row()?;
    let lease = change.lease()?;
    // Without an owner of its own, the effect is in flight under its source's lease and not the outbox's.
    if row.state != EffectState::Applying || lease.owner.is_none() || lease.is_live(change.now()) {
        return Ok(Outcome::Refused(Taken::Gone));
    }
    let call = call(&change.kernel_sql(), &row, row.attempts)?;
    let claim = change.claim(&taker.owner, taker.lease_ms)?;
    let held = hold(change, &row, claim, call)?;
    Ok(Outcome::Accepted(Taken::Orphan(held)))
}

/// The command of [`apply_local`].
pub(crate) fn apply_local_command(candidate: &Candidate, taker: &Taker) -> Command {
    Command::of_kernel(&APPLY, resource(&candidate.effect_id))
        .by(taker.actor.clone())
        .at(Place::At(candidate.key))
}

/// E1 to E6 of a local effect, in one transaction: nobody ever sees it applying. No lease is needed, since no other transaction
/// can be under way.
pub(crate) fn apply_local(
    change: &mut Change<'_>,
    taker: &Taker,
    handler: &dyn LocalHandler,
) -> Result<Outcome<Taken>, StateError> {
    let row = change.own_effect_row()?;
    if row.state != EffectState::Pending || !is_due(change, &row)? {
        return Ok(Outcome::Refused(Taken::Gone));
    }
    let call = call(&change.kernel_sql(), &row, row.attempts + 1)?;
    if !handler.still_wanted(&change.reading_sql(), &call)? {
        return drop_moot(change, &row);
    }
    change.transition(row.state.as_str(), EffectState::Applied.as_str())?;
    change.record(attempt_facts(call.attempt)?);
    let owner = AttemptOwner {
        owner_id: taker.owner.id().to_owned(),
        generation: None,
    };
    let (sql, now) = (change.kernel_sql(), change.now());
    let settled = Settled::plain(row.state, EffectState::Applied);
    store::apply_at_once(&sql, &row, &owner, &settled, now)?;
    change.lend_to_effect(&row.effect_type, |change| handler.apply(change, &call))?;
    Ok(Outcome::Accepted(Taken::Done))
}

/// The command of [`settle`].
pub(crate) fn settle_command(held: &Held, settlement: &Settlement, taker: &Taker) -> Command {
    Command::of_kernel(target(settlement).0, resource(&held.attempt.effect_id))
        .by(taker.actor.clone())
        .holding(&held.claim)
        .at(Place::At(held.attempt.key))
}

/// E5 and E6: settles the attempt, lets the domain follow, and gives the claim back. `wait_ms` is how long the next attempt waits,
/// if there is one.
pub(crate) fn settle(
    change: &mut Change<'_>,
    attempt: &EffectAttempt,
    settlement: &Settlement,
    wait_ms: i64,
    handler: &dyn EffectHandler,
    call: &EffectCall,
) -> Result<Outcome<EffectState>, StateError> {
    let row = change.own_effect_row()?;
    let (operation, to) = target(settlement);
    check_attempt(&row, attempt.number, operation, to)?;
    let again = match to {
        EffectState::Pending => true,
        EffectState::Rejected => {
            row.scope == OwnerScope::Channel && row.attempts < CHANNEL_ATTEMPTS_MAX
        }
        EffectState::Applying
        | EffectState::Applied
        | EffectState::Ambiguous
        | EffectState::Cancelled => false,
    };
    let next_attempt_at = again.then(|| change.now().plus(wait_ms));
    change.transition(row.state.as_str(), to.as_str())?;
    change.record(attempt_facts(row.attempts)?);
    write_settlement(change, &row, settlement, next_attempt_at)?;
    change.release()?;
    change.lend_to_effect(&row.effect_type, |change| handler.settled(change, call, to))?;
    Ok(Outcome::Accepted(to))
}

fn is_due(change: &mut Change<'_>, row: &EffectRow) -> Result<bool, StateError> {
    let now = change.now();
    let waits = match row.state {
        EffectState::Pending => row.next_attempt_at.is_some_and(|at| now < at),
        EffectState::Rejected => row.next_attempt_at.is_none_or(|at| now < at),
        EffectState::Applying
        | EffectState::Applied
        | EffectState::Ambiguous
        | EffectState::Cancelled => true,
    };
    Ok(!waits
        && !change.lease()?.is_live(now)
        && !store::is_held_back(&change.kernel_sql(), row.key)?)
}

/// The fact that made the effect necessary does not stand any more (E3): it is given up, without an attempt.
fn drop_moot(change: &mut Change<'_>, row: &EffectRow) -> Result<Outcome<Taken>, StateError> {
    let (operation, to) = match row.state {
        EffectState::Rejected => (&GIVE_UP, EffectState::Rejected),
        EffectState::Pending
        | EffectState::Applying
        | EffectState::Applied
        | EffectState::Ambiguous
        | EffectState::Cancelled => (&CANCEL, EffectState::Cancelled),
    };
    change.instead(operation)?;
    change.transition(row.state.as_str(), to.as_str())?;
    change.record(attempt_facts(row.attempts)?);
    let sql = change.kernel_sql();
    if to == EffectState::Rejected {
        store::give_up(&sql, row.key, &row.effect_id)?;
    } else {
        let settled = Settled {
            error: Some(super::model::error_payload(MOOT)?),
            ..Settled::plain(row.state, to)
        };
        store::settle(&sql, row, &settled, "", change.now())?;
    }
    Ok(Outcome::Accepted(Taken::Moot))
}

fn hold(
    change: &Change<'_>,
    row: &EffectRow,
    claim: Claim,
    call: EffectCall,
) -> Result<Held, StateError> {
    Ok(Held {
        claim,
        attempt: EffectAttempt {
            effect_id: row.effect_id.clone(),
            number: call.attempt,
            key: row.key,
        },
        call,
        is_idempotent: change.is_idempotent(row.key)?,
    })
}

/// What a handler gets to see.
fn call(sql: &Sql<'_>, row: &EffectRow, attempt: u32) -> Result<EffectCall, StateError> {
    let (media_type, payload) = store::payload(sql, row.key)?;
    sql.prepare_cached(
        "SELECT e.idempotency_key, e.source_revision, s.resource_type, s.aggregate_key FROM effects e
         JOIN resources s ON s.resource_key = e.source_key WHERE e.resource_key = ?1",
    )?
    .query_row([row.key], |found| {
        Ok(EffectCall {
            effect_id: row.effect_id.clone(),
            effect_type: row.effect_type.clone(),
            scope: row.scope,
            attempt,
            key: found.get(0)?,
            source_revision: found.get::<_, i64>(1)?.unsigned_abs(),
            source_type: found.get(2)?,
            source_key: found.get::<_, AggregateKey>(3)?.0,
            media_type,
            payload,
        })
    })
    .map_err(StateError::from)
}
