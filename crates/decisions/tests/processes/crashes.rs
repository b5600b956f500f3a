//! Section 10 of the reference: a process is killed at every point of every transaction of a decision's life; the next one sends the same
//! commands again, and there is one decision, one answer, one use.

use std::collections::BTreeSet;

use holdpoint_decisions::DecisionId;
use holdpoint_state::testing::crash::Point;
use holdpoint_workflows::RunId;
use holdpoint_workflows::commands::Start;
use serde_json::json;

use crate::child::Child;
use crate::world::{AFTER_MS, Home, Kind, LEASE_MS, LONG, World, definition};

/// The run of these tests has a name, so that whoever comes next meets it.
const RUN: &str = "run-of-the-crash";

/// The whole life, from the start of the run to its end. Each step can be sent twice.
fn life(world: &World, kind: Kind) {
    let run = RunId::new(RUN).unwrap();
    let start = Start::new(&definition(kind), json!({})).run_id(run.clone());
    world.workflows.start(&start).unwrap();
    let scheduler = world.scheduler();
    // A lease of a process that died ends by itself; this clock is turned by hand.
    let mut view = world
        .workflows
        .wait_for(&run, std::time::Duration::from_millis(500), |view| {
            view.request.is_some() || view.finished_at.is_some()
        });
    if view.is_err() {
        world.clock.advance(120_000);
        world.workflows.offer(&run);
        view = world.workflows.wait_for(&run, LONG, |view| {
            view.request.is_some() || view.finished_at.is_some()
        });
    }
    let view = view.unwrap();
    if let Some(request) = view.request.filter(|_| view.finished_at.is_none()) {
        let decision = DecisionId::new(request.request_id).unwrap();
        let said = match kind {
            Kind::Unlimited => world.act(&format!("answer {decision} the-key go")),
            Kind::Automatic => {
                let begun = world.created_at(&decision).0 - crate::world::START;
                world.act(&format!("at {}", begun + AFTER_MS + 120_000));
                world.act(&format!("timeout {decision}"))
            }
            Kind::Expiring | Kind::Looping => unreachable!("no life of these tests"),
        };
        assert!(said.contains("won"), "{said}");
    }
    world.workflows.offer(&run);
    let ended = world
        .workflows
        .wait_for(&run, std::time::Duration::from_millis(500), |view| {
            view.finished_at.is_some()
        });
    if ended.is_err() {
        world.clock.advance(120_000);
        world.workflows.offer(&run);
        world
            .workflows
            .wait_for(&run, LONG, |view| view.finished_at.is_some())
            .unwrap();
    }
    scheduler.stop(LONG);
    world.settle();
}

pub(crate) fn live(world: &World, kind: &str) -> String {
    let kind = if kind == "policy" {
        Kind::Automatic
    } else {
        Kind::Unlimited
    };
    life(world, kind);
    "lived".to_owned()
}

fn one_of_each(world: &World, kind: Kind, at: &str, run: &RunId) {
    let view = world.workflows.view(run).unwrap();
    assert_eq!(view.final_output, Some(json!({ "choice": "go" })), "{at}");
    for (sql, expected) in [
        ("SELECT count(*) FROM runs", 1),
        ("SELECT count(*) FROM human_decisions", 1),
        ("SELECT count(*) FROM human_decision_resolutions", 1),
        ("SELECT count(*) FROM human_decision_submissions", 1),
        (
            "SELECT count(*) FROM interactive_requests WHERE consumed_at IS NOT NULL",
            1,
        ),
        ("SELECT count(*) FROM interactive_submissions", 1),
        ("SELECT count(*) FROM run_steps", 2),
        (
            "SELECT count(*) FROM node_attempts WHERE node_id = 'gate' AND status = 'completed'",
            1,
        ),
        ("SELECT count(*) FROM effects WHERE status = 'applied'", 1),
        ("SELECT count(*) FROM effects", 1),
    ] {
        assert_eq!(world.one(sql), expected, "{at}, {kind:?}: {sql}");
    }
    world.verify();
}

/// Where a dead process stood: the rows of the table, by what is stored. What is written and what was about to be written look alike, and
/// are gone on from alike.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Row {
    NotAsked,
    AskedNotAnswered,
    AnsweredNotUsed,
    UsedNotEnded,
    EndedNotSettled,
    Settled,
}

fn find(world: &World) -> Row {
    let has = |sql| 0 < world.one(sql);
    if !has("SELECT count(*) FROM human_decisions") {
        Row::NotAsked
    } else if !has("SELECT count(*) FROM human_decision_resolutions") {
        Row::AskedNotAnswered
    } else if !has("SELECT count(*) FROM interactive_requests WHERE consumed_at IS NOT NULL") {
        Row::AnsweredNotUsed
    } else if !has("SELECT count(*) FROM runs WHERE status = 'completed'") {
        Row::UsedNotEnded
    } else if has("SELECT count(*) FROM effects WHERE status <> 'applied'") {
        Row::EndedNotSettled
    } else {
        Row::Settled
    }
}

