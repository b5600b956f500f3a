//! Actions act under a managed effect: once for each visit, and never blindly again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use holdpoint_state::Payload;
use holdpoint_state::effects::{
    self, Decision, EffectState, EffectView, NewEffect, OwnerScope, Resolution,
};
use holdpoint_workflows::commands::{Claimed, Control, Move, Plan, Restart};
use holdpoint_workflows::definition::{
    Definition, EffectSpec, NodeError, Recovery, Timeout, Workflow,
};
use holdpoint_workflows::model::{self, RunStatus};
use holdpoint_workflows::shell::ShellCommand;
use holdpoint_workflows::views::DisplayStatus;
use holdpoint_workflows::{NodeId, RunId, SchedulerOptions, WorkflowError, Workflows};
use serde_json::{Value, json};

use crate::support::{Fixture, LONG, attempt, host, person};

fn spec(recovery: Recovery) -> EffectSpec {
    match recovery {
        Recovery::Idempotent => EffectSpec::idempotent("test.act"),
        Recovery::Manual => EffectSpec::manual("test.act"),
    }
}

/// One action that counts its acts.
fn counting(recovery: Recovery) -> (Definition, Arc<AtomicUsize>) {
    let acts = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&acts);
    let definition = Workflow::new("acting")
        .start_at("act")
        .action("act", spec(recovery), move |ctx| {
            assert!(ctx.effect_id.is_some());
            Ok(counter.fetch_add(1, Ordering::SeqCst) + 1)
        })
        .build()
        .unwrap();
    (definition, acts)
}

fn effects_of(fixture: &Fixture, run: &RunId) -> Vec<EffectView> {
    let snapshot = fixture.store.db().snapshot().unwrap();
    effects::of_source(&snapshot, &model::resource(run)).unwrap()
}

/// Begins the action as a runner would, and dies.
fn lose_a_runner(fixture: &Fixture, definition: &Definition, recovery: Recovery) -> RunId {
    let run = fixture.workflows.run(definition, json!(null)).unwrap();
    let node = NodeId::new("act").unwrap();
    let payload = json!({ "recovery": recovery, "request": { "input": null, "outputs": {} } });
    let mut first = attempt("act", "attempt-1");
    first.effect = Some(NewEffect::new(
        "test.act",
        model::effect_key(&run, "test.act", &node, 1),
        OwnerScope::Run,
        Payload::json(&payload).unwrap(),
    ));
    let plan = Plan::First {
        title: None,
        next: Move::Start(first),
    };
    let claimed = fixture.claim(definition, &run, &host(), plan).unwrap();
    assert!(matches!(claimed, Claimed::Owned { .. }));
    fixture.store.clock().advance(30_000);
    run
}

#[test]
fn an_action_acts_once_and_its_effect_keeps_output_and_receipt() {
    let fixture = Fixture::new();
    let (definition, acts) = counting(Recovery::Manual);
    let view = fixture.run(&definition, json!(null));
    assert_eq!(
        (view.final_output, acts.load(Ordering::SeqCst)),
        (Some(json!(1)), 1)
    );
    assert_eq!(
        view.steps[0].receipt,
        Some(json!({ "actionType": "function" }))
    );
    let effect = &effects_of(&fixture, &view.run_id)[0];
    assert_eq!((effect.state, effect.attempts), (EffectState::Applied, 1));
}

#[test]
fn case_058_a_manual_act_of_a_lost_runner_waits_for_a_person() {
    let fixture = Fixture::new();
    let (definition, acts) = counting(Recovery::Manual);
    let run = lose_a_runner(&fixture, &definition, Recovery::Manual);
    let scheduler = fixture.scheduler();
    let view = fixture.workflows.wait(&run, LONG).unwrap();
    assert_eq!(
        (view.status, view.display_status),
        (RunStatus::Waiting, DisplayStatus::Ambiguous)
    );
    assert_eq!(view.error_code.as_deref(), Some("effectAmbiguous"));
    assert_eq!(fixture.events(&run).last().unwrap(), "run.effect_ambiguous");
    // It stays so, however often it is looked at, and a resume before the review is refused.
    assert!(scheduler.wait_until_idle(LONG));
    let refused = fixture.workflows.resume(&Control::of(&run));
    assert!(
        matches!(refused, Err(WorkflowError::Rejected { .. })),
        "{refused:?}"
    );
    assert_eq!(acts.load(Ordering::SeqCst), 0);

    let effect = effects_of(&fixture, &run).remove(0);
    let receipt = Payload::json(&json!({ "output": 7, "receipt": null })).unwrap();
    effects::resolve(
        fixture.store.db(),
        Resolution {
            effect_id: effect.effect_id.clone(),
            attempt_number: effect.attempts,
            expected_revision: effect.revision,
            idempotency_key: "k".to_owned(),
            actor: person(),
            decision: Decision::Confirm {
                receipt: Some(receipt),
                external_ref: None,
            },
        },
    )
    .unwrap();
    assert_eq!(
        fixture
            .workflows
            .explain(&run)
            .unwrap()
            .blocked_by
            .as_deref(),
        Some("effectAmbiguous")
    );
    fixture.workflows.resume(&Control::of(&run)).unwrap();
    let view = fixture.workflows.wait(&run, LONG).unwrap();
    assert_eq!(
        (view.final_output, acts.load(Ordering::SeqCst)),
        (Some(json!(7)), 0)
    );
    scheduler.stop(LONG);
}

