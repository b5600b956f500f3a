//! Who may speak, about what, and how often.

use holdpoint_channels::ChannelError;
use holdpoint_channels::commands::{self, Session};
use holdpoint_channels::model::{RejectReason, Relayed};
use holdpoint_channels::protocol::{AnswerOutcome, Report, SendState};
use holdpoint_state::StateError;

use crate::support::{Fixture, LEASE_MS, draft, go, message, redo, rejected, taken};

#[test]
fn channel_05_an_adapter_of_another_time_is_not_heard() {
    let fixture = Fixture::new();
    fixture.ask(draft);
    let host = fixture.host();
    let mut old = host.adapter("epoch-1");
    let mut showing = old.told_to_present();
    showing.messages.push(message("200", 0, 0));
    let mut report = old.message(
        &showing.attempt_id,
        showing.presented(SendState::Confirmed, None, None),
    );
    report.adapter_epoch = "epoch-0".to_owned();
    assert_eq!(old.send(&report), rejected(RejectReason::StaleAdapter));
    report.adapter_epoch = "epoch-1".to_owned();
    report.profile = "dev".to_owned();
    assert_eq!(old.send(&report), rejected(RejectReason::StaleAdapter));
    assert_eq!(fixture.effects(), ["channel.delivery applying 1"]);
}

#[test]
fn channel_07_a_report_that_comes_twice_counts_once() {
    let fixture = Fixture::new();
    fixture.ask(draft);
    let host = fixture.host();
    let mut adapter = host.adapter("epoch-1");
    let showing = adapter.show();
    let revision = adapter.revision;
    let before = fixture.rows();
    let again = adapter.presented(&showing, SendState::Confirmed, None);
    assert_eq!(again, Relayed::Repeated { answer: None });
    assert_eq!((adapter.revision, fixture.rows()), (revision, before));
    // The response may have been lost: then the repeat names the revision of before.
    adapter.revision = 1;
    assert_eq!(
        adapter.presented(&showing, SendState::Confirmed, None),
        Relayed::Repeated { answer: None }
    );
}

#[test]
fn channel_08_one_name_has_one_content() {
    let fixture = Fixture::new();
    fixture.ask(draft);
    let host = fixture.host();
    let mut adapter = host.adapter("epoch-1");
    let showing = adapter.show();
    let code = Some(holdpoint_channels::protocol::ErrorCode::TelegramRejected);
    assert_eq!(
        adapter.presented(&showing, SendState::Failed, code),
        rejected(RejectReason::OtherContent)
    );
    assert_eq!(
        adapter.press(&showing, &go("cb-1", 5)),
        taken(AnswerOutcome::Received)
    );
    assert_eq!(
        adapter.press(&showing, &redo("cb-1", "x", 5)),
        rejected(RejectReason::OtherContent)
    );
}

#[test]
fn channel_09_only_the_first_message_may_know_no_revision() {
    let fixture = Fixture::new();
    let host = fixture.host();
    let mut adapter = host.adapter("epoch-1");
    adapter.told_to_poll();
    let ready = |cursor| Report::Ready {
        cursor,
        error_code: None,
        bot_id: None,
        retry_after: None,
    };
    let id = "channel-".to_owned() + &"1".repeat(64);
    let known = adapter.revision;
    adapter.revision = 0;
    assert_eq!(
        adapter.report(&id, ready(4)),
        rejected(RejectReason::StaleRevision)
    );
    adapter.revision = known + 1;
    assert_eq!(
        adapter.report(&id, ready(4)),
        rejected(RejectReason::StaleRevision)
    );
    adapter.revision = known;
    assert_eq!(
        adapter.report(&id, ready(4)),
        Relayed::Taken { answer: None }
    );
    // Another report than `ready` may not be the first that knows none.
    let mut first = host.adapter("epoch-2");
    assert_eq!(
        first.report(
            &id,
            Report::Exiting {
                cursor: 9,
                error_code: None
            }
        ),
        rejected(RejectReason::StaleRevision)
    );
    adapter.sequence += 1;
    let mut skipped = adapter.message(&id, ready(5));
    skipped.sequence += 1;
    assert_eq!(adapter.send(&skipped), rejected(RejectReason::Sequence));
}

#[test]
fn a_host_that_lost_its_lease_relays_nothing() {
    let fixture = Fixture::new();
    fixture.ask(draft);
    let host = fixture.host();
    let mut adapter = host.adapter("epoch-1");
    let mut showing = adapter.told_to_present();
    showing.messages.push(message("200", 0, 0));
    fixture.store.clock().advance(LEASE_MS.unsigned_abs());
    let next = fixture.host();
    assert_eq!(fixture.effects(), ["channel.delivery ambiguous 1"]);
    let mut session = Session {
        db: fixture.db(),
        claim: &host.claim,
        channel: &host.channel,
        profile: &host.profile,
        adapter_epoch: "epoch-1",
        sequence: adapter.sequence,
    };
    let report = adapter.message(
        &showing.attempt_id,
        showing.presented(SendState::Confirmed, None, None),
    );
    let relayed = commands::relay(&mut session, &report);
    assert!(
        matches!(
            relayed,
            Err(ChannelError::State(StateError::ClaimLost { .. }))
        ),
        "{relayed:?}"
    );
    assert!(matches!(
        commands::next(&session, &fixture.config),
        Ok(_) | Err(ChannelError::State(_))
    ));
    assert_eq!(fixture.effects(), ["channel.delivery ambiguous 1"]);
    assert!(next.claim.generation() > host.claim.generation());
}

#[test]
fn one_host_has_a_profile() {
    let fixture = Fixture::new();
    let host = fixture.host();
    let owner = holdpoint_state::Owner::new(holdpoint_state::OwnerKind::Host, "second");
    let second = commands::start_host(fixture.db(), &host.channel, &owner, LEASE_MS);
    assert!(matches!(
        second,
        Err(ChannelError::State(StateError::LeaseHeld { .. }))
    ));
    commands::stop_host(fixture.db(), &host.claim).unwrap();
    commands::start_host(fixture.db(), &host.channel, &owner, LEASE_MS).unwrap();
}
