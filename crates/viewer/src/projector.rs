//! Keeps the read model of a run in the transaction that changes the run: its presentation revision, the patches that lead to it, and
//! what makes pages cheap. It decides by stored rows and by the touch alone, so that every process does the same.
//!
//! Not here: statements (`store`), how rows become documents (`render`, `views`).

mod slide;

use std::collections::BTreeMap;

use holdpoint_state::json::to_canonical;
use holdpoint_state::{Change, ResourceKey, StateError, Touched};
use holdpoint_workflows::views::pages::{self, RunFacts};
use serde::Serialize;
use serde_json::Value;

use self::slide::{Slide, slide};
use crate::documents::{Delta, INLINE_BYTES, Op, TargetType};
use crate::render::{Held, Renderer, graph_step};
use crate::replay::{CHECKPOINT_EVERY, GRAPH_WINDOW};
use crate::store;
use crate::views::{self, Span, ViewerRun};

/// How many revisions a follower may be behind.
pub(crate) const RETAINED: u64 = 256;

/// Called by the kernel for each accepted touch.
pub(crate) fn project(change: &mut Change<'_>, touched: &Touched) -> Result<(), StateError> {
    let kind = touched.resource.kind();
    if !matches!(
        kind,
        "run" | "session" | "settings" | "follow_up" | "effect"
    ) {
        return Ok(());
    }
    let touched_key = change.resource_key()?;
    let Some(run) = pages::run_behind(change, kind, touched_key)? else {
        return Ok(());
    };
    // A touch before the rows of a new run are there: its own last touch comes after them.
    let Some(mut facts) = pages::facts(change, run, touched.now)? else {
        return Ok(());
    };
    if kind == "run" {
        // The resource's row is moved on after its projections.
        facts.revision = touched.revision;
        facts.updated_at = touched.now;
    }
    let kept = views::viewer_run(change, run)?;
    let is_new = kept.is_none();
    let run_id = facts.run_id.to_string();
    let mut projection = Projection {
        run,
        facts,
        kept: kept.unwrap_or_else(|| first_row(touched)),
        renderer: Renderer::new(&run_id),
        deltas: Vec::new(),
    };
    projection.steps(change)?;
    projection.trace(change)?;
    if kind == "session" {
        projection.session(change, touched, touched_key)?;
    }
    if kind == "run" && touched.operation.event == "node_started" {
        projection.kept.visit_seq = touched.revision;
    }
    projection.updates(change, touched.operation.event == "update_published")?;
    if kind == "settings" || is_new {
        projection.settings(change)?;
    }
    projection.finish(change, touched, is_new)
}

fn first_row(touched: &Touched) -> ViewerRun {
    ViewerRun {
        revision: 0,
        retained_from: 1,
        summary: Vec::new(),
        steps: Span::default(),
        trace: Span::default(),
        entries: Span::default(),
        events: Span::default(),
        visit_seq: 0,
        update_attempt: None,
        update_total: 0,
        first_segment: None,
        open_segments: 0,
        failed_segment: None,
        updated_at: touched.now,
    }
}

/// What one touch makes of the read model of one run.
struct Projection<'a> {
    run: ResourceKey,
    facts: RunFacts,
    kept: ViewerRun,
    renderer: Renderer<'a>,
    deltas: Vec<Delta>,
}

