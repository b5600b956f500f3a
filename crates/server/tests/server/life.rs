//! How servers start and end, one for each home.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use serde_json::json;

use crate::support::{Home, until};

#[test]
fn a_server_starts_in_the_background_tells_of_itself_and_stops() {
    let home = Home::new();
    let (status, none) = home.json(&["server", "status"]);
    assert_eq!((status, &none["error"]["code"]), (7, &json!("notFound")));
    let (status, started) = home.json(&["server", "start"]);
    assert_eq!(
        (status, &started["started"], &started["epoch"]),
        (0, &json!(true), &json!(1))
    );
    let (_, again) = home.json(&["server", "start"]);
    assert_eq!(
        (&again["started"], &again["pid"]),
        (&json!(false), &started["pid"])
    );
    let (status, told) = home.json(&["server", "status"]);
    assert_eq!((status, &told["pid"]), (0, &started["pid"]));
    let mode =
        |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&home.socket()), 0o600);
    assert_eq!(mode(home.socket().parent().unwrap()), 0o700);
    // A second one in the foreground is told that it is too many, and takes nothing away.
    let (status, second) = home.json(&["server", "run"]);
    assert_eq!((status, &second["error"]["code"]), (4, &json!("leaseHeld")));
    // It executes what others only reserve.
    let (_, run) = home.json(&["run", "ask.workflow.yaml", "--detach"]);
    let run = run["runId"].as_str().unwrap();
    until("the run waits", || {
        home.json(&["show", run]).1["status"] == "waiting"
    });
    let (status, stopped) = home.json(&["server", "stop"]);
    assert_eq!((status, stopped), (0, json!({ "stopped": true })));
    assert!(!home.socket().exists());
    assert_eq!(
        home.json(&["server", "stop"]).1,
        json!({ "stopped": false })
    );
    // The lease was given back before `stop` came back.
    assert_eq!(home.json(&["server", "start"]).1["epoch"], 2);
    home.json(&["server", "stop"]);
    assert_eq!(home.run(&["state", "verify"]).status.code(), Some(0));
}

#[test]
fn a_killed_server_loses_nothing_and_its_successor_starts_at_once() {
    let home = Home::new();
    // The lease of the dead one would go on for longer than this test may take.
    for round in 1..=3 {
        let mut server = home.serve();
        let mut peer = server.peer();
        assert_eq!(
            peer.ask("server.status", None, &json!({}))["receipt"]["epoch"],
            round
        );
        let (_, run) = home.json(&["run", "ask.workflow.yaml", "--detach"]);
        let run = run["runId"].as_str().unwrap().to_owned();
        peer.ask(
            "view.run.watch",
            Some(&run),
            &json!({ "subscriptionId": "s" }),
        );
        server.kill();
        // The successor takes up what was reserved, and the leftover socket is no hindrance.
        assert!(home.socket().exists());
        let successor = home
            .command(&["server", "run", "--idle-exit", "1"])
            .stdout(Stdio::null())
            .spawn();
        let mut successor = successor.unwrap();
        until("the run waits", || {
            home.json(&["show", &run]).1["status"] == "waiting"
        });
        until("the idle server ends", || {
            successor.try_wait().unwrap().is_some()
        });
        assert!(!home.socket().exists());
        assert_eq!(home.run(&["state", "verify"]).status.code(), Some(0));
        // The epoch of the successor was the next one; begin again.
        if round == 1 {
            break;
        }
    }
    let server = home.serve();
    assert_eq!(
        server.peer().ask("server.status", None, &json!({}))["receipt"]["epoch"],
        3
    );
}

#[test]
fn nothing_of_others_is_taken_from_the_place_of_the_socket() {
    let home = Home::new();
    let place = home.path().join("other.sock");
    let path = place.to_str().unwrap();
    std::fs::write(&place, "a letter").unwrap();
    let (status, _) = home.json(&["server", "run", "--socket", path]);
    assert_eq!(status, 2);
    assert_eq!(std::fs::read_to_string(&place).unwrap(), "a letter");
    std::fs::remove_file(&place).unwrap();
    let listener = std::os::unix::net::UnixListener::bind(&place).unwrap();
    assert_eq!(home.json(&["server", "run", "--socket", path]).0, 2);
    assert!(place.exists());
    // The lease of the one that failed is free.
    drop(listener);
    let (status, started) = home.json(&["server", "start", "--socket", path]);
    assert_eq!((status, &started["socket"]), (0, &json!(path)));
    assert_eq!(home.json(&["server", "stop", "--socket", path]).0, 0);
}

#[test]
fn a_stop_waits_for_the_present_node_and_for_the_lease() {
    let home = Home::new();
    home.write(
        "slow.workflow.yaml",
        "name: slow
startAt: hold
nodes:
  hold:
    shell:
      argv: [sh, -c, 'echo began > began; sleep 1; echo done > done']
      effect: { type: test.hold, recovery: manual }
edges: []
",
    );
    home.json(&["server", "start"]);
    let (_, run) = home.json(&["run", "slow.workflow.yaml", "--detach"]);
    assert!(run["runId"].is_string(), "{run}");
    until("the node began", || home.has("began"));
    let (_, stopped) = home.json(&["server", "stop"]);
    assert_eq!(stopped, json!({ "stopped": true }));
    assert!(home.has("done"));
    let (status, next) = home.json(&["server", "start"]);
    assert_eq!((status, &next["epoch"]), (0, &json!(2)));
    home.json(&["server", "stop"]);
}
