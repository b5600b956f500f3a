use holdpoint_state::OwnerKind;
use holdpoint_state::clock::ManualClock;
use holdpoint_state::effects::BackOff;

use super::*;

fn hub() -> Hub {
    hub_at(&Arc::new(ManualClock::at(1)))
}

fn hub_at(clock: &Arc<ManualClock>) -> Hub {
    let clock: Arc<dyn Clock> = Arc::<ManualClock>::clone(clock);
    let hub = Hub::new(clock);
    let owner = Owner::new(OwnerKind::Host, "test");
    hub.attach(&owner, &Arc::new(ActiveRuns::default()))
        .unwrap();
    hub
}

fn runs(count: usize) -> Vec<RunId> {
    (0..count)
        .map(|n| RunId::new(format!("run-{n}")).unwrap())
        .collect()
}

fn take(hub: &Hub) -> Option<Launch> {
    match hub.take()? {
        Next::Run(launch) => Some(launch),
        Next::Item(item) => panic!("nobody brought {item:?}"),
    }
}

#[test]
fn case_037_a_search_that_fails_postpones_what_is_due() {
    let hub = hub();
    let [run] = <[RunId; 1]>::try_from(runs(1)).unwrap();
    assert_eq!(hub.wait_for_sweep(1), Some(0));
    hub.found_nothing_by_error();
    // Nothing has to happen for the next search: it comes with the interval, and finds what the first one would have found.
    assert_eq!(hub.wait_for_sweep(1), Some(0));
    hub.found(vec![run.clone()], 16);
    assert!(take(&hub).is_some_and(|work| *work.run() == run));
}

#[test]
fn a_store_that_can_not_be_searched_is_not_asked_in_a_circle() {
    let hub = Arc::new(hub());
    let searching = Arc::clone(&hub);
    let sweep = std::thread::spawn(move || {
        let mut searches = 0;
        while searching.wait_for_sweep(60_000).is_some() {
            searches += 1;
            searching.found_nothing_by_error();
        }
        searches
    });
    assert!(hub.wait_until_idle(Duration::from_millis(500)).is_none());
    hub.close();
    let searches = sweep.join().unwrap();
    assert!((1..=10).contains(&searches), "{searches}");
}

#[test]
fn case_047_runs_that_fail_together_do_not_come_back_together() {
    let hub = hub();
    let runs = runs(20);
    for run in &runs {
        hub.offer(run);
    }
    while let Some(run) = {
        let ready = !hub.lock().ready.is_empty();
        ready.then(|| take(&hub)).flatten()
    } {
        hub.give_back(run.run(), Taken::Failed, BackOff::default());
    }
    let due: BTreeSet<u64> = hub
        .lock()
        .postponed
        .values()
        .map(|postponed| postponed.until.0 - hub.clock.monotonic().0)
        .collect();
    assert!(
        due.iter().all(|wait| (800..=1_200).contains(wait)),
        "{due:?}"
    );
    assert!(5 < due.len(), "{due:?}");
    // Until then a search leaves them alone.
    hub.found(runs, 64);
    assert!(hub.lock().ready.is_empty());
}
/// The back-off of a run that was interrupted is waited out, as often as the bound says, and no longer.
#[test]
fn a_run_that_was_interrupted_a_few_times_is_waited_for() {
    let clock = Arc::new(ManualClock::at(1));
    let hub = Arc::new(hub_at(&clock));
    let [run] = <[RunId; 1]>::try_from(runs(1)).unwrap();
    let (searching, due) = (Arc::clone(&hub), run.clone());
    let sweep = std::thread::spawn(move || {
        while searching.wait_for_sweep(60_000).is_some() {
            searching.found(vec![due.clone()], 16);
        }
    });
    let fail = || {
        hub.lock().wants_sweep = true;
        hub.search.notify_all();
        let taken = take(&hub).unwrap();
        hub.give_back(taken.run(), Taken::Interrupted, BackOff::default());
    };
    let look = Duration::from_millis(150);
    for errors in 1..=idle::PATIENCE_ERRORS {
        // Given back in the middle of the wait, as a worker does it.
        fail();
        assert!(hub.wait_until_idle(look).is_none(), "after {errors} errors");
        assert!(hub.lock().ready.is_empty(), "its back-off holds");
        clock.advance(u64::from(BackOff::default().raw_ms(errors) * 6 / 5));
    }
    fail();
    assert!(hub.wait_until_idle(Duration::from_secs(20)).is_some());
    // An error that does not pass is not waited for at all.
    hub.offer(&run);
    let taken = take(&hub).unwrap();
    hub.give_back(taken.run(), Taken::Failed, BackOff::default());
    assert!(hub.wait_until_idle(Duration::from_secs(20)).is_some());
    // Whoever waits meets the run when its time has come, without being told.
    hub.offer(&run);
    fail();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| hub.wait_until_idle(Duration::from_mins(1)).is_some());
        clock.advance(2_000);
        let taken = take(&hub).unwrap();
        hub.lock().postponed.clear();
        hub.detach();
        drop(taken);
        assert!(!waits.join().unwrap());
    });
    hub.close();
    sweep.join().unwrap();
}

