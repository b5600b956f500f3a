//! Rows of effects and attempts. One statement per function; each names the state it leaves, and its count is checked.
//!
//! Not here: whether a transition is right, revisions and events (`source`, `outbox`, `resolution`).

use rusqlite::{ErrorCode, OptionalExtension, Row, ffi, named_params};

use super::model::{EffectIdentity, EffectState, NewEffect, OwnerScope, resource};
use crate::clock::UnixMillis;
use crate::command::Sql;
use crate::error::StateError;
use crate::id::{Digest, EffectId, Resource};
use crate::records::blobs::{self, JSON, Payload};
use crate::records::resources::{
    self, AggregateKey, ResourceKey, StoredKey, expect_one, sql_integer,
};

/// An effect as the transitions read it, without its private content.
#[derive(Debug, Clone)]
pub(super) struct EffectRow {
    pub(super) key: ResourceKey,
    pub(super) effect_id: EffectId,
    pub(super) source: ResourceKey,
    pub(super) effect_type: String,
    pub(super) scope: OwnerScope,
    pub(super) state: EffectState,
    pub(super) attempts: u32,
    pub(super) next_attempt_at: Option<UnixMillis>,
}

macro_rules! select_rows {
    ($rest:literal) => {
        concat!(
            "SELECT e.resource_key, r.aggregate_key, e.source_key, e.effect_type, e.owner_scope, e.status,
                 e.attempt_count, e.next_attempt_at
             FROM effects e JOIN resources r ON r.resource_key = e.resource_key ",
            $rest
        )
    };
}

fn effect_row(row: &Row<'_>) -> rusqlite::Result<EffectRow> {
    Ok(EffectRow {
        key: row.get(0)?,
        effect_id: row.get::<_, AggregateKey>(1)?.0.into(),
        source: row.get(2)?,
        effect_type: row.get(3)?,
        scope: word(row, 4, OwnerScope::from_text)?,
        state: word(row, 5, EffectState::from_text)?,
        attempts: row.get(6)?,
        next_attempt_at: row.get(7)?,
    })
}

/// Reads a word of a closed set.
pub(super) fn word<T>(
    row: &Row<'_>,
    column: usize,
    read: impl FnOnce(&str) -> Option<T>,
) -> rusqlite::Result<T> {
    let text: String = row.get(column)?;
    read(&text).ok_or_else(|| {
        rusqlite::Error::InvalidColumnType(column, text.clone(), rusqlite::types::Type::Text)
    })
}

/// The effect with that row.
pub(super) fn fetch(sql: &Sql<'_>, key: ResourceKey) -> Result<Option<EffectRow>, StateError> {
    sql.prepare_cached(select_rows!("WHERE e.resource_key = ?1"))?
        .query_row([key], effect_row)
        .optional()
        .map_err(StateError::from)
}

/// The effect of `source` that is the same intent as `effect`: what its id is derived from is unique, not the id.
pub(super) fn find_same(
    sql: &Sql<'_>,
    source: ResourceKey,
    source_name: &Resource,
    effect: &NewEffect,
) -> Result<Option<EffectRow>, StateError> {
    let id = effect.id(source_name);
    if matches!(effect.identity, EffectIdentity::Natural(_)) && effect.key != id.as_str() {
        // The key is not a part of what the id is derived from, so that another key does not make another effect.
        return find_among(sql, source, &id);
    }
    let effect_type = match effect.identity {
        EffectIdentity::SourceTypeKey | EffectIdentity::Natural(_) => Some(&effect.effect_type),
        EffectIdentity::SourceKey => None,
    };
    sql.prepare_cached(select_rows!(
        "WHERE e.source_key = :source AND e.idempotency_key = :key
           AND (:effect_type IS NULL OR e.effect_type = :effect_type)"
    ))?
    .query_row(
        named_params! { ":source": source, ":key": effect.key, ":effect_type": effect_type },
        effect_row,
    )
    .optional()
    .map_err(StateError::from)
}

/// The effect of that id: among those of `source` first, which an index finds, and among all only then.
pub(super) fn find(
    sql: &Sql<'_>,
    source: Option<ResourceKey>,
    id: &EffectId,
) -> Result<Option<EffectRow>, StateError> {
    let near = match source {
        Some(source) => find_among(sql, source, id)?,
        None => None,
    };
    match near {
        Some(row) => Ok(Some(row)),
        None => match resources::fetch(sql, &resource(id))? {
            Some(found) => fetch(sql, found.key),
            None => Ok(None),
        },
    }
}

