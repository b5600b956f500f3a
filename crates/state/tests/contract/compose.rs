//! Domains compose into one schema only when no two claim the same thing and none reaches into what another one has.

use holdpoint_state::schema::{Domain, EffectType, Migration, Projector, Reach};
use holdpoint_state::testing::{TestStore, counter};
use holdpoint_state::{
    ActorKind, Change, Command, Identity, LeaseRule, Operation, Outcome, Refusal, Schema,
    StateError,
};

use super::gate;

const fn operation(name: &'static str, resource: &'static str) -> Operation {
    Operation {
        name,
        event: "other.event",
        resource,
        summary: "A test's operation.",
        actors: ActorKind::ALL,
        lease: LeaseRule::NotRequired,
        from: &[],
        to: &[],
    }
}

const ADD_AGAIN: Operation = operation("counter.add", "thing");
const ON_COUNTERS: Operation = operation("thing.count", "counter");
const ON_NOTHING: Operation = operation("thing.vanish", "nothing");
const ON_ALL: Operation = operation("thing.touch", Operation::ANY_RESOURCE);
const NO_ACTOR: Operation = Operation {
    actors: &[],
    ..operation("thing.wait", "thing")
};
const ANNOUNCE: EffectType = EffectType {
    name: "counter.announce",
    summary: "Claimed already.",
    reach: Reach::Local,
};
const NAMELESS: EffectType = EffectType {
    name: "",
    ..ANNOUNCE
};

const THING: Domain = Domain {
    ddl: "CREATE TABLE things (resource_key INTEGER PRIMARY KEY, note TEXT) STRICT;",
    resource_types: &["thing"],
    ..Domain::named("thing")
};

fn problem(domains: impl IntoIterator<Item = Domain>) -> String {
    match Schema::compose(Identity::PI_WORKFLOWS, domains) {
        Err(StateError::Refused { refusal, .. }) => match *refusal {
            Refusal::Compose { problem } => problem,
            other => panic!("{other:?}"),
        },
        Err(other) => panic!("{other:?}"),
        Ok(_) => "composed".to_owned(),
    }
}

/// What becomes of the counter domain and another one.
fn beside_counters(domain: Domain) -> String {
    problem([holdpoint_state::DOMAIN, counter::DOMAIN, domain])
}

#[test]
fn each_claim_on_what_another_domain_has_is_refused() {
    let table = |ddl| Domain { ddl, ..THING };
    let operations = |operations| Domain {
        operations,
        ..THING
    };
    let cases = [
        ("nothing wrong", THING),
        (
            "name",
            Domain {
                name: "counter",
                ..THING
            },
        ),
        ("no name", Domain { name: "", ..THING }),
        ("table", table("CREATE TABLE counters (a TEXT) STRICT;")),
        (
            "resource type",
            Domain {
                resource_types: &["counter"],
                ..THING
            },
        ),
        ("operation", operations(&[&ADD_AGAIN])),
        (
            "operation on another's resource",
            operations(&[&ON_COUNTERS]),
        ),
        ("operation on no resource", operations(&[&ON_NOTHING])),
        ("operation for nobody", operations(&[&NO_ACTOR])),
        (
            "effect type",
            Domain {
                effect_types: &[ANNOUNCE],
                ..THING
            },
        ),
        (
            "nameless effect type",
            Domain {
                effect_types: &[NAMELESS],
                ..THING
            },
        ),
        ("not strict", table("CREATE TABLE things (a TEXT);")),
        ("view", table("CREATE VIEW things AS SELECT 1;")),
        ("no DDL", table("CREATE TABLE;")),
        (
            "index",
            table("CREATE UNIQUE INDEX once ON counters (value);"),
        ),
        (
            "index of the kernel",
            table("CREATE INDEX late ON events (recorded_at);"),
        ),
        (
            "trigger",
            table("CREATE TRIGGER more AFTER UPDATE ON counters BEGIN SELECT 1; END;"),
        ),
        (
            "altered",
            table("ALTER TABLE counters ADD COLUMN more TEXT;"),
        ),
        ("dropped", table("DROP TABLE counters;")),
    ];
    let lines: Vec<_> = cases
        .map(|(name, domain)| format!("{name}: {}", beside_counters(domain)))
        .to_vec();
    insta::assert_snapshot!(lines.join("\n"));
    insta::assert_snapshot!(problem([counter::DOMAIN]), @"the first domain must be `state`");
    insta::assert_snapshot!(problem([]), @"the first domain must be `state`");
}

