//! The statement guard: SQLite's authorizer binds each prepared statement of the write connection to one domain.
//!
//! The authorizer runs when a statement is prepared (<https://www.sqlite.org/c3ref/set_authorizer.html>). A statement that the
//! connection's cache holds already was authorized for somebody; the guard therefore keeps the set of (domain, statement) pairs
//! that SQLite has accepted, and prepares anew for each pair that it has not seen.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rusqlite::config::DbConfig;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::{CachedStatement, Connection};

use crate::command::Operation;
use crate::error::StateError;
use crate::schema::Schema;

/// The index of the `state` domain in every schema.
pub(crate) const KERNEL: usize = 0;
/// Transaction control and settings: the writer's own statements.
const CONTROL: usize = usize::MAX;
/// Nobody: everything that writes is refused.
pub(crate) const NOBODY: usize = usize::MAX - 1;

/// What only retention may delete, however it is asked: history, and what history refers to.
const KEPT: [&str; 7] = [
    "events",
    "resources",
    "leases",
    "effects",
    "effect_attempts",
    "blobs",
    "projects",
];

/// What retention writes of its own.
const SWEEPS: &str = "retention_sweeps";

/// What a write connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Commands: nothing of the shared records is ever deleted.
    Commands,
    /// Retention: each domain deletes its own dead rows, and makes none.
    Retention,
}

pub(crate) struct StatementGuard {
    schema: Schema,
    current: Arc<AtomicUsize>,
    accepted: RefCell<HashSet<(usize, usize, usize)>>,
    /// Operations that were found in the schema, by their address: to compare all that one says takes longer than a statement.
    known: RefCell<HashMap<usize, usize>>,
}

impl StatementGuard {
    /// Installs the authorizer on the write connection. From now on it can do nothing that the guard does not know.
    pub(crate) fn install(
        connection: &mut Connection,
        schema: &Schema,
        purpose: Purpose,
    ) -> Result<Self, StateError> {
        let current = Arc::new(AtomicUsize::new(NOBODY));
        let asked = Arc::clone(&current);
        let owners = schema.clone();
        connection.authorizer(Some(move |context: AuthContext<'_>| {
            authorize(&owners, purpose, asked.load(Ordering::Relaxed), &context)
        }))?;
        // A plan that depends on a bound value is made anew when the statement runs, where the authorizer can't know for whom.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        // When SQLite ends the transaction by itself, as on a full disk, a body that goes on would commit each further statement
        // alone. Nothing is committed but by the writer's own statement.
        let committing = Arc::clone(&current);
        connection.commit_hook(Some(move || committing.load(Ordering::Relaxed) != CONTROL))?;
        Ok(Self {
            schema: schema.clone(),
            current,
            accepted: RefCell::new(HashSet::new()),
            known: RefCell::new(HashMap::new()),
        })
    }

    /// A cached statement for a domain.
    pub(crate) fn prepare<'a>(
        &self,
        connection: &'a Connection,
        domain: usize,
        sql: &'static str,
    ) -> Result<CachedStatement<'a>, StateError> {
        self.current.store(domain, Ordering::Relaxed);
        let statement = self.prepare_as_current(connection, domain, sql);
        self.current.store(NOBODY, Ordering::Relaxed);
        statement.map_err(|source| self.refusal(domain, sql, source))
    }

    fn prepare_as_current<'a>(
        &self,
        connection: &'a Connection,
        domain: usize,
        sql: &'static str,
    ) -> rusqlite::Result<CachedStatement<'a>> {
        let pair = (domain, sql.as_ptr().addr(), sql.len());
        if !self.accepted.borrow().contains(&pair) {
            connection.prepare(sql)?;
            self.accepted.borrow_mut().insert(pair);
        }
        connection.prepare_cached(sql)
    }

    /// The domain that owns an operation, if a composed domain declares exactly it.
    pub(crate) fn operation_owner(&self, operation: &'static Operation) -> Option<usize> {
        let address = std::ptr::from_ref(operation).addr();
        if let Some(domain) = self.known.borrow().get(&address) {
            return Some(*domain);
        }
        let domain = self.schema.operation_owner(operation)?;
        // It lives as long as the process, so that nothing else will have its address.
        self.known.borrow_mut().insert(address, domain);
        Some(domain)
    }

    /// Runs a statement of the writer itself: transaction control or a setting.
    pub(crate) fn control(
        &self,
        connection: &Connection,
        sql: &'static str,
    ) -> Result<(), rusqlite::Error> {
        self.current.store(CONTROL, Ordering::Relaxed);
        let done = connection.prepare_cached(sql).and_then(|mut statement| {
            let mut rows = statement.raw_query();
            while rows.next()?.is_some() {}
            Ok(())
        });
        self.current.store(NOBODY, Ordering::Relaxed);
        done
    }

    /// Reads one number by a statement of the writer itself.
    pub(crate) fn control_number(
        &self,
        connection: &Connection,
        sql: &'static str,
    ) -> Result<i64, rusqlite::Error> {
        self.current.store(CONTROL, Ordering::Relaxed);
        let number = connection
            .prepare_cached(sql)
            .and_then(|mut statement| statement.query_row([], |row| row.get(0)));
        self.current.store(NOBODY, Ordering::Relaxed);
        number
    }

    fn refusal(&self, domain: usize, sql: &str, source: rusqlite::Error) -> StateError {
        match source.sqlite_error_code() {
            Some(rusqlite::ErrorCode::AuthorizationForStatementDenied) => {
                StateError::StatementDenied {
                    domain: self.schema.domain_name(domain).to_owned(),
                    statement: sql.to_owned(),
                    source,
                }
            }
            _ => source.into(),
        }
    }
}

