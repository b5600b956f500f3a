//! `workflow_settings` and `workflow_setting_changes`.
#![expect(
    clippy::disallowed_methods,
    reason = "store room: may ask Change for SQL"
)]

use holdpoint_state::records::resources::expect_one;
use holdpoint_state::sql::{OptionalExtension as _, Row, SqlError, named_params};
use holdpoint_state::{Change, Digest, ResourceKey, StateError};

use crate::id::ScopeId;

/// A scope at one of its change numbers.
#[derive(Debug, Clone)]
pub(crate) struct BoundRow {
    pub(crate) key: ResourceKey,
    pub(crate) scope_id: ScopeId,
    pub(crate) change_number: i64,
    pub(crate) hash: Digest,
}

/// A new scope.
pub(crate) struct NewScope<'a> {
    pub(crate) scope_id: &'a ScopeId,
    pub(crate) run: ResourceKey,
    pub(crate) mount_path: &'a str,
    pub(crate) invocation: u32,
    pub(crate) initial: Digest,
}

/// Makes the scope of this change, at change 0. Its run is the one that made it and the one that may change it.
pub(crate) fn insert_scope(
    change: &mut Change<'_>,
    scope: &NewScope<'_>,
) -> Result<(), StateError> {
    let (key, now) = (change.resource_key()?, change.now());
    let written = change
        .sql()
        .prepare_cached(
            "INSERT INTO workflow_settings (resource_key, scope_id, origin_run_key, active_run_key, mount_path, invocation,
                 change_number, initial_hash, current_hash, created_at)
             VALUES (:key, :scope_id, :run, :run, :mount_path, :invocation, 0, :initial, :initial, :now)",
        )?
        .execute(named_params! {
            ":key": key, ":scope_id": scope.scope_id, ":run": scope.run, ":mount_path": scope.mount_path,
            ":invocation": scope.invocation, ":initial": scope.initial, ":now": now,
        })?;
    expect_one(written, "workflow_settings", scope.scope_id)
}

fn bound(row: &Row<'_>) -> Result<BoundRow, SqlError> {
    Ok(BoundRow {
        key: row.get(0)?,
        scope_id: row.get(1)?,
        change_number: row.get(2)?,
        hash: row.get(3)?,
    })
}

/// The latest scope of a mount of a run, as it is now.
pub(crate) fn latest(
    change: &mut Change<'_>,
    run: ResourceKey,
    mount_path: &str,
) -> Result<Option<BoundRow>, StateError> {
    Ok(change
        .sql()
        .prepare_cached(
            "SELECT resource_key, scope_id, change_number, current_hash FROM workflow_settings
             WHERE active_run_key = :run AND mount_path = :mount_path ORDER BY invocation DESC LIMIT 1",
        )?
        .query_row(named_params! { ":run": run, ":mount_path": mount_path }, bound)
        .optional()?)
}

/// A scope as it is now.
pub(crate) fn scope(
    change: &mut Change<'_>,
    key: ResourceKey,
) -> Result<Option<BoundRow>, StateError> {
    Ok(change
        .sql()
        .prepare_cached(
            "SELECT resource_key, scope_id, change_number, current_hash FROM workflow_settings WHERE resource_key = :key",
        )?
        .query_row(named_params! { ":key": key }, bound)
        .optional()?)
}

/// The id of the run that may change a scope.
pub(crate) fn owner(
    change: &mut Change<'_>,
    key: ResourceKey,
) -> Result<Option<String>, StateError> {
    Ok(change
        .sql()
        .prepare_cached(
            "SELECT r.run_id FROM workflow_settings s JOIN runs r ON r.resource_key = s.active_run_key
             WHERE s.resource_key = :key",
        )?
        .query_row(named_params! { ":key": key }, |row| row.get(0))
        .optional()?)
}

/// An accepted change.
#[derive(Debug, Clone)]
pub(crate) struct ChangeRow {
    pub(crate) change_id: String,
    pub(crate) change_number: i64,
    pub(crate) actor_type: String,
    pub(crate) actor_id: Option<String>,
    pub(crate) source_type: String,
    pub(crate) patch: Digest,
}

