//! Following a run: patches lead from any retained revision to the fresh view.

use holdpoint_state::Actor;
use holdpoint_viewer::views::{self, Follow};
use holdpoint_workflows::RunId;
use holdpoint_workflows::commands::{
    Control, QueueFollowUp, SessionEnd, SettingsChange, finish_session, link_entry,
};
use holdpoint_workflows::model::EntryRole;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::support::{Fixture, RECORDER, asking, entry, kinds, looping, turn};

/// What is seen of a run now: the revision, and the document that patches lead to.
fn presented(fixture: &Fixture, run: &RunId) -> (u64, Value) {
    let view = fixture.view(run);
    (view.revision, views::presented(&view).unwrap())
}

/// Whether the patches since a view lead to the present one. None when it was too old.
fn follows(fixture: &Fixture, run: &RunId, (revision, view): &(u64, Value)) -> Option<()> {
    let snapshot = fixture.store.db().snapshot().unwrap();
    let Follow::Patches(patches) = views::deltas(&snapshot, run.as_str(), *revision).unwrap()
    else {
        return None;
    };
    let now = holdpoint_state::clock::Clock::now(fixture.store.clock());
    let fresh = views::run_view(&snapshot, run.as_str(), now).unwrap();
    let mut view = view.clone();
    for (_, deltas) in &patches {
        for delta in deltas {
            delta.apply(&mut view).unwrap();
        }
    }
    let fresh = views::presented(&fresh).unwrap();
    if view != fresh {
        for (name, value) in fresh.as_object().unwrap() {
            similar(&format!("/{name}"), &view[name], value);
        }
        panic!("they differ");
    }
    Some(())
}

/// Says where two documents differ first.
fn similar(at: &str, left: &Value, right: &Value) {
    match (left, right) {
        (Value::Object(l), Value::Object(r)) if l.keys().eq(r.keys()) => {
            l.iter()
                .for_each(|(name, value)| similar(&format!("{at}/{name}"), value, &r[name]));
        }
        (Value::Array(l), Value::Array(r)) if l.len() == r.len() => {
            l.iter()
                .zip(r)
                .enumerate()
                .for_each(|(i, (l, r))| similar(&format!("{at}/{i}"), l, r));
        }
        (l, r) => assert_eq!(l, r, "{at}: patched on the left, fresh on the right"),
    }
}

#[derive(Debug, Clone)]
enum Move {
    Answer { bytes: usize, ends: bool },
    Pause,
    Resume,
    Cancel,
    Settings(u32),
    FollowUp,
    Events { turns: usize, bytes: usize },
    Entries { count: usize, bytes: usize },
    Link { step: usize, last: bool },
    EndRecording,
    Wait,
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        6 => (prop::sample::select(vec![0, 10, 900, 3_000, 9_000, 20_000]), prop::bool::weighted(0.03))
            .prop_map(|(bytes, ends)| Move::Answer { bytes, ends }),
        1 => Just(Move::Pause),
        1 => Just(Move::Resume),
        1 => prop::bool::weighted(0.1).prop_map(|cancels| if cancels { Move::Cancel } else { Move::Resume }),
        2 => any::<u32>().prop_map(Move::Settings),
        1 => Just(Move::FollowUp),
        4 => (1..60_usize, 0..300_usize).prop_map(|(turns, bytes)| Move::Events { turns, bytes }),
        3 => (1..40_usize, prop::sample::select(vec![5, 2_000, 17_000]))
            .prop_map(|(count, bytes)| Move::Entries { count, bytes }),
        2 => (0..40_usize, any::<bool>()).prop_map(|(step, last)| Move::Link { step, last }),
        1 => Just(Move::EndRecording),
        1 => Just(Move::Wait),
    ];
    prop::collection::vec(one, 1..14)
}

/// What a random life needs to know of what was recorded so far.
#[derive(Default)]
struct Recorded {
    segments: usize,
    segment: Option<String>,
    events: i64,
    /// The first entry of the segment that goes on.
    first: usize,
    entries: usize,
    turns: usize,
}

