//! `controller_resources` and `controller_finalizers`.
#![expect(
    clippy::disallowed_methods,
    reason = "store room: may ask Change for SQL"
)]

use holdpoint_state::clock::UnixMillis;
use holdpoint_state::records::resources::{ResourceKey, expect_one};
use holdpoint_state::sql::{OptionalExtension as _, named_params};
use holdpoint_state::{Change, Digest, Payload, StateError};

use super::integer;
use crate::error::ControllerError;
use crate::model::{EffectKey, FinalizerName, ManagedResource, StatusView, Target, Uid};
use crate::views::effects::{self, StoredEffect};
use crate::views::stored;

/// What most transitions need to know of a resource; its documents are not read.
pub(crate) struct Head {
    pub(crate) generation: u64,
    pub(crate) spec: Digest,
    pub(crate) status: Digest,
    pub(crate) deletion_requested_at: Option<UnixMillis>,
}

/// The resource of this change, or none when it was deleted.
pub(crate) fn head(change: &mut Change<'_>) -> Result<Option<Head>, StateError> {
    let key = change.resource_key()?;
    Ok(change
        .sql()
        .prepare_cached(
            "SELECT spec_generation, coalesce(spec_digest, spec_hash), coalesce(status_digest, status_hash), deletion_requested_at
             FROM controller_resources WHERE resource_key = :key",
        )?
        .query_row(named_params! { ":key": key }, |row| {
            Ok(Head {
                generation: row.get::<_, i64>(0)?.unsigned_abs(),
                spec: row.get(1)?,
                status: row.get(2)?,
                deletion_requested_at: row.get(3)?,
            })
        })
        .optional()?)
}

/// The whole resource of this change.
pub(crate) fn load(change: &mut Change<'_>) -> Result<Option<ManagedResource>, ControllerError> {
    let key = change.resource_key()?;
    stored::load(&change.sql(), key)
}

/// The status of this change's resource.
pub(crate) fn status(change: &mut Change<'_>) -> Result<Option<StatusView>, ControllerError> {
    let key = change.resource_key()?;
    stored::status(&change.sql(), key)
}

/// The uid of a target, as this transaction sees it.
pub(crate) fn find(change: &Change<'_>, target: &Target) -> Result<Option<Uid>, StateError> {
    stored::find(&change.sql(), target)
}

/// The finalizers of this change's resource, in order.
pub(crate) fn finalizers(change: &mut Change<'_>) -> Result<Vec<FinalizerName>, StateError> {
    let key = change.resource_key()?;
    stored::finalizers(&change.sql(), key)
}

/// Writes the row of the resource that this change makes.
pub(crate) fn insert(
    change: &mut Change<'_>,
    target: &Target,
    spec: &Payload,
    status: &Payload,
) -> Result<(), StateError> {
    let project = change.project(target.project.as_str())?;
    let (spec, status) = (change.keep(spec)?, change.keep(status)?);
    let key = change.resource_key()?;
    let now = change.now();
    let ((spec_digest, spec, spec_hash), (status_digest, status, status_hash)) =
        (spec.columns(), status.columns());
    let written = change
        .sql()
        .prepare_cached(
            "INSERT INTO controller_resources (resource_key, project_id, controller_name, resource_name, spec_generation,
                 spec_digest, spec, spec_hash, status_digest, status, status_hash, created_at, updated_at)
             VALUES (:key, :project, :controller, :name, 1, :spec_digest, :spec, :spec_hash, :status_digest, :status, :status_hash,
                 :now, :now)",
        )?
        .execute(named_params! {
            ":key": key, ":project": project, ":controller": target.controller, ":name": target.key,
            ":spec_digest": spec_digest, ":spec": spec, ":spec_hash": spec_hash,
            ":status_digest": status_digest, ":status": status, ":status_hash": status_hash, ":now": now,
        })?;
    expect_one(written, "controller_resources", target.key.as_str())
}

/// Writes the next generation of the spec.
pub(crate) fn set_spec(
    change: &mut Change<'_>,
    before: u64,
    spec: &Payload,
) -> Result<(), StateError> {
    let spec = change.keep(spec)?;
    let (digest, inline, hash) = spec.columns();
    let (key, now) = (change.resource_key()?, change.now());
    let written = change
        .sql()
        .prepare_cached(
            "UPDATE controller_resources SET spec_generation = :before + 1, spec_digest = :digest, spec = :spec, spec_hash = :hash,
                 updated_at = :now
             WHERE resource_key = :key AND spec_generation = :before AND deletion_requested_at IS NULL",
        )?
        .execute(named_params! {
            ":key": key, ":before": integer(before), ":digest": digest, ":spec": inline, ":hash": hash, ":now": now,
        })?;
    expect_one(written, "controller_resources", change.resource().key())
}