#[test]
fn another_definition_does_not_lift_the_review_of_an_effect() {
    let fixture = Fixture::new();
    let (definition, _) = counting(Recovery::Manual);
    let run = lose_a_runner(&fixture, &definition, Recovery::Manual);
    let scheduler = fixture.scheduler();
    let view = fixture.workflows.wait(&run, LONG).unwrap();
    scheduler.stop(LONG);

    let later = Workflows::new(fixture.store.db().clone());
    let longer = Workflow::new("acting")
        .start_at("act")
        .action("act", spec(Recovery::Manual), |_| Ok(0))
        .compute("after", |ctx| ctx.output::<i64>("act"))
        .edge("act", "after")
        .build()
        .unwrap();
    later.register(&longer);
    later
        .accept_definition(&run, view.run_revision, person())
        .unwrap();
    let view = later.view(&run).unwrap();
    assert_eq!(
        (view.status, view.error_code.as_deref()),
        (RunStatus::Waiting, Some("effectAmbiguous"))
    );
    assert_eq!(fixture.violations(), Vec::<String>::new());
    let refused = later.resume(&Control::of(&run));
    assert!(
        matches!(refused, Err(WorkflowError::Rejected { .. })),
        "{refused:?}"
    );

    let effect = effects_of(&fixture, &run).remove(0);
    effects::resolve(
        fixture.store.db(),
        Resolution {
            effect_id: effect.effect_id.clone(),
            attempt_number: effect.attempts,
            expected_revision: effect.revision,
            idempotency_key: "k".to_owned(),
            actor: person(),
            decision: Decision::Confirm {
                receipt: Some(Payload::json(&json!({ "output": 7, "receipt": null })).unwrap()),
                external_ref: None,
            },
        },
    )
    .unwrap();
    let scheduler = later.scheduler(SchedulerOptions::default()).unwrap();
    later.resume(&Control::of(&run)).unwrap();
    let view = later.wait(&run, LONG).unwrap();
    assert_eq!(view.final_output, Some(json!(7)));
    scheduler.stop(LONG);
}

#[test]
fn an_idempotent_act_of_a_lost_runner_is_tried_again() {
    let fixture = Fixture::new();
    let (definition, acts) = counting(Recovery::Idempotent);
    let run = lose_a_runner(&fixture, &definition, Recovery::Idempotent);
    let scheduler = fixture.scheduler();
    let view = fixture.workflows.wait(&run, LONG).unwrap();
    assert_eq!(
        (view.final_output, acts.load(Ordering::SeqCst)),
        (Some(json!(1)), 1)
    );
    let effect = &effects_of(&fixture, &run)[0];
    assert_eq!((effect.state, effect.attempts), (EffectState::Applied, 2));
    scheduler.stop(LONG);
}

#[test]
fn an_error_of_the_action_rejects_its_effect_and_fails_the_node() {
    let fixture = Fixture::new();
    let definition = Workflow::new("acting")
        .start_at("act")
        .action("act", EffectSpec::manual("test.act"), |_| {
            Err::<u8, _>(NodeError::new("no"))
        })
        .build()
        .unwrap();
    let view = fixture.run(&definition, json!(null));
    assert_eq!(view.status, RunStatus::Failed);
    assert_eq!(
        effects_of(&fixture, &view.run_id)[0].state,
        EffectState::Rejected
    );
}

#[test]
fn case_060_each_visit_of_an_action_has_its_own_effect() {
    let fixture = Fixture::new();
    let definition = Workflow::new("acting")
        .start_at("act")
        .action(
            "act",
            EffectSpec::manual("test.act").with_request(json!("same")),
            |ctx| Ok(json!({ "way": if ctx.visit < 3 { "again" } else { "end" } })),
        )
        .compute("end", |_| Ok(1))
        .switch("act", "$.way", [("again", "act"), ("end", "end")])
        .build()
        .unwrap();
    let view = fixture.run(&definition, json!(null));
    assert_eq!(view.status, RunStatus::Completed);
    assert_eq!(effects_of(&fixture, &view.run_id).len(), 3);
}

