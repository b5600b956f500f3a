//! What the executor of pi withstands: programs that call themselves pi and lie, flood, hang and die.

use std::time::Duration;

use holdpoint_workflows::agents::{AgentFailure, AgentReply, PiAgent};
use holdpoint_workflows::definition::{CancellationSource, StopReason};
use holdpoint_workflows::routing::NodeOutcome;

use crate::support::{
    execute, execute_and_stop, execute_with, is_alive, request, wait_for_file, wait_until,
};

/// The beginning of every well-behaved conversation.
const BEGIN: &str = r#"
    read -r prompt
    echo '{"id":"prompt","type":"response","command":"prompt","success":true}'
    read -r begun
    echo '{"id":"begun","type":"response","command":"get_state","success":true,"data":{"isStreaming":true}}'
    echo '{"type":"agent_start"}'
"#;

/// Its end, after an answer.
const END: &str = r#"
    echo '{"type":"agent_end","messages":[]}'
    read -r question
    echo '{"id":"settled-1","type":"response","command":"get_state","success":true,"data":{"isStreaming":false}}'
"#;

const ANSWER: &str = r#"
    echo '{"type":"message_end","message":{"role":"assistant","content":[{"type":"text","text":"Hi."}],"stopReason":"stop"}}'
"#;

/// A program of these parts of a shell script.
fn pi(parts: &[&str]) -> PiAgent {
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/agents/false_pi.sh");
    PiAgent::new(program).env("FALSE_PI", parts.concat())
}

fn answer(parts: &[&str]) -> AgentReply {
    execute(&pi(parts), &request("x")).0.unwrap()
}

fn failure(parts: &[&str]) -> AgentFailure {
    let failure = execute(&pi(parts), &request("x")).0.unwrap_err();
    assert_eq!(failure.error.outcome(), NodeOutcome::Failed);
    failure
}

#[test]
fn an_answer_is_taken_from_whoever_speaks_the_protocol() {
    let reply = answer(&[BEGIN, ANSWER, END, "cat >/dev/null"]);
    assert_eq!(reply.output, "Hi.");
    assert_eq!(
        reply.receipt["exitCode"], 0,
        "it may exit by itself when its input closes"
    );
}

#[test]
fn one_that_does_not_exit_after_its_answer_is_ended() {
    let reply = answer(&[BEGIN, ANSWER, END, "while :; do sleep 1; done"]);
    assert_eq!(reply.output, "Hi.");
    assert_eq!(reply.receipt["signal"], "SIGTERM");
}

#[test]
fn a_dialog_of_an_extension_is_dismissed() {
    let asks = r#"
        echo '{"type":"extension_ui_request","id":"u1","method":"confirm","title":"Sure?"}'
        read -r said
        echo "$said" >&2
        test "$said" = '{"cancelled":true,"id":"u1","type":"extension_ui_response"}' || exit 9
    "#;
    assert_eq!(answer(&[BEGIN, asks, ANSWER, END]).output, "Hi.");
}

#[test]
fn a_process_that_ends_too_early_is_told_with_its_last_words() {
    let error = failure(&["read -r prompt; echo 'no key for you' >&2; exit 7"]).error;
    assert_eq!(error.name(), "AgentExited");
    assert!(error.message().contains("status 7"), "{error}");
    assert!(error.message().contains("no key for you"), "{error}");

    let failure = failure(&[BEGIN, "kill -9 $$"]);
    assert_eq!(failure.error.name(), "AgentExited");
    assert_eq!(failure.receipt.unwrap()["signal"], "SIGKILL");
}

#[test]
fn a_process_that_does_not_start_is_told() {
    let agent = PiAgent::new("/no/such/pi");
    let failure = execute(&agent, &request("x")).0.unwrap_err();
    assert_eq!(failure.error.name(), "SpawnError");
    assert_eq!(failure.receipt.unwrap()["program"], "/no/such/pi");
}

