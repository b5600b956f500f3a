//! What a page costs does not depend on how long the run or the list is. Counted are the instructions of SQLite, not time.

use holdpoint_state::testing::instructions;
use holdpoint_viewer::documents::PageKind;
use holdpoint_viewer::views::{self, ListPosition};
use holdpoint_workflows::RunId;
use serde_json::json;

use crate::support::{Fixture, asking, entry, looping, turn};

/// What each look at a run costs.
fn looks(fixture: &Fixture, run: &RunId) -> Vec<(String, u64)> {
    let mut snapshot = fixture.store.db().snapshot().unwrap();
    let (run, now) = (run.as_str(), fixture.now());
    let mut costs = Vec::new();
    let (_, cost) = instructions(&mut snapshot, |snapshot| {
        views::run_view(snapshot, run, now).unwrap()
    })
    .unwrap();
    costs.push(("view".to_owned(), cost));
    for kind in PageKind::ALL {
        // In the middle of each history, where a window is full and a replay begins far from the start.
        let (_, cost) = instructions(&mut snapshot, |snapshot| {
            views::page(snapshot, run, (kind, 400), now).unwrap()
        })
        .unwrap();
        costs.push((kind.as_str().to_owned(), cost));
    }
    costs
}

/// A run with so many rounds, and as many turns in its session.
fn long(fixture: &Fixture, rounds: i64) -> RunId {
    let run = fixture.run(&looping(), json!(rounds));
    let segment = fixture.bind(&run, "one");
    let turns = usize::try_from(rounds).unwrap();
    let said: Vec<_> = (0..turns).flat_map(|n| turn(n, "said", None)).collect();
    for (part, events) in said.chunks(500).enumerate() {
        fixture.record(&segment, i64::try_from(part * 500 + 1).unwrap(), events);
    }
    let entries: Vec<_> = (0..turns)
        .map(|n| entry(&format!("e{n}"), "said"))
        .collect();
    fixture.record_entries(&segment, &entries);
    run
}

#[test]
fn a_look_at_a_run_costs_the_same_however_long_the_run_is() {
    let fixture = Fixture::new();
    let short = looks(&fixture, &long(&fixture, 400));
    let long = looks(&fixture, &long(&fixture, 1_200));
    for ((kind, short), (_, long)) in short.iter().zip(&long) {
        // A little more for deeper trees and another place in a chunk, not three times as much.
        assert!(
            *long <= short + short / 4 + 20,
            "{kind}: {short} and {long}"
        );
    }
}

#[test]
fn a_page_of_the_list_costs_the_same_however_long_the_list_is() {
    let fixture = Fixture::new();
    let definition = asking();
    let page = |position| {
        let mut snapshot = fixture.store.db().snapshot().unwrap();
        let look = |snapshot: &holdpoint_state::Snapshot<'_>| {
            views::list_page(snapshot, None, position, 20, fixture.now()).unwrap()
        };
        instructions(&mut snapshot, look).unwrap()
    };
    let start = |count: i64| {
        (0..count).for_each(|n| drop(fixture.workflows.run(&definition, json!(n)).unwrap()));
    };
    start(60);
    let (_, short) = page(ListPosition::default());
    start(240);
    let ((_, next), long) = page(ListPosition::default());
    assert!(long <= short + short / 4, "{short} and {long}");
    let mut next = next;
    for _ in 0..10 {
        let ((_, after), deep) = page(next.unwrap());
        assert!(deep <= long + long / 4, "{long} and {deep}");
        next = after;
    }
}

#[test]
fn a_document_of_a_long_run_is_no_larger_than_its_windows() {
    let fixture = Fixture::new();
    let sizes = [300, 1_200].map(|rounds| {
        let run = fixture.run(&looping(), json!(rounds));
        holdpoint_state::json::to_canonical(&fixture.view(&run))
            .unwrap()
            .len()
    });
    assert!(sizes[1] < sizes[0] + sizes[0] / 10, "{sizes:?}");
}
