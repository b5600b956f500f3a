//! The smallest whole domain: named counters. Tests of the kernel use it, and it shows the rooms of a domain in one file.
#![expect(
    clippy::disallowed_methods,
    reason = "store room: may ask Change for SQL"
)]

use crate::command::{Actor, ActorKind, Change, Command, LeaseRule, Operation, Outcome, Receipt};
use crate::database::{Database, Snapshot, Ticket};
use crate::error::StateError;
use crate::id::Resource;
use crate::records::blobs::Payload;
use crate::records::effects::{NewEffect, OwnerScope};
use crate::records::resources::expect_one;
use crate::schema::{Domain, EffectType, Invariant, Reach};
use crate::sql::{OptionalExtension as _, named_params};

/// The counter domain.
pub const DOMAIN: Domain = Domain {
    ddl: include_str!("counter.sql"),
    resource_types: &["counter"],
    operations: &[&CREATE, &ADD, &ADD_OWNED],
    effect_types: &[
        EffectType {
            name: "counter.announce",
            summary: "Tells the world the new value.",
            reach: Reach::External,
        },
        EffectType {
            name: "counter.tally",
            summary: "Adds the change to the counter named total.",
            reach: Reach::Local,
        },
    ],
    invariants: &[Invariant {
        name: "counterRevision",
        summary: "A counter's value never exceeds a hundred times its number of changes.",
        violations: "SELECT r.aggregate_key FROM counters c JOIN resources r ON r.resource_key = c.resource_key
             WHERE r.revision * 100 < c.value",
    }],
    ..Domain::named("counter")
};

/// Makes a counter at 0.
pub const CREATE: Operation = Operation {
    name: "counter.create",
    event: "counter.created",
    resource: "counter",
    summary: "Makes a counter at 0.",
    actors: ActorKind::ALL,
    lease: LeaseRule::NotRequired,
    from: &[],
    to: &[],
};

/// Adds to a counter.
pub const ADD: Operation = Operation {
    name: "counter.add",
    event: "counter.added",
    resource: "counter",
    summary: "Adds to a counter that nobody needs to own.",
    actors: &[ActorKind::Host, ActorKind::Human, ActorKind::System],
    lease: LeaseRule::NotRequired,
    from: &[],
    to: &[],
};

/// Adds to a counter that the caller owns.
pub const ADD_OWNED: Operation = Operation {
    name: "counter.add_owned",
    event: "counter.added",
    resource: "counter",
    summary: "Adds to a counter whose lease the caller holds, and renews the lease.",
    actors: &[ActorKind::Host, ActorKind::System],
    lease: LeaseRule::Required,
    from: &[],
    to: &[],
};

/// The resource of a counter.
pub fn resource(name: &str) -> Resource {
    Resource::new("counter", name)
}

/// Makes a counter; a repeat adopts.
///
/// # Errors
///
/// Those of the kernel.
pub fn create(db: &Database, name: &str) -> Result<Receipt<()>, StateError> {
    let command = Command::new(&CREATE, resource(name)).creating();
    db.commit(command, |change| {
        if !change.is_new() {
            return Ok(Outcome::Adopted(()));
        }
        insert(change)?;
        Ok(Outcome::Accepted(()))
    })
}

/// Adds `amount` to a counter and returns the new value.
///
/// # Errors
///
/// Those of the kernel.
pub fn add(db: &Database, name: &str, amount: i64) -> Result<Receipt<i64>, StateError> {
    let payload = Payload::json(&serde_json::json!({ "amount": amount }))?;
    let command = Command::new(&ADD, resource(name))
        .by(Actor::host("test"))
        .recording(payload);
    db.commit(command, move |change| {
        Ok(Outcome::Accepted(increase(change, amount)?))
    })
}

/// The store room: writes the new counter.
///
/// # Errors
///
/// Those of the database.
pub fn insert(change: &mut Change<'_>) -> Result<(), StateError> {
    let key = change.resource_key()?;
    let written = change
        .sql()
        .prepare_cached("INSERT INTO counters (resource_key, value) VALUES (:resource_key, 0)")?
        .execute(named_params! { ":resource_key": key })?;
    expect_one(written, "counters", change.resource().key())
}

/// The store room: adds to the counter of this change and returns the new value.
///
/// # Errors
///
/// Those of the database.
pub fn increase(change: &mut Change<'_>, amount: i64) -> Result<i64, StateError> {
    let key = change.resource_key()?;
    let written = change
        .sql()
        .prepare_cached(
            "UPDATE counters SET value = value + :amount WHERE resource_key = :resource_key",
        )?
        .execute(named_params! { ":resource_key": key, ":amount": amount })?;
    expect_one(written, "counters", change.resource().key())?;
    // Not RETURNING: SQLite collects its rows in a table of its own, which costs more than to read the row again.
    change
        .sql()
        .prepare_cached("SELECT value FROM counters WHERE resource_key = :resource_key")?
        .query_row(named_params! { ":resource_key": key }, |row| row.get(0))
        .map_err(StateError::from)
}

/// The views room: the value of a counter.
///
/// # Errors
///
/// Those of the database.
pub fn value(snapshot: &Snapshot<'_>, name: &str) -> Result<Option<i64>, StateError> {
    snapshot
        .sql()
        .prepare_cached(
            "SELECT c.value FROM counters c JOIN resources r ON r.resource_key = c.resource_key
             WHERE r.resource_type = 'counter' AND r.aggregate_key = :name",
        )?
        .query_row(named_params! { ":name": name }, |row| row.get(0))
        .optional()
        .map_err(StateError::from)
}

/// Submits an addition that announces itself to the world by an effect: the full command, with everything that a command can have.
///
/// # Errors
///
/// Those of the kernel.
pub fn submit_announced(
    db: &Database,
    name: &str,
    amount: i64,
    note: &str,
) -> Result<Ticket<i64, StateError>, StateError> {
    let payload = Payload::json(&serde_json::json!({ "amount": amount, "note": note }))?;
    let request = Payload::json(&serde_json::json!({ "amount": amount }))?;
    let command = Command::new(&ADD, resource(name))
        .by(Actor::host("bench"))
        .recording(payload);
    db.submit(command, move |change| {
        let value = increase(change, amount)?;
        let key = change.next_revision().to_string();
        let announcement =
            NewEffect::new("counter.announce", key, OwnerScope::System, request.clone());
        change.reserve_effect(&announcement)?;
        Ok(Outcome::Accepted(value))
    })
}
