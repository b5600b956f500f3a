//! Who may write which table: SQLite itself refuses every statement of a domain on a table of another one, in every form.
//!
//! Nothing here depends on the build: the same tests pass with `--release`.

use holdpoint_state::testing::{TestStore, counter};
use holdpoint_state::{Change, Command, Outcome, StateError};

use super::gate;

/// Runs a body in the name of the gate domain.
fn as_gate<T: Send + 'static>(
    store: &TestStore,
    body: impl FnMut(&mut Change<'_>) -> Result<Outcome<T>, StateError> + Send + 'static,
) -> Result<T, StateError> {
    store
        .db()
        .commit(Command::new(&gate::CREATE, gate::resource("a")), body)
        .map(|receipt| receipt.value)
}

fn leak(sql: String) -> &'static str {
    Box::leak(sql.into_boxed_str())
}

#[track_caller]
#[expect(
    clippy::needless_pass_by_value,
    reason = "reads as a sentence around a call"
)]
fn is_denied<T: std::fmt::Debug>(result: Result<T, StateError>, sql: &str) {
    assert!(
        matches!(&result, Err(StateError::StatementDenied { .. })),
        "{sql}: {result:?}"
    );
}

fn store() -> TestStore {
    let store = gate::store();
    gate::create(store.db(), "a");
    counter::create(store.db(), "c").unwrap();
    store
}

fn first_column(store: &TestStore, table: &str) -> String {
    let sql = leak(format!("SELECT * FROM {table}"));
    let snapshot = store.db().snapshot().unwrap();
    let statement = snapshot.sql().prepare_cached(sql).unwrap();
    statement.column_name(0).unwrap().to_owned()
}

/// INSERT, UPDATE, DELETE and their disguises on one table.
fn writes(store: &TestStore, table: &str) -> Vec<&'static str> {
    let column = first_column(store, table);
    [
        format!("INSERT INTO {table} DEFAULT VALUES"),
        format!("INSERT INTO {table} SELECT * FROM {table}"),
        format!("REPLACE INTO {table} SELECT * FROM {table}"),
        format!("UPDATE {table} SET {column} = {column}"),
        format!("UPDATE OR IGNORE {table} SET {column} = {column} RETURNING {column}"),
        format!("DELETE FROM {table}"),
        format!("DELETE FROM {table} WHERE {column} IS NULL"),
        format!("WITH x AS (SELECT 1) DELETE FROM main.{table}"),
        format!("  /* a */ delete from \"{table}\" where 0"),
    ]
    .map(leak)
    .to_vec()
}

#[test]
fn no_domain_writes_a_table_of_another() {
    let store = store();
    let before = gate::dump(store.db());
    let tables: Vec<(String, &str)> = store
        .schema()
        .tables()
        .map(|(table, domain)| (table.to_owned(), domain))
        .collect();
    assert!(10 < tables.len());
    let mut tried = 0;
    for (table, owner) in tables {
        for sql in writes(&store, &table) {
            // In the name of two domains, each on all tables that are not its own.
            if owner != "gate" {
                is_denied(
                    as_gate(&store, move |change| {
                        gate::run(change, sql).map(Outcome::Refused)
                    }),
                    sql,
                );
                tried += 1;
            }
            if owner != "counter" {
                let command = Command::new(&counter::ADD, counter::resource("c"));
                let result = store.db().commit(command, move |change| {
                    gate::run(change, sql).map(Outcome::Refused)
                });
                is_denied(result, sql);
                tried += 1;
            }
        }
    }
    assert!(100 < tried);
    assert_eq!(gate::dump(store.db()), before);
}

