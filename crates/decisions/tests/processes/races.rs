//! Section 9 of the reference: two processes at once, many rounds, one resolution, and every loser told which it was.

use std::collections::BTreeMap;

use holdpoint_decisions::{DecisionId, views};
use holdpoint_workflows::RunId;

use crate::child::Child;
use crate::world::{AFTER_MS, Home, Kind, World};

/// How many rounds each race has; `HOLDPOINT_RACE_ROUNDS` says otherwise. The reference's 200 take too long for every build.
const ROUNDS: usize = 25;

fn rounds() -> usize {
    let told = std::env::var("HOLDPOINT_RACE_ROUNDS")
        .ok()
        .and_then(|text| text.parse().ok());
    told.unwrap_or(ROUNDS)
}

/// What the two processes do in one round, and when it is for each, after the creation.
type Plan = fn(usize, &RunId, &DecisionId) -> [(i64, String); 2];

/// Lets two processes race for decisions of a kind. Each pair of results must be one of these, in the order of the processes.
fn race(kind: Kind, plan: Plan, allowed: &[(&str, &str)], check: fn(&World, &RunId, &DecisionId)) {
    let home = Home::new();
    let world = World::open(&home.store);
    let mut children = [
        Child::start(&home.store, None),
        Child::start(&home.store, None),
    ];
    let mut seen: BTreeMap<(String, String), usize> = BTreeMap::new();
    // A sweep resolves whatever is due, so that one decision at a time is asked.
    let at_once = if allowed
        .iter()
        .any(|(_, second)| second.starts_with("swept"))
    {
        1
    } else {
        rounds()
    };
    let mut asked = Vec::new();
    for round in 0..rounds() {
        if asked.is_empty() {
            asked = world.ask(kind, at_once);
        }
        let Some((run, decision)) = asked.pop() else {
            break;
        };
        let begun = world.created_at(&decision).0 - crate::world::START;
        for (child, (at, task)) in children.iter_mut().zip(plan(round, &run, &decision)) {
            assert_eq!(
                child.does(&format!("at {}", begun + at)).as_deref(),
                Some("set")
            );
            child.tell(&task);
            assert_eq!(child.hear(), "ready");
        }
        // Who hears the word first changes from round to round.
        let [one, two] = &mut children;
        if round % 2 == 0 {
            one.tell("go");
            two.tell("go");
        } else {
            two.tell("go");
            one.tell("go");
        }
        let [one, two] = &mut children;
        let pair = (one.hear(), two.hear());
        assert!(
            allowed
                .iter()
                .any(|(first, second)| *first == pair.0 && *second == pair.1),
            "round {round}: {pair:?} is none of {allowed:?}"
        );
        *seen.entry(pair).or_default() += 1;
        let snapshot = world.db().snapshot().unwrap();
        let view = views::fetch(&snapshot, &decision, world.created_at(&decision))
            .unwrap()
            .unwrap();
        assert!(view.resolution.is_some());
        let rows = views::submissions(&snapshot, &decision).unwrap();
        assert_eq!(
            rows.iter()
                .filter(|row| row.result.as_str() == "won")
                .count(),
            1
        );
        drop(snapshot);
        check(&world, &run, &decision);
    }
    world.settle();
    world.verify();
    println!("{seen:?}");
}

fn nothing_more(_: &World, _: &RunId, _: &DecisionId) {}

fn rows(world: &World, decision: &DecisionId, expected: usize) {
    let snapshot = world.db().snapshot().unwrap();
    assert_eq!(
        views::submissions(&snapshot, decision).unwrap().len(),
        expected
    );
}

#[test]
fn two_people() {
    race(
        Kind::Unlimited,
        |round, _, decision| {
            // Every other time they agree, which makes no difference.
            let other = if round % 2 == 0 { "redo" } else { "go" };
            [
                (0, format!("answer {decision} a-{round} go")),
                (0, format!("submit {decision} b-{round} {other}")),
            ]
        },
        &[
            ("won human", "conflict human"),
            ("conflict human", "won human"),
        ],
        |world, _, decision| rows(world, decision, 2),
    );
}

#[test]
fn one_person_twice() {
    race(
        Kind::Unlimited,
        |round, _, decision| {
            let same = format!("submit {decision} a-{round} go");
            [(0, same.clone()), (0, same)]
        },
        &[
            ("won human", "adopted won human"),
            ("adopted won human", "won human"),
        ],
        |world, _, decision| rows(world, decision, 1),
    );
}

#[test]
fn one_key_for_two_answers() {
    race(
        Kind::Unlimited,
        |round, _, decision| {
            [
                (0, format!("answer {decision} a-{round} go")),
                (0, format!("answer {decision} a-{round} redo")),
            ]
        },
        &[("won human", "conflict key"), ("conflict key", "won human")],
        |world, _, decision| rows(world, decision, 1),
    );
}

#[test]
fn a_person_and_the_policy() {
    race(
        Kind::Automatic,
        // Their clocks are on both sides of the deadline.
        |round, _, decision| {
            [
                (AFTER_MS - 1, format!("answer {decision} a-{round} redo")),
                (AFTER_MS, format!("timeout {decision}")),
            ]
        },
        &[
            ("won human", "conflict human"),
            ("conflict timeout_policy", "won timeout_policy"),
        ],
        |world, _, decision| rows(world, decision, 2),
    );
}

