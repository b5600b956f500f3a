//! Model turns of a session: who may begin one, how one ends, and what that does to the run.

use holdpoint_workflows::commands::{Control, TurnReport, TurnStart, TurnStop};
use holdpoint_workflows::model::{MessageStatus, RunStatus, SubmissionOutcome, TurnEnd};
use holdpoint_workflows::views::{Activity, Control as Hint, DisplayStatus};
use holdpoint_workflows::{SchedulerOptions, WorkflowError};
use serde_json::json;

use super::{Origin, naming};
use crate::support::{Fixture, LONG};

#[test]
fn edge_069_turns_without_a_submission_ask_nothing_more() {
    let fixture = Fixture::new();
    let scheduler = fixture.scheduler();
    let mut origin = Origin::new(&fixture.workflows, "s");
    let run = origin.start(&naming(), json!("Ada")).run_id;
    let message = origin.show().unwrap();
    for end in [
        TurnEnd::Completed,
        TurnEnd::Error,
        TurnEnd::Completed,
        TurnEnd::Completed,
    ] {
        assert_eq!(origin.begin(&message), TurnReport::Noted);
        assert_eq!(origin.end(end), TurnReport::Noted);
        origin.report(true);
        let view = fixture.workflows.view(&run).unwrap();
        assert_eq!(
            (view.status, view.request.unwrap().revision),
            (RunStatus::Waiting, 1)
        );
    }
    assert_eq!(fixture.count("SELECT count(*) FROM workflow_messages"), 1);
    assert_eq!(fixture.count("SELECT count(*) FROM workflow_turns"), 4);
    scheduler.stop(LONG);
}

#[test]
fn edge_085_a_turn_for_what_is_over_is_absent() {
    let fixture = Fixture::new();
    let scheduler = fixture.scheduler();
    let mut origin = Origin::new(&fixture.workflows, "s");
    let run = origin.start(&naming(), json!("Ada")).run_id;
    let message = origin.show().unwrap();
    fixture.workflows.pause(&Control::of(&run)).unwrap();
    assert_eq!(origin.begin(&message), TurnReport::Absent);
    fixture.workflows.cancel(&Control::of(&run)).unwrap();
    for _ in 0..2 {
        assert_eq!(origin.begin(&message), TurnReport::Absent);
    }
    origin.turn = Some(("s-turn-1".to_owned(), run));
    assert_eq!(origin.end(TurnEnd::Aborted), TurnReport::Absent);
    assert_eq!(fixture.count("SELECT count(*) FROM workflow_turns"), 0);
    scheduler.stop(LONG);
}

#[test]
fn edge_086_an_end_that_comes_after_the_end_of_the_run_is_taken() {
    let fixture = Fixture::new();
    let scheduler = fixture.scheduler();
    let mut origin = Origin::new(&fixture.workflows, "s");
    let run = origin.start(&naming(), json!("Ada")).run_id;
    origin.show_and_begin();
    let turn = origin.turn.clone();
    assert_eq!(
        origin.submit(&run, json!(1), "a").outcome,
        SubmissionOutcome::Accepted
    );
    fixture
        .workflows
        .wait_for(&run, LONG, |view| view.status.is_terminal())
        .unwrap();
    assert_eq!(
        fixture.count("SELECT count(*) FROM workflow_turns WHERE stop_reason = 'lost'"),
        1
    );
    assert_eq!(origin.end(TurnEnd::Completed), TurnReport::Adopted);
    // Another session has no word in it.
    let other = Origin::new(&fixture.workflows, "other");
    let (turn, run) = turn.unwrap();
    let foreign = other.connection().end_turn(&TurnStop {
        turn,
        run,
        end: TurnEnd::Completed,
        entry: None,
    });
    assert!(
        matches!(foreign, Err(WorkflowError::Conflict { .. })),
        "{foreign:?}"
    );
    scheduler.stop(LONG);
}

