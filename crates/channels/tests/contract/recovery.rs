//! What nobody can know waits for a person, and nobody else is held up by it.

use holdpoint_channels::ChannelError;
use holdpoint_channels::commands::{Recovery, recover};
use holdpoint_channels::identity::Purpose;
use holdpoint_channels::model::{RecoverAction, RejectReason};
use holdpoint_channels::protocol::{AnswerOutcome, ErrorCode, SendState};
use holdpoint_channels::views;
use holdpoint_state::{Actor, StateError};

use crate::support::{Adapter, Fixture, LEASE_MS, Showing, draft, go, message, rejected, taken};

fn says(
    fixture: &Fixture,
    attempt_id: &str,
    action: RecoverAction,
) -> Result<Option<String>, ChannelError> {
    let recovery = Recovery {
        attempt_id: attempt_id.to_owned(),
        action,
        by: Actor::human("ann"),
    };
    recover(fixture.db(), &recovery).map(|recovered| recovered.next_attempt_id)
}

fn is_unknown(said: &Result<Option<String>, ChannelError>) -> bool {
    matches!(said, Err(ChannelError::NotAmbiguous(_)))
}

#[test]
fn channel_06_a_report_of_an_earlier_attempt_comes_too_late() {
    let fixture = Fixture::new();
    fixture.ask(draft);
    let host = fixture.host();
    let mut adapter = host.adapter("epoch-1");
    let mut first = adapter.told_to_present();
    first.messages.push(message("200", 0, 0));
    host.adapter_ended();
    let next = says(&fixture, &first.attempt_id, RecoverAction::Retry)
        .unwrap()
        .unwrap();
    let mut adapter = host.adapter("epoch-2");
    assert_eq!(adapter.told_to_present().attempt_id, next);
    assert_eq!(
        adapter.presented(&first, SendState::Confirmed, None),
        rejected(RejectReason::NotInFlight)
    );
    assert_eq!(fixture.effects(), ["channel.delivery applying 2"]);
}

#[test]
fn what_was_in_flight_is_in_doubt_and_said_so() {
    let fixture = Fixture::new();
    let (run, decision) = fixture.ask(draft);
    let host = fixture.host();
    let showing = host.adapter("epoch-1").told_to_present();
    assert_eq!((host.adapter_ended(), host.adapter_ended()), (1, 0));
    let found = views::ambiguous(&fixture.db().snapshot().unwrap()).unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].attempt_id, showing.attempt_id);
    assert_eq!(
        (found[0].purpose, found[0].decision_id.as_str()),
        (Purpose::Delivery, decision.as_str())
    );
    assert_eq!(
        found[0].error_code.as_deref(),
        Some("adapter_exited_without_receipt")
    );
    assert_eq!(host.adapter("epoch-2").told_to_poll(), Vec::<String>::new());
    assert!(fixture.answer_locally(&decision, "go").has_won());
    assert_eq!(fixture.go_on(&run)["status"], "completed");
}

#[test]
fn what_a_dead_host_left_is_in_doubt_before_any_adapter_runs() {
    let fixture = Fixture::new();
    fixture.ask(draft);
    {
        let host = fixture.host();
        host.adapter("epoch-1").told_to_present();
        fixture.store.clock().advance(LEASE_MS.unsigned_abs());
    }
    let _host = fixture.host();
    let found = views::ambiguous(&fixture.db().snapshot().unwrap()).unwrap();
    assert_eq!(
        found[0].error_code.as_deref(),
        Some("host_restarted_without_receipt")
    );
}

#[test]
fn channel_15_a_confirmed_delivery_is_answered_by_the_buttons_that_are_there() {
    let fixture = Fixture::new();
    let (_, decision) = fixture.ask(draft);
    let host = fixture.host();
    let showing = host.adapter("epoch-1").told_to_present();
    host.adapter_ended();
    let mut adapter = host.adapter("epoch-2");
    adapter.told_to_poll();
    assert_eq!(
        adapter.press(&showing, &go("cb-0", 3)),
        rejected(RejectReason::NotAllowed),
        "not shown, as far as we know"
    );
    assert_eq!(
        says(&fixture, &showing.attempt_id, RecoverAction::Confirm).unwrap(),
        None
    );
    assert_eq!(adapter.told_to_poll(), [decision.to_string()]);
    assert_eq!(
        adapter.press(&showing, &go("cb-1", 4)),
        taken(AnswerOutcome::Received)
    );
    let (settling, _) = adapter.told_to_settle();
    assert!(settling.messages.is_empty(), "nothing is known to edit");
    adapter.settled(&settling, SendState::Confirmed, None);
    assert_eq!(adapter.told_to_poll(), Vec::<String>::new());
}

#[test]
fn channel_16_a_person_says_it_once_and_may_say_it_again() {
    let fixture = Fixture::new();
    fixture.ask(draft);
    let host = fixture.host();
    let showing = host.adapter("epoch-1").told_to_present();
    host.adapter_ended();
    let attempt = showing.attempt_id.as_str();
    assert_eq!(
        says(&fixture, attempt, RecoverAction::Confirm).unwrap(),
        None
    );
    let before = fixture.rows();
    assert_eq!(
        says(&fixture, attempt, RecoverAction::Confirm).unwrap(),
        None
    );
    assert!(is_unknown(&says(&fixture, attempt, RecoverAction::Retry)));
    assert_eq!(fixture.rows(), before);
}

