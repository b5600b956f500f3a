//! What `verify` finds: each invariant, broken as only another program could, past the kernel and the checks of the schema.

use holdpoint_channels::DOMAIN;
use holdpoint_channels::protocol::{AnswerOutcome, SendState};
use holdpoint_state::Database;
use holdpoint_state::testing::plain;
use holdpoint_workflows::Workflows;
use holdpoint_workflows::commands::Control;

use crate::support::{Fixture, Host, draft, go, taken};

const DAMAGES: &[(&str, &str)] = &[
    ("C1", "UPDATE channels SET channel_id = 'telegram:x'"),
    ("C1", "DELETE FROM channels"),
    ("C2", "UPDATE channels SET profile_key = 'x'"),
    ("C2", "UPDATE channels SET adapter_type = 'pi'"),
    ("C3", "UPDATE channel_cursors SET cursor_value = '-1'"),
    (
        "C4",
        "UPDATE effects SET effect_type = 'channel.other' WHERE owner_scope = 'channel'",
    ),
    (
        "C4",
        "UPDATE effects SET idempotency_key = 'k' || resource_key WHERE owner_scope = 'channel'",
    ),
    (
        "C4",
        "UPDATE effects SET source_key = resource_key WHERE owner_scope = 'channel'",
    ),
    ("C7", "UPDATE effect_attempts SET lease_generation = 99"),
    ("C7", "UPDATE leases SET generation = 99"),
    (
        "C8",
        "DELETE FROM channel_messages WHERE status = 'confirmed'",
    ),
    (
        "C9",
        "UPDATE effects SET status = 'rejected' WHERE owner_scope = 'channel'",
    ),
    ("C10", "DELETE FROM human_decision_resolutions"),
    (
        "C11",
        "DELETE FROM channel_messages WHERE purpose = 'delivery'",
    ),
    (
        "C12",
        "UPDATE channel_messages SET status = 'confirmed' WHERE purpose = 'settlement'",
    ),
    (
        "C13",
        "UPDATE human_decision_submissions SET channel = 'telegram:x' WHERE source = 'channel'",
    ),
    (
        "C14",
        "UPDATE channel_messages SET decision_id = 'x' || decision_id",
    ),
    (
        "C14",
        "UPDATE channel_message_parts SET decision_id = 'x' || decision_id",
    ),
    (
        "C14",
        "UPDATE channel_inbox SET decision_id = 'x' || decision_id",
    ),
    (
        "C14",
        "UPDATE channel_shown SET decision_id = 'x' || decision_id",
    ),
    (
        "C15",
        "UPDATE events SET actor_type = 'session' WHERE event_type = 'channel.created'",
    ),
    (
        "C17",
        "UPDATE leases SET resource_key = (SELECT resource_key FROM channels) WHERE resource_key = (SELECT resource_key FROM resources WHERE resource_type = 'channel_host')",
    ),
    (
        "channelRecords",
        "DELETE FROM channel_messages WHERE status = 'pending'",
    ),
    (
        "channelRecords",
        "DELETE FROM channel_messages WHERE status <> 'pending'",
    ),
    (
        "channelShown",
        "UPDATE channel_shown SET decision_id = (SELECT decision_id FROM channel_messages WHERE purpose = 'settlement')",
    ),
    (
        "channelShown",
        "DELETE FROM channel_messages WHERE purpose = 'delivery' AND status = 'confirmed'",
    ),
];

/// A decision that was shown, answered there and settled; one that is shown; and one that is being sent.
fn world() -> Fixture {
    let fixture = Fixture::new();
    fixture.ask(draft);
    {
        let host = fixture.host();
        let mut adapter = host.adapter("epoch-1");
        let showing = adapter.show();
        assert_eq!(
            adapter.press(&showing, &go("cb-1", 5)),
            taken(AnswerOutcome::Received)
        );
        let (settling, _) = adapter.told_to_settle();
        adapter.settled(&settling, SendState::Confirmed, None);
        fixture.ask(draft);
        adapter.show();
        fixture.ask(draft);
        adapter.told_to_present();
    }
    fixture
}

