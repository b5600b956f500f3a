//! What `verify` finds: each invariant, broken as only another program could, past the kernel and the checks of the schema; and what the
//! duty mends.

use holdpoint_controllers::commands::{self, Finished, PassEnd, children, effects};
use holdpoint_controllers::duty::{ControllerDuty, tell_of_ended_children};
use holdpoint_controllers::model::{
    ChildRequest, ConditionInput, EffectKey, EffectRequest, Next, RequestKey, StatusPatch,
};
use holdpoint_controllers::{DOMAIN, views};
use holdpoint_state::testing::plain;
use holdpoint_workflows::Duty as _;
use holdpoint_workflows::model::RunStatus;
use serde_json::json;

use crate::children::{Runs, gate_definition, job, job_definition};
use crate::support::{Result, ann, finalizer, named};

const DAMAGES: &[(&str, &str)] = &[
    (
        "P1",
        "UPDATE resources SET resource_type = 'run' WHERE resource_type = 'controller'",
    ),
    (
        "P1",
        "DELETE FROM resources WHERE resource_type = 'controller'",
    ),
    (
        "P2",
        "UPDATE leases SET token_hash = NULL WHERE owner_id IS NOT NULL",
    ),
    (
        "P2",
        "UPDATE leases SET owner_type = 'session' WHERE owner_id IS NOT NULL",
    ),
    (
        "P3",
        "UPDATE resources SET revision = revision + 1 WHERE resource_type = 'controller'",
    ),
    (
        "P3",
        "DELETE FROM events WHERE event_type = 'resource.created'",
    ),
    (
        "P4",
        "UPDATE controller_resources SET spec_generation = spec_generation + 1",
    ),
    (
        "P4",
        "DELETE FROM events WHERE event_type = 'resource.spec_updated'",
    ),
    ("P5", "UPDATE leases SET generation = generation + 1"),
    ("P5", "DELETE FROM leases"),
    ("P6", "DELETE FROM controller_queue"),
    (
        "P7",
        "DELETE FROM controller_queue; DELETE FROM controller_finalizers",
    ),
    (
        "P8",
        "UPDATE controller_workflows SET reserved_run_id = NULL",
    ),
    ("P8", "UPDATE controller_workflows SET attempt_count = 0"),
    (
        "P8",
        "UPDATE controller_workflows SET reserved_run_id = 'x' || child_key",
    ),
    (
        "P8",
        "UPDATE controller_workflows SET input_fingerprint = x'00'",
    ),
    ("P9", "UPDATE controller_workflows SET status = 'running'"),
    (
        "P10",
        "UPDATE controller_workflows SET status = 'succeeded'",
    ),
    ("P10", "UPDATE controller_workflows SET status = 'failed'"),
    (
        "P11",
        "DROP INDEX controller_workflows_by_run; UPDATE controller_workflows SET reserved_run_id = 'same'",
    ),
    ("P12", "UPDATE controller_queue SET queue_version = 0"),
    (
        "P12",
        "UPDATE controller_queue SET consecutive_errors = 3 WHERE last_error IS NULL",
    ),
    (
        "P12",
        "UPDATE controller_queue SET last_error = NULL, last_error_digest = NULL",
    ),
    ("P13", "UPDATE effects SET owner_scope = 'run'"),
    ("P14", "UPDATE effect_attempts SET lease_generation = 99"),
    (
        "P15",
        "UPDATE controller_finalizers SET position = 5 WHERE position = 1",
    ),
    (
        "P15",
        "DELETE FROM controller_finalizers WHERE position = 0",
    ),
    ("P16", "DELETE FROM controller_resources"),
    (
        "controllerStatus",
        "UPDATE controller_resources SET status = CAST('{' AS BLOB)",
    ),
    (
        "controllerStatus",
        "UPDATE controller_resources SET status = NULL",
    ),
    (
        "controllerStatus",
        "UPDATE controller_resources SET status = CAST(json_set(CAST(status AS TEXT), '$.observedGeneration', 9) AS BLOB)",
    ),
    (
        "controllerStatus",
        "UPDATE controller_resources SET status = CAST(json_set(CAST(status AS TEXT), '$.conditions[0].observedGeneration', 9) AS BLOB)",
    ),
    (
        "controllerStatus",
        "UPDATE controller_resources SET status = CAST(json_set(CAST(status AS TEXT), '$.conditions[1].type', 'Ready') AS BLOB)",
    ),
    (
        "controllerSizes",
        "UPDATE controller_resources SET spec = zeroblob(1048577)",
    ),
    (
        "controllerSizes",
        "UPDATE controller_resources SET status = zeroblob(1048577)",
    ),
    (
        "controllerQueue",
        "UPDATE controller_queue SET controller_name = 'other'",
    ),
    (
        "controllerQueue",
        "UPDATE controller_queue SET project_id = 'other'",
    ),
];

