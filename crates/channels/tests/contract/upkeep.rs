//! What does not grow, what goes, and what is never there.

use holdpoint_channels::protocol::{AnswerOutcome, Report, SendState};
use holdpoint_channels::views;
use holdpoint_state::clock::{Clock as _, UnixMillis};
use holdpoint_state::maintenance::retention::Taking;

use crate::support::{Fixture, draft, go, message, taken, token};

#[test]
fn channel_46_an_idle_hour_writes_nothing() {
    let fixture = Fixture::new();
    let host = fixture.host();
    let mut adapter = host.adapter("epoch-1");
    adapter.told_to_poll();
    let before = fixture.rows();
    for _ in 0..360 {
        fixture.store.clock().advance(10_000);
        fixture.db().renew(&host.claim).unwrap();
        adapter.told_to_poll();
    }
    assert_eq!(fixture.rows(), before);
}

#[test]
fn channel_47_a_cursor_never_goes_back() {
    let fixture = Fixture::new();
    fixture.ask(draft);
    let host = fixture.host();
    let mut adapter = host.adapter("epoch-1");
    let showing = adapter.show();
    assert_eq!(
        adapter.press(&showing, &go("cb-9", 9)),
        taken(AnswerOutcome::Received)
    );
    assert_eq!(
        adapter.press(&showing, &go("cb-7", 7)),
        taken(AnswerOutcome::AlreadyDecided)
    );
    let id = "channel-".to_owned() + &"7".repeat(64);
    adapter.report(
        &id,
        Report::Ready {
            cursor: 8,
            error_code: None,
            bot_id: None,
            retry_after: None,
        },
    );
    let cursor = views::cursor(&fixture.db().snapshot().unwrap(), &host.channel).unwrap();
    assert_eq!(cursor, Some(9));
    adapter.report(
        &id,
        Report::Ready {
            cursor: 10,
            error_code: None,
            bot_id: None,
            retry_after: None,
        },
    );
    let cursor = views::cursor(&fixture.db().snapshot().unwrap(), &host.channel).unwrap();
    assert_eq!(cursor, Some(10), "numbers are compared, not texts");
}

#[test]
fn the_store_holds_no_token_and_views_hold_nothing_private() {
    let fixture = Fixture::with_chats(&["-100777000777"]);
    fixture.ask(draft);
    let host = fixture.host();
    let mut adapter = host.adapter("epoch-private");
    let mut showing = adapter.told_to_present();
    adapter.part(&mut showing, message("-100777000777", 0, 0));
    host.adapter_ended();
    let snapshot = fixture.db().snapshot().unwrap();
    let now = fixture.store.clock().now();
    let seen = serde_json::json!([
        views::list(&snapshot, now).unwrap(),
        views::ambiguous(&snapshot).unwrap()
    ])
    .to_string();
    for private in ["777000777", "epoch-private", "operator", "1000", "secret"] {
        assert!(!seen.contains(private), "{private} in {seen}");
    }
    drop(snapshot);
    let token = token();
    for name in ["state.sqlite", "state.sqlite-wal"] {
        let found = std::fs::read(fixture.store.path().with_file_name(name)).unwrap_or_default();
        assert!(
            !found
                .windows(token.expose().len())
                .any(|part| part == token.expose().as_bytes())
        );
        assert!(!found.windows(13).any(|part| part == b"epoch-private"));
    }
}

#[test]
fn channel_52_a_run_goes_once_nothing_of_it_is_shown_and_channels_stay() {
    let fixture = Fixture::new();
    let (run, decision) = fixture.ask(draft);
    let host = fixture.host();
    let mut adapter = host.adapter("epoch-1");
    let mut showing = adapter.told_to_present();
    assert!(fixture.answer_locally(&decision, "go").has_won());
    fixture.go_on(&run);
    settle_effects(&fixture);
    assert_eq!(
        held_by(&fixture),
        ["channelEffect"],
        "it may be sent at this moment"
    );
    let held = |fixture: &Fixture| {
        fixture.count(
            "SELECT count(*) FROM channel_messages m JOIN human_decisions d ON d.decision_id = m.decision_id",
        )
    };
    adapter.part(&mut showing, message("200", 0, 0));
    adapter.presented(&showing, SendState::Confirmed, None);
    assert_eq!(
        adapter.press(&showing, &go("cb-1", 5)),
        taken(AnswerOutcome::AlreadyDecided)
    );
    assert_eq!(
        held_by(&fixture),
        ["channelShown"],
        "its buttons are still there"
    );
    let (settling, _) = adapter.told_to_settle();
    adapter.settled(&settling, SendState::Confirmed, None);
    let events = fixture.count("SELECT count(*) FROM events v JOIN resources r ON r.resource_key = v.resource_key WHERE r.resource_type = 'channel'");
    assert_eq!(prune(&fixture), 1);
    assert_eq!(held(&fixture), 0);
    for left in [
        "SELECT count(*) FROM channel_messages",
        "SELECT count(*) FROM channel_message_parts",
        "SELECT count(*) FROM channel_inbox",
        "SELECT count(*) FROM channel_shown",
        "SELECT count(*) FROM effects",
        "SELECT count(*) FROM runs",
    ] {
        assert_eq!(fixture.count(left), 0, "{left}");
    }
    let kept = fixture.count("SELECT count(*) FROM events v JOIN resources r ON r.resource_key = v.resource_key WHERE r.resource_type = 'channel'");
    assert_eq!(kept, events);
    assert_eq!(fixture.count("SELECT count(*) FROM channels"), 1);
}

fn settle_effects(fixture: &Fixture) {
    let options = holdpoint_state::effects::WorkerOptions::default();
    let worker = holdpoint_decisions::effects::worker(fixture.db().clone(), options).unwrap();
    worker.run_due_once().unwrap();
}

/// What holds the one run that is over.
fn held_by(fixture: &Fixture) -> Vec<&'static str> {
    let later = UnixMillis(fixture.store.clock().now().0 + 1);
    let plan = fixture.db().retention_plan(later).unwrap();
    plan.trees
        .iter()
        .flat_map(|tree| tree.blockers.iter().map(|held| held.name))
        .collect()
}

/// Sweeps everything that is over, and says how many runs went.
fn prune(fixture: &Fixture) -> i64 {
    let runs = || fixture.count("SELECT count(*) FROM runs");
    let before = runs();
    let later = UnixMillis(fixture.store.clock().now().0 + 1);
    fixture
        .db()
        .sweep(&Taking::before(later), |_| {
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
    before - runs()
}
