//! What the process leaves behind when it ends, and what it says when it can't speak.

use serde_json::json;

use crate::support::{ASK, Done, Home};

const ONE: &str = "name: one\nstartAt: a\nnodes: { a: { compute: 1 } }\nedges: []\n";

/// Whether all is in the database file: nothing is left in the log beside it.
fn assert_closed(home: &Home, what: &str) {
    let mut log = home.store().into_os_string();
    log.push("-wal");
    let size = std::fs::metadata(log).map_or(0, |log| log.len());
    assert_eq!(size, 0, "{what}: the store was not closed");
}

#[test]
fn the_store_is_closed_when_a_command_ends() {
    let home = Home::with("one.workflow.yaml", ONE);
    home.write("ask.workflow.yaml", ASK);
    let fine = [
        &["run", "one.workflow.yaml"] as &[&str],
        &["run", "one.workflow.yaml", "--detach"],
        &["list"],
        &["work", "--until-idle"],
        &["state", "status"],
    ];
    for args in fine {
        home.ok(args);
        assert_closed(&home, &args.join(" "));
    }
    let run = home.asking("ask.workflow.yaml");
    assert_closed(&home, "a run that waits");
    assert_eq!(home.json(&["answer", &run, "1", "--expect", "99"]).0, 4);
    assert_closed(&home, "an error");
}

#[test]
fn a_key_has_characters_but_not_too_many() {
    let home = Home::with("one.workflow.yaml", ONE);
    for key in ["", &"k".repeat(513)] {
        let (status, error) = home.json(&["run", "one.workflow.yaml", "--key", key]);
        assert_eq!((status, &error["error"]["code"]), (2, &json!("input")));
    }
    assert!(!home.store().exists(), "nothing was made for it");
    home.ok(&["run", "one.workflow.yaml", "--key", &"é".repeat(512)]);
}

/// A full disk, as the device that plays one.
#[cfg(target_os = "linux")]
#[test]
fn output_that_could_not_be_written_is_no_success() {
    let home = Home::with("one.workflow.yaml", ONE);
    home.ok(&["run", "one.workflow.yaml"]);
    for args in [
        &["list"] as &[&str],
        &["--json", "list"],
        &["run", "one.workflow.yaml"],
        &["--help"],
        &["--version"],
        &["completions", "bash"],
        &["schema", "workflow"],
        &["--json", "run", "--help"],
    ] {
        let full = std::fs::File::options()
            .write(true)
            .open("/dev/full")
            .unwrap();
        let done: Done = home.command(args).stdout(full).output().unwrap().into();
        assert_eq!(done.status, 1, "{args:?}");
        assert_eq!(
            done.stderr,
            "error: writing to standard output failed\n  caused by: No space left on device (os error 28)\n",
            "{args:?}"
        );
    }
    // What an error says by its status is worth more.
    let full = std::fs::File::options()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let mut command = home.command(&["--json", "show", "nobody"]);
    let done: Done = command.stdout(full).output().unwrap().into();
    assert_eq!(done.status, 7);
    assert!(done.stderr.starts_with("error: writing"), "{}", done.stderr);
}

#[test]
fn a_reader_that_went_away_is_no_failure() {
    let home = Home::with("one.workflow.yaml", ONE);
    home.ok(&["run", "one.workflow.yaml"]);
    for args in [&["list"] as &[&str], &["schema", "workflow"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let done: Done = home.command(args).stdout(writer).output().unwrap().into();
        assert_eq!((done.status, done.stderr.as_str()), (0, ""), "{args:?}");
    }
}
