//! No read changes a byte: every view, every look-after that only looks, and every command that only shows.
//!
//! What is compared are the bytes of the database and of its log, and SQLite's own count of changes. The index of the log
//! (`-shm`) is left out: readers keep their marks in it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use holdpoint_state::clock::{Clock, ManualClock};
use holdpoint_state::database::product_path_in;
use holdpoint_state::effects::{self, EffectFilter, EffectState};
use holdpoint_state::maintenance::verify_file;
use holdpoint_state::{Database, Digest, Options, Resource};
use holdpoint_workflows::Workflows;
use holdpoint_workflows::model::{self, RunStatus};
use holdpoint_workflows::views::Filter;
use tempfile::TempDir;

use crate::rows;

/// Commands that only show. Each is run with every set of arguments, and again with `--json`.
const READS: [&str; 26] = [
    "agents",
    "channels list",
    "channels status",
    "channels test",
    "completions",
    "controllers explain",
    "controllers get",
    "controllers list",
    "decision show",
    "decisions",
    "effects list",
    "explain",
    "follow-ups list",
    "list",
    "messages",
    "prune",
    "schema resource",
    "schema workflow",
    "server status",
    "settings history",
    "settings show",
    "show",
    "state backup",
    "state doctor",
    "state status",
    "updates",
];

/// The one that is in `READS` by its own name: it has two forms.
const VERIFY: &str = "state verify";

/// It shows what `decision show` does, once somebody resolved the decision.
const WAIT: &str = "decision wait";

/// Commands that change something, so that this test has nothing to say of them.
const WRITES: [&str; 28] = [
    "answer",
    "cancel",
    "channel-adapter",
    "channels dev-server",
    "channels recover",
    "channels run",
    "channels setup",
    "controllers apply",
    "controllers delete",
    "controllers force-delete",
    "controllers force-finalizer",
    "controllers reconcile",
    "decision cancel",
    "effects resolve",
    "follow-ups queue",
    "follow-ups remove",
    "pause",
    "restart",
    "resume",
    "run",
    "server run",
    "server start",
    "server stop",
    "settings patch",
    "state restore",
    "submit",
    "work",
    "worker",
];

/// A home with a store that has rows in every table.
struct Home {
    directory: TempDir,
    outside: TempDir,
    clock: ManualClock,
}

/// What must not change.
#[derive(PartialEq, Eq)]
struct Bytes {
    files: Vec<(String, Option<Vec<u8>>)>,
    names: BTreeSet<String>,
    data_version: Option<i64>,
}

impl Home {
    fn new() -> Self {
        let home = Self {
            directory: TempDir::new().unwrap(),
            outside: TempDir::new().unwrap(),
            clock: ManualClock::at(holdpoint_state::testing::START),
        };
        let db = home.open();
        rows::fill(&db, &home.clock, home.outside.path());
        assert_eq!(rows::empty_tables(&db), [""; 0]);
        db.close();
        home
    }

    fn store(&self) -> PathBuf {
        product_path_in(self.directory.path())
    }

    fn open(&self) -> Database {
        let clock: Arc<dyn Clock> = Arc::new(self.clock.clone());
        let options = Options {
            clock,
            ..Options::default()
        };
        Database::open_with(self.store(), &holdpoint_server::schema().unwrap(), options).unwrap()
    }

    /// The bytes of the store now. `watcher` is asked for nothing else, so that it always has the same connection.
    fn bytes(&self, watcher: Option<&Database>) -> Bytes {
        let store = self.store();
        let files = ["", "-wal"].map(|suffix| {
            let mut path = store.clone().into_os_string();
            path.push(suffix);
            let content = contents(Path::new(&path));
            // A log that is empty and one that is not there say the same.
            (
                suffix.to_owned(),
                content.filter(|content| !content.is_empty()),
            )
        });
        let names = std::fs::read_dir(store.parent().unwrap())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .filter(|name| !name.ends_with("-wal") && !name.ends_with("-shm"))
            .collect();
        let data_version = watcher.map(|watcher| {
            let snapshot = watcher.snapshot().unwrap();
            snapshot
                .sql()
                .prepare_cached("SELECT data_version FROM pragma_data_version")
                .unwrap()
                .query_row([], |row| row.get(0))
                .unwrap()
        });
        Bytes {
            files: files.to_vec(),
            names,
            data_version,
        }
    }

