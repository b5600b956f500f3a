//! Retention: which trees of runs go, what holds the others, and that nothing is ever half deleted.

mod forests;
mod holds;
mod kills;
mod size;

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::PathBuf;

use holdpoint_state::clock::{Clock as _, UnixMillis};
use holdpoint_state::maintenance::retention::{RetentionPlan, SweepEnd, SweepReport, Taking};
use holdpoint_state::records::blobs::INLINE_LIMIT_BYTES;
use holdpoint_state::sql::named_params;
use holdpoint_state::{Digest, Payload, StateError};
use holdpoint_workflows::RunId;
use holdpoint_workflows::commands::{Answer, Control, Restart, Start};
use holdpoint_workflows::definition::Definition;
use holdpoint_workflows::retention::KEEP_MS;
use serde_json::{Value, json};

use self::holds::{MESSAGE_SENT, put};
use crate::support::{Fixture, LONG, asking, echo, person};

const DAY_MS: u64 = 24 * 60 * 60 * 1_000;

impl Fixture {
    /// Starts a run with this id and ends it at once.
    fn ended(&self, definition: &Definition, id: &str, input: serde_json::Value) -> RunId {
        let run = RunId::new(id).unwrap();
        let start = Start::new(definition, input).run_id(run.clone());
        self.workflows.start(&start).unwrap();
        self.end(&run);
        run
    }

    fn end(&self, run: &RunId) {
        self.workflows
            .cancel(&Control::of(run).by(person()))
            .unwrap();
    }

    fn restarted(&self, run: &RunId) -> RunId {
        let revision = self.workflows.view(run).unwrap().run_revision;
        let restart = Restart::new(run, revision);
        self.workflows.restart(&restart).unwrap().value
    }

    fn now(&self) -> UnixMillis {
        self.store.clock().now()
    }

    fn plan(&self, cutoff: UnixMillis) -> RetentionPlan {
        self.workflows.retention_plan(cutoff).unwrap()
    }

    fn sweep(&self) -> SweepReport {
        self.workflows
            .sweep(BTreeSet::new(), |_| ControlFlow::Continue(()))
            .unwrap()
    }

    fn runs(&self) -> Vec<String> {
        let snapshot = self.store.db().snapshot().unwrap();
        let sql = snapshot.sql();
        let mut statement = sql
            .prepare_cached("SELECT run_id FROM runs ORDER BY run_id")
            .unwrap();
        statement
            .query_map([], |row| row.get(0))
            .unwrap()
            .collect::<Result<_, _>>()
            .unwrap()
    }

    fn has_blob(&self, digest: Digest) -> bool {
        let snapshot = self.store.db().snapshot().unwrap();
        snapshot
            .sql()
            .prepare_cached("SELECT count(*) FROM blobs WHERE blob_hash = :hash")
            .unwrap()
            .query_row(named_params! { ":hash": digest }, |row| {
                row.get::<_, i64>(0)
            })
            .unwrap()
            == 1
    }

    /// A place for a backup that is not there yet.
    fn backup(&self) -> PathBuf {
        self.store.directory().join("before-prune.sqlite")
    }
}

/// A value that is too large for its row, so that it is a blob.
fn large(text: &str) -> Value {
    json!(text.repeat(INLINE_LIMIT_BYTES))
}

fn blockers(plan: &RetentionPlan, root: &RunId) -> Vec<&'static str> {
    let tree = plan
        .trees
        .iter()
        .find(|tree| tree.root == root.as_str())
        .unwrap();
    tree.blockers.iter().map(|held| held.name).collect()
}

fn digest_of(value: &serde_json::Value) -> Digest {
    Payload::json(value).unwrap().digest()
}

#[test]
fn edge_112_what_ended_at_the_cutoff_stays_and_a_millisecond_earlier_goes() {
    let fixture = Fixture::new();
    let old = fixture.ended(&echo(), "old", json!(1));
    let parent = fixture.ended(&echo(), "parent", json!(2));
    fixture.store.clock().advance(1);
    let equal = fixture.ended(&echo(), "equal", json!(3));
    let child = fixture.restarted(&parent);
    fixture.end(&child);
    let cutoff = fixture.now();
    let plan = fixture.plan(cutoff);
    // One that ended at it is no candidate alone, and holds the tree of one that ended earlier.
    assert_eq!(
        (plan.candidates, plan.blocked, plan.selected_members),
        (2, 1, 1)
    );
    assert_eq!(blockers(&plan, &old), [""; 0]);
    assert_eq!(blockers(&plan, &parent), ["tooYoung"]);

    fixture.store.clock().advance(KEEP_MS.unsigned_abs());
    let report = fixture.sweep();
    assert_eq!((report.end, report.deleted.trees), (SweepEnd::Completed, 1));
    let mut left = [&equal, &parent, &child].map(ToString::to_string);
    left.sort();
    assert_eq!(fixture.runs(), left);
}

