//! The built-in approval of plans: three policies, three exits, and rounds that end.

use std::sync::Arc;

use holdpoint_decisions::commands::{self, Answer};
use holdpoint_decisions::duty::DecisionDuty;
use holdpoint_decisions::effects::SettlePresentations;
use holdpoint_decisions::plan_approval::{self, PlanInput, Policy};
use holdpoint_decisions::views;
use holdpoint_workflows::definition::{Definition, Workflow};
use holdpoint_workflows::model::RunStatus;
use holdpoint_workflows::views::RunView;
use holdpoint_workflows::{RunId, Scheduler, SchedulerOptions, Workflows};
use serde_json::{Value, json};

use crate::support::{Fixture, LONG};

/// Makes plans and carries them out, with an approval in between.
fn work(policy: Policy, max_replans: u32) -> Definition {
    Workflow::new("work")
        .start_at("plan")
        .compute("plan", |ctx| {
            let approval = ctx.outputs.get("approval");
            let asked = approval.and_then(|approval| approval.pointer("/output/text"));
            Ok(format!(
                "Plan: {}",
                asked.and_then(Value::as_str).unwrap_or("first")
            ))
        })
        .include("approval", &plan_approval::definition().unwrap())
        .input_map(move |ctx| {
            let input = PlanInput::new(ctx.output::<String>("plan")?, policy);
            Ok(PlanInput {
                max_replans,
                ..input.after(ctx.outputs.get("approval"))
            })
        })
        .compute("do", |ctx| ctx.output::<Value>("approval"))
        .compute("stopped", |ctx| ctx.output::<Value>("approval"))
        .edge("plan", "approval")
        .edge("approval.continue", "do")
        .edge("approval.stop", "stopped")
        .edge("approval.replan", "plan")
        .build()
        .unwrap()
}

struct At<'a> {
    fixture: &'a Fixture,
    workflows: Workflows,
    scheduler: Scheduler,
    run: RunId,
}

impl<'a> At<'a> {
    fn of(fixture: &'a Fixture, policy: Policy, max_replans: u32) -> Self {
        let duty = DecisionDuty::new(fixture.db(), SettlePresentations::new()).unwrap();
        let workflows = fixture.workflows.clone().with_duty(Arc::new(duty));
        let scheduler = workflows.scheduler(SchedulerOptions::default()).unwrap();
        let run = workflows
            .run(&work(policy, max_replans), json!({}))
            .unwrap();
        assert!(scheduler.wait_until_idle(LONG));
        Self {
            fixture,
            workflows,
            scheduler,
            run,
        }
    }

    fn says(&self, response: Value) -> bool {
        let decision = self.fixture.asked(&self.run);
        let judged = commands::answer(self.fixture.db(), &Answer::new(&decision, response, "ann"));
        assert!(
            self.scheduler
                .wait_until_idle(std::time::Duration::from_secs(2)),
            "{:?} {:#?}",
            judged,
            self.workflows.explain(&self.run)
        );
        judged.unwrap().value.has_won()
    }

    fn view(&self) -> RunView {
        self.workflows.view(&self.run).unwrap()
    }

    fn end(self) -> RunView {
        let view = self.view();
        self.scheduler.stop(LONG);
        view
    }
}

#[test]
fn skip_asks_nobody() {
    let fixture = Fixture::new();
    let view = At::of(&fixture, Policy::Skip, 3).end();
    let output = json!({ "exit": "continue", "output": { "provenance": "skipped", "round": 1 } });
    assert_eq!(view.final_output, Some(output));
}

#[test]
fn auto_goes_on_by_itself_after_ten_minutes() {
    let fixture = Fixture::new();
    let at = At::of(&fixture, Policy::Auto, 3);
    assert_eq!(at.view().status, RunStatus::Waiting);
    fixture.store.clock().advance(600_000);
    assert!(at.scheduler.wait_until_idle(LONG));
    let output = json!({ "exit": "continue", "output": { "provenance": "timeout", "round": 1 } });
    assert_eq!(at.end().final_output, Some(output));
}

