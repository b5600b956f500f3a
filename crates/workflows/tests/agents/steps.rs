//! Agent steps of runs: what the engine makes of what an executor gives.

use std::sync::Arc;

use holdpoint_state::testing::TestStore;
use holdpoint_workflows::agents::{AgentExecutor, CommandAgent};
use holdpoint_workflows::commands::Control;
use holdpoint_workflows::definition::{Choice, Decided, Definition, NodeError, Timeout, Workflow};
use holdpoint_workflows::model::RunStatus;
use holdpoint_workflows::views::{RunView, updates};
use holdpoint_workflows::{DOMAIN, RunId, SchedulerOptions, Workflows};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::provider::Turn;
use crate::real_pi;
use crate::support::{LIMIT, is_alive, wait_for_file, wait_until};

/// What a review may take; the clock of the tests stands still until they turn it.
const BUDGET_MS: u32 = 10_000;

#[derive(Deserialize)]
struct Review {
    ok: bool,
    notes: Vec<String>,
}

/// An agent reviews a text; what it finds is counted.
fn reviewing() -> Definition {
    Workflow::new("reviewing")
        .input::<String>()
        .title("Review")
        .start_at("review")
        .agent("review", |ctx| Ok(format!("Review this: {}", ctx.input())))
        .expects("an object with `ok` and `notes`")
        .timeout(Timeout::millis(BUDGET_MS))
        .validate(|_, review: Review| {
            if review.ok || !review.notes.is_empty() {
                Ok(review.notes.len())
            } else {
                Err(NodeError::new("say what is wrong"))
            }
        })
        .compute("count", |ctx| ctx.output::<usize>("review"))
        .edge("review", "count")
        .build()
        .unwrap()
}

/// Runs a review to its end; `meanwhile` is called when the run was given to the scheduler.
fn review(
    agent: impl AgentExecutor + 'static,
    meanwhile: impl FnOnce(&TestStore, &Workflows, &RunId),
) -> RunView {
    let store = TestStore::new([DOMAIN]).unwrap();
    let workflows = Workflows::new(store.db().clone()).executing_agents_with(Arc::new(agent));
    let scheduler = workflows.scheduler(SchedulerOptions::default()).unwrap();
    let run = workflows.run(&reviewing(), "x").unwrap();
    meanwhile(&store, &workflows, &run);
    let view = workflows.wait(&run, LIMIT).unwrap();
    scheduler.stop(LIMIT);
    view
}

fn receipt(view: &RunView) -> &Value {
    view.steps.first().unwrap().receipt.as_ref().unwrap()
}

const ANSWER: &str = "Sure.\n```json\n{\"ok\": false, \"notes\": [\"a\", \"b\"]}\n```";

#[test]
fn a_step_by_a_command_gets_its_prompt_and_gives_its_value() {
    let script = "read -r prompt; test \"$prompt\" = 'Review this: x' && printf '%s' \"$ANSWER\"";
    let agent = CommandAgent::new(["sh", "-c", script]).env("ANSWER", ANSWER);
    let view = review(agent, |_, _, _| {});
    assert_eq!(view.final_output, Some(json!(2)), "{:?}", view.error);
    assert_eq!(receipt(&view)["exitCode"], 0);
}

#[test]
fn a_run_goes_where_a_model_decides() {
    // It says what it was asked, and then its choice.
    let script = "cat >&2; echo 'I think: {\"choice\": \"late\", \"reason\": \"it is dark\"}'";
    let store = TestStore::new([DOMAIN]).unwrap();
    let workflows = Workflows::new(store.db().clone())
        .executing_agents_with(Arc::new(CommandAgent::new(["sh", "-c", script])));
    let definition = Workflow::new("deciding")
        .start_at("ask")
        .decide(
            "ask",
            [
                Choice::new("early", "morning"),
                Choice::new("late", "evening").means("after noon"),
            ],
            |_| Ok("What time is it?".to_owned()),
        )
        .compute("morning", |_| Ok(json!("good morning")))
        .compute("evening", |ctx| Ok(json!(ctx.output::<Decided>("ask")?)))
        .build()
        .unwrap();
    let scheduler = workflows.scheduler(SchedulerOptions::default()).unwrap();
    let run = workflows.run(&definition, json!(null)).unwrap();
    let view = workflows.wait(&run, LIMIT).unwrap();
    scheduler.stop(LIMIT);
    assert_eq!(
        view.final_output,
        Some(json!({ "choice": "late", "reason": "it is dark" })),
        "{:?}",
        view.error
    );
}

