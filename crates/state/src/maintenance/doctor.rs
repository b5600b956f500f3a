//! Doctor: the status, judged. Each check says what it saw, how bad that is and what to do. It never writes and repairs nothing.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::files::{self, SIDE_SUFFIXES};
use super::status::Status;
use crate::clock::UnixMillis;
use crate::database::{Database, FileSystem, RESTORE_NOTE, beside};
use crate::error::StateError;

/// Above this a write-ahead log is not only busy but held: four times the automatic checkpoint of 4000 pages of 4 KiB.
const WAL_LARGE_BYTES: u64 = 64 * 1024 * 1024;
/// How far stored times may lie ahead of this machine's clock, in milliseconds.
const SKEW_MS: i64 = 60_000;
/// How old a snapshot may be, in milliseconds.
const SNAPSHOT_OLD_MS: u64 = 60_000;
/// Below this free pages are no matter.
const FREE_LARGE_BYTES: u64 = 16 * 1024 * 1024;

/// The status and what it means.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DoctorReport {
    /// What the store is.
    pub status: Status,
    /// Every check, also those that found nothing.
    pub checks: Vec<DoctorCheck>,
}

impl DoctorReport {
    /// The worst level of all checks.
    pub fn worst(&self) -> Level {
        self.checks
            .iter()
            .map(|check| check.level)
            .max()
            .unwrap_or(Level::Fine)
    }
}

/// What one check saw.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DoctorCheck {
    /// The check.
    pub name: &'static str,
    /// How bad it is.
    pub level: Level,
    /// What was seen.
    pub detail: String,
    /// What to do; null when there is nothing to do.
    pub advice: Option<String>,
}

/// How bad something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Level {
    /// As it should be.
    Fine,
    /// Worth a look; nothing is lost.
    Notice,
    /// Something is wrong.
    Problem,
}

impl Database {
    /// Judges the store: engine, file system, modes, names, log, room, clock, waiting work and rules.
    ///
    /// # Errors
    ///
    /// As [`Database::status`].
    pub fn doctor(&self) -> Result<DoctorReport, StateError> {
        let status = self.status()?;
        let newest = self.snapshot()?.connection().query_row(
            "SELECT max(newest) FROM (
                 SELECT max(recorded_at) AS newest FROM
                     (SELECT recorded_at FROM events ORDER BY event_seq DESC LIMIT 100)
                 UNION ALL SELECT max(heartbeat_at) FROM leases)",
            [],
            |row| row.get::<_, Option<UnixMillis>>(0),
        )?;
        let checks = vec![
            engine(&status),
            file_system(&status),
            modes(&status.path),
            hard_links(&status.path),
            old_state(&status.path, self.schema().identity().old_state),
            leftovers(&status.path),
            write_ahead_log(&status),
            room(&status),
            free_pages(&status),
            clock(newest, status.now),
            effects(&status),
            leases(&status),
            rules(&status),
        ];
        Ok(DoctorReport { status, checks })
    }
}

fn fine(name: &'static str, detail: impl Into<String>) -> DoctorCheck {
    DoctorCheck {
        name,
        level: Level::Fine,
        detail: detail.into(),
        advice: None,
    }
}

fn notice(name: &'static str, detail: impl Into<String>, advice: &str) -> DoctorCheck {
    DoctorCheck {
        name,
        level: Level::Notice,
        detail: detail.into(),
        advice: Some(advice.to_owned()),
    }
}

fn problem(
    name: &'static str,
    detail: impl Into<String>,
    advice: impl Into<String>,
) -> DoctorCheck {
    DoctorCheck {
        name,
        level: Level::Problem,
        detail: detail.into(),
        advice: Some(advice.into()),
    }
}

fn engine(status: &Status) -> DoctorCheck {
    // 3.51.3 is the first that can't lose committed writes when a checkpoint races a reset of the log.
    let detail = format!("SQLite {}", status.engine.sqlite_version);
    if 3_051_003 <= rusqlite::version_number() {
        fine("engine", detail)
    } else {
        problem(
            "engine",
            detail,
            "Build with the bundled SQLite, 3.51.3 or newer.",
        )
    }
}

fn file_system(status: &Status) -> DoctorCheck {
    let name = status.file_system.as_str();
    if FileSystem::of(&status.path).is_ok_and(|found| found.is_known_local()) {
        fine("fileSystem", name)
    } else {
        notice(
            "fileSystem",
            name,
            "It is not known whether this file system gives the locks and the shared memory that WAL needs. Keep the store on a local disk.",
        )
    }
}

fn modes(path: &Path) -> DoctorCheck {
    let mut wrong = Vec::new();
    let mut look = |file: PathBuf, wanted: u32| {
        if let Ok(metadata) = std::fs::metadata(&file)
            && metadata.mode() & 0o077 != 0
        {
            wrong.push(format!("chmod {wanted:o} {}", file.display()));
        }
    };
    look(files::directory_of(path).to_owned(), 0o700);
    look(path.to_owned(), 0o600);
    for suffix in SIDE_SUFFIXES {
        look(beside(path, suffix), 0o600);
    }
    if wrong.is_empty() {
        fine("modes", "nobody else may read or write the store")
    } else {
        problem("modes", "others may get at the store", wrong.join("; "))
    }
}

