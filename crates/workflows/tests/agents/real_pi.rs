//! A step executed by pi itself, with a model that the test plays.

use std::path::Path;
use std::time::Duration;

use holdpoint_workflows::agents::{AgentFailure, PiAgent, extract};
use holdpoint_workflows::definition::StopReason;
use holdpoint_workflows::routing::NodeOutcome;
use serde_json::{Value, json};

use crate::install::pi;
use crate::provider::{Provider, Turn};
use crate::support::{execute, execute_and_stop, is_alive, request, wait_for_file, wait_until};

/// Pi with a home and a model of its own.
pub(crate) struct Pi {
    pub(crate) home: tempfile::TempDir,
    pub(crate) provider: Provider,
    pub(crate) agent: PiAgent,
}

pub(crate) fn start(turns: impl IntoIterator<Item = Turn>) -> Option<Pi> {
    let program = pi()?;
    let home = tempfile::tempdir().unwrap();
    let provider = Provider::start(turns);
    let agent = agent(program, home.path(), &provider.url());
    Some(Pi {
        home,
        provider,
        agent,
    })
}

/// Pi with this home, and one model at this address.
pub(crate) fn agent(program: &Path, home: &Path, url: &str) -> PiAgent {
    let models = json!({ "providers": { "played": {
        "baseUrl": url,
        "api": "openai-completions",
        "apiKey": "none",
        "compat": { "supportsDeveloperRole": false },
        "models": [{
            "id": "scripted",
            "contextWindow": 100_000,
            "cost": { "input": 10_000, "output": 0, "cacheRead": 0, "cacheWrite": 0 },
        }],
    } } });
    let settings = json!({
        "retry": { "enabled": true, "maxRetries": 2, "baseDelayMs": 1, "provider": { "maxRetries": 0 } },
    });
    write(home, "models.json", &models);
    write(home, "settings.json", &settings);
    PiAgent::new(program)
        .provider("played")
        .model("scripted")
        .args([
            "--no-extensions",
            "--no-skills",
            "--no-prompt-templates",
            "--no-context-files",
        ])
        .cwd(home)
        .env("HOME", home.to_string_lossy())
        .env("PI_CODING_AGENT_DIR", home.to_string_lossy())
        .env("PI_OFFLINE", "1")
        .env("PI_TELEMETRY", "0")
        .env("NO_PROXY", "127.0.0.1")
        .env("no_proxy", "127.0.0.1")
}

fn write(home: &Path, name: &str, value: &Value) {
    std::fs::write(home.join(name), value.to_string()).unwrap();
}

fn fail(pi: &Pi) -> (String, String, Value) {
    let AgentFailure { error, receipt } = execute(&pi.agent, &request("Try.")).0.unwrap_err();
    assert_eq!(error.outcome(), NodeOutcome::Failed);
    (
        error.name().to_owned(),
        error.message().to_owned(),
        receipt.unwrap(),
    )
}