#[test]
fn case_060_another_request_under_the_key_of_a_visit_fails_the_node() {
    let fixture = Fixture::new();
    let acts = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&acts);
    let definition = Workflow::new("acting")
        .start_at("act")
        .action(
            "act",
            EffectSpec::idempotent("test.act").with_request(json!("another")),
            move |_| Ok(counter.fetch_add(1, Ordering::SeqCst)),
        )
        .build()
        .unwrap();
    let run = lose_a_runner(&fixture, &definition, Recovery::Idempotent);
    let scheduler = fixture.scheduler();
    let view = fixture.workflows.wait(&run, LONG).unwrap();
    assert_eq!(
        (view.status, acts.load(Ordering::SeqCst)),
        (RunStatus::Failed, 0)
    );
    assert!(view.error.unwrap().contains("EffectConflict"));
    scheduler.stop(LONG);
}

#[test]
fn edge_056_and_edge_012_cancel_in_the_middle_of_an_act() {
    let fixture = Fixture::new();
    let (entered, seen) = std::sync::mpsc::channel::<()>();
    let definition = Workflow::new("acting")
        .start_at("act")
        .action("act", EffectSpec::idempotent("test.act"), move |ctx| {
            entered.send(())?;
            ctx.cancellation.wait(LONG);
            Ok(1)
        })
        .build()
        .unwrap();
    let scheduler = fixture.scheduler();
    let run = fixture.workflows.run(&definition, json!(null)).unwrap();
    seen.recv_timeout(LONG).unwrap();
    fixture.workflows.cancel(&Control::of(&run)).unwrap();
    let view = fixture.workflows.view(&run).unwrap();
    assert_eq!(
        (view.status, view.ambiguous_effects),
        (RunStatus::Cancelled, 1)
    );
    assert_eq!(view.controls, [holdpoint_workflows::views::Control::Review]);
    let ended = "SELECT count(*) FROM effect_attempts WHERE outcome = 'interrupted' AND finished_at IS NOT NULL";
    assert_eq!(fixture.count(ended), 1);
    assert!(scheduler.wait_until_idle(LONG));
    // The late end of the act settles nothing, and a run with an ambiguous effect is not restarted.
    assert_eq!(effects_of(&fixture, &run)[0].state, EffectState::Ambiguous);
    let restart = Restart::new(&run, fixture.workflows.view(&run).unwrap().run_revision);
    let refused = fixture.workflows.restart(&restart);
    assert!(
        matches!(refused, Err(WorkflowError::Rejected { .. })),
        "{refused:?}"
    );
    scheduler.stop(LONG);
}

#[test]
fn a_time_limit_in_the_middle_of_an_act_is_recovered_by_its_policy() {
    for (recovery, status) in [
        (Recovery::Idempotent, DisplayStatus::TimedOut),
        (Recovery::Manual, DisplayStatus::Ambiguous),
    ] {
        let fixture = Fixture::new();
        let (entered, seen) = std::sync::mpsc::channel::<()>();
        let definition = Workflow::new("acting")
            .start_at("act")
            .action("act", spec(recovery), move |ctx| {
                entered.send(())?;
                ctx.cancellation.wait(LONG);
                ctx.cancellation.check()?;
                Ok(1)
            })
            .timeout(Timeout::millis(1_000))
            .build()
            .unwrap();
        let scheduler = fixture.scheduler();
        let run = fixture.workflows.run(&definition, json!(null)).unwrap();
        seen.recv_timeout(LONG).unwrap();
        fixture.store.clock().advance(1_001);
        let view = fixture.workflows.wait(&run, LONG).unwrap();
        assert_eq!(view.display_status, status, "{recovery:?}");
        scheduler.stop(LONG);
    }
}

#[test]
fn edge_030_a_shell_action_leaves_its_receipt_also_when_it_fails() {
    let fixture = Fixture::new();
    let shell = |script: &'static str| {
        Workflow::new("shell")
            .start_at("sh")
            .shell("sh", EffectSpec::idempotent("test.sh"), move |_| {
                Ok(ShellCommand::new("sh").args(["-c", script]))
            })
            .parse(|_, result| Ok(result.stdout.trim().to_owned()))
            .build()
            .unwrap()
    };
    let view = fixture.run(&shell("echo hello"), json!(null));
    assert_eq!(view.final_output, Some(json!("hello")));
    let view = fixture.run(&shell("exit 3"), json!(null));
    assert_eq!(view.status, RunStatus::Failed);
    let receipt = view.steps[0].receipt.clone().unwrap_or(Value::Null);
    assert_eq!(
        (&receipt["actionType"], &receipt["exitCode"]),
        (&json!("shell"), &json!(3))
    );
    let missing = Workflow::new("shell")
        .start_at("sh")
        .shell("sh", EffectSpec::manual("test.sh"), |_| {
            Ok(ShellCommand::new("/does/not/exist"))
        })
        .build()
        .unwrap();
    let view = fixture.run(&missing, json!(null));
    assert_eq!(view.status, RunStatus::Failed);
    assert!(view.steps[0].receipt.is_some());
}
