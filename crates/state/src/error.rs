//! What can go wrong in the state layer, one variant for each thing that a caller does differently.
//!
//! Unless a variant says otherwise, nothing was written. Raw SQLite text is only ever the source of an error, never its message.

use std::path::PathBuf;

use crate::clock::UnixMillis;
use crate::command::ActorKind;
use crate::id::{Digest, Resource};
use crate::json::JsonError;

/// An error of the state layer. Nothing was written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// The resource moved on since the caller read it. Read it again and decide anew.
    #[error(
        "{resource} is at revision {actual}, not {expected}; read it again and repeat the command"
    )]
    StaleRevision {
        /// The resource that the command named.
        resource: Resource,
        /// The revision that the command expected.
        expected: u64,
        /// The revision in the database.
        actual: u64,
    },
    /// The caller does not own the resource, or no longer. Stop working on it; whoever owns it now goes on.
    #[error("the claim on {resource} is lost: {reason}")]
    ClaimLost {
        /// The resource whose lease the command needs.
        resource: Resource,
        /// In what the evidence and the lease differ.
        reason: ClaimLostReason,
    },
    /// A live owner holds the lease. Try again after it expires, or let the owner release it.
    #[error("{resource} is held by another owner until {expires_at} (epoch ms)")]
    LeaseHeld {
        /// The resource whose lease was asked for.
        resource: Resource,
        /// When the present lease ends unless it is renewed.
        expires_at: UnixMillis,
    },
    /// It is too early: what was asked for may not begin before an instant that was set with it. Ask again then.
    #[error("{resource} may not begin before {due_at} (epoch ms); ask again then")]
    NotDue {
        /// What was to begin.
        resource: Resource,
        /// The instant from which it may.
        due_at: UnixMillis,
    },
    /// The operation is not for this kind of actor. Nothing will change that.
    #[error("{operation} is not for the actor kind {actor}")]
    ActorDenied {
        /// The operation's name.
        operation: &'static str,
        /// Who asked.
        actor: ActorKind,
    },
    /// The resource is in a state from which the operation does not lead, or must not lead there.
    #[error("{operation} does not lead from {from:?} to {to:?}")]
    InvalidTransition {
        /// The operation's name.
        operation: &'static str,
        /// The state that the resource is in.
        from: String,
        /// The state that was asked for.
        to: String,
    },
    /// Something else holds the place already, with other content. The winner stays.
    #[error("{resource} conflicts with what is stored: {winner}")]
    Conflict {
        /// What the command wanted to write.
        resource: Resource,
        /// What is there, in words for a person.
        winner: String,
    },
    /// There is no such resource.
    #[error("{resource} does not exist")]
    NotFound {
        /// What was looked for.
        resource: Resource,
    },
    /// Another process holds the write lock, or the queue is full. Nothing was written; send the whole command again.
    #[error("the store is busy: waited {waited_ms} ms; send the whole command again")]
    Busy {
        /// How long the command waited, in milliseconds.
        waited_ms: u64,
    },
    /// Somebody has the file in use as a whole: the store is open somewhere, or a restore or a copy is at work. Nothing was
    /// written; stop the programs that use it, or wait for the copy, and try again.
    #[error("{} is in use: {by}", path.display())]
    InUse {
        /// The store, or the directory of a copy.
        path: PathBuf,
        /// By what, and what to do.
        by: &'static str,
    },
    /// What was selected to be deleted is not what would be selected now. Nothing was deleted; look at the plan and ask again.
    #[error("the selection changed: {what}; look at the plan and ask again")]
    SelectionChanged {
        /// What differs.
        what: String,
    },
    /// The database was closed before the command ran. Nothing was written.
    #[error("the database handle is closed")]
    Closed,
    /// This process was forked from one that had the store open. It inherits the parent's memory but none of its locks, so that it
    /// can neither use the handle nor open a store. Fork before opening, or `exec` a program that opens it.
    #[error(
        "the store was opened by process {opened_by}, from which this one was forked; exec a program of its own that opens it"
    )]
    Forked {
        /// The process that opened the handle.
        opened_by: u32,
    },
    /// The command's own code panicked. Its work was undone; other commands were not touched.
    #[error("the command {operation} panicked: {message}")]
    Panicked {
        /// The operation's name.
        operation: &'static str,
        /// What the panic said.
        message: String,
    },
    /// What the caller handed in can't be taken. The message names the input and the way out.
    #[error("{what}: {problem}")]
    Input {
        /// Which input.
        what: &'static str,
        /// What is wrong with it and what would be right.
        problem: String,
    },
    /// JSON that can't be stored.
    #[error("{what} is not storable JSON")]
    Json {
        /// Which input.
        what: &'static str,
        /// Why.
        #[source]
        source: JsonError,
    },
    /// A value above its size limit, found before anything was written.
    #[error("{what} has {size_bytes} bytes; at most {limit_bytes} are allowed")]
    TooLarge {
        /// Which input.
        what: &'static str,
        /// Its size in bytes.
        size_bytes: u64,
        /// The limit in bytes.
        limit_bytes: u64,
    },
    /// The content is stored, but not as what the reader expects.
    #[error("blob {digest} is stored as {actual}, not as {expected}")]
    MediaType {
        /// The content.
        digest: Digest,
        /// The media type that the reader named.
        expected: String,
        /// The media type that is stored.
        actual: String,
    },
    /// The domain's code broke a rule of the kernel, such as writing rows in a command that it then calls adopted.
    #[error("BUG in {operation}: {problem}")]
    Misuse {
        /// The operation's name.
        operation: &'static str,
        /// Which rule was broken.
        problem: String,
    },
    /// A statement touches a table that its domain does not own, or does what no command may do. SQLite refused it.
    #[error("domain {domain} may not run this statement: {statement}")]
    StatementDenied {
        /// The domain that asked.
        domain: String,
        /// The statement.
        statement: String,
        /// What SQLite says.
        #[source]
        source: rusqlite::Error,
    },
    /// The store was refused at open, or is no longer the store that was opened. Its bytes are untouched.
    #[error("{}: {refusal}", path.display())]
    Refused {
        /// The database file.
        path: PathBuf,
        /// Why, with one instruction.
        refusal: Box<Refusal>,
    },
    /// A row contradicts the rules. `verify` says more; nothing is repaired.
    #[error("{what} is corrupt: {problem}; run `verify` on a copy of the store")]
    Corrupt {
        /// Which record.
        what: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The volume is full. SQLite undid the transaction; make room and send the command again. Never repair or reset for this.
    #[error("the disk is full; make room and send the command again")]
    DiskFull {
        /// What SQLite says.
        #[source]
        source: rusqlite::Error,
    },
    /// The operating system failed to read or write.
    #[error("{action} failed")]
    Io {
        /// What was being done, to which file.
        action: String,
        /// What the operating system says.
        #[source]
        source: std::io::Error,
    },
    /// SQLite failed in a way that no other variant names.
    #[error("SQLite refused a statement")]
    Sqlite {
        /// What SQLite says.
        #[source]
        source: rusqlite::Error,
    },
}

