//! Events: append-only, one for each accepted change of a resource. Nothing here updates or deletes.

use rusqlite::{Row, named_params};

use super::blobs::{self, Payload};
use super::resources::{self, AggregateKey, ResourceKey, sql_integer};
use crate::clock::UnixMillis;
use crate::command::{Actor, ActorKind, Change, Sql};
use crate::database::Snapshot;
use crate::error::StateError;
use crate::id::{Digest, EventId, Resource, derived_id};

/// A committed event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The position in the store: grows, and is never given twice.
    pub seq: i64,
    /// The type of the changed resource.
    pub resource_type: String,
    /// The natural key of the changed resource.
    pub resource_key: String,
    /// The revision that the change led to.
    pub revision: u64,
    /// The domain's name of what happened.
    pub event_type: String,
    /// What kind of actor did it.
    pub actor: ActorKind,
    /// The private id of the actor.
    pub actor_id: Option<String>,
    /// The generation of the lease that the write used.
    pub lease_generation: Option<u64>,
    /// The commit's time.
    pub recorded_at: UnixMillis,
    /// The digest of the payload.
    pub payload_digest: Option<Digest>,
    /// The exact bytes of the payload: canonical JSON unless the domain stored another media type.
    pub payload: Option<Vec<u8>>,
}

impl Event {
    /// The public id: derived from the resource and the revision, which are unique together.
    pub fn id(&self) -> EventId {
        let resource = derived_id(
            &self.resource_type,
            &[&self.resource_type, &self.resource_key],
        );
        derived_id("event", &[&resource, &self.revision.to_string()]).into()
    }
}

pub(crate) struct NewEvent<'a> {
    pub(crate) resource: &'a Resource,
    pub(crate) key: ResourceKey,
    pub(crate) revision: u64,
    pub(crate) event_type: &'a str,
    pub(crate) actor: &'a Actor,
    pub(crate) lease_generation: Option<u64>,
    pub(crate) payload: Option<&'a Payload>,
}

/// Appends one event and gives its sequence number.
pub(crate) fn insert(
    sql: &Sql<'_>,
    event: &NewEvent<'_>,
    now: UnixMillis,
) -> Result<i64, StateError> {
    let inline = event.payload.filter(|payload| payload.is_inline());
    let blob = event.payload.filter(|payload| !payload.is_inline());
    if let Some(payload) = blob {
        blobs::insert(sql, payload, now)?;
    }
    sql.prepare_cached(
        "INSERT INTO events (resource_key, resource_revision, event_type, actor_type, actor_id,
             lease_generation, recorded_at, payload_digest, payload, payload_blob)
         VALUES (:resource_key, :revision, :event_type, :actor_type, :actor_id,
             :lease_generation, :now, :digest, :payload, :blob)",
    )?
    .insert(named_params! {
        ":resource_key": event.key,
        ":revision": sql_integer(event.revision),
        ":event_type": event.event_type,
        ":actor_type": event.actor.kind().as_str(),
        ":actor_id": event.actor.id(),
        ":lease_generation": event.lease_generation.map(sql_integer),
        ":now": now,
        ":digest": inline.map(Payload::digest),
        ":payload": inline.map(Payload::as_bytes),
        ":blob": blob.map(Payload::digest),
    })
    .map_err(|error| match error.sqlite_error_code() {
        // The revision was checked in this very transaction, so that a second row is a broken file.
        Some(rusqlite::ErrorCode::ConstraintViolation) => StateError::Corrupt {
            what: format!("event {} of {}", event.revision, event.resource),
            problem: error.to_string(),
        },
        _ => error.into(),
    })
}

/// How many bytes of payload one batch of events holds before it ends early.
pub const BATCH_BYTES: usize = 16 * 1024 * 1024;

/// The columns of [`from_row`], in order, with the rest of the statement.
macro_rules! select_events {
    ($rest:literal) => {
        concat!(
            "SELECT e.event_seq, r.resource_type, r.aggregate_key, e.resource_revision, e.event_type,
                 e.actor_type, e.actor_id, e.lease_generation, e.recorded_at,
                 coalesce(e.payload_digest, e.payload_blob), coalesce(e.payload, b.content)
             FROM events e JOIN resources r ON r.resource_key = e.resource_key
             LEFT JOIN blobs b ON b.blob_hash = e.payload_blob ",
            $rest
        )
    };
}

