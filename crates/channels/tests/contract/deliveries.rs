//! A request is shown once, in numbered attempts, and never again blindly.

use holdpoint_channels::commands::{Recovery, recover};
use holdpoint_channels::identity::signal_id;
use holdpoint_channels::model::{RecoverAction, RejectReason, Relayed};
use holdpoint_channels::protocol::{ErrorCode, Order, Report, SendState};
use holdpoint_channels::views;
use holdpoint_decisions::model::{Block, Choice, Choices, Draft, Presentation};
use holdpoint_decisions::node::HumanDecision;
use holdpoint_state::Actor;
use holdpoint_state::clock::{Clock as _, UnixMillis};
use holdpoint_workflows::definition::{Waiting, Workflow};
use serde_json::{Value, json};

use crate::support::{
    Adapter, Fixture, LEASE_MS, LONG, draft, go, message, rejected, taken, timed,
};
use holdpoint_channels::protocol::AnswerOutcome;

const UNKNOWN: Option<ErrorCode> = Some(ErrorCode::TelegramResponseUnknown);

fn refused(status: u16) -> ErrorCode {
    ErrorCode::TelegramHttp(status)
}

/// What the operator sees of the one channel: how many requests were refused for good, and until when it is quiet.
fn listed(fixture: &Fixture) -> (u64, Option<UnixMillis>) {
    let snapshot = fixture.db().snapshot().unwrap();
    let channels = views::list(&snapshot, fixture.store.clock().now()).unwrap();
    (channels[0].refused, channels[0].quiet_until)
}

fn retry(fixture: &Fixture, attempt_id: &str) -> String {
    let recovery = Recovery {
        attempt_id: attempt_id.to_owned(),
        action: RecoverAction::Retry,
        by: Actor::human("ann"),
    };
    recover(fixture.db(), &recovery)
        .unwrap()
        .next_attempt_id
        .unwrap()
}

#[test]
fn channel_01_what_is_confirmed_is_never_sent_again() {
    let fixture = Fixture::new();
    let (_, decision) = fixture.ask(draft);
    {
        let host = fixture.host();
        let showing = host.adapter("epoch-1").show();
        assert_eq!(showing.decision_id, decision.as_str());
        fixture.store.clock().advance(LEASE_MS.unsigned_abs());
    }
    let host = fixture.host();
    assert_eq!(
        host.adapter("epoch-2").told_to_poll(),
        [decision.to_string()]
    );
    assert_eq!(fixture.effects(), ["channel.delivery applied 1"]);
}

#[test]
fn channel_10_a_refused_delivery_is_tried_three_times_and_the_decision_stays_open() {
    let fixture = Fixture::new();
    let (run, decision) = fixture.ask(draft);
    let host = fixture.host();
    let mut adapter = host.adapter("epoch-1");
    for attempt in 1..=3 {
        let showing = adapter.told_to_present();
        let relayed = adapter.presented(&showing, SendState::Failed, Some(refused(400)));
        assert_eq!(relayed, Relayed::Taken { answer: None });
        assert_eq!(
            fixture.effects(),
            [format!("channel.delivery rejected {attempt}")]
        );
        assert_eq!(
            adapter.told_to_poll(),
            Vec::<String>::new(),
            "it is not due at once"
        );
        for _ in 0..3 {
            fixture.store.clock().advance(20_000);
            fixture.db().renew(&host.claim).unwrap();
        }
    }
    assert_eq!(
        adapter.told_to_poll(),
        Vec::<String>::new(),
        "there is no fourth"
    );
    assert_eq!(
        listed(&fixture),
        (1, None),
        "its operator sees that nobody was asked there"
    );
    assert!(fixture.answer_locally(&decision, "go").has_won());
    assert_eq!(listed(&fixture), (0, None));
    assert_eq!(fixture.go_on(&run)["status"], "completed");
}

