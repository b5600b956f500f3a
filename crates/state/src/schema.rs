//! A domain as a value, and the composition of domains into one schema.
//!
//! Composing checks everything that can be known without a file: that the DDL compiles, that no two domains claim the same table,
//! resource type, operation or effect type, and what the canonical digest is. Not here: files; those are the `database` rooms.

pub(crate) mod retention;
mod shape;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use crate::command::{Change, Operation, Touched};
use crate::database::KERNEL;
use crate::error::{Refusal, StateError};
use crate::id::Digest;
use crate::records;

pub(crate) use retention::Reference;
pub use retention::{Blocker, Crossing, Deletion, Fault, Link, Orphan, Retention};
pub use shape::Shape;

/// What a crate adds to the database: its tables, the types it claims and the rules that hold for its rows.
///
/// Each domain crate exports one constant of this type. See `docs/EXTENDING.md` for how to write one.
#[derive(Debug, Clone, Copy)]
pub struct Domain {
    /// The domain's name: lower-case, unique in a schema.
    pub name: &'static str,
    /// The DDL of its tables, indexes and triggers; every table `STRICT`.
    pub ddl: &'static str,
    /// The resource types it owns, such as `run`.
    pub resource_types: &'static [&'static str],
    /// Every transition it knows.
    pub operations: &'static [&'static Operation],
    /// The effect types it owns.
    pub effect_types: &'static [EffectType],
    /// What must hold for its rows; `verify` runs each.
    pub invariants: &'static [Invariant],
    /// What it protects from retention, what goes with what is dead, and how.
    pub retention: Retention,
    /// Called for each accepted touch of a resource, inside the same transaction.
    pub projectors: &'static [Projector],
}

impl Domain {
    /// The transition of that name. Readers look it up here; who wants it made calls the domain's own functions.
    pub fn operation(&self, name: &str) -> Option<&'static Operation> {
        let mut operations = self.operations.iter().copied();
        operations.find(|operation| operation.name == name)
    }

    /// A domain without anything, to fill in what is needed: `Domain { ddl: …, ..Domain::named("orders") }`.
    pub const fn named(name: &'static str) -> Self {
        Self {
            name,
            ddl: "",
            resource_types: &[],
            operations: &[],
            effect_types: &[],
            invariants: &[],
            retention: Retention::NOTHING,
            projectors: &[],
        }
    }
}

/// A kind of follow-up work.
#[derive(Debug, Clone, Copy)]
pub struct EffectType {
    /// The name, such as `channel.delivery`; 1 to 256 characters.
    pub name: &'static str,
    /// What it does, in one sentence.
    pub summary: &'static str,
    /// Whether its work is inside this database or outside.
    pub reach: Reach,
}

/// Where an effect's work happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Inside this database: exactly once, settled in the transaction that does the work.
    Local,
    /// In another system: at most once without proof.
    External,
}

/// A rule that holds for all rows at every commit.
#[derive(Debug, Clone, Copy)]
pub struct Invariant {
    /// The name, such as `X1` or `queueState`.
    pub name: &'static str,
    /// The rule, in one sentence.
    pub summary: &'static str,
    /// A `SELECT` whose first column names each row that breaks the rule.
    pub violations: &'static str,
}

/// Follows what happened inside its transaction: a read model of the change that it shows, or rows of the domain's own that must not
/// outlive what they hang on.
#[derive(Debug, Clone, Copy)]
pub struct Projector {
    /// The name, for errors.
    pub name: &'static str,
    /// Called once for each accepted touch, in the order of the domains; may write the tables of its own domain, and touch resources
    /// of its own with [`Change::also`]. It decides by what is stored and by the touch, so that every process does the same.
    pub project: fn(&mut Change<'_>, &Touched) -> Result<(), StateError>,
}

/// What makes a file a store of this product: parameters, so that other products can have their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// `PRAGMA application_id`.
    pub application_id: i32,
    /// `PRAGMA user_version`, the version of the whole schema.
    pub user_version: i64,
    /// `schema_meta.schema_name`.
    pub schema_name: &'static str,
    /// Paths, relative to the database's directory, of the state of older programs. They must not lie beside a missing database.
    pub old_state: &'static [&'static str],
}

