//! The migrating policy: forward only, all or nothing, and never on a file that is damaged or newer.

use std::fmt::Write as _;
use std::sync::Barrier;

use holdpoint_state::clock::ManualClock;
use holdpoint_state::schema::{Domain, Identity, Migration, Schema};
use holdpoint_state::testing::START;
use holdpoint_state::{Database, Options, Refusal};
use rusqlite::Connection;

use super::{Home, options, refusal};

const NOTES_1: Domain = Domain {
    ddl: "CREATE TABLE notes (id INTEGER PRIMARY KEY, text TEXT NOT NULL) STRICT;",
    ..Domain::named("notes")
};
const NOTES_3: Domain = Domain {
    ddl: "CREATE TABLE notes (id INTEGER PRIMARY KEY, text TEXT NOT NULL, pinned INTEGER NOT NULL DEFAULT 0) STRICT;
          CREATE INDEX notes_pinned ON notes (pinned);",
    ..Domain::named("notes")
};
const TO_2: Migration = Migration {
    name: "pin notes",
    to_version: 2,
    sql: "CREATE TABLE fresh (id INTEGER PRIMARY KEY, text TEXT NOT NULL, pinned INTEGER NOT NULL DEFAULT 0) STRICT;
          INSERT INTO fresh (id, text) SELECT id, text FROM notes;
          DROP TABLE notes;
          CREATE TABLE notes (id INTEGER PRIMARY KEY, text TEXT NOT NULL, pinned INTEGER NOT NULL DEFAULT 0) STRICT;
          INSERT INTO notes SELECT id, text, pinned FROM fresh;
          DROP TABLE fresh;",
};
const TO_3: Migration = Migration {
    name: "find pinned notes",
    to_version: 3,
    sql: "CREATE INDEX notes_pinned ON notes (pinned);",
};

fn identity(user_version: i64) -> Identity {
    Identity {
        application_id: 0x484f_4c44,
        user_version,
        schema_name: "notes",
        old_state: &[],
    }
}

fn version_1() -> Schema {
    Schema::compose(identity(1), [holdpoint_state::DOMAIN, NOTES_1]).unwrap()
}

fn version_3(migrations: impl IntoIterator<Item = Migration>) -> Schema {
    Schema::compose(identity(3), [holdpoint_state::DOMAIN, NOTES_3])
        .unwrap()
        .migrating(migrations)
        .unwrap()
}

/// A closed store of version 1 with one note.
fn old_store() -> Home {
    let home = Home::empty();
    Database::open(home.path(), &version_1()).unwrap().close();
    home.tamper("INSERT INTO notes (text) VALUES ('kept')");
    home
}

#[test]
fn an_older_store_is_led_up_once() {
    let home = old_store();
    let with_clock = || Options {
        clock: std::sync::Arc::new(ManualClock::at(START)),
        ..options()
    };
    for _ in 0..2 {
        Database::open_with(home.path(), &version_3([TO_2, TO_3]), with_clock())
            .unwrap()
            .close();
    }
    let connection = Connection::open(home.path()).unwrap();
    let note: (String, i64) = connection
        .query_row("SELECT text, pinned FROM notes", [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .unwrap();
    assert_eq!(note, ("kept".to_owned(), 0));
    let meta: (i64, Vec<u8>, i64) = connection
        .query_row(
            "SELECT schema_version, schema_digest, updated_at FROM schema_meta",
            [],
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
        )
        .unwrap();
    let digest = version_3([TO_2, TO_3]).digest().0.to_vec();
    assert_eq!(meta, (3, digest, START));
}

#[test]
fn many_handles_lead_up_once() {
    let home = old_store();
    let barrier = Barrier::new(4);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                barrier.wait();
                Database::open(home.path(), &version_3([TO_2, TO_3])).unwrap();
            });
        }
    });
}

/// The database file keeps its bytes, and the older program can still open it.
#[test]
fn a_migration_that_fails_leaves_the_file_as_it_was() {
    let broken = |sql| {
        [
            TO_2,
            Migration {
                name: "broken",
                to_version: 3,
                sql,
            },
        ]
    };
    let mut found = String::new();
    for sql in [
        "CREATE INDEX notes_pinned ON nothing (pinned);",
        "CREATE INDEX notes_pinned ON notes (text);",
        "CREATE INDEX notes_pinned ON notes (pinned); COMMIT; BEGIN;",
        "CREATE INDEX notes_pinned ON notes (pinned); ATTACH 'elsewhere' AS elsewhere;",
        "CREATE INDEX notes_pinned ON notes (pinned); INSERT INTO leases (resource_key, generation) VALUES (9, 0);",
        "CREATE INDEX notes_pinned ON notes (pinned); DELETE FROM schema_meta;",
    ] {
        let home = old_store();
        let before = home.files().remove("state.sqlite");
        let refusal = refusal(Database::open(home.path(), &version_3(broken(sql))));
        assert_eq!(before, home.files().remove("state.sqlite"));
        writeln!(found, "{sql}\n    {refusal}").unwrap();
        Database::open(home.path(), &version_1()).unwrap();
    }
    insta::assert_snapshot!(found);
}

#[test]
fn case_015_a_program_does_not_migrate_what_is_newer() {
    let home = old_store();
    home.tamper("PRAGMA user_version = 4");
    let found = home.refusal_with(&version_3([TO_2, TO_3]), options());
    assert!(matches!(
        found,
        Refusal::Newer {
            expected: 3,
            actual: 4
        }
    ));
    // And the older program does not touch what was led up.
    let home = old_store();
    Database::open(home.path(), &version_3([TO_2, TO_3]))
        .unwrap()
        .close();
    let found = home.refusal_with(&version_1(), options());
    assert!(matches!(found, Refusal::Newer { .. }));
}

#[test]
fn a_store_from_before_the_first_migration_is_refused() {
    let home = old_store();
    let found = home.refusal_with(&version_3([TO_3]), options());
    assert!(matches!(found, Refusal::Version { actual: 1, .. }));
}

/// Also when the settings ask for no check: a migration of damage would hide it.
#[test]
fn a_damaged_store_is_not_migrated() {
    let home = old_store();
    home.tamper(
        "PRAGMA foreign_keys = OFF; INSERT INTO leases (resource_key, generation) VALUES (9, 0)",
    );
    let unchecked = Options {
        check_integrity: false,
        ..options()
    };
    let found = home.refusal_with(&version_3([TO_2, TO_3]), unchecked);
    assert!(matches!(found, Refusal::ForeignKeys { .. }));
}

#[test]
fn a_store_open_in_an_older_program_is_noticed_there() {
    let home = old_store();
    let old = Database::open(home.path(), &version_1()).unwrap();
    let new = Database::open(home.path(), &version_3([TO_2, TO_3])).unwrap();
    assert!(matches!(refusal(old.snapshot()), Refusal::Newer { .. }));
    drop(new.snapshot().unwrap());
}
