//! Random forests of runs against a small model: which trees go, and which content survives.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use holdpoint_state::maintenance::retention::{SweepEnd, Taking};
use holdpoint_workflows::RunId;
use holdpoint_workflows::commands::Start;
use proptest::prelude::*;
use serde_json::Value;

use super::digest_of;
use crate::support::{Fixture, echo};

/// Inputs that the runs share: few, so that trees meet in their content.
const INPUTS: u8 = 5;

#[derive(Debug, Clone)]
enum Act {
    /// A new run with this input.
    Start(u8),
    /// Ends the newest run of a tree.
    End(prop::sample::Index),
    /// Restarts the newest run of a tree, when it is over.
    Restart(prop::sample::Index),
    /// Time passes, in milliseconds.
    Wait(u8),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        3 => (0..INPUTS).prop_map(Act::Start),
        4 => any::<prop::sample::Index>().prop_map(Act::End),
        2 => any::<prop::sample::Index>().prop_map(Act::Restart),
        2 => (0..5_u8).prop_map(Act::Wait),
    ];
    prop::collection::vec(act, 1..30)
}

/// A tree as the model knows it: its runs, each with the instant of its end.
struct Tree {
    input: u8,
    runs: Vec<(RunId, Option<i64>)>,
}

fn input(number: u8) -> Value {
    super::large(&number.to_string())
}

fn check(acts: &[Act], cutoff_ms: i64, held: &BTreeSet<u8>, is_prune: bool) {
    let fixture = Fixture::new();
    let clock = fixture.store.clock();
    let mut forest: Vec<Tree> = Vec::new();
    for (number, act) in acts.iter().enumerate() {
        match act {
            Act::Start(content) => {
                let run = RunId::new(format!("run-{number}")).unwrap();
                let start = Start::new(&echo(), input(*content)).run_id(run.clone());
                fixture.workflows.start(&start).unwrap();
                forest.push(Tree {
                    input: *content,
                    runs: vec![(run, None)],
                });
            }
            Act::End(index) if !forest.is_empty() => {
                let (run, ended) = index.get_mut(&mut forest).runs.last_mut().unwrap();
                if ended.is_none() {
                    fixture.end(run);
                    *ended = Some(fixture.now().0);
                }
            }
            Act::Restart(index) if !forest.is_empty() => {
                let tree = index.get_mut(&mut forest);
                if let (run, Some(_)) = tree.runs.last().unwrap() {
                    let child = fixture.restarted(run);
                    tree.runs.push((child, None));
                }
            }
            Act::Wait(time) => clock.advance(u64::from(*time)),
            Act::End(_) | Act::Restart(_) => {}
        }
    }
    let cutoff = holdpoint_state::clock::UnixMillis(holdpoint_state::testing::START + cutoff_ms);
    let goes = |tree: &Tree| {
        tree.runs
            .iter()
            .all(|(_, ended)| ended.is_some_and(|ended| ended < cutoff.0))
    };
    let (gone, kept): (Vec<&Tree>, Vec<&Tree>) = forest.iter().partition(|tree| goes(tree));
    let shown = |fixture: &Fixture| -> Vec<String> {
        kept.iter()
            .flat_map(|tree| &tree.runs)
            .map(|(run, _)| serde_json::to_string(&fixture.workflows.view(run).unwrap()).unwrap())
            .collect()
    };
    let before = shown(&fixture);

    let mut taking = Taking::before(cutoff);
    taking.held = held
        .iter()
        .map(|number| digest_of(&input(*number)))
        .collect();
    let db = fixture.store.db();
    let deleted = if is_prune {
        db.prune(&taking, fixture.backup()).unwrap().deleted
    } else {
        let report = db.sweep(&taking, |_| ControlFlow::Continue(())).unwrap();
        assert_eq!(report.end, SweepEnd::Completed);
        report.deleted
    };

    assert_eq!(usize::try_from(deleted.trees).unwrap(), gone.len());
    let mut left: Vec<String> = kept
        .iter()
        .flat_map(|tree| tree.runs.iter().map(|(run, _)| run.to_string()))
        .collect();
    left.sort();
    assert_eq!(fixture.runs(), left);
    for number in 0..INPUTS {
        let was_there = forest.iter().any(|tree| tree.input == number);
        let survives = kept.iter().any(|tree| tree.input == number) || held.contains(&number);
        assert_eq!(
            fixture.has_blob(digest_of(&input(number))),
            was_there && survives,
            "content {number}"
        );
    }
    assert_eq!(shown(&fixture), before);
    let report = db.verify().unwrap();
    assert!(report.is_clean(), "{report:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn what_goes_and_what_survives_is_what_the_model_says(
        acts in acts(),
        cutoff_ms in 0..30_i64,
        held in prop::collection::btree_set(0..INPUTS, 0..3),
        is_prune in prop::bool::weighted(0.3),
    ) {
        check(&acts, cutoff_ms, &held, is_prune);
    }
}