/// Why a claim gives no right any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub enum ClaimLostReason {
    /// The command needs a claim and brought none, or nobody holds the lease.
    MissingAuthority,
    /// The lease ran out before the command.
    Expired,
    /// Another owner holds the lease.
    OwnerChanged,
    /// The token is not the one of the present claim.
    TokenChanged,
    /// The lease was claimed anew since.
    GenerationChanged,
}

impl std::fmt::Display for ClaimLostReason {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::MissingAuthority => "missingAuthority",
            Self::Expired => "expired",
            Self::OwnerChanged => "ownerChanged",
            Self::TokenChanged => "tokenChanged",
            Self::GenerationChanged => "generationChanged",
        })
    }
}

/// Why a file is not opened as a store. The file's bytes are untouched in every case.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The file is not a SQLite database.
    #[error("not a SQLite database ({detail}). {RESET}")]
    NotADatabase {
        /// What is wrong with it.
        detail: String,
    },
    /// The file is a SQLite database of another program.
    #[error(
        "application id {actual:#010x} instead of {expected:#010x}: this is another program's database. Name another path"
    )]
    ApplicationId {
        /// What the program expects.
        expected: i32,
        /// What the file says.
        actual: i32,
    },
    /// The file was written by a newer program.
    #[error(
        "schema version {actual} is newer than this program's {expected}. Use the newer program"
    )]
    Newer {
        /// The version that the program knows.
        expected: i64,
        /// The version in the file.
        actual: i64,
    },
    /// The file has an older version and this schema has no migrations.
    #[error("schema version {actual} instead of {expected}. {RESET}")]
    Version {
        /// The version that the program knows.
        expected: i64,
        /// The version in the file.
        actual: i64,
    },
    /// `schema_meta` is missing, has more than one row, or names another schema.
    #[error("schema_meta: {detail}. {RESET}")]
    SchemaMeta {
        /// What is wrong with it.
        detail: String,
    },
    /// The stored digest is not the digest of the composed schema.
    #[error(
        "schema digest {actual} instead of {expected}: other domains are composed here. Compose the same domains, or: {RESET}"
    )]
    Digest {
        /// The digest of the composed schema.
        expected: String,
        /// The digest in the file.
        actual: String,
    },
    /// Tables, columns, indexes, triggers or constraints differ from the schema.
    #[error("the shape differs from the schema: {}. {RESET}", differences.join("; "))]
    Shape {
        /// Each difference, in words.
        differences: Vec<String>,
    },
    /// The integrity check found damage.
    #[error("integrity check failed: {}. Restore a backup", problems.join("; "))]
    Integrity {
        /// The first findings of `PRAGMA integrity_check`.
        problems: Vec<String>,
    },
    /// The foreign-key check found damage.
    #[error("foreign keys are violated: {}. Restore a backup", problems.join("; "))]
    ForeignKeys {
        /// The first findings of `PRAGMA foreign_key_check`.
        problems: Vec<String>,
    },
    /// The running SQLite can lose committed writes (before 3.51.3).
    #[error(
        "the running SQLite {actual} can lose committed writes; {minimum} or newer is needed. Build with the bundled SQLite"
    )]
    Engine {
        /// The running version.
        actual: String,
        /// The first version that is accepted.
        minimum: &'static str,
    },
    /// A connection setting did not take.
    #[error("{pragma} is {actual} instead of {expected} on a connection")]
    Pragma {
        /// The setting.
        pragma: &'static str,
        /// What was set.
        expected: String,
        /// What was read back.
        actual: String,
    },
    /// The file system can't give the locks and shared memory that WAL needs.
    #[error(
        "the file system {kind} does not support a shared WAL database. Put the store on a local disk"
    )]
    FileSystem {
        /// The file system's name.
        kind: String,
    },
    /// The file has more than one hard link, so that two names would have two WAL files.
    #[error("the file has {links} hard links. Keep one name only")]
    HardLinks {
        /// The number of links.
        links: u64,
    },
    /// The path is not a regular file.
    #[error("not a regular file: {detail}. Name another path")]
    NotAFile {
        /// What it is.
        detail: String,
    },
    /// The path lacks rights that the store needs.
    #[error("{detail}. To look at a store without write rights, open a backup of it")]
    Access {
        /// Which right is missing on what.
        detail: String,
    },
    /// Others may read or write the file, or write its directory.
    #[error("mode {actual:#o} of {what} lets others in. Run: chmod {wanted:o} {what}")]
    Mode {
        /// The file or directory.
        what: String,
        /// Its mode.
        actual: u32,
        /// The mode it should have.
        wanted: u32,
    },
    /// State of an older program lies beside the missing database.
    #[error("old state in {} and no database. Move the old directories away; then a new database is made", paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", "))]
    OldState {
        /// What was found.
        paths: Vec<PathBuf>,
    },
    /// The database is missing or has no bytes, and its write-ahead log has some: they are all that is left of a store.
    #[error(
        "there is no database, but its log {} has {size_bytes} bytes. Put the database file back beside its log, or move the log away and restore a backup", log.display()
    )]
    LogWithoutDatabase {
        /// The log.
        log: PathBuf,
        /// Its size in bytes.
        size_bytes: u64,
    },
    /// The database does not exist, and the caller asked not to create it.
    #[error(
        "there is no database here. Name the right path, or create one by opening it for writing"
    )]
    Missing,
    /// The file at the path is no longer the file that was opened.
    #[error("the file was replaced or removed since it was opened. Open it again")]
    Replaced,
    /// A restore was interrupted while it moved files. The old store and the backup are whole.
    #[error("a restore of this store was interrupted. Run the restore again")]
    RestoreUnfinished,
    /// The domains can't be composed. No file was looked at.
    #[error("the domains can't be composed: {problem}")]
    Compose {
        /// What claims what twice, or which DDL fails.
        problem: String,
    },
    /// A migration failed or does not lead to the schema.
    #[error("migration {migration} failed: {problem}. The file is as it was before")]
    Migration {
        /// The migration's name.
        migration: String,
        /// What went wrong.
        problem: String,
    },
}

