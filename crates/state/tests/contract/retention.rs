//! Retention for any domains: who holds what, what goes with what, and that nobody else deletes.
//!
//! The domains here are whole ones in one file: things, which end and are linked into chains, and notes of another domain on them.

#![expect(
    clippy::disallowed_methods,
    reason = "stands for the store rooms of two domains"
)]

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

use holdpoint_state::clock::UnixMillis;
use holdpoint_state::maintenance::retention::{RetentionPlan, SweepEnd, Taking};
use holdpoint_state::schema::{Blocker, Deletion, Domain, Link, Orphan, Retention};
use holdpoint_state::sql::named_params;
use holdpoint_state::testing::{TestStore, counter};
use holdpoint_state::{
    ActorKind, Change, Command, Digest, Identity, LeaseRule, Operation, Outcome, Payload, Resource,
    Schema, StateError,
};
use serde_json::json;

const fn operation(name: &'static str, resource: &'static str) -> Operation {
    Operation {
        name,
        event: name,
        resource,
        summary: "A test's operation.",
        actors: ActorKind::ALL,
        lease: LeaseRule::NotRequired,
        from: &[],
        to: &[],
    }
}

const MAKE: Operation = operation("thing.make", "thing");
const TOUCH: Operation = operation("thing.touch", "thing");
const WRITE: Operation = operation("note.write", "note");

const THINGS: Domain = Domain {
    ddl: "CREATE TABLE things (
            resource_key INTEGER PRIMARY KEY REFERENCES resources (resource_key),
            name TEXT NOT NULL UNIQUE,
            before_key INTEGER REFERENCES things (resource_key),
            ended_at INTEGER
        ) STRICT;
        CREATE INDEX things_by_before ON things (before_key) WHERE before_key IS NOT NULL;",
    resource_types: &["thing"],
    operations: &[&MAKE, &TOUCH],
    retention: Retention {
        members: Some(
            "SELECT resource_key AS member, name, ended_at, before_key IS NULL AS is_root FROM things",
        ),
        links: &[Link {
            pairs: "SELECT resource_key AS member, before_key AS other FROM things WHERE before_key IS NOT NULL",
            grows: true,
        }],
        deletions: &[Deletion {
            table: "things",
            sql: "DELETE FROM things WHERE resource_key = ?1",
        }],
        ..Retention::NOTHING
    },
    ..Domain::named("things")
};

/// Notes on things; texts that notes share; and pictures, which name a blob by its key and hang on nothing that is deleted.
const NOTES: Domain = Domain {
    ddl: "CREATE TABLE texts (
            text TEXT NOT NULL PRIMARY KEY,
            picture_hash BLOB NOT NULL REFERENCES blobs (blob_hash)
        ) STRICT;
        CREATE TABLE notes (
            resource_key INTEGER PRIMARY KEY REFERENCES resources (resource_key),
            thing_key INTEGER NOT NULL REFERENCES things (resource_key),
            text TEXT NOT NULL REFERENCES texts (text),
            holds INTEGER NOT NULL
        ) STRICT;
        CREATE INDEX notes_by_thing ON notes (thing_key);
        CREATE TABLE pictures (picture INTEGER PRIMARY KEY, blob_key INTEGER NOT NULL REFERENCES blobs) STRICT;",
    resource_types: &["note"],
    operations: &[&WRITE],
    retention: Retention {
        related: &["SELECT thing_key AS member, resource_key FROM notes"],
        blockers: &[Blocker {
            name: "note",
            summary: "A note wants it kept.",
            rows: "SELECT thing_key AS member, text FROM notes WHERE holds = 1",
        }],
        deletions: &[Deletion {
            table: "notes",
            sql: "DELETE FROM notes WHERE thing_key = ?1",
        }],
        orphans: &[Orphan {
            table: "texts",
            key: "text",
            delete: "DELETE FROM texts WHERE text = ?1",
        }],
        ..Retention::NOTHING
    },
    ..Domain::named("notes")
};

fn store() -> TestStore {
    TestStore::new([THINGS, NOTES, counter::DOMAIN]).unwrap()
}

fn thing(name: &str) -> Resource {
    Resource::new("thing", name)
}

/// Makes a thing that ended at `ended_at`, behind another one.
fn make(
    store: &TestStore,
    name: &'static str,
    behind: Option<&'static str>,
    ended_at: Option<i64>,
) {
    store
        .db()
        .commit(Command::new(&MAKE, thing(name)).creating(), move |change| {
            let key = change.resource_key()?;
            change
                .sql()
                .prepare_cached(
                    "INSERT INTO things (resource_key, name, before_key, ended_at) VALUES
                         (:key, :name, (SELECT resource_key FROM things WHERE name = :before), :ended_at)",
                )?
                .execute(named_params! {
                    ":key": key, ":name": name, ":before": behind, ":ended_at": ended_at,
                })?;
            Ok::<_, StateError>(Outcome::Accepted(()))
        })
        .unwrap();
}

