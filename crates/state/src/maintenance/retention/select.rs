//! The statements of a selection, each for all members or for some. They are the domains', wrapped; and the kernel's own.
//!
//! Nothing here writes, and nothing here decides.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, Row};

use super::plan::TreeMember;
use crate::clock::UnixMillis;
use crate::error::StateError;
use crate::id::Digest;
use crate::records::resources::AggregateKey;
use crate::schema::{Link, Orphan, Schema};

/// For whom a statement is run.
#[derive(Clone, Copy)]
pub(super) enum Scope<'a> {
    /// For all, in one pass.
    All,
    /// For these, one by one, each by an index.
    Of(&'a [i64]),
}

impl Scope<'_> {
    /// The same breadth for other keys.
    pub(super) fn narrowed<'k>(&self, keys: &'k [i64]) -> Scope<'k> {
        match self {
            Self::All => Scope::All,
            Self::Of(_) => Scope::Of(keys),
        }
    }
}

/// A member as it is stored.
pub(super) struct Member {
    pub(super) name: String,
    pub(super) ended_at: Option<UnixMillis>,
    is_root: bool,
}

impl Member {
    pub(super) fn shown(&self) -> TreeMember {
        TreeMember {
            name: self.name.clone(),
            ended_at: self.ended_at,
        }
    }
}

/// Effects by their sources.
pub(super) const EFFECTS: &str = "SELECT source_key AS member, resource_key FROM effects";
const OPEN_EFFECTS: &str = "SELECT e.source_key AS member, r.aggregate_key, e.effect_type, e.status
    FROM effects e JOIN resources r ON r.resource_key = e.resource_key
    WHERE e.status IN ('pending', 'applying', 'ambiguous') OR e.next_attempt_at IS NOT NULL";
const LEASES: &str = "SELECT l.resource_key AS member, l.expires_at, r.resource_type, r.aggregate_key
    FROM leases l JOIN resources r ON r.resource_key = l.resource_key WHERE l.expires_at IS NOT NULL";

/// Runs a statement for a scope, by the column that names whom a row is about.
fn each(
    connection: &Connection,
    sql: &str,
    scope: Scope<'_>,
    column: &str,
    mut see: impl FnMut(&Row<'_>) -> rusqlite::Result<()>,
) -> Result<(), StateError> {
    match scope {
        Scope::All => {
            let mut statement = connection.prepare_cached(sql)?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                see(row)?;
            }
        }
        Scope::Of(keys) => {
            let narrowed = format!("SELECT * FROM ({sql}) WHERE {column} = ?1");
            let mut statement = connection.prepare_cached(&narrowed)?;
            for key in keys {
                let mut rows = statement.query([key])?;
                while let Some(row) = rows.next()? {
                    see(row)?;
                }
            }
        }
    }
    Ok(())
}

/// A value in words, whatever its type.
fn words(value: ValueRef<'_>) -> String {
    match value {
        ValueRef::Null => "null".to_owned(),
        ValueRef::Integer(number) => number.to_string(),
        ValueRef::Real(number) => number.to_string(),
        ValueRef::Text(text) => String::from_utf8_lossy(text).into_owned(),
        ValueRef::Blob(bytes) => bytes.iter().fold(String::new(), |mut text, byte| {
            // Writing to a string can't fail.
            let _ = write!(text, "{byte:02x}");
            text
        }),
    }
}

/// Refuses to select anything from a store whose damage makes the selection doubtful.
pub(super) fn refuse_faults(connection: &Connection, schema: &Schema) -> Result<(), StateError> {
    for fault in schema
        .domains()
        .iter()
        .flat_map(|domain| domain.retention.faults)
    {
        let mut damaged = Vec::new();
        each(connection, fault.rows, Scope::All, "", |row| {
            damaged.push(words(row.get_ref(0)?));
            Ok(())
        })?;
        if !damaged.is_empty() {
            let listed: Vec<_> = damaged.iter().take(20).map(String::as_str).collect();
            return Err(StateError::Corrupt {
                what: format!("what retention goes by ({})", fault.name),
                problem: format!(
                    "{} rows, among them {}; nothing is selected",
                    damaged.len(),
                    listed.join(", ")
                ),
            });
        }
    }
    Ok(())
}

