//! One run as the client shows it.

use std::collections::BTreeMap;

use holdpoint_state::clock::UnixMillis;
use holdpoint_state::{Reads, ResourceKey, Snapshot, StateError};
use holdpoint_workflows::model::{RunStatus, SegmentStatus};
use holdpoint_workflows::views::pages::{self, RunFacts, RunValues};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::graph::graph;
use super::rows::{ViewerRun, viewer_run};
use super::session::session;
use super::window::window;
use crate::documents::{
    Activity, Binding, Budget, Capture, CaptureFailure, CaptureState, Control, Display,
    FollowUpQueue, INLINE_BYTES, Manifest, RunState, RunView, SettingsScope, Shown, StepRecord,
    TraceEvent, Update, Window, one_line, schema,
};
use crate::error::ViewerError;
use crate::render::{self, Renderer};

/// The largest definition that is in its document, in bytes.
const DEFINITION_BYTES: u64 = 128 * 1024;
/// How long a reason is, in characters.
const REASON_CHARS: usize = 1_000;

/// A run at the instant of the snapshot; `now` decides whether its lease is live.
///
/// # Errors
///
/// [`ViewerError::NoRun`].
pub fn run_view(
    snapshot: &Snapshot<'_>,
    run: &str,
    now: UnixMillis,
) -> Result<RunView, ViewerError> {
    let no_run = || ViewerError::NoRun {
        run: run.to_owned(),
    };
    let key = pages::key_of(snapshot, run)?.ok_or_else(no_run)?;
    let facts = pages::facts(snapshot, key, now)?.ok_or_else(no_run)?;
    let values = pages::values(snapshot, key, INLINE_BYTES)?.ok_or_else(no_run)?;
    let kept = viewer_run(snapshot, key)?.ok_or_else(no_run)?;
    Ok(build(snapshot, &facts, &values, &kept)?)
}

/// The revision of a run's view: a cheap question whether there is anything new. The display word may change without it, when a lease
/// runs out or a model turn begins or ends.
///
/// # Errors
///
/// [`ViewerError::NoRun`].
pub fn revision(snapshot: &Snapshot<'_>, run: &str) -> Result<u64, ViewerError> {
    let kept = match pages::key_of(snapshot, run)? {
        Some(key) => viewer_run(snapshot, key)?,
        None => None,
    };
    kept.map(|kept| kept.revision)
        .ok_or_else(|| ViewerError::NoRun {
            run: run.to_owned(),
        })
}

/// The part of a view that only transactions change, and that retained patches lead to: without the display word and what goes with
/// it, and without the queue of the session, which is told by what sessions say.
///
/// # Errors
///
/// What has no JSON form.
pub fn presented(view: &RunView) -> Result<Value, serde_json::Error> {
    let mut document = serde_json::to_value(view)?;
    if let Some(members) = document.as_object_mut() {
        for moving in [
            "display",
            "live",
            "possiblyInterrupted",
            "followUpQueue",
            "followUpStart",
            "followUpTotal",
        ] {
            members.remove(moving);
        }
    }
    Ok(document)
}

fn build(
    reads: &impl Reads,
    facts: &RunFacts,
    values: &RunValues,
    kept: &ViewerRun,
) -> Result<RunView, StateError> {
    let run_id = facts.run_id.to_string();
    let mut renderer = Renderer::new(&run_id);
    let renderer = &mut renderer;
    let steps = steps(reads, facts.key, (facts.step_total, None), renderer)?;
    let trace_page = trace(reads, facts.key, (facts.revision, None), renderer)?;
    let mut session = session(
        reads,
        facts.key,
        (kept.entries.total, kept.events.total),
        renderer,
    )?;
    let recorded = recorded(reads, &run_id, kept)?;
    (session.binding, session.capture) = (recorded.binding, recorded.capture);
    let settings = settings_window(reads, facts.key, None, renderer)?;
    let follow_ups = follow_ups(reads, facts.key, None, renderer)?;
    let updates = updates_window(reads, facts.present_attempt, None, renderer)?;
    let cursor = facts.step_total.saturating_sub(1);
    let (graph_steps, taken_transitions) = graph(reads, facts.key, (cursor, facts.step_total))?;
    let error = values.error.as_ref().map(render::error_text);
    Ok(RunView {
        schema: schema::RUN_VIEW,
        revision: kept.revision,
        run_revision: facts.revision,
        display: display(facts, error.as_deref()),
        manifest: manifest(facts),
        live: is_live(facts),
        possibly_interrupted: is_interrupted(facts),
        state: state(facts, values, (steps.items, updates.items), renderer),
        step_start: steps.start,
        step_total: steps.total,
        workflow: definition(reads, facts, renderer)?,
        graph_steps,
        graph_cursor: cursor,
        taken_transitions,
        trace_page,
        session,
        settings_scopes: settings.items,
        settings_start: settings.start,
        settings_total: settings.total,
        follow_up_queue: (0 < follow_ups.total).then_some(FollowUpQueue {
            presentation_state: if facts.display.turn {
                "presenting"
            } else {
                "idle"
            },
            items: follow_ups.items,
        }),
        follow_up_start: follow_ups.start,
        follow_up_total: follow_ups.total,
        update_start: updates.start,
        update_total: updates.total,
        run_id,
    })
}