#[test]
fn a_statement_that_another_domain_has_cached_is_authorized_anew() {
    // The very same text, at the very same address, first by its owner.
    const SQL: &str = "UPDATE counters SET value = value + 1";
    let store = store();
    let as_counter = || {
        store
            .db()
            .commit(
                Command::new(&counter::ADD, counter::resource("c")),
                |change| {
                    gate::run(change, SQL)?;
                    Ok::<_, StateError>(Outcome::Accepted(()))
                },
            )
            .unwrap();
    };
    as_counter();
    for _ in 0..3 {
        is_denied(
            as_gate(&store, |change| {
                gate::run(change, SQL).map(Outcome::Refused)
            }),
            SQL,
        );
    }
    as_counter();
    // Inside one transaction too: a nested command of the owner, then the outer domain itself.
    let result = as_gate(&store, |change| {
        let nested = Command::new(&counter::ADD, counter::resource("c"));
        change.also(&nested, |change| {
            gate::run(change, SQL)?;
            Ok::<_, StateError>(Outcome::Accepted(()))
        })?;
        gate::run(change, SQL).map(Outcome::Accepted)
    });
    is_denied(result, SQL);
    assert_eq!(
        counter::value(&store.db().snapshot().unwrap(), "c").unwrap(),
        Some(2)
    );
}

#[test]
fn a_nested_command_is_bound_to_its_own_domain() {
    const SQL: &str = "UPDATE gates SET note = 'x'";
    let store = store();
    let result = as_gate(&store, |change| {
        let nested = Command::new(&counter::ADD, counter::resource("c"));
        change.also(&nested, |change| {
            gate::run(change, SQL).map(Outcome::Refused)
        })?;
        Ok(Outcome::Accepted(()))
    });
    is_denied(result, SQL);
    // Back outside, the outer domain may.
    as_gate(&store, |change| {
        let nested = Command::new(&counter::ADD, counter::resource("c"));
        change.also(&nested, |change| {
            counter::increase(change, 1)?;
            Ok::<_, StateError>(Outcome::Accepted(()))
        })?;
        gate::run(change, SQL).map(Outcome::Accepted)
    })
    .unwrap();
}

#[test]
fn triggers_and_cascades_carry_no_statement_into_another_domain() {
    let store = store();
    let before = gate::dump(store.db());
    for sql in [
        // The trigger updates counters.
        "UPDATE gates SET reach = 1",
        // The cascade deletes tags, which belong to the neighbour.
        "DELETE FROM gates",
        "DELETE FROM gates WHERE resource_key = 1",
        // Replacing deletes too.
        "REPLACE INTO gates SELECT * FROM gates",
    ] {
        let result = as_gate(&store, move |change| {
            gate::run(change, sql).map(Outcome::Refused)
        });
        if sql.starts_with("REPLACE") {
            // Whether SQLite looks at the cascade of a REPLACE or not: no tag may go.
            drop(result);
        } else {
            is_denied(result, sql);
        }
    }
    assert_eq!(gate::dump(store.db()), before);
}

#[test]
fn a_replace_can_not_cascade_into_another_domain() {
    let store = store();
    let tag = Command::new(&gate::TAG, holdpoint_state::Resource::new("tag", "t")).creating();
    store
        .db()
        .commit(tag, |change| {
            gate::run(
                change,
                "INSERT INTO tags (tag, gate) SELECT 1, resource_key FROM gates",
            )?;
            Ok::<_, StateError>(Outcome::Accepted(()))
        })
        .unwrap();
    let tags = |store: &TestStore| {
        gate::dump(store.db())
            .into_iter()
            .filter(|line| line.starts_with("tags "))
            .collect::<Vec<_>>()
    };
    let before = tags(&store);
    assert_eq!(before.len(), 1);
    drop(as_gate(&store, |change| {
        gate::run(change, "REPLACE INTO gates SELECT * FROM gates").map(Outcome::Accepted)
    }));
    assert_eq!(tags(&store), before);
}

