//! A host is killed at every point of every transaction of a channel's life; what the next one finds is a row of the reference's table
//! (section 10), and what it does then is what that row says.

use std::collections::BTreeSet;

use holdpoint_channels::commands::{Recovery, recover};
use holdpoint_channels::model::{RecoverAction, Relayed};
use holdpoint_channels::protocol::SendState;
use holdpoint_channels::views;
use holdpoint_decisions::DecisionId;
use holdpoint_state::Actor;
use holdpoint_state::testing::crash::Point;
use holdpoint_workflows::RunId;

use crate::child::{Child, Part};
use crate::support::draft;
use crate::world::{CURSOR, Home, Hosting, LEASE_MS, World};

/// Where a dead host stood, by what is stored and by what the provider did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Row {
    NothingBegun,
    CommandNotSent,
    ReportLost,
    EndLost,
    ResponseToDeliveryLost,
    AnswerNotCommitted,
    ResponseToAnswerLost,
    SettlementNotSent,
    SettlementReportLost,
    ResponseToSettlementLost,
}

impl Row {
    const ALL: [Self; 10] = [
        Self::NothingBegun,
        Self::CommandNotSent,
        Self::ReportLost,
        Self::EndLost,
        Self::ResponseToDeliveryLost,
        Self::AnswerNotCommitted,
        Self::ResponseToAnswerLost,
        Self::SettlementNotSent,
        Self::SettlementReportLost,
        Self::ResponseToSettlementLost,
    ];

    /// What a person says of the attempt that is in doubt, if one is. Whoever saw the message confirms it; a retry sends what is not
    /// confirmed.
    fn doubt(self) -> Option<RecoverAction> {
        match self {
            Self::CommandNotSent
            | Self::EndLost
            | Self::SettlementNotSent
            | Self::SettlementReportLost => Some(RecoverAction::Retry),
            Self::ReportLost => Some(RecoverAction::Confirm),
            Self::NothingBegun
            | Self::ResponseToDeliveryLost
            | Self::AnswerNotCommitted
            | Self::ResponseToAnswerLost
            | Self::ResponseToSettlementLost => None,
        }
    }
}

fn count(world: &World, verb: &str) -> usize {
    let provided = world.provided();
    provided
        .iter()
        .filter(|line| line.starts_with(verb))
        .count()
}

fn find(world: &World, decision: &DecisionId) -> Row {
    let (delivery, settlement) = (
        world.effect("channel.delivery"),
        world.effect("channel.settlement"),
    );
    let parts = world.one("SELECT count(*) FROM channel_message_parts");
    let is_resolved = world.winner(decision).is_some();
    match (delivery.as_deref(), settlement.as_deref()) {
        (None, None) => Row::NothingBegun,
        (Some("applying"), None) if count(world, "sent") == 0 => Row::CommandNotSent,
        (Some("applying"), None) if parts == 0 => Row::ReportLost,
        (Some("applying"), None) => Row::EndLost,
        (Some("applied"), None) if is_resolved => Row::ResponseToAnswerLost,
        (Some("applied"), None) if count(world, "pressed") == 0 => Row::ResponseToDeliveryLost,
        (Some("applied"), None) => Row::AnswerNotCommitted,
        (Some("applied"), Some("applying")) if count(world, "edited") == 0 => {
            Row::SettlementNotSent
        }
        (Some("applied"), Some("applying")) => Row::SettlementReportLost,
        (Some("applied"), Some("applied")) => Row::ResponseToSettlementLost,
        other => panic!("{other:?} is in no row"),
    }
}

/// The next host comes, does what the row says, and lives on to the end.
fn go_on(world: &World, run: &RunId, decision: &DecisionId, at: &str) -> Row {
    let row = find(world, decision);
    let is_resolved = world.winner(decision).is_some();
    let cursor = world.cursor("ops");
    assert_eq!(
        is_resolved,
        cursor == CURSOR,
        "{at}: answer and cursor are one transaction"
    );
    let (sent, edited) = (count(world, "sent"), count(world, "edited"));
    world.clock.advance(LEASE_MS.unsigned_abs());
    let host = world.host("ops");
    let doubts = views::ambiguous(&world.db().snapshot().unwrap()).unwrap();
    assert_eq!(
        doubts.len(),
        usize::from(row.doubt().is_some()),
        "{at}, {row:?}"
    );
    let mut hosting = Hosting::new(world, &host);
    hosting.work();
    if let (Some(action), [doubt]) = (row.doubt(), doubts.as_slice()) {
        assert_eq!(
            doubt.error_code.as_deref(),
            Some("host_restarted_without_receipt"),
            "{at}, {row:?}"
        );
        assert_eq!(
            (count(world, "sent"), count(world, "edited")),
            (sent, edited),
            "{at}, {row:?}: done again while it is in doubt"
        );
        let recovery = Recovery {
            attempt_id: doubt.attempt_id.clone(),
            action,
            by: Actor::human("ann"),
        };
        recover(world.db(), &recovery).unwrap();
        hosting.work();
    }
    if row == Row::ResponseToDeliveryLost {
        let showing = hosting.sent();
        let repeated = hosting
            .adapter
            .presented(&showing, SendState::Confirmed, None);
        assert_eq!(repeated, Relayed::Repeated { answer: None }, "{at}");
    }
    // The provider tells the press as long as the cursor is behind, and may tell it once more.
    let expected = if is_resolved {
        "repeated, received"
    } else {
        "received"
    };
    assert_eq!(hosting.press(), expected, "{at}, {row:?}");
    hosting.work();
    assert_eq!(world.finish(run), "completed", "{at}, {row:?}");
    world.settle();
    row
}

fn one_of_each(world: &World, at: &str) {
    assert_eq!(count(world, "sent"), 1, "{at}: {:?}", world.provided());
    for (sql, expected) in [
        ("SELECT count(*) FROM human_decision_resolutions", 1),
        ("SELECT count(*) FROM human_decision_submissions", 1),
        (
            "SELECT count(*) FROM channel_inbox WHERE external_event_id IS NOT NULL",
            1,
        ),
        ("SELECT count(*) FROM effects WHERE status <> 'applied'", 0),
        (
            "SELECT count(*) FROM effects WHERE owner_scope = 'channel'",
            2,
        ),
        ("SELECT count(*) FROM channel_shown", 0),
    ] {
        assert_eq!(world.one(sql), expected, "{at}: {sql}");
    }
    assert_eq!(world.cursor("ops"), CURSOR, "{at}");
    world.verify();
}

#[test]
fn a_host_that_is_killed_anywhere_leaves_a_row_of_the_table_and_nothing_is_shown_twice() {
    let mut rows = BTreeSet::new();
    let mut deaths = 0;
    for point in [Point::AfterCommand, Point::BeforeCommit, Point::AfterCommit] {
        for time in 1.. {
            let home = Home::with(&["ops"]);
            let world = World::open(home.path());
            let (run, decision) = world.ask(draft, 1).remove(0);
            let at = format!("{}:{time}", point.as_str());
            let mut child = Child::start(home.path(), Part::Host("ops"), Some(&at));
            let lived = child.does("live");
            drop(child);
            if lived.is_some() {
                break;
            }
            deaths += 1;
            rows.insert(go_on(&world, &run, &decision, &at));
            one_of_each(&world, &at);
        }
    }
    println!("{deaths} deaths");
    assert_eq!(rows, BTreeSet::from(Row::ALL));
}
