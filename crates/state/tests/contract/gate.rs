//! A domain that is made to be misused: states, a deferred constraint, a trigger and a cascade into tables of others.
//!
//! Store functions of tests live here and in the tests themselves: they stand for a domain that breaks the rules.

#![expect(
    clippy::disallowed_methods,
    reason = "stands for the store room of a domain"
)]

use holdpoint_state::command::Touched;
use holdpoint_state::schema::{Domain, Projector};
use holdpoint_state::sql::{Value, named_params};
use holdpoint_state::testing::{TestStore, counter};
use holdpoint_state::{
    ActorKind, Change, Command, Database, LeaseRule, Operation, Outcome, Receipt, Resource,
    StateError,
};

/// Gates: closed or open, each with the number of another one beside it, which must exist at the end of a transaction.
pub(crate) const DOMAIN: Domain = Domain {
    ddl: "
        CREATE TABLE gates (
            resource_key INTEGER PRIMARY KEY REFERENCES resources (resource_key),
            state TEXT NOT NULL CHECK (state IN ('closed', 'open')),
            note TEXT NOT NULL DEFAULT '',
            reach INTEGER NOT NULL DEFAULT 0,
            beside INTEGER REFERENCES gates (resource_key) DEFERRABLE INITIALLY DEFERRED
        ) STRICT;
        CREATE INDEX gates_by_note ON gates (note);
        CREATE TABLE gate_log (
            gate INTEGER PRIMARY KEY REFERENCES gates (resource_key) ON DELETE CASCADE,
            touches INTEGER NOT NULL
        ) STRICT;
        -- Reaches into another domain.
        CREATE TRIGGER gates_reach AFTER UPDATE OF reach ON gates BEGIN
            UPDATE counters SET value = 77;
        END;
    ",
    resource_types: &["gate"],
    operations: &[&CREATE, &OPEN, &SHUT, &LOCK, &RULE, &PEOPLE],
    projectors: &[Projector {
        name: "gate_log",
        project: log,
    }],
    ..Domain::named("gate")
};

/// A neighbour whose table hangs on the gates by a cascade.
pub(crate) const NEIGHBOUR: Domain = Domain {
    ddl: "CREATE TABLE tags (
            tag INTEGER PRIMARY KEY,
            gate INTEGER REFERENCES gates (resource_key) ON DELETE CASCADE
        ) STRICT;",
    resource_types: &["tag"],
    operations: &[&TAG],
    ..Domain::named("neighbour")
};

const fn operation(
    name: &'static str,
    from: &'static [&'static str],
    to: &'static [&'static str],
) -> Operation {
    Operation {
        name,
        event: name,
        resource: "gate",
        summary: "A test's operation.",
        actors: ActorKind::ALL,
        lease: LeaseRule::NotRequired,
        from,
        to,
    }
}

pub(crate) const CREATE: Operation = operation("gate.create", &[], &[]);
pub(crate) const OPEN: Operation = operation("gate.open", &["closed"], &["open"]);
pub(crate) const SHUT: Operation = operation("gate.shut", &["open"], &["closed"]);
pub(crate) const LOCK: Operation = Operation {
    lease: LeaseRule::Required,
    ..operation("gate.lock", &[], &[])
};
pub(crate) const RULE: Operation = Operation {
    actors: &[ActorKind::Policy],
    ..operation("gate.rule", &[], &[])
};
pub(crate) const PEOPLE: Operation = Operation {
    actors: &[ActorKind::Human],
    ..operation("gate.people", &[], &[])
};
pub(crate) const TAG: Operation = Operation {
    resource: "tag",
    ..operation("tag.make", &[], &[])
};

pub(crate) fn resource(name: &str) -> Resource {
    Resource::new("gate", name)
}

pub(crate) fn store() -> TestStore {
    TestStore::new([counter::DOMAIN, DOMAIN, NEIGHBOUR]).unwrap()
}

