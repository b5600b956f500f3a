//! What a transaction that is not committed leaves of a clock.

use std::time::Duration;

use holdpoint_state::StateError;
use holdpoint_state::testing::TestStore;

use super::*;
use crate::commands::Start;
use crate::definition::Workflow;
use crate::{DOMAIN, SchedulerOptions, Workflows};

const LONG: Duration = Duration::from_secs(30);

/// A run whose agent asks in the session `s`.
fn asking(store: &TestStore) -> RunId {
    let definition = Workflow::new("asking")
        .start_at("name")
        .agent("name", |_| Ok("name it".to_owned()))
        .build()
        .unwrap();
    let workflows = Workflows::new(store.db().clone());
    let scheduler = workflows.scheduler(SchedulerOptions::default()).unwrap();
    let start = Start::new(&definition, serde_json::json!(null)).in_session("s");
    let run = workflows.start(&start).unwrap().value;
    workflows.wait(&run, LONG).unwrap();
    scheduler.stop(LONG);
    run
}

enum Ends {
    Commits,
    RollsBack,
}

/// Starts or stops the clock of the run in a transaction of its own.
fn turn(
    store: &TestStore,
    sessions: &Arc<Sessions>,
    run: &RunId,
    starts: bool,
    ends: &Ends,
) -> Result<(), WorkflowError> {
    let (shared, named) = (Arc::clone(sessions), run.clone());
    let rolls_back = matches!(ends, Ends::RollsBack);
    let receipt = store.db().commit(observing(run), move |change| {
        let mut clocks = Clocks::default();
        let active = store::attempts::active(change)?.unwrap();
        if starts {
            start(change, &shared, &mut clocks, (&named, "s"), &active)?;
        } else {
            stop(change, &shared, &mut clocks, active.key)?;
        }
        if rolls_back {
            return Err(WorkflowError::State(StateError::Input {
                what: "test",
                problem: "on purpose".to_owned(),
            }));
        }
        Ok(Outcome::Refused(clocks))
    })?;
    receipt.value.committed(sessions);
    Ok(())
}

fn spent(store: &TestStore) -> f64 {
    let snapshot = store.db().snapshot().unwrap();
    views::agent_requests(&snapshot, None, 1).unwrap()[0].spent_ms
}

#[test]
fn edge_076_a_clock_that_nobody_measures_is_recovered_before_it_runs_again() {
    let store = TestStore::new([DOMAIN]).unwrap();
    let run = asking(&store);
    let (lost, sessions) = (Arc::default(), Arc::default());
    turn(&store, &lost, &run, true, &Ends::Commits).unwrap();
    store.clock().advance(30);
    sample(store.db(), &lost).unwrap();
    drop(lost);
    store.clock().advance(1_000);
    let refused = turn(&store, &sessions, &run, true, &Ends::Commits);
    assert!(
        matches!(refused, Err(WorkflowError::Conflict { .. })),
        "{refused:?}"
    );
    // Another session's recovery does not touch it.
    recover(store.db(), &sessions, Some("other")).unwrap();
    assert!(turn(&store, &sessions, &run, true, &Ends::Commits).is_err());
    recover(store.db(), &sessions, Some("s")).unwrap();
    turn(&store, &sessions, &run, true, &Ends::Commits).unwrap();
    store.clock().advance(4);
    // What is measured here is nothing to recover.
    recover(store.db(), &sessions, None).unwrap();
    turn(&store, &sessions, &run, false, &Ends::Commits).unwrap();
    assert!((spent(&store) - 34.0).abs() < f64::EPSILON);
}

#[test]
fn edge_077_an_anchor_follows_what_is_committed() {
    let store = TestStore::new([DOMAIN]).unwrap();
    let run = asking(&store);
    let sessions: Arc<Sessions> = Arc::default();
    assert!(turn(&store, &sessions, &run, true, &Ends::RollsBack).is_err());
    assert_eq!(sessions.anchors(None), []);
    store.clock().advance(100);
    turn(&store, &sessions, &run, true, &Ends::Commits).unwrap();
    store.clock().advance(10);
    assert!(turn(&store, &sessions, &run, false, &Ends::RollsBack).is_err());
    store.clock().advance(5);
    sample(store.db(), &sessions).unwrap();
    assert!((spent(&store) - 15.0).abs() < f64::EPSILON);
    turn(&store, &sessions, &run, false, &Ends::Commits).unwrap();
    assert_eq!(sessions.anchors(None), []);
    // A clock that stands is stopped once more without harm.
    turn(&store, &sessions, &run, false, &Ends::Commits).unwrap();
    assert!((spent(&store) - 15.0).abs() < f64::EPSILON);
}

#[test]
fn a_clock_that_somebody_else_closed_is_forgotten_at_the_next_sample() {
    let store = TestStore::new([DOMAIN]).unwrap();
    let run = asking(&store);
    let (first, second): (Arc<Sessions>, Arc<Sessions>) = (Arc::default(), Arc::default());
    turn(&store, &first, &run, true, &Ends::Commits).unwrap();
    store.clock().advance(10);
    // Another process takes the session over.
    recover(store.db(), &second, Some("s")).unwrap();
    turn(&store, &second, &run, true, &Ends::Commits).unwrap();
    sample(store.db(), &first).unwrap();
    assert_eq!(first.anchors(None), []);
    store.clock().advance(3);
    turn(&store, &second, &run, false, &Ends::Commits).unwrap();
    assert!((spent(&store) - 3.0).abs() < f64::EPSILON);
}