#[test]
fn the_prompt_reaches_the_model_and_its_last_text_is_the_reply() {
    let Some(pi) = start([
        Turn::Call(
            "bash",
            json!({ "command": "echo \"$HOLDPOINT_NODE_ID at $HOLDPOINT_VISIT\"" }),
        ),
        Turn::say("Here you are:\n```json\n{\"ok\": true, \"text\": \"a\u{2028}b\"}\n```"),
    ]) else {
        return;
    };
    // A prompt that begins with a slash would be a command of pi.
    let (reply, updates) = execute(&pi.agent, &request("/compact the text \u{2028} now"));
    let mut reply = reply.unwrap();
    assert_eq!(
        extract(reply.output.as_str().unwrap()),
        json!({"ok": true, "text": "a\u{2028}b"})
    );

    let asked = pi.provider.asked();
    let said = asked[0]["messages"].to_string();
    assert!(said.contains("/compact the text \u{2028} now"), "{said}");
    assert!(said.contains("an object with `ok`"), "{said}");
    let said = asked[1]["messages"].to_string();
    assert!(
        said.contains("review/draft at 3"),
        "the tool sees which step it is: {said}"
    );

    assert!(0 < reply.receipt["durationMs"].as_u64().unwrap());
    assert!(reply.receipt["sessionId"].is_string());
    reply.receipt["durationMs"] = json!("[ms]");
    reply.receipt["sessionId"] = json!("[id]");
    reply.receipt["program"] = json!("[pi]");
    insta::assert_json_snapshot!(reply.receipt, @r#"
    {
      "compactions": 0,
      "durationMs": "[ms]",
      "error": null,
      "executor": "pi",
      "exitCode": 0,
      "model": "scripted",
      "program": "[pi]",
      "provider": "played",
      "retries": 0,
      "sessionFile": null,
      "sessionId": "[id]",
      "signal": null,
      "stopReason": "stop",
      "toolCalls": 1,
      "toolErrors": 0,
      "turns": 2,
      "usage": {
        "cacheRead": 0,
        "cacheWrite": 0,
        "cost": {
          "total": 2.0
        },
        "input": 200,
        "output": 14
      }
    }
    "#);
    let told: Vec<String> = updates
        .iter()
        .map(|(kind, key, data)| format!("{kind} {key} {data}"))
        .collect();
    insta::assert_snapshot!(told.join("\n"), @r#"
    agent.activity overall {"lastTool":null,"toolCalls":0,"toolErrors":0,"turns":1}
    agent.activity overall {"lastTool":"bash","toolCalls":1,"toolErrors":0,"turns":1}
    agent.activity overall {"lastTool":"bash","toolCalls":1,"toolErrors":0,"turns":2}
    "#);
}

#[test]
fn a_tool_that_fails_is_told_to_the_model_and_fails_no_step() {
    let Some(pi) = start([
        Turn::Call("read", json!({ "path": "no/such/file" })),
        Turn::say("There is no such file."),
    ]) else {
        return;
    };
    let reply = execute(&pi.agent, &request("Read.")).0.unwrap();
    assert_eq!(reply.output, "There is no such file.");
    assert_eq!(reply.receipt["toolErrors"], 1);
    assert!(pi.provider.asked()[1].to_string().contains("no/such/file"));
}

#[test]
fn an_error_of_the_model_fails_with_the_receipt() {
    let Some(pi) = start([Turn::Fail(400, "the model is on holiday")]) else {
        return;
    };
    let (name, message, receipt) = fail(&pi);
    assert_eq!(name, "ModelError");
    assert!(message.contains("the model is on holiday"), "{message}");
    assert_eq!(receipt["stopReason"], "error");
    assert_eq!(receipt["model"], "scripted");
    assert!(receipt["error"].as_str().unwrap().contains("holiday"));
}

#[test]
fn an_error_that_pi_tries_again_after_is_not_the_end() {
    let Some(pi) = start([
        Turn::Fail(503, "overloaded"),
        Turn::Fail(503, "overloaded"),
        Turn::say("At last."),
    ]) else {
        return;
    };
    let reply = execute(&pi.agent, &request("Try.")).0.unwrap();
    assert_eq!(reply.output, "At last.");
    assert_eq!(reply.receipt["retries"], 2);
}

#[test]
fn when_all_tries_failed_the_step_fails() {
    let Some(pi) = start(std::iter::repeat_n(Turn::Fail(503, "overloaded"), 4)) else {
        return;
    };
    let (name, _, receipt) = fail(&pi);
    assert_eq!(
        (name.as_str(), &receipt["retries"]),
        ("ModelError", &json!(2))
    );
    assert_eq!(pi.provider.left(), 1, "the first try and two more");
}

#[test]
fn a_context_that_overflows_and_can_not_be_compacted_fails_the_step() {
    let overflow = Turn::Fail(400, "This model's maximum context length is 100000 tokens");
    let Some(pi) = start([overflow]) else {
        return;
    };
    let (name, message, receipt) = fail(&pi);
    assert_eq!(name, "ModelError", "{message}");
    assert_eq!(receipt["compactions"], 1);
}

#[test]
fn half_an_answer_and_no_answer_are_none() {
    let Some(pi) = start([Turn::Say(vec!["{\"ok\": tr".to_owned()], "length")]) else {
        return;
    };
    assert_eq!(fail(&pi).0, "ReplyTruncated");

    let pi = start([Turn::Say(Vec::new(), "stop")]).unwrap();
    assert_eq!(fail(&pi).0, "EmptyReply");
}

#[test]
fn a_huge_answer_is_taken_up_to_the_limit() {
    let parts = || Turn::Say(vec!["0123456789".repeat(300); 100], "stop");
    let Some(pi) = start([parts()]) else {
        return;
    };
    let reply = execute(&pi.agent, &request("Count.")).0.unwrap();
    assert_eq!(reply.output.as_str().unwrap().len(), 300_000);

    let mut pi = start([parts()]).unwrap();
    pi.agent = pi.agent.max_reply_chars(299_999);
    let (name, _, receipt) = fail(&pi);
    assert_eq!(name, "ReplyTooLarge");
    assert_eq!(receipt["stopReason"], "stop");
}

#[test]
fn a_stop_aborts_the_model_in_the_middle_of_its_answer() {
    let Some(pi) = start([Turn::Hang("I am thinking about")]) else {
        return;
    };
    let provider = &pi.provider;
    let (failure, took) =
        execute_and_stop(&pi.agent, &request("Think."), StopReason::Cancelled, || {
            wait_until("the model is asked", || {
                (provider.asked().len() == 1).then_some(())
            });
        });
    assert_eq!(failure.error.outcome(), NodeOutcome::Cancelled);
    assert!(took < Duration::from_secs(10), "{took:?}");
    let receipt = failure.receipt.unwrap();
    assert_eq!(receipt["stopReason"], "aborted", "{receipt}");
}

#[test]
fn a_stop_ends_what_a_tool_started() {
    let Some(pi) = start([Turn::Call(
        "bash",
        json!({ "command": "echo $$ >pid; sleep 1000" }),
    )]) else {
        return;
    };
    let pid = pi.home.path().join("pid");
    let (failure, _) = execute_and_stop(&pi.agent, &request("Work."), StopReason::TimedOut, || {
        wait_for_file(&pid);
    });
    assert_eq!(failure.error.outcome(), NodeOutcome::TimedOut);
    let pid = wait_for_file(&pid);
    wait_until("the tool is gone", || (!is_alive(&pid)).then_some(()));
}

#[test]
fn a_session_is_kept_where_it_is_asked_for() {
    let Some(mut pi) = start([Turn::say("Kept.")]) else {
        return;
    };
    let sessions = pi.home.path().join("sessions");
    pi.agent = pi.agent.session_dir(&sessions);
    let reply = execute(&pi.agent, &request("Keep this.")).0.unwrap();
    let file = Path::new(reply.receipt["sessionFile"].as_str().unwrap()).to_owned();
    assert!(file.starts_with(&sessions));
    let session = std::fs::read_to_string(file).unwrap();
    assert!(
        session.contains("Keep this.") && session.contains("Kept."),
        "{session}"
    );
}

#[test]
fn what_pi_says_before_it_gives_up_is_in_the_error() {
    let Some(mut pi) = start([]) else {
        return;
    };
    pi.agent = pi.agent.model("no-such-model").provider("nobody");
    let (name, message, receipt) = fail(&pi);
    assert_eq!(name, "AgentExited");
    assert!(message.contains("nobody"), "{message}");
    assert_eq!(receipt["exitCode"], 1);
}