fn log(change: &mut Change<'_>, touched: &Touched) -> Result<(), StateError> {
    if touched.resource.kind() != "gate" {
        return Ok(());
    }
    let key = change.resource_key()?;
    change
        .sql()
        .prepare_cached(
            "INSERT INTO gate_log (gate, touches) VALUES (:gate, 1) ON CONFLICT (gate) DO UPDATE SET touches = touches + 1",
        )?
        .execute(named_params! { ":gate": key })?;
    Ok(())
}

pub(crate) fn insert(change: &mut Change<'_>) -> Result<(), StateError> {
    let key = change.resource_key()?;
    change
        .sql()
        .prepare_cached("INSERT INTO gates (resource_key, state) VALUES (:key, 'closed')")?
        .execute(named_params! { ":key": key })?;
    Ok(())
}

pub(crate) fn note(change: &mut Change<'_>, text: &str) -> Result<(), StateError> {
    let key = change.resource_key()?;
    change
        .sql()
        .prepare_cached("UPDATE gates SET note = :note WHERE resource_key = :key")?
        .execute(named_params! { ":key": key, ":note": text })?;
    Ok(())
}

/// Names a neighbour that does not exist: an error that only the COMMIT finds.
pub(crate) fn break_at_commit(change: &mut Change<'_>) -> Result<(), StateError> {
    let key = change.resource_key()?;
    change
        .sql()
        .prepare_cached("UPDATE gates SET beside = 999999 WHERE resource_key = :key")?
        .execute(named_params! { ":key": key })?;
    Ok(())
}

/// Runs one statement in the name of the change's domain.
pub(crate) fn run(change: &Change<'_>, sql: &'static str) -> Result<usize, StateError> {
    change
        .sql()
        .prepare_cached(sql)?
        .execute([])
        .map_err(StateError::from)
}

/// Prepares one statement in the name of the change's domain, and does not run it.
pub(crate) fn prepare(change: &Change<'_>, sql: &'static str) -> Result<(), StateError> {
    change.sql().prepare_cached(sql).map(drop)
}

pub(crate) fn create(db: &Database, name: &str) -> Receipt<()> {
    db.commit(Command::new(&CREATE, resource(name)).creating(), |change| {
        insert(change)?;
        Ok::<_, StateError>(Outcome::Accepted(()))
    })
    .unwrap()
}

/// Every row of every table, so that a test can say "nothing changed" and mean it.
pub(crate) fn dump(db: &Database) -> Vec<String> {
    let snapshot = db.snapshot().unwrap();
    let mut lines = Vec::new();
    for (table, _) in db.schema().tables() {
        let sql: &'static str = Box::leak(format!("SELECT * FROM {table} ORDER BY 1, 2").into());
        let mut statement = snapshot.sql().prepare_cached(sql).unwrap();
        let columns = statement.column_count();
        let mut rows = statement.query([]).unwrap();
        while let Some(row) = rows.next().unwrap() {
            let cells: Vec<Value> = (0..columns).map(|at| row.get(at).unwrap()).collect();
            lines.push(format!("{table} {cells:?}"));
        }
    }
    lines
}

/// The revision of a resource and its events as `revision type generation`; each revision must have its event.
pub(crate) fn history(db: &Database, resource: &Resource) -> Vec<String> {
    let snapshot = db.snapshot().unwrap();
    let revision = snapshot
        .resource(resource)
        .unwrap()
        .map_or(0, |view| view.revision);
    let events = snapshot.events_of(resource, 0, 1_000).unwrap();
    assert_eq!(revision, u64::try_from(events.len()).unwrap());
    for (index, event) in events.iter().enumerate() {
        assert_eq!(event.revision, u64::try_from(index).unwrap() + 1);
    }
    events
        .iter()
        .map(|event| match event.lease_generation {
            Some(generation) => {
                format!("{} {} by {generation}", event.revision, event.event_type)
            }
            None => format!("{} {}", event.revision, event.event_type),
        })
        .collect()
}