fn state(
    facts: &RunFacts,
    values: &RunValues,
    (steps, updates): (Vec<StepRecord>, Vec<Update>),
    renderer: &mut Renderer<'_>,
) -> RunState {
    let current = facts.current();
    RunState {
        schema: schema::RUN_STATE,
        run_id: facts.run_id.to_string(),
        workflow_name: facts.workflow_name.clone(),
        run_title: facts.run_title.clone(),
        parent_run_id: facts.parent_run_id.clone(),
        workflow_source: facts.source.as_ref().and_then(render::source),
        status: facts.display.status.into(),
        paused: facts.display.paused,
        status_detail: facts.status_detail.clone(),
        trace_seq: facts.revision,
        started_at: facts.started_at.unwrap_or(facts.created_at).into(),
        updated_at: facts.updated_at.into(),
        finished_at: facts.finished_at.map(Into::into),
        current_node: current.map(|visit| visit.node_id.to_string()),
        current_attempt_id: facts
            .open
            .as_ref()
            .map(|visit| visit.attempt_id.to_string()),
        current_node_started_at: current.map(|visit| visit.started_at.into()),
        waiting_on: facts.waiting_on().map(ToString::to_string),
        error: values.error.as_ref().map(render::error_text),
        input: renderer.shown(values.input.as_ref()),
        final_output: values
            .final_output
            .as_ref()
            .map(|output| renderer.shown(Some(output))),
        outputs: Map::new(),
        results: Map::new(),
        steps,
        updates,
    }
}

/// The small members of the presented document that change, by their pointers. The projector compares them with the last ones.
pub(crate) fn summary(
    reads: &impl Reads,
    facts: &RunFacts,
    values: &RunValues,
    kept: &ViewerRun,
    renderer: &mut Renderer<'_>,
) -> Result<BTreeMap<String, Value>, StateError> {
    let run_id = facts.run_id.to_string();
    let manifest = manifest(facts);
    let state = state(facts, values, (Vec::new(), Vec::new()), renderer);
    let mut members = BTreeMap::new();
    put(&mut members, "/manifest", &manifest, &[]);
    put(
        &mut members,
        "/state",
        &state,
        &["steps", "updates", "input", "outputs", "results"],
    );
    let recorded = recorded(reads, &run_id, kept)?;
    let also = json!({
        "runRevision": facts.revision,
        "session/binding": recorded.binding,
        "session/capture": recorded.capture,
    });
    put(&mut members, "", &also, &[]);
    Ok(members)
}

/// Puts each member of a document under its pointer.
fn put(
    members: &mut BTreeMap<String, Value>,
    at: &str,
    document: &impl Serialize,
    without: &[&str],
) {
    if let Ok(Value::Object(found)) = serde_json::to_value(document) {
        for (name, value) in found {
            if !without.contains(&name.as_str()) {
                members.insert(format!("{at}/{name}"), value);
            }
        }
    }
}

/// The definition of a run, or a reference to it.
pub(crate) fn definition(
    reads: &impl Reads,
    facts: &RunFacts,
    renderer: &mut Renderer<'_>,
) -> Result<Shown, StateError> {
    let stored = pages::definition(reads, facts.definition_digest, DEFINITION_BYTES)?;
    Ok(match stored.as_ref().and_then(render::definition) {
        Some(definition) => Shown::value(definition),
        None => renderer.shown_up_to(stored.as_ref(), DEFINITION_BYTES),
    })
}

pub(crate) fn steps(
    reads: &impl Reads,
    run: ResourceKey,
    (total, cursor): (u64, Option<u64>),
    renderer: &mut Renderer<'_>,
) -> Result<Window<StepRecord>, StateError> {
    window(total, cursor, Budget::WINDOW, |from, until| {
        let rows = pages::steps(reads, run, (from, until), INLINE_BYTES)?;
        Ok(rows.iter().map(|row| renderer.step(row)).collect())
    })
}

pub(super) fn trace(
    reads: &impl Reads,
    run: ResourceKey,
    (total, cursor): (u64, Option<u64>),
    renderer: &mut Renderer<'_>,
) -> Result<Window<TraceEvent>, StateError> {
    window(total, cursor, Budget::WINDOW, |from, until| {
        let rows = pages::trace(reads, run, (from, until), INLINE_BYTES)?;
        Ok(rows.iter().map(|row| renderer.trace(row)).collect())
    })
}

