//! `workflow_follow_ups`. Their messages are in `store::messages`.
#![expect(
    clippy::disallowed_methods,
    reason = "store room: may ask Change for SQL"
)]

use holdpoint_state::records::resources::expect_one;
use holdpoint_state::sql::{OptionalExtension as _, named_params};
use holdpoint_state::{Change, Digest, ResourceKey, StateError};

use crate::model::FollowUpStatus;

/// A follow-up as commands see it.
#[derive(Debug, Clone)]
pub(crate) struct FollowUpRow {
    pub(crate) run_id: String,
    pub(crate) session: String,
    pub(crate) actor_type: String,
    pub(crate) actor_id: Option<String>,
    pub(crate) source_type: String,
    pub(crate) prompt: Digest,
    pub(crate) status: FollowUpStatus,
    pub(crate) order_number: i64,
}

/// The follow-up of this change.
pub(crate) fn follow_up(change: &mut Change<'_>) -> Result<Option<FollowUpRow>, StateError> {
    let id = change.resource().key().to_owned();
    Ok(change
        .sql()
        .prepare_cached(
            "SELECT r.run_id, f.target_session_id, f.actor_type, f.actor_id, f.source_type, f.prompt_hash, f.status,
                 f.order_number
             FROM workflow_follow_ups f JOIN runs r ON r.resource_key = f.run_key WHERE f.follow_up_id = :id",
        )?
        .query_row(named_params! { ":id": id }, |row| {
            Ok(FollowUpRow {
                run_id: row.get(0)?,
                session: row.get(1)?,
                actor_type: row.get(2)?,
                actor_id: row.get(3)?,
                source_type: row.get(4)?,
                prompt: row.get(5)?,
                status: row.get(6)?,
                order_number: row.get(7)?,
            })
        })
        .optional()?)
}

/// What a new follow-up says beside its prompt.
pub(crate) struct NewRow<'a> {
    pub(crate) run_key: ResourceKey,
    pub(crate) request_id: &'a str,
    pub(crate) session: &'a str,
    pub(crate) source_type: &'a str,
    pub(crate) prompt: Digest,
}

/// Queues the follow-up of this change behind those of its run. Returns its place.
pub(crate) fn insert(change: &mut Change<'_>, new: &NewRow<'_>) -> Result<i64, StateError> {
    let id = change.resource().key().to_owned();
    let (actor_type, actor_id) = (
        change.actor().kind().as_str(),
        change.actor().id().map(str::to_owned),
    );
    let (key, now) = (change.resource_key()?, change.now());
    let order: i64 = change
        .sql()
        .prepare_cached("SELECT coalesce(max(order_number), 0) + 1 FROM workflow_follow_ups WHERE run_key = :run")?
        .query_row(named_params! { ":run": new.run_key }, |row| row.get(0))?;
    let written = change
        .sql()
        .prepare_cached(
            "INSERT INTO workflow_follow_ups (resource_key, follow_up_id, run_key, request_id, order_number, target_session_id,
                 actor_type, actor_id, source_type, prompt_hash, status, created_at)
             VALUES (:key, :id, :run, :request_id, :order, :session, :actor_type, :actor_id, :source_type, :prompt, 'queued', :now)",
        )?
        .execute(named_params! {
            ":key": key, ":id": id, ":run": new.run_key, ":request_id": new.request_id, ":order": order,
            ":session": new.session, ":actor_type": actor_type, ":actor_id": actor_id, ":source_type": new.source_type,
            ":prompt": new.prompt, ":now": now,
        })?;
    expect_one(written, "workflow_follow_ups", &id)?;
    Ok(order)
}

/// Takes the follow-up of this change out of the queue.
pub(crate) fn close(
    change: &mut Change<'_>,
    to: FollowUpStatus,
    reason: Digest,
) -> Result<(), StateError> {
    let key = change.resource_key()?;
    let written = change
        .sql()
        .prepare_cached(
            "UPDATE workflow_follow_ups SET status = :to, reason_hash = :reason WHERE resource_key = :key AND status = 'queued'",
        )?
        .execute(named_params! { ":key": key, ":to": to, ":reason": reason })?;
    expect_one(written, "workflow_follow_ups", change.resource().key())
}

/// The queued follow-ups of the run of this change, in their order.
pub(crate) fn queued(change: &mut Change<'_>) -> Result<Vec<String>, StateError> {
    let run = change.resource_key()?;
    let sql = change.sql();
    let mut statement = sql.prepare_cached(
        "SELECT follow_up_id FROM workflow_follow_ups WHERE run_key = :run AND status = 'queued' ORDER BY order_number",
    )?;
    let rows = statement.query_map(named_params! { ":run": run }, |row| row.get(0))?;
    Ok(rows.collect::<Result<_, _>>()?)
}