/// The change of this scope that a request made.
pub(crate) fn requested(
    change: &mut Change<'_>,
    request: &str,
) -> Result<Option<ChangeRow>, StateError> {
    let key = change.resource_key()?;
    Ok(change
        .sql()
        .prepare_cached(
            "SELECT change_id, change_number, actor_type, actor_id, source_type, patch_hash FROM workflow_setting_changes
             WHERE scope_key = :key AND request_id = :request",
        )?
        .query_row(named_params! { ":key": key, ":request": request }, |row| {
            Ok(ChangeRow {
                change_id: row.get(0)?,
                change_number: row.get(1)?,
                actor_type: row.get(2)?,
                actor_id: row.get(3)?,
                source_type: row.get(4)?,
                patch: row.get(5)?,
            })
        })
        .optional()?)
}

/// What one change did.
pub(crate) struct NewChange<'a> {
    pub(crate) change_id: &'a str,
    pub(crate) request: &'a str,
    pub(crate) source: &'a str,
    pub(crate) change_number: i64,
    pub(crate) patch: Digest,
    pub(crate) before: Digest,
    pub(crate) after: Digest,
}

/// Appends a change to the history of this scope and makes its document the current one.
///
/// The scope must still be at the number before it: the command looked in this same transaction.
pub(crate) fn insert_change(
    change: &mut Change<'_>,
    new: &NewChange<'_>,
) -> Result<(), StateError> {
    let (key, now) = (change.resource_key()?, change.now());
    let actor = change.actor().clone();
    let written = change
        .sql()
        .prepare_cached(
            "INSERT INTO workflow_setting_changes (scope_key, change_number, change_id, request_id, actor_type, actor_id,
                 source_type, patch_hash, before_hash, after_hash, accepted_at)
             VALUES (:key, :number, :change_id, :request, :actor_type, :actor_id, :source, :patch, :before, :after, :now)",
        )?
        .execute(named_params! {
            ":key": key, ":number": new.change_number, ":change_id": new.change_id, ":request": new.request,
            ":actor_type": actor.kind().as_str(), ":actor_id": actor.id(), ":source": new.source, ":patch": new.patch,
            ":before": new.before, ":after": new.after, ":now": now,
        })?;
    expect_one(written, "workflow_setting_changes", new.change_id)?;
    let written = change
        .sql()
        .prepare_cached(
            "UPDATE workflow_settings SET change_number = :number, current_hash = :after
             WHERE resource_key = :key AND change_number = :number - 1 AND current_hash = :before",
        )?
        .execute(named_params! {
            ":key": key, ":number": new.change_number, ":before": new.before, ":after": new.after,
        })?;
    expect_one(written, "workflow_settings", new.change_id)
}

/// The first scope of a run whose history does not add up: a gap in the numbers, a change that did not begin with what the one
/// before it left, a first that did not begin with the initial document, or a last that did not leave the current one.
pub(crate) fn broken(
    change: &mut Change<'_>,
    run: ResourceKey,
) -> Result<Option<ScopeId>, StateError> {
    Ok(change
        .sql()
        .prepare_cached(
            "SELECT s.scope_id FROM workflow_settings s WHERE s.active_run_key = :run AND (
                 s.change_number <> (SELECT count(*) FROM workflow_setting_changes c WHERE c.scope_key = s.resource_key)
                 OR s.change_number <> (SELECT coalesce(max(c.change_number), 0) FROM workflow_setting_changes c
                     WHERE c.scope_key = s.resource_key)
                 OR s.current_hash IS NOT coalesce((SELECT c.after_hash FROM workflow_setting_changes c
                     WHERE c.scope_key = s.resource_key AND c.change_number = s.change_number), s.initial_hash)
                 OR EXISTS (SELECT 1 FROM workflow_setting_changes c WHERE c.scope_key = s.resource_key
                     AND c.before_hash IS NOT coalesce((SELECT p.after_hash FROM workflow_setting_changes p
                         WHERE p.scope_key = c.scope_key AND p.change_number = c.change_number - 1), s.initial_hash)))
             ORDER BY s.resource_key LIMIT 1",
        )?
        .query_row(named_params! { ":run": run }, |row| row.get(0))
        .optional()?)
}