#[test]
fn a_retry_is_said_once_too() {
    let fixture = Fixture::new();
    fixture.ask(draft);
    let host = fixture.host();
    let showing = host.adapter("epoch-1").told_to_present();
    host.adapter_ended();
    let attempt = showing.attempt_id.as_str();
    let next = says(&fixture, attempt, RecoverAction::Retry).unwrap();
    assert_eq!(says(&fixture, attempt, RecoverAction::Retry).unwrap(), next);
    assert!(is_unknown(&says(&fixture, attempt, RecoverAction::Confirm)));
    assert_eq!(fixture.effects(), ["channel.delivery pending 1"]);
}

#[test]
fn channel_17_what_is_in_no_doubt_is_not_recovered() {
    let fixture = Fixture::new();
    fixture.ask(draft);
    let host = fixture.host();
    let mut adapter = host.adapter("epoch-1");
    let showing = adapter.show();
    for attempt in [showing.attempt_id.as_str(), "channel-none", ""] {
        for action in [RecoverAction::Confirm, RecoverAction::Retry] {
            assert!(is_unknown(&says(&fixture, attempt, action)), "{attempt}");
        }
    }
}

#[test]
fn only_a_person_recovers() {
    let fixture = Fixture::new();
    fixture.ask(draft);
    let host = fixture.host();
    let showing = host.adapter("epoch-1").told_to_present();
    host.adapter_ended();
    for by in [
        Actor::host("h"),
        Actor::system(),
        Actor::new(holdpoint_state::ActorKind::Channel, "ops"),
    ] {
        let recovery = Recovery {
            attempt_id: showing.attempt_id.clone(),
            action: RecoverAction::Confirm,
            by,
        };
        let said = recover(fixture.db(), &recovery);
        assert!(
            matches!(
                said,
                Err(ChannelError::State(StateError::ActorDenied { .. }))
            ),
            "{said:?}"
        );
    }
}

#[test]
fn a_person_may_speak_while_an_adapter_works() {
    let fixture = Fixture::new();
    fixture.ask(draft);
    let host = fixture.host();
    let mut adapter = host.adapter("epoch-1");
    let showing = adapter.told_to_present();
    adapter.presented(
        &showing,
        SendState::Unknown,
        Some(ErrorCode::TelegramResponseUnknown),
    );
    fixture.ask(draft);
    let mut second = adapter.told_to_present();
    says(&fixture, &showing.attempt_id, RecoverAction::Confirm).unwrap();
    let part = adapter.part(&mut second, message("200", 0, 0));
    assert_eq!(
        part,
        holdpoint_channels::model::Relayed::Taken { answer: None }
    );
    adapter.presented(&second, SendState::Confirmed, None);
}

#[test]
fn channel_42_a_doubt_outlives_the_decision_and_nothing_is_settled() {
    let fixture = Fixture::new();
    let (_, decision) = fixture.ask(draft);
    let host = fixture.host();
    let showing = host.adapter("epoch-1").told_to_present();
    host.adapter_ended();
    let cancel = holdpoint_decisions::commands::Cancel::of(&decision);
    holdpoint_decisions::commands::cancel(fixture.db(), &cancel).unwrap();
    let mut adapter = host.adapter("epoch-2");
    assert_eq!(adapter.told_to_poll(), Vec::<String>::new());
    assert_eq!(fixture.effects(), ["channel.delivery ambiguous 1"]);
    // A retry is not begun for a decision that has ended; a confirmation lets what is seen be settled.
    says(&fixture, &showing.attempt_id, RecoverAction::Confirm).unwrap();
    let (settling, _) = adapter.told_to_settle();
    adapter.settled(&settling, SendState::Confirmed, None);
}

/// A delivery is refused as often as it may, and gives its last attempt.
fn refused_for_good(fixture: &Fixture, adapter: &mut Adapter<'_>) -> Showing {
    for _ in 1..3 {
        let showing = adapter.told_to_present();
        adapter.presented(&showing, SendState::Failed, Some(REFUSED));
        assert!(
            views::refused(&fixture.db().snapshot().unwrap())
                .unwrap()
                .is_empty()
        );
        fixture.store.clock().advance(20_000);
        fixture.db().renew(&adapter.host.claim).unwrap();
    }
    let last = adapter.told_to_present();
    adapter.presented(&last, SendState::Failed, Some(REFUSED));
    assert_eq!(adapter.told_to_poll(), Vec::<String>::new());
    last
}

const REFUSED: ErrorCode = ErrorCode::TelegramHttp(400);

