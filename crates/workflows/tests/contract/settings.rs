//! Live settings: a change is accepted once, in its place, or leaves no trace; a node reads one document from its start to its end.

mod history;
mod kills;
mod mounts;
mod random;
mod routes;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier, OnceLock};

use holdpoint_state::{Actor, ActorKind, Disposition};
use holdpoint_workflows::commands::{Answer, Control, SettingsChange, SettingsChanged};
use holdpoint_workflows::definition::{Definition, Workflow};
use holdpoint_workflows::model::RunStatus;
use holdpoint_workflows::settings::{PathRule, Settings};
use holdpoint_workflows::{RunId, WorkflowError, Workflows};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::support::{Fixture, LONG, echo};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Limits {
    batch: u32,
    tags: Vec<String>,
}

fn limits() -> Settings<Limits> {
    Settings::new(Limits {
        batch: 10,
        tags: Vec::new(),
    })
    .path(
        PathRule::new("")
            .may_read(ActorKind::ALL)
            .may_add(&[ActorKind::Human, ActorKind::Control])
            .may_remove(&[ActorKind::Human, ActorKind::Control])
            .may_replace(&[ActorKind::Human, ActorKind::Control]),
    )
}

/// Reads its settings, waits for an answer, and reads them again.
fn tuned() -> Definition {
    tuned_by(limits())
}

fn tuned_by(settings: Settings<Limits>) -> Definition {
    Workflow::new("tuned")
        .settings(settings)
        .start_at("before")
        .compute("before", |ctx| ctx.settings::<Limits>())
        .checkpoint("ask")
        .compute("after", |ctx| ctx.settings::<Limits>())
        .edge("before", "ask")
        .edge("ask", "after")
        .build()
        .unwrap()
}

/// A run of a definition that waits for its answer.
fn waiting(fixture: &Fixture, definition: &Definition) -> RunId {
    let view = fixture.run(definition, Value::Null);
    assert_eq!(view.status, RunStatus::Waiting, "{:?}", view.error);
    view.run_id
}

fn batch(run: &RunId, batch: u32) -> SettingsChange {
    let patch = json!([{ "op": "replace", "path": "/batch", "value": batch }]);
    SettingsChange::new(run, patch)
}

fn change(workflows: &Workflows, change: &SettingsChange) -> SettingsChanged {
    let receipt = workflows.change_settings(change).unwrap();
    assert_eq!(receipt.disposition, Disposition::Accepted);
    assert_eq!(receipt.revision, receipt.value.change_number + 1);
    receipt.value
}

/// Answers the run and lets it come to its end.
fn finish(fixture: &Fixture, run: &RunId) -> holdpoint_workflows::views::RunView {
    let scheduler = fixture.scheduler();
    fixture
        .workflows
        .answer(&Answer::new(run, json!("go on")))
        .unwrap();
    let view = fixture
        .workflows
        .wait_for(run, LONG, |view| view.status.is_terminal())
        .unwrap();
    scheduler.stop(LONG);
    view
}

#[test]
fn the_next_attempt_begins_with_what_was_accepted_before_it() {
    let fixture = Fixture::new();
    let run = waiting(&fixture, &tuned());
    assert_eq!(
        fixture.workflows.settings(&run).unwrap()[0].change_number,
        0
    );
    let first = change(&fixture.workflows, &batch(&run, 20).by(Actor::human("ada")));
    assert_eq!(
        (first.scope_id.as_str(), first.change_number),
        (format!("{run}:$root:1").as_str(), 1)
    );
    // Paused is not over.
    fixture.workflows.pause(&Control::of(&run)).unwrap();
    let tag = json!([{ "op": "add", "path": "/tags/-", "value": "fast" }]);
    assert_eq!(
        change(&fixture.workflows, &SettingsChange::new(&run, tag)).change_number,
        2
    );
    fixture.workflows.resume(&Control::of(&run)).unwrap();

    let view = finish(&fixture, &run);
    assert_eq!(
        view.final_output,
        Some(json!({ "batch": 20, "tags": ["fast"] }))
    );
    assert_eq!(view.outputs["before"], json!({ "batch": 10, "tags": [] }));
    let numbers: Vec<Option<u64>> = view
        .steps
        .iter()
        .map(|step| step.settings.as_ref().map(|read| read.change_number))
        .collect();
    assert_eq!(numbers, [Some(0), Some(0), Some(2)]);
    assert_eq!(
        view.settings[0].value,
        json!({ "batch": 20, "tags": ["fast"] })
    );
    assert_eq!(
        fixture.count("SELECT count(*) FROM events WHERE event_type = 'settings.changed'"),
        2
    );
}

