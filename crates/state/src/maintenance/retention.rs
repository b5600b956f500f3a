//! Retention: dead trees are found, explained and deleted, whole, and then what nothing refers to any more.
//!
//! What a tree is made of, what holds it and which rows go with it is said by the domains ([`Retention`](crate::schema::Retention));
//! here is the machinery, which knows leases, effects, events and blobs only. Nothing else deletes history: the authorizer of
//! every other connection refuses it. A sweep deletes one tree in one transaction and may stop between any two; a prune makes a
//! backup first and deletes everything in one transaction. Not here: when a sweep is due to be asked for, and the command line.

mod delete;
mod plan;
mod select;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::backup::{BackupProgress, BackupReport};
use super::files;
use super::verify::{self, Depth, VerifyReport};
use crate::clock::UnixMillis;
use crate::database::{Cleaner, Database, End, MaintenanceRight};
use crate::error::StateError;
use crate::id::Digest;
use crate::records::retention as records;

pub use plan::{Held, RetentionPlan, Tree, TreeMember};

/// The least time from one completed sweep to the next, in milliseconds: a day.
pub const SWEEP_INTERVAL_MS: i64 = 24 * 60 * 60 * 1_000;
/// How much must be free in the file before a sweep writes it anew, in bytes.
const VACUUM_FREE_BYTES: u64 = 64 * 1024 * 1024;
/// And which part of it: one page of so many.
const VACUUM_FREE_PART: u64 = 5;

/// What a sweep or a prune is to take.
#[derive(Debug, Clone)]
pub struct Taking {
    /// A member that ended before this instant may go; one that ended at it stays.
    pub cutoff: UnixMillis,
    /// Blobs that stay although nothing refers to them yet: what workers and transfers hold now.
    pub held: BTreeSet<Digest>,
}

impl Taking {
    /// What ended before `cutoff`, when nobody holds anything.
    pub fn before(cutoff: UnixMillis) -> Self {
        Self {
            cutoff,
            held: BTreeSet::new(),
        }
    }
}

/// How a sweep ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum SweepEnd {
    /// Everything that was selected is gone, and what nothing referred to any more.
    Completed,
    /// The caller ended it between two trees. Shared content was not touched, and the sweep is still due.
    Interrupted,
    /// A tree was no longer as it was selected. It is still there; shared content was not touched, and the sweep is still due.
    Changed,
    /// The last completed sweep is less than a day ago: nothing was looked at.
    NotDue,
}

/// What a sweep did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SweepReport {
    /// How it ended.
    pub end: SweepEnd,
    /// Trees that were candidates.
    pub candidates: u64,
    /// Candidates that something held.
    pub blocked: u64,
    /// What was deleted.
    pub deleted: Deleted,
    /// What became of the file; none unless the sweep completed.
    pub compaction: Option<Compaction>,
}

/// What was deleted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Deleted {
    /// Trees.
    pub trees: u64,
    /// Their members.
    pub members: u64,
    /// Rows that nothing referred to any more, by table: definitions, projects, blobs.
    pub shared: BTreeMap<String, u64>,
}

/// What became of the file after the deletions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Compaction {
    /// The size of the database file and its log before.
    pub bytes_before: u64,
    /// And after.
    pub bytes_after: u64,
    /// Whether the log was moved into the file and cut; a reader of an old snapshot can be in the way.
    pub log_emptied: bool,
    /// Whether the file was written anew without its free pages.
    pub vacuumed: bool,
    /// What went wrong. The deletions stand; free pages are used again before the file grows.
    pub problem: Option<String>,
}

/// What a prune did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PruneReport {
    /// What was selected, and why the rest was not.
    pub plan: RetentionPlan,
    /// The backup that was made before.
    pub backup: BackupReport,
    /// What was deleted.
    pub deleted: Deleted,
    /// What became of the file.
    pub compaction: Compaction,
    /// Integrity, foreign keys, schema and invariants of the store afterwards.
    pub verified: VerifyReport,
}

impl Database {
    /// What retention would take, and why not the rest: the dry run. It writes nothing and takes no lock.
    ///
    /// # Errors
    ///
    /// [`StateError::Corrupt`] when the store is damaged so that no selection can be trusted.
    pub fn retention_plan(&self, cutoff: UnixMillis) -> Result<RetentionPlan, StateError> {
        let snapshot = self.snapshot()?;
        plan::make(
            snapshot.connection(),
            self.schema(),
            cutoff,
            self.clock().now(),
        )
    }

    /// When the last sweep came to its end; none when there was none.
    ///
    /// # Errors
    ///
    /// Those of the database.
    pub fn last_sweep(&self) -> Result<Option<UnixMillis>, StateError> {
        records::last_sweep(&self.snapshot()?.sql())
    }

