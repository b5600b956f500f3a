//! Settings of included workflows: one scope for each invocation.

use holdpoint_state::ActorKind;
use holdpoint_workflows::commands::{Answer, SettingsChange};
use holdpoint_workflows::definition::{Definition, Workflow};
use holdpoint_workflows::model::RequestStatus;
use holdpoint_workflows::settings::{PathRule, Settings};
use holdpoint_workflows::{NodeId, ScopeId, WorkflowError};
use serde_json::{Value, json};

use super::{Limits, batch, change, limits, waiting};
use crate::support::{Fixture, LONG};

/// Enters a workflow with settings twice, with settings made of its own.
fn parent() -> Definition {
    let child = Workflow::new("child")
        .settings(limits())
        .start_at("work")
        .compute("work", |ctx| ctx.settings::<Limits>())
        .checkpoint("pause")
        .compute("end", |ctx| Ok(ctx.settings::<Limits>()?.batch))
        .edge("work", "pause")
        .edge("pause", "end")
        .exit("done", "end")
        .build()
        .unwrap();
    Workflow::new("parent")
        .settings(Settings::new(7_u32).path(PathRule::new("").may_replace(ActorKind::ALL)))
        .start_at("begin")
        .compute("begin", |ctx| ctx.settings::<u32>())
        .include("part", &child)
        .settings_map(|ctx| {
            Ok(Limits {
                batch: ctx.settings::<u32>()? + ctx.visit,
                tags: Vec::new(),
            })
        })
        .compute("again", |ctx| Ok(json!({ "more": ctx.visit < 2 })))
        .compute("finish", |ctx| ctx.settings::<u32>())
        .edge("begin", "part")
        .edge("part.done", "again")
        .switch("again", "$.more", [("true", "part"), ("false", "finish")])
        .build()
        .unwrap()
}

/// Each invocation of an included workflow has settings of its own, which its parent may have made.
#[test]
fn each_invocation_of_an_included_workflow_has_its_scope() {
    let fixture = Fixture::new();
    let run = waiting(&fixture, &parent());
    let scopes = |fixture: &Fixture| -> Vec<(String, u64, Value)> {
        let scopes = fixture.workflows.settings(&run).unwrap();
        scopes
            .into_iter()
            .map(|scope| {
                let id = scope.scope_id.as_str().replace(run.as_str(), "RUN");
                (id, scope.change_number, scope.value)
            })
            .collect()
    };
    let of = |batch: u32| json!({ "batch": batch, "tags": [] });
    let [root, part] = ["RUN:$root:1", "RUN:part:1"].map(str::to_owned);
    assert_eq!(
        scopes(&fixture),
        [(root.clone(), 0, json!(7)), (part.clone(), 0, of(8))]
    );
    // With two scopes one has to be named, and each has rules, numbers and requests of its own.
    let refused = fixture.workflows.change_settings(&batch(&run, 1));
    assert!(
        matches!(&refused, Err(WorkflowError::Input { problem, .. }) if problem.contains(":part:1")),
        "{refused:?}"
    );
    let in_part = batch(&run, 50)
        .in_scope(ScopeId::new(format!("{run}:part:1")).unwrap())
        .request("r-1");
    assert_eq!(change(&fixture.workflows, &in_part).change_number, 1);
    let whole = json!([{ "op": "replace", "path": "", "value": 30 }]);
    let in_root = SettingsChange::new(&run, whole)
        .in_scope(format!("{run}:$root:1"))
        .request("r-1");
    assert_eq!(change(&fixture.workflows, &in_root).change_number, 1);

    let scheduler = fixture.scheduler();
    let answer = Answer::new(&run, json!(1)).key("first");
    fixture.workflows.answer(&answer).unwrap();
    let view = fixture
        .workflows
        .wait_for(&run, LONG, |view| {
            view.settings.len() == 3
                && view
                    .request
                    .as_ref()
                    .is_some_and(|request| request.status == RequestStatus::Pending)
        })
        .unwrap();
    assert_eq!(view.outputs[&NodeId::new("part/work").unwrap()], of(32));
    let answer = Answer::new(&run, json!(2)).key("second");
    fixture.workflows.answer(&answer).unwrap();
    let view = fixture
        .workflows
        .wait_for(&run, LONG, |view| view.status.is_terminal())
        .unwrap();
    scheduler.stop(LONG);
    assert_eq!(view.final_output, Some(json!(30)), "{:?}", view.error);
    assert_eq!(
        scopes(&fixture),
        [
            (root, 1, json!(30)),
            (part, 1, of(50)),
            ("RUN:part:2".to_owned(), 0, of(32))
        ]
    );
    // Each step read the settings of its own workflow.
    let read: Vec<String> = view
        .steps
        .iter()
        .map(|step| {
            let read = step.settings.as_ref().map(|read| {
                let scope = read.scope_id.as_str().replace(run.as_str(), "RUN");
                format!("{scope} {}", read.change_number)
            });
            format!("{} {}", step.result.node_id, read.unwrap_or_default())
        })
        .collect();
    insta::assert_snapshot!(read.join("\n"));
}