#[test]
fn only_a_run_that_goes_on_can_be_changed() {
    let fixture = Fixture::new();
    let definition = tuned();
    let queued = fixture.workflows.run(&definition, Value::Null).unwrap();
    // The scope is made when the run begins.
    let refused = fixture.workflows.change_settings(&batch(&queued, 11));
    assert!(
        matches!(refused, Err(WorkflowError::NoSettings { .. })),
        "{refused:?}"
    );
    fixture.workflows.cancel(&Control::of(&queued)).unwrap();

    let run = waiting(&fixture, &definition);
    let wish = batch(&run, 11).request("r-1");
    let first = change(&fixture.workflows, &wish);
    assert_eq!(finish(&fixture, &run).status, RunStatus::Completed);
    let rows = fixture.rows();
    let refused = fixture.workflows.change_settings(&batch(&run, 12));
    assert!(
        matches!(refused, Err(WorkflowError::Rejected { .. })),
        "{refused:?}"
    );
    // A repeat is no change: it meets the first, also after the end.
    let again = fixture.workflows.change_settings(&wish).unwrap();
    assert_eq!(
        (again.disposition, again.value),
        (Disposition::Adopted, first)
    );
    assert_eq!(fixture.rows(), rows);

    let plain = fixture.run(&echo(), json!(1)).run_id;
    let refused = fixture.workflows.change_settings(&batch(&plain, 1));
    assert!(
        matches!(refused, Err(WorkflowError::NoSettings { .. })),
        "{refused:?}"
    );
    let nobody = RunId::new("nobody").unwrap();
    let refused = fixture.workflows.change_settings(&batch(&nobody, 1));
    assert!(
        matches!(refused, Err(WorkflowError::NoRun { .. })),
        "{refused:?}"
    );
}

#[test]
fn edge_095_a_patch_whose_last_operation_fails_leaves_no_trace() {
    let fixture = Fixture::new();
    let run = waiting(&fixture, &tuned());
    let rows = fixture.rows();
    let refusals: Vec<String> = [
        json!([{ "op": "replace", "path": "/batch", "value": 1 }, { "op": "test", "path": "/batch", "value": 2 }]),
        json!([{ "op": "replace", "path": "/batch", "value": "many" }]),
        json!([{ "op": "add", "path": "/other", "value": 1 }]),
        json!([{ "op": "remove", "path": "/nothing" }]),
        json!([{ "op": "remove" }]),
    ]
    .into_iter()
    .map(|patch| {
        let refused = fixture
            .workflows
            .change_settings(&SettingsChange::new(&run, patch));
        let error = refused.unwrap_err();
        format!("{}: {error}", error.code()).replace(run.as_str(), "RUN")
    })
    .collect();
    insta::assert_snapshot!(refusals.join("\n"));
    assert_eq!(fixture.rows(), rows);
}

#[test]
fn who_may_change_is_a_matter_of_the_kind_of_actor() {
    let fixture = Fixture::new();
    let run = waiting(&fixture, &tuned());
    for kind in ActorKind::ALL {
        let wish = batch(&run, 11).by(Actor::new(*kind, "x"));
        let may = matches!(kind, ActorKind::Human | ActorKind::Control);
        match fixture.workflows.change_settings(&wish) {
            Ok(_) => assert!(may, "{kind}"),
            Err(error) => {
                assert!(!may, "{kind}");
                assert_eq!(error.code(), "settingsRefused");
            }
        }
    }
}

