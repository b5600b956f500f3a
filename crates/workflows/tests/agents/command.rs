//! A step executed by a command.

use std::time::Duration;

use holdpoint_workflows::agents::{AgentExecutor as _, AgentFailure, CommandAgent};
use holdpoint_workflows::definition::{CancellationSignal, NodeError, StopReason};
use holdpoint_workflows::routing::NodeOutcome;
use serde_json::{Value, json};

use crate::support::{execute, execute_and_stop, is_alive, request, wait_for_file, wait_until};

fn sh(script: &str) -> CommandAgent {
    CommandAgent::new(["sh", "-c", script])
}

fn receipt(failure: &AgentFailure) -> &Value {
    failure.receipt.as_ref().unwrap()
}

#[test]
fn the_prompt_goes_in_and_the_json_on_standard_output_is_the_reply() {
    let prompt = "Draft \u{2028} it.\n".repeat(20_000);
    let (reply, updates) = execute(
        &sh("wc -c | { read n; echo \"{\\\"bytes\\\": $n, \\\"mode\\\": \\\"$MODE\\\"}\"; }")
            .env("MODE", "fast"),
        &request(&prompt),
    );
    let reply = reply.unwrap();
    assert_eq!(reply.output, json!({"bytes": prompt.len(), "mode": "fast"}));
    assert_eq!(reply.receipt["executor"], "command");
    assert_eq!(reply.receipt["exitCode"], 0);
    assert!(
        !reply.receipt.to_string().contains("Draft"),
        "the prompt is kept with the attempt, not in the receipt"
    );
    assert!(updates.is_empty());
}

#[test]
fn text_on_standard_output_is_the_reply_as_it_is() {
    let (reply, _) = execute(&sh("printf 'Done: %s\\n' '{\"a\": 1}'"), &request("x"));
    // Finding the JSON in it is the engine's work, the same for all executors.
    assert_eq!(reply.unwrap().output, "Done: {\"a\": 1}\n");
}

