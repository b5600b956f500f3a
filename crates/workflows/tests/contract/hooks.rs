//! What a domain above this one hangs into the transactions of runs: the request that it names, and the end of a run that it follows.

use holdpoint_state::schema::Projector;
use holdpoint_state::testing::{TestStore, counter};
use holdpoint_state::{Actor, Change, Command, Database, Domain, Outcome, StateError, Touched};
use holdpoint_workflows::commands::{self, Control};
use holdpoint_workflows::definition::{
    Asked, CustomNode, Definition, NodeContext, NodeError, NodeKind, NodeStep, Park, Timeout,
    Workflow,
};
use holdpoint_workflows::hooks::RunEnd;
use holdpoint_workflows::model::{RequestKind, RunStatus};
use holdpoint_workflows::views::RunView;
use holdpoint_workflows::{DOMAIN, WorkflowError, Workflows};
use serde_json::{Value, json};

use crate::support::{Fixture, LONG, echo};

/// Counts the ends of runs, in a counter for each kind of end.
const WAITS: Domain = Domain {
    projectors: &[Projector {
        name: "waits of runs that ended",
        project: follow_ends,
    }],
    ..Domain::named("waits")
};

fn follow_ends(change: &mut Change<'_>, touched: &Touched) -> Result<(), StateError> {
    let Some(end) = RunEnd::of(touched) else {
        return Ok(());
    };
    assert_eq!(change.resource().key(), end.run.as_str());
    let by = Actor::host("waits");
    let counter = counter::resource(end.status.as_str());
    let command = Command::new(&counter::ADD, counter).by(by);
    change.also(&command, |change| {
        counter::increase(change, 1)?;
        Ok::<_, StateError>(Outcome::Accepted(()))
    })?;
    Ok(())
}

fn fixture() -> Fixture {
    let store = TestStore::new([counter::DOMAIN, DOMAIN, WAITS]).unwrap();
    for name in ["waits", "completed", "failed", "timed_out", "cancelled"] {
        counter::create(store.db(), name).unwrap();
    }
    Fixture {
        workflows: Workflows::new(store.db().clone()),
        store,
        expects_damage: false,
    }
}

fn waits(fixture: &Fixture) -> i64 {
    value(fixture, "waits")
}

fn value(fixture: &Fixture, name: &str) -> i64 {
    let snapshot = fixture.store.db().snapshot().unwrap();
    counter::value(&snapshot, name).unwrap().unwrap()
}

/// How many runs completed, failed, timed out and were cancelled.
fn ends(fixture: &Fixture) -> [i64; 4] {
    ["completed", "failed", "timed_out", "cancelled"].map(|name| value(fixture, name))
}

/// A protected wait of the counter's domain, which names its request after what is asked, and dates it.
struct Named(&'static str);

impl CustomNode for Named {
    fn node_type(&self) -> &'static str {
        "checkpoint"
    }

    fn snapshot(&self) -> Value {
        json!({ "name": self.0 })
    }

    fn execute(&self, _context: &NodeContext<'_>) -> Result<NodeStep, NodeError> {
        let name = self.0;
        let park = Park::new(json!({ "draft": name })).decision();
        Ok(NodeStep::Park(park.asking(move |waiting| {
            assert_eq!(waiting.workflow, "named");
            Ok(Asked {
                request_id: name.to_owned(),
                contract: json!({ "name": name, "attempt": waiting.attempt_id, "at": waiting.now }),
            })
        }).beside(move |change, parked| {
            assert_eq!(parked.request_id, name);
            assert_eq!(parked.contract.get("name"), Some(&json!(name)));
            let by = change.actor().clone();
            let command = Command::new(&counter::ADD, counter::resource("waits")).by(by);
            change.also(&command, |change| {
                counter::increase(change, 1)?;
                Ok::<_, WorkflowError>(Outcome::Accepted(()))
            })?;
            Ok(())
        })))
    }
}

fn named(request: &'static str) -> Definition {
    Workflow::new("named")
        .start_at("wait")
        .node("wait", NodeKind::custom(Named(request)))
        .build()
        .unwrap()
}

/// Settles the request, as its domain would.
fn settle(db: &Database, view: &RunView, request: &str) -> Result<(), WorkflowError> {
    let (run, request) = (view.run_id.clone(), request.to_owned());
    let command = Command::new(&counter::ADD, counter::resource("waits")).by(Actor::host("waits"));
    db.commit(command, move |change| {
        counter::increase(change, 100)?;
        commands::settle(change, &run, &request, ("k", &json!("yes")))?;
        Ok(Outcome::Accepted(()))
    })
    .map(drop)
}

