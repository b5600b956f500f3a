//! An answer counts once, from the right hand, with its cursor.

use holdpoint_channels::model::{RejectReason, Relayed};
use holdpoint_channels::protocol::{AnswerOutcome, SendState};
use holdpoint_channels::views;
use holdpoint_decisions::model::Provenance;
use holdpoint_decisions::views as decisions;
use holdpoint_state::clock::Clock as _;
use holdpoint_workflows::commands::Control;

use crate::support::{Fixture, Press, USER, draft, go, redo, rejected, taken, timed};

fn cursor(fixture: &Fixture) -> u64 {
    let channel = holdpoint_channels::ChannelId::telegram("ops").unwrap();
    views::cursor(&fixture.db().snapshot().unwrap(), &channel)
        .unwrap()
        .unwrap()
}

fn submissions(fixture: &Fixture) -> i64 {
    fixture.count("SELECT count(*) FROM human_decision_submissions")
}

#[test]
fn who_is_not_allowed_by_the_host_writes_nothing() {
    let fixture = Fixture::new();
    fixture.ask(draft);
    let host = fixture.host();
    let mut adapter = host.adapter("epoch-1");
    let showing = adapter.show();
    let before = fixture.rows();
    for (user, chat) in [("101", "200"), (USER, "201"), ("200", "100")] {
        let press = Press {
            user,
            chat,
            ..go("cb-1", 5)
        };
        assert_eq!(
            adapter.press(&showing, &press),
            rejected(RejectReason::NotAllowed)
        );
    }
    assert_eq!(
        (fixture.rows(), submissions(&fixture), cursor(&fixture)),
        (before, 0, 0)
    );
}

#[test]
fn channel_25_a_button_of_a_resolved_decision_wins_nothing() {
    let fixture = Fixture::new();
    let (_, decision) = fixture.ask(draft);
    let host = fixture.host();
    let mut adapter = host.adapter("epoch-1");
    let showing = adapter.show();
    assert!(fixture.answer_locally(&decision, "go").has_won());
    assert_eq!(
        adapter.press(&showing, &redo("cb-1", "late", 5)),
        taken(AnswerOutcome::AlreadyDecided)
    );
    assert_eq!(cursor(&fixture), 5);
    let resolved = decisions::resolved(&fixture.db().snapshot().unwrap(), &decision)
        .unwrap()
        .unwrap();
    assert_eq!(
        resolved.resolution.response().unwrap().choice().as_str(),
        "go"
    );
}

#[test]
fn channel_28_of_two_replies_the_first_wins() {
    let fixture = Fixture::new();
    let (run, _) = fixture.ask(draft);
    let host = fixture.host();
    let mut adapter = host.adapter("epoch-1");
    let showing = adapter.show();
    assert_eq!(
        adapter.press(&showing, &redo("200:8", "first", 5)),
        taken(AnswerOutcome::Received)
    );
    assert_eq!(
        adapter.press(&showing, &redo("200:9", "second", 6)),
        taken(AnswerOutcome::AlreadyDecided)
    );
    assert_eq!(fixture.go_on(&run)["output"]["input"]["why"], "first");
}

#[test]
fn channel_29_a_text_is_stored_as_it_was_written() {
    let fixture = Fixture::new();
    let (run, _) = fixture.ask(draft);
    let host = fixture.host();
    let mut adapter = host.adapter("epoch-1");
    let showing = adapter.show();
    let text = "  keep \n two lines ";
    assert_eq!(
        adapter.press(&showing, &redo("200:8", text, 5)),
        taken(AnswerOutcome::Received)
    );
    assert_eq!(fixture.go_on(&run)["output"]["input"]["why"], text);
    // Blanks alone are a text too, if they are long enough.
    let (_, _) = fixture.ask(draft);
    let showing = { adapter.told_to_settle_and_show() };
    assert_eq!(
        adapter.press(&showing, &redo("200:9", " ", 6)),
        taken(AnswerOutcome::Received)
    );
    fixture.ask(draft);
    let showing = adapter.told_to_settle_and_show();
    assert_eq!(
        adapter.press(&showing, &redo("200:10", "", 7)),
        taken(AnswerOutcome::NotAccepted)
    );
}

