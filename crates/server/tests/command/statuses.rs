//! Every exit status, by what leads to it.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};

use crate::support::{ASK, Home, held};

/// Runs a command both ways: the status must be the same, and the document must say the code.
fn check(home: &Home, args: &[&str], status: i32, code: &str) -> Value {
    let text = home.run(args);
    assert_eq!(
        text.status, status,
        "{args:?}: {}{}",
        text.stdout, text.stderr
    );
    assert!(
        text.stderr.starts_with("error: "),
        "{args:?}: {}",
        text.stderr
    );
    assert_eq!(text.stdout, "", "{args:?}");
    let (found, document) = home.json(args);
    assert_eq!(
        (found, &document["error"]["code"]),
        (status, &json!(code)),
        "{args:?}: {document:#}"
    );
    assert!(
        document["error"]["message"]
            .as_str()
            .is_some_and(|text| !text.is_empty())
    );
    document
}

#[test]
fn status_1_the_run_failed_or_timed_out() {
    let home = Home::with(
        "fail.workflow.yaml",
        "name: fail\nstartAt: a\nnodes: { a: { compute: { jq: 'error(\"no luck\")' } } }\nedges: []\n",
    );
    let (status, run) = home.json(&["run", "fail.workflow.yaml"]);
    assert_eq!((status, &run["displayStatus"]), (1, &json!("failed")));
    assert!(
        run["error"].as_str().unwrap().contains("no luck"),
        "{run:#}"
    );
    let text = home.run(&["run", "fail.workflow.yaml"]);
    assert_eq!(text.status, 1);
    assert!(text.stdout.contains("FAIL a"), "{}", text.stdout);

    home.write(
        "late.workflow.yaml",
        "name: late\nstartAt: a\nnodes: { a: { timeoutMs: 50, shell: { argv: [sleep, '60'], effect: { type: t, recovery: idempotent } } } }\nedges: []\n",
    );
    let (status, run) = home.json(&["run", "late.workflow.yaml"]);
    assert_eq!((status, &run["displayStatus"]), (1, &json!("timed_out")));
}