    /// Runs the binary, and returns what it printed.
    fn run(&self, args: &[String]) -> String {
        let output = Command::new(env!("CARGO_BIN_EXE_holdpoint"))
            .current_dir(self.outside.path())
            .env("HOLDPOINT_CONFIG_DIR", self.outside.path().join("config"))
            .arg("--home")
            .arg(self.directory.path())
            .args(args)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        let stdout = String::from_utf8(output.stdout).unwrap();
        // Nothing listens, which is an answer too, and an error.
        if args.iter().any(|word| word == "server") {
            assert_eq!(output.status.code(), Some(7), "{args:?}: {stderr}{stdout}");
            return stdout;
        }
        // The doctor finds the effect that nobody knows of; everything else succeeds.
        let may_warn = args.iter().any(|word| word == "doctor");
        assert!(
            output.status.success() || (may_warn && output.status.code().is_some()),
            "{args:?}: {stderr}{stdout}"
        );
        assert!(!stdout.trim().is_empty(), "{args:?}: {stderr}");
        if args.iter().any(|word| word == "--json") {
            assert!(rows::is_json(&stdout), "{args:?}: {stdout}");
        }
        stdout
    }
}

/// The bytes of a file, read by another process: to close a file of the store here would drop the locks of this one.
fn contents(path: &Path) -> Option<Vec<u8>> {
    let output = Command::new("cat").arg(path).output().unwrap();
    output.status.success().then_some(output.stdout)
}

#[track_caller]
fn unchanged(before: &Bytes, after: &Bytes, what: &str) {
    for ((name, was), (_, is)) in before.files.iter().zip(&after.files) {
        assert!(was == is, "{what} changed the bytes of state.sqlite{name}");
    }
    assert_eq!(before.names, after.names, "{what} left other files behind");
    assert_eq!(
        before.data_version, after.data_version,
        "{what} committed something"
    );
}

#[test]
fn no_function_that_reads_changes_a_byte() {
    let home = Home::new();
    let (db, watcher) = (home.open(), home.open());
    let workflows = Workflows::new(db.clone());
    let runs = rows::runs(&workflows);
    assert!(5 < runs.len());
    let before = home.bytes(Some(&watcher));
    let unchanged = |what: &str| unchanged(&before, &home.bytes(Some(&watcher)), what);

    for run in &runs {
        workflows.view(run).unwrap();
        workflows.explain(run).unwrap();
        workflows.launch_options(run).unwrap();
        workflows.wait(run, Duration::ZERO).unwrap();
    }
    unchanged("a view of runs");
    for status in [None, Some(RunStatus::Waiting), Some(RunStatus::Cancelled)] {
        let filter = Filter {
            status,
            limit: 2,
            ..Filter::default()
        };
        workflows.list(&filter).unwrap();
    }
    unchanged("the list of runs");

    let snapshot = db.snapshot().unwrap();
    let resources: Vec<Resource> = runs.iter().map(model::resource).collect();
    for resource in &resources {
        assert!(snapshot.resource(resource).unwrap().is_some());
        assert!(!snapshot.events_of(resource, 0, 1_000).unwrap().is_empty());
    }
    assert!(!snapshot.events_after(0, 10_000).unwrap().is_empty());
    assert!(0 < snapshot.last_event_seq().unwrap());
    unchanged("reading resources, leases and events");

    let list = effects::list(&snapshot, &EffectFilter::default(), 100).unwrap();
    assert!(
        list.iter()
            .any(|effect| effect.state == EffectState::Ambiguous)
    );
    for effect in &list {
        effects::fetch(&snapshot, &effect.effect_id).unwrap();
        effects::content(&snapshot, &effect.effect_id).unwrap();
    }
    for resource in &resources {
        effects::of_source(&snapshot, resource).unwrap();
    }
    effects::counts(&snapshot).unwrap();
    unchanged("reading effects");

    for (digest, media_type) in blobs(&snapshot) {
        let whole = snapshot.blob(digest, &media_type).unwrap();
        assert_eq!(
            snapshot
                .blob_part(digest, &media_type, 0)
                .unwrap()
                .total_bytes,
            u64::try_from(whole.len()).unwrap()
        );
        if media_type == "application/json" {
            snapshot.blob_json::<serde_json::Value>(digest).unwrap();
        }
    }
    unchanged("reading blobs");
    drop(snapshot);

    managed_resources(&home, &db);
    unchanged("reading managed resources");

    let mut follower = db.follow_events(0).unwrap();
    while !follower.next_batch(0).unwrap().is_empty() {}
    unchanged("following events");

    db.status().unwrap();
    unchanged("status");
    db.doctor().unwrap();
    unchanged("doctor");
    assert!(db.verify().unwrap().findings.is_empty());
    unchanged("verify");
    let target = home.outside.path().join("backup.sqlite");
    db.backup(&target).unwrap();
    unchanged("backup");
    verify_file(&target, db.schema()).unwrap();
    unchanged("verify of a backup");

    drop(follower);
    db.close();
    unchanged("closing a handle that only read");
    // The comparison itself finds a change: one more command, through the very same eyes.
    let other = Workflows::new(home.open());
    other
        .cancel(&holdpoint_workflows::commands::Control::of(&runs[1]))
        .unwrap();
    assert!(home.bytes(Some(&watcher)) != before);
}