#[test]
fn channel_32_one_number_in_two_chats_is_two_answers() {
    let fixture = Fixture::with_chats(&["200", "300"]);
    fixture.ask(draft);
    let host = fixture.host();
    let mut adapter = host.adapter("epoch-1");
    let showing = adapter.show();
    assert_eq!(
        adapter.press(&showing, &redo("200:8", "first", 5)),
        taken(AnswerOutcome::Received)
    );
    let other = Press {
        chat: "300",
        ..redo("300:8", "second", 6)
    };
    assert_eq!(
        adapter.press(&showing, &other),
        taken(AnswerOutcome::AlreadyDecided)
    );
    assert_eq!(submissions(&fixture), 2);
}

#[test]
fn channel_33_each_update_has_its_own_cursor() {
    let fixture = Fixture::new();
    fixture.ask(draft);
    let host = fixture.host();
    let mut adapter = host.adapter("epoch-1");
    let first = adapter.show();
    fixture.ask(draft);
    let second = adapter.show();
    assert_eq!(
        adapter.press(&first, &go("cb-1", 5)),
        taken(AnswerOutcome::Received)
    );
    // The process dies before it reports the second answer of the same batch.
    assert_eq!(host.adapter_ended(), 0);
    assert_eq!(cursor(&fixture), 5, "the second update is read again");
    let mut adapter = host.adapter("epoch-2");
    adapter.ready();
    host.adapter_ended();
    let mut adapter = host.adapter("epoch-3");
    adapter.ready();
    assert_eq!(
        adapter.press(&second, &go("cb-2", 6)),
        taken(AnswerOutcome::Received)
    );
    assert_eq!(cursor(&fixture), 6);
    holdpoint_channels::commands::recover(
        fixture.db(),
        &holdpoint_channels::commands::Recovery {
            attempt_id: views::ambiguous(&fixture.db().snapshot().unwrap()).unwrap()[0]
                .attempt_id
                .clone(),
            action: holdpoint_channels::model::RecoverAction::Confirm,
            by: holdpoint_state::Actor::human("ann"),
        },
    )
    .unwrap();
}

#[test]
fn channel_34_one_update_twice_is_one_answer() {
    let fixture = Fixture::new();
    fixture.ask(draft);
    let host = fixture.host();
    let mut adapter = host.adapter("epoch-1");
    let showing = adapter.show();
    let received = AnswerOutcome::Received;
    assert_eq!(adapter.press(&showing, &go("cb-1", 5)), taken(received));
    let before = (fixture.rows(), submissions(&fixture));
    assert_eq!(
        adapter.press(&showing, &go("cb-1", 5)),
        Relayed::Repeated {
            answer: Some(received)
        }
    );
    assert_eq!((fixture.rows(), submissions(&fixture)), before);
    // The next process gets it as well, when the cursor was lost at the provider.
    let mut next = host.adapter("epoch-2");
    next.told_to_settle();
    assert_eq!(
        next.press(&showing, &go("cb-1", 5)),
        Relayed::Repeated {
            answer: Some(received)
        }
    );
    // The provider may tell it under another number: the cursor goes on, and nothing else.
    assert_eq!(
        next.press(&showing, &go("cb-1", 9)),
        Relayed::Repeated {
            answer: Some(received)
        }
    );
    assert_eq!((cursor(&fixture), submissions(&fixture)), (9, before.1));
    host.adapter_ended();
}