#[test]
fn edge_113_a_young_restart_keeps_its_old_parent() {
    let fixture = Fixture::new();
    let parent = fixture.ended(&echo(), "parent", json!(1));
    fixture.store.clock().advance(40 * DAY_MS);
    let child = fixture.restarted(&parent);
    let cutoff = fixture.now().plus(-KEEP_MS);
    assert_eq!(
        blockers(&fixture.plan(cutoff), &parent),
        ["notOver", "queue"]
    );
    fixture.end(&child);
    let plan = fixture.plan(cutoff);
    assert_eq!(blockers(&plan, &parent), ["tooYoung"]);
    assert_eq!(plan.trees[0].members.len(), 2);
    assert_eq!(fixture.sweep().deleted.trees, 0);
    fixture.store.clock().advance(KEEP_MS.unsigned_abs() + 1);
    assert_eq!(fixture.sweep().deleted.members, 2);
    assert_eq!(fixture.runs(), [""; 0]);
}

#[test]
fn edge_114_an_interactive_run_stays_until_its_end_was_shown() {
    let fixture = Fixture::new();
    let run = RunId::new("interactive").unwrap();
    let start = Start::new(&echo(), json!(1))
        .run_id(run.clone())
        .in_session("session-1");
    fixture.workflows.start(&start).unwrap();
    fixture.end(&run);
    fixture.store.clock().advance(1);
    let cutoff = fixture.now();
    // The end is told in the session when it comes, and nobody showed it yet.
    let held = blockers(&fixture.plan(cutoff), &run);
    assert_eq!(held, ["pendingMessage", "terminalMessage"]);
    put(&fixture, &run, &[MESSAGE_SENT]);
    assert_eq!(blockers(&fixture.plan(cutoff), &run), [""; 0]);
    fixture.store.clock().advance(KEEP_MS.unsigned_abs());
    assert_eq!(fixture.sweep().deleted.trees, 1);
    assert_eq!(fixture.count("SELECT count(*) FROM workflow_messages"), 0);
}

#[test]
fn edge_115_shared_and_held_content_survives() {
    let fixture = Fixture::new();
    let [shared, own, held] = ["shared", "own", "held"].map(large);
    fixture.ended(&echo(), "old-1", shared.clone());
    fixture.ended(&echo(), "old-2", own.clone());
    fixture.ended(&echo(), "old-3", held.clone());
    fixture.store.clock().advance(KEEP_MS.unsigned_abs() + 1);
    fixture.ended(&echo(), "young", shared.clone());
    for value in [&shared, &own, &held] {
        assert!(fixture.has_blob(digest_of(value)));
    }
    let report = fixture
        .workflows
        .sweep([digest_of(&held)].into(), |_| ControlFlow::Continue(()))
        .unwrap();
    assert_eq!(report.deleted.trees, 3);
    assert!(fixture.has_blob(digest_of(&shared)));
    assert!(!fixture.has_blob(digest_of(&own)));
    assert!(fixture.has_blob(digest_of(&held)));
    // The next one takes it, when nobody holds it any more.
    fixture.store.clock().advance(DAY_MS);
    assert_eq!(fixture.sweep().deleted.shared.get("blobs"), Some(&1));
    assert!(!fixture.has_blob(digest_of(&held)));
}

#[test]
fn edge_116_a_wrong_backup_or_a_held_lock_deletes_nothing() {
    let fixture = Fixture::new();
    fixture.ended(&echo(), "old", json!(1));
    fixture.store.clock().advance(1);
    let cutoff = fixture.now();
    let before = fixture.rows();
    let files = || {
        std::fs::read_dir(fixture.store.directory())
            .unwrap()
            .count()
    };
    let count = files();
    let refused = |path: PathBuf| {
        let error = fixture.workflows.prune(cutoff, path).unwrap_err();
        assert!(matches!(error, StateError::Input { .. }), "{error:?}");
        // Not even the lock's file was made.
        assert_eq!(files(), count);
    };
    refused("relative.sqlite".into());
    refused(fixture.store.path());

    let other = fixture.store.open().unwrap();
    let inside = std::sync::Mutex::new(Vec::new());
    fixture
        .workflows
        .sweep(BTreeSet::new(), |_| {
            let error = other
                .prune(&Taking::before(cutoff), fixture.backup())
                .unwrap_err();
            inside.lock().unwrap().push(error.code());
            ControlFlow::Break(())
        })
        .unwrap();
    assert_eq!(*inside.lock().unwrap(), ["busy"]);
    assert!(!fixture.backup().exists());
    assert_eq!(fixture.rows(), before);
}

