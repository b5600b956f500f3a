//! What readers see, and what `verify` finds.

use std::time::Duration;

use holdpoint_state::{Actor, Command, Outcome, StateError};
use holdpoint_workflows::commands::Control;
use holdpoint_workflows::model::{self, RunStatus};
use holdpoint_workflows::views::Filter;
use holdpoint_workflows::{DOMAIN, RunId, WorkflowError};
use serde_json::json;

use crate::support::{Fixture, LONG, asking, echo, host};

/// Damages the rows of the domain as no command would.
#[expect(
    clippy::disallowed_methods,
    reason = "the test makes the damage that verify must find; no command can"
)]
pub(crate) fn damage(fixture: &Fixture, run: &holdpoint_workflows::RunId, sql: &'static str) {
    let command = Command::new(
        DOMAIN.operation("run.accept_definition").unwrap(),
        model::resource(run),
    )
    .by(Actor::human("test"));
    fixture
        .store
        .db()
        .commit(command, move |change| {
            change.sql().prepare_cached(sql)?.execute([])?;
            Ok::<_, StateError>(Outcome::Refused(()))
        })
        .unwrap();
}

// lint:allow(sql-in-test): the test makes the damage that verify must find; no command can.
const DAMAGES: [(&str, &str); 10] = [
    (
        "queueState",
        "UPDATE run_queue SET status = 'done', finished_at = 1",
    ),
    (
        "waitingRequest",
        "UPDATE interactive_requests SET status = 'cancelled'",
    ),
    (
        "pendingRequest",
        "UPDATE node_attempts SET status = 'failed', finished_at = 1 WHERE status = 'waiting'",
    ),
    (
        "acceptedRequest",
        "UPDATE interactive_requests SET status = 'settled', accepted_submission_id = 'x', settled_at = 1",
    ),
    ("contiguousSteps", "UPDATE run_steps SET step_index = 5"),
    ("pausedIsParked", "UPDATE run_queue SET status = 'queued'"),
    (
        "nothingOpen",
        "UPDATE runs SET status = 'failed', paused = 0, finished_at = 1",
    ),
    (
        "X17a",
        "UPDATE run_queue SET error_code = 'effectAmbiguous'",
    ),
    (
        "waker",
        "UPDATE run_queue SET error_code = 'notYetInvented'",
    ),
    ("waker", "DELETE FROM run_queue"),
];

#[test]
fn edge_111_hand_made_violations_are_found() {
    for (invariant, sql) in DAMAGES {
        let mut fixture = Fixture::new();
        let scheduler = fixture.scheduler();
        let run = fixture.workflows.run(&asking(), json!(null)).unwrap();
        fixture.workflows.wait(&run, LONG).unwrap();
        scheduler.stop(LONG);
        if invariant == "pausedIsParked" {
            fixture.workflows.pause(&Control::of(&run)).unwrap();
        }
        assert_eq!(fixture.violations(), Vec::<String>::new());
        damage(&fixture, &run, sql);
        let file = std::fs::read(fixture.store.path()).unwrap();
        let found = fixture.violations();
        assert_eq!(std::fs::read(fixture.store.path()).unwrap(), file);
        assert!(
            found.iter().any(|line| line.starts_with(invariant)),
            "{invariant}: {found:?}"
        );
        assert!(
            found.iter().all(|line| line.contains(run.as_str())),
            "{invariant}: {found:?}"
        );
        fixture.expects_damage = true;
    }
}

#[test]
fn case_045_a_wait_that_nobody_ends_is_listed() {
    // What a run can wait for, and who ends it: an answer or a review (a person), a resume (a person), a free runner (the queue
    // row). A run without any of them is listed.
    let damages = DAMAGES
        .iter()
        .filter(|(invariant, _)| ["waitingRequest", "waker"].contains(invariant));
    for (invariant, sql) in damages {
        let mut fixture = Fixture::new();
        let run = fixture.run(&asking(), json!(null)).run_id;
        assert_eq!(fixture.violations(), Vec::<String>::new());
        damage(&fixture, &run, sql);
        let found = fixture.violations();
        assert!(
            found.contains(&format!("{invariant}: Ok({:?})", run.as_str())),
            "{found:?}"
        );
        fixture.expects_damage = true;
    }
}