fn picture(text: &str) -> Payload {
    Payload::text(format!("picture of {text}")).unwrap()
}

/// Writes a note on a thing, with a text and its picture.
fn note(store: &TestStore, name: &str, on: &'static str, text: &'static str, holds: bool) {
    let command = Command::new(&WRITE, Resource::new("note", name)).creating();
    let write = move |change: &mut Change<'_>| {
        let key = change.resource_key()?;
        let hash = change.put_blob(&picture(text))?;
        change
            .sql()
            .prepare_cached(
                "INSERT INTO texts (text, picture_hash) VALUES (:text, :hash) ON CONFLICT DO NOTHING",
            )?
            .execute(named_params! { ":text": text, ":hash": hash })?;
        change
            .sql()
            .prepare_cached(
                "INSERT INTO notes (resource_key, thing_key, text, holds)
                 SELECT :key, resource_key, :text, :holds FROM things WHERE name = :thing",
            )?
            .execute(named_params! { ":key": key, ":thing": on, ":text": text, ":holds": holds })?;
        Ok::<_, StateError>(Outcome::Accepted(()))
    };
    store.db().commit(command, write).unwrap();
}

fn count(store: &TestStore, sql: &'static str) -> i64 {
    let snapshot = store.db().snapshot().unwrap();
    let mut statement = snapshot.sql().prepare_cached(sql).unwrap();
    statement.query_row([], |row| row.get(0)).unwrap()
}

fn has(store: &TestStore, digest: Digest) -> bool {
    let snapshot = store.db().snapshot().unwrap();
    let sql = snapshot.sql();
    let mut statement = sql
        .prepare_cached("SELECT 1 FROM blobs WHERE blob_hash = ?1")
        .unwrap();
    statement.exists([digest]).unwrap()
}

fn summary(plan: &RetentionPlan) -> Vec<String> {
    let tree = |tree: &holdpoint_state::maintenance::retention::Tree| {
        let held: Vec<_> = tree
            .blockers
            .iter()
            .map(|held| format!("{} {:?}", held.name, held.rows))
            .collect();
        let names: Vec<_> = tree.members.iter().map(|member| &*member.name).collect();
        format!("{} {} {}", tree.root, names.join("+"), held.join(" "))
    };
    plan.trees.iter().map(tree).collect()
}

fn sweep(store: &TestStore, cutoff: i64) -> holdpoint_state::maintenance::retention::SweepReport {
    let taking = Taking::before(UnixMillis(cutoff));
    store
        .db()
        .sweep(&taking, |_| ControlFlow::Continue(()))
        .unwrap()
}

#[test]
fn a_domain_above_holds_trees_and_its_rows_go_with_them() {
    let store = store();
    make(&store, "b", None, Some(1));
    make(&store, "a", Some("b"), Some(2));
    make(&store, "c", None, Some(3));
    make(&store, "d", None, None);
    make(&store, "e", None, Some(9));
    note(&store, "1", "a", "shared", false);
    note(&store, "2", "c", "wanted", true);
    note(&store, "3", "d", "shared", true);
    note(&store, "4", "b", "alone", false);
    let plan = store.db().retention_plan(UnixMillis(5)).unwrap();
    assert_eq!(
        summary(&plan),
        ["b a+b ", "c c note [\"wanted\"]"],
        "the tree is known by its root, and nobody young or alive is a candidate"
    );
    let report = sweep(&store, 5);
    assert_eq!(report.end, SweepEnd::Completed);
    assert_eq!((report.deleted.trees, report.deleted.members), (1, 2));
    // The text that only the dead note had goes with its picture, in the same sweep.
    let shared = &report.deleted.shared;
    assert_eq!(
        (shared.get("texts"), shared.get("blobs")),
        (Some(&1), Some(&1))
    );
    assert!(!has(&store, picture("alone").digest()));
    assert!(has(&store, picture("shared").digest()) && has(&store, picture("wanted").digest()));
    assert_eq!(count(&store, "SELECT count(*) FROM notes"), 2);
    assert_eq!(count(&store, "SELECT count(*) FROM resources"), 5);
    assert_eq!(count(&store, "SELECT count(*) FROM events"), 5);
    assert!(store.db().verify().unwrap().is_clean());
}