impl Projection<'_> {
    fn add(&mut self, target_type: TargetType, target_key: &str, patch: Vec<Op>) {
        if !patch.is_empty() {
            self.deltas.push(Delta {
                target_type,
                target_key: target_key.to_owned(),
                patch,
            });
        }
    }

    /// New steps: their records, their visits and the graph.
    fn steps(&mut self, change: &mut Change<'_>) -> Result<(), StateError> {
        let (known, total) = (self.kept.steps.total, self.facts.step_total);
        if total <= known {
            return Ok(());
        }
        let rows = pages::steps(change, self.run, (known, total), INLINE_BYTES)?;
        let mut records = Vec::new();
        let mut graph = Vec::new();
        for row in &rows {
            records.push(document(&self.renderer.step(row))?);
            let node = row.node_id.as_str();
            let before = match row.index.checked_sub(1) {
                Some(before) => views::visit_at(change, self.run, before)?,
                None => None,
            };
            let earlier = views::newest_visit(change, self.run, node, row.index)?;
            let visit = earlier.as_ref().map_or(1, |earlier| earlier.visit + 1);
            // Which older visits are on the graph, before this one is.
            let window = row.index.saturating_sub(GRAPH_WINDOW);
            let older = views::older_than_window(change, self.run, (window, row.index))?;
            let place = (row.index, node);
            store::insert_visit(change, self.run, place, (visit, self.kept.visit_seq))?;
            graph.push(append(
                "/graphSteps",
                vec![document(&graph_step(row, visit))?],
            ));
            // The visit that leaves the window stays while it is the newest of its node; an older one of this node goes.
            if GRAPH_WINDOW <= row.index {
                let leaving = views::visit_at(change, self.run, window)?;
                if let Some(leaving) = leaving {
                    let newest = views::newest_visit(change, self.run, &leaving.node, row.index)?;
                    if newest.is_some_and(|newest| newest.step != leaving.step) {
                        graph.push(remove(format!("/graphSteps/{}", older.len())));
                    }
                }
                if let Some(at) = older.iter().position(|visited| visited.node == node) {
                    graph.push(remove(format!("/graphSteps/{at}")));
                }
            }
            if let Some(before) = before
                && store::take_edge(change, self.run, (&before.node, node), row.index)?
            {
                let edge = format!("{}->{node}", before.node);
                graph.push(append("/takenTransitions", vec![edge.into()]));
            }
        }
        graph.push(replace("/graphCursor", total.saturating_sub(1)));
        let run = self.run;
        let renderer = &mut self.renderer;
        let slid = slide(&mut self.kept.steps, records, |index| {
            let rows = pages::steps(change, run, (index, index + 1), INLINE_BYTES)?;
            rows.iter()
                .map(|row| document(&renderer.step(row)))
                .collect()
        })?;
        let patch = slid.ops("/state/steps", "/stepStart", "/stepTotal", &self.kept.steps);
        self.add(TargetType::Replay, "steps:tail", patch);
        self.add(TargetType::Graph, "", graph);
        Ok(())
    }

    /// New events of the run.
    fn trace(&mut self, change: &mut Change<'_>) -> Result<(), StateError> {
        let (known, total) = (self.kept.trace.total, self.facts.revision);
        if total <= known {
            return Ok(());
        }
        let rows = pages::trace(change, self.run, (known, total), INLINE_BYTES)?;
        let mut records = Vec::new();
        for row in &rows {
            records.push(document(&self.renderer.trace(row))?);
        }
        let (run, renderer) = (self.run, &mut self.renderer);
        let slid = slide(&mut self.kept.trace, records, |index| {
            let rows = pages::trace(change, run, (index, index + 1), INLINE_BYTES)?;
            rows.iter()
                .map(|row| document(&renderer.trace(row)))
                .collect()
        })?;
        let patch = slid.ops("/items", "/start", "/total", &self.kept.trace);
        self.add(TargetType::Timeline, "trace:tail", patch);
        Ok(())
    }

    /// What a recording of a session did.
    fn session(
        &mut self,
        change: &mut Change<'_>,
        touched: &Touched,
        segment: ResourceKey,
    ) -> Result<(), StateError> {
        match touched.operation.event {
            "session_bound" => {
                self.kept.first_segment.get_or_insert(segment);
                self.kept.open_segments += 1;
            }
            "session_completed" => {
                self.kept.open_segments = self.kept.open_segments.saturating_sub(1);
            }
            "session_failed" => {
                self.kept.open_segments = self.kept.open_segments.saturating_sub(1);
                self.kept.failed_segment = Some(segment);
            }
            "session_entry_linked" => self.relinked(change)?,
            _ => {}
        }
        let totals = pages::record_totals(change, self.run)?;
        self.entries(change, totals.entries)?;
        self.events(change, totals.events)
    }

    /// The records of steps show entries that were linked: all that are shown are shown anew.
    fn relinked(&mut self, change: &mut Change<'_>) -> Result<(), StateError> {
        let total = self.kept.steps.total;
        let window = views::steps(change, self.run, (total, None), &mut self.renderer)?;
        let mut records = Vec::new();
        let mut bytes = 0_u64;
        for record in &window.items {
            let record = document(record)?;
            bytes = bytes.saturating_add(slide::size(&record));
            records.push(record);
        }
        self.kept.steps = Span {
            start: window.start,
            total,
            bytes,
        };
        let all = Slide::Replaced(records);
        let patch = all.ops("/state/steps", "/stepStart", "/stepTotal", &self.kept.steps);
        self.add(TargetType::Replay, "steps", patch);
        Ok(())
    }

    fn entries(&mut self, change: &mut Change<'_>, total: u64) -> Result<(), StateError> {
        let known = self.kept.entries.total;
        if total <= known {
            return Ok(());
        }
        let mut records = Vec::new();
        for row in pages::entries(change, self.run, (known, total))? {
            records.push(document(&self.renderer.entry(&row))?);
        }
        let (run, renderer) = (self.run, &mut self.renderer);
        let slid = slide(&mut self.kept.entries, records, |index| {
            let rows = pages::entries(change, run, (index, index + 1))?;
            rows.iter()
                .map(|row| document(&renderer.entry(row)))
                .collect()
        })?;
        let patch = slid.ops("/items", "/start", "/total", &self.kept.entries);
        self.add(TargetType::Conversation, "entries:tail", patch);
        Ok(())
    }

    fn events(&mut self, change: &mut Change<'_>, total: u64) -> Result<(), StateError> {
        let known = self.kept.events.total;
        if total <= known {
            return Ok(());
        }
        // First the states: what follows reads from the nearest.
        for number in known / CHECKPOINT_EVERY + 1..=total / CHECKPOINT_EVERY {
            let through = number * CHECKPOINT_EVERY;
            let before = views::load_checkpoint(change, self.run, through - CHECKPOINT_EVERY)?;
            let state = views::fold_between(change, self.run, before, through)?;
            let state = canonical(&state)?;
            store::insert_checkpoint(change, self.run, through, &state)?;
        }
        let mut records = Vec::new();
        for row in pages::events(change, self.run, (known, total), INLINE_BYTES)? {
            records.push(document(&self.renderer.event(&row))?);
        }
        let start = self.kept.events.start;
        let (run, renderer) = (self.run, &mut self.renderer);
        let slid = slide(&mut self.kept.events, records, |index| {
            let rows = pages::events(change, run, (index, index + 1), INLINE_BYTES)?;
            rows.iter()
                .map(|row| document(&renderer.event(row)))
                .collect()
        })?;
        let patch = slid.ops("/items", "/start", "/total", &self.kept.events);
        self.add(TargetType::Conversation, "events:tail", patch);
        if start != self.kept.events.start {
            let state = views::checkpoint_before(change, self.run, self.kept.events.start)?;
            let patch = vec![replace("/replayCheckpoint", document(&state)?)];
            self.add(TargetType::Conversation, "session", patch);
        }
        Ok(())
    }

    /// What the present attempt published.
    fn updates(&mut self, change: &mut Change<'_>, published: bool) -> Result<(), StateError> {
        let attempt = self.facts.present_attempt;
        if !published && attempt == self.kept.update_attempt {
            return Ok(());
        }
        let window = views::updates_window(change, attempt, None, &mut self.renderer)?;
        let was_empty = self.kept.update_total == 0;
        (self.kept.update_attempt, self.kept.update_total) = (attempt, window.total);
        if was_empty && window.total == 0 {
            return Ok(());
        }
        let patch = vec![
            replace("/state/updates", document(&window.items)?),
            replace("/updateStart", window.start),
            replace("/updateTotal", window.total),
        ];
        self.add(TargetType::Inspector, "updates", patch);
        Ok(())
    }

    fn settings(&mut self, change: &mut Change<'_>) -> Result<(), StateError> {
        let window = views::settings_window(change, self.run, None, &mut self.renderer)?;
        let patch = vec![
            replace("/settingsScopes", document(&window.items)?),
            replace("/settingsStart", window.start),
            replace("/settingsTotal", window.total),
        ];
        self.add(TargetType::Inspector, "settings", patch);
        Ok(())
    }

    /// Compares the summary, and writes what there is to write.
    fn finish(
        mut self,
        change: &mut Change<'_>,
        touched: &Touched,
        is_new: bool,
    ) -> Result<(), StateError> {
        // A run that goes on has neither an output nor an error, and its input was seen when it was new.
        let rests = self.facts.finished_at.is_some()
            || self.facts.display.parked
            || self.facts.error_code.is_some();
        let values = if is_new || rests {
            pages::values(change, self.run, INLINE_BYTES)?
        } else {
            None
        };
        let values = values.unwrap_or_default();
        let mut present =
            views::summary(change, &self.facts, &values, &self.kept, &mut self.renderer)?;
        // Not in the document, but what its reader looks at: a new word or a new follow-up is a new revision.
        present.insert(
            "display".to_owned(),
            self.facts.display_status().as_str().into(),
        );
        present.insert(
            "definition".to_owned(),
            self.facts.definition_digest.to_hex().into(),
        );
        let before: BTreeMap<String, Value> =
            serde_json::from_slice(&self.kept.summary).unwrap_or_default();
        if before.get("definition") != present.get("definition") {
            let definition = views::definition(change, &self.facts, &mut self.renderer)?;
            let patch = vec![replace("/workflow", definition.as_json().clone())];
            self.add(TargetType::Inspector, "definition", patch);
        }
        let mut patch = differences(&before, &present);
        let lists = |name: &String| name == "display" || name.starts_with("/manifest/");
        let moves_list = is_new
            || before
                .keys()
                .chain(present.keys())
                .any(|name| lists(name) && before.get(name) != present.get(name));
        let is_seen = !patch.is_empty() || !self.deltas.is_empty() || moves_list;
        if !is_seen && touched.resource.kind() != "follow_up" {
            return Ok(());
        }
        self.kept.revision += 1;
        self.kept.retained_from = self.kept.revision.saturating_sub(RETAINED - 1).max(1);
        self.kept.summary = canonical(&present)?;
        self.kept.updated_at = touched.now;
        if is_new {
            // Nobody has an earlier view that this could be applied to.
            patch.clear();
            self.deltas.clear();
        }
        patch.insert(0, replace("/revision", self.kept.revision));
        self.deltas.insert(
            0,
            Delta {
                target_type: TargetType::Summary,
                target_key: String::new(),
                patch,
            },
        );
        let held: Vec<Held> = std::mem::take(&mut self.renderer.held);
        store::put_run(change, self.run, &self.kept)?;
        let revisions = (self.kept.revision, self.kept.retained_from);
        store::put_deltas(change, self.run, revisions, &self.deltas)?;
        store::hold(change, self.run, &held)?;
        if moves_list {
            store::move_list(change)?;
        }
        Ok(())
    }
}

