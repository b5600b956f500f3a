//! The exact shape of a database: every object with its canonical SQL, and the differences between two shapes.
//!
//! SQLite keeps the text of each `CREATE` statement, so that equal texts mean equal tables, columns, constraints, indexes and
//! triggers. Not here: what to do about a difference.

use std::collections::BTreeMap;

use rusqlite::Connection;

use super::Domain;
use super::retention::{self, Reference};
use crate::id::Digest;

/// Type and name of a schema object, such as `("table", "events")`.
type ObjectKey = (String, String);

/// Every object of a database, with the SQL that made it. Automatic indexes have no SQL of their own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    objects: BTreeMap<ObjectKey, Option<String>>,
}

impl Shape {
    /// Reads the shape of an open database. SQLite's own tables (`sqlite_…`) are left out, automatic indexes are not.
    pub(crate) fn read(connection: &Connection) -> rusqlite::Result<Self> {
        let mut statement = connection.prepare("SELECT type, name, sql FROM main.sqlite_schema")?;
        let rows = statement.query_map([], |row| {
            Ok(((row.get(0)?, row.get(1)?), row.get::<_, Option<String>>(2)?))
        })?;
        let mut objects = BTreeMap::new();
        for row in rows {
            let (key, sql): (ObjectKey, Option<String>) = row?;
            if !is_internal(&key) {
                objects.insert(key, sql.map(|text| canonical_sql(&text)));
            }
        }
        Ok(Self { objects })
    }

    /// Every object: its type, its name and its canonical SQL.
    pub fn objects(&self) -> impl Iterator<Item = (&str, &str, Option<&str>)> {
        self.objects
            .iter()
            .map(|((kind, name), sql)| (kind.as_str(), name.as_str(), sql.as_deref()))
    }

    /// SHA-256 over the canonical DDL.
    pub(crate) fn digest(&self) -> Digest {
        let mut text = String::new();
        for ((kind, name), sql) in &self.objects {
            for part in [kind, name, sql.as_ref().unwrap_or(&String::new())] {
                text.push_str(part);
                text.push('\u{1f}');
            }
            text.push('\n');
        }
        Digest::of(text.as_bytes())
    }

    /// How `actual` differs from this shape, in words; empty when it does not.
    pub(crate) fn differences(&self, actual: &Self) -> Vec<String> {
        let mut found = Vec::new();
        for ((kind, name), sql) in &self.objects {
            match actual.objects.get(&(kind.clone(), name.clone())) {
                None => found.push(format!("{kind} {name} is missing")),
                Some(other) if other != sql => found.push(format!("{kind} {name} was altered")),
                Some(_) => {}
            }
        }
        for key in actual.objects.keys() {
            if !self.objects.contains_key(key) {
                found.push(format!("{} {} is unexpected", key.0, key.1));
            }
        }
        found
    }
}

/// The shape, the domain of each table, and which column refers to which table.
type Composition = (Shape, BTreeMap<String, usize>, Vec<Reference>);

/// Runs the domains' DDL in memory, one after the other, and tells which table belongs to which domain, and which column refers to
/// which table.
pub(super) fn of_domains(
    domains: &[Domain],
    resource_types: &str,
    effect_types: &str,
) -> Result<Composition, String> {
    let scratch = Connection::open_in_memory().map_err(|error| error.to_string())?;
    let mut owner = BTreeMap::new();
    let mut known = Shape {
        objects: BTreeMap::new(),
    };
    for (index, domain) in domains.iter().enumerate() {
        let ddl = domain
            .ddl
            .replace("{{resource_types}}", resource_types)
            .replace("{{effect_types}}", effect_types);
        scratch.execute_batch(&ddl).map_err(|error| {
            format!(
                "the DDL of domain {} does not compile: {error}",
                domain.name
            )
        })?;
        let shape = Shape::read(&scratch).map_err(|error| error.to_string())?;
        let new = || {
            shape
                .objects
                .iter()
                .filter(|(key, _)| !known.objects.contains_key(*key))
        };
        // Tables first: what hangs on them is judged by their owner.
        for ((_, name), sql) in new().filter(|((kind, _), _)| kind == "table") {
            if !sql.as_deref().is_some_and(is_strict) {
                return Err(format!(
                    "table {name} of domain {} is not STRICT",
                    domain.name
                ));
            }
            owner.insert(name.clone(), index);
        }
        for (key, _) in new() {
            let (kind, name) = key;
            match kind.as_str() {
                "table" => {}
                "index" | "trigger" => check_table(&scratch, key, index, domain, &owner)?,
                _ => {
                    return Err(format!(
                        "domain {} has the {kind} {name}; only tables, indexes and triggers are allowed",
                        domain.name
                    ));
                }
            }
        }
        if let Some(key) = known
            .objects
            .keys()
            .find(|key| known.objects.get(*key) != shape.objects.get(*key))
        {
            return Err(format!(
                "domain {} changes the {} {} of a lower domain",
                domain.name, key.0, key.1
            ));
        }
        known = shape;
    }
    let references = retention::check(&scratch, domains, &owner)?;
    Ok((known, owner, references))
}