fn authorize(
    schema: &Schema,
    purpose: Purpose,
    domain: usize,
    context: &AuthContext<'_>,
) -> Authorization {
    let owns = |table: &str| {
        context.database_name == Some("main") && schema.table_owner(table) == Some(domain)
    };
    let allowed = match context.action {
        AuthAction::Select | AuthAction::Read { .. } | AuthAction::Recursive => true,
        AuthAction::Function { function_name } => {
            !function_name.eq_ignore_ascii_case("load_extension")
        }
        AuthAction::Insert { table_name } => {
            owns(table_name) && (purpose == Purpose::Commands || table_name == SWEEPS)
        }
        // What happened is never rewritten.
        AuthAction::Update { table_name, .. } => {
            owns(table_name)
                && table_name != "events"
                && (purpose == Purpose::Commands || domain != KERNEL || table_name == SWEEPS)
        }
        AuthAction::Delete { table_name } => {
            owns(table_name)
                && (purpose == Purpose::Retention
                    || domain != KERNEL
                    || !KEPT.contains(&table_name))
        }
        AuthAction::Transaction { .. }
        | AuthAction::Savepoint { .. }
        | AuthAction::Pragma { .. } => domain == CONTROL,
        _ => false,
    };
    if allowed {
        Authorization::Allow
    } else {
        Authorization::Deny
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{Domain, Identity};

    /// Whether each statement may be prepared, in the name of the kernel and of a domain above it.
    // lint:allow(sql-in-test): tries every statement that the authorizer has to refuse; none is run.
    fn verdicts(purpose: Purpose) -> Vec<String> {
        let notes = Domain {
            ddl: "CREATE TABLE notes (note TEXT) STRICT;",
            ..Domain::named("notes")
        };
        let schema = Schema::compose(Identity::PI_WORKFLOWS, [crate::DOMAIN, notes]).unwrap();
        let mut connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(schema.ddl()).unwrap();
        let guard = StatementGuard::install(&mut connection, &schema, purpose).unwrap();
        [
            "SELECT * FROM events",
            "DELETE FROM events",
            "UPDATE events SET event_type = 'x'",
            "INSERT INTO events (resource_key) VALUES (1)",
            "DELETE FROM resources",
            "UPDATE resources SET revision = 2",
            "DELETE FROM blobs",
            "DELETE FROM effect_attempts",
            "DELETE FROM notes",
            "UPDATE notes SET note = 'x'",
            "INSERT INTO notes VALUES ('x')",
        ]
        .map(|sql| {
            let may = |domain| match guard.prepare(&connection, domain, sql) {
                Ok(_) => "may",
                Err(StateError::StatementDenied { .. }) => "-",
                Err(error) => panic!("{error}"),
            };
            format!("{:<4}{:<4}{sql}", may(KERNEL), may(KERNEL + 1))
        })
        .to_vec()
    }

    #[test]
    fn commands_never_delete_history_and_retention_makes_none() {
        insta::assert_snapshot!(verdicts(Purpose::Commands).join("\n"), @"
        may may SELECT * FROM events
        -   -   DELETE FROM events
        -   -   UPDATE events SET event_type = 'x'
        may -   INSERT INTO events (resource_key) VALUES (1)
        -   -   DELETE FROM resources
        may -   UPDATE resources SET revision = 2
        -   -   DELETE FROM blobs
        -   -   DELETE FROM effect_attempts
        -   may DELETE FROM notes
        -   may UPDATE notes SET note = 'x'
        -   may INSERT INTO notes VALUES ('x')
        ");
        insta::assert_snapshot!(verdicts(Purpose::Retention).join("\n"), @"
        may may SELECT * FROM events
        may -   DELETE FROM events
        -   -   UPDATE events SET event_type = 'x'
        -   -   INSERT INTO events (resource_key) VALUES (1)
        may -   DELETE FROM resources
        -   -   UPDATE resources SET revision = 2
        may -   DELETE FROM blobs
        may -   DELETE FROM effect_attempts
        -   may DELETE FROM notes
        -   may UPDATE notes SET note = 'x'
        -   -   INSERT INTO notes VALUES ('x')
        ");
    }
}