#[test]
fn status_2_usage_and_bad_input() {
    let home = Home::with("ask.workflow.yaml", ASK);
    check(&home, &["show"], 2, "usage");
    check(&home, &["dance"], 2, "usage");
    check(&home, &["list", "--limit", "0"], 2, "usage");
    check(
        &home,
        &["run", "ask.workflow.yaml", "--input", "{"],
        2,
        "input",
    );
    check(
        &home,
        &["run", "ask.workflow.yaml", "--input", r#"{"what":1}"#],
        2,
        "input",
    );
    check(
        &home,
        &["run", "ask.workflow.yaml", "--input", "@no-such-file"],
        2,
        "input",
    );
    check(&home, &["list", "--status", "happy"], 2, "input");
    check(&home, &["show", "no run id"], 2, "input");
    check(&home, &["run", "./ask.txt.workflow.yaml"], 7, "notFound");
    home.write("bad.workflow.yaml", "name: bad\nstartat: a\n");
    let error = check(&home, &["run", "bad.workflow.yaml"], 2, "workflowFile");
    let said = error["error"]["message"].as_str().unwrap();
    assert!(said.contains("bad.workflow.yaml:2:1"), "{said}");
    home.write(
        "bad.workflow.yaml",
        "name: bad\nstartAt: b\nnodes: { a: { compute: 1 } }\nedges: []\n",
    );
    check(&home, &["run", "bad.workflow.yaml"], 2, "definition");
    assert!(!home.store().exists(), "bad input makes no store");
    let no_workers = home
        .command(&["list"])
        .env("HOLDPOINT_WORKERS", "0")
        .output()
        .unwrap();
    assert_eq!(no_workers.status.code(), Some(2));
}

#[test]
fn status_3_the_run_waits_or_is_paused() {
    let home = Home::with("ask.workflow.yaml", ASK);
    let (status, run) = home.json(&["run", "ask.workflow.yaml", "--key", "k"]);
    assert_eq!((status, &run["displayStatus"]), (3, &json!("waiting")));
    home.ok(&["pause", run["runId"].as_str().unwrap()]);
    let (status, run) = home.json(&["run", "ask.workflow.yaml", "--key", "k"]);
    assert_eq!((status, &run["displayStatus"]), (3, &json!("paused")));
}

#[test]
fn status_4_conflicts() {
    let home = Home::with("ask.workflow.yaml", ASK);
    let run = home.asking("ask.workflow.yaml");
    let error = check(
        &home,
        &["cancel", &run, "--expect", "1"],
        4,
        "staleRevision",
    );
    assert_eq!(
        error["error"]["resource"],
        json!({ "type": "run", "key": run })
    );
    check(
        &home,
        &["answer", &run, "1", "--expect", "99"],
        4,
        "conflict",
    );
    check(&home, &["resume", &run], 4, "rejected");
    check(&home, &["restart", &run], 4, "rejected");
    home.ok(&["answer", &run, "1"]);
    check(&home, &["answer", &run, "2"], 4, "conflict");
    home.ok(&["work", "--until-idle"]);
    check(&home, &["answer", &run, "2"], 4, "rejected");
    check(&home, &["cancel", &run], 4, "rejected");
}

/// Case 18: a held run is told as such. Case 35: pausing takes it away, and leaves nothing held.
#[test]
fn case_018_and_035_a_run_that_another_process_executes() {
    let home = Home::with("held.workflow.yaml", &held("idempotent"));
    let running = home.spawn(&["--json", "run", "held.workflow.yaml"]);
    home.wait_for_file("started");
    let run = home.newest();
    check(&home, &["pause", &run, "--if-free"], 4, "leaseHeld");
    check(&home, &["cancel", &run, "--if-free"], 4, "leaseHeld");
    let told = home.run(&["cancel", &run, "--if-free"]).stderr;
    assert!(told.contains(" UTC unless it is renewed"), "{told}");
    assert!(told.contains(&format!("cancel {run}\n")), "{told}");
    assert_eq!(home.ok(&["pause", &run])["displayStatus"], "paused");
    assert_eq!(home.ok(&["explain", &run])["holder"], Value::Null);
    let ended = running.end();
    assert_eq!(ended.status, 3, "{}", ended.stderr);
    let document: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(document["displayStatus"], "paused");
    home.write("go", "");
    home.ok(&["resume", &run]);
    home.ok(&["work", "--until-idle"]);
    assert_eq!(home.ok(&["show", &run])["displayStatus"], "completed");
}

#[test]
fn status_5_busy() {
    let home = Home::with("held.workflow.yaml", &held("idempotent"));
    let running = home.spawn(&["run", "held.workflow.yaml"]);
    home.wait_for_file("started");
    let backup = home.work().join("copy.sqlite");
    home.ok(&["state", "backup", backup.to_str().unwrap()]);
    check(
        &home,
        &["state", "restore", backup.to_str().unwrap()],
        5,
        "busy",
    );
    home.write("go", "");
    assert_eq!(running.end().status, 0);
}

/// Another program that holds the right to write: the wait is bounded by the setting, and nothing is written.
#[test]
fn status_5_the_wait_for_another_writer_is_bounded() {
    let home = Home::with("ask.workflow.yaml", ASK);
    let run = home.asking("ask.workflow.yaml");
    let mut lock = home.store().into_os_string();
    lock.push(".work-lock");
    let lock = std::fs::File::open(lock).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let args = ["--busy-timeout-ms", "100", "cancel", run.as_str()];
    check(&home, &args, 5, "busy");
    assert_eq!(home.ok(&["show", &run])["displayStatus"], "waiting");
    drop(lock);
    home.ok(&args);
}

#[test]
fn status_6_the_store_was_refused() {
    let home = Home::with("ask.workflow.yaml", ASK);
    home.asking("ask.workflow.yaml");
    let open = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(home.store(), open).unwrap();
    check(&home, &["list"], 6, "storeRefused");
    let closed = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(home.store(), closed).unwrap();
    assert_eq!(home.run(&["list"]).status, 0);

    let foreign = Home::new();
    home.ok(&["list"]);
    foreign.asking_after_writing(b"this is no database, whatever its name says");
    check(&foreign, &["list"], 6, "storeRefused");
    let bytes = std::fs::read(foreign.store()).unwrap();
    assert_eq!(bytes, b"this is no database, whatever its name says");
}

impl Home {
    /// Puts other bytes in the place of the store.
    fn asking_after_writing(&self, bytes: &[u8]) {
        self.write(
            "one.workflow.yaml",
            "name: one\nstartAt: a\nnodes: { a: { compute: 1 } }\nedges: []\n",
        );
        self.ok(&["run", "one.workflow.yaml"]);
        for suffix in ["-wal", "-shm"] {
            let mut name = self.store().into_os_string();
            name.push(suffix);
            drop(std::fs::remove_file(name));
        }
        std::fs::write(self.store(), bytes).unwrap();
    }
}

#[test]
fn status_7_not_found() {
    let home = Home::with("ask.workflow.yaml", ASK);
    for args in [
        &["show", "nobody"] as &[&str],
        &["explain", "nobody"],
        &["answer", "nobody", "1"],
        &["pause", "nobody"],
        &["state", "status"],
        &["effects", "resolve", "effect-1", "retry"],
        &["run", "./nothing.workflow.yaml"],
        &["run", "nothing"],
    ] {
        check(&home, args, 7, "notFound");
        assert!(!home.store().exists(), "{args:?} makes no store");
    }
    let run = home.asking("ask.workflow.yaml");
    for args in [
        &["show", "nobody"] as &[&str],
        &["explain", "nobody"],
        &["answer", "nobody", "1"],
        &["answer", &run, "1", "--request", "request-1"],
        &["pause", "nobody"],
        &["resume", "nobody"],
        &["cancel", "nobody"],
        &["restart", "nobody"],
        &["effects", "resolve", "effect-1", "retry"],
    ] {
        check(&home, args, 7, "notFound");
    }
}

#[test]
fn status_8_verify_found_violations() {
    let home = Home::with("ask.workflow.yaml", ASK);
    home.ok(&[
        "run",
        "ask.workflow.yaml",
        "--detach",
        "--input",
        r#"{"what":"a needle in a stack"}"#,
    ]);
    let backup = home.work().join("copy.sqlite");
    let path = backup.to_str().unwrap();
    home.ok(&["state", "backup", path]);
    assert_eq!(home.ok(&["state", "verify", path])["findings"], json!([]));
    // One changed byte of content, which SQLite itself does not notice.
    let mut bytes = std::fs::read(&backup).unwrap();
    let needle = b"a needle in a stack";
    let at = bytes
        .windows(needle.len())
        .position(|window| window == needle)
        .unwrap();
    bytes[at] = b'A';
    std::fs::write(&backup, bytes).unwrap();
    let (status, report) = home.json(&["state", "verify", path]);
    assert_eq!(status, 8);
    assert_ne!(report["findings"], json!([]));
    assert_eq!(home.run(&["state", "verify", path]).status, 8);
    let refused = check(&home, &["state", "restore", path], 6, "corrupt");
    assert!(
        refused["error"]["message"]
            .as_str()
            .unwrap()
            .contains("copy.sqlite")
    );
}

/// Case 43: cancel works from every state that is not final, and the command that follows the run says so.
#[test]
fn status_130_the_run_was_cancelled() {
    let home = Home::with("held.workflow.yaml", &held("idempotent"));
    let running = home.spawn(&["run", "held.workflow.yaml"]);
    home.wait_for_file("started");
    let run = home.newest();
    assert_eq!(home.ok(&["cancel", &run])["displayStatus"], "cancelled");
    let ended = running.end();
    assert_eq!(ended.status, 130, "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("cancelled"), "{}", ended.stdout);
    assert_eq!(home.ok(&["explain", &run])["holder"], Value::Null);
}