impl Snapshot<'_> {
    /// Events of all resources with a sequence number above `after_seq`, in order: at most `limit`, and fewer when their payloads
    /// together pass [`BATCH_BYTES`]. None means that there are no more.
    ///
    /// # Errors
    ///
    /// Those of the database.
    pub fn events_after(&self, after_seq: i64, limit: usize) -> Result<Vec<Event>, StateError> {
        list_after(&self.sql(), after_seq, limit)
    }

    /// The sequence number of the newest event, 0 when there is none: where a follower of what is new begins.
    ///
    /// # Errors
    ///
    /// Those of the database.
    pub fn last_event_seq(&self) -> Result<i64, StateError> {
        let newest = self
            .sql()
            .prepare_cached("SELECT max(event_seq) FROM events")?
            .query_row([], |row| row.get::<_, Option<i64>>(0))?;
        Ok(newest.unwrap_or(0))
    }

    /// Events of one resource with a revision above `after_revision`, in order; bounded as [`Snapshot::events_after`].
    ///
    /// # Errors
    ///
    /// Those of the database.
    pub fn events_of(
        &self,
        resource: &Resource,
        after_revision: u64,
        limit: usize,
    ) -> Result<Vec<Event>, StateError> {
        list_of(&self.sql(), resource, after_revision, limit)
    }
}

impl Change<'_> {
    /// Events of one resource, as [`Snapshot::events_of`] reads them, but inside the transaction. The event of this very
    /// change is written after its body, so that it is not among them.
    ///
    /// # Errors
    ///
    /// Those of the database.
    pub fn events_of(
        &self,
        resource: &Resource,
        after_revision: u64,
        limit: usize,
    ) -> Result<Vec<Event>, StateError> {
        list_of(&self.kernel_sql(), resource, after_revision, limit)
    }
}

pub(crate) fn list_after(
    sql: &Sql<'_>,
    after_seq: i64,
    limit: usize,
) -> Result<Vec<Event>, StateError> {
    let mut statement = sql.prepare_cached(select_events!(
        "WHERE ?1 < e.event_seq ORDER BY e.event_seq LIMIT ?2"
    ))?;
    batch(statement.query((after_seq, sql_limit(limit)))?)
}

fn list_of(
    sql: &Sql<'_>,
    resource: &Resource,
    after_revision: u64,
    limit: usize,
) -> Result<Vec<Event>, StateError> {
    let Some(row) = resources::fetch(sql, resource)? else {
        return Ok(Vec::new());
    };
    let mut statement = sql.prepare_cached(select_events!(
        "WHERE e.resource_key = ?1 AND ?2 < e.resource_revision
         ORDER BY e.resource_revision LIMIT ?3"
    ))?;
    batch(statement.query((row.key, sql_integer(after_revision), sql_limit(limit)))?)
}

fn batch(mut rows: rusqlite::Rows<'_>) -> Result<Vec<Event>, StateError> {
    let mut events = Vec::new();
    let mut size_bytes = 0;
    while size_bytes < BATCH_BYTES
        && let Some(row) = rows.next()?
    {
        let event = from_row(row)?;
        size_bytes += event.payload.as_ref().map_or(0, Vec::len);
        events.push(event);
    }
    Ok(events)
}

fn sql_limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

fn from_row(row: &Row<'_>) -> rusqlite::Result<Event> {
    let actor: String = row.get(5)?;
    Ok(Event {
        seq: row.get(0)?,
        resource_type: row.get(1)?,
        resource_key: row.get::<_, AggregateKey>(2)?.0,
        revision: row.get::<_, i64>(3)?.unsigned_abs(),
        event_type: row.get(4)?,
        actor: ActorKind::from_text(&actor).ok_or_else(|| {
            rusqlite::Error::InvalidColumnType(5, "actor_type".into(), rusqlite::types::Type::Text)
        })?,
        actor_id: row.get(6)?,
        lease_generation: row.get::<_, Option<i64>>(7)?.map(i64::unsigned_abs),
        recorded_at: row.get(8)?,
        payload_digest: row.get(9)?,
        payload: row.get(10)?,
    })
}
