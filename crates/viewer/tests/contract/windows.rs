//! Windows at their limits, and the graph and the conversation at any place of a long run.

use holdpoint_viewer::documents::{Checkpoint, PageKind};
use holdpoint_viewer::replay::{GraphState, SessionEventView, fold};
use holdpoint_workflows::capture::SessionEvent;
use serde_json::{Value, json};

use crate::support::{Fixture, asking, entry, looping, turn};

fn items(page: &Value) -> Vec<Value> {
    page["items"].as_array().unwrap().clone()
}

/// The place of an item: from 0, as windows count.
fn first_seq(page: &Value) -> u64 {
    page["items"][0]["seq"].as_u64().unwrap() - 1
}

#[test]
fn a_window_has_256_items_and_64_kib_at_most() {
    let fixture = Fixture::new();
    let run = fixture.run(&asking(), json!(null));
    let segment = fixture.bind(&run, "one");
    let small: Vec<_> = (0..256).map(|n| entry(&format!("e{n}"), "")).collect();
    fixture.record_entries(&segment, &small);
    let all = fixture.view(&run).session.entry_page;
    assert_eq!((all.start, all.items.len(), all.total), (0, 256, 256));
    fixture.record_entries(&segment, &[entry("e256", "")]);
    let tail = fixture.view(&run).session.entry_page;
    assert_eq!((tail.start, tail.items.len(), tail.total), (1, 256, 257));
    // Four entries of 15 KiB fit, a fifth does not.
    let large: Vec<_> = (0..5)
        .map(|n| entry(&format!("l{n}"), &"x".repeat(15 * 1024)))
        .collect();
    fixture.record_entries(&segment, &large);
    let tail = fixture.view_json(&run)["session"]["entryPage"].clone();
    let bytes = serde_json::to_vec(&tail["items"]).unwrap().len();
    assert!(bytes <= 64 * 1024 + 2, "{bytes}");
    assert_eq!(first_seq(&tail), tail["start"].as_u64().unwrap());
    assert!((4..256).contains(&items(&tail).len()));
}

#[test]
fn a_page_holds_the_item_that_was_asked_for() {
    let fixture = Fixture::new();
    let run = fixture.run(&looping(), json!(400));
    let total = fixture.view(&run).step_total;
    assert_eq!(total, 801);
    for cursor in [0, 1, 127, 128, 255, 256, 257, 400, 799, 800, 801, u64::MAX] {
        let page = fixture.page(&run, PageKind::Steps, cursor);
        let (start, clamped) = (page["start"].as_u64().unwrap(), cursor.min(total - 1));
        let count = items(&page).len() as u64;
        assert!(
            start <= clamped && clamped < start + count && start + count <= total,
            "{cursor}"
        );
        assert_eq!(page["graphCursor"], clamped);
        let page = fixture.page(&run, PageKind::TraceAtStep, cursor);
        let step = fixture.page(&run, PageKind::Steps, clamped);
        let start = step["start"].as_u64().unwrap();
        let attempt = &step["items"][usize::try_from(clamped - start).unwrap()]["attemptId"];
        let began = items(&page)
            .into_iter()
            .any(|event| event["type"] == "node_started" && event["attemptId"] == *attempt);
        assert!(began, "{cursor}");
    }
}

#[test]
fn the_graph_at_any_step_is_the_fold_of_the_steps() {
    let fixture = Fixture::new();
    let run = fixture.run(&looping(), json!(150));
    let mut state = GraphState::default();
    let total = fixture.view(&run).step_total;
    for step in 0..total {
        let node = match step {
            0 => "begin",
            _ if step == total - 1 => "end",
            _ if step % 2 == 1 => "count",
            _ => "again",
        };
        state.step(node);
        if step % 13 != 0 && step + 3 < total {
            continue;
        }
        let page = fixture.page(&run, PageKind::Steps, step);
        let shown: Vec<(u64, String, u64)> = page["graphSteps"]
            .as_array()
            .unwrap()
            .iter()
            .map(|s| {
                (
                    s["stepIndex"].as_u64().unwrap(),
                    s["nodeId"].as_str().unwrap().to_owned(),
                    s["visit"].as_u64().unwrap(),
                )
            })
            .collect();
        let folded: Vec<_> = state
            .shown()
            .iter()
            .map(|v| (v.step, v.node.clone(), v.visit))
            .collect();
        assert_eq!(shown, folded, "{step}");
        assert_eq!(page["takenTransitions"], json!(state.taken()), "{step}");
    }
}

#[test]
fn the_conversation_at_any_event_is_the_fold_of_the_events() {
    let fixture = Fixture::new();
    let run = fixture.run(&asking(), json!(null));
    let segment = fixture.bind(&run, "one");
    // Messages that stay open, so that the state is not empty; 7 does not divide 256.
    let mut events: Vec<SessionEvent> = Vec::new();
    for n in 0..120 {
        let mut turn = turn(n, &"long ".repeat(n * 7), None);
        if n % 3 == 0 {
            turn.truncate(4);
        }
        events.extend(turn);
    }
    for (chunk, part) in events.chunks(100).enumerate() {
        fixture.record(&segment, i64::try_from(chunk * 100 + 1).unwrap(), part);
    }
    let mut state = Checkpoint::default();
    let mut states = vec![state.clone()];
    for (seq, event) in (1..).zip(&events) {
        let view = SessionEventView {
            seq,
            event_type: event.event_type.as_str(),
            message_id: event.message_id.as_deref(),
            tool_call_id: event.tool_call_id.as_deref(),
            payload: &event.payload,
        };
        state = fold(state, &view);
        assert!(serde_json::to_vec(&state).unwrap().len() <= 16 * 1024 * 2);
        states.push(state.clone());
    }
    for cursor in (0..events.len()).step_by(37) {
        let page = fixture.page(&run, PageKind::SessionEvents, cursor as u64);
        let start = usize::try_from(page["start"].as_u64().unwrap()).unwrap();
        if start == 0 {
            assert!(page.get("replayCheckpoint").is_none());
        } else {
            assert_eq!(
                page["replayCheckpoint"],
                serde_json::to_value(&states[start]).unwrap(),
                "{cursor}"
            );
        }
    }
}

#[test]
fn entries_are_those_around_the_event_that_was_asked_for() {
    let fixture = Fixture::new();
    let run = fixture.run(&asking(), json!(null));
    let segment = fixture.bind(&run, "one");
    for n in 0..400 {
        fixture.store.clock().advance(1_000);
        let id = format!("e{n}");
        fixture.record_entries(&segment, &[entry(&id, "said")]);
        fixture.record(
            &segment,
            7 * n + 1,
            &turn(usize::try_from(n).unwrap(), "said", Some(&id)),
        );
    }
    let page = fixture.page(&run, PageKind::SessionEntries, 7 * 200 + 3);
    let ids: Vec<String> = items(&page)
        .iter()
        .map(|item| item["entry"]["id"].as_str().unwrap().to_owned())
        .collect();
    assert!(
        ids.contains(&"e200".to_owned()),
        "{:?}..{:?}",
        ids.first(),
        ids.last()
    );
}
