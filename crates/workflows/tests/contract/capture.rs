//! Session capture: recordings keep what they are given whole and in order, and never hold a run up.

use holdpoint_state::{Disposition, Owner, OwnerKind, Receipt};
use holdpoint_workflows::capture::{
    BATCH_LIMIT_BYTES, HOST_INTERRUPTED, SessionEntry, SessionEvent, SessionEventType,
};
use holdpoint_workflows::commands::{self, Answer, BindSession, BoundSession, SessionEnd, Start};
use holdpoint_workflows::definition::Workflow;
use holdpoint_workflows::model::{EntryRole, RunStatus, SegmentStatus};
use holdpoint_workflows::views::{self, PAGE_ROWS, RunView, SegmentView};
use holdpoint_workflows::{AttemptId, RunId, SchedulerOptions, WorkflowError};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::support::{Fixture, LONG, asking, wait_until};

const HOST: &str = "host-1";

fn bind(fixture: &Fixture, run: &RunId, key: &str) -> String {
    let bind = BindSession::new(run, key, "session-1", HOST);
    commands::bind_session(fixture.store.db(), &bind)
        .unwrap()
        .value
        .segment_id
}

fn events(range: std::ops::RangeInclusive<i64>) -> Vec<SessionEvent> {
    range
        .map(|n| SessionEvent::new(SessionEventType::AssistantEvent, json!({ "n": n })))
        .collect()
}

fn append(
    fixture: &Fixture,
    segment: &str,
    first: i64,
    events: &[SessionEvent],
) -> Result<Receipt<()>, WorkflowError> {
    commands::append_events(fixture.store.db(), segment, HOST, (first, events))
}

fn entry(id: &str, text: &str) -> SessionEntry {
    SessionEntry {
        entry_id: id.to_owned(),
        content: json!({ "type": "message", "id": id, "message": { "role": "assistant", "content": [{ "type": "text", "text": text }] } }),
    }
}

fn append_entries(
    fixture: &Fixture,
    segment: &str,
    entries: &[SessionEntry],
) -> Result<Receipt<Vec<i64>>, WorkflowError> {
    commands::append_entries(fixture.store.db(), segment, HOST, entries)
}

fn finish(
    fixture: &Fixture,
    segment: &str,
    end: &SessionEnd,
) -> Result<Receipt<()>, WorkflowError> {
    commands::finish_session(fixture.store.db(), segment, HOST, end)
}

fn failed(code: &str) -> SessionEnd {
    SessionEnd::Failed {
        code: code.to_owned(),
        message: "the disk is full".to_owned(),
    }
}

fn recordings(fixture: &Fixture, run: &RunId) -> Vec<SegmentView> {
    views::recordings(&fixture.store.db().snapshot().unwrap(), run).unwrap()
}

/// The numbers of all events of a run, page after page.
fn numbers(fixture: &Fixture, run: &RunId, until: i64) -> Vec<i64> {
    let snapshot = fixture.store.db().snapshot().unwrap();
    let (mut found, mut after) = (Vec::new(), Some(0));
    while let Some(number) = after {
        let page = views::session_events(&snapshot, run, (number, until)).unwrap();
        assert!(page.rows.len() <= usize::from(PAGE_ROWS));
        found.extend(page.rows.iter().map(|event| event.run_seq));
        after = page.next_after;
    }
    found
}

fn is_refused<T: std::fmt::Debug>(result: &Result<T, WorkflowError>) -> bool {
    matches!(result, Err(WorkflowError::Recording { .. }))
}