pub(crate) fn settings_window(
    reads: &impl Reads,
    run: ResourceKey,
    cursor: Option<u64>,
    renderer: &mut Renderer<'_>,
) -> Result<Window<SettingsScope>, StateError> {
    let total = pages::settings_total(reads, run)?;
    window(total, cursor, Budget::WINDOW, |from, until| {
        let rows = pages::settings(reads, run, (from, until), INLINE_BYTES)?;
        Ok(rows.iter().map(|row| renderer.scope(row)).collect())
    })
}

pub(super) fn follow_ups(
    reads: &impl Reads,
    run: ResourceKey,
    cursor: Option<u64>,
    renderer: &mut Renderer<'_>,
) -> Result<Window<crate::documents::FollowUp>, StateError> {
    let total = pages::follow_up_total(reads, run)?;
    window(total, cursor, Budget::WINDOW, |from, until| {
        let rows = pages::follow_ups(reads, run, (from, until), INLINE_BYTES)?;
        Ok(rows.iter().map(|row| renderer.follow_up(row)).collect())
    })
}

pub(crate) fn updates_window(
    reads: &impl Reads,
    attempt: Option<i64>,
    cursor: Option<u64>,
    renderer: &mut Renderer<'_>,
) -> Result<Window<Update>, StateError> {
    let Some(attempt) = attempt else {
        return Ok(Window::empty());
    };
    let places = pages::update_places(reads, attempt)?;
    let total = u64::try_from(places.len()).unwrap_or(u64::MAX);
    window(total, cursor, Budget::WINDOW, |from, until| {
        let from = usize::try_from(from).unwrap_or(usize::MAX);
        let until = usize::try_from(until).unwrap_or(usize::MAX);
        let places = places.get(from..until).unwrap_or_default();
        let rows = pages::updates(reads, attempt, places, INLINE_BYTES)?;
        Ok(rows.iter().map(|row| renderer.update(row)).collect())
    })
}

struct Recorded {
    binding: Option<Binding>,
    capture: Option<Capture>,
}

/// What is known of the recordings of a run as a whole: one that goes on counts before one that failed, and that before the rest.
fn recorded(reads: &impl Reads, run_id: &str, kept: &ViewerRun) -> Result<Recorded, StateError> {
    let first = match kept.first_segment {
        Some(key) => pages::segment(reads, key)?,
        None => None,
    };
    let Some(first) = first else {
        return Ok(Recorded {
            binding: None,
            capture: None,
        });
    };
    let failed = match kept.failed_segment {
        Some(key) if kept.open_segments == 0 => pages::segment(reads, key)?,
        _ => None,
    };
    let status = match &failed {
        _ if 0 < kept.open_segments => CaptureState::Recording,
        Some(failed) if failed.status == SegmentStatus::Failed => CaptureState::Failed,
        _ => CaptureState::Complete,
    };
    let failure = failed.and_then(|failed| failed.failure).unwrap_or_default();
    let text = |name: &str| match failure.get(name) {
        Some(Value::String(text)) => one_line(text, REASON_CHARS),
        Some(other) => one_line(&other.to_string(), REASON_CHARS),
        None => String::new(),
    };
    let failure = CaptureFailure {
        failed_at: text("failedAt"),
        code: text("code"),
        message: text("message"),
    };
    let cwd = first
        .binding
        .pointer("/binding/cwd")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let counts = (kept.entries.total, kept.events.total);
    Ok(Recorded {
        binding: Some(Binding::new(
            run_id,
            &first.session_id,
            cwd,
            first.created_at.into(),
        )),
        capture: Some(Capture::new(status, counts, failure)),
    })
}

/// What identifies a run. Its status is the stored one.
pub(super) fn manifest(facts: &RunFacts) -> Manifest {
    let started_at = facts.started_at.unwrap_or(facts.created_at);
    Manifest {
        run_title: facts.run_title.clone(),
        workflow_source: facts.source.as_ref().and_then(render::source),
        finished_at: facts.finished_at.map(Into::into),
        ..Manifest::new(
            (facts.run_id.as_str(), &facts.workflow_name),
            facts.display.status.into(),
            started_at.into(),
        )
    }
}

/// The status word and what goes with it.
pub(super) fn display(facts: &RunFacts, error: Option<&str>) -> Display {
    let code = facts.error_code.as_deref();
    Display {
        status: facts.display_status().into(),
        activity: Activity::of(&facts.activity()),
        controls: facts
            .controls()
            .into_iter()
            .filter_map(Control::of)
            .collect(),
        reason: error.or(code).map(|reason| one_line(reason, REASON_CHARS)),
    }
}

/// Whether somebody works on a run at this moment.
pub(super) fn is_live(facts: &RunFacts) -> bool {
    !facts.display.status.is_terminal() && (facts.display.active || facts.display.turn)
}

/// Whether a run should go on and nobody works on it.
pub(super) fn is_interrupted(facts: &RunFacts) -> bool {
    let display = &facts.display;
    display.status == RunStatus::Running
        && !display.active
        && !display.paused
        && !display.parked
        && !display.ambiguous
}
