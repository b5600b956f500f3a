//! The scheduler does the background work of domains above this one, and never lets a run wait for it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use holdpoint_state::Database;
use holdpoint_state::clock::{Clock as _, UnixMillis};
use holdpoint_state::testing::TestStore;
use holdpoint_workflows::commands::{Answer, Control};
use holdpoint_workflows::model::RunStatus;
use holdpoint_workflows::{DOMAIN, Duty, DutyError, DutyPass, RunId, SchedulerOptions, Workflows};
use serde_json::json;

use crate::support::{LONG, asking, echo};

type Body = dyn Fn(&Database, UnixMillis) -> Result<DutyPass, DutyError> + Send + Sync;

/// A duty of a test.
struct Does {
    body: Box<Body>,
    calls: AtomicU64,
}

impl Does {
    fn new(
        body: impl Fn(&Database, UnixMillis) -> Result<DutyPass, DutyError> + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            body: Box::new(body),
            calls: AtomicU64::new(0),
        })
    }

    fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }
}

impl Duty for Does {
    fn name(&self) -> &'static str {
        "test"
    }

    fn run(&self, db: &Database, now: UnixMillis) -> Result<DutyPass, DutyError> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        (self.body)(db, now)
    }
}

fn due(at: UnixMillis) -> DutyPass {
    DutyPass {
        next_due: Some(at),
        has_worked: false,
    }
}

/// So slow a poll that nothing is found by it.
fn options() -> SchedulerOptions {
    SchedulerOptions {
        workers: 1,
        poll_interval_ms: 3_600_000,
        ..SchedulerOptions::default()
    }
}

#[test]
fn a_duty_makes_runs_due_and_they_are_found_at_once() {
    let store = TestStore::new([DOMAIN]).unwrap();
    let workflows = Workflows::new(store.db().clone());
    // Answers whatever waits, as a domain whose time has come.
    let answering = Does::new(|db, _| {
        let plain = Workflows::new(db.clone());
        let page = plain.list(&holdpoint_workflows::views::Filter::default())?;
        let mut pass = DutyPass::nothing();
        for run in page.runs.iter().filter(|run| run.status == "waiting") {
            let answer =
                Answer::new(&RunId::new(run.run_id.as_str())?, json!("by duty")).key("duty");
            pass.has_worked |= plain.answer(&answer).is_ok();
        }
        Ok(pass)
    });
    let workflows = workflows.with_duty(answering.clone());
    let scheduler = workflows.scheduler(options()).unwrap();
    let run = workflows.run(&asking(), json!(null)).unwrap();
    assert!(scheduler.wait_until_idle(LONG));
    assert_eq!(
        workflows.view(&run).unwrap().final_output,
        Some(json!([1, "by duty"]))
    );
    scheduler.stop(LONG);
}

#[test]
fn only_what_is_due_now_keeps_a_program_from_being_idle() {
    let store = TestStore::new([DOMAIN]).unwrap();
    let due_at = store.clock().now().plus(4_000);
    let done = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&done);
    // One thing to do then, and nothing ever again.
    let duty = Does::new(move |_, now| {
        if now < due_at {
            return Ok(due(due_at));
        }
        let first = counted.fetch_add(1, Ordering::SeqCst) == 0;
        Ok(DutyPass {
            next_due: None,
            has_worked: first,
        })
    });
    let workflows = Workflows::new(store.db().clone()).with_duty(duty.clone());
    let scheduler = workflows.scheduler(options()).unwrap();
    assert!(scheduler.wait_until_idle(LONG));
    assert_eq!(done.load(Ordering::SeqCst), 0);
    store.clock().advance(4_000);
    assert!(scheduler.wait_until_idle(LONG));
    // Once for the work, and at least once more to see that nothing is left.
    assert!(2 <= done.load(Ordering::SeqCst));
    scheduler.stop(LONG);
}

