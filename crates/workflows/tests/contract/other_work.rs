//! Work of other domains shares the workers with runs, in turn, and costs them nothing where there is none.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use holdpoint_state::clock::{Clock as _, UnixMillis};
use holdpoint_state::testing::{TestStore, counter};
use holdpoint_state::{Actor, Database, StateError};
use holdpoint_workflows::definition::{Definition, Workflow};
use holdpoint_workflows::model::RunStatus;
use holdpoint_workflows::{
    DOMAIN, DueWork, SchedulerOptions, Work, WorkError, WorkTurn, Worked, Workflows,
};
use serde_json::json;

use crate::support::{Fixture, LONG, echo};

/// What was executed, in order.
type Log = Arc<Mutex<Vec<String>>>;
type Body = dyn Fn(&WorkTurn<'_>) -> Result<Worked, WorkError> + Send + Sync;

/// A kind of work whose items are due until they are done.
struct Items {
    name: &'static str,
    body: Box<Body>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    due: Vec<String>,
    /// How many searches began.
    searches: u64,
    /// How many executions ended, and how.
    ended: u64,
    /// A search fails.
    broken: bool,
    next_due: Option<UnixMillis>,
}

impl Items {
    fn new(
        name: &'static str,
        body: impl Fn(&WorkTurn<'_>) -> Result<Worked, WorkError> + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            name,
            body: Box::new(body),
            state: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    /// Items that are written down, and nothing else.
    fn noted(name: &'static str, log: &Log) -> Arc<Self> {
        let log = Arc::clone(log);
        Self::new(name, move |turn| {
            log.lock().unwrap().push(turn.key().to_owned());
            Ok(Worked::Done)
        })
    }

    fn make_due(&self, keys: &[&str]) {
        let keys = keys.iter().map(|key| (*key).to_owned());
        self.state.lock().unwrap().due.extend(keys);
    }

    fn wait_for(&self, what: &str, is_so: impl Fn(&State) -> bool) {
        let state = self.state.lock().unwrap();
        let waited = self
            .changed
            .wait_timeout_while(state, LONG, |state| !is_so(state));
        assert!(!waited.unwrap().1.timed_out(), "{what} did not come");
    }

    /// Makes items due and waits until they are in line: the search after the one that saw them has begun.
    fn put_in_line(&self, workflows: &Workflows, keys: &[&str]) {
        self.make_due(keys);
        let before = self.state.lock().unwrap().searches;
        for search in 1..=2 {
            workflows.wake_work();
            self.wait_for("a search", |state| before + search <= state.searches);
        }
    }

    fn left(&self) -> usize {
        self.state.lock().unwrap().due.len()
    }
}

impl Work for Items {
    fn name(&self) -> &str {
        self.name
    }

    fn find(&self, _: &Database, now: UnixMillis, limit: usize) -> Result<DueWork, WorkError> {
        let mut state = self.state.lock().unwrap();
        state.searches += 1;
        self.changed.notify_all();
        if state.broken {
            return Err("the disk is on fire".into());
        }
        if let Some(next_due) = state.next_due.filter(|at| now < *at) {
            return Ok(DueWork {
                keys: Vec::new(),
                next_due: Some(next_due),
            });
        }
        Ok(DueWork {
            keys: state.due.iter().take(limit).cloned().collect(),
            next_due: None,
        })
    }

    fn execute(&self, turn: &WorkTurn<'_>) -> Result<Worked, WorkError> {
        let worked = (self.body)(turn);
        let mut state = self.state.lock().unwrap();
        if worked.is_ok() {
            state.due.retain(|key| key != turn.key());
        }
        state.ended += 1;
        self.changed.notify_all();
        worked
    }
}

/// So slow a poll that nothing is found by it.
fn options(workers: usize) -> SchedulerOptions {
    SchedulerOptions {
        workers,
        poll_interval_ms: 3_600_000,
        ..SchedulerOptions::default()
    }
}

/// A workflow that writes its runs down.
fn noting(log: &Log) -> Definition {
    let log = Arc::clone(log);
    Workflow::new("noting")
        .start_at("n")
        .compute("n", move |_| {
            log.lock().unwrap().push("run".to_owned());
            Ok(true)
        })
        .build()
        .unwrap()
}

/// Holds a worker until it is told to go on.
struct Plug {
    enter: Mutex<Sender<()>>,
    held: Mutex<Receiver<()>>,
}

impl Plug {
    /// The plug, what tells that a worker is held, and what lets it go on; dropped, it lets all go on.
    fn new() -> (Arc<Self>, Receiver<()>, Sender<()>) {
        let (enter, entered) = channel();
        let (release, held) = channel();
        let plug = Self {
            enter: Mutex::new(enter),
            held: Mutex::new(held),
        };
        (Arc::new(plug), entered, release)
    }

    fn hold(&self) {
        // Whoever made the plug may be gone: then nothing is held.
        self.enter.lock().unwrap().send(()).ok();
        self.held.lock().unwrap().recv_timeout(LONG).ok();
    }
}

fn plugged(plug: &Arc<Plug>) -> Definition {
    let plug = Arc::clone(plug);
    Workflow::new("plug")
        .start_at("n")
        .compute("n", move |_| {
            plug.hold();
            Ok(true)
        })
        .build()
        .unwrap()
}

#[test]
fn edge_047_runs_and_other_work_alternate_on_one_worker() {
    let fixture = Fixture::new();
    let log = Log::default();
    let (plug, entered, release) = Plug::new();
    let items = Items::noted("items", &log);
    let workflows = fixture.workflows.clone().with_work(items.clone());
    let scheduler = workflows.scheduler(options(1)).unwrap();
    workflows.run(&plugged(&plug), json!(null)).unwrap();
    entered.recv_timeout(LONG).unwrap();
    // Both sides wait while the only worker is at a run.
    for _ in 0..3 {
        workflows.run(&noting(&log), json!(null)).unwrap();
    }
    items.put_in_line(&workflows, &["a", "b", "c", "d"]);
    assert_eq!(*log.lock().unwrap(), [""; 0]);
    release.send(()).unwrap();
    assert!(scheduler.wait_until_idle(LONG));
    // After a run the other side is first; and where a side has nothing left, the other one goes on.
    assert_eq!(
        *log.lock().unwrap(),
        ["a", "run", "b", "run", "c", "run", "d"]
    );
    scheduler.stop(LONG);
}

#[test]
fn edge_047_after_other_work_a_run_is_first() {
    let fixture = Fixture::new();
    let log = Log::default();
    let (plug, entered, release) = Plug::new();
    let noted = Arc::clone(&log);
    let items = Items::new("items", move |turn| {
        if turn.key() == "plug" {
            plug.hold();
        }
        noted.lock().unwrap().push(turn.key().to_owned());
        Ok(Worked::Done)
    });
    items.make_due(&["plug"]);
    let workflows = fixture.workflows.clone().with_work(items.clone());
    let scheduler = workflows.scheduler(options(1)).unwrap();
    entered.recv_timeout(LONG).unwrap();
    let runs: Vec<_> = (0..3)
        .map(|_| workflows.run(&noting(&log), json!(null)).unwrap())
        .collect();
    // The place is counted: no run is claimed with its start.
    for run in &runs {
        assert_eq!(workflows.explain(run).unwrap().generation, 0);
    }
    items.put_in_line(&workflows, &["a", "b"]);
    release.send(()).unwrap();
    assert!(scheduler.wait_until_idle(LONG));
    assert_eq!(
        *log.lock().unwrap(),
        ["plug", "run", "a", "run", "b", "run"]
    );
    scheduler.stop(LONG);
}

#[test]
fn edge_047_several_kinds_take_turns() {
    let fixture = Fixture::new();
    let log = Log::default();
    let (plug, entered, release) = Plug::new();
    let (first, second) = (Items::noted("first", &log), Items::noted("second", &log));
    let workflows = fixture.workflows.clone();
    let workflows = workflows
        .with_work(first.clone())
        .with_work(Items::noted("idle", &log))
        .with_work(second.clone());
    let scheduler = workflows.scheduler(options(1)).unwrap();
    workflows.run(&plugged(&plug), json!(null)).unwrap();
    entered.recv_timeout(LONG).unwrap();
    for _ in 0..2 {
        workflows.run(&noting(&log), json!(null)).unwrap();
    }
    first.put_in_line(&workflows, &["a1", "a2", "a3"]);
    second.put_in_line(&workflows, &["b1", "b2", "b3"]);
    release.send(()).unwrap();
    assert!(scheduler.wait_until_idle(LONG));
    let expected = ["a1", "b1", "run", "a2", "b2", "run", "a3", "b3"];
    assert_eq!(*log.lock().unwrap(), expected);
    scheduler.stop(LONG);
}

#[test]
fn edge_047_two_workers_are_shared() {
    let fixture = Fixture::new();
    let (plug, entered, release) = Plug::new();
    let holding = Arc::clone(&plug);
    let items = Items::new("items", move |_| {
        holding.hold();
        Ok(Worked::Done)
    });
    let workflows = fixture.workflows.clone().with_work(items.clone());
    let scheduler = workflows.scheduler(options(2)).unwrap();
    items.put_in_line(&workflows, &["a"]);
    entered.recv_timeout(LONG).unwrap();
    // One place is left: a run is claimed with its start, and the next has to wait.
    let first = workflows.run(&plugged(&plug), json!(1)).unwrap();
    entered.recv_timeout(LONG).unwrap();
    let second = workflows.run(&echo(), json!(2)).unwrap();
    let generation = |run| workflows.explain(run).unwrap().generation;
    assert_eq!((generation(&first), generation(&second)), (1, 0));
    items.put_in_line(&workflows, &["b"]);
    assert!(entered.try_recv().is_err(), "a third worker");
    drop(release);
    assert!(scheduler.wait_until_idle(LONG));
    assert_eq!(items.left(), 0);
    for run in [first, second] {
        let status = workflows.view(&run).unwrap().status;
        assert_eq!(status, RunStatus::Completed);
    }
    scheduler.stop(LONG);
}

#[test]
fn a_side_alone_has_all_workers_and_more_items_than_a_search_finds_are_done_in_their_order() {
    let fixture = Fixture::new();
    let log = Log::default();
    let items = Items::noted("items", &log);
    let keys: Vec<String> = (0..100).map(|number| format!("{number:03}")).collect();
    items.make_due(&keys.iter().map(String::as_str).collect::<Vec<_>>());
    let workflows = fixture.workflows.clone().with_work(items.clone());
    let scheduler = workflows.scheduler(options(1)).unwrap();
    items.wait_for("the last item", |state| 100 <= state.ended);
    assert_eq!(*log.lock().unwrap(), keys);
    assert!(scheduler.wait_until_idle(LONG));
    // And runs alone, with a kind beside them that has nothing.
    let runs: Vec<_> = (0..20)
        .map(|number| workflows.run(&echo(), json!(number)).unwrap())
        .collect();
    for run in runs {
        assert_eq!(
            workflows.wait(&run, LONG).unwrap().status,
            RunStatus::Completed
        );
    }
    scheduler.stop(LONG);
}

#[test]
fn an_item_that_panics_or_fails_costs_no_worker_and_is_tried_again_after_its_back_off() {
    let fixture = Fixture::new();
    let tries = Arc::new(Mutex::new((0_u32, 0_u32)));
    let counted = Arc::clone(&tries);
    let items = Items::new("items", move |turn| {
        let mut tries = counted.lock().unwrap();
        if turn.key() == "fails" {
            tries.0 += 1;
            let is_first = tries.0 == 1;
            drop(tries);
            assert!(!is_first, "as in a test");
            return Ok(Worked::Done);
        }
        tries.1 += 1;
        if tries.1 == 1 {
            return Err("the disk is on fire".into());
        }
        Ok(Worked::Done)
    });
    items.make_due(&["fails", "errs"]);
    let workflows = fixture.workflows.clone().with_work(items.clone());
    let scheduler = workflows.scheduler(options(1)).unwrap();
    let run = workflows.run(&echo(), json!(1)).unwrap();
    assert_eq!(
        workflows.wait(&run, LONG).unwrap().status,
        RunStatus::Completed
    );
    // What failed is no work until its time has come, however often it is found.
    for _ in 0..5 {
        assert!(scheduler.wait_until_idle(LONG));
    }
    assert_eq!(*tries.lock().unwrap(), (1, 1));
    fixture.store.clock().advance(1_300);
    assert!(scheduler.wait_until_idle(LONG));
    assert_eq!(*tries.lock().unwrap(), (2, 2));
    assert_eq!(items.left(), 0);
    scheduler.stop(LONG);
}

#[test]
fn a_store_that_was_busy_is_waited_for() {
    let fixture = Fixture::new();
    let clock = fixture.store.clock().clone();
    let tries = Arc::new(Mutex::new(0_u32));
    let counted = Arc::clone(&tries);
    let items = Items::new("items", move |_| {
        let mut tries = counted.lock().unwrap();
        *tries += 1;
        if *tries == 1 {
            return Err(Box::new(StateError::Busy { waited_ms: 5_000 }));
        }
        Ok(Worked::Done)
    });
    items.make_due(&["a"]);
    let workflows = fixture.workflows.clone().with_work(items.clone());
    let scheduler = workflows.scheduler(options(1)).unwrap();
    assert!(!scheduler.wait_until_idle(Duration::from_millis(300)));
    assert_eq!(*tries.lock().unwrap(), 1);
    clock.advance(1_300);
    assert!(scheduler.wait_until_idle(LONG));
    assert_eq!((*tries.lock().unwrap(), items.left()), (2, 0));
    scheduler.stop(LONG);
}

#[test]
fn a_search_that_fails_postpones_its_kind_and_stops_nothing_else() {
    let fixture = Fixture::new();
    let log = Log::default();
    let (broken, sound) = (Items::noted("broken", &log), Items::noted("sound", &log));
    broken.make_due(&["a"]);
    broken.state.lock().unwrap().broken = true;
    let workflows = fixture.workflows.clone();
    let workflows = workflows.with_work(broken.clone()).with_work(sound.clone());
    let scheduler = workflows.scheduler(options(1)).unwrap();
    for _ in 0..5 {
        assert!(scheduler.wait_until_idle(LONG));
    }
    assert_eq!(broken.state.lock().unwrap().searches, 1);
    sound.make_due(&["b"]);
    assert!(scheduler.wait_until_idle(LONG));
    broken.state.lock().unwrap().broken = false;
    fixture.store.clock().advance(1_300);
    assert!(scheduler.wait_until_idle(LONG));
    assert_eq!(*log.lock().unwrap(), ["b", "a"]);
    scheduler.stop(LONG);
}

#[test]
fn a_scheduler_that_stops_takes_no_item_and_tells_those_that_go_on() {
    let fixture = Fixture::new();
    let (plug, entered, release) = Plug::new();
    let log = Log::default();
    let noted = Arc::clone(&log);
    let items = Items::new("items", move |turn| {
        plug.hold();
        let is_told = turn.cancellation().wait(LONG).is_some();
        let key = turn.key();
        noted.lock().unwrap().push(format!("{key} {is_told}"));
        Ok(Worked::Done)
    });
    let workflows = fixture.workflows.clone().with_work(items.clone());
    let scheduler = workflows.scheduler(options(1)).unwrap();
    items.put_in_line(&workflows, &["a"]);
    entered.recv_timeout(LONG).unwrap();
    items.put_in_line(&workflows, &["b"]);
    release.send(()).unwrap();
    scheduler.stop(Duration::ZERO);
    assert_eq!(*log.lock().unwrap(), ["a true"]);
    assert_eq!(items.left(), 1);
    // Nothing is lost: the next scheduler finds it.
    drop(release);
    let scheduler = workflows.scheduler(options(1)).unwrap();
    entered.recv_timeout(LONG).unwrap();
    scheduler.stop(Duration::ZERO);
    assert_eq!(*log.lock().unwrap(), ["a true", "b true"]);
}

#[test]
fn a_program_is_idle_when_no_item_is_due_nor_executed() {
    let fixture = Fixture::new();
    let (plug, entered, release) = Plug::new();
    let plain = fixture.workflows.clone();
    let items = Items::new("items", move |_| {
        plug.hold();
        // What it starts is work as well.
        plain.run(&echo(), json!(1))?;
        Ok(Worked::Done)
    });
    let workflows = fixture.workflows.clone().with_work(items.clone());
    let scheduler = workflows.scheduler(options(1)).unwrap();
    assert!(scheduler.wait_until_idle(LONG));
    // Nobody says that it is due; who waits for idleness asks.
    items.make_due(&["a"]);
    assert!(!scheduler.wait_until_idle(Duration::from_millis(100)));
    entered.recv_timeout(LONG).unwrap();
    assert!(!scheduler.wait_until_idle(Duration::from_millis(100)));
    release.send(()).unwrap();
    assert!(scheduler.wait_until_idle(LONG));
    assert_eq!(items.left(), 0);
    let completed = "SELECT count(*) FROM runs WHERE status = 'completed'";
    assert_eq!(fixture.count(completed), 1);
    scheduler.stop(LONG);
}

#[test]
fn work_is_found_without_a_word_by_its_time_after_a_run_and_at_a_poll() {
    let fixture = Fixture::new();
    let log = Log::default();
    let items = Items::noted("items", &log);
    let due_at = fixture.store.clock().now().plus(30);
    items.make_due(&["by its time"]);
    items.state.lock().unwrap().next_due = Some(due_at);
    let workflows = fixture.workflows.clone().with_work(items.clone());
    let scheduler = workflows.scheduler(options(1)).unwrap();
    items.wait_for("a search", |state| 1 <= state.searches);
    fixture.store.clock().advance(30);
    items.wait_for("the item whose time has come", |state| state.ended == 1);
    // A run whose end makes something due that nobody is told of.
    let making = items.clone();
    let definition = Workflow::new("making")
        .start_at("n")
        .compute("n", move |_| {
            making.make_due(&["after a run"]);
            Ok(true)
        })
        .build()
        .unwrap();
    workflows.run(&definition, json!(null)).unwrap();
    items.wait_for("the item of the run", |state| state.ended == 2);
    scheduler.stop(LONG);
    let scheduler = workflows
        .scheduler(SchedulerOptions {
            poll_interval_ms: 20,
            ..options(1)
        })
        .unwrap();
    assert!(scheduler.wait_until_idle(LONG));
    items.make_due(&["at a poll"]);
    items.wait_for("the item of the poll", |state| state.ended == 3);
    scheduler.stop(LONG);
    assert_eq!(log.lock().unwrap().len(), 3);
}

#[test]
fn what_an_item_holds_is_renewed_and_its_loss_cancels_the_turn() {
    let store = TestStore::new([DOMAIN, counter::DOMAIN]).unwrap();
    counter::create(store.db(), "c").unwrap();
    let clock = store.clock().clone();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let saw = Arc::clone(&seen);
    let items = Items::new("items", move |turn| {
        let (owner, length) = (turn.owner(), turn.lease_ms());
        let actor = Actor::host(owner.id());
        let claim = turn
            .db()
            .claim(counter::resource("c"), actor, owner, length)?;
        let claim = Arc::new(claim);
        turn.keep(&claim);
        let stopped = turn.cancellation();
        clock.advance(200);
        let look = Duration::from_millis(10);
        let is_renewed = (0..1_000).any(|_| {
            stopped.wait(look);
            claim.remaining_ms(&clock) == 300
        });
        clock.advance(400);
        let is_told = stopped.wait(LONG).is_some();
        saw.lock().unwrap().push((is_renewed, is_told));
        Ok(Worked::Done)
    });
    items.make_due(&["c"]);
    let workflows = Workflows::new(store.db().clone()).with_work(items.clone());
    let options = SchedulerOptions {
        lease_ms: 300,
        ..options(1)
    };
    let scheduler = workflows.scheduler(options).unwrap();
    assert!(scheduler.wait_until_idle(LONG));
    assert_eq!(*seen.lock().unwrap(), [(true, true)]);
    scheduler.stop(LONG);
}
