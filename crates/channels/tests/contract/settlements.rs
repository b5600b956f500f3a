//! Once a decision has ended, the buttons go; the decision never depends on it.

use holdpoint_channels::model::Relayed;
use holdpoint_channels::protocol::{AnswerOutcome, ErrorCode, Order, SendState, SettleOutcome};

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