/// Takes away what keeps such rows out.
const UNGUARD: &str = "PRAGMA foreign_keys = OFF; PRAGMA ignore_check_constraints = ON;";

/// A resource in deletion with finalizers and a failure; one that a pass has, with an act that goes on, a child that is over and one that
/// waits; and one that is settled, with two conditions.
fn world() -> Result<Runs> {
    let runs = Runs::new()?;
    let db = runs.world.db();
    let apply =
        |key: &str, spec| commands::apply(db, &commands::Apply::new(&named(key), spec).by(ann()));
    let settled = apply("settled", json!(1))?.value;
    apply("settled", json!(2))?;
    let claim =
        commands::claim(db, &commands::Claiming::new(&settled.uid, &runs.world.host))?.unwrap();
    let conditions = vec![
        ConditionInput::new("Ready", true, "Ok"),
        ConditionInput::new("Whole", true, "Ok"),
    ];
    let patch = StatusPatch {
        conditions,
        ..StatusPatch::default()
    };
    assert_eq!(
        commands::finish(db, &claim, &patch, Next::Settled, PassEnd::default())?,
        Finished::Settled
    );
    let deleting = apply("deleting", json!(1))?.value;
    for name in ["a", "b"] {
        commands::add_finalizer(db, &named("deleting"), &finalizer(name), ann())?;
    }
    commands::request_deletion(db, &named("deleting"), ann())?;
    let claim = commands::claim(
        db,
        &commands::Claiming::new(&deleting.uid, &runs.world.host),
    )?
    .unwrap();
    commands::fail(db, &claim, "it broke", PassEnd::default())?;
    let (claim, over) = runs.launched(&job_definition(), &job())?;
    assert_eq!(runs.go_on(&over)?, RunStatus::Completed);
    let gate = ChildRequest {
        request_key: RequestKey::new("gate")?,
        ..job()
    };
    let child = children::reserve(db, &claim, &gate)?;
    let waits = runs.start(&gate_definition(), &child)?;
    children::link(db, &claim, &gate.request_key)?;
    assert_eq!(runs.go_on(&waits)?, RunStatus::Waiting);
    let act = EffectRequest {
        key: EffectKey::new("act")?,
        kind: "file.write".to_owned(),
        request: json!(1),
    };
    effects::begin(db, &claim, &act)?;
    Ok(runs)
}

#[test]
fn every_invariant_finds_what_breaks_it() -> Result {
    let runs = world()?;
    runs.world.check()?;
    let mut unseen: Vec<&str> = DOMAIN
        .invariants
        .iter()
        .map(|invariant| invariant.name)
        .collect();
    for (index, (name, damage)) in DAMAGES.iter().enumerate() {
        let path = runs
            .world
            .store
            .directory()
            .join(format!("damaged-{index}.sqlite"));
        runs.world.db().backup(&path)?;
        let connection = plain::open(&path)?;
        connection.execute_batch(UNGUARD)?;
        connection
            .execute_batch(damage)
            .unwrap_or_else(|error| panic!("{damage}: {error}"));
        let invariant = DOMAIN
            .invariants
            .iter()
            .find(|invariant| invariant.name == *name)
            .unwrap();
        let mut statement = connection.prepare(invariant.violations)?;
        assert!(statement.exists([])?, "{name} does not see: {damage}");
        unseen.retain(|unseen| unseen != name);
        drop(statement);
        drop(connection);
        std::fs::remove_file(&path)?;
    }
    assert_eq!(unseen, [""; 0], "never seen");
    Ok(())
}

#[test]
fn the_duty_finds_a_child_whose_end_nobody_told() -> Result {
    let runs = Runs::new()?;
    let (claim, run) = runs.launched(&job_definition(), &job())?;
    runs.world.finish(&claim, Next::Settled)?;
    let duty = ControllerDuty::new();
    let pass = duty.run(runs.world.db(), runs.world.now()).unwrap();
    assert_eq!(
        (pass.has_worked, pass.next_due),
        (false, Some(runs.world.now().plus(60_000)))
    );
    assert_eq!(runs.go_on(&run)?, RunStatus::Completed);
    // As if another program had ended the run.
    let path = runs.world.store.directory().join("untold.sqlite");
    runs.world.db().backup(&path)?;
    let connection = plain::open(&path)?;
    connection.execute_batch(
        "UPDATE controller_workflows SET status = 'running', run_key = NULL; DELETE FROM controller_queue;
         DELETE FROM events WHERE event_type = 'workflow_state_changed' AND resource_revision = 6;
         UPDATE resources SET revision = 5 WHERE resource_type = 'controller';",
    )?;
    drop(connection);
    let db = holdpoint_state::Database::open_with(
        &path,
        runs.world.store.schema(),
        runs.world.store.options(),
    )?;
    assert!(!db.verify()?.is_clean());
    assert_eq!(tell_of_ended_children(&db)?, (1, false));
    assert_eq!(tell_of_ended_children(&db)?, (0, false));
    let report = db.verify()?;
    assert!(report.is_clean(), "{report:?}");
    assert!(views::queue(&db.snapshot()?, &runs.world.uid()?)?.is_some());
    Ok(())
}