/// A trigger acts on behalf of whoever writes its table, and an index costs them or, when it is unique, refuses their rows: the
/// table must belong to the same domain.
fn check_table(
    scratch: &Connection,
    (kind, name): &ObjectKey,
    index: usize,
    domain: &Domain,
    owner: &BTreeMap<String, usize>,
) -> Result<(), String> {
    let table: String = scratch
        .query_row(
            "SELECT tbl_name FROM sqlite_schema WHERE type = ?1 AND name = ?2",
            [kind, name],
            |row| row.get(0),
        )
        .map_err(|error| error.to_string())?;
    if owner.get(&table) == Some(&index) {
        Ok(())
    } else {
        Err(format!(
            "{kind} {name} of domain {} is on the table {table} of another domain",
            domain.name
        ))
    }
}

fn is_strict(sql: &str) -> bool {
    sql.rsplit(')').next().is_some_and(|tail| {
        tail.split(',')
            .any(|option| option.trim().eq_ignore_ascii_case("strict"))
    })
}

fn is_internal(key: &ObjectKey) -> bool {
    key.1.starts_with("sqlite_") && !key.1.starts_with("sqlite_autoindex_")
}

/// The text without comments, with each run of white space as one space. Text inside quotes stays as it is.
fn canonical_sql(sql: &str) -> String {
    let mut canonical = String::with_capacity(sql.len());
    let mut characters = sql.chars().peekable();
    let mut pending_space = false;
    while let Some(character) = characters.next() {
        if character.is_whitespace() {
            pending_space = true;
            continue;
        }
        if character == '-' && characters.peek() == Some(&'-') {
            for skipped in characters.by_ref() {
                if skipped == '\n' {
                    break;
                }
            }
            pending_space = true;
            continue;
        }
        if character == '/' && characters.peek() == Some(&'*') {
            characters.next();
            let mut before = ' ';
            for skipped in characters.by_ref() {
                if before == '*' && skipped == '/' {
                    break;
                }
                before = skipped;
            }
            pending_space = true;
            continue;
        }
        if pending_space && !canonical.is_empty() {
            canonical.push(' ');
        }
        pending_space = false;
        canonical.push(character);
        let close = match character {
            '\'' | '"' | '`' => character,
            '[' => ']',
            _ => continue,
        };
        for quoted in characters.by_ref() {
            canonical.push(quoted);
            if quoted == close {
                break;
            }
        }
    }
    canonical
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canonical_sql_drops_comments_and_spacing_only() {
        assert_eq!(
            canonical_sql(
                "CREATE TABLE a ( -- why\n  b TEXT /* so */ CHECK (b <> ' -- x')\n) STRICT"
            ),
            "CREATE TABLE a ( b TEXT CHECK (b <> ' -- x') ) STRICT"
        );
    }

    #[test]
    fn strict_is_read_from_the_table_options() {
        assert!(is_strict("CREATE TABLE a (b TEXT) STRICT, WITHOUT ROWID"));
        assert!(!is_strict("CREATE TABLE strict (b TEXT)"));
    }
}
