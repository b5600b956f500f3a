//! Decisions at the command line: listed, shown, answered, lost, cancelled, and given by themselves at a deadline.

use holdpoint_state::testing::plain;
use serde_json::{Value, json};

use crate::support::{Home, until};

/// Drafts, asks people, and goes where their answer leads.
pub(crate) const RELEASE: &str = r#"
name: release
startAt: draft
nodes:
  draft:
    compute: { jq: '"Notes of \($input.version // "1.2")"' }
  review:
    decision:
      title: { jq: '"Ship \($input.version // "1.2")?"' }
      presentation:
        summary: { jq: '$input.summary // "All tests pass."' }
        blocks:
          - { kind: section, title: Notes }
          - { kind: preformatted, text: { jq: $outputs.draft } }
          - { kind: fields, items: [{ label: Branch, value: main }] }
          - { kind: bullets, items: [faster start, two fixes] }
      subject: { notes: { jq: $outputs.draft } }
      choices:
        ship: { label: Ship, to: publish }
        redo:
          label: Redo
          input: { name: why, prompt: What is missing?, maxLength: 20 }
          to: again
        stop: { label: Stop, to: stopped }
      onTimeout: { jq: '$input.onTimeout' }
      audience: release
  publish:
    compute: { jq: '{ answer: $outputs.review, by: $results.review.receipt.provenance }' }
  again:
    compute: { jq: $outputs.review.input.why }
  stopped:
    compute: stopped
edges:
  - { from: draft, to: review }
"#;

/// What differs from run to run, by name.
pub(crate) fn comparable(home: &Home, text: &str) -> String {
    let listed = home.ok(&["decisions", "--run", &home.newest()]);
    let mut text = text.to_owned();
    for decision in listed["decisions"].as_array().unwrap() {
        for (member, name) in [("decisionId", "DECISION"), ("requestDigest", "DIGEST")] {
            text = text.replace(decision["request"][member].as_str().unwrap(), name);
        }
    }
    home.plain(&text.replace(&home.newest(), "RUN"))
}

fn asking() -> (Home, String) {
    let home = Home::with("release.workflow.yaml", RELEASE);
    let run = home.asking("release.workflow.yaml");
    (home, run)
}

fn decision(home: &Home) -> String {
    let listed = home.ok(&["decisions"]);
    listed["decisions"][0]["decisionId"]
        .as_str()
        .unwrap()
        .to_owned()
}

#[test]
fn a_decision_is_listed_shown_and_answered_in_text() {
    let home = Home::with("release.workflow.yaml", RELEASE);
    let mut told = Vec::new();
    let mut tell = |args: &[&str]| {
        let done = home.run(args);
        let asked = home.json(&["list"]).1["runs"]
            .as_array()
            .is_some_and(|runs| !runs.is_empty());
        let text = format!(
            "$ holdpoint {}\n{}{}exit {}\n",
            args.join(" "),
            done.stdout,
            done.stderr,
            done.status
        );
        told.push(if asked {
            comparable(&home, &text)
        } else {
            home.plain(&text)
        });
    };
    tell(&["decisions"]);
    tell(&["run", "release.workflow.yaml"]);
    let run = home.newest();
    let id = decision(&home);
    tell(&["decisions"]);
    tell(&["show", &run]);
    tell(&["decision", "show", &id]);
    tell(&["answer", &run, "sink"]);
    tell(&["answer", &run, "redo"]);
    tell(&[
        "answer",
        &run,
        "redo",
        "--text",
        "much more than twenty characters",
    ]);
    tell(&["answer", &run, "redo", "--text", "  more\n"]);
    tell(&["answer", &id, "ship"]);
    tell(&["decisions"]);
    tell(&["decisions", "--run", &run]);
    tell(&["work", "--until-idle"]);
    tell(&["show", &run]);
    tell(&["decision", "show", &run]);
    tell(&["decision", "show", "decision-0"]);
    insta::assert_snapshot!(told.join("\n"));
}

