//! K11 to K13: a child's run is one run, and its end is told once.

use std::time::Duration;

use holdpoint_controllers::ControllerError;
use holdpoint_controllers::commands::{self, Finished, PassClaim, children};
use holdpoint_controllers::model::{
    ChildRecord, ChildRequest, ChildState, Completion, Next, RequestKey,
};
use holdpoint_controllers::views;
use holdpoint_state::{ActorKind, Disposition, Receipt};
use holdpoint_workflows::commands::{Answer, Control, Start};
use holdpoint_workflows::definition::{Definition, Workflow};
use holdpoint_workflows::model::RunStatus;
use holdpoint_workflows::settings::{PathRule, Settings};
use holdpoint_workflows::{RunId, SchedulerOptions, Workflows};
use serde_json::{Value, json};

use crate::support::{Result, World, ann, target};

const LONG: Duration = Duration::from_mins(1);

fn key() -> RequestKey {
    RequestKey::new("build").unwrap()
}

fn request(workflow: &str, input: Value) -> ChildRequest {
    ChildRequest {
        request_key: key(),
        workflow: workflow.to_owned(),
        input,
    }
}

pub(crate) fn job() -> ChildRequest {
    request("job", json!({ "n": 1 }))
}

pub(crate) fn job_definition() -> Definition {
    Workflow::new("job")
        .start_at("end")
        .compute("end", |_| Ok(json!("done")))
        .build()
        .unwrap()
}

pub(crate) fn gate_definition() -> Definition {
    Workflow::new("gate")
        .start_at("gate")
        .checkpoint("gate")
        .edge("gate", "end")
        .compute("end", |_| Ok(json!("done")))
        .build()
        .unwrap()
}

/// A world with a program that runs workflows.
pub(crate) struct Runs {
    pub(crate) world: World,
    pub(crate) workflows: Workflows,
}

impl Runs {
    pub(crate) fn new() -> Result<Self> {
        let world = World::with(json!(1))?;
        let workflows = Workflows::new(world.db().clone());
        Ok(Self { world, workflows })
    }

    pub(crate) fn start(&self, definition: &Definition, child: &ChildRecord) -> Result<RunId> {
        let start = Start::new(definition, json!({ "n": 1 }))
            .run_id(child.reserved_run_id.clone().unwrap());
        Ok(self.workflows.start(&start)?.value)
    }

    /// Lets the runs go on until `run` waits or is over.
    pub(crate) fn go_on(&self, run: &RunId) -> Result<RunStatus> {
        let scheduler = self.workflows.scheduler(SchedulerOptions::default())?;
        let status = self.workflows.wait(run, LONG)?.status;
        scheduler.stop(LONG);
        Ok(status)
    }

    pub(crate) fn child(&self) -> Result<ChildRecord> {
        let children = views::children(&self.world.db().snapshot()?, &self.world.uid()?)?;
        Ok(children.into_iter().next().ok_or("no child")?)
    }

    /// A pass that asks for the child and starts its run.
    pub(crate) fn launched(
        &self,
        definition: &Definition,
        request: &ChildRequest,
    ) -> Result<(PassClaim, RunId)> {
        let claim = self.world.claim()?;
        let child = children::reserve(self.world.db(), &claim, request)?;
        let run = self.start(definition, &child)?;
        children::link(self.world.db(), &claim, &request.request_key)?;
        Ok((claim, run))
    }
}

fn told(
    world: &World,
    child: &ChildRecord,
    state: ChildState,
) -> std::result::Result<Option<Receipt<ChildRecord>>, ControllerError> {
    let completion = Completion {
        request_id: child.request_id.clone(),
        run_id: child.reserved_run_id.clone().unwrap(),
        state,
        error: None,
    };
    commands::child_completed(world.db(), &completion)
}

#[test]
fn a_child_runs_and_its_end_wakes_its_resource() -> Result {
    let runs = Runs::new()?;
    let (claim, run) = runs.launched(&job_definition(), &job())?;
    let linked = runs.child()?;
    assert_eq!(
        (linked.state, linked.run_id.as_ref(), linked.attempt),
        (ChildState::Running, Some(&run), 1)
    );
    assert_eq!(runs.world.finish(&claim, Next::Settled)?, Finished::Settled);
    assert_eq!(runs.world.queue()?, None);
    assert_eq!(runs.go_on(&run)?, RunStatus::Completed);
    assert_eq!(runs.child()?.state, ChildState::Succeeded);
    assert!(runs.world.queue()?.is_some());
    let claim = runs.world.claim()?;
    let again = children::reserve(runs.world.db(), &claim, &job())?;
    assert_eq!(
        (again.state, again.is_to_be_started()),
        (ChildState::Succeeded, false)
    );
    assert_eq!(runs.world.finish(&claim, Next::Settled)?, Finished::Settled);
    assert_eq!(
        runs.world.events(&runs.world.uid()?)?,
        [
            "resource.created",
            "lease.claimed",
            "workflow_requested",
            "workflow_state_changed",
            "reconcile_finished",
            "workflow_state_changed",
            "lease.claimed",
            "reconcile_finished"
        ]
    );
    runs.world.check()
}