/// The effect of that id among those of `source`, which an index finds.
fn find_among(
    sql: &Sql<'_>,
    source: ResourceKey,
    id: &EffectId,
) -> Result<Option<EffectRow>, StateError> {
    sql.prepare_cached(select_rows!(
        "WHERE e.source_key = ?1 AND r.aggregate_key = ?2"
    ))?
    .query_row((source, StoredKey::of(&resource(id))), effect_row)
    .optional()
    .map_err(StateError::from)
}

/// The open and the ambiguous effects of a source, in the order of their creation.
pub(super) fn unsettled_of_source(
    sql: &Sql<'_>,
    source: ResourceKey,
) -> Result<Vec<EffectRow>, StateError> {
    let mut statement = sql.prepare_cached(select_rows!(
        "WHERE e.source_key = ?1 AND (e.status IN ('pending', 'applying', 'ambiguous') OR e.next_attempt_at IS NOT NULL)
         ORDER BY e.resource_key"
    ))?;
    let rows = statement.query_map([source], effect_row)?;
    rows.collect::<Result<_, _>>().map_err(StateError::from)
}

/// Whether the outbox has the effect in flight: its own lease has an owner, live or expired.
pub(super) fn is_in_outbox(sql: &Sql<'_>, key: ResourceKey) -> Result<bool, StateError> {
    sql.prepare_cached(
        "SELECT EXISTS (SELECT 1 FROM leases WHERE resource_key = ?1 AND owner_id IS NOT NULL)",
    )?
    .query_row([key], |row| row.get(0))
    .map_err(StateError::from)
}

/// Whether something older in the same line is not settled yet. An ambiguous effect holds its line until a person resolves it;
/// a rejected one lets the next go on once it has no attempt left.
pub(super) fn is_held_back(sql: &Sql<'_>, key: ResourceKey) -> Result<bool, StateError> {
    sql.prepare_cached(
        "SELECT EXISTS (SELECT 1 FROM effects e
             JOIN effects b INDEXED BY effects_in_line ON b.ordering_key = e.ordering_key
             WHERE e.resource_key = ?1 AND b.resource_key < e.resource_key AND b.ordering_key IS NOT NULL
               AND (b.status = 'pending' OR b.status = 'applying' OR b.status = 'ambiguous'
                    OR b.next_attempt_at IS NOT NULL))",
    )?
    .query_row([key], |row| row.get(0))
    .map_err(StateError::from)
}

/// Whether the stored request equals this one.
pub(super) fn has_payload(
    sql: &Sql<'_>,
    key: ResourceKey,
    payload: &Payload,
) -> Result<bool, StateError> {
    let stored: (Option<Vec<u8>>, Option<Digest>, Option<String>) = sql
        .prepare_cached(
            "SELECT e.payload, e.payload_blob, b.media_type FROM effects e
             LEFT JOIN blobs b ON b.blob_hash = e.payload_blob WHERE e.resource_key = ?1",
        )?
        .query_row([key], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    Ok(match stored {
        (Some(inline), _, _) => inline == payload.as_bytes() && payload.media_type() == JSON,
        (None, digest, media_type) => {
            digest == Some(payload.digest()) && media_type.as_deref() == Some(payload.media_type())
        }
    })
}

/// The stored request: its media type and bytes.
pub(super) fn payload(sql: &Sql<'_>, key: ResourceKey) -> Result<(String, Vec<u8>), StateError> {
    sql.prepare_cached(
        "SELECT coalesce(b.media_type, 'application/json'), coalesce(e.payload, b.content) FROM effects e
         LEFT JOIN blobs b ON b.blob_hash = e.payload_blob WHERE e.resource_key = ?1",
    )?
    .query_row([key], |row| Ok((row.get(0)?, row.get(1)?)))
    .map_err(StateError::from)
}

/// Result, external reference and error of an effect.
pub(super) struct Receipt {
    pub(super) result: Option<Vec<u8>>,
    pub(super) external_ref: Option<String>,
    pub(super) error: Option<String>,
}

/// What an effect was settled with.
pub(super) fn receipt(sql: &Sql<'_>, key: ResourceKey) -> Result<Receipt, StateError> {
    sql.prepare_cached(
        "SELECT r.content, e.external_ref, CAST(x.content AS TEXT) FROM effects e
         LEFT JOIN blobs r ON r.blob_hash = e.result_hash
         LEFT JOIN blobs x ON x.blob_hash = e.error_hash WHERE e.resource_key = ?1",
    )?
    .query_row([key], |row| {
        Ok(Receipt {
            result: row.get(0)?,
            external_ref: row.get(1)?,
            error: row.get(2)?,
        })
    })
    .map_err(StateError::from)
}

/// Writes a new effect. It is pending; [`insert_attempt`] and [`begin`] follow when it begins at once.
pub(super) fn insert(
    sql: &Sql<'_>,
    key: ResourceKey,
    source: (ResourceKey, u64),
    effect: &NewEffect,
    now: UnixMillis,
) -> Result<(), StateError> {
    let inline = Some(&effect.payload).filter(|payload| payload.is_inline());
    if inline.is_none() {
        blobs::insert(sql, &effect.payload, now)?;
    }
    let written = sql
        .prepare_cached(
            "INSERT INTO effects (resource_key, source_key, source_revision, effect_type, idempotency_key,
                 owner_scope, status, next_attempt_at, ordering_key, payload, payload_blob)
             VALUES (:key, :source_key, :source_revision, :effect_type, :idempotency_key,
                 :scope, 'pending', :next_attempt_at, :ordering_key, :payload, :payload_blob)",
        )?
        .execute(named_params! {
            ":key": key,
            ":source_key": source.0,
            ":source_revision": sql_integer(source.1),
            ":effect_type": effect.effect_type,
            ":idempotency_key": effect.key,
            ":scope": effect.scope.as_str(),
            ":next_attempt_at": effect.due_at,
            ":ordering_key": effect.ordering_key,
            ":payload": inline.map(Payload::as_bytes),
            ":payload_blob": inline.is_none().then(|| effect.payload.digest()),
        })
        .map_err(|error| duplicate(error, effect))?;
    expect_one(written, "effects", &effect.key)
}