    /// Whether a sweep is due: none has completed within the last day. A clock that went back makes it due.
    ///
    /// # Errors
    ///
    /// Those of the database.
    pub fn sweep_is_due(&self) -> Result<bool, StateError> {
        let now = self.clock().now();
        Ok(self
            .last_sweep()?
            .is_none_or(|last| now < last || SWEEP_INTERVAL_MS <= now.since(last)))
    }

    /// Deletes dead trees, each in a transaction of its own in which it is judged again, then what nothing refers to any more, and
    /// then gives free space back when there is much of it.
    ///
    /// `may_continue` is asked before each tree and hears how many are done; no transaction is open then, and commands run.
    /// After a crash at any instant some trees are gone, whole, and the sweep is still due.
    ///
    /// # Errors
    ///
    /// [`StateError::InUse`] while another sweep or prune is at work, in whatever process; [`StateError::Corrupt`] when no selection
    /// can be trusted; [`StateError::Busy`]. What was deleted by then stays deleted.
    pub fn sweep(
        &self,
        taking: &Taking,
        mut may_continue: impl FnMut(u64) -> ControlFlow<()>,
    ) -> Result<SweepReport, StateError> {
        let _right = MaintenanceRight::take(self.path())?;
        let mut report = SweepReport {
            end: SweepEnd::NotDue,
            candidates: 0,
            blocked: 0,
            deleted: Deleted::default(),
            compaction: None,
        };
        if !self.sweep_is_due()? {
            return Ok(report);
        }
        let plan = self.retention_plan(taking.cutoff)?;
        (report.candidates, report.blocked) = (plan.candidates, plan.blocked);
        let mut cleaner = self.cleaner()?;
        for tree in plan.trees.iter().filter(|tree| tree.selected) {
            if may_continue(report.deleted.trees).is_break() {
                report.end = SweepEnd::Interrupted;
                return Ok(report);
            }
            if !self.sweep_tree(&mut cleaner, tree, taking.cutoff)? {
                report.end = SweepEnd::Changed;
                return Ok(report);
            }
            report.deleted.trees += 1;
            report.deleted.members += tree.size();
        }
        if may_continue(report.deleted.trees).is_break() {
            report.end = SweepEnd::Interrupted;
            return Ok(report);
        }
        // From here on the sweep is complete or still due, also after a loss of power.
        cleaner.become_durable()?;
        let schema = self.schema();
        report.deleted.shared = cleaner.look_and_transact(
            |connection| select::orphans(connection, schema, &taking.held),
            |cleaning, orphans| {
                records::record_sweep(&cleaning.sql(delete::KERNEL), cleaning.now, taking.cutoff)?;
                Ok(End::Commit(delete::orphans(cleaning, orphans)?))
            },
        )?;
        report.end = SweepEnd::Completed;
        report.compaction = Some(self.compact(&mut cleaner, false));
        Ok(report)
    }

    /// One tree in one transaction. Returns whether it was still what the plan says.
    fn sweep_tree(
        &self,
        cleaner: &mut Cleaner,
        tree: &Tree,
        cutoff: UnixMillis,
    ) -> Result<bool, StateError> {
        let schema = self.schema();
        cleaner.transact(|cleaning| {
            let again = plan::again(
                cleaning.connection,
                schema,
                &tree.keys,
                cutoff,
                cleaning.now,
            )?;
            match again {
                Some(again) if again.selected && again.signature == tree.signature => {
                    delete::tree(cleaning, schema, &again)?;
                    Ok(End::Commit(true))
                }
                Some(_) | None => Ok(End::Rollback(false)),
            }
        })
    }

    /// Deletes all dead trees and what nothing refers to any more in one transaction, after a backup, and writes the file anew.
    ///
    /// # Errors
    ///
    /// Before anything is locked or changed: [`StateError::Input`] when `backup` is relative or exists. [`StateError::InUse`] while a
    /// sweep or another prune is at work, and the errors of [`Database::backup`]. [`StateError::SelectionChanged`] when the
    /// selection is another one after the backup: nothing was deleted. In each case but the first two the backup stays.
    pub fn prune(
        &self,
        taking: &Taking,
        backup: impl AsRef<Path>,
    ) -> Result<PruneReport, StateError> {
        self.prune_with(taking, backup, |_| ControlFlow::Continue(()))
    }