#[test]
fn edge_105_batches_across_256_and_512_are_numbered_whole_over_all_recordings_of_the_run() {
    let fixture = Fixture::new();
    let run = fixture.run(&asking(), json!(null)).run_id;
    let (one, two) = (bind(&fixture, &run, "one"), bind(&fixture, &run, "two"));
    append(&fixture, &one, 1, &events(1..=200)).unwrap();
    append(&fixture, &two, 1, &events(1..=55)).unwrap();
    append(&fixture, &one, 201, &events(201..=458)).unwrap();
    assert_eq!(
        numbers(&fixture, &run, i64::MAX),
        (1..=513).collect::<Vec<_>>()
    );
    // A replay to a place reads up to it.
    assert_eq!(numbers(&fixture, &run, 300), (1..=300).collect::<Vec<_>>());
    let snapshot = fixture.store.db().snapshot().unwrap();
    let page = views::session_events(&snapshot, &run, (255, 256)).unwrap();
    assert_eq!((page.rows[0].event_seq, page.next_after), (201, None));
    let found = recordings(&fixture, &run);
    assert_eq!((found[0].event_count, found[1].event_count), (458, 55));
}

#[test]
fn edge_106_a_batch_with_a_gap_or_too_many_bytes_is_refused_whole() {
    let fixture = Fixture::new();
    let run = fixture.run(&asking(), json!(null)).run_id;
    let segment = bind(&fixture, &run, "one");
    append(&fixture, &segment, 1, &events(1..=2)).unwrap();
    let before = (
        fixture.rows(),
        fixture.count("SELECT count(*) FROM session_events"),
    );
    let three = events(3..=4);
    for first in [4, 2, 1, 0, -1, i64::MAX] {
        let refused = append(&fixture, &segment, first, &three);
        assert!(is_refused(&refused), "{first}: {refused:?}");
    }
    assert!(matches!(
        append(&fixture, &segment, 3, &[]),
        Err(WorkflowError::Input { .. })
    ));
    let sized = |bytes: usize| {
        let frame =
            serde_json::to_vec(&[SessionEvent::new(SessionEventType::TurnStarted, json!(""))])
                .unwrap()
                .len();
        [SessionEvent::new(
            SessionEventType::TurnStarted,
            json!("x".repeat(bytes - frame)),
        )]
    };
    let refused = append(&fixture, &segment, 3, &sized(BATCH_LIMIT_BYTES + 1));
    assert!(
        matches!(refused, Err(WorkflowError::Input { .. })),
        "{refused:?}"
    );
    assert_eq!(
        (
            fixture.rows(),
            fixture.count("SELECT count(*) FROM session_events")
        ),
        before
    );
    append(&fixture, &segment, 3, &sized(BATCH_LIMIT_BYTES)).unwrap();
    // The same batch again is there already.
    assert_eq!(
        append(&fixture, &segment, 1, &events(1..=2))
            .unwrap()
            .disposition,
        Disposition::Adopted
    );
    let nobody = append(&fixture, "segment-x", 1, &three);
    assert!(
        matches!(nobody, Err(WorkflowError::NoRecording { .. })),
        "{nobody:?}"
    );
    // Types are a closed set, and no batch of another is ever read.
    assert!(
        serde_json::from_value::<SessionEvent>(json!({ "type": "token_delta", "payload": 1 }))
            .is_err()
    );
}

#[test]
fn edge_107_and_edge_109_a_recording_that_fails_or_ends_late_does_not_touch_its_run() {
    let fixture = Fixture::new();
    let run = fixture.run(&asking(), json!(null)).run_id;
    let revision = fixture.workflows.view(&run).unwrap().run_revision;
    let (lost, late) = (bind(&fixture, &run, "lost"), bind(&fixture, &run, "late"));
    append(&fixture, &lost, 1, &events(1..=3)).unwrap();
    append_entries(&fixture, &lost, &[entry("a", "x")]).unwrap();
    finish(&fixture, &lost, &failed("recorder_error")).unwrap();
    assert_eq!(fixture.workflows.view(&run).unwrap().run_revision, revision);

    let scheduler = fixture.scheduler();
    fixture
        .workflows
        .answer(&Answer::new(&run, json!("yes")))
        .unwrap();
    let view = fixture.workflows.wait(&run, LONG).unwrap();
    scheduler.stop(LONG);
    assert_eq!(view.status, RunStatus::Completed);
    let found = recordings(&fixture, &run);
    assert_eq!(
        (found[0].status, &found[0].problems),
        (SegmentStatus::Failed, &vec![])
    );
    assert_eq!(found[0].failure.as_ref().unwrap()["code"], "recorder_error");
    assert_eq!(
        found[1].problems,
        ["it is still recorded, and its run does not go on"]
    );
    // Its last entries settle after the lease of the run is gone.
    append_entries(&fixture, &late, &[entry("a", "x")]).unwrap();
    finish(&fixture, &late, &SessionEnd::Complete).unwrap();
    assert_eq!(recordings(&fixture, &run)[1].problems, [""; 0]);
    assert_eq!(
        fixture.workflows.view(&run).unwrap().run_revision,
        view.run_revision
    );
}

