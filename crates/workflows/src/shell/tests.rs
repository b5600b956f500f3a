//! The runner with real processes.

use std::path::Path;
use std::time::Duration;

use super::*;
use crate::definition::{CancellationSignal, CancellationSource, StopReason};
use crate::routing::NodeOutcome;

fn sh(script: &str) -> ShellCommand {
    ShellCommand::new("sh").args(["-c", script])
}

fn run_freely(command: &ShellCommand) -> ShellRun {
    run(command, &CancellationSignal::never())
}

/// Waits, within 10 s, for a file that the child writes when it has come so far.
fn wait_for(path: &Path) -> String {
    for _ in 0..1000 {
        match std::fs::read_to_string(path) {
            Ok(text) if text.ends_with('\n') => return text,
            Ok(_) | Err(_) => CancellationSignal::never().wait(Duration::from_millis(10)),
        };
    }
    panic!("{} did not appear", path.display());
}

/// Whether a process is there and is no zombie.
fn is_alive(pid: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{}/stat", pid.trim()))
        .is_ok_and(|stat| !stat.rsplit_once(") ").unwrap().1.starts_with('Z'))
}

/// Whether a process is gone, or goes within 5 s: SIGKILL is sent before the receipt, but the system
/// may take it down after.
fn goes(pid: &str) -> bool {
    (0..500).any(|_| {
        let gone = !is_alive(pid);
        if !gone {
            CancellationSignal::never().wait(Duration::from_millis(10));
        }
        gone
    })
}

#[test]
fn output_status_and_receipt() {
    let home = tempfile::tempdir().unwrap();
    let command = sh("printf '%s' \"$GREETING\"; printf oops >&2; pwd >&2")
        .env("GREETING", "hällo")
        .cwd(home.path());
    let run = run_freely(&command);
    let result = run.result.unwrap();
    assert_eq!(result.stdout, "hällo");
    let real = home.path().canonicalize().unwrap();
    assert_eq!(result.stderr, format!("oops{}\n", real.display()));
    assert_eq!((result.exit_code, result.signal), (Some(0), None));
    let receipt = serde_json::to_value(&run.receipt).unwrap();
    assert_eq!(receipt["actionType"], "shell");
    assert_eq!(receipt["command"], "sh");
    assert_eq!(receipt["args"][0], "-c");
    assert_eq!(receipt["cwd"], home.path().to_str().unwrap());
    assert_eq!(receipt["exitCode"], 0);
    assert_eq!(receipt["signal"], serde_json::Value::Null);
    assert!(receipt["durationMs"].is_u64());
}

#[test]
fn arguments_are_not_spliced_into_a_shell() {
    let run =
        run_freely(&ShellCommand::new("printf").args(["%s|", "$(id)", "a b", "; rm -rf x", "*"]));
    assert_eq!(run.result.unwrap().stdout, "$(id)|a b|; rm -rf x|*|");
}

#[test]
fn standard_input_is_empty() {
    assert_eq!(
        run_freely(&ShellCommand::new("cat")).result.unwrap().stdout,
        ""
    );
}

#[test]
fn a_non_zero_exit_fails_unless_allowed_and_keeps_its_receipt() {
    let command = sh("echo reason >&2; exit 3");
    let run = run_freely(&command);
    assert_eq!(run.receipt.exit_code, Some(3));
    let error = run.result.unwrap_err().into_node_error();
    assert_eq!(
        error.to_string(),
        "CommandFailed: command \"sh\" exited with status 3: reason"
    );
    assert_eq!(error.outcome(), NodeOutcome::Failed);
    let run = run_freely(&command.allow_non_zero_exit());
    assert_eq!(run.result.unwrap().exit_code, Some(3));

    let command = sh("kill -9 $$");
    let run = run_freely(&command);
    assert_eq!(
        (run.receipt.exit_code, run.receipt.signal.as_deref()),
        (None, Some("SIGKILL"))
    );
    assert!(matches!(run.result, Err(ShellFailure::Exit { .. })));
    assert!(run_freely(&command.allow_non_zero_exit()).result.is_ok());
}

/// Edge case 30 of the workflows reference.
#[test]
fn edge_30_an_unknown_command_has_a_receipt_too() {
    for command in [
        ShellCommand::new("holdpoint-no-such-command").arg("x"),
        ShellCommand::new("true").cwd("/holdpoint/no/such/directory"),
    ] {
        let run = run_freely(&command);
        assert_eq!((run.receipt.exit_code, run.receipt.signal), (None, None));
        assert_eq!(run.receipt.args, command.args);
        let failure = run.result.unwrap_err();
        assert!(matches!(failure, ShellFailure::Spawn { .. }), "{failure}");
        assert_eq!(failure.into_node_error().name(), "SpawnError");
    }
}