/// Members by their keys.
pub(super) fn members(
    connection: &Connection,
    schema: &Schema,
    scope: Scope<'_>,
) -> Result<BTreeMap<i64, Member>, StateError> {
    let mut members = BTreeMap::new();
    for sql in schema
        .domains()
        .iter()
        .filter_map(|domain| domain.retention.members)
    {
        let named = format!("SELECT member, name, ended_at, is_root FROM ({sql})");
        each(connection, &named, scope, "member", |row| {
            let member = Member {
                name: row.get(1)?,
                ended_at: row.get(2)?,
                is_root: row.get(3)?,
            };
            members.insert(row.get(0)?, member);
            Ok(())
        })?;
    }
    Ok(members)
}

pub(super) fn links(schema: &Schema) -> impl Iterator<Item = &'static Link> + use<'_> {
    schema
        .domains()
        .iter()
        .flat_map(|domain| domain.retention.links)
}

/// The name that a tree is known by: the smallest of a root, or of anybody when there is no root.
pub(super) fn root(keys: &[i64], members: &BTreeMap<i64, Member>) -> String {
    let known = || keys.iter().filter_map(|key| members.get(key));
    let roots = known().filter(|member| member.is_root);
    roots
        .map(|member| &member.name)
        .min()
        .or_else(|| known().map(|member| &member.name).min())
        .cloned()
        .unwrap_or_default()
}

/// Pairs of keys; those with a null in them name nobody.
pub(super) fn pairs(
    connection: &Connection,
    sql: &str,
    scope: Scope<'_>,
    column: &str,
    mut see: impl FnMut(i64, i64),
) -> Result<(), StateError> {
    each(connection, sql, scope, column, |row| {
        if let (Some(one), Some(other)) = (row.get(0)?, row.get(1)?) {
            see(one, other);
        }
        Ok(())
    })
}

/// A key and a text.
pub(super) fn texts(
    connection: &Connection,
    sql: &str,
    scope: Scope<'_>,
    mut see: impl FnMut(i64, String),
) -> Result<(), StateError> {
    each(connection, sql, scope, "member", |row| {
        if let Some(key) = row.get(0)? {
            see(key, words(row.get_ref(1)?));
        }
        Ok(())
    })
}

/// Two keys and a text. Asked by the first key only: nothing new comes to refer to what is dead.
pub(super) fn crossings(
    connection: &Connection,
    sql: &str,
    scope: Scope<'_>,
    mut see: impl FnMut(i64, i64, String),
) -> Result<(), StateError> {
    each(connection, sql, scope, "member", |row| {
        if let (Some(one), Some(other)) = (row.get(0)?, row.get(1)?) {
            see(one, other, words(row.get_ref(2)?));
        }
        Ok(())
    })
}

pub(super) fn open_effects(
    connection: &Connection,
    scope: Scope<'_>,
    mut see: impl FnMut(i64, String),
) -> Result<(), StateError> {
    each(connection, OPEN_EFFECTS, scope, "member", |row| {
        let AggregateKey(effect) = row.get(1)?;
        let (kind, status): (String, String) = (row.get(2)?, row.get(3)?);
        see(row.get(0)?, format!("{effect} ({kind}, {status})"));
        Ok(())
    })
}

pub(super) fn live_leases(
    connection: &Connection,
    scope: Scope<'_>,
    now: UnixMillis,
    mut see: impl FnMut(i64, String),
) -> Result<(), StateError> {
    each(connection, LEASES, scope, "member", |row| {
        let expires_at: UnixMillis = row.get(1)?;
        if now < expires_at {
            let (kind, AggregateKey(key)): (String, _) = (row.get(2)?, row.get(3)?);
            see(row.get(0)?, format!("{kind} {key} until {expires_at}"));
        }
        Ok(())
    })
}