#[test]
fn a_capture_key_is_bound_once() {
    let fixture = Fixture::new();
    let run = fixture.run(&asking(), json!(null)).run_id;
    let first =
        BindSession::new(&run, "one", "session-1", HOST).binding(json!({ "file": "a.jsonl" }));
    let commit = |bind: &BindSession| commands::bind_session(fixture.store.db(), bind);
    let BoundSession { segment_id, .. } = commit(&first).unwrap().value;
    assert_eq!(
        segment_id,
        holdpoint_state::id::derived_id("segment", &[run.as_str(), "one"])
    );
    append(&fixture, &segment_id, 1, &events(1..=2)).unwrap();
    let again = commit(&first).unwrap();
    assert_eq!(
        (again.disposition, again.value.event_count),
        (Disposition::Adopted, 2)
    );
    let attempt = fixture
        .workflows
        .view(&run)
        .unwrap()
        .current_attempt_id
        .unwrap();
    for other in [
        BindSession::new(&run, "one", "session-2", HOST).binding(json!({ "file": "a.jsonl" })),
        BindSession::new(&run, "one", "session-1", HOST).binding(json!({ "file": "b.jsonl" })),
        first.clone().of_attempt(&attempt),
    ] {
        let conflict = commit(&other);
        assert!(
            matches!(conflict, Err(WorkflowError::Conflict { .. })),
            "{conflict:?}"
        );
    }
    let stranger = AttemptId::new("of-another-run").unwrap();
    for bad in [
        BindSession::new(&run, "two", "", HOST),
        BindSession::new(&run, "two", "session-1", ""),
        BindSession::new(&run, "two", "session-1", HOST).of_attempt(&stranger),
    ] {
        assert!(matches!(commit(&bad), Err(WorkflowError::Input { .. })));
    }
    let nobody = RunId::new("nobody").unwrap();
    assert!(matches!(
        commit(&BindSession::new(&nobody, "one", "s", HOST)),
        Err(WorkflowError::NoRun { .. })
    ));
    assert_eq!(recordings(&fixture, &run).len(), 1);
}