#[test]
fn channel_35_a_button_and_the_terminal_have_one_winner() {
    let rounds: usize = std::env::var("HOLDPOINT_ROUNDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(10);
    let fixture = Fixture::new();
    let host = fixture.host();
    let mut adapter = host.adapter("epoch-1");
    let mut winners = std::collections::BTreeSet::new();
    for round in 0..rounds {
        let (_, decision) = fixture.ask(draft);
        let showing = adapter.told_to_settle_and_show();
        let barrier = std::sync::Barrier::new(2);
        let event = format!("cb-{round}");
        let cursor = 5 + round as u64;
        let (by_button, by_hand) = std::thread::scope(|scope| {
            let local = scope.spawn(|| {
                barrier.wait();
                fixture.answer_locally(&decision, "go").has_won()
            });
            barrier.wait();
            let pressed = adapter.press(&showing, &redo(&event, "x", cursor));
            (pressed, local.join().unwrap())
        });
        let expected = if by_hand {
            AnswerOutcome::AlreadyDecided
        } else {
            AnswerOutcome::Received
        };
        assert_eq!(by_button, taken(expected));
        winners.insert(by_hand);
        let resolved = decisions::resolved(&fixture.db().snapshot().unwrap(), &decision)
            .unwrap()
            .unwrap();
        assert_eq!(resolved.resolution.provenance(), Provenance::Human);
        assert_eq!(
            resolved.resolution.response().unwrap().choice().as_str(),
            if by_hand { "go" } else { "redo" }
        );
    }
    let settled = fixture.count("SELECT count(*) FROM channel_messages WHERE purpose = 'settlement' AND status = 'confirmed'");
    assert_eq!(
        settled,
        i64::try_from(rounds).unwrap() - 1,
        "the last one is still to be settled"
    );
}

#[test]
fn channel_36_at_the_deadline_a_button_is_too_late() {
    let fixture = Fixture::new();
    let (_, decision) = fixture.ask(timed);
    let host = fixture.host();
    let mut adapter = host.adapter("epoch-1");
    let showing = adapter.show();
    while fixture.store.clock().now().0 < deadline(&fixture, &decision) {
        let left = deadline(&fixture, &decision) - fixture.store.clock().now().0;
        fixture
            .store
            .clock()
            .advance(left.min(20_000).unsigned_abs());
        fixture.db().renew(&host.claim).unwrap();
    }
    assert_eq!(
        adapter.told_to_poll(),
        [decision.to_string()],
        "a press is refused and recorded, not ignored"
    );
    assert_eq!(
        adapter.press(&showing, &go("cb-1", 5)),
        taken(AnswerOutcome::Expired)
    );
    holdpoint_decisions::commands::sweep(fixture.db(), fixture.store.clock().now()).unwrap();
    let (settling, _) = adapter.told_to_settle();
    adapter.settled(&settling, SendState::Confirmed, None);
    let resolved = decisions::resolved(&fixture.db().snapshot().unwrap(), &decision)
        .unwrap()
        .unwrap();
    assert_eq!(resolved.resolution.provenance(), Provenance::TimeoutPolicy);
}

fn deadline(fixture: &Fixture, decision: &holdpoint_decisions::DecisionId) -> i64 {
    let snapshot = fixture.db().snapshot().unwrap();
    decisions::request(&snapshot, decision)
        .unwrap()
        .unwrap()
        .expires_at()
        .unwrap()
        .0
}

#[test]
fn channel_37_a_paused_run_takes_no_answer_and_later_does() {
    let fixture = Fixture::new();
    let (run, _) = fixture.ask(draft);
    let host = fixture.host();
    let mut adapter = host.adapter("epoch-1");
    let showing = adapter.show();
    fixture.workflows.pause(&Control::of(&run)).unwrap();
    assert_eq!(
        adapter.press(&showing, &go("cb-1", 5)),
        taken(AnswerOutcome::Paused)
    );
    assert_eq!((submissions(&fixture), cursor(&fixture)), (1, 5));
    fixture.workflows.resume(&Control::of(&run)).unwrap();
    assert_eq!(
        adapter.press(&showing, &go("cb-2", 6)),
        taken(AnswerOutcome::Received)
    );
    assert_eq!(fixture.go_on(&run)["status"], "completed");
}