fn killed_everywhere(kind: Kind, road: &str) {
    let mut deaths = 0;
    let mut rows = BTreeSet::new();
    for point in [Point::AfterCommand, Point::BeforeCommit, Point::AfterCommit] {
        for count in 1.. {
            let home = Home::new();
            let at = format!("{}:{count}", point.as_str());
            let mut child = Child::start(&home.store, Some(&at));
            let lived = child.does(&format!("live {road}"));
            drop(child);
            let world = World::open(&home.store);
            if lived.is_none() {
                rows.insert(find(&world));
            }
            life(&world, kind);
            one_of_each(&world, kind, &at, &RunId::new(RUN).unwrap());
            if lived.is_some() {
                break;
            }
            deaths += 1;
        }
    }
    assert!(12 <= deaths, "{deaths} deaths");
    println!("{deaths} deaths");
    let all = [
        Row::NotAsked,
        Row::AskedNotAnswered,
        Row::AnsweredNotUsed,
        Row::UsedNotEnded,
        Row::EndedNotSettled,
        Row::Settled,
    ];
    assert_eq!(rows, BTreeSet::from(all));
}

#[test]
fn a_life_with_an_answer_survives_every_death() {
    killed_everywhere(Kind::Unlimited, "answer");
}

#[test]
fn a_life_with_the_policy_survives_every_death() {
    killed_everywhere(Kind::Automatic, "policy");
}

/// A host dies with the claim by which it would apply the policy. Its lease ends by itself; the next one claims one generation on and
/// applies it.
#[test]
fn a_policy_outlives_the_host_that_held_the_run_for_it() {
    // With nothing but its claim; and in the transaction that applies the policy, before it is durable.
    for crash in [None, Some("beforeCommit:2"), Some("beforeCommit:3")] {
        let home = Home::new();
        let world = World::open(&home.store);
        let (run, decision) = world.ask(Kind::Automatic, 1).remove(0);
        let due = world.created_at(&decision).0 - crate::world::START + AFTER_MS;
        let mut child = Child::start(&home.store, crash);
        child.does(&format!("at {due}")).unwrap();
        let held = child.does(&format!("hold {run}"));
        assert_eq!(held.as_deref(), Some("generation 2"), "{crash:?}");
        if crash.is_some() {
            assert_eq!(
                child.does(&format!("timeout-holding {decision}")),
                None,
                "it lived through {crash:?}"
            );
        }
        // Whatever it is doing, it is killed.
        drop(child);
        world.act(&format!("at {due}"));
        let timeout = format!("timeout {decision}");
        assert_eq!(world.act(&timeout), "held", "{crash:?}");
        assert_eq!(find(&world), Row::AskedNotAnswered, "{crash:?}");
        world.act(&format!("at {}", due + LEASE_MS));
        assert_eq!(world.act(&timeout), "won timeout_policy", "{crash:?}");
        assert_eq!(
            world.one(
                "SELECT l.generation FROM leases l JOIN runs r ON r.resource_key = l.resource_key"
            ),
            3
        );
        assert_eq!(world.act(&timeout), "adopted won timeout_policy");
        assert_eq!(world.act(&format!("resume {run}")), "go");
        world.settle();
        one_of_each(&world, Kind::Automatic, &format!("{crash:?}"), &run);
    }
}

#[test]
fn decision_29_crashes_between_answer_and_use_cost_nothing() {
    let home = Home::new();
    let world = World::open(&home.store);
    let run = RunId::new(RUN).unwrap();
    let start = Start::new(&definition(Kind::Unlimited), json!({})).run_id(run.clone());
    world.workflows.start(&start).unwrap();
    let scheduler = world.scheduler();
    let view = world.workflows.wait(&run, LONG).unwrap();
    scheduler.stop(LONG);
    let decision = DecisionId::new(view.request.unwrap().request_id).unwrap();
    assert_eq!(
        world.act(&format!("answer {decision} the-key go")),
        "won human"
    );
    for point in ["beforeBegin:1", "afterCommand:1", "beforeCommit:1"] {
        let mut child = Child::start(&home.store, Some(point));
        assert_eq!(
            child.does(&format!("resume {run}")),
            None,
            "it lived through {point}"
        );
    }
    life(&world, Kind::Unlimited);
    one_of_each(&world, Kind::Unlimited, "three deaths", &run);
    assert_eq!(world.one("SELECT count(*) FROM node_attempts"), 2);
}