#[test]
fn decision_18_the_text_arrives_exactly() {
    let (home, run) = asking();
    home.write("why.txt", "  e\u{301} \n\n");
    home.ok(&["answer", &run, "redo", "--text", "@why.txt"]);
    home.ok(&["work", "--until-idle"]);
    assert_eq!(home.ok(&["show", &run])["finalOutput"], "  e\u{301} \n\n");
}

#[test]
fn every_loser_is_told_what_won_and_not_who() {
    let (home, run) = asking();
    let id = decision(&home);
    let won = home.ok(&["answer", &id, "ship", "--key", "k"]);
    assert_eq!(won["result"], "accepted");
    // The same command again, another answer with its key, and a person who was later.
    assert_eq!(
        home.ok(&["answer", &id, "ship", "--key", "k"])["result"],
        "adopted"
    );
    let (status, reused) = home.json(&["answer", &id, "stop", "--key", "k"]);
    assert_eq!((status, &reused["result"]), (4, &json!("conflict")));
    let (status, late) = home.json(&["answer", &run, "stop"]);
    assert_eq!((status, &late["result"]), (4, &json!("conflict")));
    assert_eq!(late["message"], "not taken: a person answered: Ship");
    let (status, cancelled) = home.json(&["decision", "cancel", &id]);
    assert_eq!((status, &cancelled["result"]), (4, &json!("conflict")));
    home.ok(&["work", "--until-idle"]);
    let shown = home.ok(&["show", &run]);
    assert_eq!(
        shown["finalOutput"],
        json!({ "answer": { "choice": "ship" }, "by": "human" })
    );
    // Nobody's identity is in anything that is shown.
    for document in [won, late, shown, home.ok(&["decision", "show", &id])] {
        let text = document.to_string();
        assert!(!text.contains("command-line"), "{text}");
    }
}

#[test]
fn decision_15_what_is_not_what_was_seen_is_stale() {
    let (home, run) = asking();
    let other = format!("sha256:{}", "0".repeat(64));
    let (status, stale) = home.json(&["answer", &run, "ship", "--seen", &other]);
    assert_eq!((status, &stale["why"]), (4, &json!(null)));
    assert!(
        stale["message"]
            .as_str()
            .unwrap()
            .contains("not what you saw"),
        "{stale}"
    );
    let (status, _) = home.json(&["answer", &run, "ship", "--seen", "sha256:x"]);
    assert_eq!(status, 2);
    let digest = home.ok(&["decision", "show", &run])["request"]["requestDigest"].clone();
    home.ok(&["answer", &run, "ship", "--seen", digest.as_str().unwrap()]);
}