/// What leads from one summary to the next. Members without a pointer are for comparing only.
fn differences(before: &BTreeMap<String, Value>, present: &BTreeMap<String, Value>) -> Vec<Op> {
    let mut ops = Vec::new();
    for (path, value) in present.iter().filter(|(path, _)| path.starts_with('/')) {
        match before.get(path) {
            Some(known) if known == value => {}
            Some(_) => ops.push(replace(path, value.clone())),
            None => ops.push(Op::Add {
                path: path.clone(),
                value: value.clone(),
            }),
        }
    }
    let gone = before
        .keys()
        .filter(|path| path.starts_with('/') && !present.contains_key(*path));
    ops.extend(gone.map(|path| remove(path.clone())));
    ops
}

fn replace(path: &str, value: impl Into<Value>) -> Op {
    Op::Replace {
        path: path.to_owned(),
        value: value.into(),
    }
}

fn remove(path: String) -> Op {
    Op::Remove { path }
}

fn append(path: &str, value: Vec<Value>) -> Op {
    Op::Append {
        path: path.to_owned(),
        value,
    }
}

fn document(value: &impl Serialize) -> Result<Value, StateError> {
    serde_json::to_value(value).map_err(|error| StateError::Input {
        what: "document",
        problem: error.to_string(),
    })
}

fn canonical(value: &impl Serialize) -> Result<Vec<u8>, StateError> {
    to_canonical(value).map_err(|source| StateError::Json {
        what: "read model",
        source,
    })
}
