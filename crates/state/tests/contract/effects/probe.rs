//! A domain with sources of every scope, and short ways to change them.

use holdpoint_state::clock::UnixMillis;
use holdpoint_state::effects::{self, EffectContent, EffectView, Recovered};
use holdpoint_state::records::resources::expect_one;
use holdpoint_state::schema::{Domain, EffectType, Reach};
use holdpoint_state::sql::named_params;
use holdpoint_state::testing::TestStore;
use holdpoint_state::{
    Actor, ActorKind, Change, Claim, Command, Database, EffectId, EffectStart, LeaseRule,
    NewEffect, Operation, Outcome, Owner, OwnerKind, OwnerScope, Payload, Resource, StateError,
};
use serde_json::json;

pub(crate) const DOMAIN: Domain = Domain {
    ddl: "CREATE TABLE tallies (resource_key INTEGER PRIMARY KEY REFERENCES resources (resource_key), value INTEGER NOT NULL) STRICT;",
    resource_types: &["run", "decision", "controller", "channel", "counter"],
    operations: &[&CREATE, &TOUCH, &WORK],
    effect_types: &[
        EffectType {
            name: "channel.delivery",
            summary: "Sends a message.",
            reach: Reach::External,
        },
        EffectType {
            name: "probe.send",
            summary: "Tells another system.",
            reach: Reach::External,
        },
        EffectType {
            name: "probe.other",
            summary: "Tells a third system.",
            reach: Reach::External,
        },
        EffectType {
            name: "probe.settle_queue",
            summary: "Adds one to the tally of the source.",
            reach: Reach::Local,
        },
    ],
    ..Domain::named("probe")
};

const fn operation(name: &'static str, event: &'static str, lease: LeaseRule) -> Operation {
    Operation {
        name,
        event,
        resource: Operation::ANY_RESOURCE,
        summary: "A step of a test.",
        actors: ActorKind::ALL,
        lease,
        from: &[],
        to: &[],
    }
}

pub(crate) const CREATE: Operation =
    operation("probe.create", "probe.created", LeaseRule::NotRequired);
pub(crate) const TOUCH: Operation =
    operation("probe.touch", "probe.touched", LeaseRule::NotRequired);
pub(crate) const WORK: Operation = operation("probe.work", "probe.worked", LeaseRule::Required);

/// A store with the probe domain.
pub(crate) fn store() -> TestStore {
    TestStore::new([DOMAIN]).unwrap()
}

pub(crate) fn run(name: &str) -> Resource {
    Resource::new("run", name)
}

/// Makes a source.
pub(crate) fn create(db: &Database, source: &Resource) {
    db.commit(Command::new(&CREATE, source.clone()).creating(), |change| {
        let key = change.resource_key()?;
        insert_tally(change, key)?;
        Ok::<_, StateError>(Outcome::Accepted(()))
    })
    .unwrap();
}

#[expect(clippy::disallowed_methods, reason = "the store room of this domain")]
fn insert_tally(
    change: &mut Change<'_>,
    key: holdpoint_state::ResourceKey,
) -> Result<(), StateError> {
    let written = change
        .sql()
        .prepare_cached("INSERT INTO tallies (resource_key, value) VALUES (:key, 0)")?
        .execute(named_params! { ":key": key })?;
    expect_one(written, "tallies", "new")
}

/// Adds one to the tally of the change's own resource.
#[expect(clippy::disallowed_methods, reason = "the store room of this domain")]
pub(crate) fn add_tally(change: &mut Change<'_>) -> Result<(), StateError> {
    let key = change.resource_key()?;
    let written = change
        .sql()
        .prepare_cached("UPDATE tallies SET value = value + 1 WHERE resource_key = :key")?
        .execute(named_params! { ":key": key })?;
    expect_one(written, "tallies", "tally")
}

/// The tally of a source.
pub(crate) fn tally(db: &Database, source: &Resource) -> i64 {
    db.snapshot()
        .unwrap()
        .sql()
        .prepare_cached(
            "SELECT t.value FROM tallies t JOIN resources r ON r.resource_key = t.resource_key
             WHERE r.aggregate_key = ?1 AND r.resource_type = ?2",
        )
        .unwrap()
        .query_row((source.key(), source.kind()), |row| row.get(0))
        .unwrap()
}

pub(crate) fn claim(db: &Database, source: &Resource) -> Claim {
    let owner = Owner::new(OwnerKind::Host, "host");
    db.claim(source.clone(), Actor::host("host"), &owner, 30_000)
        .unwrap()
}

/// An accepted change of the source, without a lease.
pub(crate) fn touch<T: Send + 'static>(
    db: &Database,
    source: &Resource,
    mut body: impl FnMut(&mut Change<'_>) -> Result<T, StateError> + Send + 'static,
) -> Result<T, StateError> {
    let command = Command::new(&TOUCH, source.clone());
    db.commit(command, move |change| Ok(Outcome::Accepted(body(change)?)))
        .map(|receipt| receipt.value)
}