#[test]
fn case_049_every_open_run_says_why_it_stands_where_it_stands() {
    let fixture = Fixture::new();
    let queued = fixture.workflows.run(&echo(), json!(1)).unwrap();
    let explanation = fixture.workflows.explain(&queued).unwrap();
    assert_eq!(explanation.blocked_by.as_deref(), Some("noRunner"));
    fixture.claim_first(&echo(), &queued, &host());
    let explanation = fixture.workflows.explain(&queued).unwrap();
    assert_eq!(explanation.blocked_by.as_deref(), Some("lease"));
    assert_eq!(
        (explanation.generation, explanation.holder.unwrap().live),
        (1, true)
    );
    fixture.store.clock().advance(30_000);
    assert_eq!(
        fixture
            .workflows
            .explain(&queued)
            .unwrap()
            .blocked_by
            .as_deref(),
        Some("noRunner")
    );

    let scheduler = fixture.scheduler();
    let asks = fixture.workflows.run(&asking(), json!(1)).unwrap();
    fixture.workflows.wait(&asks, LONG).unwrap();
    let explanation = fixture.workflows.explain(&asks).unwrap();
    assert_eq!(explanation.blocked_by.as_deref(), Some("waitingForAnswer"));
    assert!(explanation.reason.contains("\"ask\""));
    fixture.workflows.pause(&Control::of(&asks)).unwrap();
    assert_eq!(
        fixture
            .workflows
            .explain(&asks)
            .unwrap()
            .blocked_by
            .as_deref(),
        Some("paused")
    );
    fixture
        .workflows
        .cancel(&Control::of(&asks).because("enough"))
        .unwrap();
    let explanation = fixture.workflows.explain(&asks).unwrap();
    assert_eq!(
        (explanation.blocked_by, explanation.last_error.as_deref()),
        (None, Some("enough"))
    );
    scheduler.stop(LONG);
}

// lint:allow(sql-in-test): the test makes a row of a future program; no command can.
const FUTURE: &str = "UPDATE runs SET input_digest = NULL, input = NULL,
         input_hash = (SELECT blob_hash FROM blobs WHERE media_type = 'text/plain'),
         workflow_ref = 'future'
     WHERE workflow_ref = 'echo'";

#[test]
fn case_050_what_this_program_can_not_read_breaks_no_list() {
    let mut fixture = Fixture::new();
    let run = fixture.workflows.run(&echo(), json!(1)).unwrap();
    fixture.workflows.run(&asking(), json!(2)).unwrap();
    // A payload of a future version, and a kind that this program does not have.
    let future = holdpoint_state::Payload::text("not json").unwrap();
    let command = Command::new(
        DOMAIN.operation("run.accept_definition").unwrap(),
        model::resource(&run),
    )
    .by(Actor::human("test"));
    fixture
        .store
        .db()
        .commit(command, move |change| {
            change.put_blob(&future)?;
            Ok::<_, StateError>(Outcome::Refused(()))
        })
        .unwrap();
    damage(&fixture, &run, FUTURE);
    let page = fixture.workflows.list(&Filter::default()).unwrap();
    assert_eq!(page.runs.len(), 2);
    assert!(fixture.workflows.view(&run).unwrap().input["undecodable"].is_string());
    let scheduler = fixture.scheduler();
    assert!(scheduler.wait_until_idle(LONG));
    let page = fixture
        .workflows
        .list(&Filter {
            status: Some(RunStatus::Waiting),
            ..Filter::default()
        })
        .unwrap();
    assert_eq!(page.runs.len(), 1);
    scheduler.stop(LONG);
    fixture.expects_damage = true;
}

