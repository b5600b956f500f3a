//! The conversation, record by record, without a process.

use proptest::prelude::*;

use super::*;

fn hear(dialogue: &mut Dialogue, record: &Value) -> Result<Option<Step>, PiError> {
    dialogue.hear(&Record::Whole(record.to_string().into_bytes()))
}

/// Takes records that are all understood; gives what had to be said and done, in a few words.
fn told(dialogue: &mut Dialogue, records: &[Value]) -> Vec<String> {
    let steps = records.iter().filter_map(|record| {
        hear(dialogue, record).unwrap_or_else(|error| panic!("{record}: {error}"))
    });
    steps
        .map(|step| match step {
            Step::Say(command) => format!(
                "say {} {}",
                command["type"].as_str().unwrap(),
                command["id"].as_str().unwrap()
            ),
            Step::Progress => "progress".to_owned(),
            Step::Settled => "settled".to_owned(),
        })
        .collect()
}

fn state(id: &str, is_streaming: bool) -> Value {
    json!({ "type": "response", "id": id, "command": "get_state", "success": true, "data": {
        "isStreaming": is_streaming,
        "sessionId": "s1",
        "model": { "provider": "p", "id": "m", "headers": { "authorization": "secret" } },
    } })
}

fn said(text: &str, stop: &str) -> Value {
    json!({ "type": "message_end", "message": {
        "role": "assistant",
        "content": [{ "type": "thinking", "thinking": "hm" }, { "type": "text", "text": text }],
        "stopReason": stop,
        "usage": { "input": 1, "output": 2, "cacheRead": 3, "cacheWrite": 4, "cost": { "total": 0.5 } },
    } })
}

fn failed(error: &str) -> Value {
    json!({ "type": "message_end", "message": {
        "role": "assistant", "content": [], "stopReason": "error", "errorMessage": error,
    } })
}

fn event(kind: &str) -> Value {
    json!({ "type": kind })
}

fn end() -> Value {
    json!({ "type": "agent_end", "messages": [] })
}

fn begin() -> Dialogue {
    let mut dialogue = Dialogue::default();
    let taken = json!({ "type": "response", "id": "prompt", "command": "prompt", "success": true });
    assert_eq!(told(&mut dialogue, &[taken]), ["say get_state begun"]);
    let rest = [
        state("begun", true),
        event("agent_start"),
        event("turn_start"),
    ];
    assert!(told(&mut dialogue, &rest).is_empty());
    dialogue
}

#[test]
fn the_work_is_settled_when_pi_tells_its_state_after_the_end() {
    let mut dialogue = begin();
    let records = [said("Done.", "stop"), end(), state("settled-1", false)];
    assert_eq!(
        told(&mut dialogue, &records),
        ["progress", "say get_state settled-1", "settled"]
    );
    let facts = format!("{:?}", dialogue.facts());
    assert!(
        !facts.contains("secret"),
        "of a model only its name is kept: {facts}"
    );
    assert_eq!(dialogue.reply(5).unwrap(), "Done.");
}

#[test]
fn what_is_announced_before_the_state_keeps_the_work_open() {
    let overflow = |kind: &str, will_retry: bool| json!({ "type": kind, "reason": "overflow", "willRetry": will_retry });
    for (announced, gives_up) in [
        (
            event("auto_retry_start"),
            json!({ "type": "auto_retry_end", "success": false }),
        ),
        (
            overflow("compaction_start", false),
            overflow("compaction_end", false),
        ),
    ] {
        // It goes on and ends well.
        let mut dialogue = begin();
        let records = [
            failed("overloaded"),
            end(),
            announced.clone(),
            state("settled-1", false),
        ];
        assert_eq!(
            told(&mut dialogue, &records),
            ["progress", "say get_state settled-1"]
        );
        let records = [
            overflow("compaction_end", true),
            event("agent_start"),
            said("Done.", "stop"),
            end(),
        ];
        assert_eq!(
            told(&mut dialogue, &records),
            ["progress", "say get_state settled-2"]
        );
        // An answer to the first question is none to the second.
        assert!(told(&mut dialogue, &[state("settled-1", false)]).is_empty());
        assert_eq!(
            told(&mut dialogue, &[state("settled-2", false)]),
            ["settled"]
        );
        assert_eq!(dialogue.reply(100).unwrap(), "Done.");

        // It gives up.
        let mut dialogue = begin();
        let records = [
            failed("overloaded"),
            end(),
            announced,
            state("settled-1", false),
            gives_up,
        ];
        assert_eq!(
            told(&mut dialogue, &records),
            [
                "progress",
                "say get_state settled-1",
                "say get_state settled-2"
            ]
        );
        assert_eq!(
            told(&mut dialogue, &[state("settled-2", false)]),
            ["settled"]
        );
        assert_eq!(
            dialogue.reply(100).unwrap_err(),
            PiError::Model {
                error: "overloaded".to_owned()
            }
        );
    }
}

