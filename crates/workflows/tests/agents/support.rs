//! What the tests of all executors use.

use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use holdpoint_workflows::agents::{AgentExecutor, AgentFailure, AgentReply, AgentRequest};
use holdpoint_workflows::definition::{
    CancellationSignal, CancellationSource, NodeError, StopReason,
};
use holdpoint_workflows::{AttemptId, NodeId, RunId};
use serde_json::Value;

/// How long a test waits for what must happen.
pub(crate) const LIMIT: Duration = Duration::from_mins(2);

/// What an execution gave, and the updates that it published: type, key, data.
pub(crate) type Executed = (
    Result<AgentReply, AgentFailure>,
    Vec<(String, String, Value)>,
);

pub(crate) fn request(prompt: &str) -> AgentRequest {
    AgentRequest {
        run_id: RunId::new("20260101t000000000z-review-0123abcd").unwrap(),
        node_id: NodeId::new("review/draft").unwrap(),
        attempt_id: AttemptId::new("attempt-7").unwrap(),
        visit: 3,
        prompt: prompt.to_owned(),
        expected_output: Some("an object with `ok`".to_owned()),
        title: Some("Review of \u{201c}x\u{201d}".to_owned()),
    }
}

/// Runs a step that nobody stops; the updates that it published come with it.
pub(crate) fn execute(agent: &dyn AgentExecutor, request: &AgentRequest) -> Executed {
    execute_with(agent, request, &CancellationSignal::never())
}

pub(crate) fn execute_with(
    agent: &dyn AgentExecutor,
    request: &AgentRequest,
    signal: &CancellationSignal,
) -> Executed {
    let updates = Mutex::new(Vec::new());
    let publish = |kind: &str, key: &str, data: Value| -> Result<(), NodeError> {
        updates
            .lock()
            .unwrap()
            .push((kind.to_owned(), key.to_owned(), data));
        Ok(())
    };
    let result = agent.execute(request, signal, &publish);
    (result, updates.into_inner().unwrap())
}

/// Runs a step, and stops it when `ready` says so. Gives the failure and how long the stop took.
pub(crate) fn execute_and_stop(
    agent: &dyn AgentExecutor,
    request: &AgentRequest,
    reason: StopReason,
    ready: impl FnOnce() + Send,
) -> (AgentFailure, Duration) {
    let source = CancellationSource::new();
    let signal = source.signal();
    std::thread::scope(|scope| {
        let stopper = scope.spawn(move || {
            ready();
            let at = now();
            source.stop(reason);
            at
        });
        let (result, _) = execute_with(agent, request, &signal);
        let ended = now();
        (result.unwrap_err(), ended - stopper.join().unwrap())
    })
}

/// Waits for a file that a child writes, and reads it.
pub(crate) fn wait_for_file(path: &Path) -> String {
    wait_until(&format!("{} is written", path.display()), || {
        std::fs::read_to_string(path)
            .ok()
            .filter(|text| text.ends_with('\n'))
    })
}

/// Waits for a condition with a bound.
pub(crate) fn wait_until<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let began = now();
    loop {
        if let Some(met) = condition() {
            return met;
        }
        assert!(began.elapsed() < LIMIT, "in vain: {what}");
        std::thread::yield_now();
    }
}

/// Whether a process is there and not only waiting to be reaped.
pub(crate) fn is_alive(pid: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).is_ok_and(|stat| {
        stat.rsplit(") ")
            .next()
            .is_some_and(|rest| !rest.starts_with(['Z', 'X']))
    })
}

#[expect(clippy::disallowed_methods, reason = "real processes end in real time")]
pub(crate) fn now() -> Instant {
    Instant::now()
}
