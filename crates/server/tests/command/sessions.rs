//! `agents`, `submit`, `messages`: runs that a program started in a session, from the command line.

use std::fmt::Write as _;
use std::time::Duration;

use holdpoint_state::Database;
use holdpoint_workflows::commands::Start;
use holdpoint_workflows::definition::{Definition, NodeError, Workflow};
use holdpoint_workflows::{SchedulerOptions, Workflows};
use serde_json::json;

use crate::support::{ASK, Home};

const LONG: Duration = Duration::from_secs(30);

fn naming() -> Definition {
    Workflow::new("naming")
        .start_at("name")
        .agent("name", |_| Ok("name a number\u{1b}[2J".to_owned()))
        .validate(|_, named: i64| {
            if named < 10 {
                Ok(named)
            } else {
                Err(NodeError::new("that is too much"))
            }
        })
        .build()
        .unwrap()
}

/// The workflows of a home, as a program beside the command has them.
fn workflows(home: &Home) -> Workflows {
    std::fs::create_dir_all(home.store().parent().unwrap()).unwrap();
    let schema = holdpoint_server::schema().unwrap();
    let workflows = Workflows::new(Database::open(home.store(), &schema).unwrap());
    workflows.register(&naming());
    workflows
}

/// A run whose agent asks in a session.
pub(crate) fn asking_agent(home: &Home) -> String {
    let workflows = workflows(home);
    let scheduler = workflows.scheduler(SchedulerOptions::default()).unwrap();
    let start = Start::new(&naming(), json!({})).in_session("session-1");
    let run = workflows.start(&start).unwrap().value;
    workflows.wait(&run, LONG).unwrap();
    scheduler.stop(LONG);
    run.to_string()
}

/// Executes what is due, as that program.
fn work(home: &Home) {
    let workflows = workflows(home);
    let scheduler = workflows.scheduler(SchedulerOptions::default()).unwrap();
    assert!(scheduler.wait_until_idle(LONG));
    scheduler.stop(LONG);
}

#[test]
fn what_agents_are_asked_is_listed_and_submitted_in_text() {
    let home = Home::new();
    let run = asking_agent(&home);
    let mut told = String::new();
    let mut tell = |args: &[&str]| {
        let done = home.run(args);
        let shown: Vec<String> = args.iter().map(|arg| home.plain(arg)).collect();
        let _ = write!(
            told,
            "$ holdpoint {}   # {}\n{}{}\n",
            shown.join(" "),
            done.status,
            home.plain(&done.stdout),
            home.plain(&done.stderr)
        );
    };
    tell(&["agents"]);
    tell(&["agents", "--session", "another"]);
    tell(&["messages", &run]);
    tell(&["submit", &run, "12", "--key", "k"]);
    tell(&["submit", &run, "12", "--key", "k"]);
    tell(&["submit", &run, "1"]);
    tell(&["agents"]);
    work(&home);
    tell(&["submit", &run, "12", "--key", "k"]);
    tell(&["answer", &run, "1"]);
    tell(&["submit", &run, "1", "--expect", "7"]);
    tell(&["submit", &run, "\"so: 3\"", "--request", "request-0"]);
    tell(&["submit", &run, "3", "--key", "l"]);
    work(&home);
    tell(&["submit", &run, "3", "--key", "l"]);
    tell(&["agents"]);
    tell(&["messages", "--session", "session-1"]);
    tell(&["messages", "--session", "session-1", "--limit", "1"]);
    tell(&["messages", "--session", "another"]);
    tell(&["messages", "nobody"]);
    insta::assert_snapshot!(told);
}

#[test]
fn a_run_of_a_session_reserves_it_and_shows_there_what_it_asks() {
    let home = Home::with("ask.workflow.yaml", ASK);
    let (status, view) = home.json(&["run", "ask.workflow.yaml", "--session", "s"]);
    assert_eq!(status, 3, "{view:#}");
    assert_eq!(view["executionMode"], "interactive");
    let run = home.newest();
    let messages = home.ok(&["messages", "--session", "s"]);
    assert_eq!(
        messages["messages"][0]["content"]["contract"]["summary"],
        "Go on?"
    );
    let (status, second) = home.json(&["run", "ask.workflow.yaml", "--session", "s"]);
    assert_eq!(
        (status, second["error"]["code"].as_str()),
        (4, Some("conflict"))
    );
    home.ok(&["answer", &run, "1"]);
    home.ok(&["work", "--until-idle"]);
    let kinds: Vec<_> = home.ok(&["messages", &run])["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|message| (message["kind"].clone(), message["status"].clone()))
        .collect();
    assert_eq!(
        kinds,
        [
            (json!("step"), json!("cancelled")),
            (json!("terminal"), json!("pending"))
        ]
    );
}