#[test]
fn a_person_and_the_sweep() {
    race(
        Kind::Automatic,
        |round, _, decision| {
            [
                (AFTER_MS - 1, format!("submit {decision} a-{round} redo")),
                (AFTER_MS, "sweep".to_owned()),
            ]
        },
        &[
            ("won human", "swept 0"),
            ("conflict timeout_policy", "swept 1"),
        ],
        nothing_more,
    );
}

#[test]
fn the_policy_twice() {
    race(
        Kind::Automatic,
        |_, _, decision| {
            [
                (AFTER_MS, format!("timeout {decision}")),
                (AFTER_MS, format!("timeout {decision}")),
            ]
        },
        &[
            ("won timeout_policy", "adopted won timeout_policy"),
            ("adopted won timeout_policy", "won timeout_policy"),
        ],
        |world, _, decision| rows(world, decision, 1),
    );
}

#[test]
fn the_policy_and_an_expiry_that_is_none() {
    race(
        Kind::Automatic,
        |_, _, decision| {
            [
                (AFTER_MS, format!("timeout {decision}")),
                (AFTER_MS, format!("expire {decision}")),
            ]
        },
        &[("won timeout_policy", "not allowed")],
        |world, _, decision| rows(world, decision, 1),
    );
}

#[test]
fn a_person_and_control() {
    race(
        Kind::Unlimited,
        |round, _, decision| {
            [
                (0, format!("answer {decision} a-{round} go")),
                (0, format!("cancel {decision}")),
            ]
        },
        &[
            ("won human", "conflict human"),
            ("rejected explicit_cancel", "won explicit_cancel"),
        ],
        |world, _, decision| rows(world, decision, 2),
    );
}

#[test]
fn the_policy_and_control() {
    race(
        Kind::Automatic,
        |_, _, decision| {
            [
                (AFTER_MS, format!("timeout {decision}")),
                (AFTER_MS, format!("cancel {decision}")),
            ]
        },
        &[
            ("won timeout_policy", "conflict timeout_policy"),
            ("rejected explicit_cancel", "won explicit_cancel"),
        ],
        |world, _, decision| rows(world, decision, 2),
    );
}

#[test]
fn control_twice() {
    race(
        Kind::Unlimited,
        |_, _, decision| {
            [
                (0, format!("cancel {decision}")),
                (0, format!("cancel {decision}")),
            ]
        },
        &[
            ("won explicit_cancel", "adopted won explicit_cancel"),
            ("adopted won explicit_cancel", "won explicit_cancel"),
        ],
        |world, _, decision| rows(world, decision, 1),
    );
}

#[test]
fn the_expiry_and_control() {
    race(
        Kind::Expiring,
        |_, _, decision| {
            [
                (AFTER_MS, format!("expire {decision}")),
                (AFTER_MS, format!("cancel {decision}")),
            ]
        },
        &[
            ("won expired_no_default", "conflict expired_no_default"),
            ("conflict explicit_cancel", "won explicit_cancel"),
        ],
        |world, _, decision| rows(world, decision, 2),
    );
}

#[test]
fn a_person_and_the_end_of_the_run() {
    race(
        Kind::Unlimited,
        |round, run, decision| {
            [
                (0, format!("answer {decision} a-{round} go")),
                (0, format!("cancel-run {run}")),
            ]
        },
        &[
            ("won human", "run cancelled"),
            ("rejected explicit_cancel", "run cancelled"),
        ],
        |world, run, _| {
            let view = world.workflows.view(run).unwrap();
            assert_eq!(
                view.status,
                holdpoint_workflows::model::RunStatus::Cancelled
            );
            assert_eq!(
                world
                    .one("SELECT count(*) FROM interactive_requests WHERE consumed_at IS NOT NULL"),
                0
            );
        },
    );
}

/// The accepted answer is taken up by one of two runners, once.
#[test]
fn two_runners() {
    let home = Home::new();
    let world = World::open(&home.store);
    let mut children = [
        Child::start(&home.store, None),
        Child::start(&home.store, None),
    ];
    let asked = world.ask(Kind::Unlimited, rounds());
    for (round, (run, decision)) in asked.iter().enumerate() {
        assert_eq!(
            world.act(&format!("answer {decision} a-{round} go")),
            "won human"
        );
        for child in &mut children {
            child.tell(&format!("resume {run}"));
            assert_eq!(child.hear(), "ready");
        }
        for child in &mut children {
            child.tell("go");
        }
        for child in &mut children {
            assert_eq!(child.hear(), "go");
        }
    }
    let count = i64::try_from(asked.len()).unwrap();
    assert_eq!(
        world.one("SELECT count(*) FROM events WHERE event_type = 'interaction_accepted'"),
        count
    );
    assert_eq!(world.one("SELECT count(*) FROM run_steps"), 2 * count);
    assert_eq!(
        world.one("SELECT count(*) FROM node_attempts WHERE node_id = 'gate'"),
        count
    );
    world.settle();
    world.verify();
}
