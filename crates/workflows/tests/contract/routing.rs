//! How outcomes lead a run on, and how it ends.

use holdpoint_workflows::commands::{Answer, Control};
use holdpoint_workflows::definition::{Definition, NodeError, Timeout, Workflow};
use holdpoint_workflows::model::RunStatus;
use serde_json::{Value, json};

use crate::support::{Fixture, LONG};

/// `first` gives `value`, then a switch on `on` leads to `yes` or `no`.
fn switching(value: Value, on: &str, cases: &[(&str, &str)]) -> Definition {
    let mut workflow = Workflow::new("switching")
        .start_at("first")
        .compute("first", move |_| Ok(value.clone()))
        .switch("first", on, cases.iter().copied());
    for (_, node) in cases {
        let name = (*node).to_owned();
        workflow = workflow.compute(*node, move |_| Ok(name.clone()));
    }
    workflow.build().unwrap()
}

#[test]
fn edge_017_a_switch_on_a_missing_field_or_an_object_fails_the_run() {
    let fixture = Fixture::new();
    for value in [json!({}), json!({ "x": {} })] {
        let view = fixture.run(&switching(value, "$.x", &[("a", "yes")]), json!(null));
        assert_eq!(view.status, RunStatus::Failed);
        assert!(
            view.error
                .unwrap()
                .contains("needs a string, number or boolean")
        );
    }
}

#[test]
fn edge_013_a_value_that_objects_inherit_selects_no_case() {
    let fixture = Fixture::new();
    for value in ["toString", "constructor", "__proto__"] {
        let view = fixture.run(
            &switching(json!({ "x": value }), "$.x", &[("a", "yes")]),
            json!(null),
        );
        assert_eq!(view.status, RunStatus::Failed);
        let error = view.error.unwrap();
        assert!(
            error.contains(&format!("has no case for \"{value}\"")),
            "{error}"
        );
    }
}

#[test]
fn edge_018_numbers_and_booleans_select_cases_as_json_prints_them() {
    let fixture = Fixture::new();
    for (value, case) in [(json!(1.0), "1"), (json!(true), "true"), (json!("x"), "x")] {
        let view = fixture.run(
            &switching(json!({ "n": value }), "$output.n", &[(case, "yes")]),
            json!(null),
        );
        assert_eq!(view.final_output, Some(json!("yes")), "{case}");
    }
}

#[test]
fn edge_019_a_failing_node_is_caught_by_a_switch_on_its_result_only() {
    let fixture = Fixture::new();
    let failing = |workflow: Workflow| {
        workflow
            .start_at("fail")
            .compute("fail", |_| Err::<u8, _>(NodeError::new("no")))
            .compute("next", |_| Ok("caught"))
    };
    let plain = failing(Workflow::new("w"))
        .edge("fail", "next")
        .build()
        .unwrap();
    assert_eq!(fixture.run(&plain, json!(null)).status, RunStatus::Failed);

    let caught = failing(Workflow::new("w"))
        .switch("fail", "$result.outcome", [("failed", "next")])
        .build()
        .unwrap();
    let view = fixture.run(&caught, json!(null));
    assert_eq!(view.final_output, Some(json!("caught")));
    assert_eq!(view.steps[0].result.error.as_deref(), Some("Error: no"));

    let uncaught = failing(Workflow::new("w"))
        .switch("fail", "$result.outcome", [("ok", "next")])
        .build()
        .unwrap();
    let view = fixture.run(&uncaught, json!(null));
    assert!(view.error.unwrap().contains("has no case for \"failed\""));
}