#[test]
fn tidying_behind_an_answer_is_not_waited_for() {
    let mut dialogue = begin();
    let tidies = json!({ "type": "compaction_start", "reason": "threshold" });
    let records = [
        said("Done.", "stop"),
        end(),
        tidies,
        state("settled-1", false),
    ];
    assert_eq!(
        told(&mut dialogue, &records),
        ["progress", "say get_state settled-1", "settled"]
    );
}

#[test]
fn a_run_that_begins_before_the_state_is_told_keeps_the_work_open() {
    let mut dialogue = begin();
    let records = [
        said("First.", "stop"),
        end(),
        event("agent_start"),
        state("settled-1", false),
    ];
    assert_eq!(
        told(&mut dialogue, &records),
        ["progress", "say get_state settled-1"]
    );
}

#[test]
fn an_error_of_pi_itself_comes_with_the_end_only() {
    let mut dialogue = begin();
    let message = json!({ "role": "assistant", "content": [], "stopReason": "error", "errorMessage": "no key" });
    let user = json!({ "role": "user", "content": "hello" });
    let records = [
        said("Half.", "toolUse"),
        json!({ "type": "agent_end", "messages": [user, message] }),
        state("settled-1", false),
    ];
    told(&mut dialogue, &records);
    assert_eq!(
        dialogue.reply(100).unwrap_err(),
        PiError::Model {
            error: "no key".to_owned()
        }
    );
}

#[test]
fn a_prompt_that_is_not_run_is_an_error() {
    let refused =
        json!({ "type": "response", "id": "prompt", "success": false, "error": "no model" });
    assert_eq!(
        hear(&mut Dialogue::default(), &refused).unwrap_err(),
        PiError::PromptRejected {
            error: "no model".to_owned()
        }
    );
    assert_eq!(
        hear(&mut Dialogue::default(), &state("begun", false)).unwrap_err(),
        PiError::PromptNotRun
    );
}

#[test]
fn dialogs_are_dismissed_and_notices_are_not_answered() {
    let ask =
        |method: &str| json!({ "type": "extension_ui_request", "id": "u1", "method": method });
    for method in ["select", "confirm", "input", "editor"] {
        let step = hear(&mut Dialogue::default(), &ask(method)).unwrap();
        let answer = json!({ "type": "extension_ui_response", "id": "u1", "cancelled": true });
        assert_eq!(step, Some(Step::Say(answer)));
    }
    for method in [
        "notify",
        "setStatus",
        "setWidget",
        "setTitle",
        "set_editor_text",
    ] {
        assert_eq!(hear(&mut Dialogue::default(), &ask(method)).unwrap(), None);
    }
}

#[test]
fn numbers_that_are_none_count_as_nothing() {
    let mut dialogue = begin();
    let message = json!({ "type": "message_end", "message": {
        "role": "assistant", "content": "Done.", "stopReason": "stop",
        "usage": { "input": null, "output": -3, "cacheRead": 1e300, "cost": { "total": null } },
    } });
    told(
        &mut dialogue,
        &[message, said("x", "stop"), end(), state("settled-1", false)],
    );
    assert_eq!(
        serde_json::to_value(dialogue.facts().usage).unwrap(),
        json!({ "input": 1, "output": 2, "cacheRead": u64::MAX, "cacheWrite": 4, "cost": { "total": 0.5 } })
    );
}

