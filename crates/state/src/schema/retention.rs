//! What a domain says about retention: what stands and falls together, what holds it, what belongs to it and how it is deleted.
//!
//! All of it is data: the kernel finds dead trees and deletes them without knowing what a tree is made of. A *member* is a resource
//! that lives and ends, such as a run; members that are linked make a *tree*, which is kept or deleted as a whole. Not here: running
//! any of these statements (`maintenance::retention`).

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::Connection;

use super::Domain;

/// What a domain adds to retention. Any composed domain may hold members of another one back, and own rows that go with them.
///
/// Each `SELECT` names its first column `member`: the `resources.resource_key` of a member. The kernel runs it as it stands, and
/// again as `SELECT … WHERE member = ?1`, which an index should answer.
#[derive(Debug, Clone, Copy)]
pub struct Retention {
    /// Members: `SELECT member, name, ended_at, is_root`. `name` is shown to people; `ended_at` is null while the member lives;
    /// a tree is known by the smallest name among those with `is_root`.
    pub members: Option<&'static str>,
    /// What joins members into trees.
    pub links: &'static [Link],
    /// Resources that belong to a member beside its own: `SELECT member, resource_key`. Effects are found by the kernel.
    pub related: &'static [&'static str],
    /// Facts beside resources by which a change of a tree is seen: `SELECT member, text`.
    pub facts: &'static [&'static str],
    /// What holds a tree.
    pub blockers: &'static [Blocker],
    /// References that must not leave a tree; where one does, it holds both.
    pub crossings: &'static [Crossing],
    /// Damage that makes the whole selection doubtful: `SELECT` of what is damaged. One row, and nothing is selected.
    pub faults: &'static [Fault],
    /// How the rows of one member are deleted, in order. The rows of higher domains go first, those of the kernel last.
    pub deletions: &'static [Deletion],
    /// Rows that go when nothing refers to them any more, in order. Blobs and projects are the kernel's.
    pub orphans: &'static [Orphan],
}

impl Retention {
    /// Nothing to say.
    pub const NOTHING: Self = Self {
        members: None,
        links: &[],
        related: &[],
        facts: &[],
        blockers: &[],
        crossings: &[],
        faults: &[],
        deletions: &[],
        orphans: &[],
    };

    fn is_nothing(&self) -> bool {
        self.members.is_none() && self.deletions.is_empty()
    }
}

/// What joins two members.
#[derive(Debug, Clone, Copy)]
pub struct Link {
    /// `SELECT member, other`: both are keys of members.
    pub pairs: &'static str,
    /// Whether a member that ended can still be linked to by a new one. It is asked again, by `other`, before a tree is deleted.
    pub grows: bool,
}

/// What holds a tree.
#[derive(Debug, Clone, Copy)]
pub struct Blocker {
    /// The name, such as `pendingRequest`; unique in a schema.
    pub name: &'static str,
    /// Why it holds, in one sentence.
    pub summary: &'static str,
    /// `SELECT member, row`: `row` names for a person what holds.
    pub rows: &'static str,
}

/// A reference from what belongs to one member to what belongs to another.
#[derive(Debug, Clone, Copy)]
pub struct Crossing {
    /// The name of the blocker that it is when both are of different trees.
    pub name: &'static str,
    /// Why it holds, in one sentence.
    pub summary: &'static str,
    /// `SELECT member, other, row`, where the two differ.
    pub pairs: &'static str,
}

/// Damage that makes the selection doubtful.
#[derive(Debug, Clone, Copy)]
pub struct Fault {
    /// What is damaged.
    pub name: &'static str,
    /// `SELECT` whose first column names what is damaged.
    pub rows: &'static str,
}

/// One statement that a member's end takes: `DELETE`, or an `UPDATE` that lets a row forget the member.
#[derive(Debug, Clone, Copy)]
pub struct Deletion {
    /// The table, of the domain itself.
    pub table: &'static str,
    /// The statement; its one parameter `?1` is the member's key.
    pub sql: &'static str,
}

/// Rows that other rows share, such as definitions.
#[derive(Debug, Clone, Copy)]
pub struct Orphan {
    /// The table. It goes by what its foreign keys say: all single columns of the schema that refer to it.
    pub table: &'static str,
    /// The column that identifies a row.
    pub key: &'static str,
    /// `DELETE … WHERE key = ?1`.
    pub delete: &'static str,
}

/// A column that refers to another table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reference {
    pub(crate) table: String,
    pub(crate) column: String,
    pub(crate) parent: String,
    pub(crate) parent_column: String,
}

/// Tables of the kernel whose rows go with a resource.
const OF_RESOURCES: [&str; 5] = [
    "resources",
    "events",
    "effects",
    "effect_attempts",
    "leases",
];
/// Tables of the kernel whose rows go when nothing refers to them.
const SHARED: [&str; 2] = ["blobs", "projects"];