#[test]
fn content_stays_while_any_column_of_the_schema_names_it_by_whatever_key() {
    let store = store();
    make(&store, "a", None, Some(1));
    let large = Payload::json(&json!("x".repeat(2_000))).unwrap();
    let (in_event, in_picture, loose) = (large, picture("p"), picture("loose"));
    let digests = [in_event.digest(), in_picture.digest(), loose.digest()];
    let command = Command::new(&WRITE, Resource::new("note", "n")).creating();
    store
        .db()
        .commit(command.recording(in_event), move |change| {
            change.resource_key()?;
            let hash = change.put_blob(&in_picture)?;
            change.put_blob(&loose)?;
            // A table that retention knows nothing of, by the other key of blobs.
            change
                .sql()
                .prepare_cached(
                    "INSERT INTO pictures (blob_key) SELECT blob_key FROM blobs WHERE blob_hash = ?1",
                )?
                .execute([hash])?;
            Ok::<_, StateError>(Outcome::Accepted(()))
        })
        .unwrap();
    sweep(&store, 0);
    assert_eq!(
        digests.map(|digest| has(&store, digest)),
        [true, true, false]
    );

    let command = Command::new(&WRITE, Resource::new("note", "n"));
    store
        .db()
        .commit(command, |change| {
            change
                .sql()
                .prepare_cached("DELETE FROM pictures WHERE picture > ?1")?
                .execute([0])?;
            Ok::<_, StateError>(Outcome::Refused(()))
        })
        .unwrap();
    store.clock().advance(24 * 60 * 60 * 1_000);
    sweep(&store, 0);
    assert_eq!(
        digests.map(|digest| has(&store, digest)),
        [true, false, false]
    );
}

#[test]
fn a_composition_in_which_something_would_be_left_behind_is_refused() {
    let problem = |things: Domain, notes: Domain| {
        let composed = Schema::compose(
            Identity::PI_WORKFLOWS,
            [holdpoint_state::DOMAIN, things, notes],
        );
        composed.map_or_else(|error| error.to_string(), |_| "composed".to_owned())
    };
    let notes = |retention| problem(THINGS, Domain { retention, ..NOTES });
    let things = |retention| {
        problem(
            Domain {
                retention,
                ..THINGS
            },
            NOTES,
        )
    };
    assert_eq!(problem(THINGS, NOTES), "composed");
    // The table of another domain that hangs on what is deleted.
    let told = notes(Retention::NOTHING);
    assert!(told.contains("no deletion names notes"), "{told}");
    // A table of the domain itself that hangs on resources.
    let told = problem(
        Domain {
            ddl: "CREATE TABLE things (resource_key INTEGER PRIMARY KEY REFERENCES resources (resource_key), name TEXT,
                    before_key INTEGER, ended_at INTEGER) STRICT;
                CREATE TABLE parts (part INTEGER PRIMARY KEY REFERENCES resources (resource_key)) STRICT;",
            ..THINGS
        },
        NOTES,
    );
    assert!(told.contains("no deletion names parts"), "{told}");
    // Content that several columns name together.
    let told = problem(
        THINGS,
        Domain {
            ddl: "CREATE TABLE texts (text TEXT NOT NULL PRIMARY KEY, part TEXT NOT NULL, UNIQUE (text, part)) STRICT;
                CREATE TABLE notes (thing_key INTEGER REFERENCES things (resource_key), resource_key INTEGER, text TEXT, part TEXT,
                    holds INTEGER, FOREIGN KEY (text, part) REFERENCES texts (text, part)) STRICT;",
            ..NOTES
        },
    );
    assert!(told.contains("by several columns"), "{told}");
    // Statements that are not what they must be.
    let deletion = |table, sql| {
        let deletions = vec![Deletion { table, sql }].leak();
        Retention {
            deletions,
            ..NOTES.retention
        }
    };
    let told = notes(deletion(
        "things",
        "DELETE FROM things WHERE resource_key = ?1",
    ));
    assert!(told.contains("not a table of this domain"), "{told}");
    let told = notes(deletion("notes", "DELETE FROM notes"));
    assert!(told.contains("one parameter"), "{told}");
    let told = things(Retention {
        members: Some("SELECT resource_key, name FROM things"),
        ..THINGS.retention
    });
    assert!(told.contains("no such column: member"), "{told}");
    let told = things(Retention {
        blockers: NOTES.retention.blockers,
        ..THINGS.retention
    });
    // What it reads comes with a higher domain, so that the name is the only thing wrong.
    assert!(told.contains("two blockers"), "{told}");
}