/// What another program may do to the resource of a child, and to the row of the child.
const PARENT_DAMAGES: &[&str] = &[
    // Nothing: the run ends where nobody wrote.
    "SELECT 1",
    "UPDATE resources SET resource_type = 'run' WHERE resource_type = 'controller'",
    "DELETE FROM resources WHERE resource_type = 'controller'",
    "UPDATE resources SET revision = 1 WHERE resource_type = 'controller'",
    "UPDATE resources SET aggregate_key = 'no uid' WHERE resource_type = 'controller'",
    "UPDATE leases SET token_hash = NULL WHERE resource_key IN (SELECT resource_key FROM controller_resources)",
    "DELETE FROM leases WHERE resource_key IN (SELECT resource_key FROM controller_resources)",
    "DELETE FROM controller_queue",
    "DELETE FROM controller_resources",
    "DELETE FROM controller_queue; DELETE FROM controller_resources",
    "UPDATE controller_resources SET status = CAST('{' AS BLOB), spec = CAST('{' AS BLOB)",
    "UPDATE controller_workflows SET input_fingerprint = x'00'",
    "UPDATE controller_workflows SET status = 'odd'",
    "UPDATE controller_workflows SET attempt_count = 0",
    "UPDATE controller_workflows SET reserved_run_id = NULL",
    "UPDATE controller_workflows SET request_key = ''",
];

/// A store like this one, to which somebody wrote while it was open: it would not be opened with some of this.
fn damaged(runs: &Runs, name: &str, damage: &str) -> Result<holdpoint_state::Database> {
    let store = &runs.world.store;
    let path = store.directory().join(name);
    runs.world.db().backup(&path)?;
    let db = holdpoint_state::Database::open_with(&path, store.schema(), store.options())?;
    let connection = plain::open(&path)?;
    connection.execute_batch(UNGUARD)?;
    connection
        .execute_batch(damage)
        .unwrap_or_else(|error| panic!("{damage}: {error}"));
    Ok(db)
}

#[test]
fn a_damaged_resource_does_not_keep_the_run_of_its_child_from_ending() -> Result {
    let runs = Runs::new()?;
    let (_claim, run) = runs.launched(&job_definition(), &job())?;
    let mut held = Vec::new();
    for (index, damage) in PARENT_DAMAGES.iter().enumerate() {
        let db = damaged(&runs, &format!("parent-{index}.sqlite"), damage)?;
        let workflows = holdpoint_workflows::Workflows::new(db);
        workflows.register(&job_definition());
        let scheduler = workflows.scheduler(holdpoint_workflows::SchedulerOptions {
            workers: 1,
            ..Default::default()
        })?;
        let ended = workflows.wait(&run, std::time::Duration::from_secs(3));
        scheduler.stop(std::time::Duration::from_secs(1));
        if !ended.is_ok_and(|run| run.status == RunStatus::Completed) {
            held.push(*damage);
        }
    }
    assert_eq!(held, [""; 0], "these keep the run from ending");
    Ok(())
}

#[test]
fn a_damaged_child_does_not_keep_the_duty_from_telling_others() -> Result {
    let runs = Runs::new()?;
    let (claim, run) = runs.launched(&job_definition(), &job())?;
    let other = ChildRequest {
        request_key: RequestKey::new("other")?,
        ..job()
    };
    let child = children::reserve(runs.world.db(), &claim, &other)?;
    let other = runs.start(&job_definition(), &child)?;
    for run in [&run, &other] {
        assert_eq!(runs.go_on(run)?, RunStatus::Completed);
    }
    let untold = "UPDATE controller_workflows SET status = 'running'";
    // Whichever of the two comes first, the other one is told.
    for key in ["build", "other"] {
        let damage = format!(
            "{untold}; UPDATE controller_workflows SET input_fingerprint = x'00' WHERE request_key = '{key}'"
        );
        let db = damaged(&runs, &format!("untold-{key}.sqlite"), &damage)?;
        tell_of_ended_children(&db).unwrap_err();
        let connection = plain::open(
            &runs
                .world
                .store
                .directory()
                .join(format!("untold-{key}.sqlite")),
        )?;
        let told: i64 = connection.query_row(
            "SELECT count(*) FROM controller_workflows WHERE status = 'succeeded'",
            [],
            |row| row.get(0),
        )?;
        assert_eq!(told, 1, "{key}");
    }
    Ok(())
}