/// An accepted change of the source, with its lease.
pub(crate) fn work<T: Send + 'static>(
    db: &Database,
    claim: &Claim,
    mut body: impl FnMut(&mut Change<'_>) -> Result<T, StateError> + Send + 'static,
) -> Result<T, StateError> {
    let command = Command::new(&WORK, claim.resource().clone())
        .by(Actor::host("host"))
        .holding(claim);
    db.commit(command, move |change| Ok(Outcome::Accepted(body(change)?)))
        .map(|receipt| receipt.value)
}

/// Reserves and begins, as an engine does before it acts.
pub(crate) fn begin(
    db: &Database,
    claim: &Claim,
    effect: &NewEffect,
) -> Result<EffectStart, StateError> {
    let effect = effect.clone();
    work(db, claim, move |change| change.begin_effect(&effect))
}

/// Recovery of a source by its new owner.
#[expect(
    clippy::redundant_closure_for_method_calls,
    reason = "the method is generic over the lifetime of the change, and a path to it is not"
)]
pub(crate) fn recover(db: &Database, claim: &Claim) -> Recovered {
    work(db, claim, |change| change.recover_effects()).unwrap()
}

/// An action of a run.
pub(crate) fn action(key: &str, recovery: &str) -> NewEffect {
    let payload = json!({ "recovery": recovery, "request": { "to": "staging" } });
    NewEffect::new(
        "preview.deploy",
        key,
        OwnerScope::Run,
        Payload::json(&payload).unwrap(),
    )
}

/// A follow-up that the outbox applies in another system.
pub(crate) fn send(key: &str) -> NewEffect {
    let payload = Payload::json(&json!({ "text": key })).unwrap();
    NewEffect::new("probe.send", key, OwnerScope::System, payload)
}

pub(crate) fn view(db: &Database, id: &EffectId) -> EffectView {
    effects::fetch(&db.snapshot().unwrap(), id)
        .unwrap()
        .unwrap()
}

pub(crate) fn content(db: &Database, id: &EffectId) -> EffectContent {
    effects::content(&db.snapshot().unwrap(), id)
        .unwrap()
        .unwrap()
}

/// One number of the database.
pub(crate) fn number(db: &Database, sql: &'static str) -> i64 {
    db.snapshot()
        .unwrap()
        .sql()
        .prepare_cached(sql)
        .unwrap()
        .query_row([], |row| row.get(0))
        .unwrap()
}

/// The attempts of an effect: number, owner's generation, outcome.
pub(crate) fn attempts(db: &Database, id: &EffectId) -> Vec<(u32, Option<String>)> {
    let snapshot = db.snapshot().unwrap();
    let mut statement = snapshot
        .sql()
        .prepare_cached(
            "SELECT a.attempt_number, a.outcome FROM effect_attempts a JOIN resources r USING (resource_key)
             WHERE hex(r.aggregate_key) = upper(substr(?1, 8)) ORDER BY a.attempt_number",
        )
        .unwrap();
    let rows = statement
        .query_map([id], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap();
    rows.map(Result::unwrap).collect()
}

/// The events of an effect, in order.
pub(crate) fn events(db: &Database, id: &EffectId) -> Vec<String> {
    let snapshot = db.snapshot().unwrap();
    let mut statement = snapshot
        .sql()
        .prepare_cached(
            "SELECT v.event_type FROM events v JOIN resources r USING (resource_key)
             WHERE hex(r.aggregate_key) = upper(substr(?1, 8)) ORDER BY v.resource_revision",
        )
        .unwrap();
    let rows = statement.query_map([id], |row| row.get(0)).unwrap();
    rows.map(Result::unwrap).collect()
}

/// Every row that breaks an invariant, with the invariant's name.
pub(crate) fn violations(db: &Database) -> Vec<String> {
    let snapshot = db.snapshot().unwrap();
    let mut found = Vec::new();
    for invariant in db
        .schema()
        .domains()
        .iter()
        .flat_map(|domain| domain.invariants)
    {
        let mut statement = snapshot.sql().prepare_cached(invariant.violations).unwrap();
        let mut rows = statement.query([]).unwrap();
        while let Some(row) = rows.next().unwrap() {
            let value: holdpoint_state::sql::Value = row.get(0).unwrap();
            found.push(format!("{}: {value:?}", invariant.name));
        }
    }
    found
}

/// A store's clock, for effects that are due later.
pub(crate) fn later(store: &TestStore, by_ms: i64) -> UnixMillis {
    use holdpoint_state::clock::Clock as _;
    store.clock().now().plus(by_ms)
}