#[test]
fn edge_020_a_node_without_time_left_ends_the_run_timed_out() {
    let fixture = Fixture::new();
    let (entered, seen) = std::sync::mpsc::channel::<()>();
    let definition = Workflow::new("slow")
        .start_at("slow")
        .compute("slow", move |ctx| {
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
    // The budget runs before the node does: only then may the clock be turned.
    seen.recv_timeout(LONG).unwrap();
    fixture.store.clock().advance(1_001);
    let view = fixture.workflows.wait(&run, LONG).unwrap();
    assert_eq!(
        (view.status, view.queue_status.as_str()),
        (RunStatus::TimedOut, "failed")
    );
    assert_eq!(view.error_code.as_deref(), Some("timed_out"));
    scheduler.stop(LONG);
}

#[test]
fn a_deaf_node_is_left_behind_and_its_late_value_is_dropped() {
    let fixture = Fixture::new();
    let (release, held) = std::sync::mpsc::channel::<()>();
    let held = std::sync::Mutex::new(held);
    let (entered, seen) = std::sync::mpsc::channel::<()>();
    let definition = Workflow::new("deaf")
        .start_at("deaf")
        .compute("deaf", move |_| {
            entered.send(())?;
            Ok(held.lock().unwrap().recv().is_ok())
        })
        .timeout(Timeout::millis(1_000))
        .switch("deaf", "$result.outcome", [("timed_out", "after")])
        .compute("after", |ctx| Ok(ctx.outputs.len()))
        .build()
        .unwrap();
    let scheduler = fixture.scheduler();
    let run = fixture.workflows.run(&definition, json!(null)).unwrap();
    seen.recv_timeout(LONG).unwrap();
    fixture.store.clock().advance(1_001);
    let view = fixture.workflows.wait(&run, LONG).unwrap();
    assert_eq!(view.final_output, Some(json!(0)));
    drop(release);
    scheduler.stop(LONG);
}

#[test]
fn edge_021_a_failed_visit_removes_the_earlier_output_until_the_next_success() {
    let fixture = Fixture::new();
    let definition = Workflow::new("again")
        .start_at("n")
        .compute("n", |ctx| match ctx.visit {
            2 => Err(NodeError::new("second")),
            visit => Ok(visit),
        })
        .compute("look", |ctx| Ok(ctx.outputs.contains_key("n")))
        .compute("end", |ctx| {
            Ok(json!([
                ctx.output::<bool>("look")?,
                ctx.output::<u32>("n")?
            ]))
        })
        .compute("check", |ctx| {
            Ok(json!({ "way": if ctx.visit == 1 { "again" } else { "end" } }))
        })
        .switch(
            "n",
            "$result.outcome",
            [("ok", "check"), ("failed", "look")],
        )
        .switch("check", "$.way", [("again", "n"), ("end", "end")])
        .edge("look", "n")
        .build()
        .unwrap();
    let view = fixture.run(&definition, json!(null));
    assert_eq!(
        view.final_output,
        Some(json!([false, 3])),
        "{:?}",
        view.error
    );
}

#[test]
fn edge_022_the_step_after_the_limit_fails_the_run() {
    let fixture = Fixture::new();
    let definition = Workflow::new("loop")
        .start_at("n")
        .max_steps(3)
        .compute("n", |ctx| Ok(ctx.visit))
        .edge("n", "n")
        .build()
        .unwrap();
    let view = fixture.run(&definition, json!(null));
    assert_eq!((view.status, view.steps.len()), (RunStatus::Failed, 3));
    assert!(view.error.unwrap().contains("limit of 3 steps"));
}

#[test]
fn edge_023_an_answered_checkpoint_counts_as_one_step_each_time() {
    let fixture = Fixture::new();
    let definition = Workflow::new("loop")
        .start_at("ask")
        .max_steps(3)
        .checkpoint("ask")
        .edge("ask", "ask")
        .build()
        .unwrap();
    let scheduler = fixture.scheduler();
    let run = fixture.workflows.run(&definition, json!(null)).unwrap();
    for turn in 0..3 {
        let view = fixture.workflows.wait(&run, LONG).unwrap();
        assert_eq!((view.status, view.steps.len()), (RunStatus::Waiting, turn));
        fixture
            .workflows
            .answer(&Answer::new(&run, json!(turn)))
            .unwrap();
        fixture
            .workflows
            .wait_for(&run, LONG, |view| turn < view.steps.len())
            .unwrap();
    }
    let view = fixture.workflows.wait(&run, LONG).unwrap();
    assert_eq!((view.status, view.steps.len()), (RunStatus::Failed, 3));
    scheduler.stop(LONG);
}

#[test]
fn edge_027_an_output_that_json_would_lose_fails_the_node() {
    let fixture = Fixture::new();
    let definition = Workflow::new("w")
        .start_at("n")
        .compute("n", |_| Ok(std::collections::BTreeMap::from([((1, 2), 3)])))
        .build()
        .unwrap();
    assert_eq!(
        fixture.run(&definition, json!(null)).status,
        RunStatus::Failed
    );
    let inexact = Workflow::new("w")
        .start_at("n")
        .compute("n", |_| Ok(9_007_199_254_740_993_u64))
        .build()
        .unwrap();
    let view = fixture.run(&inexact, json!(null));
    assert_eq!(view.status, RunStatus::Failed);
    let error = view.error.unwrap();
    assert!(error.contains("9007199254740993"), "{error}");
    let nothing = Workflow::new("w")
        .start_at("n")
        .compute("n", |_| Ok(()))
        .build()
        .unwrap();
    assert_eq!(
        fixture.run(&nothing, json!(null)).final_output,
        Some(json!(null))
    );
}

#[test]
fn edge_028_a_hung_title_fails_the_run_and_a_cancel_ends_it_at_once() {
    let fixture = Fixture::new();
    let (release, held) = std::sync::mpsc::channel::<()>();
    let held = std::sync::Mutex::new(held);
    let (entered, seen) = std::sync::mpsc::channel::<()>();
    let definition = Workflow::new("w")
        .title_with(move |_| {
            entered.send(())?;
            let _end = held.lock().unwrap().recv();
            Ok("late".to_owned())
        })
        .start_at("n")
        .compute("n", |_| Ok(1))
        .build()
        .unwrap();
    let scheduler = fixture.scheduler();
    let run = fixture.workflows.run(&definition, json!(null)).unwrap();
    seen.recv_timeout(LONG).unwrap();
    fixture.store.clock().advance(30_001);
    let view = fixture.workflows.wait(&run, LONG).unwrap();
    assert_eq!(view.status, RunStatus::Failed);
    assert!(view.error.unwrap().starts_with("title: "));

    let second = fixture.workflows.run(&definition, json!(2)).unwrap();
    // In the middle of its title.
    seen.recv_timeout(LONG).unwrap();
    fixture.workflows.cancel(&Control::of(&second)).unwrap();
    assert_eq!(
        fixture.workflows.view(&second).unwrap().status,
        RunStatus::Cancelled
    );
    drop(release);
    scheduler.stop(LONG);
}

#[test]
fn a_panic_fails_its_node_and_nobody_else() {
    let fixture = Fixture::new();
    let definition = Workflow::new("w")
        .start_at("n")
        .compute("n", |_| -> Result<u8, NodeError> { panic!("on purpose") })
        .switch("n", "$result.outcome", [("failed", "after")])
        .compute("after", |ctx| {
            Ok(ctx.result("n").and_then(|result| result.error.clone()))
        })
        .build()
        .unwrap();
    let view = fixture.run(&definition, json!(null));
    assert_eq!(view.final_output, Some(json!("Panic: on purpose")));
}

#[test]
fn a_computed_time_budget_is_saved_with_the_attempt() {
    use holdpoint_workflows::definition::TimeBudget;
    let fixture = Fixture::new();
    let definition = Workflow::new("w")
        .start_at("n")
        .compute("n", |_| Ok(1))
        .timeout_with(|_| Ok(TimeBudget::Millis(1_234.5)))
        .edge("n", "m")
        .compute("m", |_| Ok(2))
        .timeout_with(|_| Ok(TimeBudget::Millis(-1.0)))
        .build()
        .unwrap();
    let view = fixture.run(&definition, json!(null));
    assert_eq!(view.status, RunStatus::Failed);
    assert!(view.error.unwrap().contains("finite positive"));
    assert_eq!(
        fixture.count("SELECT count(*) FROM node_attempts WHERE timeout_ms = 1234.5"),
        1
    );
}