#[test]
fn controller_10_a_child_that_ends_during_a_pass_of_its_parent_is_a_conflict() -> Result {
    let runs = Runs::new()?;
    let (claim, run) = runs.launched(&job_definition(), &job())?;
    assert_eq!(runs.go_on(&run)?, RunStatus::Completed);
    assert_eq!(
        runs.world.finish(&claim, Next::Settled)?,
        Finished::Conflict
    );
    let next = runs.world.claim()?;
    assert_eq!(next.consecutive_errors(), 0);
    assert_eq!(
        children::reserve(runs.world.db(), &next, &job())?.state,
        ChildState::Succeeded
    );
    assert_eq!(runs.world.finish(&next, Next::Settled)?, Finished::Settled);
    runs.world.check()
}

#[test]
fn controller_29_the_same_key_for_another_child_is_a_conflict() -> Result {
    let runs = Runs::new()?;
    let claim = runs.world.claim()?;
    children::reserve(runs.world.db(), &claim, &job())?;
    let version = runs.world.version()?;
    for (other, differs) in [
        (request("job", json!({ "n": 2 })), "input"),
        (request("other", json!({ "n": 1 })), "workflow"),
    ] {
        let refused = children::reserve(runs.world.db(), &claim, &other);
        assert!(
            matches!(refused, Err(ControllerError::RequestConflict { what: "child", difference, .. }) if difference == differs),
            "{refused:?}"
        );
    }
    assert_eq!(runs.world.version()?, version);
    runs.world.check()
}

#[test]
fn controller_30_a_crash_before_the_start_leaves_the_same_run() -> Result {
    let runs = Runs::new()?;
    let claim = runs.world.claim()?;
    let first = children::reserve(runs.world.db(), &claim, &job())?;
    assert!(first.is_to_be_started());
    // The process is gone; and once more, after the run was started and before it was linked.
    runs.world.advance(120_000);
    let claim = runs.world.claim()?;
    assert_eq!(children::link(runs.world.db(), &claim, &key())?, first);
    let second = children::reserve(runs.world.db(), &claim, &job())?;
    assert_eq!(second, first);
    let run = runs.start(&job_definition(), &second)?;
    runs.world.advance(120_000);
    let claim = runs.world.claim()?;
    let third = children::reserve(runs.world.db(), &claim, &job())?;
    assert_eq!(third.reserved_run_id.as_ref(), Some(&run));
    assert_eq!(runs.start(&job_definition(), &third)?, run);
    assert_eq!(
        children::link(runs.world.db(), &claim, &key())?.run_id,
        Some(run)
    );
    assert_eq!(
        runs.workflows
            .list(&holdpoint_workflows::views::Filter::default())?
            .runs
            .len(),
        1
    );
    assert_eq!(runs.world.finish(&claim, Next::Settled)?, Finished::Settled);
    runs.world.check()
}

#[test]
fn controller_31_an_interrupted_child_gets_another_run() -> Result {
    let runs = Runs::new()?;
    let (claim, run) = runs.launched(&gate_definition(), &job())?;
    runs.world.finish(&claim, Next::Settled)?;
    let child = runs.child()?;
    told(&runs.world, &child, ChildState::Interrupted)?;
    let claim = runs.world.claim()?;
    let second = children::reserve(runs.world.db(), &claim, &job())?;
    assert_eq!(
        (second.attempt, second.state, &second.request_id),
        (2, ChildState::Pending, &child.request_id)
    );
    assert_ne!(second.reserved_run_id.as_ref(), Some(&run));
    assert_eq!(second.run_id, None);
    let other = runs.start(&gate_definition(), &second)?;
    children::link(runs.world.db(), &claim, &key())?;
    assert_eq!(runs.world.finish(&claim, Next::Settled)?, Finished::Settled);
    // The first run is nobody's child any more: its history stays, and what becomes of it is told to nobody.
    let version = runs.world.version()?;
    runs.workflows.cancel(&Control::of(&run))?;
    assert_eq!(
        (runs.world.version()?, runs.child()?.run_id),
        (version, Some(other))
    );
    assert_eq!(runs.workflows.view(&run)?.status, RunStatus::Cancelled);
    runs.world.check()
}

