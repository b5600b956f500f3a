//! No domain writes a table of another: every domain, every table of another one, INSERT, UPDATE and DELETE, in every way that a
//! statement can take.

#![expect(
    clippy::disallowed_methods,
    reason = "stands for the store rooms of domains that break the rules"
)]

use std::sync::Mutex;

use holdpoint_state::command::Touched;
use holdpoint_state::schema::Projector;
use holdpoint_state::testing::{TestStore, counter};
use holdpoint_state::{
    Actor, ActorKind, Change, Command, Database, Domain, Identity, LeaseRule, Operation, Outcome,
    Resource, Schema, StateError,
};

use crate::rows::{self, leak};

/// A domain of a test, beside those of the product: it owns one table and would like to have all.
const OUTSIDER: Domain = Domain {
    ddl: "CREATE TABLE outsiders (
            resource_key INTEGER PRIMARY KEY REFERENCES resources (resource_key),
            note TEXT NOT NULL DEFAULT ''
        ) STRICT;",
    resource_types: &["outsider"],
    ..Domain::named("outsider")
};

const fn operation(name: &'static str, resource: &'static str) -> Operation {
    Operation {
        name,
        event: name,
        resource,
        summary: "Tries statements in the name of a domain.",
        actors: ActorKind::ALL,
        lease: LeaseRule::NotRequired,
        from: &[],
        to: &[],
    }
}

/// What is done to a table.
const VERBS: [&str; 3] = ["INSERT", "UPDATE", "DELETE"];

/// One table of the composed schema.
#[derive(Clone, Debug)]
struct Table {
    name: String,
    owner: &'static str,
    column: String,
}

impl Table {
    /// A statement that would change every row, in its plain form.
    fn harm(&self, verb: &str) -> String {
        let Self { name, column, .. } = self;
        match verb {
            "INSERT" => format!("INSERT INTO {name} SELECT * FROM {name}"),
            "UPDATE" => format!("UPDATE {name} SET {column} = {column}"),
            _ => format!("DELETE FROM {name}"),
        }
    }

    /// The same as it would be written to hide it.
    fn disguises(&self, verb: &str) -> Vec<String> {
        let Self { name, column, .. } = self;
        match verb {
            "INSERT" => vec![
                format!("INSERT INTO {name} DEFAULT VALUES"),
                format!("INSERT OR REPLACE INTO {name} SELECT * FROM {name}"),
                format!("REPLACE INTO main.{name} SELECT * FROM {name}"),
                format!(
                    "insert into \"{name}\" select * from {name} where true on conflict do nothing"
                ),
                format!("INSERT INTO {name} SELECT * FROM {name} RETURNING {column}"),
                format!("EXPLAIN INSERT INTO {name} DEFAULT VALUES"),
            ],
            "UPDATE" => vec![
                format!("UPDATE OR IGNORE main.{name} SET {column} = NULL"),
                format!(
                    "WITH x AS (SELECT 1) UPDATE {name} SET {column} = {column} RETURNING {column}"
                ),
                format!("/* DELETE */ update [{name}] set {column} = {column} from (select 1)"),
                format!("EXPLAIN QUERY PLAN UPDATE {name} SET {column} = {column}"),
            ],
            _ => vec![
                format!("DELETE FROM main.{name} WHERE {column} IS NOT NULL"),
                format!("WITH x AS (SELECT 1) DELETE FROM {name} RETURNING {column}"),
                format!("-- SELECT\n delete from `{name}`"),
                format!("DELETE FROM {name} WHERE 0"),
            ],
        }
    }

    /// A statement that is well formed and touches no row.
    fn harmless(&self, verb: &str) -> String {
        format!("{} WHERE 0", self.harm(verb))
    }
}

/// The table of a domain whose triggers write other tables: column `cN` is for one verb on one table.
fn carrier(domain: &str) -> String {
    format!("{}_carrier", domain.replace('-', "_"))
}

