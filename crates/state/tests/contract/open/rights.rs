//! A process without the rights that write-ahead mode needs is told so, not "unable to open database file".

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;

use holdpoint_state::{Database, Refusal};

use super::race::{Crew, work};
use super::{Home, options, refusal};
use crate::children::counters_schema;

/// A user who is nobody in particular; the rights of root can't be taken away.
const NOBODY: u32 = 65_534;

#[test]
fn case_014_missing_rights_are_named() {
    for (name, mode) in [("", 0o500), ("state.sqlite", 0o400)] {
        let home = Home::with_store();
        let is_root = rustix::process::geteuid().is_root();
        if is_root {
            for entry in fs::read_dir(home.directory.path()).unwrap() {
                chown(entry.unwrap().path(), Some(NOBODY), None).unwrap();
            }
            chown(home.directory.path(), Some(NOBODY), None).unwrap();
        }
        let changed = home.directory.path().join(name);
        fs::set_permissions(&changed, Permissions::from_mode(mode)).unwrap();
        let before = home.files();
        let mut crew = Crew::start_by("open::rights::child_without_rights", 1, None, |command| {
            if is_root {
                command.uid(NOBODY);
            }
        });
        crew.round(&home.path());
        crew.end();
        assert!(before == home.files());
        fs::set_permissions(&changed, Permissions::from_mode(0o700)).unwrap();
    }
}

#[test]
fn child_without_rights() {
    work(|path, _| {
        let found = refusal(Database::open_with(path, &counters_schema(), options()));
        assert!(matches!(found, Refusal::Access { .. }), "{found:?}");
    });
}