#[test]
fn what_is_no_record_ends_the_work() {
    for lie in [
        "Warning: something",
        "[]",
        "{\"type\":\"message_end\"}",
        "{\"type\":\"message_end\",\"message\":{\"role\":\"assistant\",\"content\":7}}",
        "{\"type\":\"response\",\"id\":\"begun\",\"success\":true,\"data\":null}",
    ] {
        let tell = format!("printf '%s\\n' '{lie}'; sleep 1000");
        assert_eq!(
            failure(&[BEGIN, &tell]).error.name(),
            "AgentProtocol",
            "{lie}"
        );
    }
    assert_eq!(
        failure(&["printf '\\377\\n'; sleep 1000"]).error.name(),
        "AgentProtocol"
    );
}

#[test]
fn a_prompt_that_an_extension_takes_for_itself_is_not_waited_for() {
    let taken = BEGIN.replace("\"isStreaming\":true", "\"isStreaming\":false");
    let taken = taken.replace("echo '{\"type\":\"agent_start\"}'", "sleep 1000");
    assert_eq!(failure(&[&taken]).error.name(), "PromptNotRun");
}

#[test]
fn one_that_asks_and_never_listens_is_ended() {
    // More dialogs than may wait for an answer, and a prompt that fills the pipe.
    let flood = "yes '{\"type\":\"extension_ui_request\",\"id\":\"u\",\"method\":\"input\"}'";
    let failure = execute(&pi(&[flood]), &request(&"x".repeat(1 << 20)))
        .0
        .unwrap_err();
    assert_eq!(failure.error.name(), "AgentProtocol");
    assert!(
        failure.error.message().contains("does not read"),
        "{}",
        failure.error
    );
}

#[test]
fn one_that_never_listens_can_be_stopped() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("ready");
    // As many answers as may wait, so that there is no room for an abort.
    let asks = format!(
        "yes '{{\"type\":\"extension_ui_request\",\"id\":\"u\",\"method\":\"input\"}}' | head -n 64; echo ready >{}; sleep 1000",
        file.display()
    );
    let prompt = request(&"x".repeat(1 << 20));
    let (failure, _) = execute_and_stop(&pi(&[&asks]), &prompt, StopReason::Cancelled, || {
        wait_for_file(&file);
    });
    assert_eq!(
        failure.error.outcome(),
        NodeOutcome::Cancelled,
        "{}",
        failure.error
    );
}

#[test]
fn a_flood_fills_no_memory() {
    let before = peak_memory_kib();
    // 100 MB in one record, and as many in records that count for something.
    let long = "head -c 100000000 /dev/zero | tr '\\0' x; echo; sleep 1000";
    let failure = failure(&[BEGIN, long]);
    assert_eq!(failure.error.name(), "ReplyTooLarge");
    assert!(
        failure.error.message().contains("100000000 bytes"),
        "{}",
        failure.error
    );

    let many = r#"
        padding=$(head -c 100000 /dev/zero | tr '\0' x)
        yes "{\"type\":\"turn_start\",\"padding\":\"$padding\"}" | head -n 1000
    "#;
    let reply = answer(&[BEGIN, many, ANSWER, END]);
    assert_eq!(reply.receipt["turns"], 1000);
    assert_eq!(reply.output, "Hi.");
    let grown = peak_memory_kib() - before;
    assert!(grown < 60_000, "{grown} KiB more than before");
}

#[test]
fn a_flood_that_never_ends_can_be_stopped() {
    for flood in [
        "yes '{\"type\":\"turn_start\"}'",
        "yes '{\"type\":\"message_update\",\"message\":{}}'",
        "tr '\\0' x </dev/zero",
        "yes >&2",
    ] {
        let (failure, took) = execute_and_stop(
            &pi(&[BEGIN, flood]),
            &request("x"),
            StopReason::TimedOut,
            || {},
        );
        assert_eq!(failure.error.outcome(), NodeOutcome::TimedOut);
        assert!(took < Duration::from_secs(10), "{took:?}");
    }
}