fn hard_links(path: &Path) -> DoctorCheck {
    match std::fs::metadata(path).map(|metadata| metadata.nlink()) {
        Ok(1) => fine("hardLinks", "the file has one name"),
        Ok(links) => problem(
            "hardLinks",
            format!("the file has {links} names"),
            "Keep one: under two names SQLite makes two logs, and each lacks the other's writes.",
        ),
        Err(error) => problem("hardLinks", error.to_string(), "Open the store again."),
    }
}

fn old_state(path: &Path, names: &[&str]) -> DoctorCheck {
    let directory = files::directory_of(path);
    let found: Vec<_> = names
        .iter()
        .map(|name| directory.join(name))
        .filter(|old| old.exists())
        .map(|old| old.display().to_string())
        .collect();
    if found.is_empty() {
        fine("oldState", "no state of an older program beside the store")
    } else {
        notice(
            "oldState",
            format!("not used: {}", found.join(", ")),
            "Only the database is live. Move the old paths away when they are no longer wanted.",
        )
    }
}

fn leftovers(path: &Path) -> DoctorCheck {
    let mut found: Vec<_> = files::leftovers(path);
    found.extend(files::set_aside(path));
    found.extend(Some(beside(path, RESTORE_NOTE)).filter(|note| note.exists()));
    if found.is_empty() {
        return fine("leftovers", "nothing is left of copies or restores");
    }
    let names: Vec<_> = found
        .iter()
        .map(|leftover| leftover.display().to_string())
        .collect();
    notice(
        "leftovers",
        names.join(", "),
        "Unfinished copies are swept by the next copy. Stores that a restore set aside stay until you remove them.",
    )
}

fn write_ahead_log(status: &Status) -> DoctorCheck {
    let log = status.write_ahead_log;
    let detail = format!(
        "{} bytes, {} of {} frames in the database file; oldest snapshot of this process: {}",
        status.sizes.wal_bytes,
        log.checkpointed_frames,
        log.frames,
        status
            .readers
            .oldest_age_ms
            .map_or_else(|| "none".to_owned(), |age| format!("{age} ms")),
    );
    let is_old = status
        .readers
        .oldest_age_ms
        .is_some_and(|age| SNAPSHOT_OLD_MS < age);
    if WAL_LARGE_BYTES < status.sizes.wal_bytes || is_old {
        notice(
            "writeAheadLog",
            detail,
            "A reader keeps an old snapshot open, here or in another process. Let it end; the log shrinks with the next commits.",
        )
    } else {
        fine("writeAheadLog", detail)
    }
}

fn room(status: &Status) -> DoctorCheck {
    let Some(free) = status.sizes.volume_free_bytes else {
        return notice(
            "room",
            "unknown",
            "The system does not say how much is free.",
        );
    };
    let needed = status.sizes.database_bytes.saturating_mul(2) + WAL_LARGE_BYTES;
    let detail = format!("{free} bytes are free on the volume");
    if free < needed {
        let advice =
            format!("Make room: a backup needs {needed} bytes, and a full disk stops every write.");
        problem("room", detail, advice)
    } else {
        fine("room", detail)
    }
}

fn free_pages(status: &Status) -> DoctorCheck {
    let pages = status.pages;
    let detail = format!("{} of {} pages are free", pages.free, pages.count);
    if FREE_LARGE_BYTES < pages.free * pages.page_bytes && pages.count < pages.free * 2 {
        notice(
            "freePages",
            detail,
            "They are used before the file grows. A backup and a restore keep them too; only a compaction gives them back.",
        )
    } else {
        fine("freePages", detail)
    }
}

fn clock(newest: Option<UnixMillis>, now: UnixMillis) -> DoctorCheck {
    let ahead = newest.map_or(0, |newest| newest.since(now));
    if SKEW_MS < ahead {
        problem(
            "clock",
            format!("the newest stored time lies {ahead} ms ahead of this machine's clock"),
            "Set the clock. Until then leases end late and deadlines come late; revisions and generations stay right.",
        )
    } else {
        fine("clock", "no stored time lies ahead of this machine's clock")
    }
}

fn effects(status: &Status) -> DoctorCheck {
    let of = |wanted: &str| -> u64 {
        status
            .unsettled_effects
            .iter()
            .filter(|effects| effects.status == wanted)
            .map(|effects| effects.count)
            .sum()
    };
    let total: u64 = status
        .unsettled_effects
        .iter()
        .map(|effects| effects.count)
        .sum();
    let ambiguous = of("ambiguous");
    let detail = format!("{total} not settled, {ambiguous} of them ambiguous");
    if 0 < ambiguous {
        notice(
            "effects",
            detail,
            "Nobody can know whether the ambiguous ones happened. Look in the other system and resolve each.",
        )
    } else {
        fine("effects", detail)
    }
}

fn leases(status: &Status) -> DoctorCheck {
    let detail = format!(
        "{} held, {} run out",
        status.leases.active, status.leases.expired
    );
    if 0 < status.leases.expired {
        notice(
            "leases",
            detail,
            "Their owners stopped without giving them back. Any worker takes the work over.",
        )
    } else {
        fine("leases", detail)
    }
}

fn rules(status: &Status) -> DoctorCheck {
    if status.findings.is_empty() {
        return fine("rules", "integrity, references, schema and invariants hold");
    }
    let broken: Vec<_> = status
        .findings
        .iter()
        .map(|finding| format!("{} ({})", finding.name, finding.count))
        .collect();
    problem(
        "rules",
        broken.join(", "),
        "Stop the programs that write, keep a copy of all three files, run verify, then restore a backup.",
    )
}