/// Source, type and key are unique together, also across the families of identity.
fn duplicate(error: rusqlite::Error, effect: &NewEffect) -> StateError {
    let unique = error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation)
        && error
            .sqlite_error()
            .is_some_and(|source| source.extended_code == ffi::SQLITE_CONSTRAINT_UNIQUE);
    if unique {
        StateError::Conflict {
            resource: crate::id::Resource::new(super::RESOURCE_TYPE, effect.key.clone()),
            winner: "an effect of the same source, type and key under another identity".into(),
        }
    } else {
        error.into()
    }
}

/// Who makes an attempt.
#[derive(Debug, Clone)]
pub(super) struct AttemptOwner {
    pub(super) owner_id: String,
    pub(super) generation: Option<u64>,
}

/// Opens the next attempt.
pub(super) fn begin(
    sql: &Sql<'_>,
    key: ResourceKey,
    from: EffectState,
    number: u32,
    owner: &AttemptOwner,
    now: UnixMillis,
) -> Result<(), StateError> {
    let written = sql
        .prepare_cached(
            "UPDATE effects SET status = 'applying', attempt_count = :number, next_attempt_at = NULL,
                 settled_at = NULL, error_hash = NULL, result_hash = NULL, external_ref = NULL
             WHERE resource_key = :key AND status = :from AND attempt_count = :number - 1",
        )?
        .execute(named_params! { ":key": key, ":from": from.as_str(), ":number": number })?;
    expect_one(written, "effects", &key.0)?;
    insert_attempt(sql, key, number, owner, now)
}

/// Writes an open attempt.
pub(super) fn insert_attempt(
    sql: &Sql<'_>,
    key: ResourceKey,
    number: u32,
    owner: &AttemptOwner,
    now: UnixMillis,
) -> Result<(), StateError> {
    let written = sql
        .prepare_cached(
            "INSERT INTO effect_attempts (resource_key, attempt_number, owner_id, lease_generation, started_at)
             VALUES (:key, :number, :owner_id, :generation, :now)",
        )?
        .execute(named_params! {
            ":key": key,
            ":number": number,
            ":owner_id": owner.owner_id,
            ":generation": owner.generation.map(sql_integer),
            ":now": now,
        })?;
    expect_one(written, "effect_attempts", &key.0)
}