/// The one instruction of the exact policy.
const RESET: &str = "Copy the database with its -wal and -shm files to a safe place, then remove all three to start anew";

impl StateError {
    /// Whether the same command may succeed later without a change of its content.
    pub fn is_retryable(&self) -> bool {
        matches!(
            self,
            Self::Busy { .. }
                | Self::InUse { .. }
                | Self::DiskFull { .. }
                | Self::LeaseHeld { .. }
                | Self::NotDue { .. }
        )
    }

    /// The same error for another command of the same transaction.
    pub(crate) fn share(&self) -> Self {
        match self {
            Self::Busy { waited_ms } => Self::Busy {
                waited_ms: *waited_ms,
            },
            Self::Refused { path, refusal } => Self::Refused {
                path: path.clone(),
                refusal: refusal.clone(),
            },
            Self::Corrupt { what, problem } => Self::Corrupt {
                what: what.clone(),
                problem: problem.clone(),
            },
            Self::DiskFull { source } => Self::DiskFull {
                source: share_sqlite(source),
            },
            Self::Sqlite { source } => Self::Sqlite {
                source: share_sqlite(source),
            },
            Self::Io { action, source } => Self::Io {
                action: action.clone(),
                source: share_io(source),
            },
            other => Self::Io {
                action: "committing the transaction".into(),
                source: std::io::Error::other(other.to_string()),
            },
        }
    }

