//! What a process costs beside a thread. Measured by hand, never judged: `docs/DEVELOPMENT.md` has the command and a number.

use holdpoint_state::clock::{Clock as _, SystemClock};
use holdpoint_workflows::model::RunStatus;
use holdpoint_workflows::{Execution, RunId};

use crate::support::{Home, LONG, chain, options};

/// Runs of so many steps each, one after the other; gives milliseconds for all.
fn measure(home: &Home, execution: Execution, (runs, steps): (u32, u32)) -> u64 {
    let scheduler = home.workflows.scheduler(options(execution)).unwrap();
    let begun = SystemClock.monotonic();
    for _ in 0..runs {
        let run: RunId = home.workflows.run(&chain(steps), home.input()).unwrap();
        let view = home.workflows.wait(&run, LONG).unwrap();
        assert_eq!(view.status, RunStatus::Completed);
    }
    let spent = SystemClock.monotonic().since(begun);
    scheduler.stop(LONG);
    spent
}

#[test]
#[ignore = "a measurement"]
fn steps_per_second_by_process_and_by_thread() {
    for (runs, steps) in [(50, 1), (5, 200)] {
        let (within, apart) = (Home::new(), Home::new());
        let by_thread = measure(&within, Execution::Threads, (runs, steps));
        let process = Execution::Processes(apart.launcher("honest"));
        let by_process = measure(&apart, process, (runs, steps));
        for (how, spent) in [("thread", by_thread), ("process", by_process)] {
            let per_second = u64::from(runs * steps) * 1_000 / spent.max(1);
            println!("{runs} runs of {steps} steps by {how}: {spent} ms, {per_second} steps/s");
        }
    }
}