#[test]
fn edge_117_an_interrupted_sweep_leaves_whole_trees_and_shared_content() {
    let fixture = Fixture::new();
    for number in 1..=3 {
        fixture.ended(&echo(), &format!("old-{number}"), json!(number));
    }
    fixture.store.clock().advance(KEEP_MS.unsigned_abs() + 1);
    let blobs = || fixture.count("SELECT count(*) FROM blobs");
    let before = blobs();
    let stop = |done| match done {
        0 => ControlFlow::Continue(()),
        _ => ControlFlow::Break(()),
    };
    let report = fixture.workflows.sweep(BTreeSet::new(), stop).unwrap();
    assert_eq!(report.end, SweepEnd::Interrupted);
    assert_eq!(report.deleted.trees, 1);
    assert_eq!(report.compaction, None);
    assert_eq!(fixture.runs(), ["old-2", "old-3"]);
    assert_eq!(blobs(), before);
    assert!(fixture.store.db().sweep_is_due().unwrap());
    assert!(fixture.store.db().verify().unwrap().is_clean());

    let report = fixture.sweep();
    assert_eq!((report.end, report.deleted.trees), (SweepEnd::Completed, 2));
    assert_eq!((fixture.runs().len(), blobs()), (0, 0));
    assert_eq!(report.deleted.shared.get("workflow_definitions"), Some(&1));
    // A completed one is known to every process, and for a day.
    let other = fixture.store.open().unwrap();
    assert!(!other.sweep_is_due().unwrap());
    assert_eq!(fixture.sweep().end, SweepEnd::NotDue);
    fixture.store.clock().advance(DAY_MS);
    assert_eq!(fixture.sweep().end, SweepEnd::Completed);
}

#[test]
fn edge_118_a_tree_that_changed_stops_a_sweep_and_a_prune() {
    let fixture = Fixture::new();
    let first = fixture.ended(&echo(), "old-1", json!(1));
    let second = fixture.ended(&echo(), "old-2", json!(2));
    fixture.store.clock().advance(KEEP_MS.unsigned_abs() + 1);
    let report = fixture
        .workflows
        .sweep(BTreeSet::new(), |done| {
            if done == 1 {
                fixture.restarted(&second);
            }
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!((report.end, report.deleted.trees), (SweepEnd::Changed, 1));
    assert!(fixture.store.db().sweep_is_due().unwrap());
    let left = fixture.runs();
    assert!(!left.contains(&first.to_string()) && left.contains(&second.to_string()));

    // While the backup is made, another command touches what was selected.
    let third = fixture.ended(&echo(), "old-3", json!(3));
    fixture.store.clock().advance(1);
    let runs = fixture.runs();
    let mut times = 0;
    let error = fixture
        .store
        .db()
        .prune_with(&Taking::before(fixture.now()), fixture.backup(), |_| {
            if times == 0 {
                fixture.restarted(&third);
            }
            times += 1;
            ControlFlow::Continue(())
        })
        .unwrap_err();
    assert!(
        matches!(error, StateError::SelectionChanged { .. }),
        "{error:?}"
    );
    assert_eq!(fixture.runs().len(), runs.len() + 1);
    assert!(fixture.backup().exists(), "the backup was made before");
}

#[test]
fn a_prune_deletes_everything_at_once_and_leaves_the_rest_as_it_was() {
    let fixture = Fixture::new();
    let scheduler = fixture.scheduler();
    for number in 0..5 {
        let run = fixture.workflows.run(&asking(), number).unwrap();
        fixture.workflows.wait(&run, LONG).unwrap();
        fixture
            .workflows
            .answer(&Answer::new(&run, json!(number)))
            .unwrap();
        fixture.workflows.wait(&run, LONG).unwrap();
    }
    scheduler.stop(LONG);
    fixture.store.clock().advance(1);
    let cutoff = fixture.now();
    let scheduler = fixture.scheduler();
    let kept = fixture
        .workflows
        .run(&asking(), json!({ "kept": true }))
        .unwrap();
    fixture.workflows.wait(&kept, LONG).unwrap();
    scheduler.stop(LONG);
    let before = serde_json::to_string(&fixture.workflows.view(&kept).unwrap()).unwrap();
    let events = fixture.events(&kept);

    let report = fixture.workflows.prune(cutoff, fixture.backup()).unwrap();
    assert_eq!((report.deleted.trees, report.deleted.members), (5, 5));
    assert!(report.verified.is_clean(), "{:?}", report.verified);
    assert_eq!(report.compaction.problem, None);
    assert!(report.compaction.vacuumed && report.compaction.log_emptied);
    assert!(report.compaction.bytes_after < report.compaction.bytes_before);
    assert!(fixture.store.db().verify().unwrap().is_clean());
    assert_eq!(fixture.runs(), [kept.as_str()]);
    let after = serde_json::to_string(&fixture.workflows.view(&kept).unwrap()).unwrap();
    assert_eq!(after, before);
    assert_eq!(fixture.events(&kept), events);

    // The store goes on: its writer and its readers have seen the file written anew.
    let scheduler = fixture.scheduler();
    fixture
        .workflows
        .answer(&Answer::new(&kept, json!(1)))
        .unwrap();
    let view = fixture.workflows.wait(&kept, LONG).unwrap();
    scheduler.stop(LONG);
    assert!(view.final_output.is_some());
    // And the backup has what was there.
    let backup =
        holdpoint_state::maintenance::verify_file(fixture.backup(), fixture.store.schema());
    assert!(backup.unwrap().is_clean());
}
