//! The acts of resources on the outside world, in the words of this domain.

use holdpoint_state::command::Sql;
use holdpoint_state::id::derived_id;
use holdpoint_state::sql::{FromSqlError, OptionalExtension as _, Row, SqlError, named_params};
use holdpoint_state::{
    Digest, EffectId, EffectIdentity, EffectState, NewEffect, OwnerScope, Payload, ResourceKey,
    Snapshot,
};
use serde_json::{Value, json};

use super::stored;
use crate::error::ControllerError;
use crate::model::{EffectKey, EffectRecord, EffectRequest, Uid};

/// The request of an act, as it is stored: the generation is a part of what must be the same for ever.
pub(crate) fn stored_request(
    request: &EffectRequest,
    generation: u64,
) -> Result<NewEffect, ControllerError> {
    let payload = Payload::json(&json!({ "generation": generation, "request": request.request }))?;
    Ok(NewEffect::new(
        &request.kind,
        request.key.as_str(),
        OwnerScope::Controller,
        payload,
    )
    .identified_by(EffectIdentity::SourceKey))
}

macro_rules! select_effects {
    ($rest:literal) => {
        concat!(
            "SELECT e.idempotency_key, e.effect_type, e.status, s.aggregate_key, r.created_at, e.settled_at, e.external_ref,
                 CAST(x.content AS TEXT), coalesce(e.payload, p.content)
             FROM effects e JOIN resources r ON r.resource_key = e.resource_key JOIN resources s ON s.resource_key = e.source_key
             LEFT JOIN blobs x ON x.blob_hash = e.error_hash LEFT JOIN blobs p ON p.blob_hash = e.payload_blob
             WHERE e.source_key = :key AND e.owner_scope = 'controller' ",
            $rest
        )
    };
}

/// An act with the kernel's word for its state.
pub(crate) struct StoredEffect {
    pub(crate) record: EffectRecord,
    pub(crate) state: EffectState,
}

/// The id of an act: it follows from the resource and the act's key.
pub(crate) fn effect_id(uid: &Uid, key: &EffectKey) -> EffectId {
    derived_id("effect", &[uid.resource().id().as_str(), key.as_str()]).into()
}

/// An act, and its stored request.
fn raw(row: &Row<'_>) -> Result<(StoredEffect, Vec<u8>), SqlError> {
    let word: String = row.get(2)?;
    let state = EffectState::from_text(&word).ok_or(FromSqlError::InvalidType)?;
    let (key, uid): (EffectKey, Uid) = (row.get(0)?, row.get(3)?);
    let record = EffectRecord {
        effect_id: effect_id(&uid, &key),
        key,
        resource_uid: uid,
        generation: 0,
        kind: row.get(1)?,
        state: state.into(),
        request_fingerprint: Digest::of(&[]),
        started_at: row.get(4)?,
        completed_at: row.get(5)?,
        external_ref: row.get(6)?,
        error: row.get(7)?,
    };
    Ok((StoredEffect { record, state }, row.get(8)?))
}

fn read((mut effect, request): (StoredEffect, Vec<u8>)) -> Result<StoredEffect, ControllerError> {
    let damaged = |problem: String| ControllerError::Corrupt {
        what: format!(
            "effect {:?} of resource {}",
            effect.record.key.as_str(),
            effect.record.resource_uid
        ),
        problem,
    };
    let stored: Value =
        serde_json::from_slice(&request).map_err(|error| damaged(error.to_string()))?;
    let generation = stored.get("generation").and_then(Value::as_u64);
    let generation =
        generation.ok_or_else(|| damaged("its request names no generation".to_owned()))?;
    let request = stored.get("request").unwrap_or(&Value::Null);
    effect.record.request_fingerprint = Payload::json(request)?.digest();
    effect.record.generation = generation;
    Ok(effect)
}

/// The acts that older generations than this began and left open, oldest first: a pass of one died in the middle, and then somebody changed
/// the spec.
pub(crate) fn left_over(
    snapshot: &Snapshot<'_>,
    uid: &Uid,
    generation: u64,
) -> Result<Vec<EffectRequest>, ControllerError> {
    let sql = snapshot.sql();
    let Some(key) = stored::key_of(&sql, uid)? else {
        return Ok(Vec::new());
    };
    let mut statement = sql.prepare_cached(select_effects!(
        "AND e.status = 'applying' ORDER BY e.resource_key"
    ))?;
    let rows = statement.query_map(named_params! { ":key": key }, raw)?;
    let mut found = Vec::new();
    for row in rows {
        let (effect, request) = row?;
        let record = read((effect, request.clone()))?.record;
        if record.generation < generation {
            // It was read a moment ago, so that it is JSON.
            let stored: Value = serde_json::from_slice(&request).unwrap_or_default();
            found.push(EffectRequest {
                key: record.key,
                kind: record.kind,
                request: stored.get("request").cloned().unwrap_or_default(),
            });
        }
    }
    Ok(found)
}

pub(crate) fn by_key(
    sql: &Sql<'_>,
    source: ResourceKey,
    key: &EffectKey,
) -> Result<Option<StoredEffect>, ControllerError> {
    sql.prepare_cached(select_effects!("AND e.idempotency_key = :name"))?
        .query_row(named_params! { ":key": source, ":name": key }, raw)
        .optional()?
        .map(read)
        .transpose()
}

/// The acts of a resource, in the order in which they were asked for; those of a deleted resource too, while its history is kept.
///
/// # Errors
///
/// Those of the database.
pub fn effects(snapshot: &Snapshot<'_>, uid: &Uid) -> Result<Vec<EffectRecord>, ControllerError> {
    let sql = snapshot.sql();
    let Some(key) = stored::history_key(&sql, uid)? else {
        return Ok(Vec::new());
    };
    let mut statement = sql.prepare_cached(select_effects!("ORDER BY e.resource_key"))?;
    let rows = statement.query_map(named_params! { ":key": key }, raw)?;
    rows.map(|row| Ok(read(row?)?.record)).collect()
}