impl Identity {
    /// The workflow database at its schema version 1.
    pub const PI_WORKFLOWS: Self = Self {
        application_id: 0x5049_5746,
        user_version: 1,
        schema_name: "pi-workflows-state",
        old_state: &["runs", "queue", "decisions", "controllers", "channels"],
    };
}

/// One forward step of the migrating policy.
#[derive(Debug, Clone, Copy)]
pub struct Migration {
    /// A name for errors and the log.
    pub name: &'static str,
    /// The `user_version` that it leads to; each is one more than the one before.
    pub to_version: i64,
    /// The statements, run in one transaction together with the version's change.
    pub sql: &'static str,
}

/// What happens with a file whose version is older than the program's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SchemaPolicy {
    /// It is refused with one instruction, and left untouched.
    #[default]
    Exact,
    /// The schema's migrations run, in order.
    Migrating,
}

/// Several domains composed into one database schema.
///
/// ```
/// use holdpoint_state::schema::{Domain, Identity, Schema};
///
/// let schema = Schema::compose(Identity::PI_WORKFLOWS, [holdpoint_state::DOMAIN])?;
/// assert!(schema.tables().any(|(table, domain)| table == "events" && domain == "state"));
/// # Ok::<(), holdpoint_state::StateError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Schema {
    inner: Arc<Composed>,
}

#[derive(Debug)]
struct Composed {
    identity: Identity,
    policy: SchemaPolicy,
    migrations: Vec<Migration>,
    domains: Vec<Domain>,
    ddl: String,
    shape: Shape,
    digest: Digest,
    table_owner: BTreeMap<String, usize>,
    operation_owner: BTreeMap<&'static str, usize>,
    effect_owner: BTreeMap<&'static str, (usize, EffectType)>,
    resource_owner: BTreeMap<&'static str, usize>,
    references: Vec<Reference>,
}

impl Schema {
    /// Composes domains into a schema under the exact policy. The `state` domain must be the first.
    ///
    /// # Errors
    ///
    /// [`Refusal::Compose`] when two domains claim one name, when a name's form is wrong or when the DDL does not compile.
    pub fn compose(
        identity: Identity,
        domains: impl IntoIterator<Item = Domain>,
    ) -> Result<Self, StateError> {
        compose(
            identity,
            SchemaPolicy::Exact,
            Vec::new(),
            domains.into_iter().collect(),
        )
        .map(|inner| Self {
            inner: Arc::new(inner),
        })
        .map_err(|problem| StateError::Refused {
            path: PathBuf::new(),
            refusal: Box::new(Refusal::Compose { problem }),
        })
    }

    /// The same schema under the migrating policy: `migrations` lead, in order, from older versions to this shape.
    ///
    /// # Errors
    ///
    /// [`Refusal::Compose`] unless the versions rise by one and end at the identity's `user_version`.
    pub fn migrating(
        self,
        migrations: impl IntoIterator<Item = Migration>,
    ) -> Result<Self, StateError> {
        let migrations: Vec<_> = migrations.into_iter().collect();
        let rises = migrations.windows(2).all(|pair| match pair {
            [before, after] => before.to_version.checked_add(1) == Some(after.to_version),
            _ => true,
        });
        let ends = migrations
            .last()
            .is_none_or(|last| last.to_version == self.identity().user_version);
        if !rises || !ends {
            return Err(StateError::Refused {
                path: PathBuf::new(),
                refusal: Box::new(Refusal::Compose {
                    problem: format!(
                        "migrations must rise by one version each and end at version {}",
                        self.identity().user_version
                    ),
                }),
            });
        }
        compose(
            *self.identity(),
            SchemaPolicy::Migrating,
            migrations,
            self.inner.domains.clone(),
        )
        .map(|inner| Self {
            inner: Arc::new(inner),
        })
        .map_err(|problem| StateError::Refused {
            path: PathBuf::new(),
            refusal: Box::new(Refusal::Compose { problem }),
        })
    }