#[test]
fn controller_32_a_completion_of_a_foreign_run_is_refused() -> Result {
    let runs = Runs::new()?;
    let claim = runs.world.claim()?;
    let child = children::reserve(runs.world.db(), &claim, &job())?;
    let before = (runs.world.version()?, runs.child()?);
    let foreign = Completion {
        request_id: child.request_id.clone(),
        run_id: RunId::new("child-of-somebody-else")?,
        state: ChildState::Succeeded,
        error: None,
    };
    assert!(matches!(
        commands::child_completed(runs.world.db(), &foreign),
        Err(ControllerError::Completion { .. })
    ));
    assert_eq!((runs.world.version()?, runs.child()?), before);
    runs.world.check()
}

#[test]
fn controller_33_a_completion_is_told_once() -> Result {
    let runs = Runs::new()?;
    let claim = runs.world.claim()?;
    let child = children::reserve(runs.world.db(), &claim, &job())?;
    runs.world.finish(&claim, Next::Settled)?;
    let first = told(&runs.world, &child, ChildState::Failed)?.unwrap();
    assert_eq!(first.disposition, Disposition::Accepted);
    let queue = runs.world.queue()?;
    let second = told(&runs.world, &child, ChildState::Failed)?.unwrap();
    assert_eq!(
        (second.disposition, second.revision),
        (Disposition::Adopted, first.revision)
    );
    assert_eq!(runs.world.queue()?, queue);
    // And it is final.
    assert!(matches!(
        told(&runs.world, &child, ChildState::Succeeded),
        Err(ControllerError::Completion { .. })
    ));
    runs.world.check()
}

#[test]
fn controller_34_running_is_no_completion() -> Result {
    let runs = Runs::new()?;
    let claim = runs.world.claim()?;
    let child = children::reserve(runs.world.db(), &claim, &job())?;
    for state in [ChildState::Running, ChildState::Pending] {
        assert!(matches!(
            told(&runs.world, &child, state),
            Err(ControllerError::Completion { .. })
        ));
    }
    assert_eq!(runs.child()?, child);
    runs.world.check()
}

#[test]
fn controller_35_a_child_that_waits_is_told_and_then_its_end() -> Result {
    let runs = Runs::new()?;
    let (claim, run) = runs.launched(&gate_definition(), &job())?;
    runs.world.finish(&claim, Next::Settled)?;
    assert_eq!(runs.go_on(&run)?, RunStatus::Waiting);
    assert_eq!(runs.child()?.state, ChildState::Waiting);
    let explained = views::explain(
        &runs.world.db().snapshot()?,
        &target(),
        &[target().controller],
        runs.world.now(),
    )?
    .unwrap();
    assert!(
        matches!(
            explained.blockers.as_slice(),
            [views::Blocker::WaitingChild { .. }]
        ),
        "{:?}",
        explained.blockers
    );
    // Its parent was woken, and sees it.
    let claim = runs.world.claim()?;
    assert_eq!(
        children::reserve(runs.world.db(), &claim, &job())?.state,
        ChildState::Waiting
    );
    assert_eq!(runs.world.finish(&claim, Next::Settled)?, Finished::Settled);
    runs.workflows.answer(&Answer::new(&run, json!("yes")))?;
    assert_eq!(runs.go_on(&run)?, RunStatus::Completed);
    assert_eq!(runs.child()?.state, ChildState::Succeeded);
    assert!(runs.world.try_claim()?.is_some());
    runs.world.check()
}

#[test]
fn a_cancelled_run_is_a_failed_child() -> Result {
    let runs = Runs::new()?;
    let (claim, run) = runs.launched(&job_definition(), &job())?;
    runs.world.finish(&claim, Next::Settled)?;
    runs.workflows.cancel(&Control::of(&run))?;
    let child = runs.child()?;
    assert_eq!(
        (child.state, child.error.as_deref()),
        (ChildState::Failed, Some("the run ended as cancelled"))
    );
    assert!(runs.world.queue()?.is_some());
    runs.world.check()
}