#[test]
fn channel_11_a_provider_that_wants_a_pause_gets_it() {
    let fixture = Fixture::new();
    fixture.ask(draft);
    let host = fixture.host();
    let mut adapter = host.adapter("epoch-1");
    let showing = adapter.told_to_present();
    adapter.report(
        &showing.attempt_id,
        showing.presented(SendState::Failed, Some(refused(429)), Some(7)),
    );
    fixture.store.clock().advance(6_999);
    assert_eq!(adapter.told_to_poll(), Vec::<String>::new());
    fixture.store.clock().advance(1);
    adapter.told_to_present();
    assert_eq!(fixture.effects(), ["channel.delivery applying 2"]);
}

#[test]
fn channel_11_a_wanted_pause_is_one_of_the_whole_bot_and_outlives_its_host() {
    let fixture = Fixture::new();
    let (_, first) = fixture.ask(draft);
    fixture.store.clock().advance(1);
    let (_, second) = fixture.ask(draft);
    {
        let host = fixture.host();
        let mut adapter = host.adapter("epoch-1");
        let showing = adapter.told_to_present();
        assert_eq!(showing.decision_id, first.as_str());
        adapter.report(
            &showing.attempt_id,
            showing.presented(SendState::Failed, Some(refused(429)), Some(40)),
        );
        // The other request has met no refusal, and is not shown all the same.
        assert_eq!(adapter.told_to_poll(), Vec::<String>::new());
        let until = fixture.store.clock().now().plus(40_000);
        assert_eq!(listed(&fixture), (0, Some(until)));
        fixture.store.clock().advance(LEASE_MS.unsigned_abs());
    }
    let host = fixture.host();
    let mut adapter = host.adapter("epoch-2");
    fixture.store.clock().advance(9_999);
    assert_eq!(adapter.told_to_poll(), Vec::<String>::new());
    fixture.store.clock().advance(1);
    assert_eq!(listed(&fixture), (0, None));
    assert_eq!(adapter.show().decision_id, first.as_str());
    assert_eq!(adapter.show().decision_id, second.as_str());
}

#[test]
fn channel_11_a_wait_uses_up_none_of_the_three_attempts() {
    let fixture = Fixture::new();
    fixture.ask(draft);
    let host = fixture.host();
    let mut adapter = host.adapter("epoch-1");
    let waits = [
        (refused(429), Some(7)),
        (ErrorCode::TelegramUnreachable, None),
        (refused(429), Some(7)),
        (ErrorCode::TelegramUnreachable, None),
    ];
    let refusals = [(refused(400), None); 3];
    for (number, (code, retry_after)) in (1..).zip(waits.into_iter().chain(refusals)) {
        let showing = adapter.told_to_present();
        adapter.report(
            &showing.attempt_id,
            showing.presented(SendState::Failed, Some(code), retry_after),
        );
        assert_eq!(
            fixture.effects(),
            [format!("channel.delivery rejected {number}")]
        );
        for _ in 0..3 {
            fixture.store.clock().advance(25_000);
            fixture.db().renew(&host.claim).unwrap();
        }
    }
    assert_eq!(adapter.told_to_poll(), Vec::<String>::new());
}

#[test]
fn channel_12_after_a_doubt_on_the_second_part_a_retry_starts_there() {
    let fixture = Fixture::new();
    let (_, decision) = fixture.ask(draft);
    let host = fixture.host();
    let mut adapter = host.adapter("epoch-1");
    let mut showing = adapter.told_to_present();
    adapter.part(&mut showing, message("200", 0, 0));
    adapter.presented(&showing, SendState::Unknown, UNKNOWN);
    assert_eq!(fixture.effects(), ["channel.delivery ambiguous 1"]);
    assert_eq!(
        adapter.told_to_poll(),
        Vec::<String>::new(),
        "never repeated without a person"
    );

    let next = retry(&fixture, &showing.attempt_id);
    let mut again = adapter.told_to_present();
    assert_eq!(again.attempt_id, next);
    assert_eq!(again.messages, [message("200", 0, 0)]);
    for part in [1, 2] {
        adapter.part(&mut again, message("200", 0, part));
    }
    adapter.presented(&again, SendState::Confirmed, None);
    assert!(fixture.answer_locally(&decision, "go").has_won());
    let (settling, _) = adapter.told_to_settle();
    assert_eq!(settling.messages.len(), 3);
    adapter.settled(&settling, SendState::Confirmed, None);
}