#[test]
fn what_was_refused_for_good_is_listed_and_a_person_lets_it_be_tried_again() {
    let fixture = Fixture::new();
    let (_, decision) = fixture.ask(draft);
    let host = fixture.host();
    let mut adapter = host.adapter("epoch-1");
    let first = adapter.told_to_present();
    adapter.presented(&first, SendState::Failed, Some(REFUSED));
    assert!(
        is_unknown(&says(&fixture, &first.attempt_id, RecoverAction::Retry)),
        "it is tried again by itself"
    );
    fixture.store.clock().advance(20_000);
    fixture.db().renew(&host.claim).unwrap();
    let second = adapter.told_to_present();
    adapter.presented(&second, SendState::Failed, Some(REFUSED));
    fixture.store.clock().advance(20_000);
    fixture.db().renew(&host.claim).unwrap();
    let mut last = adapter.told_to_present();
    adapter.part(&mut last, message("200", 0, 0));
    adapter.presented(&last, SendState::Failed, Some(REFUSED));
    assert_eq!(adapter.told_to_poll(), Vec::<String>::new());

    let listed = views::refused(&fixture.db().snapshot().unwrap()).unwrap();
    let listed: Vec<_> = listed
        .iter()
        .map(|one| {
            (
                one.attempt_id.as_str(),
                one.decision_id.as_str(),
                one.error_code.as_deref(),
                one.parts,
            )
        })
        .collect();
    assert_eq!(
        listed,
        [(
            last.attempt_id.as_str(),
            decision.as_str(),
            Some("telegram_http_400"),
            1
        )]
    );
    for (attempt, action) in [
        (&last, RecoverAction::Confirm),
        (&second, RecoverAction::Retry),
    ] {
        assert!(
            is_unknown(&says(&fixture, &attempt.attempt_id, action)),
            "{action:?}"
        );
    }
    let next = says(&fixture, &last.attempt_id, RecoverAction::Retry)
        .unwrap()
        .unwrap();
    // The same wish again is the same attempt, also once it has begun; what is shown already is not sent again.
    assert_eq!(
        says(&fixture, &last.attempt_id, RecoverAction::Retry).unwrap(),
        Some(next.clone())
    );
    let again = adapter.told_to_present();
    assert_eq!((&again.attempt_id, again.messages.len()), (&next, 1));
    assert_eq!(
        says(&fixture, &last.attempt_id, RecoverAction::Retry).unwrap(),
        Some(next)
    );
    adapter.presented(&again, SendState::Failed, Some(REFUSED));
    // One wish is one attempt: refused again, it waits for the next.
    fixture.store.clock().advance(20_000);
    fixture.db().renew(&host.claim).unwrap();
    assert_eq!(adapter.told_to_poll(), Vec::<String>::new());
    says(&fixture, &again.attempt_id, RecoverAction::Retry).unwrap();
    let last = adapter.told_to_present();
    assert_eq!(
        adapter.presented(&last, SendState::Confirmed, None),
        holdpoint_channels::model::Relayed::Taken { answer: None }
    );
    assert!(
        views::refused(&fixture.db().snapshot().unwrap())
            .unwrap()
            .is_empty()
    );
    assert_eq!(fixture.effects(), ["channel.delivery applied 5"]);
}

#[test]
fn a_refused_delivery_of_a_decision_that_has_ended_waits_for_nobody() {
    let fixture = Fixture::new();
    let (_, decision) = fixture.ask(draft);
    let host = fixture.host();
    let mut adapter = host.adapter("epoch-1");
    let last = refused_for_good(&fixture, &mut adapter);
    assert_eq!(
        views::refused(&fixture.db().snapshot().unwrap())
            .unwrap()
            .len(),
        1
    );
    assert!(fixture.answer_locally(&decision, "go").has_won());
    assert!(
        views::refused(&fixture.db().snapshot().unwrap())
            .unwrap()
            .is_empty()
    );
    let said = says(&fixture, &last.attempt_id, RecoverAction::Retry);
    assert!(is_unknown(&said), "{said:?}");
}

#[test]
fn the_warning_of_a_retry_says_what_can_happen() {
    let fixture = Fixture::new();
    let (_, decision) = fixture.ask(draft);
    let host = fixture.host();
    let mut adapter = host.adapter("epoch-1");
    let warning = |attempt_id: &str| {
        let recovery = Recovery {
            attempt_id: attempt_id.to_owned(),
            action: RecoverAction::Retry,
            by: Actor::human("ann"),
        };
        recover(fixture.db(), &recovery).unwrap().warning
    };
    let last = refused_for_good(&fixture, &mut adapter);
    assert_eq!(warning(&last.attempt_id), None, "it was provably not done");
    let doubted = adapter.told_to_present();
    adapter.presented(
        &doubted,
        SendState::Unknown,
        Some(ErrorCode::TelegramResponseUnknown),
    );
    assert!(
        warning(&doubted.attempt_id)
            .unwrap()
            .contains("can now come twice")
    );
    adapter.show();
    assert!(fixture.answer_locally(&decision, "go").has_won());
    let (settling, _) = adapter.told_to_settle();
    host.adapter_ended();
    let words = warning(&settling.attempt_id).unwrap();
    assert!(words.contains("nothing comes twice"), "{words}");
}