fn make(fixture: &Fixture, run: &RunId, next: &Move, recorded: &mut Recorded) {
    let workflows = &fixture.workflows;
    let control = Control::of(run);
    match next {
        Move::Answer { bytes, ends } => {
            let view = workflows.view(run).unwrap();
            if view.display_status.as_str() == "waiting" {
                let way = if *ends { "end" } else { "again" };
                fixture.answer(run, json!({ "way": way, "bytes": bytes }));
            }
        }
        Move::Pause => drop(workflows.pause(&control)),
        Move::Resume => drop(workflows.resume(&control)),
        Move::Cancel => drop(workflows.cancel(&control)),
        Move::Settings(batch) => {
            let patch = json!([{ "op": "replace", "path": "/batch", "value": batch }]);
            drop(
                workflows.change_settings(&SettingsChange::new(run, patch).by(Actor::human("ada"))),
            );
        }
        Move::FollowUp => drop(workflows.queue_follow_up(&QueueFollowUp::new(run, "and then"))),
        Move::Events { turns, bytes } => {
            let segment = segment(fixture, run, recorded);
            let mut events = Vec::new();
            for _ in 0..*turns {
                recorded.turns += 1;
                let mut said = turn(recorded.turns, &"t".repeat(*bytes), None);
                said.truncate(3 + recorded.turns % 5);
                events.extend(said);
            }
            fixture.record(&segment, recorded.events + 1, &events);
            recorded.events += i64::try_from(events.len()).unwrap();
        }
        Move::Entries { count, bytes } => {
            let segment = segment(fixture, run, recorded);
            let first = recorded.entries;
            recorded.entries += count;
            let entries: Vec<_> = (first..recorded.entries)
                .map(|n| entry(&format!("e{n}"), &"e".repeat(*bytes)))
                .collect();
            fixture.record_entries(&segment, &entries);
        }
        Move::Link { step, last } => {
            let steps = fixture.view(run).state.steps;
            let (Some(segment), true) = (&recorded.segment, recorded.first < recorded.entries)
            else {
                return;
            };
            let attempt = steps[step % steps.len()].attempt_id.parse().unwrap();
            // Both ends of the range, or only one: then the record of the step says nothing yet.
            let roles = [EntryRole::First, EntryRole::Last];
            for role in roles.into_iter().take(1 + usize::from(*last)) {
                let id = format!("e{}", recorded.first);
                drop(link_entry(
                    fixture.store.db(),
                    segment,
                    RECORDER,
                    (&attempt, role, &id),
                ));
            }
        }
        Move::EndRecording => {
            if let Some(segment) = recorded.segment.take() {
                let end = if recorded.segments.is_multiple_of(2) {
                    SessionEnd::Complete
                } else {
                    SessionEnd::Failed {
                        code: "gone".to_owned(),
                        message: "it went".to_owned(),
                    }
                };
                finish_session(fixture.store.db(), &segment, RECORDER, &end).unwrap();
            }
        }
        Move::Wait => fixture.store.clock().advance(1_000),
    }
}

fn segment(fixture: &Fixture, run: &RunId, recorded: &mut Recorded) -> String {
    if let Some(segment) = &recorded.segment {
        return segment.clone();
    }
    recorded.segments += 1;
    recorded.events = 0;
    recorded.first = recorded.entries;
    let segment = fixture.bind(run, &format!("segment-{}", recorded.segments));
    recorded.segment = Some(segment.clone());
    segment
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: std::env::var("HOLDPOINT_VIEWER_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(8),
        max_shrink_iters: 40,
        ..ProptestConfig::default()
    })]

    #[test]
    fn case_102_patches_from_any_retained_revision_lead_to_the_fresh_view(moves in moves()) {
        let fixture = Fixture::new();
        let run = fixture.run(&asking(), json!(null));
        let mut seen = vec![presented(&fixture, &run)];
        let mut recorded = Recorded::default();
        for next in &moves {
            make(&fixture, &run, next, &mut recorded);
            let present = presented(&fixture, &run);
            // What changed has another revision.
            let (before, view) = seen.last().unwrap();
            prop_assert!(*before < present.0 || *view == present.1);
            seen.push(present);
        }
        let present = seen.last().unwrap().0;
        for view in &seen {
            let followed = follows(&fixture, &run, view);
            prop_assert_eq!(followed.is_some(), present <= view.0 + 256, "{} of {}", view.0, present);
        }
    }
}

#[test]
fn case_102_a_long_run_is_followed_from_its_last_256_revisions_only() {
    let fixture = Fixture::new();
    let run = fixture.workflows.run(&looping(), json!(200)).unwrap();
    let first = presented(&fixture, &run);
    let scheduler = fixture.scheduler();
    let mut seen = vec![first.clone()];
    while seen.last().unwrap().1["state"]["finishedAt"].is_null() && seen.len() < 200 {
        let present = presented(&fixture, &run);
        if present.0 != seen.last().unwrap().0 {
            seen.push(present);
        }
    }
    fixture.workflows.wait(&run, crate::support::LONG).unwrap();
    scheduler.stop(crate::support::LONG);
    let present = presented(&fixture, &run);
    assert!(first.0 + 256 < present.0);
    assert!(follows(&fixture, &run, &first).is_none());
    for view in &seen {
        assert_eq!(
            follows(&fixture, &run, view).is_some(),
            present.0 <= view.0 + 256
        );
    }
    let snapshot = fixture.store.db().snapshot().unwrap();
    let follow = |since| views::deltas(&snapshot, run.as_str(), since).unwrap();
    assert_eq!(follow(0), Follow::SnapshotRequired);
    assert_eq!(follow(present.0 + 1), Follow::SnapshotRequired);
    assert_eq!(follow(present.0), Follow::Patches(Vec::new()));
    assert!(matches!(follow(present.0 - 256), Follow::Patches(patches) if patches.len() == 256));
    assert_eq!(follow(present.0 - 257), Follow::SnapshotRequired);
}

#[test]
fn a_run_of_every_kind_is_followed_from_its_first_view() {
    let fixture = Fixture::new();
    let run = fixture
        .workflows
        .run(&kinds(), json!("x".repeat(20_000)))
        .unwrap();
    let first = presented(&fixture, &run);
    let scheduler = fixture.scheduler();
    fixture.workflows.wait(&run, crate::support::LONG).unwrap();
    scheduler.stop(crate::support::LONG);
    follows(&fixture, &run, &first).unwrap();
    fixture.answer(&run, json!("z".repeat(20_000)));
    follows(&fixture, &run, &first).unwrap();
}