#[test]
fn edge_096_a_change_at_another_number_is_stale_and_one_without_a_number_is_made_again() {
    let fixture = Fixture::new();
    let run = waiting(&fixture, &tuned());
    change(&fixture.workflows, &batch(&run, 11).expecting(0));
    let rows = fixture.rows();
    for stale in [0, 2] {
        let refused = fixture
            .workflows
            .change_settings(&batch(&run, 12).expecting(stale));
        assert!(
            matches!(refused, Err(WorkflowError::StaleSettings { expected, actual: 1, .. }) if expected == stale),
            "{refused:?}"
        );
    }
    assert_eq!(fixture.rows(), rows);
    let numbers = at_once(&fixture, 4, |index| batch(&run, 20 + index));
    assert_eq!(numbers, [2, 3, 4, 5]);
}

/// Changes from as many threads at once; the numbers that they got.
fn at_once(fixture: &Fixture, count: u32, wish: impl Fn(u32) -> SettingsChange + Sync) -> Vec<u64> {
    let barrier = Barrier::new(usize::try_from(count).unwrap());
    let (barrier, wish) = (&barrier, &wish);
    let mut numbers: Vec<u64> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..count)
            .map(|index| {
                scope.spawn(move || {
                    barrier.wait();
                    change(&fixture.workflows, &wish(index)).change_number
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    numbers.sort_unstable();
    numbers
}

/// A workflow whose validator makes a change of its own, from another actor, the first `rivals` times that it is asked.
fn raced(rivals: u32) -> (Definition, Arc<OnceLock<(Workflows, RunId)>>) {
    let store: Arc<OnceLock<(Workflows, RunId)>> = Arc::default();
    let (held, made) = (Arc::clone(&store), AtomicU32::new(0));
    let settings = limits().validate_change(move |_, _, actor| {
        if actor.kind() == ActorKind::Human && made.fetch_add(1, Ordering::SeqCst) < rivals {
            let (workflows, run) = held.get().unwrap();
            change(workflows, &batch(run, 99));
        }
        Ok(())
    });
    (tuned_by(settings), store)
}

#[test]
fn a_change_that_others_outrun_is_made_again_eight_times() {
    for (rivals, accepted) in [(1, true), (8, true), (9, false)] {
        let fixture = Fixture::new();
        let (definition, store) = raced(rivals);
        let run = waiting(&fixture, &definition);
        store
            .set((fixture.workflows.clone(), run.clone()))
            .unwrap_or_else(|_| panic!("set twice"));
        let wish = batch(&run, 20).by(Actor::human("ada"));
        match fixture.workflows.change_settings(&wish) {
            Ok(receipt) => {
                assert!(accepted);
                assert_eq!(receipt.value.change_number, u64::from(rivals) + 1);
            }
            Err(error) => {
                assert!(!accepted, "{error}");
                assert_eq!(error.code(), "staleRevision");
            }
        }
        // With a number, once is enough to be stale.
        let (definition, store) = raced(1);
        let run = waiting(&fixture, &definition);
        store
            .set((fixture.workflows.clone(), run.clone()))
            .unwrap_or_else(|_| panic!("set twice"));
        let wish = batch(&run, 20).by(Actor::human("ada")).expecting(0);
        let refused = fixture.workflows.change_settings(&wish);
        assert!(
            matches!(
                refused,
                Err(WorkflowError::StaleSettings {
                    expected: 0,
                    actual: 1,
                    ..
                })
            ),
            "{refused:?}"
        );
    }
}

#[test]
fn edge_097_a_request_id_is_for_one_change() {
    let fixture = Fixture::new();
    let run = waiting(&fixture, &tuned());
    let wish = batch(&run, 11)
        .request("r-1")
        .by(Actor::human("ada"))
        .from_source("page");
    let first = change(&fixture.workflows, &wish);
    change(&fixture.workflows, &batch(&run, 12));
    let rows = fixture.rows();
    for other in [
        batch(&run, 13)
            .request("r-1")
            .by(Actor::human("ada"))
            .from_source("page"),
        wish.clone().by(Actor::human("bob")),
        wish.clone().by(Actor::control("ada")),
        wish.clone().from_source("mail"),
    ] {
        let refused = fixture.workflows.change_settings(&other);
        assert!(
            matches!(refused, Err(WorkflowError::Conflict { .. })),
            "{refused:?}"
        );
    }
    // The same once more, although its patch now stands on other settings; and the number that it expected has gone by.
    for same in [wish.clone(), wish.expecting(0)] {
        let receipt = fixture.workflows.change_settings(&same).unwrap();
        assert_eq!(
            (receipt.disposition, receipt.value),
            (Disposition::Adopted, first.clone())
        );
    }
    assert_eq!(fixture.rows(), rows);
    // Two at once make one change.
    let numbers = at_once_adopting(&fixture, &batch(&run, 30).request("r-2"));
    assert_eq!(numbers, [3, 3]);
}

fn at_once_adopting(fixture: &Fixture, wish: &SettingsChange) -> [u64; 2] {
    let barrier = Barrier::new(2);
    let make = || {
        barrier.wait();
        fixture
            .workflows
            .change_settings(wish)
            .unwrap()
            .value
            .change_number
    };
    std::thread::scope(|scope| {
        let threads = [scope.spawn(make), scope.spawn(make)];
        threads.map(|thread| thread.join().unwrap())
    })
}

#[test]
fn the_forms_of_a_request() {
    let fixture = Fixture::new();
    let run = waiting(&fixture, &tuned());
    let longest = "r".repeat(512);
    for good in ["0", "a.b_c:d-e", longest.as_str()] {
        change(&fixture.workflows, &batch(&run, 11).request(good));
    }
    for bad in ["", ".a", "a b", "ä", &format!("{longest}r")] {
        let refused = fixture
            .workflows
            .change_settings(&batch(&run, 11).request(bad));
        assert!(matches!(refused, Err(WorkflowError::Input { .. })), "{bad}");
    }
    for (source, good) in [
        ("ä".repeat(128), true),
        ("ä".repeat(129), false),
        (String::new(), false),
    ] {
        let made = fixture
            .workflows
            .change_settings(&batch(&run, 11).from_source(source));
        assert_eq!(made.is_ok(), good);
    }
    let elsewhere = batch(&run, 11).in_scope(format!("{run}:a:1"));
    let refused = fixture.workflows.change_settings(&elsewhere);
    assert!(
        matches!(refused, Err(WorkflowError::NoSettings { .. })),
        "{refused:?}"
    );
    change(
        &fixture.workflows,
        &batch(&run, 11).in_scope(format!("{run}:$root:1")),
    );
}

#[test]
fn a_validator_that_panics_refuses() {
    let fixture = Fixture::new();
    let run = waiting(
        &fixture,
        &tuned_by(limits().validate_change(|_, _, _| panic!("oh"))),
    );
    let refused = fixture.workflows.change_settings(&batch(&run, 11));
    assert_eq!(refused.unwrap_err().code(), "settingsRefused");
}

/// A restart has fresh settings of its own.
#[test]
fn a_restart_begins_with_the_initial_settings() {
    let fixture = Fixture::new();
    let definition = tuned();
    let run = waiting(&fixture, &definition);
    change(&fixture.workflows, &batch(&run, 11));
    let view = finish(&fixture, &run);
    let restart = holdpoint_workflows::commands::Restart::new(&run, view.run_revision);
    let scheduler = fixture.scheduler();
    let child = fixture.workflows.restart(&restart).unwrap().value;
    let view = fixture.workflows.wait(&child, LONG).unwrap();
    scheduler.stop(LONG);
    assert_eq!(view.settings[0].value["batch"], 10);
    assert_eq!(view.settings[0].change_number, 0);
}
