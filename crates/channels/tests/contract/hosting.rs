//! A host with adapters that behave badly: scripts that play a process.

use std::time::Duration;

use holdpoint_channels::ChannelError;
use holdpoint_channels::commands;
use holdpoint_channels::host::{Host, HostOptions, ProfileState};
use holdpoint_channels::views;
use holdpoint_decisions::model::{Block, Draft, Presentation};
use holdpoint_state::clock::{Clock as _, SystemClock};
use holdpoint_state::{Owner, OwnerKind, StateError};
use holdpoint_workflows::definition::Waiting;

use crate::support::{Fixture, LEASE_MS, draft};

/// Reads the launch line and says that it is ready; then does what follows.
const READY: &str = r#"read -r launch
epoch=$(printf %s "$launch" | sed 's/.*"adapterEpoch":"\([^"]*\)".*/\1/')
id=channel-1111111111111111111111111111111111111111111111111111111111111111
printf '{"adapterEpoch":"%s","botId":7,"cursor":0,"expectedRevision":0,"kind":"channel.ready","profile":"ops","schema":"pi-workflows.channel-adapter.v1","sequence":1,"stableMessageId":"%s"}\n' "$epoch" "$id"
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

/// Notes what it is told. Told to show something, it says that it is shown, and is killed before it reads the response.
const DIES_AFTER_ITS_REPORT: &str = r#"
printf '%s\n' "$order" >> ORDERS
field() { printf %s "$order" | sed "s/.*\"$1\":\"\{0,1\}\([^\",}]*\).*/\1/"; }
case "$order" in *channel.present*)
  attempt=$(field stableMessageId)
  messages='[{"chatId":"200","contentDigest":"sha256:1111111111111111111111111111111111111111111111111111111111111111","messageId":1,"partIndex":0,"recipientIndex":0}]'
  printf '{"adapterEpoch":"%s","attemptId":"%s","decisionId":"%s","expectedRevision":%s,"kind":"channel.present","messages":%s,"profile":"ops","requestDigest":"%s","schema":"pi-workflows.channel-adapter.v1","sequence":2,"stableMessageId":"%s","state":"confirmed"}\n' \
    "$epoch" "$attempt" "$(field decisionId)" "$(field revision_of_channel)" "$messages" "$(field requestDigest)" "$attempt"
  kill -9 $$;;
esac
cat > /dev/null
"#;

/// The host is alive, and only its adapter dies: what it reported is known, though nobody told it so.
#[test]
fn an_adapter_that_is_killed_before_it_hears_that_its_report_is_durable_leaves_no_doubt() {
    let fixture = Fixture::new();
    let (_, decision) = fixture.ask(draft);
    let orders = fixture.directory().join("orders");
    let script = DIES_AFTER_ITS_REPORT
        .replace("ORDERS", &format!("'{}'", orders.display()))
        // The request has a revision of its own, which comes later in the line or earlier: the channel's is that of the response.
        .replace(
            "$(field revision_of_channel)",
            r#"$(printf %s "$order" | sed 's/.*"revision":\([0-9]*\),"command".*/\1/; s/.*,"revision":\([0-9]*\),"schema":"pi-workflows.channel-adapter.v1".*/\1/')"#,
        );
    let options = HostOptions {
        silence_ms: 600_000,
        restart_ms: 20,
        ..options(&format!("{READY}{script}"))
    };
    let host = Host::start(fixture.db(), &fixture.directory(), options).unwrap();
    let told = || std::fs::read_to_string(&orders).unwrap_or_default();
    until("the next adapter", || 2 <= told().lines().count());
    let told = told();
    let told: Vec<&str> = told.lines().collect();
    assert!(told[0].contains("channel.present"), "{told:?}");
    assert!(told[1].contains("channel.poll"), "{told:?}");
    assert!(told[1].contains(decision.as_str()), "{told:?}");
    assert_eq!(fixture.effects(), ["channel.delivery applied 1"]);
    assert_eq!(
        views::ambiguous(&fixture.db().snapshot().unwrap()).unwrap(),
        []
    );
    host.stop();
}

/// An adapter that says who its bot is, and then waits for the end of its input.
fn of_one_bot(profile: &str) -> HostOptions {
    let script = READY.replace("\"profile\":\"ops\"", &format!("\"profile\":\"{profile}\""));
    HostOptions {
        silence_ms: 600_000,
        restart_ms: 20,
        ..options(&format!("{script}cat > /dev/null"))
    }
}

#[test]
fn case_084_two_profiles_of_one_bot_are_never_at_work_at_once() {
    let fixture = Fixture::new();
    // The other profile stands in another configuration, so that nobody could see there that both have one token.
    let other = tempfile::tempdir().unwrap();
    crate::support::config(other.path(), &[("dev", &["200"])]);
    let first = Host::start(fixture.db(), &fixture.directory(), of_one_bot("ops")).unwrap();
    let state = |host: &Host, profile: &str| host.profiles().get(profile).copied();
    until("the first", || {
        state(&first, "ops") == Some(ProfileState::Running)
    });
    let second = Host::start(
        fixture.db(),
        &other.path().join("config"),
        of_one_bot("dev"),
    )
    .unwrap();
    until("the second to wait", || {
        state(&second, "dev") == Some(ProfileState::BotElsewhere)
    });
    let hosted = || {
        let listed = views::list(
            &fixture.db().snapshot().unwrap(),
            fixture.store.clock().now(),
        )
        .unwrap();
        listed
            .into_iter()
            .filter(|channel| channel.hosted)
            .map(|channel| channel.channel.to_string())
            .collect::<Vec<_>>()
    };
    until("its profile to be given back", || {
        hosted() == ["telegram:ops"]
    });
    // Whoever waits asks again and again, and writes nothing.
    let rows = fixture.rows();
    let owner = Owner::new(OwnerKind::Host, "third");
    let refused = commands::hold_bot(fixture.db(), 7, &owner, LEASE_MS);
    assert!(
        matches!(
            refused,
            Err(ChannelError::State(StateError::LeaseHeld { .. }))
        ),
        "{refused:?}"
    );
    assert_eq!(fixture.rows(), rows);
    let stopped = first.stop();
    assert_eq!(stopped.get("ops"), Some(&ProfileState::Stopped));
    until("the second to have its turn", || {
        state(&second, "dev") == Some(ProfileState::Running)
    });
    assert_eq!(hosted(), ["telegram:dev"]);
    second.stop();
    assert_eq!(hosted(), Vec::<String>::new());
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
