//! Creation: the whole schema or none, private files whatever the umask, and one schema however many create it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Barrier};

use holdpoint_state::clock::ManualClock;
use holdpoint_state::database::product_path_in;
use holdpoint_state::testing::{START, counter};
use holdpoint_state::{Database, Options, Refusal};
use rusqlite::Connection;

use super::identity::write_private;
use super::race::{self, Crew};
use super::{Home, options, refusal};
use crate::children::counters_schema;

#[test]
fn a_new_store_says_whose_it_is() {
    let home = Home::empty();
    let with_clock = Options {
        clock: Arc::new(ManualClock::at(START)),
        ..options()
    };
    Database::open_with(home.path(), &counters_schema(), with_clock)
        .unwrap()
        .close();
    let connection = Connection::open(home.path()).unwrap();
    let number = |pragma| -> i64 {
        connection
            .pragma_query_value(None, pragma, |row| row.get(0))
            .unwrap()
    };
    assert_eq!(number("application_id"), 0x5049_5746);
    assert_eq!(number("user_version"), 1);
    let row: (i64, String, i64, Vec<u8>, String, i64, i64) = connection
        .query_row("SELECT * FROM schema_meta", [], |row| {
            Ok((
                row.get(0)?,
                row.get(1)?,
                row.get(2)?,
                row.get(3)?,
                row.get(4)?,
                row.get(5)?,
                row.get(6)?,
            ))
        })
        .unwrap();
    assert_eq!(
        row,
        (
            1,
            "pi-workflows-state".to_owned(),
            1,
            counters_schema().digest().0.to_vec(),
            env!("CARGO_PKG_VERSION").to_owned(),
            START,
            START
        )
    );
}

/// What a creation leaves behind that was killed: nothing, an empty file, or a file with a header and no schema.
#[test]
fn a_creation_that_was_killed_is_begun_anew() {
    for prepare in [
        "",
        "PRAGMA journal_mode = WAL",
        "CREATE TABLE a (b); DROP TABLE a",
    ] {
        let home = Home::empty();
        write_private(&home, b"");
        home.tamper(prepare);
        let db = Database::open(home.path(), &counters_schema()).unwrap();
        counter::create(&db, "a").unwrap();
    }
}

/// Killed at each step of the way: the next one to open finds nothing, an empty file or the whole schema.
#[test]
fn a_creator_may_be_killed_at_any_step() {
    let size = |path: &Path| fs::metadata(path).map_or(0, |found| found.len());
    for step in 0..12 {
        let home = Home::empty();
        let path = home.directory.path().join("new/state.sqlite");
        let log = path_beside(&path, "-wal");
        let crew = Crew::start("open::race::child_that_opens", 1, None);
        crew.kill_when(&path, || match step % 6 {
            0 => path.parent().unwrap().exists(),
            1 => path.exists(),
            2 => 0 < size(&path),
            3 => log.exists(),
            4 => 0 < size(&log),
            _ => true,
        });
        let before = Database::open_with(
            &path,
            &counters_schema(),
            Options {
                create: false,
                ..options()
            },
        );
        if before.is_err() {
            assert!(matches!(refusal(before), Refusal::Missing));
        }
        let db = Database::open(&path, &counters_schema()).unwrap();
        counter::create(&db, "b").unwrap();
    }
}

/// The log may be lost with the machine. Without it the file must still be an empty store of this schema, and not nothing.
#[test]
fn a_new_store_is_whole_without_its_log() {
    let home = Home::empty();
    let db = Database::open(home.path(), &counters_schema()).unwrap();
    // What a crash right after the creation leaves, less the log. Reading the file drops this handle's locks, and nobody else is here.
    let copied = Home::empty();
    write_private(&copied, &fs::read(home.path()).unwrap());
    let log = fs::metadata(path_beside(&home.path(), "-wal")).unwrap();
    assert_eq!(log.len(), 0);
    let only_existing = Options {
        create: false,
        ..options()
    };
    let alone = Database::open_with(copied.path(), &counters_schema(), only_existing).unwrap();
    assert_eq!(
        counter::value(&alone.snapshot().unwrap(), "a").unwrap(),
        None
    );
    counter::create(&alone, "a").unwrap();
    drop(db);
}

#[test]
fn many_handles_of_one_process_create_one_store() {
    for _ in 0..10 {
        let home = Home::empty();
        let path = home.directory.path().join("new/state.sqlite");
        let barrier = Barrier::new(6);
        std::thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| {
                    barrier.wait();
                    race::open_and_count(&path);
                });
            }
        });
        race::assert_one_store(&path, 6);
    }
}

#[test]
fn modes_do_not_depend_on_the_umask() {
    for umask in ["0", "22", "277", "777"] {
        let home = Home::empty();
        let path = product_path_in(home.directory.path());
        let mut crew = Crew::start("open::create::child_with_umask", 1, Some(umask));
        crew.round(&path);
        for directory in path.ancestors().skip(1).take(3) {
            assert_eq!(mode(directory), 0o700, "{}", directory.display());
        }
        let found = modes(path.parent().unwrap());
        assert!(
            found
                .iter()
                .any(|(path, _)| path == &path_beside(&path_of(&found), "-wal"))
        );
        for (path, mode) in found {
            assert_eq!(mode, 0o600, "{} under umask {umask}", path.display());
        }
        crew.end();
    }
}

#[test]
fn child_with_umask() {
    race::work(|path, umask| {
        let mask = u32::from_str_radix(umask, 8).unwrap();
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(mask));
        let db = Database::open(path, &counters_schema()).unwrap();
        counter::create(&db, "a").unwrap();
        drop(db.snapshot().unwrap());
        // The side files must still be there when the parent looks.
        std::mem::forget(db);
    });
}

fn path_of(found: &[(PathBuf, u32)]) -> PathBuf {
    let database = found
        .iter()
        .find(|(path, _)| path.ends_with("state.sqlite"));
    database.unwrap().0.clone()
}

fn path_beside(path: &Path, suffix: &str) -> PathBuf {
    let mut beside = path.as_os_str().to_owned();
    beside.push(suffix);
    beside.into()
}

fn modes(directory: &Path) -> Vec<(PathBuf, u32)> {
    fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.clone(), mode(&path)))
        .collect()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}
