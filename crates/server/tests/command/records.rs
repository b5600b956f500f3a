//! `updates` and `follow-ups`.

use holdpoint_state::Database;
use holdpoint_workflows::commands::{QueueFollowUp, Start};
use holdpoint_workflows::definition::Workflow;
use holdpoint_workflows::{RunId, SchedulerOptions, Workflows};
use serde_json::{Value, json};

use crate::support::{Home, plain_document};

pub(crate) const TELLING: &str = r#"
name: telling
startAt: work
nodes:
  work:
    shell:
      argv: [sh, -c, 'for done in 0 1 2; do echo $done; done']
      updates:
        streams: [stdout]
        parseLine:
          jq: '[{type: "progress", key: "overall", data: {schema: "pi-workflows.progress.v1", status: "running",
            completed: (.line | tonumber), total: 4, unit: "files", label: "\u001b[31mcopying"}},
            {type: "log", key: "last", data: {line}}]'
      effect: { type: test.tell, recovery: idempotent }
  ask:
    checkpoint: {}
edges:
  - { from: work, to: ask }
"#;

/// A document whose items have ids that no run has twice.
fn without_ids(home: &Home, document: &Value, items: &str, id: &str) -> Value {
    let mut document = plain_document(home, document);
    for item in document[items].as_array_mut().unwrap() {
        item[id] = json!("[id]");
    }
    document
}

#[test]
fn updates_are_listed_with_the_progress_that_they_say() {
    let home = Home::with("telling.workflow.yaml", TELLING);
    let run = home.asking("telling.workflow.yaml");
    // The attempt that waits now has published nothing.
    let now = home.ok(&["updates", &run]);
    assert_eq!(
        (&now["updates"], &now["progress"]),
        (&json!([]), &json!(null))
    );
    assert_eq!(home.run(&["updates", &run]).stdout, "no updates\n");
    let first = home.ok(&["updates", &run, "--all", "--limit", "4"]);
    assert_eq!(first["updates"].as_array().unwrap().len(), 4);
    let after = first["updates"][3]["runRevision"].to_string();
    let rest = home.ok(&["updates", &run, "--all", "--after", &after]);
    insta::assert_json_snapshot!(without_ids(&home, &rest, "updates", "updateId"));
    let text = home.run(&["updates", &run, "--all", "--limit", "1"]);
    assert!(
        text.stdout.contains("work progress overall"),
        "{}",
        text.stdout
    );
    assert!(text.stdout.contains("more: --after"), "{}", text.stdout);
    assert!(!text.stdout.contains('\u{1b}'), "{}", text.stdout);
    assert_eq!(home.run(&["updates", "nobody"]).status, 7);
}

#[test]
fn a_run_shows_how_far_it_is() {
    let home = Home::with(
        "held.workflow.yaml",
        &TELLING.replace(
            "; done'",
            "; done; touch told; while ! test -e go; do sleep 0.05; done'",
        ),
    );
    let running = home.spawn(&["run", "held.workflow.yaml"]);
    home.wait_for_file("told");
    let run = home.newest();
    crate::support::until("the last update", || {
        home.ok(&["show", &run])["progress"]["progress"]["completed"] == json!(2.0)
    });
    let text = home.run(&["show", &run]).stdout;
    let line = text
        .lines()
        .find(|line| line.starts_with("progress"))
        .unwrap();
    assert!(
        line.starts_with("progress  running, 2 of 4 files, ␛[31mcopying"),
        "{line}"
    );
    let told = home.run(&["updates", &run]).stdout;
    assert!(told.contains("\nprogress  running, 2 of 4 files"), "{told}");
    home.write("go", "");
    assert_eq!(running.end().status, 3);
}

/// An interactive run of a program, which waits at a checkpoint.
fn of_a_program(home: &Home) -> (Workflows, RunId) {
    home.ok(&["run", "telling.workflow.yaml", "--detach"]);
    let schema = holdpoint_server::schema().unwrap();
    let workflows = Workflows::new(Database::open(home.store(), &schema).unwrap());
    let definition = Workflow::new("asking")
        .start_at("ask")
        .checkpoint("ask")
        .build()
        .unwrap();
    let run = workflows
        .start(&Start::new(&definition, json!(null)).in_session("session-1"))
        .unwrap()
        .value;
    let only = run.clone();
    let workflows = workflows.admitting(move |run| *run == only);
    let scheduler = workflows.scheduler(SchedulerOptions::default()).unwrap();
    workflows
        .wait(&run, std::time::Duration::from_secs(30))
        .unwrap();
    scheduler.stop(std::time::Duration::from_secs(30));
    (workflows, run)
}

#[test]
fn follow_ups_are_queued_listed_and_removed() {
    let home = Home::with("telling.workflow.yaml", TELLING);
    let (workflows, run) = of_a_program(&home);
    let queue = [
        "follow-ups",
        "queue",
        run.as_str(),
        "then test it",
        "--key",
        "k",
    ];
    let queued = home.ok(&queue);
    assert_eq!(
        (&queued["orderNumber"], &queued["adopted"]),
        (&json!(1), &json!(false))
    );
    assert_eq!(home.ok(&queue)["adopted"], json!(true));
    let other = [
        "follow-ups",
        "queue",
        run.as_str(),
        "then ship it",
        "--key",
        "k",
    ];
    assert_eq!(home.json(&other).0, 4);
    assert_eq!(home.json(&["follow-ups", "queue", run.as_str(), " "]).0, 2);
    let of_program = workflows
        .queue_follow_up(&QueueFollowUp::new(&run, "by a program"))
        .unwrap()
        .value;

    let id = queued["followUpId"].as_str().unwrap();
    let removed = home.ok(&["follow-ups", "remove", id, "--reason", "not needed"]);
    assert_eq!(removed, json!({ "followUpId": id, "adopted": false }));
    assert_eq!(
        home.ok(&["follow-ups", "remove", id])["adopted"],
        json!(true)
    );
    let (status, error) = home.json(&["follow-ups", "remove", &of_program.follow_up_id]);
    assert_eq!((status, &error["error"]["code"]), (4, &json!("denied")));
    assert_eq!(home.json(&["follow-ups", "remove", "follow-up-x"]).0, 7);

    let listed = home.ok(&["follow-ups", "list", run.as_str()]);
    insta::assert_json_snapshot!(without_ids(&home, &listed, "followUps", "followUpId"));
    let text = home.run(&["follow-ups", "list", run.as_str()]).stdout;
    assert!(text.starts_with("removed    follow-up-"), "{text}");
    assert!(text.contains("\nqueued     follow-up-"), "{text}");
    // A run of this command has no session that could be shown one.
    let (status, error) = home.json(&["follow-ups", "queue", &home.newest_of("telling"), "x"]);
    assert_eq!(
        (status, &error["error"]["code"]),
        (4, &json!("rejected")),
        "{error}"
    );
}