    /// The error's stable code: the word that the command line prints and programs compare.
    pub fn code(&self) -> &'static str {
        match self {
            Self::StaleRevision { .. } => "staleRevision",
            Self::ClaimLost { .. } => "claimLost",
            Self::LeaseHeld { .. } => "leaseHeld",
            Self::NotDue { .. } => "notDue",
            Self::ActorDenied { .. } => "actorDenied",
            Self::InvalidTransition { .. } => "invalidTransition",
            Self::Conflict { .. } => "conflict",
            Self::NotFound { .. } => "notFound",
            Self::Busy { .. } | Self::InUse { .. } => "busy",
            Self::SelectionChanged { .. } => "selectionChanged",
            Self::Closed => "closed",
            Self::Forked { .. } => "forked",
            Self::Panicked { .. } => "panicked",
            Self::Input { .. } | Self::Json { .. } => "input",
            Self::TooLarge { .. } => "tooLarge",
            Self::MediaType { .. } => "mediaType",
            Self::Misuse { .. } => "misuse",
            Self::StatementDenied { .. } => "statementDenied",
            Self::Refused { .. } => "storeRefused",
            Self::Corrupt { .. } => "corrupt",
            Self::DiskFull { .. } => "diskFull",
            Self::Io { .. } => "io",
            Self::Sqlite { .. } => "sqlite",
        }
    }
}