#[test]
fn an_entry_is_kept_once() {
    let fixture = Fixture::new();
    let run = fixture.run(&asking(), json!(null)).run_id;
    let (one, two) = (bind(&fixture, &run, "one"), bind(&fixture, &run, "two"));
    assert_eq!(
        append_entries(&fixture, &one, &[entry("a", "x"), entry("b", "y")])
            .unwrap()
            .value,
        [1, 2]
    );
    let again = append_entries(&fixture, &one, &[entry("b", "y")]).unwrap();
    assert_eq!(
        (again.disposition, again.value),
        (Disposition::Adopted, vec![2])
    );
    assert_eq!(
        append_entries(&fixture, &one, &[entry("b", "y"), entry("c", "z")])
            .unwrap()
            .value,
        [2, 3]
    );
    // Another content under an id takes the whole batch with it.
    let other = append_entries(&fixture, &one, &[entry("d", "new"), entry("a", "other")]);
    assert!(is_refused(&other), "{other:?}");
    // Another recording may have the same entry.
    assert_eq!(
        append_entries(&fixture, &two, &[entry("a", "other")])
            .unwrap()
            .value,
        [1]
    );
    finish(&fixture, &one, &SessionEnd::Complete).unwrap();
    assert!(is_refused(&append_entries(
        &fixture,
        &one,
        &[entry("d", "late")]
    )));
    // What is there is there, also now.
    assert_eq!(
        append_entries(&fixture, &one, &[entry("a", "x")])
            .unwrap()
            .disposition,
        Disposition::Adopted
    );

    let snapshot = fixture.store.db().snapshot().unwrap();
    let page = views::session_entries(&snapshot, &run, 0).unwrap();
    let seen: Vec<(i64, i64, &str)> = page
        .rows
        .iter()
        .map(|entry| (entry.run_seq, entry.entry_seq, entry.entry_id.as_str()))
        .collect();
    assert_eq!(seen, [(1, 1, "a"), (2, 2, "b"), (3, 3, "c"), (4, 1, "a")]);
    assert_eq!(page.rows[1].content, entry("b", "y").content);
    assert_eq!(views::session_entries(&snapshot, &run, 4).unwrap().rows, []);
}

#[test]
fn the_first_end_of_a_recording_stays() {
    let fixture = Fixture::new();
    let run = fixture.run(&asking(), json!(null)).run_id;
    let (one, two) = (bind(&fixture, &run, "one"), bind(&fixture, &run, "two"));
    finish(&fixture, &one, &SessionEnd::Complete).unwrap();
    assert_eq!(
        finish(&fixture, &one, &SessionEnd::Complete)
            .unwrap()
            .disposition,
        Disposition::Adopted
    );
    assert!(is_refused(&finish(&fixture, &one, &failed("late"))));
    finish(&fixture, &two, &failed("full")).unwrap();
    assert_eq!(
        finish(&fixture, &two, &failed("full")).unwrap().disposition,
        Disposition::Adopted
    );
    assert!(is_refused(&finish(&fixture, &two, &failed("other"))));
    assert!(is_refused(&finish(&fixture, &two, &SessionEnd::Complete)));
    assert!(is_refused(&append(&fixture, &one, 1, &events(1..=1))));
}

#[test]
fn a_host_that_begins_fails_what_an_earlier_one_recorded() {
    let fixture = Fixture::new();
    let run = fixture.run(&asking(), json!(null)).run_id;
    let (open, ended) = (bind(&fixture, &run, "open"), bind(&fixture, &run, "ended"));
    finish(&fixture, &ended, &SessionEnd::Complete).unwrap();
    let ours = BindSession::new(&run, "ours", "session-1", "host-2");
    commands::bind_session(fixture.store.db(), &ours).unwrap();
    assert_eq!(
        commands::interrupt_recordings(fixture.store.db(), "host-2").unwrap(),
        [open]
    );
    assert_eq!(
        commands::interrupt_recordings(fixture.store.db(), "host-2").unwrap(),
        [""; 0]
    );
    let found = recordings(&fixture, &run);
    assert_eq!(found[0].failure.as_ref().unwrap()["code"], HOST_INTERRUPTED);
    assert_eq!(
        [found[0].status, found[1].status, found[2].status],
        [
            SegmentStatus::Failed,
            SegmentStatus::Complete,
            SegmentStatus::Recording
        ]
    );
    assert_eq!(
        fixture.workflows.view(&run).unwrap().status,
        RunStatus::Waiting
    );
}