#[test]
fn required_waits_for_a_person_however_long() {
    let fixture = Fixture::new();
    let at = At::of(&fixture, Policy::Required, 3);
    fixture.store.clock().advance(365 * 86_400_000);
    assert!(at.scheduler.wait_until_idle(LONG));
    assert_eq!(at.view().status, RunStatus::Waiting);
    assert!(at.says(json!({ "choice": "continue" })));
    let output = json!({ "exit": "continue", "output": { "provenance": "human", "round": 1 } });
    assert_eq!(at.end().final_output, Some(output));
}

#[test]
fn a_person_stops() {
    let fixture = Fixture::new();
    let at = At::of(&fixture, Policy::Auto, 3);
    assert!(at.says(json!({ "choice": "stop" })));
    let output = json!({ "exit": "stop", "output": { "provenance": "human", "round": 1 } });
    assert_eq!(at.end().final_output, Some(output));
}

#[test]
fn plans_are_sent_back_with_the_exact_text_until_the_last_round() {
    let fixture = Fixture::new();
    let at = At::of(&fixture, Policy::Required, 2);
    for text in ["  smaller\n", "e\u{301}"] {
        assert!(at.says(json!({ "choice": "replan", "input": { "text": text } })));
        let decision = fixture.asked(&at.run);
        let request = views::request(&fixture.snapshot(), &decision)
            .unwrap()
            .unwrap();
        assert_eq!(
            request.document()["subject"]["plan"],
            format!("Plan: {text}")
        );
    }
    // The third plan is the last one: nobody can ask for a fourth.
    assert!(!at.says(json!({ "choice": "replan", "input": { "text": "again" } })));
    assert!(at.says(json!({ "choice": "continue" })));
    let output = json!({ "exit": "continue", "output": { "provenance": "human", "round": 3 } });
    assert_eq!(at.end().final_output, Some(output));
}

#[test]
fn a_long_plan_is_shown_whole() {
    let plan = format!("{}\n{}", "é".repeat(15_999), "😀".repeat(9_000));
    let fixture = Fixture::new();
    let definition = Workflow::new("w")
        .start_at("plan")
        .compute("plan", |ctx| Ok(ctx.input().clone()))
        .include("approval", &plan_approval::definition().unwrap())
        .input_map(|ctx| {
            Ok(PlanInput::new(
                ctx.output::<String>("plan")?,
                Policy::Required,
            ))
        })
        .edge("plan", "approval")
        .build()
        .unwrap();
    let scheduler = fixture.scheduler();
    let run = fixture.workflows.run(&definition, json!(plan)).unwrap();
    fixture.workflows.wait(&run, LONG).unwrap();
    scheduler.stop(LONG);
    let decision = fixture.asked(&run);
    let request = views::request(&fixture.snapshot(), &decision)
        .unwrap()
        .unwrap();
    let blocks = request.document()["presentation"]["blocks"].clone();
    let shown: String = blocks
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|block| block["text"].as_str())
        .collect();
    assert_eq!(shown, plan);
}

#[test]
fn a_file_includes_it_by_its_name() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("work.workflow.yaml");
    std::fs::write(
        &path,
        "name: work
startAt: plan
nodes:
  plan: { compute: do it }
  done: { compute: { jq: $outputs.approval.output.provenance } }
  stopped: { compute: stopped }
includes:
  approval:
    workflow: builtin:plan-approval
    input: { plan: { jq: $outputs.plan }, policy: skip, round: { jq: ($outputs.approval.output.round // 0) + 1 } }
edges:
  - { from: plan, to: approval }
  - { from: approval.continue, to: done }
  - { from: approval.stop, to: stopped }
  - { from: approval.replan, to: plan }
",
    )
    .unwrap();
    let fixture = Fixture::new();
    plan_approval::register(fixture.workflows.registry()).unwrap();
    let file = fixture.workflows.registry().read_file(&path).unwrap();
    let scheduler = fixture.scheduler();
    let run = fixture.workflows.run_file(&file, json!({})).unwrap();
    let view = fixture.workflows.wait(&run, LONG).unwrap();
    scheduler.stop(LONG);
    assert_eq!(view.final_output, Some(json!("skipped")));
}