#[test]
fn the_digest_tells_compositions_apart_and_nothing_else() {
    let compose = |domains: &[Domain]| {
        let kernel = std::iter::once(holdpoint_state::DOMAIN);
        Schema::compose(
            Identity::PI_WORKFLOWS,
            kernel.chain(domains.iter().copied()),
        )
        .unwrap()
    };
    let counters = compose(&[counter::DOMAIN]).digest();
    assert_eq!(counters, compose(&[counter::DOMAIN]).digest());
    assert_ne!(counters, compose(&[]).digest());
    let commented = Domain {
        ddl: "-- Why.\nCREATE TABLE  things\n(resource_key INTEGER /* so */ PRIMARY KEY, note TEXT) STRICT;",
        ..THING
    };
    assert_eq!(compose(&[THING]).digest(), compose(&[commented]).digest());
    // The order of domains above each other is no part of the file.
    assert_eq!(
        compose(&[THING, counter::DOMAIN]).digest(),
        compose(&[counter::DOMAIN, THING]).digest()
    );
}

#[test]
fn an_operation_on_every_resource_is_on_those_of_its_own_domain() {
    const LOUD: Domain = Domain {
        operations: &[&ON_ALL],
        ..THING
    };
    let store = TestStore::new([counter::DOMAIN, LOUD]).unwrap();
    counter::create(store.db(), "c").unwrap();
    let before = gate::dump(store.db());
    let touch = |resource| {
        store
            .db()
            .commit(Command::new(&ON_ALL, resource).creating(), |_| {
                Ok::<_, StateError>(Outcome::Accepted(()))
            })
    };
    let refused = touch(counter::resource("c"));
    assert!(
        matches!(refused, Err(StateError::Misuse { .. })),
        "{refused:?}"
    );
    assert_eq!(gate::dump(store.db()), before);
    touch(holdpoint_state::Resource::new("thing", "t")).unwrap();
}

#[test]
fn migrations_rise_by_one_to_the_version_of_the_schema() {
    const fn to(to_version: i64) -> Migration {
        Migration {
            name: "a step",
            to_version,
            sql: "",
        }
    }
    let identity = Identity {
        user_version: 3,
        ..Identity::PI_WORKFLOWS
    };
    let migrating = |steps: &[Migration]| {
        Schema::compose(identity, [holdpoint_state::DOMAIN])
            .unwrap()
            .migrating(steps.iter().copied())
            .is_ok()
    };
    assert!(migrating(&[]));
    assert!(migrating(&[to(3)]));
    assert!(migrating(&[to(2), to(3)]));
    assert!(!migrating(&[to(1), to(3)]));
    assert!(!migrating(&[to(3), to(2)]));
    assert!(!migrating(&[to(2)]));
    assert!(!migrating(&[to(i64::MAX), to(3)]));
}

#[test]
fn a_projector_that_fails_undoes_the_command() {
    fn refuse(
        _: &mut Change<'_>,
        touched: &holdpoint_state::command::Touched,
    ) -> Result<(), StateError> {
        if touched.operation.name == "counter.add" {
            return Err(StateError::Input {
                what: "view",
                problem: "it has no room".into(),
            });
        }
        Ok(())
    }
    const PICKY: Domain = Domain {
        projectors: &[Projector {
            name: "picky",
            project: refuse,
        }],
        ..THING
    };
    let store = TestStore::new([counter::DOMAIN, PICKY]).unwrap();
    counter::create(store.db(), "c").unwrap();
    let before = gate::dump(store.db());
    let error = counter::add(store.db(), "c", 1).unwrap_err();
    assert!(matches!(error, StateError::Input { .. }), "{error:?}");
    assert_eq!(gate::dump(store.db()), before);
}