/// Level-based: whoever searches for work ends what a dead process was recording, whenever it died.
#[test]
fn a_scheduler_fails_the_recordings_of_recorders_that_died() {
    let fixture = Fixture::new();
    let db = fixture.store.db();
    let run = fixture.run(&asking(), json!(null)).run_id;
    let record = |key: &str, recorder: &str| {
        let bind = BindSession::new(&run, key, "session-1", recorder);
        commands::bind_session(db, &bind).unwrap().value.segment_id
    };
    let (early, late, live) = (
        Owner::new(OwnerKind::Host, "early"),
        Owner::new(OwnerKind::Host, "late"),
        Owner::new(OwnerKind::Host, "live"),
    );
    let [early_presence, late_presence, _live_presence] =
        [&early, &late, &live].map(|owner| db.announce_owner(owner).unwrap());
    let died_before = record("one", early.id());
    let dies_meanwhile = record("two", late.id());
    let lives = record("three", live.id());
    let unknown = record("four", "never-announced");
    drop(early_presence);

    let status = |segment: &str| {
        let found = recordings(&fixture, &run);
        let found = found.iter().find(|found| found.segment_id == segment);
        found.unwrap().status
    };
    let scheduler = fixture.scheduler();
    assert_eq!(status(&died_before), SegmentStatus::Failed);
    let ours = record("five", scheduler.recorder());
    drop(late_presence);
    let next_search = SchedulerOptions::default().poll_interval_ms;
    wait_until("the recording ends", || {
        fixture.store.clock().advance(next_search);
        status(&dies_meanwhile) == SegmentStatus::Failed
    });
    assert_eq!(status(&ours), SegmentStatus::Recording);
    scheduler.stop(LONG);
    assert_eq!(status(&ours), SegmentStatus::Failed);
    for goes_on in [&lives, &unknown] {
        assert_eq!(status(goes_on), SegmentStatus::Recording);
    }
    let found = recordings(&fixture, &run);
    assert_eq!(found[0].failure.as_ref().unwrap()["code"], HOST_INTERRUPTED);
}

/// An interactive run whose session is asked to say something.
fn prompted(fixture: &Fixture) -> RunView {
    let definition = Workflow::new("prompted")
        .start_at("speak")
        .agent("speak", |_| Ok("say something".to_owned()))
        .build()
        .unwrap();
    let scheduler = fixture.scheduler();
    let start = Start::new(&definition, json!(null)).in_session("session-1");
    let run = fixture.workflows.start(&start).unwrap().value;
    let view = fixture.workflows.wait(&run, LONG).unwrap();
    scheduler.stop(LONG);
    view
}

#[test]
fn a_linked_prompt_is_read_from_its_entry() {
    let fixture = Fixture::new();
    let view = prompted(&fixture);
    let attempt = view.current_attempt_id.clone().unwrap();
    let segment = bind(&fixture, &view.run_id, "one");
    append_entries(
        &fixture,
        &segment,
        &[entry("a", "say something"), entry("b", "something else")],
    )
    .unwrap();
    let link = |role, entry: &str| {
        commands::link_entry(fixture.store.db(), &segment, HOST, (&attempt, role, entry))
    };
    let prompt = || views::prompt(&fixture.store.db().snapshot().unwrap(), &attempt).unwrap();
    assert_eq!(prompt().as_deref(), Some("say something"));
    let stored = "SELECT count(*) FROM node_attempts WHERE prompt_hash IS NOT NULL";
    assert_eq!(fixture.count(stored), 1);
    for (role, entry) in [
        (EntryRole::Prompt, "b"),
        (EntryRole::Prompt, "c"),
        (EntryRole::Response, "b"),
    ] {
        let refused = link(role, entry);
        assert!(is_refused(&refused), "{refused:?}");
    }
    link(EntryRole::Prompt, "a").unwrap();
    assert_eq!(fixture.count(stored), 0);
    assert_eq!(prompt().as_deref(), Some("say something"));
    assert_eq!(
        link(EntryRole::Prompt, "a").unwrap().disposition,
        Disposition::Adopted
    );
    link(EntryRole::First, "a").unwrap();
    link(EntryRole::Last, "b").unwrap();
    assert!(is_refused(&link(EntryRole::Last, "a")));
    let snapshot = fixture.store.db().snapshot().unwrap();
    let links: Vec<(EntryRole, String)> = views::attempt_links(&snapshot, &attempt)
        .unwrap()
        .into_iter()
        .map(|link| (link.role, link.entry_id))
        .collect();
    let expected = [
        (EntryRole::First, "a"),
        (EntryRole::Last, "b"),
        (EntryRole::Prompt, "a"),
    ];
    assert_eq!(
        links,
        expected.map(|(role, entry)| (role, entry.to_owned()))
    );
}