#[test]
fn an_end_is_reported_once_and_in_one_way() {
    let fixture = Fixture::new();
    let scheduler = fixture.scheduler();
    let mut origin = Origin::new(&fixture.workflows, "s");
    origin.start(&naming(), json!("Ada"));
    origin.show_and_begin();
    let turn = origin.turn.clone();
    origin.end(TurnEnd::Completed);
    let (turn, run) = turn.unwrap();
    let otherwise = origin.connection().end_turn(&TurnStop {
        turn,
        run,
        end: TurnEnd::Error,
        entry: None,
    });
    assert!(
        matches!(otherwise, Err(WorkflowError::Conflict { .. })),
        "{otherwise:?}"
    );
    scheduler.stop(LONG);
}

#[test]
fn edge_087_an_aborted_turn_pauses_a_run_that_still_asks() {
    let fixture = Fixture::new();
    let scheduler = fixture.scheduler();
    let mut origin = Origin::new(&fixture.workflows, "s");
    let run = origin.start(&naming(), json!("Ada")).run_id;
    let message = origin.show_and_begin();
    // The branch lost the message meanwhile, so that another one is still to be shown.
    fixture.store.clock().advance(40);
    origin.end(TurnEnd::Error);
    origin.branch.clear();
    assert_eq!(origin.report(true).replaced, 1);
    origin.put(&message.message_id);
    origin.branch[0].1 = "s-entry-1".to_owned();
    origin.report(false);
    assert_eq!(origin.begin(&message), TurnReport::Noted);
    // What was still to be shown is not needed once the model has begun.
    assert_eq!(origin.connection().next_message().unwrap(), None);
    let revision = fixture.workflows.view(&run).unwrap().run_revision;
    fixture.store.clock().advance(2);
    assert_eq!(origin.end(TurnEnd::Aborted), TurnReport::Noted);
    let view = fixture.workflows.view(&run).unwrap();
    assert!(view.paused);
    assert_eq!(
        (view.run_revision, view.display_status),
        (revision + 1, DisplayStatus::Paused)
    );
    assert_eq!(
        fixture.count("SELECT count(*) FROM attempt_active_intervals WHERE ended_at IS NULL"),
        0
    );
    let pending = fixture
        .workflows
        .messages(&run)
        .unwrap()
        .iter()
        .filter(|message| message.status == MessageStatus::Pending)
        .count();
    assert_eq!(pending, 0);
    assert_eq!(
        fixture.events(&run).last().map(String::as_str),
        Some("run.paused")
    );
    // The same report again changes nothing.
    origin.turn = Some(("s-turn-2".to_owned(), run.clone()));
    assert_eq!(origin.end(TurnEnd::Aborted), TurnReport::Adopted);
    fixture.workflows.resume(&Control::of(&run)).unwrap();
    assert_eq!(origin.show_and_begin().content["reason"], "resumed");
    scheduler.stop(LONG);
}

#[test]
fn edge_088_a_newer_connection_fences_the_older_one() {
    let fixture = Fixture::new();
    let scheduler = fixture.scheduler();
    let mut origin = Origin::new(&fixture.workflows, "s");
    let run = origin.start(&naming(), json!("Ada")).run_id;
    let message = origin.show_and_begin();
    let newer = Origin::new(&fixture.workflows, "s");
    assert!(origin.connection().epoch() < newer.connection().epoch());
    let (turn, _) = origin.turn.clone().unwrap();
    let start = TurnStart {
        turn: "another".to_owned(),
        message: message.message_id,
        run: run.clone(),
    };
    let stop = TurnStop {
        turn,
        run,
        end: TurnEnd::Completed,
        entry: None,
    };
    let refused = [
        origin.connection().next_message().map(|_| ()),
        origin.try_report(true, false).map(|_| ()),
        origin.connection().start_turn(&start).map(|_| ()),
        origin.connection().end_turn(&stop).map(|_| ()),
    ];
    for refused in refused {
        assert!(
            matches!(refused, Err(WorkflowError::Replaced { .. })),
            "{refused:?}"
        );
    }
    // The end of the older connection stops nothing of the newer one.
    origin.disconnect();
    assert_eq!(
        fixture.count("SELECT count(*) FROM attempt_active_intervals WHERE ended_at IS NULL"),
        1
    );
    assert_eq!(
        newer.connection().end_turn(&stop).unwrap(),
        TurnReport::Noted
    );
    scheduler.stop(LONG);
}