/// What was touched since it was selected is judged anew by the next sweep, also when it would go all the same.
#[test]
fn a_tree_that_was_touched_stops_a_sweep_and_a_prune() {
    let store = store();
    make(&store, "a", None, Some(1));
    make(&store, "b", None, Some(1));
    let touch = |name: &str| {
        store
            .db()
            .commit(Command::new(&TOUCH, thing(name)), |_| {
                Ok::<_, StateError>(Outcome::Accepted(()))
            })
            .unwrap();
    };
    let taking = Taking::before(UnixMillis(5));
    let backup = store.directory().join("backup.sqlite");
    let mut times = 0;
    let pruned = store.db().prune_with(&taking, backup, |_| {
        if times == 0 {
            touch("b");
        }
        times += 1;
        ControlFlow::Continue(())
    });
    assert!(matches!(
        pruned,
        Err(StateError::SelectionChanged { what }) if what == "the tree of b was changed"
    ));
    let report = store
        .db()
        .sweep(&taking, |done| {
            if done == 1 {
                touch("b");
            }
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!((report.end, report.deleted.trees), (SweepEnd::Changed, 1));
    assert!(store.db().sweep_is_due().unwrap());
    assert_eq!(sweep(&store, 5).deleted.trees, 1);
}

#[test]
fn commands_go_on_during_a_sweep() {
    const NAMES: usize = 150;
    let store = store();
    for number in 0..NAMES {
        make(&store, format!("t{number}").leak(), None, Some(1));
    }
    counter::create(store.db(), "c").unwrap();
    let done = AtomicBool::new(false);
    let (report, added) = std::thread::scope(|scope| {
        let adding = scope.spawn(|| {
            let mut added = 0;
            while !done.load(Ordering::Relaxed) {
                counter::add(store.db(), "c", 1).unwrap();
                added += 1;
            }
            added
        });
        let report = sweep(&store, 5);
        done.store(true, Ordering::Relaxed);
        (report, adding.join().unwrap())
    });
    assert_eq!(report.deleted.trees, 150);
    assert!(0 < added);
    let value = counter::value(&store.db().snapshot().unwrap(), "c").unwrap();
    assert_eq!(value, Some(added));
    assert!(store.db().verify().unwrap().is_clean());
}

/// A reader of an old snapshot keeps the log from being cut, and nothing else; other handles go on after the file was written anew.
#[test]
fn a_prune_disturbs_no_reader_and_no_other_handle() {
    let store = store();
    for name in ["a", "b", "c"] {
        make(&store, name, None, Some(1));
        note(&store, name, name, name, false);
    }
    let other = store.open().unwrap();
    counter::create(&other, "c").unwrap();
    let old = other.snapshot().unwrap();
    let taking = Taking::before(UnixMillis(5));
    let backup = store.directory().join("backup.sqlite");
    let report = store.db().prune(&taking, &backup).unwrap();
    assert_eq!(report.deleted.trees, 3);
    assert!(report.compaction.vacuumed && !report.compaction.log_emptied);
    assert_eq!(report.compaction.problem, None);
    assert!(report.verified.is_clean());
    assert_eq!(old.events_after(0, 10).unwrap().len(), 7);
    drop(old);
    counter::add(&other, "c", 1).unwrap();
    make(&store, "d", None, None);
    assert!(other.verify().unwrap().is_clean());
    let backup = holdpoint_state::maintenance::verify_file(&backup, store.schema()).unwrap();
    assert!(backup.is_clean());
}

/// A domain's statement is bound to its own tables, whatever it says that it deletes.
#[test]
fn a_deletion_of_another_domains_rows_is_refused_and_undone() {
    let greedy = Domain {
        retention: Retention {
            deletions: &[Deletion {
                table: "notes",
                sql: "DELETE FROM counters WHERE ?1 IS NOT NULL",
            }],
            ..NOTES.retention
        },
        ..NOTES
    };
    let store = TestStore::new([counter::DOMAIN, THINGS, greedy]).unwrap();
    make(&store, "a", None, Some(1));
    counter::create(store.db(), "c").unwrap();
    let taking = Taking::before(UnixMillis(5));
    let error = store
        .db()
        .sweep(&taking, |_| ControlFlow::Continue(()))
        .unwrap_err();
    assert!(
        matches!(error, StateError::StatementDenied { .. }),
        "{error:?}"
    );
    assert_eq!(count(&store, "SELECT count(*) FROM things"), 1);
    let value = counter::value(&store.db().snapshot().unwrap(), "c").unwrap();
    assert_eq!(value, Some(0));
    // The lock went with the failed sweep.
    let backup = store.directory().join("backup.sqlite");
    let error = store.db().prune(&taking, backup).unwrap_err();
    assert!(
        matches!(error, StateError::StatementDenied { .. }),
        "{error:?}"
    );
}

#[test]
fn a_deleted_name_is_free_and_numbers_of_events_are_not() {
    let store = store();
    make(&store, "a", None, Some(1));
    let before = store.db().snapshot().unwrap().events_after(0, 10).unwrap();
    sweep(&store, 5);
    assert_eq!(
        store
            .db()
            .snapshot()
            .unwrap()
            .resource(&thing("a"))
            .unwrap(),
        None
    );
    make(&store, "a", None, None);
    let after = store.db().snapshot().unwrap().events_after(0, 10).unwrap();
    assert_eq!(after.len(), 1);
    assert!(before[0].seq < after[0].seq);
    assert!(store.db().verify().unwrap().is_clean());
}