/// Edge case 30 of the workflows reference.
#[test]
fn edge_30_a_child_that_ignores_sigterm_is_killed_after_a_second() {
    let home = tempfile::tempdir().unwrap();
    let ready = home.path().join("ready");
    let script =
        "trap '' TERM; echo $$ > ready; while :; do :; done & wait; while :; do read x; done";
    let command = sh(script).cwd(home.path());
    let source = CancellationSource::new();
    let signal = source.signal();
    let running = std::thread::spawn(move || run(&command, &signal));
    let pid = wait_for(&ready);
    source.stop(StopReason::TimedOut);
    let run = running.join().unwrap();
    assert_eq!(run.receipt.signal.as_deref(), Some("SIGKILL"));
    assert!(
        (1000..3000).contains(&run.receipt.duration_ms),
        "{}",
        run.receipt.duration_ms
    );
    let failure = run.result.unwrap_err();
    assert_eq!(
        failure,
        ShellFailure::Stopped {
            command: "sh".into(),
            reason: StopReason::TimedOut
        }
    );
    assert_eq!(failure.into_node_error().outcome(), NodeOutcome::TimedOut);
    assert!(goes(&pid));
}

#[test]
fn a_stop_ends_the_whole_group_at_once_when_it_listens() {
    let home = tempfile::tempdir().unwrap();
    let ready = home.path().join("ready");
    let command = sh("sleep 300 & echo $! > child; echo $$ > ready; wait").cwd(home.path());
    let source = CancellationSource::new();
    let signal = source.signal();
    let running = std::thread::spawn(move || run(&command, &signal));
    let leader = wait_for(&ready);
    let child = wait_for(&home.path().join("child"));
    assert!(is_alive(&child));
    source.stop(StopReason::Cancelled);
    let run = running.join().unwrap();
    assert_eq!(run.receipt.signal.as_deref(), Some("SIGTERM"));
    assert!(
        run.receipt.duration_ms < 1000,
        "no need to wait for SIGKILL: {:?}",
        run.receipt
    );
    assert_eq!(
        run.result.unwrap_err().into_node_error().outcome(),
        NodeOutcome::Cancelled
    );
    assert!(goes(&leader) && goes(&child));
}

#[test]
fn what_the_leader_left_in_its_group_does_not_outlive_the_receipt() {
    let home = tempfile::tempdir().unwrap();
    // The one child holds the pipes open, the other does not.
    let command =
        sh("sleep 300 & echo $! > held; sleep 300 >/dev/null 2>&1 & echo $! > free; echo done")
            .cwd(home.path());
    let run = run_freely(&command);
    assert_eq!(run.result.unwrap().stdout, "done\n");
    assert!(
        (2000..4000).contains(&run.receipt.duration_ms),
        "{}",
        run.receipt.duration_ms
    );
    assert!(goes(&wait_for(&home.path().join("held"))));
    assert!(goes(&wait_for(&home.path().join("free"))));
}

#[test]
fn a_pipe_held_outside_the_group_does_not_hold_the_receipt() {
    let home = tempfile::tempdir().unwrap();
    let command = sh("setsid sleep 20 & sleep 0; echo $! > outside; echo done").cwd(home.path());
    let run = run_freely(&command);
    assert_eq!(run.result.unwrap().stdout, "done\n");
    assert!(
        (2000..4000).contains(&run.receipt.duration_ms),
        "{}",
        run.receipt.duration_ms
    );
}

#[test]
fn a_loud_child_is_drained_and_cut() {
    let command = sh("head -c 3000000 /dev/zero | tr '\\0' x; echo end >&2");
    let result = run_freely(&command).result.unwrap();
    let marker = "\n[output cut after 1000000 characters]";
    assert_eq!(result.stdout.len(), 1_000_000 + marker.len());
    assert!(result.stdout.ends_with(marker) && result.stdout_truncated);
    assert_eq!(
        (result.stderr.as_str(), result.stderr_truncated),
        ("end\n", false)
    );
    let result = run_freely(&sh("echo 123456").max_output_chars(4))
        .result
        .unwrap();
    assert_eq!(result.stdout, "1234\n[output cut after 4 characters]");
}

#[test]
fn a_stopped_signal_starts_nothing() {
    let home = tempfile::tempdir().unwrap();
    let source = CancellationSource::new();
    source.stop(StopReason::Cancelled);
    let run = run(&sh("echo > started").cwd(home.path()), &source.signal());
    assert!(matches!(run.result, Err(ShellFailure::Stopped { .. })));
    assert!(!home.path().join("started").exists());
}

#[test]
fn open_files_of_the_host_stay_with_the_host() {
    let home = tempfile::tempdir().unwrap();
    let secret = home.path().join("secret");
    let file = std::fs::File::create(&secret).unwrap();
    let result = run_freely(&sh("ls -l /proc/$$/fd")).result.unwrap();
    assert!(
        !result.stdout.contains(secret.to_str().unwrap()),
        "{}",
        result.stdout
    );
    drop(file);
}