/// Reads everything that there is to read of managed resources.
fn managed_resources(home: &Home, db: &Database) {
    use holdpoint_controllers::model::Target;
    use holdpoint_controllers::views::{self, DueQuery};
    let project = home.outside.path().canonicalize().unwrap();
    let [controller, key] = rows::controllers::NAMES;
    let target = Target::parse(project.to_str().unwrap(), controller, key).unwrap();
    let (snapshot, now) = (db.snapshot().unwrap(), db.clock().now());
    let known = [target.controller.clone()];
    let uid = views::uid(&snapshot, &target).unwrap().unwrap();
    assert!(views::resource(&snapshot, &target).unwrap().is_some());
    assert!(views::queue(&snapshot, &uid).unwrap().is_some());
    assert!(!views::children(&snapshot, &uid).unwrap().is_empty());
    assert!(!views::events(&snapshot, &uid, 100).unwrap().is_empty());
    views::effects(&snapshot, &uid).unwrap();
    let filter = views::Filter::of(&target.project);
    assert!(!views::list(&snapshot, &filter, now).unwrap().is_empty());
    for known in [&known[..], &[]] {
        assert!(
            views::explain(&snapshot, &target, known, now)
                .unwrap()
                .is_some()
        );
    }
    for now in [now, now.plus(60_000)] {
        let query = DueQuery {
            project: &target.project,
            controllers: &known,
            now,
            limit: 10,
        };
        views::due(&snapshot, &query).unwrap();
    }
}

fn blobs(snapshot: &holdpoint_state::Snapshot<'_>) -> Vec<(Digest, String)> {
    let sql = snapshot.sql();
    let mut statement = sql
        .prepare_cached("SELECT blob_hash, media_type FROM blobs")
        .unwrap();
    let blobs = statement
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap()
        .collect::<Result<Vec<_>, _>>()
        .unwrap();
    assert!(1 < blobs.len());
    blobs
}

