//! What a domain crate needs of SQL: parameters, rows and conversions, re-exported.
//!
//! Domain crates do not depend on rusqlite. They get statements from [`Change`](crate::Change) and
//! [`Snapshot`](crate::Snapshot), never a connection.

pub use rusqlite::types::{
    FromSql, FromSqlError, FromSqlResult, ToSql, ToSqlOutput, Value, ValueRef,
};
pub use rusqlite::{
    CachedStatement as Statement, Error as SqlError, OptionalExtension, Params, Row, named_params,
    params,
};

/// The version of the SQLite that runs, such as `3.51.3`.
pub fn engine_version() -> &'static str {
    rusqlite::version()
}
