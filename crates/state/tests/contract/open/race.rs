//! Eight processes that open one empty path at the same instant, with several handles each: all succeed, one schema.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Barrier;

use holdpoint_state::testing::counter;
use holdpoint_state::{Database, StateError};
use rusqlite::Connection;

use super::Home;
use crate::children::counters_schema;

const PROCESSES: usize = 8;
const HANDLES: usize = 2;
const ROUNDS: usize = 20;
/// Set for a process that is a member of a crew; its value is the argument.
const MEMBER: &str = "HOLDPOINT_TEST_CREW";

#[test]
fn eight_processes_create_one_store() {
    let mut crew = Crew::start("open::race::child_that_opens", PROCESSES, None);
    for _ in 0..ROUNDS {
        let home = Home::empty();
        let path = home.directory.path().join("a/b/state.sqlite");
        crew.round(&path);
        assert_one_store(&path, i64::try_from(PROCESSES * HANDLES).unwrap());
    }
    crew.end();
}

#[test]
fn child_that_opens() {
    work(|path, _| {
        let barrier = Barrier::new(HANDLES);
        std::thread::scope(|scope| {
            for _ in 0..HANDLES {
                scope.spawn(|| {
                    barrier.wait();
                    open_and_count(path);
                });
            }
        });
    });
}

/// Opens the store and adds one to the counter that everybody creates.
pub(super) fn open_and_count(path: &Path) {
    let db = Database::open(path, &counters_schema()).unwrap();
    counter::create(&db, "a").unwrap();
    counter::add(&db, "a", 1).unwrap();
    db.close();
}

/// One schema, one `schema_meta` row, every count there, no damage, no leftover of the creation.
pub(super) fn assert_one_store(path: &Path, counted: i64) {
    let db = Database::open(path, &counters_schema()).unwrap();
    let value = counter::value(&db.snapshot().unwrap(), "a").unwrap();
    assert_eq!(value, Some(counted));
    db.close();
    let alone = Home::with_store();
    assert_eq!(schema_changes(path), schema_changes(&alone.path()));
    for entry in std::fs::read_dir(path.parent().unwrap()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(!name.starts_with('.'), "left behind: {name}");
    }
}

/// How often the schema was changed since the file was empty.
fn schema_changes(path: &Path) -> i64 {
    Connection::open(path)
        .unwrap()
        .pragma_query_value(None, "schema_version", |row| row.get(0))
        .unwrap()
}

/// Processes that run one test of this binary and do a piece of work whenever they are told a path, all at once.
pub(super) struct Crew {
    members: Vec<Member>,
}

struct Member {
    process: Child,
    tell: ChildStdin,
    hear: BufReader<ChildStdout>,
}

impl Crew {
    pub(super) fn start(test: &str, count: usize, argument: Option<&str>) -> Self {
        Self::start_by(test, count, argument, |_| {})
    }

    /// As [`Crew::start`], with a last change to each process's command.
    pub(super) fn start_by(
        test: &str,
        count: usize,
        argument: Option<&str>,
        change: impl Fn(&mut Command),
    ) -> Self {
        let members = (0..count).map(|_| {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command
                .args(["--exact", test, "--nocapture", "--test-threads=1"])
                .env(MEMBER, argument.unwrap_or_default())
                .stdin(Stdio::piped())
                .stdout(Stdio::piped());
            change(&mut command);
            let mut process = command.spawn().unwrap();
            Member {
                tell: process.stdin.take().unwrap(),
                hear: BufReader::new(process.stdout.take().unwrap()),
                process,
            }
        });
        let mut crew = Self {
            members: members.collect(),
        };
        crew.hear_all("ready");
        crew
    }

    /// Has every member do its work with `path` at the same time, and waits until all have done it.
    pub(super) fn round(&mut self, path: &Path) {
        for member in &mut self.members {
            writeln!(member.tell, "{}", path.display()).unwrap();
        }
        self.hear_all("done");
    }

    fn hear_all(&mut self, word: &str) {
        for member in &mut self.members {
            let mut line = String::new();
            loop {
                line.clear();
                let read = member.hear.read_line(&mut line).unwrap();
                assert!(read > 0, "a member of the crew ended before it said {word}");
                if line.trim_end().ends_with(word) {
                    break;
                }
            }
        }
    }

    /// Tells the path and kills every member (SIGKILL) as soon as `reached` says so, or after many looks.
    pub(super) fn kill_when(mut self, path: &Path, reached: impl Fn() -> bool) {
        for member in &mut self.members {
            writeln!(member.tell, "{}", path.display()).unwrap();
        }
        for _ in 0..100_000 {
            if reached() {
                break;
            }
            std::thread::yield_now();
        }
        for mut member in self.members {
            member.process.kill().unwrap();
            member.process.wait().unwrap();
        }
    }

    /// Lets the members end.
    pub(super) fn end(self) {
        for mut member in self.members {
            drop(member.tell);
            let mut rest = String::new();
            std::io::Read::read_to_string(&mut member.hear, &mut rest).unwrap();
            assert!(member.process.wait().unwrap().success(), "{rest}");
        }
    }
}

/// In a member: does `work` with each path that is told. Does nothing in an ordinary test run.
#[expect(
    clippy::print_stdout,
    reason = "the crew's members speak to the test over their output"
)]
pub(super) fn work(mut work: impl FnMut(&Path, &str)) {
    let Ok(argument) = std::env::var(MEMBER) else {
        return;
    };
    println!("ready");
    for path in std::io::stdin().lines() {
        work(Path::new(&path.unwrap()), &argument);
        println!("done");
    }
}

/// While a handle is open, nothing that this process does may drop its locks: another process could then take the log away.
#[test]
fn case_008_other_opens_do_not_drop_the_locks_of_a_handle() {
    let home = Home::with_store();
    let db = Database::open(home.path(), &counters_schema()).unwrap();
    counter::add(&db, "a", 1).unwrap();
    // Everything that looks at the file: a second handle, refused ones, status by path.
    Database::open(home.path(), &counters_schema())
        .unwrap()
        .close();
    let link = home.directory.path().join("second");
    std::fs::hard_link(home.path(), &link).unwrap();
    let refused = Database::open(home.path(), &counters_schema());
    assert!(matches!(refused, Err(StateError::Refused { .. })));
    std::fs::remove_file(link).unwrap();

    let mut crew = Crew::start("open::race::child_that_takes_the_log", 1, None);
    crew.round(&home.path());
    crew.end();
    counter::add(&db, "a", 1).unwrap();
}

#[test]
fn child_that_takes_the_log() {
    work(|path, _| {
        let connection = Connection::open(path).unwrap();
        // Leaving write-ahead mode needs the file alone. With the handle's locks in place it can't have it.
        let left = connection.query_row("PRAGMA journal_mode = DELETE", [], |row| {
            row.get::<_, String>(0)
        });
        assert!(!matches!(left.as_deref(), Ok("delete")), "{left:?}");
    });
}
