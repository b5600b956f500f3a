//! Which document a node reads: one for its whole life, and for a settings route the present one when its end is committed.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use holdpoint_workflows::definition::{Context, Definition, NodeError, TimeBudget, Workflow};
use holdpoint_workflows::model::RunStatus;
use holdpoint_workflows::views::RunView;
use holdpoint_workflows::{NodeId, Workflows};
use serde_json::{Value, json};

use super::{Limits, batch, change, limits};
use crate::support::Fixture;

/// A node that changes the settings under its own feet, so many times, and then says what it read.
struct Meddler {
    store: OnceLock<Workflows>,
    left: AtomicU32,
}

impl Meddler {
    fn new(times: u32) -> Arc<Self> {
        Arc::new(Self {
            store: OnceLock::new(),
            left: AtomicU32::new(times),
        })
    }

    fn decide(&self, ctx: &Context<'_, Value>) -> Result<Value, NodeError> {
        let left = self
            .left
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
                left.checked_sub(1)
            });
        if let (Ok(left), Some(workflows)) = (left, self.store.get()) {
            change(workflows, &batch(ctx.run_id, 99 + left));
        }
        let limits: Limits = ctx.settings()?;
        Ok(
            json!({ "to": if limits.batch == 10 { "small" } else { "large" }, "batch": limits.batch }),
        )
    }
}

fn plain(meddler: &Arc<Meddler>) -> Definition {
    let route = Arc::clone(meddler);
    Workflow::new("routed")
        .settings(limits())
        .start_at("route")
        .settings_route("route", move |ctx| route.decide(ctx))
        .compute("small", |_| Ok("small"))
        .compute("large", |_| Ok("large"))
        .switch("route", "$.to", [("small", "small"), ("large", "large")])
        .build()
        .unwrap()
}

fn run(definition: &Definition, meddler: &Arc<Meddler>) -> (Fixture, RunView) {
    let fixture = Fixture::new();
    assert!(meddler.store.set(fixture.workflows.clone()).is_ok());
    let view = fixture.run(definition, Value::Null);
    (fixture, view)
}

fn retries(fixture: &Fixture, view: &RunView) -> usize {
    fixture
        .events(&view.run_id)
        .iter()
        .filter(|event| *event == "settings_route_retried")
        .count()
}

#[test]
fn edge_098_a_route_is_decided_by_the_settings_that_hold_when_it_commits() {
    for (changes, batch) in [(0, 10), (1, 100), (16, 100)] {
        let meddler = Meddler::new(changes);
        let (fixture, view) = run(&plain(&meddler), &meddler);
        assert_eq!(view.status, RunStatus::Completed, "{:?}", view.error);
        let to = if changes == 0 { "small" } else { "large" };
        assert_eq!(view.final_output, Some(json!(to)));
        assert_eq!(view.outputs["route"]["batch"], batch);
        // One step and one attempt, however often it was asked.
        assert_eq!(view.steps.len(), 2);
        assert_eq!(fixture.count("SELECT count(*) FROM node_attempts"), 2);
        assert_eq!(retries(&fixture, &view), usize::try_from(changes).unwrap());
        let read = view.steps[0].settings.as_ref().unwrap();
        assert_eq!(read.change_number, u64::from(changes));
    }
    let meddler = Meddler::new(17);
    let (fixture, view) = run(&plain(&meddler), &meddler);
    assert_eq!(view.status, RunStatus::Failed);
    assert_eq!(retries(&fixture, &view), 16);
    assert_eq!(fixture.count("SELECT count(*) FROM node_attempts"), 1);
    let result = &view.results[&NodeId::new("route").unwrap()];
    assert_eq!(
        result.error.as_deref(),
        Some("SettingsUnsettled: the settings changed 17 times while it was decided where to go")
    );
}

#[test]
fn an_ordinary_node_keeps_what_it_began_with() {
    let meddler = Meddler::new(1);
    let node = Arc::clone(&meddler);
    let definition = Workflow::new("kept")
        .settings(limits())
        .start_at("one")
        .compute("one", move |ctx| node.decide(ctx))
        .compute("two", |ctx| ctx.settings::<Limits>())
        .edge("one", "two")
        .build()
        .unwrap();
    let (fixture, view) = run(&definition, &meddler);
    assert_eq!(view.outputs["one"]["batch"], 10);
    assert_eq!(view.outputs["two"]["batch"], 100);
    assert_eq!(retries(&fixture, &view), 0);
}

/// A failure that came of replaced settings is no failure.
#[test]
fn a_route_that_fails_on_old_settings_is_asked_again() {
    let meddler = Meddler::new(1);
    let node = Arc::clone(&meddler);
    let definition = Workflow::new("mended")
        .settings(limits())
        .start_at("route")
        .settings_route("route", move |ctx| {
            let decided = node.decide(ctx)?;
            if decided["batch"] == 10 {
                return Err(NodeError::new("ten is too small"));
            }
            Ok(decided)
        })
        .build()
        .unwrap();
    let (_fixture, view) = run(&definition, &meddler);
    assert_eq!(view.status, RunStatus::Completed, "{:?}", view.error);
}

/// Being asked again spends the same budget.
#[test]
fn a_route_that_is_asked_again_has_one_time_budget() {
    let meddler = Meddler::new(2);
    let node = Arc::clone(&meddler);
    let (fixture, clock) = {
        let fixture = Fixture::new();
        let clock = fixture.store.clock().clone();
        (fixture, clock)
    };
    let definition = Workflow::new("slow")
        .settings(limits())
        .start_at("route")
        .settings_route("route", move |ctx| {
            let decided = node.decide(ctx);
            clock.advance(600);
            if decided.as_ref().is_ok_and(|decided| decided["batch"] != 10) {
                // The second time, only 400 ms are left.
                ctx.cancellation.wait(crate::support::LONG);
                return Err(NodeError::stopped(
                    ctx.cancellation
                        .reason()
                        .unwrap_or(holdpoint_workflows::definition::StopReason::Cancelled),
                ));
            }
            decided
        })
        .timeout_with(|ctx| {
            // The author's code about an attempt sees settings too.
            Ok(TimeBudget::Millis(
                f64::from(ctx.settings::<Limits>()?.batch) * 100.0,
            ))
        })
        .build()
        .unwrap();
    assert!(meddler.store.set(fixture.workflows.clone()).is_ok());
    let view = fixture.run(&definition, Value::Null);
    assert_eq!(view.status, RunStatus::TimedOut, "{:?}", view.error);
    assert_eq!(retries(&fixture, &view), 1);
}