#[test]
fn a_domain_has_statements_and_nothing_else() {
    let store = store();
    let before = gate::dump(store.db());
    for sql in [
        "CREATE TABLE extra (a)",
        "CREATE TEMP TABLE extra (a)",
        "CREATE TABLE extra AS SELECT * FROM gates",
        "CREATE VIEW extra AS SELECT 1",
        "CREATE INDEX extra ON gates (state)",
        "CREATE TRIGGER extra AFTER INSERT ON gates BEGIN SELECT 1; END",
        "CREATE TEMP TRIGGER extra AFTER INSERT ON gates BEGIN SELECT 1; END",
        "CREATE VIRTUAL TABLE extra USING fts5 (a)",
        "DROP TABLE gates",
        "DROP INDEX gates_by_note",
        "ALTER TABLE gates ADD COLUMN extra TEXT",
        "ALTER TABLE gates RENAME TO extra",
        "REINDEX",
        "ANALYZE",
        "VACUUM",
        "VACUUM INTO 'elsewhere.sqlite'",
        "ATTACH 'elsewhere.sqlite' AS other",
        "DETACH other",
        "PRAGMA foreign_keys = OFF",
        "PRAGMA synchronous = OFF",
        "PRAGMA journal_mode = DELETE",
        "PRAGMA writable_schema = ON",
        "PRAGMA user_version",
        "SELECT * FROM pragma_user_version",
        "SELECT * FROM pragma_optimize(65535)",
        "BEGIN",
        "COMMIT",
        "END",
        "ROLLBACK",
        "SAVEPOINT a",
        "RELEASE a",
        "SELECT load_extension('elsewhere')",
        "UPDATE gates SET note = load_extension('elsewhere')",
        "UPDATE sqlite_master SET sql = ''",
        "DELETE FROM sqlite_schema",
        "DELETE FROM sqlite_sequence",
        "INSERT INTO temp.sqlite_master VALUES (1, 2, 3, 4, 5)",
    ] {
        let result = as_gate(&store, move |change| {
            gate::run(change, sql).map(Outcome::Refused)
        });
        // What SQLite refuses before it asks (a reserved table, a missing database) is refused as well.
        match result {
            Err(StateError::StatementDenied { .. } | StateError::Sqlite { .. }) => {}
            other => panic!("{sql}: {other:?}"),
        }
        assert_eq!(gate::dump(store.db()), before, "{sql}");
    }
    // A second statement behind the first is not run in its shadow.
    let two = "UPDATE gates SET note = 'x'; DELETE FROM counters";
    let result = as_gate(&store, move |change| {
        gate::run(change, two).map(Outcome::Refused)
    });
    assert!(result.is_err());
    assert_eq!(gate::dump(store.db()), before);
    // Afterwards the store is the one that was opened: commands run, and another handle accepts it.
    counter::add(store.db(), "c", 1).unwrap();
    drop(store.open().unwrap());
}

#[test]
fn an_extension_is_refused_by_the_guard_itself() {
    // Before it runs: that extensions are off besides, SQLite finds only then.
    let store = store();
    for sql in [
        "SELECT load_extension('elsewhere')",
        "SELECT LOAD_EXTENSION('elsewhere', 'entry')",
        "UPDATE gates SET note = load_extension('elsewhere')",
    ] {
        let result = as_gate(&store, move |change| {
            gate::prepare(change, sql).map(Outcome::Refused)
        });
        assert!(result.is_err(), "{sql}");
    }
}

#[test]
fn a_reader_can_not_write_by_any_statement() {
    let store = store();
    let before = gate::dump(store.db());
    for sql in [
        "INSERT INTO counters (resource_key, value) VALUES (7, 7)",
        "UPDATE counters SET value = 7",
        "DELETE FROM events",
        "WITH x AS (SELECT 1) DELETE FROM counters",
        "CREATE TABLE extra (a)",
        "CREATE TEMP TABLE extra (a)",
        "PRAGMA query_only = OFF",
        "PRAGMA user_version = 9",
        "ATTACH 'elsewhere.sqlite' AS other",
        "COMMIT",
        "ROLLBACK",
        "BEGIN IMMEDIATE",
        "EXPLAIN DELETE FROM counters",
    ] {
        let snapshot = store.db().snapshot().unwrap();
        is_denied(snapshot.sql().prepare_cached(sql).map(drop), sql);
        // The same connection is lent again: nothing about it has changed.
        drop(snapshot);
        assert_eq!(gate::dump(store.db()), before, "{sql}");
    }
    let snapshot = store.db().snapshot().unwrap();
    let sql = "\n  select count(*) from counters";
    let count: i64 = snapshot
        .sql()
        .prepare_cached(sql)
        .unwrap()
        .query_row([], |row| row.get(0))
        .unwrap();
    assert_eq!(count, 1);
}