#[test]
fn a_duty_is_called_when_its_time_comes_and_when_something_concerns_it() {
    let store = TestStore::new([DOMAIN]).unwrap();
    let called = Arc::new((Mutex::new(0_u32), Condvar::new()));
    let bell = Arc::clone(&called);
    let duty = Does::new(move |_, now| {
        let mut calls = bell.0.lock().unwrap();
        *calls += 1;
        bell.1.notify_all();
        // The first call knows of something soon; the second of nothing.
        Ok(if *calls == 1 {
            due(now.plus(30))
        } else {
            DutyPass::nothing()
        })
    });
    let wait_for = |count: u32| {
        let calls = called.0.lock().unwrap();
        let waited = called
            .1
            .wait_timeout_while(calls, LONG, |calls| *calls < count);
        assert!(!waited.unwrap().1.timed_out(), "call {count} did not come");
    };
    let workflows = Workflows::new(store.db().clone()).with_duty(duty);
    let scheduler = workflows.scheduler(options()).unwrap();
    wait_for(1);
    store.clock().advance(30);
    wait_for(2);
    workflows.wake_duties();
    wait_for(3);
    // A run that was executed here may concern it as well.
    workflows.run(&echo(), json!(1)).unwrap();
    wait_for(4);
    scheduler.stop(LONG);
}

#[test]
fn a_duty_that_fails_or_panics_is_left_alone_for_a_while_and_stops_nothing() {
    let store = TestStore::new([DOMAIN]).unwrap();
    let failing = Does::new(|_, _| Err("the disk is on fire".into()));
    let panicking = Does::new(|_, _| panic!("as in a test"));
    let sound = Does::new(|_, _| Ok(DutyPass::nothing()));
    let workflows = Workflows::new(store.db().clone())
        .with_duty(failing.clone())
        .with_duty(panicking.clone())
        .with_duty(sound.clone());
    let scheduler = workflows.scheduler(options()).unwrap();
    for _ in 0..5 {
        assert!(scheduler.wait_until_idle(LONG));
    }
    assert!(5 <= sound.calls());
    // The back-off begins with a second.
    assert!(
        failing.calls() < sound.calls(),
        "{} {}",
        failing.calls(),
        sound.calls()
    );
    assert!(panicking.calls() < sound.calls());
    let run = workflows.run(&echo(), json!(1)).unwrap();
    assert_eq!(
        workflows.wait(&run, LONG).unwrap().status,
        RunStatus::Completed
    );
    scheduler.stop(LONG);
}

#[test]
fn a_slow_duty_blocks_no_run() {
    let store = TestStore::new([DOMAIN]).unwrap();
    let gate = Arc::new((Mutex::new(false), Condvar::new()));
    let waiting = Arc::clone(&gate);
    let entered = Arc::new(AtomicBool::new(false));
    let enters = Arc::clone(&entered);
    let slow = Does::new(move |_, _| {
        enters.store(true, Ordering::SeqCst);
        let open = waiting.0.lock().unwrap();
        drop(waiting.1.wait_timeout_while(open, LONG, |open| !*open));
        Ok(DutyPass::nothing())
    });
    let workflows = Workflows::new(store.db().clone()).with_duty(slow);
    let scheduler = workflows.scheduler(options()).unwrap();
    let run = workflows.run(&echo(), json!(1)).unwrap();
    assert_eq!(
        workflows.wait(&run, LONG).unwrap().status,
        RunStatus::Completed
    );
    // It is still at it: the program is not idle, and no run waited for that.
    assert!(!scheduler.wait_until_idle(Duration::from_millis(200)));
    assert!(entered.load(Ordering::SeqCst));
    let run = workflows.run(&asking(), json!(1)).unwrap();
    assert_eq!(
        workflows.wait(&run, LONG).unwrap().status,
        RunStatus::Waiting
    );
    workflows.cancel(&Control::of(&run)).unwrap();
    *gate.0.lock().unwrap() = true;
    gate.1.notify_all();
    assert!(scheduler.wait_until_idle(LONG));
    scheduler.stop(LONG);
}