/// SHA-256 over what changes with every change of a tree.
pub(super) fn signature(
    connection: &Connection,
    related: &BTreeSet<i64>,
    mut facts: Vec<String>,
    members: &[TreeMember],
) -> Result<Digest, StateError> {
    let mut text = String::new();
    for member in members {
        let _ = writeln!(text, "{} {:?}", member.name, member.ended_at);
    }
    let mut statement = connection.prepare_cached(
        "SELECT resource_type, created_at, revision, updated_at FROM resources WHERE resource_key = ?1",
    )?;
    for key in related {
        let mut rows = statement.query([key])?;
        if let Some(row) = rows.next()? {
            let kind: String = row.get(0)?;
            let numbers: (i64, i64, i64) = (row.get(1)?, row.get(2)?, row.get(3)?);
            let _ = writeln!(text, "{key} {kind} {numbers:?}");
        }
    }
    facts.sort();
    for fact in facts {
        let _ = writeln!(text, "{fact}");
    }
    Ok(Digest::of(text.as_bytes()))
}

/// What nothing refers to.
pub(super) struct Orphans {
    /// Of each table: the domain's index, the rule, the keys.
    pub(super) of_domains: Vec<(usize, &'static Orphan, Vec<Value>)>,
    pub(super) projects: Vec<String>,
    pub(super) blobs: Vec<Vec<u8>>,
}

/// Finds what nothing refers to: one pass over each column that could, whatever the number of rows. A row that is an orphan itself
/// does not count as somebody who refers.
pub(super) fn orphans(
    connection: &Connection,
    schema: &Schema,
    held: &BTreeSet<Digest>,
) -> Result<Orphans, StateError> {
    let mut of_domains = Vec::new();
    for (index, domain) in schema.domains().iter().enumerate().rev() {
        for orphan in domain.retention.orphans {
            let keys = unreferred(connection, schema, orphan.table, orphan.key)?;
            of_domains.push((index, orphan, keys));
        }
    }
    let projects = unreferred(connection, schema, "projects", "project_id")?;
    let blobs = unreferred(connection, schema, "blobs", "blob_hash")?;
    let is_held = |hash: &[u8]| held.iter().any(|digest| digest.0 == hash);
    Ok(Orphans {
        of_domains,
        projects: projects
            .into_iter()
            .filter_map(|key| match key {
                Value::Text(text) => Some(text),
                _ => None,
            })
            .collect(),
        blobs: blobs
            .into_iter()
            .filter_map(|key| match key {
                Value::Blob(hash) if !is_held(&hash) => Some(hash),
                _ => None,
            })
            .collect(),
    })
}

/// The keys of a table's rows that no column of the schema refers to.
fn unreferred(
    connection: &Connection,
    schema: &Schema,
    table: &str,
    key: &str,
) -> Result<Vec<Value>, StateError> {
    // Where no column could refer to it, nobody can know whether a row is wanted.
    let Some(referred) = referred(schema, table, &mut Vec::new()) else {
        return Ok(Vec::new());
    };
    let sql = format!(
        "SELECT {} FROM {} WHERE NOT ({referred})",
        quoted(key),
        quoted(table)
    );
    let mut statement = connection.prepare(&sql)?;
    let keys = statement.query_map([], |row| row.get(0))?;
    Ok(keys.collect::<Result<_, _>>()?)
}

/// The condition that some column refers to a row of `table`; none when no column could. SQLite makes a set of each list once.
fn referred(schema: &Schema, table: &str, above: &mut Vec<String>) -> Option<String> {
    let mut by_column: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    above.push(table.to_owned());
    for reference in schema.references() {
        if reference.parent != table {
            continue;
        }
        let (child, column) = (quoted(&reference.table), quoted(&reference.column));
        let mut list = format!("SELECT {column} FROM {child} WHERE {column} IS NOT NULL");
        let shared = reference.table != table
            && !above.contains(&reference.table)
            && schema
                .domains()
                .iter()
                .flat_map(|domain| domain.retention.orphans)
                .any(|orphan| orphan.table == reference.table);
        if shared && let Some(wanted) = referred(schema, &reference.table, above) {
            let _ = write!(list, " AND ({wanted})");
        }
        by_column
            .entry(&reference.parent_column)
            .or_default()
            .push(list);
    }
    above.pop();
    if by_column.is_empty() {
        return None;
    }
    let conditions: Vec<String> = by_column
        .into_iter()
        .map(|(column, lists)| {
            let column = format!("{}.{}", quoted(table), quoted(column));
            format!("{column} IN ({})", lists.join(" UNION ALL "))
        })
        .collect();
    Some(conditions.join(" OR "))
}

/// A name of the composed schema as SQL.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
