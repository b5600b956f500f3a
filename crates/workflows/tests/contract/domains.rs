//! What the domain of a node's kind does to a run that it parked: as its owner, or to take its request back.

use holdpoint_state::testing::{TestStore, counter};
use holdpoint_state::{Actor, Change, Command, Database, Outcome, StateError};
use holdpoint_workflows::commands::{
    self, Control, OwnerAct, OwnerRight, Settlement, cancel_in, settle_with, withdraw,
};
use holdpoint_workflows::definition::{
    CustomNode, Definition, NodeContext, NodeError, NodeKind, NodeStep, Park, Workflow,
};
use holdpoint_workflows::model::{RunStatus, resource};
use holdpoint_workflows::{DOMAIN, RunId, WorkflowError, Workflows};
use serde_json::{Value, json};

use crate::support::{Fixture, LONG, host};

/// Waits for the counter's domain.
struct Gate;

impl CustomNode for Gate {
    fn node_type(&self) -> &'static str {
        "gate"
    }

    fn snapshot(&self) -> Value {
        json!({ "gate": 1 })
    }

    fn execute(&self, _context: &NodeContext<'_>) -> Result<NodeStep, NodeError> {
        Ok(NodeStep::Park(Park::new(json!({}))))
    }
}

fn gated() -> Definition {
    Workflow::new("gated")
        .start_at("gate")
        .node("gate", NodeKind::custom(Gate))
        .build()
        .unwrap()
}

fn fixture() -> (Fixture, RunId, String) {
    let store = TestStore::new([DOMAIN, counter::DOMAIN]).unwrap();
    counter::create(store.db(), "gates").unwrap();
    let fixture = Fixture {
        workflows: Workflows::new(store.db().clone()),
        store,
        expects_damage: false,
    };
    let view = fixture.run(&gated(), json!(null));
    let run = RunId::new(view.run_id).unwrap();
    let request = view.request.unwrap().request_id;
    (fixture, run, request)
}

/// A change of the counter's domain, in which something is done to the run.
fn beside<T: Send + 'static>(
    db: &Database,
    body: impl Fn(&mut Change<'_>) -> Result<T, WorkflowError> + Send + 'static,
) -> Result<T, WorkflowError> {
    let command = Command::new(&counter::ADD, counter::resource("gates")).by(Actor::host("gates"));
    db.commit(command, move |change| {
        counter::increase(change, 1)?;
        Ok(Outcome::Accepted(body(change)?))
    })
    .map(|receipt| receipt.value)
}

#[test]
fn a_request_that_is_taken_back_waits_for_the_end_of_its_run() {
    let (fixture, run, request) = fixture();
    let taken = (run.clone(), request.clone());
    beside(fixture.store.db(), move |change| {
        withdraw(change, &taken.0, &taken.1)
    })
    .unwrap();
    assert_eq!(fixture.violations(), Vec::<String>::new());
    let again = (run.clone(), request.clone());
    let refused = beside(fixture.store.db(), move |change| {
        withdraw(change, &again.0, &again.1)
    });
    assert!(
        matches!(refused, Err(WorkflowError::Conflict { .. })),
        "{refused:?}"
    );
    let late = (run.clone(), request);
    let refused = beside(fixture.store.db(), move |change| {
        let settlement = Settlement::new(&late.1, ("key", &json!(1)), &json!(1))?;
        settle_with(change, &late.0, &settlement)
    });
    assert!(
        matches!(refused, Err(WorkflowError::Conflict { .. })),
        "{refused:?}"
    );
    let control = Control::of(&run).by(Actor::system());
    beside(fixture.store.db(), move |change| {
        cancel_in(change, &control)
    })
    .unwrap();
    let view = fixture.workflows.view(&run).unwrap();
    assert_eq!(view.status, RunStatus::Cancelled);
    // Only the two that were accepted counted.
    let value = counter::value(&fixture.store.db().snapshot().unwrap(), "gates").unwrap();
    assert_eq!(value, Some(2));
}

#[test]
fn the_owner_acts_despite_a_pause_and_nobody_else_does() {
    let (fixture, run, request) = fixture();
    fixture.workflows.pause(&Control::of(&run)).unwrap();
    let act = |right| {
        let request = request.clone();
        commands::act_as_owner::<(), WorkflowError>(
            fixture.store.db(),
            &run,
            right,
            move |change| {
                let command = Command::new(&counter::ADD, counter::resource("gates"))
                    .by(change.actor().clone());
                change.also(&command, |change| {
                    counter::increase(change, 1)?;
                    Ok::<_, WorkflowError>(Outcome::Accepted(()))
                })?;
                let settlement =
                    Settlement::new(&request, ("key", &json!("open")), &json!("public"))?;
                Ok((OwnerAct::Settle(settlement), ()))
            },
        )
    };
    let (other, owner) = (host(), host());
    let claim = fixture
        .store
        .db()
        .claim(resource(&run), Actor::host("other"), &other, 1_000)
        .unwrap();
    let refused = act(OwnerRight::Taking(&owner));
    assert!(
        matches!(
            &refused,
            Err(WorkflowError::State(StateError::LeaseHeld { .. }))
        ),
        "{refused:?}"
    );
    fixture.store.clock().advance(1_000);
    let refused = act(OwnerRight::Holding(&claim));
    assert!(
        matches!(
            &refused,
            Err(WorkflowError::State(StateError::ClaimLost { .. }))
        ),
        "{refused:?}"
    );
    let value = || counter::value(&fixture.store.db().snapshot().unwrap(), "gates").unwrap();
    assert_eq!(value(), Some(0));
    act(OwnerRight::Taking(&owner)).unwrap();
    assert_eq!(value(), Some(1));
    let view = fixture.workflows.view(&run).unwrap();
    assert_eq!((view.status, view.paused), (RunStatus::Waiting, true));
    fixture.workflows.resume(&Control::of(&run)).unwrap();
    let scheduler = fixture.scheduler();
    let view = fixture.workflows.wait(&run, LONG).unwrap();
    assert_eq!(view.final_output, Some(json!("open")));
    assert!(scheduler.wait_until_idle(LONG));
}