#[test]
fn channel_13_after_a_refusal_of_the_second_part_the_next_attempt_starts_there() {
    let fixture = Fixture::new();
    fixture.ask(draft);
    let host = fixture.host();
    let mut adapter = host.adapter("epoch-1");
    let mut showing = adapter.told_to_present();
    adapter.part(&mut showing, message("200", 0, 0));
    adapter.presented(&showing, SendState::Failed, Some(refused(400)));
    fixture.store.clock().advance(20_000);
    let mut again = adapter.told_to_present();
    assert_ne!(again.attempt_id, showing.attempt_id);
    assert_eq!(again.messages, [message("200", 0, 0)]);
    adapter.part(&mut again, message("200", 0, 1));
    assert_eq!(
        adapter.presented(&again, SendState::Confirmed, None),
        Relayed::Taken { answer: None }
    );
    assert_eq!(fixture.effects(), ["channel.delivery applied 2"]);
}

#[test]
fn channel_14_a_second_chat_that_refuses_does_not_repeat_the_first() {
    let fixture = Fixture::with_chats(&["200", "300"]);
    fixture.ask(draft);
    let host = fixture.host();
    let mut adapter = host.adapter("epoch-1");
    let mut showing = adapter.told_to_present();
    adapter.part(&mut showing, message("200", 0, 0));
    adapter.presented(&showing, SendState::Failed, Some(refused(403)));
    fixture.store.clock().advance(20_000);
    let mut again = adapter.told_to_present();
    assert_eq!(again.messages, [message("200", 0, 0)]);
    let incomplete = adapter.presented(&again, SendState::Confirmed, None);
    assert_eq!(
        incomplete,
        rejected(RejectReason::Incomplete),
        "the second chat is missing"
    );
    adapter.part(&mut again, message("300", 1, 0));
    assert_eq!(
        adapter.presented(&again, SendState::Confirmed, None),
        Relayed::Taken { answer: None }
    );
}

#[test]
fn a_part_is_known_before_the_attempt_ends() {
    let fixture = Fixture::new();
    fixture.ask(draft);
    let host = fixture.host();
    let mut adapter = host.adapter("epoch-1");
    let mut showing = adapter.told_to_present();
    adapter.part(&mut showing, message("200", 0, 0));
    // The process dies before it can report anything else.
    assert_eq!(host.adapter_ended(), 1);
    let next = retry(&fixture, &showing.attempt_id);
    let again = host.adapter("epoch-2").told_to_present();
    assert_eq!(
        (again.attempt_id, again.messages),
        (next, vec![message("200", 0, 0)])
    );
}

#[test]
fn a_part_with_other_content_is_never_sent_over() {
    let fixture = Fixture::new();
    fixture.ask(draft);
    let host = fixture.host();
    let mut adapter = host.adapter("epoch-1");
    let mut showing = adapter.told_to_present();
    adapter.part(&mut showing, message("200", 0, 0));
    showing.messages[0].message_id = 7;
    let relayed = adapter.presented(&showing, SendState::Confirmed, None);
    assert_eq!(relayed, rejected(RejectReason::OtherContent));
    let elsewhere = adapter.part(&mut showing.clone(), message("999", 1, 0));
    assert_eq!(elsewhere, rejected(RejectReason::NotAllowed));
}

