//! Checks of structure: pages, references, schema and the rules of the domains. Damage that stops a check is a finding.

use std::collections::BTreeMap;
use std::path::Path;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, ErrorCode};

use super::report::{Check, CheckRun, Finding, VerifyReport};
use crate::error::StateError;
use crate::id::Digest;
use crate::schema::{Invariant, Schema, Shape};

/// How many ids and details a finding names at most.
const LISTED_MAX: usize = 100;

/// One verification under way.
pub(super) struct Examination<'a> {
    pub(super) connection: &'a Connection,
    schema: &'a Schema,
    checks: Vec<CheckRun>,
    findings: BTreeMap<(Check, String, String), Finding>,
}

/// A rule of the kernel itself: its check, name, words and table.
#[derive(Clone, Copy)]
pub(super) struct Rule<'a> {
    check: Check,
    name: &'a str,
    summary: &'a str,
    domain: Option<&'a str>,
    table: Option<&'a str>,
}

impl<'a> Rule<'a> {
    pub(super) const fn of(check: Check, name: &'a str, summary: &'a str) -> Self {
        Self {
            check,
            name,
            summary,
            domain: None,
            table: None,
        }
    }

    pub(super) const fn on(check: Check, name: &'a str, summary: &'a str, table: &'a str) -> Self {
        Self {
            check,
            name,
            summary,
            domain: Some("state"),
            table: Some(table),
        }
    }
}

impl<'a> Examination<'a> {
    pub(super) fn new(connection: &'a Connection, schema: &'a Schema) -> Self {
        Self {
            connection,
            schema,
            checks: Vec::new(),
            findings: BTreeMap::new(),
        }
    }

    pub(super) fn report(self, path: &Path) -> VerifyReport {
        VerifyReport {
            path: path.to_owned(),
            checks: self.checks,
            findings: self.findings.into_values().collect(),
        }
    }

    /// Runs one check. Damage that stops it is a finding; only a store that can't be asked at all is an error.
    pub(super) fn run(
        &mut self,
        check: Check,
        body: impl FnOnce(&mut Self) -> rusqlite::Result<u64>,
    ) -> Result<(), StateError> {
        let examined = match body(self) {
            Ok(examined) => examined,
            Err(error) => {
                self.unreadable(check, check_name(check), error)?;
                0
            }
        };
        let findings = self.findings.keys().filter(|key| key.0 == check).count();
        self.checks.push(CheckRun {
            check,
            examined,
            findings: u64::try_from(findings).unwrap_or(u64::MAX),
        });
        Ok(())
    }

