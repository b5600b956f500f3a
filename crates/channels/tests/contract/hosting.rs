//! A host with adapters that behave badly: scripts that play a process.

use std::time::Duration;

use holdpoint_channels::host::{Host, HostOptions, ProfileState};
use holdpoint_channels::views;
use holdpoint_decisions::model::{Block, Draft, Presentation};
use holdpoint_state::clock::{Clock as _, SystemClock};
use holdpoint_workflows::definition::Waiting;

use crate::support::{Fixture, draft};

/// Reads the launch line and says that it is ready; then does what follows.
const READY: &str = r#"read -r launch
epoch=$(printf %s "$launch" | sed 's/.*"adapterEpoch":"\([^"]*\)".*/\1/')
id=channel-1111111111111111111111111111111111111111111111111111111111111111
printf '{"adapterEpoch":"%s","cursor":0,"expectedRevision":0,"kind":"channel.ready","profile":"ops","schema":"pi-workflows.channel-adapter.v1","sequence":1,"stableMessageId":"%s"}\n' "$epoch" "$id"
read -r order
"#;

fn options(script: &str) -> HostOptions {
    HostOptions {
        arguments: vec!["-c".into(), script.into()],
        ready_ms: 2_000,
        silence_ms: 2_000,
        stop_grace_ms: 200,
        restart_ms: 60_000,
        ..HostOptions::new("/bin/sh")
    }
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = SystemClock.monotonic();
    while !holds() {
        assert!(
            SystemClock.monotonic().since(begun) < 30_000,
            "waited for {what}"
        );
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

/// Hosts a script until it was ended, and says how many attempts are in doubt then.
fn doubts_after(script: &str) -> usize {
    doubts_about(draft, script)
}

fn doubts_about(drafting: fn(&Waiting<'_>) -> Draft, script: &str) -> usize {
    let fixture = Fixture::new();
    fixture.ask(drafting);
    let host = Host::start(fixture.db(), &fixture.directory(), options(script)).unwrap();
    until("its end", || {
        host.profiles().get("ops") == Some(&ProfileState::Restarting)
    });
    let doubts = views::ambiguous(&fixture.db().snapshot().unwrap())
        .unwrap()
        .len();
    host.stop();
    doubts
}

#[test]
fn channel_48_an_adapter_that_floods_is_ended_and_its_attempt_in_doubt() {
    let flood = format!(
        "{READY}head -c 200000 /dev/zero | tr '\\0' e >&2; head -c 2097152 /dev/zero | tr '\\0' x; sleep 600"
    );
    assert_eq!(doubts_after(&flood), 1);
}

#[test]
fn an_adapter_that_says_nothing_is_ended() {
    assert_eq!(doubts_after("sleep 600"), 0);
    assert_eq!(doubts_after(&format!("{READY}sleep 600")), 1);
}

/// A request whose order is longer than a pipe holds.
fn long(waiting: &Waiting<'_>) -> Draft {
    let blocks = vec![Block::paragraph("€".repeat(15_000)); 4];
    Draft {
        presentation: Presentation::new("Ship it?", blocks).unwrap(),
        ..draft(waiting)
    }
}

#[test]
fn an_adapter_that_reads_nothing_is_ended_and_holds_nobody_up() {
    let deaf = READY.replace("read -r order\n", "sleep 600\n");
    assert_eq!(doubts_about(long, &deaf), 1);
}

#[test]
fn an_adapter_that_breaks_the_protocol_is_ended() {
    assert_eq!(doubts_after("read -r launch; echo '{}'; sleep 600"), 0);
    assert_eq!(
        doubts_after(&format!(
            "{READY}echo '{{\"schema\":\"pi-workflows.channel-adapter.v1\"}}'; sleep 600"
        )),
        1
    );
}

#[test]
fn an_adapter_and_all_that_it_started_end_with_its_host() {
    let fixture = Fixture::new();
    let place = tempfile::tempdir().unwrap();
    let script = format!(
        "{READY}sleep 600 & echo $! > {0}/new; mv {0}/new {0}/pid; wait",
        place.path().display()
    );
    let host = Host::start(fixture.db(), &fixture.directory(), options(&script)).unwrap();
    let pid = place.path().join("pid");
    until("the pid", || pid.exists());
    let pid = std::fs::read_to_string(pid).unwrap();
    let is_there = || std::path::Path::new(&format!("/proc/{}/exe", pid.trim())).exists();
    assert!(is_there());
    host.stop();
    until("its end", || !is_there());
}