#[test]
fn a_domain_names_its_request_and_makes_its_contract_in_the_transaction_that_parks() {
    let fixture = fixture();
    let view = fixture.run(&named("decision-1"), json!({}));
    let request = view.request.clone().unwrap();
    assert_eq!(request.request_id, "decision-1");
    assert_eq!(request.kind, RequestKind::Decision);
    let asked = &request.contract["request"];
    assert_eq!(asked["name"], "decision-1");
    assert!(
        asked["attempt"]
            .as_str()
            .is_some_and(|id| id.starts_with("attempt-"))
    );
    assert_eq!(asked["at"], json!(request.created_at));
    assert_eq!(waits(&fixture), 1);

    settle(fixture.store.db(), &view, "decision-1").unwrap();
    let scheduler = fixture.scheduler();
    let view = fixture.workflows.wait(&view.run_id, LONG).unwrap();
    scheduler.stop(LONG);
    assert_eq!(view.final_output, Some(json!("yes")));
}

#[test]
fn an_id_that_is_taken_or_no_id_leaves_no_request_behind() {
    let fixture = fixture();
    let first = fixture.run(&named("decision-1"), json!({}));
    for (name, why) in [
        ("decision-1", first.run_id.as_str()),
        ("", "letters, digits"),
        ("-x", "letters, digits"),
        ("two words", "letters, digits"),
    ] {
        let view = fixture.run(&named(name), json!({}));
        assert!(view.request.is_none(), "{name:?}");
        let problem = format!("{:?}", fixture.workflows.explain(&view.run_id).unwrap());
        assert!(problem.contains(why), "{name:?}: {problem}");
    }
    assert_eq!(waits(&fixture), 1);
}

#[test]
fn a_domain_follows_every_end_of_a_run_in_the_same_transaction() {
    let fixture = fixture();
    fixture.run(&echo(), json!(1));
    assert_eq!(ends(&fixture), [1, 0, 0, 0]);

    let failing = Workflow::new("failing")
        .start_at("fail")
        .compute("fail", |_| Err::<Value, _>(NodeError::new("no")))
        .build()
        .unwrap();
    assert_eq!(fixture.run(&failing, json!(1)).status, RunStatus::Failed);
    assert_eq!(ends(&fixture), [1, 1, 0, 0]);

    let (entered, seen) = std::sync::mpsc::channel::<()>();
    let slow = Workflow::new("slow")
        .start_at("wait")
        .compute("wait", move |ctx| {
            entered.send(())?;
            ctx.cancellation.wait(LONG);
            ctx.cancellation.check()?;
            Ok(1)
        })
        .timeout(Timeout::millis(1_000))
        .build()
        .unwrap();
    let scheduler = fixture.scheduler();
    let run = fixture.workflows.run(&slow, json!(1)).unwrap();
    seen.recv_timeout(LONG).unwrap();
    fixture.store.clock().advance(1_001);
    let view = fixture.workflows.wait(&run, LONG).unwrap();
    scheduler.stop(LONG);
    assert_eq!(view.status, RunStatus::TimedOut);
    assert_eq!(ends(&fixture), [1, 1, 1, 0]);

    // Nobody here knows the definition of this one: the domain follows all the same.
    let view = fixture.run(&named("decision-1"), json!({}));
    assert_eq!(waits(&fixture), 1);
    let stranger = fixture.store.open().unwrap();
    commands::cancel(&stranger, &Control::of(&view.run_id)).unwrap();
    assert_eq!(ends(&fixture), [1, 1, 1, 1]);
    // The order of the log: the run is over, and then what hung on it.
    let last = fixture.text(
        "SELECT group_concat(event_type, ' ') FROM (SELECT event_type FROM events ORDER BY event_seq DESC LIMIT 2)",
    );
    assert_eq!(last, "counter.added run_cancelled");
    // A second cancellation ends nothing.
    let again = commands::cancel(&stranger, &Control::of(&view.run_id));
    assert!(
        matches!(again, Err(WorkflowError::Rejected { .. })),
        "{again:?}"
    );
    assert_eq!(ends(&fixture), [1, 1, 1, 1]);
}

#[test]
fn rows_of_a_domain_that_can_not_be_settled_keep_the_run_open() {
    /// Refuses every end.
    const STUBBORN: Domain = Domain {
        projectors: &[Projector {
            name: "stubborn",
            project: |_, touched| match RunEnd::of(touched) {
                Some(_) => Err(StateError::Misuse {
                    operation: "test",
                    problem: "not yet".to_owned(),
                }),
                None => Ok(()),
            },
        }],
        ..Domain::named("stubborn")
    };
    let store = TestStore::new([DOMAIN, STUBBORN]).unwrap();
    let workflows = Workflows::new(store.db().clone());
    let run = workflows.run(&echo(), json!(1)).unwrap();
    let cancelled = workflows.cancel(&Control::of(&run));
    assert!(
        matches!(
            cancelled,
            Err(WorkflowError::State(StateError::Misuse { .. }))
        ),
        "{cancelled:?}"
    );
    assert_eq!(workflows.view(&run).unwrap().status, RunStatus::Queued);
}