#[test]
fn the_environment_says_which_step_it_is() {
    let script = "cat >/dev/null; env | grep ^HOLDPOINT_ | sort";
    let (reply, _) = execute(&sh(script), &request("x"));
    insta::assert_snapshot!(reply.unwrap().output.as_str().unwrap(), @r"
    HOLDPOINT_ATTEMPT_ID=attempt-7
    HOLDPOINT_EXPECTED_OUTPUT=an object with `ok`
    HOLDPOINT_NODE_ID=review/draft
    HOLDPOINT_RUN_ID=20260101t000000000z-review-0123abcd
    HOLDPOINT_TITLE=Review of “x”
    HOLDPOINT_VISIT=3
    ");
}

#[test]
fn a_command_that_does_not_read_its_prompt_is_not_waited_for() {
    let (reply, _) = execute(&sh("exec <&-; echo 1"), &request(&"x".repeat(1 << 20)));
    assert_eq!(reply.unwrap().output, 1);
}

#[test]
fn an_exit_status_other_than_0_fails_and_keeps_the_receipt() {
    let (reply, _) = execute(&sh("echo '{}'; echo 'no model' >&2; exit 3"), &request("x"));
    let failure = reply.unwrap_err();
    assert_eq!(failure.error.name(), "CommandFailed");
    assert!(
        failure.error.message().contains("no model"),
        "{}",
        failure.error
    );
    assert_eq!(failure.error.outcome(), NodeOutcome::Failed);
    assert_eq!(receipt(&failure)["exitCode"], 3);
}

#[test]
fn what_does_not_start_fails() {
    let (reply, _) = execute(&CommandAgent::new(["/no/such/agent"]), &request("x"));
    let failure = reply.unwrap_err();
    assert_eq!(failure.error.name(), "SpawnError");
    assert_eq!(receipt(&failure)["command"], "/no/such/agent");

    let (reply, _) = execute(&CommandAgent::new(Vec::<String>::new()), &request("x"));
    assert_eq!(reply.unwrap_err().error.name(), "SpawnError");
}

#[test]
fn a_reply_over_the_limit_fails_instead_of_being_cut() {
    let (reply, _) = execute(
        &sh("head -c 2000 /dev/zero | tr '\\0' 1").max_output_chars(1000),
        &request("x"),
    );
    let failure = reply.unwrap_err();
    assert_eq!(failure.error.name(), "ReplyTooLarge");
    assert_eq!(receipt(&failure)["exitCode"], 0);
}

#[test]
fn a_stop_ends_the_command_and_all_that_it_started() {
    let home = tempfile::tempdir().unwrap();
    let pids = home.path().join("pids");
    // The one that ignores SIGTERM dies of SIGKILL.
    let script = format!(
        "(trap '' TERM; while :; do sleep 1; done) & echo $! $$ > {}; wait",
        pids.display()
    );
    let (failure, took) =
        execute_and_stop(&sh(&script), &request("x"), StopReason::TimedOut, || {
            wait_for_file(&pids);
        });
    assert_eq!(failure.error.outcome(), NodeOutcome::TimedOut);
    assert_eq!(receipt(&failure)["signal"], "SIGTERM");
    assert!(took < Duration::from_secs(10), "{took:?}");
    for pid in wait_for_file(&pids).split_whitespace() {
        wait_until("the group is gone", || (!is_alive(pid)).then_some(()));
    }
}

#[test]
fn lines_of_standard_error_publish_updates_where_that_is_asked_for() {
    let script = r#"
        echo 'HOLDPOINT_UPDATE {"type":"progress","key":"overall","data":{"completed":1}}' >&2
        echo 'only a log' >&2
        echo 'HOLDPOINT_UPDATE {"type":"progress","key":"overall","data":{"completed":2}}' >&2
        echo done
    "#;
    let (reply, updates) = execute(&sh(script).reading_updates(), &request("x"));
    assert_eq!(reply.unwrap().output, "done\n");
    let told: Vec<String> = updates
        .iter()
        .map(|(kind, key, data)| format!("{kind} {key} {data}"))
        .collect();
    assert_eq!(
        told,
        [
            "progress overall {\"completed\":1}",
            "progress overall {\"completed\":2}"
        ]
    );

    let (reply, updates) = execute(&sh(script), &request("x"));
    assert!(reply.is_ok() && updates.is_empty(), "nobody asked for it");
}

#[test]
fn an_update_that_is_none_or_is_refused_ends_the_command() {
    for line in [
        "no json",
        "{}",
        r#"{"type":"t","key":"k","data":{},"more":1}"#,
    ] {
        let script = format!("echo 'HOLDPOINT_UPDATE {line}' >&2; exec sleep 1000");
        let (reply, updates) = execute(&sh(&script).reading_updates(), &request("x"));
        let failure = reply.unwrap_err();
        assert_eq!(failure.error.outcome(), NodeOutcome::Failed, "{line}");
        assert_eq!(receipt(&failure)["signal"], "SIGTERM", "{line}");
        assert!(updates.is_empty());
    }

    let script = r#"echo 'HOLDPOINT_UPDATE {"type":"t","key":"k","data":{}}' >&2; exec sleep 1000"#;
    let refuse = |_: &str, _: &str, _: Value| Err(NodeError::named("RateLimit", "too many"));
    let failure = sh(script)
        .reading_updates()
        .execute(&request("x"), &CancellationSignal::never(), &refuse)
        .unwrap_err();
    assert_eq!(failure.error.name(), "RateLimit");
    assert_eq!(receipt(&failure)["signal"], "SIGTERM");
}

#[test]
fn a_descendant_that_keeps_the_stream_of_updates_is_not_waited_for() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("pid");
    let script = format!(
        "setsid sh -c 'echo $$ >{}; exec sleep 1000' & sleep 0.2; echo done",
        file.display()
    );
    let (reply, _) = execute(&sh(&script).reading_updates(), &request("x"));
    assert_eq!(reply.unwrap().output, "done\n");
    let killed = std::process::Command::new("kill")
        .arg(wait_for_file(&file).trim())
        .status();
    assert!(killed.unwrap().success());
}

#[test]
fn a_reply_without_end_is_ended_with_a_word_about_its_size() {
    let (reply, _) = execute(
        &sh("while true; do echo 'and so on'; done").max_output_chars(1000),
        &request("x"),
    );
    let failure = reply.unwrap_err();
    assert_eq!(
        failure.error.to_string(),
        "ReplyTooLarge: the reply has more than 1000 characters"
    );
    let signal = receipt(&failure)["signal"].as_str().unwrap();
    assert!(["SIGTERM", "SIGKILL"].contains(&signal), "{signal}");
}