    /// The identity that a file must have.
    pub fn identity(&self) -> &Identity {
        &self.inner.identity
    }

    /// What happens with older files.
    pub fn policy(&self) -> SchemaPolicy {
        self.inner.policy
    }

    /// The migrations of the migrating policy, in order.
    pub fn migrations(&self) -> &[Migration] {
        &self.inner.migrations
    }

    /// The composed domains, lowest first.
    pub fn domains(&self) -> &[Domain] {
        &self.inner.domains
    }

    /// The whole DDL, closed sets filled in.
    pub fn ddl(&self) -> &str {
        &self.inner.ddl
    }

    /// Every object that the database has, exactly.
    pub fn shape(&self) -> &Shape {
        &self.inner.shape
    }

    /// SHA-256 over the canonical DDL.
    pub fn digest(&self) -> Digest {
        self.inner.digest
    }

    /// Every table with the name of the domain that owns it.
    pub fn tables(&self) -> impl Iterator<Item = (&str, &'static str)> {
        self.inner.table_owner.iter().filter_map(|(table, index)| {
            self.inner
                .domains
                .get(*index)
                .map(|domain| (table.as_str(), domain.name))
        })
    }

    /// The effect type of that name, if a composed domain declares it.
    pub fn effect_type(&self, name: &str) -> Option<&EffectType> {
        self.inner.effect_owner.get(name).map(|(_, kind)| kind)
    }

    /// The declared resource type that equals `name`, if there is one.
    pub fn resource_type(&self, name: &str) -> Option<&'static str> {
        self.inner
            .resource_owner
            .get_key_value(name)
            .map(|(kind, _)| *kind)
    }

    pub(crate) fn table_owner(&self, table: &str) -> Option<usize> {
        self.inner.table_owner.get(table).copied()
    }

    /// The index of the domain that owns an operation, if a composed domain declares it. An operation that only has the name of a
    /// declared one could allow what that one does not.
    pub(crate) fn operation_owner(&self, operation: &Operation) -> Option<usize> {
        let index = *self.inner.operation_owner.get(operation.name)?;
        self.inner
            .domains
            .get(index)?
            .operations
            .iter()
            .find(|declared| declared.name == operation.name)
            .filter(|declared| std::ptr::eq(**declared, operation) || **declared == operation)
            .map(|_| index)
    }

    /// Whether an operation of `domain` changes resources of the type `kind`: of its own type, or of any type of its own domain. Only
    /// the kernel has operations on the resources of every domain.
    pub(crate) fn may_change(&self, operation: &Operation, domain: usize, kind: &str) -> bool {
        if operation.resource != Operation::ANY_RESOURCE {
            return operation.resource == kind;
        }
        domain == KERNEL || self.inner.resource_owner.get(kind) == Some(&domain)
    }

    pub(crate) fn effect_owner(&self, effect_type: &str) -> Option<usize> {
        self.inner
            .effect_owner
            .get(effect_type)
            .map(|(domain, _)| *domain)
    }

    /// Every single column that refers to another table, as the composed DDL says.
    pub(crate) fn references(&self) -> &[Reference] {
        &self.inner.references
    }

    pub(crate) fn domain_name(&self, index: usize) -> &'static str {
        self.inner
            .domains
            .get(index)
            .map_or("kernel", |domain| domain.name)
    }
}

