//! Why a run stands where it stands: who holds it, what it waits for, when it is due, what went wrong last.

use holdpoint_state::Snapshot;
use holdpoint_state::clock::UnixMillis;
use holdpoint_state::sql::{OptionalExtension as _, named_params};
use serde::Serialize;

use super::display::DisplayStatus;
use super::run::{EffectToReview, RunView, run};
use super::workers::{WorkerView, workers};
use crate::error::WorkflowError;
use crate::id::RunId;
use crate::model::{PAUSED_BECAUSE, ParkCode, QueueStatus, RequestStatus, RunStatus};

/// Who holds a run's lease, without private ids.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Holder {
    /// What kind of owner.
    pub kind: String,
    /// Whether the lease is live; an expired one is taken over by the next sweep.
    pub live: bool,
    /// When the lease ends, or ended.
    pub expires_at: UnixMillis,
}

/// The explanation of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// The run.
    pub run_id: RunId,
    /// Its status.
    pub status: RunStatus,
    /// The status word for people.
    pub display_status: DisplayStatus,
    /// The state of its queue row.
    pub queue_status: QueueStatus,
    /// Who holds it.
    pub holder: Option<Holder>,
    /// The generation of its lease.
    pub generation: u64,
    /// From when on a runner may take it.
    pub due_at: UnixMillis,
    /// The code of what blocks it: a parking code, `paused`, `waitingForAnswer`, `lease`, `notDue`, `noRunner`.
    pub blocked_by: Option<String>,
    /// What that means and what to do, in a sentence.
    pub reason: String,
    /// The last error of the run or its queue row, why the latest candidate for what it waits for was refused, or the error of its last
    /// step.
    pub last_error: Option<String>,
    /// The worker process that it has, or had last; none for a run that was executed on threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<WorkerView>,
}

/// Explains a run at the instant of the snapshot.
///
/// # Errors
///
/// Those of the database. A missing run is `None`.
pub fn explain(
    snapshot: &Snapshot<'_>,
    id: &RunId,
    now: UnixMillis,
) -> Result<Option<Explanation>, WorkflowError> {
    let Some(view) = run(snapshot, id, now)? else {
        return Ok(None);
    };
    let (due_at, generation, holder) = snapshot
        .sql()
        .prepare_cached(
            "SELECT q.available_at, coalesce(l.generation, 0), l.owner_type, l.expires_at
             FROM runs r JOIN run_queue q ON q.run_key = r.resource_key
             LEFT JOIN leases l ON l.resource_key = r.resource_key
             WHERE r.run_id = :run_id",
        )?
        .query_row(named_params! { ":run_id": id }, |row| {
            let kind: Option<String> = row.get(2)?;
            let expires_at: Option<UnixMillis> = row.get(3)?;
            Ok((
                row.get::<_, UnixMillis>(0)?,
                row.get::<_, i64>(1)?.unsigned_abs(),
                kind.zip(expires_at),
            ))
        })
        .optional()
        .map_err(holdpoint_state::StateError::from)?
        .unwrap_or((now, 0, None));
    let holder = holder.map(|(kind, expires_at)| Holder {
        kind,
        live: now < expires_at,
        expires_at,
    });
    let (blocked_by, reason) = blocking(&view, holder.as_ref(), due_at, now);
    let refused = view
        .request
        .as_ref()
        .and_then(|request| request.refused.as_ref());
    let refused = refused.map(|problem| format!("the latest candidate was refused: {problem}"));
    let last_error = view.error.clone().or(refused).or_else(|| {
        view.steps
            .iter()
            .rev()
            .find_map(|step| step.result.error.clone())
    });
    let worker = workers(snapshot, id, now, 1)?.pop();
    Ok(Some(Explanation {
        worker,
        run_id: view.run_id,
        status: view.status,
        display_status: view.display_status,
        queue_status: view.queue_status,
        holder,
        generation,
        due_at,
        blocked_by: blocked_by.map(str::to_owned),
        reason,
        last_error,
    }))
}

/// Effects with their types, for a person.
fn named(effects: &[EffectToReview]) -> String {
    let named: Vec<String> = effects
        .iter()
        .map(|effect| format!("effect {} ({})", effect.effect_id, effect.effect_type))
        .collect();
    named.join(" and ")
}

/// The first reason that holds, in the order in which a scheduler would stop at it.
fn blocking(
    view: &RunView,
    holder: Option<&Holder>,
    due_at: UnixMillis,
    now: UnixMillis,
) -> (Option<&'static str>, String) {
    if view.status.is_terminal() {
        return (None, format!("the run is over: {}", view.status));
    }
    if 0 < view.ambiguous_effects {
        return (
            Some(ParkCode::EffectAmbiguous.as_str()),
            format!(
                "the outcome of {} is unknown: look what happened, resolve it, then resume the run",
                named(&view.effects_to_review)
            ),
        );
    }
    if view.paused {
        let why = view
            .status_detail
            .as_deref()
            .and_then(|detail| detail.strip_prefix(PAUSED_BECAUSE));
        let reason = match why {
            Some(why) => format!("somebody paused it, because: {why}; resume it"),
            None => "somebody paused it: resume it".to_owned(),
        };
        return (Some("paused"), reason);
    }
    match view.error_code.as_deref().and_then(ParkCode::from_text) {
        Some(code @ ParkCode::SourceChanged) => {
            let reason = "its workflow is not the one that it was started with: put the old source back and resume, or accept \
                          the new definition";
            return (Some(code.as_str()), reason.to_owned());
        }
        Some(code @ ParkCode::NoProgress) => {
            let reason =
                "its runners ended without advancing it: see the last error, then resume it";
            return (Some(code.as_str()), reason.to_owned());
        }
        Some(code @ ParkCode::EffectAmbiguous) => {
            return (
                Some(code.as_str()),
                "its effect was resolved: resume the run".to_owned(),
            );
        }
        Some(code @ ParkCode::SettingsBroken) => {
            let reason = "somebody changed its live settings without a command, so that nothing may read them: see the last error; \
                          restore a backup and resume it, or cancel it";
            return (Some(code.as_str()), reason.to_owned());
        }
        None => {}
    }
    if let Some(request) = view
        .request
        .as_ref()
        .filter(|request| request.status == RequestStatus::Pending)
    {
        return (
            Some("waitingForAnswer"),
            format!(
                "node {:?} waits for the answer of {}",
                request.node_id, request.request_id
            ),
        );
    }
    if let Some(holder) = holder.filter(|holder| holder.live) {
        return (
            Some("lease"),
            format!(
                "a {} executes it, until {} (epoch ms) unless it renews",
                holder.kind, holder.expires_at.0
            ),
        );
    }
    if now < due_at {
        return (
            Some("notDue"),
            format!("it is due at {} (epoch ms)", due_at.0),
        );
    }
    (
        Some("noRunner"),
        "it is ready: it begins when a scheduler that knows its workflow has a free place"
            .to_owned(),
    )
}