#[test]
fn a_record_that_is_too_long_counts_where_the_work_can_go_on_without_it() {
    let long = |head: &str| Record::Long {
        head: head.as_bytes().to_vec(),
        bytes: 9_000_000,
    };
    let mut dialogue = begin();
    for (head, expected) in [
        (r#"{"type":"agent_end","messages":["#, Some("say")),
        (r#"{"type":"tool_execution_start","tool"#, Some("progress")),
        (r#"{"type":"tool_execution_end","tool"#, None),
        (
            r#"{"type":"message_end","message":{"role":"toolResult""#,
            None,
        ),
        (r#"{"type":"message_end","message":{"role":"user""#, None),
    ] {
        let step = dialogue.hear(&long(head)).unwrap().map(|step| match step {
            Step::Say(_) => "say",
            Step::Progress => "progress",
            Step::Settled => "settled",
        });
        assert_eq!(step, expected, "{head}");
    }
    for head in [
        r#"{"type":"message_end","message":{"role":"assistant""#,
        "xxxxxxxx",
        r#"{"id":"prompt","#,
    ] {
        let error = dialogue.hear(&long(head)).unwrap_err();
        assert_eq!(
            error,
            PiError::RecordTooLarge { bytes: 9_000_000 },
            "{head}"
        );
    }
}

#[test]
fn only_a_finished_text_is_a_reply() {
    let reply = |records: &[Value]| {
        let mut dialogue = begin();
        told(&mut dialogue, records);
        dialogue.reply(10).map_err(|error| error.to_string())
    };
    let rows: Vec<String> = [
        vec![said("0123456789", "stop")],
        vec![said("0123456789", "toolUse")],
        vec![said("0123456789a", "stop")],
        vec![said("0123456789", "length")],
        vec![said("0123456789", "aborted")],
        vec![said("0123456789", "new in 0.99")],
        vec![failed("overloaded")],
        vec![failed("overloaded"), said("ok", "stop")],
        vec![said("ok", "stop"), said(" \n", "stop")],
        vec![],
    ]
    .iter()
    .map(|records| format!("{:?}", reply(records)))
    .collect();
    insta::assert_snapshot!(rows.join("\n"), @r#"
    Ok("0123456789")
    Ok("0123456789")
    Err("the reply has more than 10 characters")
    Err("the reply ends where the model's limit was reached")
    Err("the model failed: the model stopped with \"aborted\"")
    Err("the model failed: the model stopped with \"new in 0.99\"")
    Err("the model failed: overloaded")
    Ok("ok")
    Err("the agent ended without a word")
    Err("the agent ended without a word")
    "#);
}

/// Records as pi could send them, in any order, and some that it could not.
fn any_record() -> impl Strategy<Value = Value> {
    const KINDS: [&str; 13] = [
        "response",
        "agent_start",
        "agent_end",
        "turn_start",
        "message_end",
        "tool_execution_start",
        "tool_execution_end",
        "auto_retry_start",
        "auto_retry_end",
        "compaction_start",
        "compaction_end",
        "extension_ui_request",
        "unheard_of",
    ];
    prop_oneof![
        Just(state("begun", true)),
        Just(state("settled-1", false)),
        Just(state("settled-2", false)),
        Just(said("a", "stop")),
        Just(failed("overloaded")),
        Just(end()),
        Just(event("agent_start")),
        Just(event("auto_retry_start")),
        Just(json!({ "type": "auto_retry_end", "success": false })),
        Just(json!({ "type": "compaction_end", "reason": "overflow", "willRetry": true })),
        Just(json!(["no", "object"])),
        prop::sample::select(&KINDS[..]).prop_map(event),
    ]
}

proptest! {
    #[test]
    fn no_order_of_records_panics_or_settles_without_an_end(records in prop::collection::vec(any_record(), 0..30)) {
        let mut dialogue = Dialogue::default();
        let mut ends = 0;
        for record in &records {
            ends += u32::from(record["type"] == "agent_end" || record["type"] == "auto_retry_end");
            match hear(&mut dialogue, record) {
                Ok(Some(Step::Settled)) => prop_assert!(0 < ends),
                Ok(_) => {}
                Err(_) => break,
            }
        }
        let _reply = dialogue.reply(10);
    }
}