#[test]
fn a_response_is_linked_only_to_the_entry_that_says_it() {
    let definition = Workflow::new("saying")
        .start_at("say")
        .compute("say", |_| Ok("it is so"))
        .build()
        .unwrap();
    let fixture = Fixture::new();
    let view = fixture.run(&definition, json!(null));
    let attempt = view.steps[0].result.attempt_id.clone();
    let segment = bind(&fixture, &view.run_id, "one");
    append_entries(
        &fixture,
        &segment,
        &[entry("a", "it is so"), entry("b", "it is not")],
    )
    .unwrap();
    let link = |entry: &str| {
        commands::link_entry(
            fixture.store.db(),
            &segment,
            HOST,
            (&attempt, EntryRole::Response, entry),
        )
    };
    assert!(is_refused(&link("b")));
    link("a").unwrap();
    // The run's own history has it still.
    assert_eq!(
        fixture.workflows.view(&view.run_id).unwrap().final_output,
        Some(json!("it is so"))
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// Two recordings of one run against two lists: a batch is taken when it follows, adopted when it is there, refused else.
    #[test]
    fn batches_make_the_list_that_they_say(
        batches in proptest::collection::vec((0..2_usize, -2..6_i64, 1..5_i64, 0..3_u8), 1..40),
    ) {
        let fixture = Fixture::new();
        let run = fixture.run(&asking(), json!(null)).run_id;
        let segments = [bind(&fixture, &run, "one"), bind(&fixture, &run, "two")];
        let mut kept: [Vec<Value>; 2] = [Vec::new(), Vec::new()];
        let mut all = 0;
        for (which, offset, count, content) in batches {
            // About the end of what is there, and sometimes before it.
            let have = i64::try_from(kept[which].len()).unwrap();
            let first = if content == 2 { offset.max(1) } else { have + 1 + offset.min(1) };
            let payloads: Vec<Value> = (first..first + count).map(|n| json!({ "n": n, "c": content % 2 })).collect();
            let batch: Vec<SessionEvent> = payloads
                .iter()
                .map(|payload| SessionEvent::new(SessionEventType::MessageFinished, payload.clone()))
                .collect();
            let result = append(&fixture, &segments[which], first, &batch);
            let begin = usize::try_from(first - 1).ok();
            let there = begin.and_then(|begin| kept[which].get(begin..begin + batch.len()));
            if first == have + 1 {
                prop_assert_eq!(result.unwrap().disposition, Disposition::Accepted);
                all += batch.len();
                kept[which].extend(payloads);
            } else if there == Some(&payloads[..]) {
                prop_assert_eq!(result.unwrap().disposition, Disposition::Adopted);
            } else {
                prop_assert!(is_refused(&result));
            }
        }
        let snapshot = fixture.store.db().snapshot().unwrap();
        let page = views::session_events(&snapshot, &run, (0, i64::MAX)).unwrap();
        prop_assert_eq!(page.rows.len(), all);
        for (segment, kept) in segments.iter().zip(&kept) {
            let seen: Vec<&Value> = page.rows.iter().filter(|event| event.segment_id == *segment).map(|event| &event.payload).collect();
            prop_assert_eq!(seen, kept.iter().collect::<Vec<_>>());
        }
        prop_assert_eq!(fixture.violations(), Vec::<String>::new());
    }
}