#[test]
fn a_turn_begins_only_with_a_message_that_is_on_the_branch_and_one_at_a_time() {
    let fixture = Fixture::new();
    let scheduler = fixture.scheduler();
    let mut origin = Origin::new(&fixture.workflows, "s");
    let run = origin.start(&naming(), json!("Ada")).run_id;
    let message = origin.add_next().unwrap();
    let start = |turn: &str, message: &str| TurnStart {
        turn: turn.to_owned(),
        message: message.to_owned(),
        run: run.clone(),
    };
    let refused =
        |turn: &TurnStart, origin: &Origin| origin.connection().start_turn(turn).unwrap_err();
    let early = refused(&start("t1", &message.message_id), &origin);
    assert!(matches!(early, WorkflowError::Conflict { .. }), "{early}");
    origin.report(false);
    let unknown = refused(&start("t1", "workflow-message-0"), &origin);
    assert!(
        matches!(unknown, WorkflowError::NoMessage { .. }),
        "{unknown}"
    );
    let nameless = refused(&start("", &message.message_id), &origin);
    assert!(
        matches!(nameless, WorkflowError::Input { .. }),
        "{nameless}"
    );
    origin
        .connection()
        .start_turn(&start("t1", &message.message_id))
        .unwrap();
    let second = refused(&start("t2", &message.message_id), &origin);
    assert!(matches!(second, WorkflowError::Conflict { .. }), "{second}");
    scheduler.stop(LONG);
}

#[test]
fn edge_110_an_open_turn_is_an_activity_and_no_status_of_a_run_that_asks() {
    let fixture = Fixture::new();
    let scheduler = fixture.scheduler();
    let mut origin = Origin::new(&fixture.workflows, "s");
    let run = origin.start(&naming(), json!("Ada")).run_id;
    let shown = || {
        let view = fixture.workflows.view(&run).unwrap();
        let turn = view.open_turn.map(|turn| turn.turn_id);
        (view.display_status, view.activity, turn, view.controls)
    };
    let controls = vec![Hint::Pause, Hint::Cancel, Hint::Update, Hint::Submit];
    assert_eq!(
        shown(),
        (DisplayStatus::Waiting, vec![], None, controls.clone())
    );
    origin.show_and_begin();
    let turn = Some("s-turn-1".to_owned());
    assert_eq!(
        shown(),
        (
            DisplayStatus::Waiting,
            vec![Activity::OriginTurn],
            turn.clone(),
            controls
        )
    );
    fixture.workflows.pause(&Control::of(&run)).unwrap();
    assert_eq!(
        shown(),
        (
            DisplayStatus::Paused,
            vec![Activity::OriginTurn],
            turn,
            vec![Hint::Resume, Hint::Cancel]
        )
    );
    scheduler.stop(LONG);
    // Accepted, and nobody who would go on with it: the turn alone makes it a run that goes on.
    fixture.workflows.resume(&Control::of(&run)).unwrap();
    let scheduler = fixture
        .workflows
        .scheduler(SchedulerOptions::default())
        .unwrap();
    origin.submit(&run, json!(1), "a");
    let view = fixture
        .workflows
        .wait_for(&run, LONG, |view| view.status.is_terminal())
        .unwrap();
    // The report of the turn's end is still to come.
    assert!(origin.turn.is_some());
    assert_eq!(view.display_status, DisplayStatus::Completed);
    assert_eq!(view.activity, []);
    scheduler.stop(LONG);
}
