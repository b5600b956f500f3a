//! Rows of decisions: one that a person answered, one that is open until its deadline.

use holdpoint_decisions::commands::{self, Answer};
use holdpoint_decisions::model::{Choice, Choices, OnTimeout};
use holdpoint_decisions::node::{Deadline, HumanDecision};
use holdpoint_decisions::{DecisionId, model::Judged};
use holdpoint_workflows::definition::Workflow;
use holdpoint_workflows::{SchedulerOptions, Workflows};
use serde_json::json;

use super::LONG;

pub(super) fn fill(workflows: &Workflows) {
    let choices = Choices::new([("go", Choice::new("Go")), ("stop", Choice::new("Stop"))]).unwrap();
    let deadline = Deadline::OnTimeout(OnTimeout {
        after_ms: 1e12,
        response: json!({ "choice": "go" }),
    });
    let asked = HumanDecision::between("Go?", choices).until(deadline);
    let deciding = Workflow::new("deciding")
        .start_at("ask")
        .node("ask", asked.into_kind())
        .compute("end", |_| Ok(1))
        .switch("ask", "$.choice", [("go", "end"), ("stop", "end")])
        .build()
        .unwrap();
    let scheduler = workflows.scheduler(SchedulerOptions::default()).unwrap();
    let runs = [1, 2].map(|n| workflows.run(&deciding, json!(n)).unwrap());
    for run in &runs {
        workflows.wait(run, LONG).unwrap();
    }
    scheduler.stop(LONG);
    let request = workflows.view(&runs[0]).unwrap().request.unwrap();
    let decision = DecisionId::new(request.request_id).unwrap();
    let answer = Answer::new(&decision, json!({ "choice": "go" }), "ann");
    let judged = commands::answer(workflows.database(), &answer)
        .unwrap()
        .value;
    assert!(matches!(judged, Judged::Accepted { .. }), "{judged:?}");
}
