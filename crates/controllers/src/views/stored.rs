//! How stored rows become what the model knows. Shared by readers and by the transactions of `store`; it only reads.

use holdpoint_state::command::Sql;
use holdpoint_state::sql::{OptionalExtension as _, Row, SqlError, named_params};
use holdpoint_state::{Digest, ResourceKey, StateError};
use serde_json::Value;

use crate::error::ControllerError;
use crate::model::{FinalizerName, ManagedResource, Metadata, StatusView, Target, Uid};

/// The uid of a target.
pub(crate) fn find(sql: &Sql<'_>, target: &Target) -> Result<Option<Uid>, StateError> {
    Ok(sql
        .prepare_cached(
            "SELECT r.aggregate_key FROM projects p
             JOIN controller_resources c ON c.project_id = p.project_id AND c.controller_name = :controller AND c.resource_name = :name
             JOIN resources r ON r.resource_key = c.resource_key
             WHERE p.canonical_path = :project",
        )?
        .query_row(
            named_params! { ":project": target.project, ":controller": target.controller, ":name": target.key },
            |row| row.get(0),
        )
        .optional()?)
}

/// The key of the row of a uid, if the resource exists.
pub(crate) fn key_of(sql: &Sql<'_>, uid: &Uid) -> Result<Option<ResourceKey>, StateError> {
    Ok(sql
        .prepare_cached(
            "SELECT c.resource_key FROM resources r JOIN controller_resources c ON c.resource_key = r.resource_key
             WHERE r.aggregate_key = :uid AND r.resource_type = 'controller' AND r.resource_type <> 'effect'",
        )?
        .query_row(named_params! { ":uid": uid }, |row| row.get(0))
        .optional()?)
}

/// The key of the kernel's row of a uid, also when the resource was deleted.
pub(crate) fn history_key(sql: &Sql<'_>, uid: &Uid) -> Result<Option<ResourceKey>, StateError> {
    Ok(sql
        .prepare_cached(
            "SELECT resource_key FROM resources
             WHERE aggregate_key = :uid AND resource_type = 'controller' AND resource_type <> 'effect'",
        )?
        .query_row(named_params! { ":uid": uid }, |row| row.get(0))
        .optional()?)
}

/// The finalizers of a resource, in order.
pub(crate) fn finalizers(
    sql: &Sql<'_>,
    key: ResourceKey,
) -> Result<Vec<FinalizerName>, StateError> {
    let mut statement = sql.prepare_cached(
        "SELECT finalizer FROM controller_finalizers WHERE resource_key = :key ORDER BY position",
    )?;
    let rows = statement.query_map(named_params! { ":key": key }, |row| row.get(0))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// A document in its row or as a blob, with the digest that it must have.
struct Document {
    digest: Digest,
    bytes: Vec<u8>,
}

impl Document {
    fn from_row(row: &Row<'_>, index: usize) -> Result<Self, SqlError> {
        Ok(Self {
            digest: row.get(index)?,
            bytes: row.get(index + 1)?,
        })
    }

    fn checked(&self, uid: &Uid, what: &'static str) -> Result<&[u8], ControllerError> {
        if Digest::of(&self.bytes) == self.digest {
            return Ok(&self.bytes);
        }
        Err(damaged(
            uid,
            &format!("its {what} is not that of its digest"),
        ))
    }
}

fn damaged(uid: &Uid, problem: &str) -> ControllerError {
    ControllerError::Corrupt {
        what: format!("resource {uid}"),
        problem: problem.to_owned(),
    }
}

/// A whole resource, its documents checked against their digests.
pub(crate) fn load(
    sql: &Sql<'_>,
    key: ResourceKey,
) -> Result<Option<ManagedResource>, ControllerError> {
    let found = sql
        .prepare_cached(
            "SELECT r.aggregate_key, c.controller_name, c.resource_name, r.revision, c.spec_generation, c.deletion_requested_at,
                 coalesce(c.spec_digest, c.spec_hash), coalesce(c.spec, s.content),
                 coalesce(c.status_digest, c.status_hash), coalesce(c.status, t.content)
             FROM controller_resources c JOIN resources r ON r.resource_key = c.resource_key
             LEFT JOIN blobs s ON s.blob_hash = c.spec_hash LEFT JOIN blobs t ON t.blob_hash = c.status_hash
             WHERE c.resource_key = :key",
        )?
        .query_row(named_params! { ":key": key }, |row| {
            let metadata = Metadata {
                uid: row.get(0)?,
                controller: row.get(1)?,
                key: row.get(2)?,
                resource_version: row.get::<_, i64>(3)?.unsigned_abs(),
                generation: row.get::<_, i64>(4)?.unsigned_abs(),
                deletion_timestamp: row.get(5)?,
                finalizers: Vec::new(),
            };
            Ok((metadata, Document::from_row(row, 6)?, Document::from_row(row, 8)?))
        })
        .optional()?;
    let Some((mut metadata, spec, status)) = found else {
        return Ok(None);
    };
    metadata.finalizers = finalizers(sql, key)?;
    let uid = metadata.uid.clone();
    let spec: Value = serde_json::from_slice(spec.checked(&uid, "spec")?)
        .map_err(|error| damaged(&uid, &format!("its spec is no JSON: {error}")))?;
    let status = read_status(&uid, &status)?;
    Ok(Some(ManagedResource {
        metadata,
        spec,
        status,
    }))
}

/// The status of a resource, without its spec.
pub(crate) fn status(
    sql: &Sql<'_>,
    key: ResourceKey,
) -> Result<Option<StatusView>, ControllerError> {
    let found = sql
        .prepare_cached(
            "SELECT r.aggregate_key, coalesce(c.status_digest, c.status_hash), coalesce(c.status, t.content)
             FROM controller_resources c JOIN resources r ON r.resource_key = c.resource_key
             LEFT JOIN blobs t ON t.blob_hash = c.status_hash
             WHERE c.resource_key = :key",
        )?
        .query_row(named_params! { ":key": key }, |row| Ok((row.get(0)?, Document::from_row(row, 1)?)))
        .optional()?;
    let Some((uid, document)) = found else {
        return Ok(None);
    };
    read_status(&uid, &document).map(Some)
}

fn read_status(uid: &Uid, document: &Document) -> Result<StatusView, ControllerError> {
    StatusView::read(document.checked(uid, "status")?)
        .map_err(|error| damaged(uid, &error.to_string()))
}

/// A stored error text.
pub(crate) fn error_text(bytes: Option<Vec<u8>>) -> Option<String> {
    let bytes = bytes?;
    Some(
        serde_json::from_slice(&bytes)
            .unwrap_or_else(|_| String::from_utf8_lossy(&bytes).into_owned()),
    )
}