#[test]
fn what_an_agent_says_of_its_progress_is_published() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("done");
    let script = format!(
        "echo 'HOLDPOINT_UPDATE {{\"type\":\"reviewing\",\"key\":\"page\",\"data\":{{\"number\":7}}}}' >&2
         until test -e {}; do sleep 0.1; done; printf '%s' \"$ANSWER\"",
        file.display()
    );
    let agent = CommandAgent::new(["sh", "-c", &script])
        .env("ANSWER", ANSWER)
        .reading_updates();
    let view = review(agent, |store, _, run| {
        let update = wait_until("the update is published", || {
            let snapshot = store.db().snapshot().unwrap();
            updates(&snapshot, run).unwrap().into_iter().next()
        });
        assert_eq!(update.data, json!({ "number": 7 }));
        std::fs::write(&file, "").unwrap();
    });
    assert_eq!(view.final_output, Some(json!(2)), "{:?}", view.error);
}

#[test]
fn a_step_by_pi_gets_its_prompt_and_gives_its_value() {
    let Some(pi) = real_pi::start([Turn::say(ANSWER)]) else {
        return;
    };
    let view = review(pi.agent.clone(), |_, _, _| {});
    assert_eq!(view.final_output, Some(json!(2)), "{:?}", view.error);
    assert_eq!(receipt(&view)["usage"]["output"], 7);
    let asked = pi.provider.asked()[0].to_string();
    assert!(asked.contains("Review this: x"), "{asked}");
    assert!(asked.contains("an object with `ok` and `notes`"), "{asked}");
}

#[test]
fn a_value_that_the_author_refuses_fails_the_step_and_keeps_the_receipt() {
    let agent = CommandAgent::new(["echo", "{\"ok\": false, \"notes\": []}"]);
    let view = review(agent, |_, _, _| {});
    assert_eq!(view.status, RunStatus::Failed);
    assert!(view.error.as_ref().unwrap().contains("say what is wrong"));
    assert_eq!(receipt(&view)["executor"], "command");
}

#[test]
fn a_step_over_its_budget_is_stopped_with_its_receipt() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("pid");
    let script = format!("echo $$ >{}; exec sleep 1000", file.display());
    let agent = CommandAgent::new(["sh", "-c", &script]);
    let view = review(agent, |store, _, _| {
        wait_for_file(&file);
        store.clock().advance(u64::from(BUDGET_MS));
    });
    assert_eq!(view.status, RunStatus::TimedOut);
    assert_eq!(receipt(&view)["signal"], "SIGTERM");
    assert!(!is_alive(&wait_for_file(&file)));
}

/// A tool that says its own process and that of pi, then works for long.
fn long_work() -> Turn {
    Turn::Call(
        "bash",
        json!({ "command": "echo $$ $PPID >pids; sleep 1000" }),
    )
}

#[test]
fn a_budget_that_is_spent_and_a_cancel_end_pi_and_its_tools() {
    for outcome in [RunStatus::TimedOut, RunStatus::Cancelled] {
        let Some(pi) = real_pi::start([long_work()]) else {
            return;
        };
        let mut pids = String::new();
        let view = review(pi.agent.clone(), |store, workflows, run| {
            pids = wait_for_file(&pi.home.path().join("pids"));
            if outcome == RunStatus::TimedOut {
                store.clock().advance(u64::from(BUDGET_MS));
            } else {
                workflows.cancel(&Control::of(run)).unwrap();
            }
        });
        assert_eq!(view.status, outcome);
        for pid in pids.split_whitespace() {
            wait_until("pi and its tool are gone", || {
                (!is_alive(pid)).then_some(())
            });
        }
        if outcome == RunStatus::TimedOut {
            assert_eq!(receipt(&view)["toolCalls"], 1);
        }
    }
}

/// The part of [`a_host_that_is_killed_takes_pi_with_it`] that is killed.
#[test]
fn host_of_pi() {
    let Ok(provider) = std::env::var("HOLDPOINT_TEST_PROVIDER") else {
        return;
    };
    let home = std::path::PathBuf::from(std::env::var("HOLDPOINT_TEST_HOME").unwrap());
    let agent = real_pi::agent(crate::install::pi().unwrap(), &home, &provider);
    review(agent, |_, _, _| {});
}

#[test]
fn a_host_that_is_killed_takes_pi_with_it() {
    let Some(pi) = real_pi::start([long_work()]) else {
        return;
    };
    let mut host = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "steps::host_of_pi"])
        .env("HOLDPOINT_TEST_PROVIDER", pi.provider.url())
        .env("HOLDPOINT_TEST_HOME", pi.home.path())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let pids = wait_for_file(&pi.home.path().join("pids"));
    host.kill().unwrap();
    host.wait().unwrap();
    let (tool, pi_itself) = pids.trim().split_once(' ').unwrap();
    // Its input closes, which is how pi learns it. What its tools do at that moment it leaves alone.
    wait_until("pi is gone", || (!is_alive(pi_itself)).then_some(()));
    let killed = std::process::Command::new("kill")
        .args(["--", &format!("-{tool}")])
        .status();
    assert!(killed.unwrap().success());
}