impl From<rusqlite::Error> for StateError {
    /// Sorts SQLite's result codes (<https://www.sqlite.org/rescode.html>) into what a caller does about them.
    fn from(source: rusqlite::Error) -> Self {
        use rusqlite::ErrorCode;
        match source.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                Self::Busy { waited_ms: 0 }
            }
            Some(ErrorCode::DiskFull) => Self::DiskFull { source },
            // A full disk meets SQLite under another code when it is the shared memory of the log that can't grow.
            Some(ErrorCode::SystemIoFailure) if is_shared_memory_full(&source) => {
                Self::DiskFull { source }
            }
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Self::Corrupt {
                what: "the database file".into(),
                problem: source.to_string(),
            },
            Some(ErrorCode::SystemIoFailure | ErrorCode::CannotOpen | ErrorCode::ReadOnly) => {
                Self::Io {
                    action: "reading or writing the database".into(),
                    source: std::io::Error::other(source),
                }
            }
            _ => match source {
                rusqlite::Error::FromSqlConversionFailure(..)
                | rusqlite::Error::IntegralValueOutOfRange(..)
                | rusqlite::Error::InvalidColumnType(..) => Self::Corrupt {
                    what: "a row".into(),
                    problem: source.to_string(),
                },
                source => Self::Sqlite { source },
            },
        }
    }
}

/// Whether the file of the log's shared memory could not be made larger, which is the disk's doing and nobody else's.
fn is_shared_memory_full(source: &rusqlite::Error) -> bool {
    source
        .sqlite_error()
        .is_some_and(|error| error.extended_code == rusqlite::ffi::SQLITE_IOERR_SHMSIZE)
}

fn share_sqlite(source: &rusqlite::Error) -> rusqlite::Error {
    match source {
        rusqlite::Error::SqliteFailure(failure, text) => {
            rusqlite::Error::SqliteFailure(*failure, text.clone())
        }
        other => rusqlite::Error::ToSqlConversionFailure(other.to_string().into()),
    }
}

/// The same cause: what SQLite or the operating system said must reach every caller, not only the first.
fn share_io(source: &std::io::Error) -> std::io::Error {
    let inner = source.get_ref();
    if let Some(sqlite) = inner.and_then(|inner| inner.downcast_ref::<rusqlite::Error>()) {
        std::io::Error::other(share_sqlite(sqlite))
    } else if let Some(code) = source.raw_os_error() {
        std::io::Error::from_raw_os_error(code)
    } else {
        std::io::Error::new(source.kind(), source.to_string())
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    #[test]
    fn a_log_index_that_can_not_grow_is_a_full_disk() {
        let code = |extended| {
            StateError::from(rusqlite::Error::SqliteFailure(
                rusqlite::ffi::Error::new(extended),
                None,
            ))
            .code()
        };
        assert_eq!(code(4874), "diskFull");
        assert_eq!(code(rusqlite::ffi::SQLITE_FULL), "diskFull");
        for other in [
            rusqlite::ffi::SQLITE_IOERR,
            rusqlite::ffi::SQLITE_IOERR_WRITE,
            rusqlite::ffi::SQLITE_IOERR_SHMMAP,
        ] {
            assert_eq!(code(other), "io");
        }
    }

    /// Case 6: neighbours of one transaction hear the cause that ended it, each as if it were alone.
    #[test]
    fn case_006_a_shared_error_keeps_its_cause() {
        let sqlite = |code| {
            rusqlite::Error::SqliteFailure(
                rusqlite::ffi::Error::new(code),
                Some("what SQLite said".into()),
            )
        };
        let errors: Vec<StateError> = vec![
            sqlite(rusqlite::ffi::SQLITE_IOERR_FSYNC).into(),
            sqlite(rusqlite::ffi::SQLITE_FULL).into(),
            sqlite(rusqlite::ffi::SQLITE_CORRUPT).into(),
            sqlite(rusqlite::ffi::SQLITE_AUTH).into(),
            StateError::Busy { waited_ms: 7 },
            StateError::Io {
                action: "locking the turnstile".into(),
                source: std::io::Error::from_raw_os_error(37),
            },
            StateError::Io {
                action: "locking the turnstile".into(),
                source: std::io::ErrorKind::StorageFull.into(),
            },
        ];
        for error in errors {
            let shared = error.share();
            assert_eq!(shared.code(), error.code());
            assert_eq!(shared.to_string(), error.to_string());
            assert_eq!(
                shared.source().map(ToString::to_string),
                error.source().map(ToString::to_string)
            );
            if let (StateError::Io { source: one, .. }, StateError::Io { source: other, .. }) =
                (&shared, &error)
            {
                assert_eq!(one.kind(), other.kind());
            }
        }
    }
}
