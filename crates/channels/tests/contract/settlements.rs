//! Once a decision has ended, the buttons go; the decision never depends on it.

use holdpoint_channels::commands::{Recovery, recover};
use holdpoint_channels::identity::Purpose;
use holdpoint_channels::model::{RecoverAction, Relayed};
use holdpoint_channels::protocol::{AnswerOutcome, ErrorCode, Order, SendState, SettleOutcome};
use holdpoint_channels::{ChannelError, views};
use holdpoint_state::Actor;

use crate::support::{Fixture, draft, go, taken};

#[test]
fn channel_39_an_edit_that_fails_three_times_is_left_alone() {
    let fixture = Fixture::new();
    let (run, _) = fixture.ask(draft);
    let host = fixture.host();
    let mut adapter = host.adapter("epoch-1");
    let showing = adapter.show();
    assert_eq!(
        adapter.press(&showing, &go("cb-1", 5)),
        taken(AnswerOutcome::Received)
    );
    for _ in 0..3 {
        let (settling, _) = adapter.told_to_settle();
        adapter.settled(
            &settling,
            SendState::Failed,
            Some(ErrorCode::TelegramHttp(400)),
        );
        fixture.store.clock().advance(25_000);
        fixture.db().renew(&host.claim).unwrap();
    }
    assert_eq!(
        adapter.told_to_poll(),
        Vec::<String>::new(),
        "there is no fourth"
    );
    assert_eq!(
        fixture.effects(),
        [
            "channel.delivery applied 1",
            "channel.settlement rejected 3"
        ]
    );
    assert_eq!(fixture.go_on(&run)["output"]["choice"], "go");
}

#[test]
fn a_settlement_that_was_refused_for_good_is_listed_and_a_person_lets_it_be_tried_again() {
    let fixture = Fixture::new();
    fixture.ask(draft);
    let host = fixture.host();
    let mut adapter = host.adapter("epoch-1");
    let showing = adapter.show();
    adapter.press(&showing, &go("cb-1", 5));
    let says = |attempt_id: &str, action| {
        let recovery = Recovery {
            attempt_id: attempt_id.to_owned(),
            action,
            by: Actor::human("ann"),
        };
        recover(fixture.db(), &recovery)
    };
    let refused = || views::refused(&fixture.db().snapshot().unwrap()).unwrap();
    let mut last = String::new();
    for _ in 0..3 {
        assert_eq!(refused(), [], "it is tried again by itself");
        let (settling, _) = adapter.told_to_settle();
        adapter.settled(
            &settling,
            SendState::Failed,
            Some(ErrorCode::TelegramHttp(403)),
        );
        last = settling.attempt_id;
        fixture.store.clock().advance(25_000);
        fixture.db().renew(&host.claim).unwrap();
    }
    let listed = refused();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].attempt_id, last);
    assert_eq!(listed[0].purpose, Purpose::Settlement);
    let confirmed = says(&last, RecoverAction::Confirm);
    assert!(matches!(confirmed, Err(ChannelError::NotAmbiguous(_))));
    let retried = says(&last, RecoverAction::Retry).unwrap();
    assert_eq!(retried.warning, None, "it was provably not done");
    let (settling, _) = adapter.told_to_settle();
    assert_eq!(Some(&settling.attempt_id), retried.next_attempt_id.as_ref());
    adapter.settled(&settling, SendState::Confirmed, None);
    assert_eq!(refused(), []);
    assert_eq!(
        fixture.effects(),
        ["channel.delivery applied 1", "channel.settlement applied 4"]
    );
    assert!(matches!(
        says(&settling.attempt_id, RecoverAction::Retry),
        Err(ChannelError::NotAmbiguous(_))
    ));
}

#[test]
fn how_it_ended_is_said_without_who() {
    let fixture = Fixture::new();
    let (_, decision) = fixture.ask(draft);
    let host = fixture.host();
    let mut adapter = host.adapter("epoch-1");
    adapter.show();
    let cancel = holdpoint_decisions::commands::Cancel::of(&decision);
    holdpoint_decisions::commands::cancel(fixture.db(), &cancel).unwrap();
    let (settling, order) = adapter.told_to_settle();
    assert!(matches!(
        order,
        Order::Settle {
            outcome: SettleOutcome::Cancelled,
            response: None,
            ..
        }
    ));
    assert_eq!(settling.messages.len(), 1);
    assert_eq!(
        adapter.settled(&settling, SendState::Confirmed, None),
        Relayed::Taken { answer: None }
    );
    assert_eq!(adapter.told_to_poll(), Vec::<String>::new());
}