/// Every command that only shows, with its arguments.
fn lines(home: &Home, runs: &[String]) -> Vec<Vec<String>> {
    let mut lines: Vec<Vec<String>> = [
        "--version",
        "agents",
        "channels list",
        "channels status",
        "channels test",
        "decisions",
        "messages --session writer",
        "list",
        "list --status waiting",
        "list --limit 1",
        "prune",
        "prune --before 2100-01-01",
        "prune --older-than 0",
        "effects list",
        "effects list --all",
        "effects list --state ambiguous",
        "state status",
        "state doctor",
        "state verify",
        "schema resource",
        "schema workflow",
        "completions bash",
        "controllers list",
        "controllers list guarded",
        "controllers list nobody",
        "server status",
    ]
    .map(|line| line.split(' ').map(str::to_owned).collect())
    .to_vec();
    for verb in ["get", "explain"] {
        let words = ["controllers", verb]
            .into_iter()
            .chain(rows::controllers::NAMES);
        lines.push(words.map(str::to_owned).collect());
    }
    for run in runs {
        for verb in ["show", "explain", "messages", "updates"] {
            lines.push(vec![verb.to_owned(), run.clone()]);
        }
        for verb in [
            ["follow-ups", "list"],
            ["settings", "show"],
            ["settings", "history"],
        ] {
            if verb[0] == "settings" && !run.contains("-writing-") {
                // It has none, which is an answer too, and an error.
                continue;
            }
            let words = verb.into_iter().chain([run.as_str()]);
            lines.push(words.map(str::to_owned).collect());
        }
        lines.push(["decisions", "--run", run].map(str::to_owned).to_vec());
        if run.contains("-deciding-") {
            lines.push(["decision", "show", run].map(str::to_owned).to_vec());
        }
        lines.push(
            ["effects", "list", "--run", run]
                .map(str::to_owned)
                .to_vec(),
        );
    }
    let mut all = Vec::new();
    for (index, line) in lines.into_iter().enumerate() {
        if line[0] != "completions" {
            all.push([line.clone(), vec!["--json".to_owned()]].concat());
        }
        all.push(line);
        if index == 0 {
            for json in [None, Some("--json".to_owned())] {
                let target = home
                    .outside
                    .path()
                    .join(format!("backup-{}.sqlite", json.is_some()));
                let target = target.to_str().unwrap().to_owned();
                for verb in ["backup", "verify"] {
                    let mut line = vec!["state".to_owned(), verb.to_owned(), target.clone()];
                    line.extend(json.clone());
                    all.push(line);
                }
            }
        }
    }
    all
}

#[test]
fn no_command_that_shows_changes_a_byte() {
    let home = Home::new();
    let db = home.open();
    let runs: Vec<String> = rows::runs(&Workflows::new(db.clone()))
        .iter()
        .map(ToString::to_string)
        .collect();
    // Beside a program that has the store open: the log stays, so that its bytes can be compared.
    let before = home.bytes(Some(&db));
    for line in lines(&home, &runs) {
        home.run(&line);
        unchanged(&before, &home.bytes(Some(&db)), &line.join(" "));
    }
    for backup in ["backup-false.sqlite", "backup-true.sqlite"] {
        std::fs::remove_file(home.outside.path().join(backup)).unwrap();
    }
    db.close();
    // And alone: whoever closes the store last copies its log into the file, which then is empty already.
    let before = home.bytes(None);
    assert!(before.files[1].1.is_none());
    for line in lines(&home, &runs) {
        home.run(&line);
        unchanged(&before, &home.bytes(None), &line.join(" "));
    }
}

#[test]
fn every_command_is_known_to_read_or_to_write() {
    fn leaves(command: &clap::Command, path: &str, found: &mut BTreeSet<String>) {
        for inner in command
            .get_subcommands()
            .filter(|inner| inner.get_name() != "help")
        {
            let path = format!("{path} {}", inner.get_name()).trim().to_owned();
            if inner.has_subcommands() {
                leaves(inner, &path, found);
            } else {
                found.insert(path);
            }
        }
    }
    let mut found = BTreeSet::new();
    leaves(&holdpoint_server::command(), "", &mut found);
    let known: BTreeSet<String> = READS
        .iter()
        .chain(&WRITES)
        .chain([&VERIFY, &WAIT])
        .map(|verb| (*verb).to_owned())
        .collect();
    assert_eq!(
        found, known,
        "say in READS or WRITES what a new command does, and run it above when it reads"
    );
}