    fn unreadable(
        &mut self,
        check: Check,
        what: &str,
        error: rusqlite::Error,
    ) -> Result<(), StateError> {
        if matches!(
            error.sqlite_error_code(),
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::OutOfMemory)
        ) {
            return Err(error.into());
        }
        let rule = Rule::of(check, "unreadable", "What the check needs can be read.");
        self.add(&rule, None, Some(format!("{what}: {error}")));
        Ok(())
    }

    pub(super) fn add(&mut self, rule: &Rule<'_>, id: Option<String>, detail: Option<String>) {
        let key = (
            rule.check,
            rule.name.to_owned(),
            rule.table.unwrap_or_default().to_owned(),
        );
        let finding = self.findings.entry(key).or_insert_with(|| Finding {
            check: rule.check,
            name: rule.name.to_owned(),
            summary: rule.summary.to_owned(),
            domain: rule.domain.map(str::to_owned),
            table: rule.table.map(str::to_owned),
            ids: Vec::new(),
            count: 0,
            details: Vec::new(),
        });
        finding.count += 1;
        if finding.ids.len() < LISTED_MAX {
            finding.ids.extend(id);
        }
        if finding.details.len() < LISTED_MAX {
            finding.details.extend(detail);
        }
    }

    pub(super) fn integrity(&mut self) -> rusqlite::Result<u64> {
        let rule = Rule::of(
            Check::Integrity,
            "integrity",
            "Pages, indexes and constraints are sound.",
        );
        let mut statement = self.connection.prepare("PRAGMA integrity_check(100)")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let line: String = row.get(0)?;
            if line != "ok" {
                self.add(&rule, None, Some(line));
            }
        }
        self.connection
            .query_row("PRAGMA page_count", [], |row| row.get::<_, i64>(0))
            .map(i64::unsigned_abs)
    }

    pub(super) fn foreign_keys(&mut self) -> rusqlite::Result<u64> {
        let mut statement = self.connection.prepare("PRAGMA foreign_key_check")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let table: String = row.get(0)?;
            let key: Option<i64> = row.get(1)?;
            let parent: String = row.get(2)?;
            let key = key.map_or_else(|| "a row without rowid".to_owned(), |key| key.to_string());
            let domain = self.domain_of(&table);
            let rule = Rule {
                check: Check::ForeignKeys,
                name: "foreignKey",
                summary: "Every reference leads to a row.",
                domain,
                table: Some(&table),
            };
            let detail = format!("{table} {key} refers to a missing row of {parent}");
            self.add(&rule, Some(key), Some(detail));
        }
        self.connection
            .query_row(
                "SELECT count(*) FROM sqlite_schema AS s, pragma_foreign_key_list(s.name)
                 WHERE s.type = 'table'",
                [],
                |row| row.get::<_, i64>(0),
            )
            .map(i64::unsigned_abs)
    }

    fn domain_of(&self, table: &str) -> Option<&'static str> {
        self.schema
            .table_owner(table)
            .map(|index| self.schema.domain_name(index))
    }

    pub(super) fn schema(&mut self) -> rusqlite::Result<u64> {
        let connection = self.connection;
        let identity = *self.schema.identity();
        let mut problems = Vec::new();
        let number = |pragma: &str| -> rusqlite::Result<i64> {
            connection.pragma_query_value(None, pragma, |row| row.get(0))
        };
        let application_id = number("application_id")?;
        if application_id != i64::from(identity.application_id) {
            problems.push(format!(
                "application id {application_id:#010x} instead of {:#010x}",
                identity.application_id
            ));
        }
        let version = number("user_version")?;
        if version != identity.user_version {
            problems.push(format!(
                "schema version {version} instead of {}",
                identity.user_version
            ));
        }
        let actual = Shape::read(connection)?;
        problems.extend(self.schema.shape().differences(&actual));
        if let Err(error) = self.schema_meta(&mut problems) {
            problems.push(format!("schema_meta can't be read: {error}"));
        }
        let rule = Rule::of(
            Check::Schema,
            "schema",
            "Identity, version, digest and shape are those of the composed schema.",
        );
        for problem in problems {
            self.add(&rule, None, Some(problem));
        }
        Ok(u64::try_from(self.schema.shape().objects().count()).unwrap_or(u64::MAX))
    }

    fn schema_meta(&self, problems: &mut Vec<String>) -> rusqlite::Result<()> {
        let identity = self.schema.identity();
        let mut statement = self
            .connection
            .prepare("SELECT schema_name, schema_version, schema_digest FROM schema_meta")?;
        let mut rows = statement.query([])?;
        let mut count = 0;
        while let Some(row) = rows.next()? {
            count += 1;
            let name: String = row.get(0)?;
            let version: i64 = row.get(1)?;
            let digest: Digest = row.get(2)?;
            if name != identity.schema_name || version != identity.user_version {
                problems.push(format!("schema_meta names {name} version {version}"));
            }
            if digest != self.schema.digest() {
                problems.push(format!(
                    "schema digest {digest} instead of {}",
                    self.schema.digest()
                ));
            }
        }
        if count != 1 {
            problems.push(format!("schema_meta has {count} rows instead of one"));
        }
        Ok(())
    }

    #[expect(
        clippy::unnecessary_wraps,
        reason = "every check has this form; a rule that can't be checked is a finding of its own"
    )]
    pub(super) fn invariants(&mut self) -> rusqlite::Result<u64> {
        let schema = self.schema.clone();
        let mut examined = 0;
        for domain in schema.domains() {
            for invariant in domain.invariants {
                examined += 1;
                if let Err(error) = self.invariant(domain.name, invariant) {
                    let rule = Rule {
                        domain: Some(domain.name),
                        ..Rule::of(Check::Invariants, invariant.name, invariant.summary)
                    };
                    let detail = format!("the rule can't be checked: {error}");
                    self.add(&rule, None, Some(detail));
                }
            }
        }
        Ok(examined)
    }

    fn invariant(&mut self, domain: &str, invariant: &Invariant) -> rusqlite::Result<()> {
        let rule = Rule {
            domain: Some(domain),
            ..Rule::of(Check::Invariants, invariant.name, invariant.summary)
        };
        let mut statement = self.connection.prepare(invariant.violations)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let id = text_of(row.get_ref(0)?);
            self.add(&rule, Some(id), None);
        }
        Ok(())
    }
}

/// A value that names a row.
pub(super) fn text_of(value: ValueRef<'_>) -> String {
    match value {
        ValueRef::Null => "null".to_owned(),
        ValueRef::Integer(number) => number.to_string(),
        ValueRef::Real(number) => number.to_string(),
        ValueRef::Text(text) => String::from_utf8_lossy(text).into_owned(),
        ValueRef::Blob(bytes) => match <[u8; 32]>::try_from(bytes) {
            Ok(digest) => Digest(digest).to_hex(),
            Err(_) => format!("{bytes:02x?}"),
        },
    }
}

fn check_name(check: Check) -> &'static str {
    match check {
        Check::Integrity => "integrity",
        Check::ForeignKeys => "foreign keys",
        Check::Schema => "schema",
        Check::Invariants => "invariants",
        Check::Blobs => "blobs",
        Check::Payloads => "payloads",
    }
}