/// A line asks for more before it is empty, and holds no more than it should, however much is due.
#[test]
fn a_line_that_runs_low_is_filled_again_without_a_missed_turn() {
    let hub = hub();
    hub.open_lines(1);
    let keys = |from: usize| -> Vec<String> { (from..100).map(|n| format!("{n:03}")).collect() };
    let search = |from: usize| {
        let known = hub.wait_for_search(0, 60_000).unwrap();
        let keys = keys(from);
        let limit = 4 + known;
        let keys = keys.into_iter().take(limit).collect();
        let batch = 4;
        let found = Searched::Found { keys, limit, batch };
        assert_eq!(hub.searched(0, found), None);
    };
    let take = || match hub.take() {
        Some(Next::Item(item)) => item,
        next => panic!("{next:?}"),
    };
    search(0);
    let mut held = Vec::new();
    for number in 0..20 {
        assert!(hub.lock().lines.iter().all(Line::waits), "before {number}");
        let item = take();
        assert_eq!(item.key, format!("{number:03}"));
        held.push(item);
        if !hub.lock().lines.iter().any(Line::waits) {
            // Nothing is done yet: the search meets those that are executed, and passes them.
            search(0);
        }
    }
    for item in held {
        hub.give_back_item(&item, Left::Done, BackOff::default());
    }
    assert_eq!(
        hub.lock().lines.iter().map(Line::executes).sum::<usize>(),
        0
    );
}

/// A search that began before an item was given back saw it as it was before, and must not have it executed once more.
#[test]
fn what_was_given_back_during_a_search_is_searched_for_again() {
    let hub = hub();
    hub.open_lines(1);
    let search = || hub.wait_for_search(0, 60_000).unwrap();
    let found = |keys: &[&str]| {
        let keys = keys.iter().map(|key| (*key).to_owned()).collect();
        let (limit, batch) = (16, 16);
        hub.searched(0, Searched::Found { keys, limit, batch });
    };
    search();
    found(&["a"]);
    let Some(Next::Item(item)) = hub.take() else {
        panic!("not in line");
    };
    hub.wake_lines();
    search();
    hub.give_back_item(&item, Left::Done, BackOff::default());
    found(&["a"]);
    assert!(!hub.lock().lines.iter().any(Line::waits));
    // It is due once more after all: the search that was wanted meanwhile finds it.
    search();
    found(&["a"]);
    assert!(hub.lock().lines.iter().all(Line::waits));
}

#[test]
fn a_search_that_went_on_when_idleness_was_asked_for_is_no_answer() {
    let hub = Arc::new(hub());
    hub.open_lines(1);
    let nothing = || Searched::Found {
        keys: Vec::new(),
        limit: 16,
        batch: 16,
    };
    // Both searches have begun, and may have read the store already.
    assert!(hub.wait_for_sweep(60_000).is_some());
    assert!(hub.wait_for_search(0, 60_000).is_some());
    let waiting = Arc::clone(&hub);
    let idle = std::thread::spawn(move || waiting.wait_until_idle(Duration::from_secs(30)));
    while !hub.lock().wants_sweep {
        std::thread::yield_now();
    }
    hub.found(Vec::new(), 16);
    hub.searched(0, nothing());
    // What became due in between is found by those that were asked for.
    assert!(hub.wait_for_sweep(60_000).is_some());
    assert!(hub.wait_for_search(0, 60_000).is_some());
    hub.found(Vec::new(), 16);
    assert!(!idle.is_finished());
    let found = Searched::Found {
        keys: vec!["late".to_owned()],
        limit: 16,
        batch: 16,
    };
    hub.searched(0, found);
    let Some(Next::Item(item)) = hub.take() else {
        panic!("it was not found");
    };
    assert!(!idle.is_finished());
    hub.give_back_item(&item, Left::Done, BackOff::default());
    let serving = Arc::clone(&hub);
    let sweep = std::thread::spawn(move || {
        while serving.wait_for_sweep(60_000).is_some() {
            serving.found(Vec::new(), 16);
        }
    });
    let serving = Arc::clone(&hub);
    let search = std::thread::spawn(move || {
        while serving.wait_for_search(0, 60_000).is_some() {
            serving.searched(0, nothing());
        }
    });
    assert!(idle.join().unwrap().is_some());
    hub.drain();
    hub.close();
    sweep.join().unwrap();
    search.join().unwrap();
}