    /// As [`Database::prune`], and tells how far its backup is; breaking ends it before anything is deleted.
    ///
    /// # Errors
    ///
    /// As [`Database::prune`]; [`StateError::Io`] of kind `Interrupted` after a break.
    pub fn prune_with(
        &self,
        taking: &Taking,
        backup: impl AsRef<Path>,
        progress: impl FnMut(BackupProgress) -> ControlFlow<()>,
    ) -> Result<PruneReport, StateError> {
        let backup = new_backup(backup.as_ref())?;
        let _right = MaintenanceRight::take(self.path())?;
        let plan = self.retention_plan(taking.cutoff)?;
        let backup = self.backup_with(backup, progress)?;
        let schema = self.schema();
        let mut cleaner = self.cleaner()?;
        cleaner.become_durable()?;
        let deleted = cleaner.transact(|cleaning| {
            let connection = cleaning.connection;
            let again = plan::make(connection, schema, taking.cutoff, cleaning.now)?;
            if let Some(what) = plan.differs_from(&again) {
                return Err(StateError::SelectionChanged { what });
            }
            let mut deleted = Deleted::default();
            for tree in again.trees.iter().filter(|tree| tree.selected) {
                delete::tree(cleaning, schema, tree)?;
                deleted.trees += 1;
                deleted.members += tree.size();
            }
            let orphans = select::orphans(connection, schema, &taking.held)?;
            deleted.shared = delete::orphans(cleaning, &orphans)?;
            match cleaning.broken_references()? {
                0 => Ok(End::Commit(deleted)),
                broken => Err(StateError::Corrupt {
                    what: "what a prune would leave".into(),
                    problem: format!(
                        "{broken} rows would refer to deleted ones; nothing was deleted"
                    ),
                }),
            }
        })?;
        let compaction = self.compact(&mut cleaner, true);
        drop(cleaner);
        let snapshot = self.snapshot()?;
        let verified =
            verify::examine(snapshot.connection(), schema, self.path(), Depth::Structure)?;
        Ok(PruneReport {
            plan,
            backup,
            deleted,
            compaction,
            verified,
        })
    }

    /// Cuts the log and, when much is free or `in_any_case`, writes the file anew. The deletions are durable by now:
    /// what goes wrong here is told, and is nothing to fail for.
    fn compact(&self, cleaner: &mut Cleaner, in_any_case: bool) -> Compaction {
        let mut compaction = Compaction {
            bytes_before: self.bytes(),
            bytes_after: 0,
            log_emptied: false,
            vacuumed: false,
            problem: None,
        };
        let mut work = || -> Result<(), StateError> {
            compaction.log_emptied = cleaner.empty_log()?;
            let (pages, free, page_bytes) = self.pages()?;
            let is_much =
                VACUUM_FREE_BYTES <= free * page_bytes && pages <= free * VACUUM_FREE_PART;
            if is_much || in_any_case {
                // The new file is first written beside the old one, and then through the log.
                files::check_room(
                    files::directory_of(self.path()),
                    pages.saturating_sub(free) * page_bytes,
                )?;
                cleaner.vacuum()?;
                compaction.vacuumed = true;
                compaction.log_emptied = cleaner.empty_log()?;
            }
            Ok(())
        };
        let ended = work();
        if let Err(error) = ended {
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            compaction.problem = Some(match cause {
                Some(cause) => format!("{error}: {cause}"),
                None => error.to_string(),
            });
        }
        compaction.bytes_after = self.bytes();
        compaction
    }

    fn bytes(&self) -> u64 {
        let log = crate::database::beside(self.path(), "-wal");
        files::size_bytes(self.path()) + files::size_bytes(&log)
    }

    /// All pages, free pages, and the bytes of one.
    fn pages(&self) -> Result<(u64, u64, u64), StateError> {
        let snapshot = self.snapshot()?;
        let number = |sql: &str| -> Result<u64, StateError> {
            let number: i64 = snapshot.connection().query_row(sql, [], |row| row.get(0))?;
            Ok(number.unsigned_abs())
        };
        Ok((
            number("PRAGMA page_count")?,
            number("PRAGMA freelist_count")?,
            number("PRAGMA page_size")?,
        ))
    }
}

/// The path of a backup that a prune may make.
fn new_backup(path: &Path) -> Result<PathBuf, StateError> {
    let problem = if path.is_relative() {
        "it is relative; name it from the root, so that nobody looks for it in another directory"
    } else if path.symlink_metadata().is_ok() {
        "it exists; name a new file, an existing one is never replaced"
    } else if !path.parent().is_some_and(Path::is_dir) {
        "its directory does not exist; make it before"
    } else {
        return Ok(path.to_owned());
    };
    Err(StateError::Input {
        what: "path of the backup",
        problem: format!("{}: {problem}", path.display()),
    })
}
