//! Random interleavings of a session, its host and the people around it, against what must always hold.

use std::collections::BTreeMap;

use holdpoint_workflows::commands::Control;
use holdpoint_workflows::model::{MessageKind, MessageStatus, TurnEnd};
use holdpoint_workflows::views::{MessageView, RunView};
use holdpoint_workflows::{SchedulerOptions, Workflows};
use proptest::collection::vec;
use proptest::prelude::{Just, ProptestConfig, Strategy, prop_oneof, proptest};
use serde_json::json;

use super::{Origin, naming};
use crate::support::{Fixture, LONG};

#[derive(Debug, Clone, Copy)]
enum Step {
    /// Adds the next message to the branch, and says so or not.
    Show {
        reports: bool,
    },
    Report {
        is_idle: bool,
        has_pending: bool,
    },
    /// Begins a turn with the latest message on the branch.
    Begin,
    End(TurnEnd),
    Submit {
        is_good: bool,
    },
    Pause,
    Resume,
    Cancel,
    /// Goes back to an earlier point of the branch.
    SwitchBranch,
    /// Executes whatever is due.
    Work,
    Disconnect,
    Attach,
    /// The host's process is gone, and another one takes its place.
    Restart,
    Advance(u16),
    Look,
}

fn step() -> impl Strategy<Value = Step> {
    let end = prop_oneof![
        3 => Just(TurnEnd::Completed),
        1 => Just(TurnEnd::Aborted),
        1 => Just(TurnEnd::Error),
    ];
    prop_oneof![
        6 => proptest::bool::weighted(0.8).prop_map(|reports| Step::Show { reports }),
        3 => (proptest::bool::ANY, proptest::bool::weighted(0.2))
            .prop_map(|(is_idle, has_pending)| Step::Report { is_idle, has_pending }),
        6 => Just(Step::Begin),
        5 => end.prop_map(Step::End),
        3 => proptest::bool::weighted(0.3).prop_map(|is_good| Step::Submit { is_good }),
        2 => Just(Step::Pause),
        3 => Just(Step::Resume),
        1 => Just(Step::Cancel),
        2 => Just(Step::SwitchBranch),
        3 => Just(Step::Work),
        1 => Just(Step::Disconnect),
        2 => Just(Step::Attach),
        1 => Just(Step::Restart),
        5 => (1_u16..400).prop_map(Step::Advance),
        2 => Just(Step::Look),
    ]
}

/// The test's own idea of what may be.
#[derive(Default)]
struct Model {
    /// How long turns can have gone on at most.
    spent_max: f64,
    /// What was measured, which never gets less.
    spent: f64,
    /// The messages as they were last seen.
    seen: BTreeMap<String, MessageView>,
    resumes: usize,
    switches: usize,
    submissions: usize,
}

fn work(workflows: &Workflows) {
    let scheduler = workflows.scheduler(SchedulerOptions::default()).unwrap();
    assert!(scheduler.wait_until_idle(LONG));
    scheduler.stop(LONG);
}

