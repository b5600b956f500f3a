//! Section 9 of the reference: two processes at once, many rounds, one resolution, and every loser told which it was.

use std::collections::BTreeMap;

use holdpoint_decisions::{DecisionId, views};
use holdpoint_workflows::RunId;

use crate::child::Child;
use crate::world::{AFTER_MS, Home, Kind, LEASE_MS, World};

/// How many rounds each race has; `HOLDPOINT_RACE_ROUNDS` says otherwise.
const ROUNDS: usize = 200;

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
        let snapshot = world.db().snapshot().unwrap();
        let view = views::fetch(&snapshot, &decision, world.created_at(&decision))
            .unwrap()
            .unwrap();
        // Whoever is told of a winner is told the one that is stored.
        let won = view.resolution.unwrap().provenance().to_string();
        for told in [&pair.0, &pair.1] {
            let (words, by) = told.rsplit_once(' ').unwrap_or_default();
            if ["won", "adopted won", "conflict", "rejected"].contains(&words) && by != "key" {
                assert_eq!(by, won, "round {round}: {pair:?}");
            }
        }
        *seen.entry(pair).or_default() += 1;
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

/// A policy that holds the run's lease longer than it lasts, and whoever takes the run over then: what comes after the other claim is
/// refused whole.
#[test]
fn the_policy_and_whoever_takes_its_lease_over() {
    let home = Home::new();
    let world = World::open(&home.store);
    let mut children = [
        Child::start(&home.store, None),
        Child::start(&home.store, None),
    ];
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for (round, (run, decision)) in world.ask(Kind::Automatic, rounds()).iter().enumerate() {
        let due = world.created_at(decision).0 - crate::world::START + AFTER_MS;
        let [policy, other] = &mut children;
        policy.does(&format!("at {due}"));
        other.does(&format!("at {}", due + LEASE_MS));
        let held = generation(policy.does(&format!("hold {run}")));
        policy.tell(&format!("timeout-holding {decision}"));
        other.tell(&format!("hold {run}"));
        assert_eq!(
            (policy.hear(), other.hear()),
            ("ready".into(), "ready".into())
        );
        if round % 2 == 0 {
            policy.tell("go");
            other.tell("go");
        } else {
            other.tell("go");
            policy.tell("go");
        }
        let told = policy.hear();
        assert_eq!(generation(Some(other.hear())), held + 1);
        match told.as_str() {
            "won timeout_policy" => rows(&world, decision, 1),
            "claim lost" => {
                rows(&world, decision, 0);
                let repeated = other.does(&format!("timeout-holding {decision}"));
                assert_eq!(repeated.as_deref(), Some("won timeout_policy"));
            }
            _ => panic!("round {round}: {told}"),
        }
        *seen.entry(told).or_default() += 1;
        assert_eq!(other.does("release").as_deref(), Some("released"));
    }
    println!("{seen:?}");
    world.settle();
    world.verify();
}

fn generation(told: Option<String>) -> u64 {
    let told = told.unwrap();
    told.strip_prefix("generation ").unwrap().parse().unwrap()
}

/// A run that asks again, and a person who saw what it asked before. As long as that is over and nothing else is asked, its winner is
/// told; what is asked then is not answered by somebody who did not see it.
#[test]
fn the_next_attempt_and_an_answer_to_the_last_one() {
    let home = Home::new();
    let world = World::open(&home.store);
    let mut children = [
        Child::start(&home.store, None),
        Child::start(&home.store, None),
    ];
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for (round, (run, old)) in world.ask(Kind::Looping, rounds()).iter().enumerate() {
        assert_eq!(
            world.act(&format!("answer {old} redo-{round} redo")),
            "won human"
        );
        let [runner, person] = &mut children;
        runner.tell(&format!("turn {run}"));
        person.tell(&format!("insist {run} {old} go-{round}"));
        assert_eq!(
            (runner.hear(), person.hear()),
            ("ready".into(), "ready".into())
        );
        runner.tell("go");
        person.tell("go");
        let next = DecisionId::new(runner.hear()).unwrap();
        let told = person.hear();
        assert!(
            ["stale", "conflict human, stale"].contains(&told.as_str()),
            "round {round}: {told}"
        );
        *seen.entry(told).or_default() += 1;
        let snapshot = world.db().snapshot().unwrap();
        let view = views::fetch(&snapshot, &next, world.created_at(&next))
            .unwrap()
            .unwrap();
        assert!(view.resolution.is_none(), "round {round}");
        let found = views::submissions(&snapshot, &next).unwrap();
        let results: Vec<_> = found.iter().map(|row| row.result.as_str()).collect();
        assert_eq!(results, ["stale"], "round {round}");
    }
    println!("{seen:?}");
    world.settle();
    world.verify();
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
    // One generation asked and one went on; the runner that came second claimed nothing.
    assert_eq!(
        world.one(
            "SELECT count(*) FROM leases l JOIN runs r ON r.resource_key = l.resource_key WHERE l.generation <> 2"
        ),
        0
    );
    assert_eq!(world.one("SELECT count(*) FROM run_steps"), 2 * count);
    assert_eq!(
        world.one("SELECT count(*) FROM node_attempts WHERE node_id = 'gate'"),
        count
    );
    world.settle();
    world.verify();
}