#[test]
fn a_run_whose_parent_is_gone_ends_all_the_same() -> Result {
    let runs = Runs::new()?;
    let (claim, run) = runs.launched(&job_definition(), &job())?;
    let child = runs.child()?;
    runs.world.finish(&claim, Next::Settled)?;
    commands::request_deletion(runs.world.db(), &target(), ann())?;
    assert_eq!(runs.world.pass()?, Finished::Deleted);
    assert_eq!(runs.go_on(&run)?, RunStatus::Completed);
    assert_eq!(told(&runs.world, &child, ChildState::Succeeded)?, None);
    runs.world.check()
}

#[test]
fn a_pass_that_does_not_know_of_the_deletion_asks_for_no_child() -> Result {
    let runs = Runs::new()?;
    let claim = runs.world.claim()?;
    commands::request_deletion(runs.world.db(), &target(), ann())?;
    assert!(matches!(
        children::reserve(runs.world.db(), &claim, &job()),
        Err(ControllerError::DeletedMeanwhile { .. })
    ));
    runs.world.finish(&claim, Next::Settled)?;
    let claim = runs.world.claim()?;
    assert!(children::reserve(runs.world.db(), &claim, &job()).is_ok());
    runs.world.check()
}

#[test]
fn wishes_of_a_child_have_their_own_names() -> Result {
    let runs = Runs::new()?;
    let (claim, _) = runs.launched(&gate_definition(), &job())?;
    let blank = children::queue_follow_up(runs.world.db(), &claim, &key(), "look", " ");
    assert!(matches!(blank, Err(ControllerError::Invalid(_))));
    let nobody = children::queue_follow_up(
        runs.world.db(),
        &claim,
        &RequestKey::new("other")?,
        "look",
        "one",
    );
    assert!(matches!(nobody, Err(ControllerError::NoChild(_))));
    // A headless run has no session to show it to.
    let headless = children::queue_follow_up(runs.world.db(), &claim, &key(), "look", "one");
    assert!(
        matches!(headless, Err(ControllerError::Workflow(_))),
        "{headless:?}"
    );
    runs.world.advance(120_000);
    let late =
        children::queue_follow_up(runs.world.db(), &claim, &key(), "look", "one").unwrap_err();
    assert!(late.claim_lost().is_some());
    runs.world.check()
}

#[test]
fn a_wish_of_a_child_that_is_repeated_by_the_next_pass_meets_the_first() -> Result {
    let runs = Runs::new()?;
    let definition = Workflow::new("gate")
        .settings(
            Settings::new(7_u32).path(PathRule::new("").may_replace(&[ActorKind::Controller])),
        )
        .start_at("gate")
        .checkpoint("gate")
        .build()?;
    let claim = runs.world.claim()?;
    let child = children::reserve(runs.world.db(), &claim, &job())?;
    let start = Start::new(&definition, json!({ "n": 1 }))
        .run_id(child.reserved_run_id.clone().unwrap())
        .in_session("session-1");
    let run = runs.workflows.start(&start)?.value;
    children::link(runs.world.db(), &claim, &key())?;
    runs.world.finish(&claim, Next::Settled)?;
    assert_eq!(runs.go_on(&run)?, RunStatus::Waiting);
    let patch = || json!([{ "op": "replace", "path": "", "value": 9 }]);
    let mut seen = Vec::new();
    for expected in [Disposition::Accepted, Disposition::Adopted] {
        let claim = runs.world.claim()?;
        let db = runs.world.db();
        let changed =
            children::change_settings(db, &claim, &key(), &definition, patch(), "faster")?;
        let queued = children::queue_follow_up(db, &claim, &key(), "look at it", "look")?;
        assert_eq!(
            (changed.disposition, queued.disposition),
            (expected, expected)
        );
        assert_eq!(
            changed.value.request_id,
            format!("resourceManager:{}:faster", claim.uid())
        );
        seen.push((changed.value.change_id, queued.value.follow_up_id.clone()));
        if expected == Disposition::Adopted {
            children::remove_follow_up(db, &claim, &key(), &queued.value.follow_up_id)?;
            let again = children::remove_follow_up(db, &claim, &key(), &queued.value.follow_up_id)?;
            assert_eq!(again.disposition, Disposition::Adopted);
        }
        assert_eq!(
            runs.world
                .finish(&claim, Next::Requeue { after_ms: None })?,
            Finished::Requeued {
                at: runs.world.now()
            }
        );
    }
    assert_eq!(seen[0], seen[1]);
    runs.world.check()
}