/// Writes what a pass found.
pub(crate) fn set_status(
    change: &mut Change<'_>,
    generation: u64,
    status: &Payload,
) -> Result<(), StateError> {
    let status = change.keep(status)?;
    let (digest, inline, hash) = status.columns();
    let (key, now) = (change.resource_key()?, change.now());
    let written = change
        .sql()
        .prepare_cached(
            "UPDATE controller_resources SET status_digest = :digest, status = :status, status_hash = :hash, updated_at = :now
             WHERE resource_key = :key AND spec_generation = :generation",
        )?
        .execute(named_params! {
            ":key": key, ":generation": integer(generation), ":digest": digest, ":status": inline, ":hash": hash, ":now": now,
        })?;
    expect_one(written, "controller_resources", change.resource().key())
}

/// Notes that the deletion is asked for.
pub(crate) fn set_deletion(change: &mut Change<'_>) -> Result<(), StateError> {
    let (key, now) = (change.resource_key()?, change.now());
    let written = change
        .sql()
        .prepare_cached(
            "UPDATE controller_resources SET deletion_requested_at = :now, updated_at = :now
             WHERE resource_key = :key AND deletion_requested_at IS NULL",
        )?
        .execute(named_params! { ":key": key, ":now": now })?;
    expect_one(written, "controller_resources", change.resource().key())
}

/// Replaces the finalizers of this change's resource.
pub(crate) fn set_finalizers(
    change: &mut Change<'_>,
    finalizers: &[FinalizerName],
) -> Result<(), StateError> {
    let key = change.resource_key()?;
    let sql = change.sql();
    sql.prepare_cached("DELETE FROM controller_finalizers WHERE resource_key = :key")?
        .execute(named_params! { ":key": key })?;
    let mut insert = sql.prepare_cached(
        "INSERT INTO controller_finalizers (resource_key, position, finalizer) VALUES (:key, :position, :finalizer)",
    )?;
    for (position, finalizer) in (0_i64..).zip(finalizers) {
        insert.execute(
            named_params! { ":key": key, ":position": position, ":finalizer": finalizer },
        )?;
    }
    Ok(())
}

/// How many effects of this change's resource may have happened or may be happening: while there is one, it is not deleted.
pub(crate) fn open_effects(change: &mut Change<'_>) -> Result<u64, StateError> {
    let key = change.resource_key()?;
    let open: i64 = change
        .sql()
        .prepare_cached(
            "SELECT count(*) FROM effects WHERE source_key = :key AND (status = 'applying' OR status = 'ambiguous')",
        )?
        .query_row(named_params! { ":key": key }, |row| row.get(0))?;
    Ok(open.unsigned_abs())
}

/// Deletes the rows of this change's resource, children and queue with it. The kernel's records stay.
pub(crate) fn delete(change: &mut Change<'_>) -> Result<(), StateError> {
    let key = change.resource_key()?;
    let sql = change.sql();
    sql.prepare_cached("DELETE FROM controller_workflows WHERE resource_key = :key")?
        .execute(named_params! { ":key": key })?;
    sql.prepare_cached("DELETE FROM controller_queue WHERE resource_key = :key")?
        .execute(named_params! { ":key": key })?;
    let written = sql
        .prepare_cached(
            "DELETE FROM controller_resources WHERE resource_key = :key AND deletion_requested_at IS NOT NULL
                 AND NOT EXISTS (SELECT 1 FROM controller_finalizers f WHERE f.resource_key = :key)",
        )?
        .execute(named_params! { ":key": key })?;
    expect_one(written, "controller_resources", change.resource().key())
}

/// An act of this change's resource.
pub(crate) fn effect(
    change: &mut Change<'_>,
    name: &EffectKey,
) -> Result<Option<StoredEffect>, ControllerError> {
    let key = change.resource_key()?;
    effects::by_key(&change.sql(), key, name)
}

/// The resource from which an effect comes, if that is a managed one that exists.
pub(crate) fn source_of_effect(change: &mut Change<'_>) -> Result<Option<ResourceKey>, StateError> {
    let key = change.resource_key()?;
    Ok(change
        .sql()
        .prepare_cached(
            "SELECT c.resource_key FROM effects e JOIN controller_resources c ON c.resource_key = e.source_key
             WHERE e.resource_key = :key",
        )?
        .query_row(named_params! { ":key": key }, |row| row.get(0))
        .optional()?)
}