fn compose(
    identity: Identity,
    policy: SchemaPolicy,
    migrations: Vec<Migration>,
    domains: Vec<Domain>,
) -> Result<Composed, String> {
    if domains
        .first()
        .is_none_or(|domain| domain.name != records::DOMAIN_NAME)
    {
        return Err(format!(
            "the first domain must be `{}`",
            records::DOMAIN_NAME
        ));
    }
    let mut names = BTreeMap::new();
    let mut operation_owner = BTreeMap::new();
    let mut effect_owner: BTreeMap<&'static str, (usize, EffectType)> = BTreeMap::new();
    let mut resource_owner = BTreeMap::new();
    for (index, domain) in domains.iter().enumerate() {
        claim(&mut names, domain.name, index, "domain name", &domains)?;
        for kind in domain.resource_types {
            claim(&mut resource_owner, kind, index, "resource type", &domains)?;
        }
        for operation in domain.operations {
            claim(
                &mut operation_owner,
                operation.name,
                index,
                "operation",
                &domains,
            )?;
            check_operation(operation)?;
        }
        for effect in domain.effect_types {
            if effect.name.is_empty() || effect.name.chars().count() > 256 {
                return Err(format!(
                    "effect type {:?} must have 1 to 256 characters",
                    effect.name
                ));
            }
            if let Some((other, _)) = effect_owner.insert(effect.name, (index, *effect)) {
                return Err(twice("effect type", effect.name, other, index, &domains));
            }
        }
    }
    for (index, domain) in domains.iter().enumerate() {
        for operation in domain.operations {
            // A resource moves by the operations of its own domain only; others call those (`Change::also`).
            if operation.resource != Operation::ANY_RESOURCE
                && resource_owner.get(operation.resource) != Some(&index)
            {
                return Err(format!(
                    "operation {} of domain {} names the resource type {:?}, which the domain does not declare",
                    operation.name, domain.name, operation.resource
                ));
            }
        }
    }

    let resource_types = equals_one_of("resource_type", resource_owner.keys().copied());
    let effect_types = equals_one_of("effect_type", effect_owner.keys().copied());
    let mut ddl = String::new();
    for domain in &domains {
        let filled = domain
            .ddl
            .replace("{{resource_types}}", &resource_types)
            .replace("{{effect_types}}", &effect_types);
        ddl.push_str(&filled);
        ddl.push('\n');
    }
    let (shape, table_owner, references) =
        shape::of_domains(&domains, &resource_types, &effect_types)?;
    let digest = shape.digest();
    Ok(Composed {
        identity,
        policy,
        migrations,
        domains,
        ddl,
        shape,
        digest,
        table_owner,
        operation_owner,
        effect_owner,
        resource_owner,
        references,
    })
}

fn claim(
    claimed: &mut BTreeMap<&'static str, usize>,
    name: &'static str,
    index: usize,
    what: &str,
    domains: &[Domain],
) -> Result<(), String> {
    match claimed.insert(name, index) {
        Some(other) => Err(twice(what, name, other, index, domains)),
        None if name.is_empty() => Err(format!("an empty {what}")),
        None => Ok(()),
    }
}

fn twice(what: &str, name: &str, one: usize, other: usize, domains: &[Domain]) -> String {
    let name_of = |index: usize| domains.get(index).map_or("?", |domain| domain.name);
    format!(
        "{what} {name:?} is claimed by both {} and {}",
        name_of(one),
        name_of(other)
    )
}

fn check_operation(operation: &Operation) -> Result<(), String> {
    if operation.event.is_empty() || operation.actors.is_empty() {
        return Err(format!(
            "operation {} needs an event and at least one actor kind",
            operation.name
        ));
    }
    Ok(())
}

/// `column = 'a' OR column = 'b'`; false when there is nothing to choose from.
fn equals_one_of<'a>(column: &str, names: impl Iterator<Item = &'a str>) -> String {
    let chain: Vec<_> = names
        .map(|name| format!("{column} = '{}'", name.replace('\'', "''")))
        .collect();
    if chain.is_empty() {
        "FALSE".to_owned()
    } else {
        chain.join(" OR ")
    }
}