/// A domain with an operation of its own for the test, and with a carrier of triggers into every table.
fn with_probe(domain: Domain, tables: &[Table]) -> (Domain, Probe) {
    use std::fmt::Write as _;
    // A read model has no resource of its own; the probe needs one.
    let kind = match domain.resource_types.first() {
        Some(kind) => *kind,
        None => leak(format!("{}_probe", domain.name)),
    };
    let resource_types: &'static [&'static str] = match domain.resource_types {
        [] => Box::leak(Box::new([kind])),
        own => own,
    };
    let name = leak(format!("{}.guard_probe", domain.name));
    let operation: &'static Operation = Box::leak(Box::new(operation(name, kind)));
    let carrier = carrier(domain.name);
    let mut columns = String::from("id INTEGER PRIMARY KEY");
    let mut triggers = String::new();
    for (index, (table, verb)) in every(tables).enumerate() {
        let _ = write!(columns, ", c{index} INTEGER");
        let _ = writeln!(
            triggers,
            "CREATE TRIGGER {carrier}_{index} AFTER UPDATE OF c{index} ON {carrier} BEGIN {}; END;",
            table.harm(verb)
        );
    }
    let ddl = format!(
        "{}\nCREATE TABLE {carrier} ({columns}) STRICT;\n{triggers}",
        domain.ddl
    );
    let operations = [domain.operations, &[operation]].concat();
    let probe = Probe {
        domain: domain.name,
        operation,
        kind,
    };
    let domain = Domain {
        ddl: leak(ddl),
        operations: Box::leak(operations.into_boxed_slice()),
        resource_types,
        ..domain
    };
    (domain, probe)
}

fn every(tables: &[Table]) -> impl Iterator<Item = (&Table, &'static str)> {
    tables
        .iter()
        .flat_map(|table| VERBS.into_iter().map(move |verb| (table, verb)))
}

/// Acts in the name of one domain.
#[derive(Clone, Copy, Debug)]
struct Probe {
    domain: &'static str,
    operation: &'static Operation,
    kind: &'static str,
}

impl Probe {
    fn command(self) -> Command {
        Command::new(self.operation, Resource::new(self.kind, "guard-probe")).creating()
    }

    /// Runs a body in the name of the domain; what it wrote is kept, its own resource is not made.
    fn act<T: Send + 'static>(
        self,
        db: &Database,
        mut body: impl FnMut(&mut Change<'_>) -> T + Send + 'static,
    ) -> Result<T, StateError> {
        db.commit(self.command(), move |change| {
            Ok::<_, StateError>(Outcome::Refused(body(change)))
        })
        .map(|receipt| receipt.value)
    }
}

/// What became of one statement.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Fate {
    Denied,
    Ran,
    Failed(String),
}

fn run(change: &Change<'_>, sql: &'static str) -> Fate {
    let done = change.sql().prepare_cached(sql).and_then(|mut statement| {
        let mut rows = statement.query([])?;
        while rows.next()?.is_some() {}
        Ok(())
    });
    fate(done)
}

/// Prepares a statement and does not run it.
fn prepare(change: &Change<'_>, sql: &'static str) -> Fate {
    fate(change.sql().prepare_cached(sql).map(drop))
}

fn fate(done: Result<(), StateError>) -> Fate {
    match done {
        Ok(()) => Fate::Ran,
        Err(StateError::StatementDenied { .. }) => Fate::Denied,
        Err(error) => Fate::Failed(format!("{error:?}")),
    }
}

/// The product, the counter of the kit and the outsider, in one store that has rows.
struct World {
    store: TestStore,
    probes: Vec<Probe>,
    tables: Vec<Table>,
}

impl World {
    fn new() -> Self {
        let mut domains = rows::product_domains();
        domains.extend([counter::DOMAIN, OUTSIDER]);
        let tables = tables_of(&TestStore::new(domains.clone()).unwrap());
        let (domains, probes): (Vec<_>, Vec<_>) = domains
            .into_iter()
            .map(|domain| with_probe(domain, &tables))
            .unzip();
        let store = TestStore::new(domains).unwrap();
        rows::fill(store.db(), store.clock(), store.directory());
        counter::create(store.db(), "c").unwrap();
        let world = Self {
            store,
            probes,
            tables,
        };
        for probe in &world.probes {
            let sql = leak(format!(
                "INSERT INTO {} (id) VALUES (1)",
                carrier(probe.domain)
            ));
            let ran = probe
                .act(world.db(), move |change| run(change, sql))
                .unwrap();
            assert_eq!(ran, Fate::Ran, "{sql}");
        }
        world
    }

    fn db(&self) -> &Database {
        self.store.db()
    }

    fn probe(&self, domain: &str) -> Option<Probe> {
        self.probes
            .iter()
            .copied()
            .find(|probe| probe.domain == domain)
    }

    /// The update of a domain's carrier that carries a verb to a table.
    fn carried(&self, probe: Probe, table: &Table, verb: &str) -> &'static str {
        let index = every(&self.tables)
            .position(|(other, word)| other.name == table.name && word == verb)
            .unwrap();
        leak(format!("UPDATE {} SET c{index} = 1", carrier(probe.domain)))
    }

    /// Runs statements in the name of a domain and says what became of each.
    fn fates(
        &self,
        probe: Probe,
        how: fn(&Change<'_>, &'static str) -> Fate,
        statements: Vec<&'static str>,
    ) -> Vec<(&'static str, Fate)> {
        probe
            .act(self.db(), move |change| {
                statements
                    .iter()
                    .map(|sql| (*sql, how(change, sql)))
                    .collect()
            })
            .unwrap()
    }
}

