//! What readers see of effects: type, state, attempts and times. Private content comes only through [`content`].

use rusqlite::{OptionalExtension, Row, named_params};

use super::model::{EffectState, OwnerScope, resource};
use super::store;
use crate::clock::UnixMillis;
use crate::command::Sql;
use crate::error::StateError;
use crate::id::{EffectId, Resource};
use crate::records::resources::{self, AggregateKey, ResourceKey};

/// An effect as anybody may see it: no payload, no result, no error text, no external reference.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EffectView {
    /// The effect.
    pub effect_id: EffectId,
    /// The effect's own revision.
    pub revision: u64,
    /// The type of the resource that made it necessary.
    pub source_type: String,
    /// The natural key of that resource.
    pub source_key: String,
    /// The revision of that resource which reserved it.
    pub source_revision: u64,
    /// The domain's name of the work.
    pub effect_type: String,
    /// Whose authority applies it.
    pub scope: OwnerScope,
    /// Where it is.
    pub state: EffectState,
    /// How many attempts have begun.
    pub attempts: u32,
    /// Before which instant no attempt begins.
    pub next_attempt_at: Option<UnixMillis>,
    /// When it was reserved.
    pub created_at: UnixMillis,
    /// When it last changed.
    pub updated_at: UnixMillis,
    /// When it was settled.
    pub settled_at: Option<UnixMillis>,
    /// A safe code when it did not succeed.
    pub error_code: Option<&'static str>,
}

/// The private content of an effect, for the domain that owns it.
#[derive(Clone, PartialEq, Eq)]
pub struct EffectContent {
    /// The media type of the request.
    pub media_type: String,
    /// The request.
    pub payload: Vec<u8>,
    /// The result of the applied attempt.
    pub result: Option<Vec<u8>>,
    /// Why it was not applied.
    pub error: Option<String>,
    /// The provider's name of what was done.
    pub external_ref: Option<String>,
}

impl std::fmt::Debug for EffectContent {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("EffectContent")
            .field("media_type", &self.media_type)
            .field("payload_bytes", &self.payload.len())
            .finish_non_exhaustive()
    }
}

/// Which effects a list has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EffectFilter {
    /// Only effects in this state.
    pub state: Option<EffectState>,
    /// Only effects of this type.
    pub effect_type: Option<String>,
}

/// How many effects need somebody.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EffectCounts {
    /// To do.
    pub pending: u64,
    /// Somebody may be acting.
    pub applying: u64,
    /// Waiting for a person.
    pub ambiguous: u64,
}

macro_rules! select_views {
    ($rest:literal) => {
        concat!(
            "SELECT r.aggregate_key, r.revision, s.resource_type, s.aggregate_key, e.source_revision,
                 e.effect_type, e.owner_scope, e.status, e.attempt_count, e.next_attempt_at,
                 r.created_at, r.updated_at, e.settled_at
             FROM effects e JOIN resources r ON r.resource_key = e.resource_key
             JOIN resources s ON s.resource_key = e.source_key ",
            $rest
        )
    };
}

fn view(row: &Row<'_>) -> rusqlite::Result<EffectView> {
    let state = store::word(row, 7, EffectState::from_text)?;
    Ok(EffectView {
        effect_id: row.get::<_, AggregateKey>(0)?.0.into(),
        revision: row.get::<_, i64>(1)?.unsigned_abs(),
        source_type: row.get(2)?,
        source_key: row.get::<_, AggregateKey>(3)?.0,
        source_revision: row.get::<_, i64>(4)?.unsigned_abs(),
        effect_type: row.get(5)?,
        scope: store::word(row, 6, OwnerScope::from_text)?,
        state,
        attempts: row.get(8)?,
        next_attempt_at: row.get(9)?,
        created_at: row.get(10)?,
        updated_at: row.get(11)?,
        settled_at: row.get(12)?,
        error_code: state.error_code(),
    })
}

pub(crate) fn fetch(sql: &Sql<'_>, id: &EffectId) -> Result<Option<EffectView>, StateError> {
    match resources::fetch(sql, &resource(id))? {
        Some(found) => fetch_at(sql, found.key),
        None => Ok(None),
    }
}

pub(super) fn fetch_at(sql: &Sql<'_>, key: ResourceKey) -> Result<Option<EffectView>, StateError> {
    sql.prepare_cached(select_views!("WHERE e.resource_key = ?1"))?
        .query_row([key], view)
        .optional()
        .map_err(StateError::from)
}

pub(crate) fn list(
    sql: &Sql<'_>,
    filter: &EffectFilter,
    limit: u32,
) -> Result<Vec<EffectView>, StateError> {
    let mut statement = sql.prepare_cached(select_views!(
        "WHERE (:state IS NULL OR e.status = :state) AND (:effect_type IS NULL OR e.effect_type = :effect_type)
         ORDER BY e.resource_key LIMIT :limit"
    ))?;
    let rows = statement.query_map(
        named_params! {
            ":state": filter.state.map(EffectState::as_str),
            ":effect_type": filter.effect_type,
            ":limit": limit,
        },
        view,
    )?;
    rows.collect::<Result<_, _>>().map_err(StateError::from)
}

pub(crate) fn of_source(sql: &Sql<'_>, source: &Resource) -> Result<Vec<EffectView>, StateError> {
    let Some(found) = resources::fetch(sql, source)? else {
        return Ok(Vec::new());
    };
    let mut statement = sql.prepare_cached(select_views!(
        "WHERE e.source_key = ?1 ORDER BY e.resource_key"
    ))?;
    let rows = statement.query_map([found.key], view)?;
    rows.collect::<Result<_, _>>().map_err(StateError::from)
}

pub(crate) fn counts(sql: &Sql<'_>) -> Result<EffectCounts, StateError> {
    let mut statement = sql.prepare_cached(
        "SELECT status, count(*) FROM effects WHERE status IN ('pending', 'applying', 'ambiguous') GROUP BY status",
    )?;
    let rows = statement.query_map([], |row| {
        Ok((
            store::word(row, 0, EffectState::from_text)?,
            row.get::<_, i64>(1)?.unsigned_abs(),
        ))
    })?;
    let mut counts = EffectCounts::default();
    for row in rows {
        let (state, number) = row?;
        match state {
            EffectState::Pending => counts.pending = number,
            EffectState::Applying => counts.applying = number,
            EffectState::Ambiguous => counts.ambiguous = number,
            EffectState::Applied | EffectState::Rejected | EffectState::Cancelled => {}
        }
    }
    Ok(counts)
}

pub(crate) fn content(sql: &Sql<'_>, id: &EffectId) -> Result<Option<EffectContent>, StateError> {
    let Some(row) = store::find(sql, None, id)? else {
        return Ok(None);
    };
    let (media_type, payload) = store::payload(sql, row.key)?;
    let receipt = store::receipt(sql, row.key)?;
    Ok(Some(EffectContent {
        media_type,
        payload,
        result: receipt.result,
        error: receipt.error,
        external_ref: receipt.external_ref,
    }))
}