#[test]
fn one_that_ignores_abort_and_sigterm_is_killed_with_its_group() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("pids");
    let hang = format!(
        "trap '' TERM; (while :; do sleep 1; done) & echo $! $$ >{}; while :; do sleep 1; done",
        file.display()
    );
    let (failure, took) = execute_and_stop(
        &pi(&[BEGIN, &hang]),
        &request("x"),
        StopReason::Cancelled,
        || {
            wait_for_file(&file);
        },
    );
    assert_eq!(failure.error.outcome(), NodeOutcome::Cancelled);
    assert_eq!(failure.receipt.unwrap()["signal"], "SIGKILL");
    assert!(took < Duration::from_secs(10), "{took:?}");
    for pid in wait_for_file(&file).split_whitespace() {
        wait_until("the group is gone", || (!is_alive(pid)).then_some(()));
    }
}

#[test]
fn what_is_said_after_an_abort_is_in_the_receipt() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("ready");
    let obeys = format!(
        r#"
        echo ready >{}
        read -r abort
        echo '{{"type":"message_end","message":{{"role":"assistant","content":[],"stopReason":"aborted"}}}}'
        "#,
        file.display()
    );
    // The answer to the last question settles it, and then comes SIGTERM.
    let agent = pi(&[
        "trap 'exit 5' TERM\n",
        BEGIN,
        &obeys,
        END,
        "while :; do sleep 0.1; done",
    ]);
    let (failure, _) = execute_and_stop(&agent, &request("x"), StopReason::Cancelled, || {
        wait_for_file(&file);
    });
    assert_eq!(failure.error.outcome(), NodeOutcome::Cancelled);
    let receipt = failure.receipt.unwrap();
    assert_eq!(receipt["stopReason"], "aborted");
    assert_eq!(receipt["exitCode"], 5);
}

#[test]
fn a_descendant_that_keeps_the_pipe_open_is_not_waited_for() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("pid");
    // In a session of its own, out of reach of the signals to the group.
    let leaves = format!(
        "setsid sh -c 'echo $$ >{}; exec sleep 1000' & sleep 0.2; exit 3",
        file.display()
    );
    let failure = failure(&[BEGIN, &leaves]);
    assert_eq!(failure.error.name(), "AgentExited");
    let pid = wait_for_file(&file);
    let killed = std::process::Command::new("kill")
        .arg(pid.trim())
        .status()
        .unwrap();
    assert!(killed.success());
}

#[test]
fn what_it_leaves_in_its_group_is_ended() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("pid");
    let leaves = format!(
        "sleep 1000 >/dev/null 2>&1 & echo $! >{}; cat >/dev/null",
        file.display()
    );
    let reply = answer(&[BEGIN, ANSWER, END, &leaves]);
    assert_eq!(reply.receipt["exitCode"], 0);
    let pid = wait_for_file(&file);
    wait_until("the rest is gone", || (!is_alive(&pid)).then_some(()));
}

#[test]
fn what_is_written_at_the_end_blocks_nobody() {
    // More records than anybody waits for, written before it exits.
    let verbose = r#"trap 'yes "{\"type\":\"turn_start\"}" | head -n 100000; exit 5' TERM
    "#;
    let failure = failure(&[verbose, "echo lie; while :; do sleep 0.1; done"]);
    assert_eq!(failure.receipt.unwrap()["exitCode"], 5);
}

#[test]
fn a_step_that_is_stopped_before_it_begins_starts_nothing() {
    let source = CancellationSource::new();
    source.stop(StopReason::Cancelled);
    let agent = PiAgent::new("/no/such/pi");
    let failure = execute_with(&agent, &request("x"), &source.signal())
        .0
        .unwrap_err();
    assert_eq!(failure.error.outcome(), NodeOutcome::Cancelled);
    assert!(failure.receipt.is_none());
}

/// The most memory that this process has had.
fn peak_memory_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