/// The owner of the open attempt.
pub(super) fn open_attempt(
    sql: &Sql<'_>,
    key: ResourceKey,
    number: u32,
) -> Result<AttemptOwner, StateError> {
    sql.prepare_cached(
        "SELECT owner_id, lease_generation FROM effect_attempts
         WHERE resource_key = :key AND attempt_number = :number AND finished_at IS NULL",
    )?
    .query_row(named_params! { ":key": key, ":number": number }, |row| {
        Ok(AttemptOwner {
            owner_id: row.get(0)?,
            generation: row.get::<_, Option<i64>>(1)?.map(i64::unsigned_abs),
        })
    })
    .optional()?
    .ok_or_else(|| StateError::Corrupt {
        what: format!("effect_attempts row {} of {}", number, key.0),
        problem: "the effect is applying and its attempt is not open".into(),
    })
}

/// Where a transition leads and what is stored with it.
#[derive(Debug, Clone)]
pub(super) struct Settled<'a> {
    pub(super) from: EffectState,
    pub(super) to: EffectState,
    pub(super) result: Option<&'a Payload>,
    pub(super) error: Option<Payload>,
    pub(super) external_ref: Option<&'a str>,
    pub(super) next_attempt_at: Option<UnixMillis>,
}

impl Settled<'_> {
    /// A transition without content.
    pub(super) fn plain(from: EffectState, to: EffectState) -> Self {
        Self {
            from,
            to,
            result: None,
            error: None,
            external_ref: None,
            next_attempt_at: None,
        }
    }
}

/// Moves an effect to `settled.to` and closes its open attempt, if it has one, with `outcome`.
pub(super) fn settle(
    sql: &Sql<'_>,
    row: &EffectRow,
    settled: &Settled<'_>,
    outcome: &'static str,
    now: UnixMillis,
) -> Result<(), StateError> {
    let content = [settled.result, settled.error.as_ref()];
    for payload in content.into_iter().flatten() {
        blobs::insert(sql, payload, now)?;
    }
    let (result, error) = (
        settled.result.map(Payload::digest),
        settled.error.as_ref().map(Payload::digest),
    );
    let settled_at = match settled.to {
        EffectState::Pending | EffectState::Applying => None,
        EffectState::Applied
        | EffectState::Rejected
        | EffectState::Ambiguous
        | EffectState::Cancelled => Some(now),
    };
    let written = sql
        .prepare_cached(
            "UPDATE effects SET status = :to, result_hash = :result, error_hash = :error,
                 external_ref = :external_ref, next_attempt_at = :next_attempt_at, settled_at = :settled_at
             WHERE resource_key = :key AND status = :from AND attempt_count = :attempts",
        )?
        .execute(named_params! {
            ":key": row.key,
            ":from": settled.from.as_str(),
            ":to": settled.to.as_str(),
            ":attempts": row.attempts,
            ":result": result,
            ":error": error,
            ":external_ref": settled.external_ref,
            ":next_attempt_at": settled.next_attempt_at,
            ":settled_at": settled_at,
        })?;
    expect_one(written, "effects", &row.effect_id)?;
    if settled.from != EffectState::Applying {
        return Ok(());
    }
    let written = sql
        .prepare_cached(
            "UPDATE effect_attempts SET finished_at = max(started_at, :now), outcome = :outcome,
                 result_hash = :result, error_hash = :error
             WHERE resource_key = :key AND attempt_number = :number AND finished_at IS NULL",
        )?
        .execute(named_params! {
            ":key": row.key,
            ":number": row.attempts,
            ":now": now,
            ":outcome": outcome,
            ":result": result,
            ":error": error,
        })?;
    expect_one(written, "effect_attempts", &row.effect_id)
}

/// Applies a pending effect that never was in flight: its work is in this very transaction.
pub(super) fn apply_at_once(
    sql: &Sql<'_>,
    row: &EffectRow,
    owner: &AttemptOwner,
    settled: &Settled<'_>,
    now: UnixMillis,
) -> Result<(), StateError> {
    let number = row.attempts + 1;
    begin(sql, row.key, EffectState::Pending, number, owner, now)?;
    let begun = EffectRow {
        attempts: number,
        state: EffectState::Applying,
        ..row.clone()
    };
    let settled = Settled {
        from: EffectState::Applying,
        ..settled.clone()
    };
    settle(sql, &begun, &settled, "applied", now)
}

/// Takes the next attempt of a rejected effect away.
pub(super) fn give_up(
    sql: &Sql<'_>,
    key: ResourceKey,
    effect_id: &EffectId,
) -> Result<(), StateError> {
    let written = sql
        .prepare_cached(
            "UPDATE effects SET next_attempt_at = NULL WHERE resource_key = ?1 AND status = 'rejected'",
        )?
        .execute([key])?;
    expect_one(written, "effects", effect_id)
}