#[test]
fn every_invariant_finds_what_breaks_it() {
    let fixture = world();
    let mut unseen: Vec<&str> = DOMAIN
        .invariants
        .iter()
        .map(|invariant| invariant.name)
        .collect();
    for (index, (name, damage)) in DAMAGES.iter().enumerate() {
        let path = fixture
            .store
            .directory()
            .join(format!("damaged-{index}.sqlite"));
        fixture.db().backup(&path).unwrap();
        let connection = plain::open(&path).unwrap();
        connection
            .execute_batch(
                "PRAGMA foreign_keys = OFF; PRAGMA ignore_check_constraints = ON;
                 DROP TRIGGER human_decision_resolutions_never_change; DROP TRIGGER human_decision_submissions_never_change;",
            )
            .unwrap();
        connection
            .execute_batch(damage)
            .unwrap_or_else(|error| panic!("{damage}: {error}"));
        let invariant = DOMAIN
            .invariants
            .iter()
            .find(|invariant| invariant.name == *name)
            .unwrap();
        let mut statement = connection.prepare(invariant.violations).unwrap();
        assert!(
            statement.exists([]).unwrap(),
            "{name} does not see: {damage}"
        );
        unseen.retain(|unseen| unseen != name);
        drop(statement);
        drop(connection);
        std::fs::remove_file(&path).unwrap();
    }
    assert_eq!(unseen, [""; 0], "never seen");
}

/// The request of the oldest decision is another one than was stored.
const BREAK: &str = "UPDATE blobs SET content = CAST(replace(CAST(content AS TEXT), 'Ship it?', 'Sell it?') AS BLOB)
    WHERE blob_hash = (SELECT request_hash FROM human_decisions ORDER BY resource_key LIMIT 1)";

/// One decision that nobody can read keeps no other from being shown, answered and settled.
#[test]
fn what_can_not_be_read_holds_up_no_channel() {
    for is_shown in [false, true] {
        let fixture = Fixture::new();
        let (run, broken) = fixture.ask(draft);
        // The other one is younger, so that the broken one would be in its way.
        fixture.store.clock().advance(1);
        let (_, whole) = fixture.ask(draft);
        let host = fixture.host();
        if is_shown {
            assert_eq!(host.adapter("epoch-1").show().decision_id, broken.as_str());
        }
        let path = fixture.store.directory().join("broken.sqlite");
        fixture.db().backup(&path).unwrap();
        let connection = plain::open(&path).unwrap();
        assert_eq!(connection.execute(BREAK, []).unwrap(), 1);
        drop(connection);
        let db = Database::open(&path, fixture.store.schema()).unwrap();
        fixture
            .store
            .clock()
            .advance(crate::support::LEASE_MS.unsigned_abs());
        let owner = holdpoint_state::Owner::new(holdpoint_state::OwnerKind::Host, "next");
        let claim = holdpoint_channels::commands::start_host(
            &db,
            &host.channel,
            &owner,
            10 * crate::support::LEASE_MS,
        )
        .unwrap();
        let host = Host {
            db: &db,
            channel: host.channel.clone(),
            profile: host.profile.clone(),
            claim,
            config: host.config,
        };
        let mut adapter = host.adapter("epoch-2");
        let showing = adapter.show();
        assert_eq!(showing.decision_id, whole.as_str());
        assert_eq!(adapter.told_to_poll(), [whole.to_string()]);
        // The broken one ends with its run. Its buttons stay, because nobody knows any more what was shown.
        Workflows::new(db.clone())
            .cancel(&Control::of(&run))
            .unwrap();
        assert_eq!(
            adapter.press(&showing, &go("cb-1", 5)),
            taken(AnswerOutcome::Received)
        );
        let (settling, _) = adapter.told_to_settle();
        assert_eq!(settling.decision_id, whole.as_str());
        adapter.settled(&settling, SendState::Confirmed, None);
        assert_eq!(adapter.told_to_poll(), [""; 0]);
    }
}
