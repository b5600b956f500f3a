//! What is left when a command is killed or interrupted, and who goes on.

use rustix::process::Signal;
use serde_json::json;

use crate::support::{ASK, Home, held, until};

#[test]
fn a_killed_run_is_finished_by_work() {
    let home = Home::with("held.workflow.yaml", &held("idempotent"));
    let running = home.spawn(&["run", "held.workflow.yaml"]);
    home.wait_for_file("started");
    let run = home.newest();
    running.kill();
    // The lease of the dead process has to end first; work waits for that.
    home.write("go", "");
    let worked = home.ok(&["work", "--until-idle"]);
    assert_eq!(
        worked["runs"][0]["displayStatus"], "completed",
        "{worked:#}"
    );
    let view = home.ok(&["show", &run]);
    assert_eq!(view["finalOutput"], "a receipt\n");
    assert_eq!(home.ok(&["state", "verify"])["findings"], json!([]));
    assert!(2 <= home.read("started").lines().count());
}

#[test]
fn a_killed_run_with_an_action_that_may_not_be_repeated_waits_for_a_person() {
    let home = Home::with("held.workflow.yaml", &held("manual"));
    let running = home.spawn(&["run", "held.workflow.yaml", "--key", "k"]);
    home.wait_for_file("started");
    let run = home.newest();
    running.kill();
    home.ok(&["work", "--until-idle"]);
    assert_eq!(home.ok(&["show", &run])["displayStatus"], "ambiguous");
    assert_eq!(home.read("started").lines().count(), 1);
    let (status, _) = home.json(&["run", "held.workflow.yaml", "--key", "k"]);
    assert_eq!(status, 3);
    home.write("go", "");
}

/// The first Ctrl-C: the node comes to its end, the run is given back at once, and goes on elsewhere without waiting for the lease.
#[test]
fn ctrl_c_stops_at_a_durable_boundary() {
    let home = Home::with("held.workflow.yaml", &held("manual"));
    let mut running = home.spawn(&["run", "held.workflow.yaml"]);
    home.wait_for_file("started");
    let run = home.newest();
    running.signal(Signal::INT);
    let note = running.line_of_stderr();
    assert!(note.contains("Ctrl-C again stops at once"), "{note}");
    assert!(!running.is_over());
    home.write("go", "");
    let ended = running.end();
    assert_eq!(ended.status, 130, "{}{}", ended.stdout, ended.stderr);
    let explained = home.ok(&["explain", &run]);
    assert_eq!(explained["holder"], json!(null), "{explained:#}");
    home.ok(&["work", "--until-idle"]);
    assert_eq!(home.ok(&["show", &run])["displayStatus"], "completed");
    assert_eq!(home.read("started").lines().count(), 1);
}

#[test]
fn a_second_ctrl_c_stops_at_once_and_takes_the_commands_along() {
    let home = Home::with("held.workflow.yaml", &held("idempotent"));
    let mut running = home.spawn(&["run", "held.workflow.yaml"]);
    home.wait_for_file("started");
    let run = home.newest();
    running.signal(Signal::INT);
    // Two signals that are sent at once are one; the first is taken when the second may come.
    until("the second signal to be taken", || {
        if running.is_over() {
            return true;
        }
        running.signal(Signal::INT);
        false
    });
    assert_eq!(running.end().status, 130);
    home.write("go", "");
    // The command of the first attempt is dead: only the second attempt writes.
    home.ok(&["work", "--until-idle"]);
    assert_eq!(home.ok(&["show", &run])["displayStatus"], "completed");
    assert_eq!(home.read("done").lines().count(), 1);
}

/// Somebody who reads documents gets one, also then.
#[test]
fn a_second_ctrl_c_is_told_as_a_document() {
    let home = Home::with("held.workflow.yaml", &held("idempotent"));
    let mut running = home.spawn(&["--json", "run", "held.workflow.yaml"]);
    home.wait_for_file("started");
    until("the second signal to be taken", || {
        if running.is_over() {
            return true;
        }
        running.signal(Signal::INT);
        false
    });
    let ended = running.end();
    assert_eq!(ended.status, 130);
    let document: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(document["error"]["code"], "interrupted", "{document:#}");
    home.write("go", "");
}

/// The terminal went away, which the kernel and the shell both say: the node still comes to its end.
#[test]
fn a_hangup_stops_at_a_durable_boundary() {
    let home = Home::with("held.workflow.yaml", &held("manual"));
    let mut running = home.spawn(&["run", "held.workflow.yaml"]);
    home.wait_for_file("started");
    let run = home.newest();
    running.signal(Signal::HUP);
    let note = running.line_of_stderr();
    assert!(note.contains("stopping after the present node"), "{note}");
    running.signal(Signal::HUP);
    home.write("go", "");
    assert_eq!(running.end().status, 130);
    home.ok(&["work", "--until-idle"]);
    assert_eq!(home.ok(&["show", &run])["displayStatus"], "completed");
    assert_eq!(home.read("started").lines().count(), 1);
}

#[test]
fn ctrl_c_ends_work() {
    let home = Home::with("ask.workflow.yaml", ASK);
    home.ok(&["run", "ask.workflow.yaml", "--detach"]);
    let mut working = home.spawn(&["--json", "work"]);
    home.wait_for(&home.newest(), "waiting");
    working.signal(Signal::TERM);
    let ended = working.end();
    assert_eq!(ended.status, 130);
    let document: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(document["stopped"], "interrupted");
    assert_eq!(document["runs"][0]["displayStatus"], "waiting");
}