#[test]
fn lists_are_paged_newest_first() {
    let fixture = Fixture::new();
    let runs: Vec<String> = (0..5)
        .map(|n| {
            fixture
                .workflows
                .run(&echo(), json!(n))
                .unwrap()
                .to_string()
        })
        .collect();
    let mut seen = Vec::new();
    let mut after = None;
    loop {
        let page = fixture
            .workflows
            .list(&Filter {
                limit: 2,
                after,
                ..Filter::default()
            })
            .unwrap();
        seen.extend(page.runs.into_iter().map(|run| run.run_id));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    seen.reverse();
    assert_eq!(seen, runs);
    let bad = Filter {
        after: Some("x".to_owned()),
        ..Filter::default()
    };
    assert!(fixture.workflows.list(&bad).is_err());
}

#[test]
fn operations_and_schema_are_those_of_the_snapshot() {
    let fixture = Fixture::new();
    let operations: Vec<String> = holdpoint_workflows::DOMAIN
        .operations
        .iter()
        .map(|operation| {
            let actors: Vec<_> = operation
                .actors
                .iter()
                .map(|actor| actor.as_str())
                .collect();
            format!(
                "{} -> {} [{}] {:?} {} -> {}",
                operation.name,
                operation.event,
                actors.join(" "),
                operation.lease,
                operation.from.join("|"),
                operation.to.join("|")
            )
        })
        .collect();
    insta::assert_snapshot!("operations", operations.join("\n"));
    let tables: Vec<String> = fixture
        .store
        .schema()
        .tables()
        .filter(|(_, domain)| *domain == "workflows")
        .map(|(table, _)| table.to_owned())
        .collect();
    insta::assert_snapshot!("tables", tables.join("\n"));
}

#[test]
fn the_view_of_a_run_as_json() {
    let fixture = Fixture::new();
    let scheduler = fixture.scheduler();
    let start = holdpoint_workflows::commands::Start::new(&asking(), json!({ "n": 1 })).key("view");
    let run = fixture.workflows.start(&start).unwrap().value;
    let view = fixture.workflows.wait(&run, LONG).unwrap();
    scheduler.stop(LONG);
    let mut shown = serde_json::to_value(&view).unwrap();
    // Random by design.
    shown["currentAttemptId"] = json!("<attempt>");
    shown["request"]["requestId"] = json!("<request>");
    shown["steps"][0]["attemptId"] = json!("<attempt>");
    shown["results"]["start"]["attemptId"] = json!("<attempt>");
    insta::assert_json_snapshot!("run_view", shown);
}

#[test]
fn the_end_of_a_run_is_told_short() {
    let fixture = Fixture::new();
    let moment = Duration::from_millis(1);
    let end = |run: &RunId, limit| fixture.workflows.wait_for_end(run, limit);
    let queued = fixture.workflows.run(&echo(), json!({ "n": 1 })).unwrap();
    assert_eq!(end(&queued, moment).unwrap(), None);
    let scheduler = fixture.scheduler();
    let completed = end(&queued, LONG).unwrap().unwrap();
    assert_eq!(completed.status, RunStatus::Completed);
    assert_eq!(completed.output, Some(json!({ "n": 1 })));
    assert_eq!(completed.error, None);
    // Who waits for somebody is not over, until it is cancelled.
    let asks = fixture.workflows.run(&asking(), json!(2)).unwrap();
    fixture.workflows.wait(&asks, LONG).unwrap();
    assert_eq!(end(&asks, moment).unwrap(), None);
    let cancel = Control::of(&asks).because("enough");
    fixture.workflows.cancel(&cancel).unwrap();
    let cancelled = end(&asks, LONG).unwrap().unwrap();
    assert_eq!(cancelled.status, RunStatus::Cancelled);
    assert_eq!(
        (cancelled.output, cancelled.error.as_deref()),
        (None, Some("enough"))
    );
    scheduler.stop(LONG);
    let nobody = RunId::new("nobody").unwrap();
    assert!(matches!(
        end(&nobody, LONG),
        Err(WorkflowError::NoRun { .. })
    ));
}