#[test]
fn channel_20_a_document_of_twenty_one_parts_is_never_pending() {
    // Two of these do not fit into one message.
    let long = "x".repeat(2_100);
    let asks = |count: usize| {
        let blocks = vec![Block::paragraph(long.as_str()); count];
        let choices = Choices::new([("go", Choice::new("Go"))]).unwrap();
        let gate = HumanDecision::between("Ship", choices)
            .shows(Presentation::new("Ship it?", blocks).unwrap());
        Workflow::new("long")
            .start_at("gate")
            .node("gate", gate.into_kind())
            .switch("gate", "$.choice", [("go", "end")])
            .compute("end", |ctx| ctx.output::<Value>("gate"))
            .build()
            .unwrap()
    };
    let pending = "SELECT (SELECT count(*) FROM human_decisions) + (SELECT count(*) FROM interactive_requests)";

    let fixture = Fixture::new();
    let run = fixture.workflows.run(&asks(21), json!({})).unwrap();
    assert_eq!(fixture.go_on(&run)["status"], "failed");
    let error = fixture.workflows.wait(&run, LONG).unwrap().error.unwrap();
    assert!(
        error.contains("has 21; the limit is 20 parts for one recipient"),
        "{error}"
    );
    assert_eq!(fixture.count(pending), 0);
    let host = fixture.host();
    let mut adapter = host.adapter("epoch-1");
    assert_eq!(adapter.told_to_poll(), Vec::<String>::new());
    assert_eq!(fixture.effects(), Vec::<String>::new());

    // One part less is shown.
    let run = fixture.workflows.run(&asks(20), json!({})).unwrap();
    assert_eq!(fixture.go_on(&run)["status"], "waiting");
    assert_eq!(fixture.count(pending), 2);
    adapter.told_to_present();
}

#[test]
fn channel_40_what_is_resolved_before_it_was_shown_is_never_shown() {
    let fixture = Fixture::new();
    let (_, decision) = fixture.ask(draft);
    assert!(fixture.answer_locally(&decision, "go").has_won());
    let host = fixture.host();
    assert_eq!(host.adapter("epoch-1").told_to_poll(), Vec::<String>::new());
    assert_eq!(fixture.effects(), Vec::<String>::new());
}

