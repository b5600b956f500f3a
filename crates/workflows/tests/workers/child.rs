//! What a process of this binary does that was launched as a worker: its mode is one of its arguments.

use std::sync::Arc;

use holdpoint_workflows::agents::AgentExecutor;
use holdpoint_workflows::run_child;

use crate::raw;
use crate::support::{Echo, registry};

fn agents() -> Arc<dyn AgentExecutor> {
    Arc::new(Echo)
}

/// No test: the `main` of the workers. Without a mode it does nothing.
#[test]
fn worker_child() {
    let Some(mode) =
        std::env::args().find_map(|argument| argument.strip_prefix("mode=").map(str::to_owned))
    else {
        return;
    };
    match mode.as_str() {
        "honest" => {
            let ended = run_child(&registry(), Some(&agents()));
            assert_eq!(
                format!("{ended:?}"),
                format!("{:?}", std::process::ExitCode::SUCCESS)
            );
        }
        "loud" => {
            // What authors print goes to no channel.
            print!("{}", "a loud worker\n".repeat(100_000));
            run_child(&registry(), Some(&agents()));
        }
        "gone" => {}
        "aborts" => std::process::abort(),
        other => raw::misbehave(other),
    }
}