fn tables_of(store: &TestStore) -> Vec<Table> {
    let snapshot = store.db().snapshot().unwrap();
    store
        .schema()
        .tables()
        .map(|(name, owner)| {
            let sql = leak(format!("SELECT * FROM {name}"));
            let statement = snapshot.sql().prepare_cached(sql).unwrap();
            Table {
                name: name.to_owned(),
                owner,
                column: statement.column_name(0).unwrap().to_owned(),
            }
        })
        .collect()
}

#[track_caller]
fn all_denied(fates: &[(&'static str, Fate)]) {
    let others: Vec<_> = fates
        .iter()
        .filter(|(_, fate)| *fate != Fate::Denied)
        .collect();
    assert!(others.is_empty(), "{others:#?}");
}

#[test]
fn no_domain_writes_a_table_of_another_in_any_way() {
    let world = World::new();
    assert_eq!(rows::empty_tables(world.db()), ["outsiders"]);
    let before = rows::dump(world.db());
    let mut tried = 0;
    for probe in &world.probes {
        for (table, verb) in every(&world.tables).filter(|(table, _)| table.owner != probe.domain) {
            // Plain: prepared and run at once. Disguised: the same in other words.
            let mut statements = vec![leak(table.harm(verb))];
            statements.extend(table.disguises(verb).into_iter().map(leak));
            // Carried: the statement is on a table of one's own, and its trigger goes on.
            statements.push(world.carried(*probe, table, verb));
            // Cached: the very same text at the very same address, in one command and in another.
            let again: Vec<_> = statements.iter().chain(&statements).copied().collect();
            let fates = world.fates(*probe, run, again);
            tried += fates.len();
            all_denied(&fates);
            // Prepared, and never run.
            all_denied(&world.fates(*probe, prepare, statements));
        }
    }
    // Four ways of writing, three verbs, and at least a dozen foreign tables for each of three domains.
    assert!(1_000 < tried, "{tried}");
    assert_eq!(rows::dump(world.db()), before);
}

#[test]
fn a_second_statement_runs_in_nobodys_shadow() {
    let world = World::new();
    let before = rows::dump(world.db());
    for probe in &world.probes {
        let own = format!("UPDATE {} SET id = id", carrier(probe.domain));
        for (table, verb) in every(&world.tables).filter(|(table, _)| table.owner != probe.domain) {
            let harm = table.harm(verb);
            let batches = [
                format!("SELECT 1; {harm}"),
                format!("{own}; {harm}"),
                format!("; {harm}"),
                format!("/* first */ ; -- second\n {harm};"),
            ];
            let fates = world.fates(*probe, run, batches.map(leak).to_vec());
            let ran: Vec<_> = fates
                .iter()
                .filter(|(_, fate)| *fate == Fate::Ran)
                .collect();
            // A text with more than one statement is refused as such, before or after it is asked whose table it is.
            assert!(ran.is_empty(), "{ran:?}");
        }
    }
    assert_eq!(rows::dump(world.db()), before);
}

#[test]
fn what_its_owner_has_cached_is_refused_to_everybody_else() {
    let world = World::new();
    let before = rows::dump(world.db());
    let mut tried = 0;
    for (table, verb) in every(&world.tables) {
        let Some(owner) = world.probe(table.owner) else {
            continue;
        };
        let text = leak(table.harmless(verb));
        let copy = leak(table.harmless(verb));
        for stranger in world
            .probes
            .iter()
            .copied()
            .filter(|probe| probe.domain != owner.domain)
        {
            // The owner first, so that the connection's cache holds the statement.
            assert_eq!(
                world.fates(owner, run, vec![text, text]),
                [(text, Fate::Ran), (text, Fate::Ran)]
            );
            // At the same address, then the same words at another one.
            all_denied(&world.fates(stranger, run, vec![text, copy, text, copy]));
            // Inside one transaction, while the owner holds the statement in its hands, and after it has given it back.
            let fates = owner
                .act(world.db(), move |change| {
                    let held = change.sql().prepare_cached(text).unwrap();
                    let nested = |change: &mut Change<'_>| {
                        let fates = vec![(text, run(change, text)), (copy, run(change, copy))];
                        Ok::<_, StateError>(Outcome::Refused(fates))
                    };
                    let command = stranger.command();
                    let mut fates = change.also(&command, nested).unwrap().value;
                    drop(held);
                    fates.extend(change.also(&command, nested).unwrap().value);
                    fates
                })
                .unwrap();
            all_denied(&fates);
            // In one group commit, the owner's command ahead of the stranger's.
            let submit = |probe: Probe| {
                world.db().submit(probe.command(), move |change| {
                    Ok::<_, StateError>(Outcome::Refused(vec![(text, run(change, text))]))
                })
            };
            let (first, second) = (submit(owner).unwrap(), submit(stranger).unwrap());
            assert_eq!(first.wait().unwrap().value, [(text, Fate::Ran)]);
            all_denied(&second.wait().unwrap().value);
            tried += 1;
        }
    }
    assert!(30 < tried, "{tried}");
    assert_eq!(rows::dump(world.db()), before);
}

#[test]
fn what_the_kernel_has_cached_is_refused_too() {
    // The very words of the kernel's own statement, which it has just prepared on this connection.
    const PROJECT: &str = "INSERT INTO projects (project_id, canonical_path, created_at)
                 VALUES (:project_id, :canonical_path, :now) ON CONFLICT (project_id) DO NOTHING";
    let world = World::new();
    for probe in &world.probes {
        let fate = probe
            .act(world.db(), |change| {
                change.project("/somewhere").unwrap();
                prepare(change, PROJECT)
            })
            .unwrap();
        assert_eq!(fate, Fate::Denied);
    }
}

#[test]
fn every_domain_writes_its_own_tables_in_every_way() {
    let world = World::new();
    let before = rows::dump(world.db());
    let mut tried = 0;
    for (table, verb) in every(&world.tables) {
        let Some(owner) = world.probe(table.owner) else {
            continue;
        };
        let text = leak(table.harmless(verb));
        let quoted = leak(table.harmless(verb).replacen(
            &table.name,
            &format!("main.\"{}\"", table.name),
            1,
        ));
        let expected: Vec<_> = [text, quoted, text].map(|sql| (sql, Fate::Ran)).to_vec();
        assert_eq!(world.fates(owner, run, vec![text, quoted, text]), expected);
        assert_eq!(
            world.fates(owner, prepare, vec![leak(table.harm(verb))])[0].1,
            Fate::Ran
        );
        assert_eq!(
            world.fates(owner, prepare, vec![world.carried(owner, table, verb)])[0].1,
            Fate::Ran
        );
        tried += 1;
    }
    assert!(30 < tried, "{tried}");
    assert_eq!(rows::dump(world.db()), before);
}

/// What the projector below tries.
static TRIES: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());
/// What came of it.
static TRIED: Mutex<Vec<(&'static str, Fate)>> = Mutex::new(Vec::new());

#[expect(clippy::unnecessary_wraps, reason = "the form of a projector")]
fn try_all(change: &mut Change<'_>, _touched: &Touched) -> Result<(), StateError> {
    let tries = TRIES.lock().unwrap();
    TRIED
        .lock()
        .unwrap()
        .extend(tries.iter().map(|sql| (*sql, run(change, sql))));
    Ok(())
}

#[test]
fn nobody_acts_in_the_name_of_the_kernel() {
    let world = World::new();
    // By its operations.
    for operation in holdpoint_state::DOMAIN.operations {
        let probe = world.probes[0];
        let actor = Actor::new(operation.actors[0], "test");
        let command = Command::new(operation, Resource::new(probe.kind, "guard-probe"))
            .creating()
            .by(actor);
        let result = world
            .db()
            .commit(command, |_| Ok::<_, StateError>(Outcome::Refused(())));
        assert!(
            matches!(result, Err(StateError::Misuse { .. })),
            "{}: {result:?}",
            operation.name
        );
    }
    // By code of others that runs while the kernel's own domain is the present one: it gets statements that read, and no others.
    let kernel = Domain {
        projectors: &[Projector {
            name: "guard_probe",
            project: try_all,
        }],
        ..holdpoint_state::DOMAIN
    };
    let schema =
        Schema::compose(Identity::PI_WORKFLOWS, [kernel, counter::DOMAIN, OUTSIDER]).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let db = Database::open(directory.path().join("state.sqlite"), &schema).unwrap();
    let tables = world
        .tables
        .iter()
        .filter(|table| schema.tables().any(|(name, _)| name == table.name));
    let statements: Vec<_> = tables
        .flat_map(|table| VERBS.map(|verb| leak(table.harm(verb))))
        .collect();
    let count = statements.len();
    assert!(30 <= count, "{count}");
    *TRIES.lock().unwrap() = statements;
    counter::create(&db, "c").unwrap();
    let tried = std::mem::take(&mut *TRIED.lock().unwrap());
    assert_eq!(tried.len(), count);
    all_denied(&tried);
}
