//! What `stat` tells before anything is opened: links, kinds, modes, file systems, old state, a missing file.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};

use holdpoint_state::testing::counter;
use holdpoint_state::{Database, Options, Refusal};

use super::identity::write_private;
use super::{Home, options, refusal};
use crate::children::counters_schema;

#[test]
fn a_second_hard_link_is_refused() {
    let home = Home::with_store();
    fs::hard_link(home.path(), home.directory.path().join("second")).unwrap();
    assert!(matches!(home.refusal(), Refusal::HardLinks { links: 2 }));
}

#[test]
fn what_is_no_regular_file_is_refused() {
    let home = Home::empty();
    fs::create_dir(home.path()).unwrap();
    assert!(matches!(home.refusal(), Refusal::NotAFile { .. }));

    let home = Home::empty();
    rustix::fs::mkfifoat(
        rustix::fs::CWD,
        home.path(),
        rustix::fs::Mode::from_raw_mode(0o600),
    )
    .unwrap();
    assert!(matches!(home.refusal(), Refusal::NotAFile { .. }));

    let home = Home::empty();
    symlink("nowhere", home.path()).unwrap();
    assert!(matches!(home.refusal(), Refusal::NotAFile { .. }));

    let home = Home::with_store();
    let below = home.path().join("state.sqlite");
    assert!(matches!(
        refusal(Database::open(below, &counters_schema())),
        Refusal::NotAFile { .. }
    ));
}

/// All names lead to one file with one log, and the checks are those of the real place.
#[test]
fn a_symbolic_link_is_resolved() {
    let home = Home::with_store();
    let elsewhere = Home::empty();
    symlink(home.path(), elsewhere.path()).unwrap();
    let one = Database::open(home.path(), &counters_schema()).unwrap();
    let other = Database::open(elsewhere.path(), &counters_schema()).unwrap();
    assert_eq!(one.path(), other.path());
    counter::add(&one, "a", 1).unwrap();
    assert_eq!(counter::add(&other, "a", 1).unwrap().value, 2);
    assert!(elsewhere.files().is_empty());
}

#[test]
fn modes_that_let_others_in_are_refused() {
    for (name, mode) in [
        ("state.sqlite", 0o640),
        ("state.sqlite", 0o602),
        ("state.sqlite.work-lock", 0o644),
        ("", 0o770),
        ("", 0o1777),
    ] {
        let home = Home::with_store();
        let changed = home.directory.path().join(name);
        let right = fs::metadata(&changed).unwrap().permissions();
        fs::set_permissions(&changed, Permissions::from_mode(mode)).unwrap();
        let found = home.refusal();
        assert!(
            matches!(found, Refusal::Mode { actual, .. } if actual == mode),
            "{found:?}"
        );
        // The instruction is the way out.
        fs::set_permissions(&changed, right).unwrap();
        Database::open(home.path(), &counters_schema()).unwrap();
    }
}

#[test]
fn case_011_a_shared_file_system_is_refused_before_anything_is_opened() {
    for kind in ["nfs", "cifs", "9p", "virtiofs", "fuse.sshfs"] {
        let pretending = || Options {
            pretend_file_system: Some(kind),
            ..options()
        };
        let home = Home::with_store();
        let found = home.refusal_with(&counters_schema(), pretending());
        assert!(matches!(&found, Refusal::FileSystem { kind: named } if named == kind));
        // Nothing is created there either.
        let home = Home::empty();
        home.refusal_with(&counters_schema(), pretending());
        assert!(home.files().is_empty());
    }
    let unknown = Options {
        pretend_file_system: Some("fuse.novel"),
        ..options()
    };
    Database::open_with(Home::empty().path(), &counters_schema(), unknown).unwrap();
}

#[test]
fn a_missing_store_is_not_created_unasked() {
    let only_existing = || Options {
        create: false,
        ..options()
    };
    let home = Home::empty();
    let found = home.refusal_with(&counters_schema(), only_existing());
    assert!(matches!(found, Refusal::Missing));
    assert!(home.files().is_empty());

    // A directory that does not exist either.
    let below = home.directory.path().join("a/b/state.sqlite");
    let result = Database::open_with(below, &counters_schema(), only_existing());
    assert!(matches!(refusal(result), Refusal::Missing));
    assert!(!home.directory.path().join("a").exists());

    // An empty file is what a creation leaves that was killed.
    write_private(&home, b"");
    let found = home.refusal_with(&counters_schema(), only_existing());
    assert!(matches!(found, Refusal::Missing));
}

/// The log holds the store's data. A new database beside it would make SQLite throw it away.
#[test]
fn a_log_without_its_database_is_refused_and_kept() {
    let log_of = |home: &Home| home.directory.path().join("state.sqlite-wal");
    // A store that was in use when the machine died, with its last writes in the log only.
    let crashed = || {
        let live = Home::with_store();
        let db = Database::open(live.path(), &counters_schema()).unwrap();
        counter::add(&db, "a", 5).unwrap();
        let home = Home::empty();
        write_private(&home, &fs::read(live.path()).unwrap());
        fs::copy(log_of(&live), log_of(&home)).unwrap();
        assert!(0 < fs::metadata(log_of(&home)).unwrap().len());
        home
    };
    for emptied in [false, true] {
        for create in [true, false] {
            let home = crashed();
            let database = fs::read(home.path()).unwrap();
            if emptied {
                write_private(&home, b"");
            } else {
                fs::remove_file(home.path()).unwrap();
            }
            let found = home.refusal_with(
                &counters_schema(),
                Options {
                    create,
                    ..options()
                },
            );
            assert!(
                matches!(&found, Refusal::LogWithoutDatabase { log, .. }
                    if log.ends_with("state.sqlite-wal")),
                "{found:?}"
            );
            assert_eq!(home.path().exists(), emptied);
            // The instruction is the way out: nothing of the store was lost.
            write_private(&home, &database);
            let db = Database::open(home.path(), &counters_schema()).unwrap();
            let value = counter::value(&db.snapshot().unwrap(), "a").unwrap();
            assert_eq!(value, Some(5));
        }
    }
}

/// A log without a byte has nothing to lose.
#[test]
fn an_empty_log_without_its_database_is_no_store() {
    for empty_file in [false, true] {
        let home = Home::empty();
        write_private(&home, b"");
        fs::rename(home.path(), home.directory.path().join("state.sqlite-wal")).unwrap();
        if empty_file {
            write_private(&home, b"");
        }
        Database::open(home.path(), &counters_schema()).unwrap();
    }
}

#[test]
fn old_state_beside_a_missing_store_is_refused() {
    let home = Home::empty();
    let old = home.directory.path().join("runs");
    fs::create_dir(&old).unwrap();
    fs::write(old.join("run-1.json"), "{}").unwrap();
    let Refusal::OldState { paths } = home.refusal() else {
        panic!("accepted");
    };
    assert_eq!(paths, [old.canonicalize().unwrap()]);
    assert!(home.files().is_empty());
    assert_eq!(fs::read(old.join("run-1.json")).unwrap(), b"{}");

    // Beside a store that exists it is none of our business.
    let home = Home::with_store();
    fs::create_dir(home.directory.path().join("runs")).unwrap();
    Database::open(home.path(), &counters_schema()).unwrap();
}