/// Every foreign key of the schema, and whether what the domains say of retention is whole.
///
/// # Errors
///
/// What is wrong, in words: a table that would be left behind, a statement that does not compile.
pub(super) fn check(
    scratch: &Connection,
    domains: &[Domain],
    owner: &BTreeMap<String, usize>,
) -> Result<Vec<Reference>, String> {
    let failed = |error: rusqlite::Error| error.to_string();
    let mut references = Vec::new();
    let mut composite = Vec::new();
    let mut statement = scratch
        .prepare(
            "SELECT t.name, f.\"from\", f.\"table\", coalesce(f.\"to\", p.name),
                 count(*) OVER (PARTITION BY t.name, f.id)
             FROM sqlite_schema t JOIN pragma_foreign_key_list(t.name) f
             LEFT JOIN pragma_table_info(f.\"table\") p ON f.\"to\" IS NULL AND p.pk = f.seq + 1
             WHERE t.type = 'table' ORDER BY t.name, f.id, f.seq",
        )
        .map_err(failed)?;
    let mut rows = statement.query([]).map_err(failed)?;
    while let Some(row) = rows.next().map_err(failed)? {
        let mut read = || -> rusqlite::Result<()> {
            let reference = Reference {
                table: row.get(0)?,
                column: row.get(1)?,
                parent: row.get(2)?,
                parent_column: row.get(3)?,
            };
            if row.get::<_, i64>(4)? == 1 {
                references.push(reference);
            } else {
                composite.push(reference);
            }
            Ok(())
        };
        read().map_err(failed)?;
    }
    let domain_orphans = || {
        domains
            .iter()
            .flat_map(|domain| domain.retention.orphans)
            .map(|orphan| orphan.table)
    };
    let shared: BTreeSet<&str> = domain_orphans().chain(SHARED).collect();
    if let Some(hidden) = composite
        .iter()
        .find(|reference| shared.contains(reference.parent.as_str()))
    {
        return Err(format!(
            "table {} refers to {} by several columns, where retention could not see it",
            hidden.table, hidden.parent
        ));
    }
    compiles(scratch, domains, owner)?;
    nothing_is_left(domains, owner, references.iter().chain(&composite))?;
    Ok(references)
}

/// Every statement compiles, names what it must, and is about the domain's own tables.
fn compiles(
    scratch: &Connection,
    domains: &[Domain],
    owner: &BTreeMap<String, usize>,
) -> Result<(), String> {
    let mut taken = BTreeSet::new();
    for (index, domain) in domains.iter().enumerate() {
        let retention = &domain.retention;
        let wrong = |what: &str, error: &dyn std::fmt::Display| {
            format!("retention of domain {}: {what}: {error}", domain.name)
        };
        let needs = |sql: &str, columns: &str| {
            scratch
                .prepare(&format!("SELECT {columns} FROM ({sql})"))
                .map(|_| ())
                .map_err(|error| wrong(sql, &error))
        };
        if let Some(members) = retention.members {
            needs(members, "member, name, ended_at, is_root")?;
        }
        for link in retention.links {
            needs(link.pairs, "member, other")?;
        }
        for crossing in retention.crossings {
            needs(crossing.pairs, "member, other")?;
        }
        for sql in retention.related.iter().chain(retention.facts) {
            needs(sql, "member")?;
        }
        for blocker in retention.blockers {
            needs(blocker.rows, "member")?;
        }
        for fault in retention.faults {
            needs(fault.rows, "1")?;
        }
        let named = retention.blockers.iter().map(|blocker| blocker.name);
        for name in named.chain(retention.crossings.iter().map(|crossing| crossing.name)) {
            if !taken.insert(name) {
                return Err(wrong(name, &"two blockers have this name"));
            }
        }
        let deletions = retention
            .deletions
            .iter()
            .map(|deletion| (deletion.table, deletion.sql));
        let orphans = retention
            .orphans
            .iter()
            .map(|orphan| (orphan.table, orphan.delete));
        for (table, sql) in deletions.chain(orphans) {
            if owner.get(table) != Some(&index) {
                return Err(wrong(table, &"it is not a table of this domain"));
            }
            let statement = scratch.prepare(sql).map_err(|error| wrong(sql, &error))?;
            if statement.parameter_count() != 1 {
                return Err(wrong(sql, &"it must have the one parameter ?1"));
            }
        }
    }
    Ok(())
}

/// No table that hangs on what is deleted is forgotten: foreign keys are off while a tree is deleted, so that each of its rows does
/// not cost a search of every table that could refer to it.
fn nothing_is_left<'a>(
    domains: &[Domain],
    owner: &BTreeMap<String, usize>,
    references: impl Iterator<Item = &'a Reference>,
) -> Result<(), String> {
    let deleted: BTreeSet<&str> = domains
        .iter()
        .flat_map(|domain| domain.retention.deletions)
        .map(|deletion| deletion.table)
        .collect();
    for reference in references {
        let table = reference.table.as_str();
        if deleted.contains(table) || OF_RESOURCES.contains(&table) {
            continue;
        }
        let takes_part = owner
            .get(table)
            .and_then(|index| domains.get(*index))
            .is_some_and(|domain| !domain.retention.is_nothing());
        let hangs = deleted.contains(reference.parent.as_str())
            || (takes_part && reference.parent == "resources");
        if hangs {
            return Err(format!(
                "table {table} refers to {} by {}, whose rows retention deletes, and no deletion names {table}",
                reference.parent, reference.column
            ));
        }
    }
    Ok(())
}