#[test]
fn channel_41_what_is_resolved_while_it_is_sent_is_settled_afterwards() {
    let fixture = Fixture::new();
    let (_, decision) = fixture.ask(draft);
    let host = fixture.host();
    let mut adapter = host.adapter("epoch-1");
    let mut showing = adapter.told_to_present();
    assert!(fixture.answer_locally(&decision, "go").has_won());
    adapter.part(&mut showing, message("200", 0, 0));
    assert_eq!(
        adapter.presented(&showing, SendState::Confirmed, None),
        Relayed::Taken { answer: None }
    );
    let (settling, order) = adapter.told_to_settle();
    let Order::Settle {
        outcome, response, ..
    } = order
    else {
        unreachable!()
    };
    insta::assert_debug_snapshot!((outcome, response.unwrap().choice), @r#"
    (
        Accepted,
        "go",
    )
    "#);
    adapter.settled(&settling, SendState::Confirmed, None);
    assert_eq!(
        fixture.effects(),
        ["channel.delivery applied 1", "channel.settlement applied 1"]
    );
}

#[test]
fn past_its_deadline_nothing_is_shown_any_more() {
    let fixture = Fixture::new();
    fixture.ask(timed);
    fixture.store.clock().advance(600_000);
    let host = fixture.host();
    assert_eq!(host.adapter("epoch-1").told_to_poll(), Vec::<String>::new());
}

#[test]
fn only_the_channels_of_its_audience_show_a_request() {
    let fixture = Fixture::new();
    let (_, decision) = fixture.ask(draft);
    let both = fixture.config_of(&[("dev", &["200"]), ("ops", &["200"])]);
    let dev = {
        let mut host = fixture.host_of("ops");
        host.config = &both;
        host
    };
    let showing = dev.adapter("epoch-1").show();
    assert_eq!(showing.decision_id, decision.as_str());
    // Without a profile in the audience there is nothing to show.
    let other = holdpoint_channels::config::Config::default();
    let mut host = Fixture::new();
    host.config = fixture.config.clone();
    host.ask(draft);
    let mut lonely = host.host();
    lonely.config = &other;
    assert_eq!(
        lonely.adapter("epoch-1").told_to_poll(),
        Vec::<String>::new()
    );
}

#[test]
fn two_profiles_show_one_request_each_for_itself() {
    let mut fixture = Fixture::new();
    fixture.config = fixture.config_of(&[("dev", &["200"]), ("ops", &["200"])]);
    let (_, decision) = fixture.ask(draft);
    let (ops, dev) = (fixture.host_of("ops"), fixture.host_of("dev"));
    let (mut first, mut second) = (ops.adapter("epoch-1"), dev.adapter("epoch-2"));
    let shown = first.show();
    second.show();
    assert_eq!(
        first.press(&shown, &go("cb-1", 5)),
        taken(AnswerOutcome::Received)
    );
    for adapter in [&mut first, &mut second] {
        let (settling, _) = adapter.told_to_settle();
        assert_eq!(settling.decision_id, decision.as_str());
        adapter.settled(&settling, SendState::Confirmed, None);
        assert_eq!(adapter.told_to_poll(), Vec::<String>::new());
    }
}

/// A request of three parts.
fn of_three_parts(waiting: &Waiting<'_>) -> Draft {
    // Two of these do not fit into one message.
    let blocks = vec![Block::paragraph("x".repeat(2_100)); 3];
    Draft {
        presentation: Presentation::new("Ship it?", blocks).unwrap(),
        ..draft(waiting)
    }
}

#[test]
fn a_delivery_is_confirmed_when_every_chat_has_every_part() {
    let fixture = Fixture::with_chats(&["200", "300"]);
    fixture.ask(of_three_parts);
    let host = fixture.host();
    let mut adapter = host.adapter("epoch-1");
    let mut showing = adapter.told_to_present();
    // Both chats have as much as each other, and nobody has the part with the buttons.
    for part in [0, 1] {
        for (recipient, chat) in [(0, "200"), (1, "300")] {
            let relayed = adapter.presented(&showing, SendState::Confirmed, None);
            assert_eq!(relayed, rejected(RejectReason::Incomplete));
            adapter.part(&mut showing, message(chat, recipient, part));
        }
    }
    let relayed = adapter.presented(&showing, SendState::Confirmed, None);
    assert_eq!(relayed, rejected(RejectReason::Incomplete));
    // The last part alone is not all of it either.
    adapter.part(&mut showing, message("200", 0, 2));
    let relayed = adapter.presented(&showing, SendState::Confirmed, None);
    assert_eq!(relayed, rejected(RejectReason::Incomplete));
    adapter.part(&mut showing, message("300", 1, 2));
    assert_eq!(
        adapter.presented(&showing, SendState::Confirmed, None),
        Relayed::Taken { answer: None }
    );
}

#[test]
fn case_093_a_pause_that_met_no_attempt_is_stored_too_and_told_with_every_poll() {
    let fixture = Fixture::new();
    let host = fixture.host();
    let mut adapter = host.adapter("epoch-1");
    adapter.told_to_poll();
    let ready = Report::Ready {
        cursor: 0,
        error_code: None,
        bot_id: None,
        retry_after: Some(40),
    };
    let id = signal_id("epoch-1", "ready", 99, 0);
    assert_eq!(adapter.report(&id, ready), Relayed::Taken { answer: None });
    fixture.ask(draft);
    let quiet = |adapter: &mut Adapter<'_>| match adapter.ready() {
        Order::Poll { quiet_ms, .. } => quiet_ms,
        other => panic!("not told to poll: {other:?}"),
    };
    assert_eq!(quiet(&mut adapter), 40_000);
    fixture.store.clock().advance(20_000);
    fixture.db().renew(&host.claim).unwrap();
    let rows = fixture.rows();
    assert_eq!(quiet(&mut adapter), 20_000);
    assert_eq!(fixture.rows(), rows, "nothing is written again");
    fixture.store.clock().advance(20_000);
    adapter.told_to_present();
}