#[test]
fn decision_19_a_model_answers_no_decision() {
    let (home, run) = asking();
    let id = decision(&home);
    let revision = home.ok(&["show", &run])["revision"].clone();
    let (status, refused) = home.json(&["submit", &run, r#"{"choice":"ship"}"#]);
    assert_eq!(
        (status, &refused["error"]["code"]),
        (4, &json!("rejected")),
        "{refused}"
    );
    let (status, _) = home.json(&["submit", &run, r#"{"choice":"ship"}"#, "--request", &id]);
    assert_eq!(status, 4);
    assert_eq!(home.ok(&["show", &run])["revision"], revision);
    assert_eq!(home.ok(&["decisions"])["decisions"][0]["status"], "open");
}

#[test]
fn a_cancelled_decision_ends_its_run() {
    let (home, run) = asking();
    let cancelled = home.ok(&["decision", "cancel", &run, "--reason", "not today"]);
    assert_eq!(cancelled["result"], "accepted");
    assert_eq!(home.ok(&["decision", "cancel", &run])["result"], "adopted");
    let (status, late) = home.json(&["answer", &run, "ship"]);
    assert_eq!(
        (status, &late["message"]),
        (4, &json!("not taken: the decision was cancelled"))
    );
    home.ok(&["work", "--until-idle"]);
    assert_eq!(home.ok(&["show", &run])["status"], "cancelled");
    home.ok(&["state", "verify"]);
}

#[test]
fn decision_26_a_cancelled_run_takes_its_decision_with_it() {
    let (home, run) = asking();
    home.ok(&["cancel", &run]);
    let decision = home.ok(&["decision", "show", &run]);
    assert_eq!(decision["status"], "cancelled");
    home.ok(&["state", "verify"]);
}

#[test]
fn decision_40_work_gives_the_automatic_answer_when_it_is_due() {
    let home = Home::with("release.workflow.yaml", RELEASE);
    let input = r#"{"onTimeout":{"afterMs":300,"response":{"choice":"ship"}}}"#;
    for isolate in [false, true] {
        let (status, run) =
            home.json(&["run", "release.workflow.yaml", "--input", input, "--detach"]);
        assert_eq!(status, 0);
        let run = run["runId"].as_str().unwrap().to_owned();
        let mut args = vec!["work"];
        if isolate {
            args.push("--isolate");
        }
        let working = home.spawn(&args);
        let shown = home.wait_for(&run, "completed");
        assert_eq!(
            shown["finalOutput"],
            json!({ "answer": { "choice": "ship" }, "by": "timeout" })
        );
        drop(working);
    }
    home.ok(&["state", "verify"]);
}

// lint:allow(sql-in-test): the test makes the damage that a list must show; no command can.
const BREAK: &str =
    "UPDATE blobs SET content = CAST(replace(CAST(content AS TEXT), 'Ship', 'Sell') AS BLOB)
    WHERE blob_hash = (SELECT request_hash FROM human_decisions ORDER BY resource_key LIMIT 1)";

#[test]
fn a_damaged_decision_is_listed_as_that_and_hides_no_other() {
    let (home, broken) = asking();
    let damaged = decision(&home);
    home.asking("release.workflow.yaml");
    let store = home.store();
    let changed = plain::open(&store).unwrap().execute(BREAK, []).unwrap();
    assert_eq!(changed, 1);
    for args in [&["decisions"][..], &["decisions", "--run", &broken]] {
        let listed = home.ok(args);
        let count = listed["decisions"].as_array().unwrap().len();
        assert_eq!(count, usize::from(args.len() == 1), "{listed:#}");
        let of = &listed["damaged"][0];
        assert_eq!(
            (&of["decisionId"], &of["runId"]),
            (&json!(damaged), &json!(broken))
        );
        assert!(
            of["problem"].as_str().unwrap().contains("is damaged"),
            "{of}"
        );
    }
    let told = home.run(&["decisions"]).stdout;
    assert!(told.contains(&format!("damaged    {damaged}  (")), "{told}");
    assert!(told.contains("\nopen "), "{told}");
}

#[test]
fn an_answer_before_the_question_is_told_that_nothing_is_asked() {
    let home = Home::with("release.workflow.yaml", RELEASE);
    let run = home.ok(&["run", "release.workflow.yaml", "--detach"]);
    let run = run["runId"].as_str().unwrap();
    assert_eq!(
        home.ok(&["decisions", "--run", run]),
        json!({ "decisions": [], "damaged": [] })
    );
    let (status, error) = home.json(&["decisions", "--run", "none"]);
    assert_eq!((status, &error["error"]["code"]), (7, &json!("notFound")));
    let unknown = format!("decision-{}", "0".repeat(40));
    let (status, error) = home.json(&["answer", &unknown, "ship"]);
    let message = error["error"]["message"].as_str().unwrap();
    assert!(
        status == 7 && message.starts_with("there is no decision"),
        "{status}: {message}"
    );
    for early in [
        &["answer", run, "ship"][..],
        &["answer", run, "redo", "--text", "x"],
    ] {
        let (status, error) = home.json(early);
        assert_eq!((status, &error["error"]["code"]), (4, &json!("rejected")));
        let message = error["error"]["message"].as_str().unwrap();
        assert!(message.ends_with("it waits for no answer"), "{message}");
    }
}

#[test]
fn a_paused_run_takes_no_answer_of_a_person() {
    let (home, run) = asking();
    home.ok(&["pause", &run]);
    let (status, paused) = home.json(&["answer", &run, "ship"]);
    assert_eq!((status, &paused["result"]), (4, &json!("conflict")));
    home.ok(&["resume", &run]);
    home.ok(&["answer", &run, "ship"]);
}

#[test]
fn an_answer_without_a_terminal_needs_its_choice() {
    let (home, run) = asking();
    let (status, error) = home.json(&["answer", &run]);
    assert_eq!((status, &error["error"]["code"]), (2, &json!("input")));
    let (status, _) = home.json(&["answer", &run, "--text", "x"]);
    assert_eq!(status, 2);
    let whole: Value = home.ok(&["answer", &run, r#"{"choice":"redo","input":{"why":"x"}}"#]);
    assert_eq!(whole["result"], "accepted");
}

#[test]
fn the_approval_of_plans_is_built_in() {
    let home = Home::with(
        "work.workflow.yaml",
        "
name: work
startAt: plan
nodes:
  plan: { compute: { jq: '$outputs.approval.output.text // \"dig\"' } }
  done: { compute: { jq: '[$outputs.plan, $outputs.approval.output.provenance]' } }
  stopped: { compute: stopped }
includes:
  approval:
    workflow: builtin:plan-approval
    input: { plan: { jq: $outputs.plan }, policy: required, round: { jq: ($outputs.approval.output.round // 0) + 1 } }
edges:
  - { from: plan, to: approval }
  - { from: approval.continue, to: done }
  - { from: approval.stop, to: stopped }
  - { from: approval.replan, to: plan }
",
    );
    let run = home.asking("work.workflow.yaml");
    home.ok(&["answer", &run, "replan", "--text", "fill"]);
    home.ok(&["work", "--until-idle"]);
    home.ok(&["answer", &run, "continue"]);
    home.ok(&["work", "--until-idle"]);
    assert_eq!(
        home.ok(&["show", &run])["finalOutput"],
        json!(["fill", "human"])
    );
}

/// What the README shows.
#[test]
fn the_example_is_answered_written_again_and_shipped() {
    let home = Home::with(
        "examples/ship.workflow.yaml",
        include_str!("../../../../examples/ship.workflow.yaml"),
    );
    let run = home.asking("examples/ship.workflow.yaml");
    home.ok(&["answer", &run, "redo", "--text", "Say what changed."]);
    home.ok(&["work", "--until-idle"]);
    home.ok(&["answer", &run, "ship"]);
    home.ok(&["work", "--until-idle"]);
    assert_eq!(home.ok(&["show", &run])["status"], "completed");
    assert_eq!(
        home.read("target/notes.md"),
        "# next\n\nRevised as asked: Say what changed.\n"
    );
}

#[test]
fn a_wait_tells_how_a_decision_ended_or_that_it_is_open() {
    let (home, run) = asking();
    let (status, open) = home.json(&["decision", "wait", &run, "--timeout", "20ms"]);
    assert_eq!((status, &open["status"]), (3, &json!("open")));
    assert_eq!(open["next"]["what"], "answer");
    let text = home.run(&["decision", "wait", &run, "--timeout", "0s"]);
    assert_eq!(text.status, 3);
    assert!(
        text.stdout
            .contains("it is still open: a person answers, of the audience release"),
        "{}",
        text.stdout
    );
    // The wait ended, and the decision did not.
    let waiting = home.spawn(&["decision", "wait", &run]);
    assert_eq!(home.ok(&["answer", &run, "ship"])["result"], "accepted");
    let waited = waiting.end();
    assert_eq!(waited.status, 0);
    assert!(
        waited.stdout.contains("a person answered: Ship"),
        "{}",
        waited.stdout
    );
    let resolved = home.ok(&["decision", "wait", &run, "--timeout", "10m"]);
    assert_eq!(resolved["resolution"]["outcome"], "accepted");
    for wrong in ["30", "1.5s", "s", "-1s", "9999999999999999h"] {
        assert_eq!(
            home.json(&["decision", "wait", &run, "--timeout", wrong]).0,
            2,
            "{wrong}"
        );
    }
    assert_eq!(home.json(&["decision", "wait", "nobody"]).0, 7);
}

#[test]
fn the_reason_of_a_cancellation_is_shown_wherever_the_decision_is() {
    let (home, run) = asking();
    let long = "x".repeat(1_001);
    let (status, error) = home.json(&["decision", "cancel", &run, "--reason", &long]);
    assert_eq!((status, &error["error"]["code"]), (2, &json!("input")));
    home.ok(&["decision", "cancel", &run, "--reason", "no\u{202e}budget"]);
    let because = "the decision was cancelled: no‹U+202E›budget";
    for command in [
        &["decision", "show", &run][..],
        &["decisions", "--run", &run],
        &["explain", &run],
    ] {
        let told = home.run(command).stdout;
        assert!(told.contains(because), "{command:?}: {told}");
    }
    assert_eq!(
        home.ok(&["decision", "show", &run])["reason"],
        "no\u{202e}budget"
    );
    assert_eq!(
        home.ok(&["explain", &run])["decision"]["reason"],
        "no\u{202e}budget"
    );
}

#[test]
fn an_overdue_decision_says_what_happens_next_and_who_does_it() {
    let home = Home::with("release.workflow.yaml", RELEASE);
    let input = r#"{"onTimeout":{"afterMs":3000,"response":{"choice":"stop"}}}"#;
    let (status, run) = home.json(&["run", "release.workflow.yaml", "--input", input]);
    assert_eq!(status, 3);
    let run = run["runId"].as_str().unwrap();
    // Nobody works on the store, so that the deadline passes and nothing happens.
    until("the deadline", || {
        home.ok(&["decision", "show", run])["status"] == "overdue"
    });
    let told = home.run(&["explain", run]).stdout;
    assert!(
        told.contains("next        the deadline has passed, so that no person may answer: whoever works on this store next gives"),
        "{told}"
    );
    assert_eq!(
        home.ok(&["explain", run])["decision"]["next"]["what"],
        "automaticAnswer"
    );
    home.ok(&["work", "--until-idle"]);
    assert_eq!(
        home.ok(&["explain", run])["decision"]["next"]["what"],
        "nothing"
    );
}

#[test]
fn case_073_who_started_a_run_at_this_terminal_does_not_approve_it_here() {
    let home = Home::with(
        "release.workflow.yaml",
        &RELEASE.replace(
            "      audience: release\n",
            "      audience: release\n      answerers: anotherPerson\n",
        ),
    );
    let run = home.asking("release.workflow.yaml");
    let told = home.run(&["decision", "show", &run]).stdout;
    assert!(
        told.contains("another person than the one who started the run has to answer"),
        "{told}"
    );
    let (status, refused) = home.json(&["answer", &run, "ship"]);
    assert_eq!(
        (status, &refused["reason"]["code"]),
        (4, &json!("requester"))
    );
    assert_eq!(home.ok(&["decision", "show", &run])["status"], "open");
    home.ok(&["decision", "cancel", &run]);
    home.ok(&["state", "verify"]);
}

#[test]
fn case_068_a_file_whose_silence_means_yes_is_told_when_it_is_read() {
    let permits = RELEASE.replace(
        "{ jq: '$input.onTimeout' }",
        "{ afterMs: 600000, response: { choice: ship } }",
    );
    let warned = |file: &str| {
        let home = Home::with("release.workflow.yaml", file);
        let done = home.run(&["run", "release.workflow.yaml", "--detach"]);
        assert_eq!(done.status, 0);
        done.stderr
    };
    let told = warned(&permits);
    assert!(
        told.starts_with("warning: node review: silence means yes"),
        "{told}"
    );
    let meant = permits.replace(
        "      audience: release\n",
        "      audience: release\n      silenceIsConsent: true\n",
    );
    assert_eq!(warned(&meant), "");
    assert_eq!(
        warned(&permits.replace("{ choice: ship }", "{ choice: stop }")),
        ""
    );
}