fn play(steps: &[Step]) {
    let fixture = Fixture::new();
    let mut origin = Origin::new(&fixture.workflows, "s");
    let scheduler = fixture.scheduler();
    let run = origin.start(&naming(), json!("Ada")).run_id;
    scheduler.stop(LONG);
    let control = Control::of(&run);
    let mut model = Model::default();
    for step in steps {
        let workflows = origin.workflows.clone();
        let before = workflows.view(&run).unwrap();
        match *step {
            Step::Show { reports } if origin.connection.is_some() => {
                if origin.add_next().is_some() && reports {
                    origin.report(false);
                }
            }
            Step::Report {
                is_idle,
                has_pending,
            } if origin.connection.is_some() => {
                origin.try_report(is_idle, has_pending).unwrap();
                if is_idle && !has_pending {
                    // An idle session has no turn to end.
                    origin.turn = None;
                }
            }
            Step::Begin if origin.connection.is_some() && origin.turn.is_none() => {
                begin(&mut origin, &before);
            }
            Step::End(end) if origin.connection.is_some() && origin.turn.is_some() => {
                origin.end(end);
            }
            Step::Submit { is_good } => {
                model.submissions += 1;
                let value = if is_good { json!(1) } else { json!("x") };
                let key = model.submissions.to_string();
                // Refused where the model says nothing: a run that is over, paused, or looks at another one.
                drop(workflows.submit(&origin.submission(&run, value, &key)));
            }
            Step::Pause => drop(workflows.pause(&control)),
            Step::Resume => model.resumes += usize::from(workflows.resume(&control).is_ok()),
            Step::Cancel => drop(workflows.cancel(&control)),
            Step::SwitchBranch => {
                model.switches += 1;
                origin.branch.pop();
            }
            Step::Work => work(&workflows),
            Step::Disconnect => origin.disconnect(),
            Step::Attach => origin.attach(),
            Step::Restart => {
                let next = Workflows::new(fixture.store.open().unwrap());
                next.register(&naming());
                origin.move_to(&next);
            }
            Step::Advance(ms) => {
                fixture.store.clock().advance(ms.into());
                if origin.turn.is_some() {
                    model.spent_max += f64::from(ms);
                }
            }
            Step::Look => workflows.look_after_sessions(),
            Step::Show { .. } | Step::Report { .. } | Step::Begin | Step::End(_) => {}
        }
        check(&fixture, &origin.workflows, &before, &mut model);
    }
    // Whatever happened, the run can be ended, and its session is told.
    let workflows = origin.workflows.clone();
    drop(workflows.cancel(&control));
    workflows.look_after_sessions();
    let view = workflows.view(&run).unwrap();
    assert!(view.status.is_terminal());
    let told = workflows.messages(&run).unwrap();
    assert_eq!(
        told.iter()
            .filter(|message| message.kind == MessageKind::Terminal)
            .count(),
        1
    );
    assert_eq!(fixture.violations(), Vec::<String>::new());
}

/// A turn with the latest message on the branch that is known to be there.
fn begin(origin: &mut Origin, view: &RunView) {
    let sent = origin.workflows.messages(&view.run_id).unwrap();
    let on_branch = |message: &&MessageView| {
        message.status == MessageStatus::Sent
            && message.kind.starts_turn()
            && origin
                .branch
                .iter()
                .any(|(id, _)| *id == message.message_id)
    };
    let Some(message) = sent.iter().rev().find(on_branch).cloned() else {
        return;
    };
    if view.open_turn.is_some() {
        // A process before this one began it, and the session knows no more of it.
        return;
    }
    origin.begin(&message);
}

fn check(fixture: &Fixture, workflows: &Workflows, before: &RunView, model: &mut Model) {
    assert_eq!(fixture.violations(), Vec::<String>::new());
    let view = workflows.view(&before.run_id).unwrap();
    assert!(before.run_revision <= view.run_revision);
    assert!(!before.status.is_terminal() || view.status == before.status);
    // One attempt of the agent from the first question to the end, whatever happens to hosts and sessions.
    let attempts = fixture.count("SELECT count(*) FROM node_attempts WHERE node_id = 'name'");
    assert_eq!(attempts, 1);
    let messages = workflows.messages(&before.run_id).unwrap();
    let steps = messages
        .iter()
        .filter(|message| message.kind == MessageKind::Step);
    assert!(steps.count() <= 1 + model.resumes + model.switches);
    for message in messages {
        let earlier = model
            .seen
            .insert(message.message_id.clone(), message.clone());
        if let Some(earlier) = earlier {
            assert_eq!(message.order_number, earlier.order_number);
            assert_eq!(message.content, earlier.content);
            match earlier.status {
                MessageStatus::Sent => assert_eq!(message, earlier),
                MessageStatus::Cancelled => assert_ne!(message.status, MessageStatus::Pending),
                MessageStatus::Pending => {}
            }
        }
    }
    let spent =
        fixture.count("SELECT CAST(total(elapsed_ms) AS INTEGER) FROM attempt_active_intervals");
    #[expect(clippy::cast_precision_loss, reason = "a few seconds")]
    let spent = spent as f64;
    assert!(model.spent <= spent, "time was taken back");
    assert!(
        spent <= model.spent_max,
        "{spent} ms were charged, of {} ms",
        model.spent_max
    );
    model.spent = spent;
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn sessions_keep_what_must_hold(steps in vec(step(), 1..40)) {
        play(&steps);
    }
}
