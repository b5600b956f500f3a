//! Every command is sent twice: the second time it adopts, or it is refused; either way no row changes.

use holdpoint_state::{Disposition, Receipt};
use holdpoint_workflows::commands::{self, Answer, Ask, Claimed, Control, Restart, Start};
use holdpoint_workflows::model::RequestKind;
use holdpoint_workflows::{AttemptId, WorkflowError};
use serde_json::json;

use crate::support::{Fixture, LONG, asking, echo, host, person};

/// Sends a command twice and looks at the rows in between and after.
fn twice<T: std::fmt::Debug>(
    fixture: &Fixture,
    what: &str,
    send: impl Fn() -> Result<Receipt<T>, WorkflowError>,
) -> T {
    let first = send().unwrap();
    assert_eq!(first.disposition, Disposition::Accepted, "{what}");
    let before = fixture.rows();
    fixture.store.clock().advance(1);
    if let Ok(second) = send() {
        assert_eq!(second.disposition, Disposition::Adopted, "{what}");
    }
    assert_eq!(before, fixture.rows(), "{what}");
    assert_eq!(fixture.violations(), Vec::<String>::new(), "{what}");
    first.value
}

#[test]
fn the_verbs_of_people() {
    let fixture = Fixture::new();
    let workflows = &fixture.workflows;
    let start = Start::new(&asking(), json!(1)).key("k");
    let run = twice(&fixture, "start", || workflows.start(&start));
    let scheduler = fixture.scheduler();
    workflows.wait(&run, LONG).unwrap();
    scheduler.stop(LONG);
    let control = Control::of(&run).by(person());
    twice(&fixture, "pause", || workflows.pause(&control));
    twice(&fixture, "resume", || workflows.resume(&control));
    let answer = Answer::new(&run, json!("yes")).key("k");
    twice(&fixture, "answer", || workflows.answer(&answer));
    twice(&fixture, "cancel", || workflows.cancel(&control));
    let restart = Restart::new(&run, workflows.view(&run).unwrap().run_revision);
    twice(&fixture, "restart", || workflows.restart(&restart));
}

#[test]
fn the_verbs_of_a_runner() {
    let fixture = Fixture::new();
    let definition = asking();
    let db = fixture.store.db();
    let run = fixture.workflows.run(&definition, json!(1)).unwrap();
    let Claimed::Owned { claim, .. } = fixture.claim_first(&definition, &run, &host()) else {
        panic!("not owned");
    };
    twice(&fixture, "hand over", || commands::hand_over(db, &claim));

    let fixture = Fixture::new();
    let db = fixture.store.db();
    let run = fixture.workflows.run(&echo(), json!(2)).unwrap();
    let Claimed::Owned { claim, .. } = fixture.claim_first(&echo(), &run, &host()) else {
        panic!("not owned");
    };
    twice(&fixture, "give up", || commands::give_up(db, &claim, "no"));
}

#[test]
fn edge_072_the_request_of_an_attempt_never_changes() {
    let fixture = Fixture::new();
    let definition = holdpoint_workflows::definition::Workflow::new("w")
        .start_at("ask")
        .checkpoint("ask")
        .build()
        .unwrap();
    let run = fixture.workflows.run(&definition, json!(1)).unwrap();
    let Claimed::Owned { claim, .. } = fixture.claim_first(&definition, &run, &host()) else {
        panic!("not owned");
    };
    let attempt = AttemptId::new("attempt-1").unwrap();
    let request = commands::wait(
        fixture.store.db(),
        &claim,
        &attempt,
        Ask::new(RequestKind::Checkpoint, json!({ "q": 1 })),
    )
    .unwrap()
    .value;
    // The claim went with the park, so that nobody can ask the same attempt something else.
    let again = commands::wait(
        fixture.store.db(),
        &claim,
        &attempt,
        Ask::new(RequestKind::Checkpoint, json!({ "q": 2 })),
    );
    assert!(again.unwrap_err().is_claim_lost());
    let view = fixture.workflows.view(&run).unwrap().request.unwrap();
    assert_eq!(
        (view.request_id, view.contract),
        (request, json!({ "q": 1 }))
    );
}
