//! The client's rules for documents (client protocol, section 3), as strict as it is: what it needs, and the words that it knows.
//! Unknown members are nobody's business.

use serde_json::Value;

type Problem = Result<(), String>;

fn fail(at: &str, problem: impl std::fmt::Display) -> Problem {
    Err(format!("{at}: {problem}"))
}

fn member<'a>(value: &'a Value, at: &str, name: &str) -> Result<&'a Value, String> {
    value
        .get(name)
        .ok_or_else(|| format!("{at}/{name}: missing"))
}

fn text(value: &Value, at: &str, names: &[&str]) -> Problem {
    for name in names {
        if !member(value, at, name)?.is_string() {
            return fail(at, format_args!("{name} is no string"));
        }
    }
    Ok(())
}

fn maybe(value: &Value, at: &str, names: &[&str], is: fn(&Value) -> bool) -> Problem {
    for name in names {
        if let Some(found) = value.get(name)
            && !found.is_null()
            && !is(found)
        {
            return fail(at, format_args!("{name} is {found}"));
        }
    }
    Ok(())
}

fn number(value: &Value, at: &str, names: &[&str]) -> Problem {
    for name in names {
        if !member(value, at, name)?.is_u64() {
            return fail(at, format_args!("{name} is no unsigned integer"));
        }
    }
    Ok(())
}

fn word(value: &Value, at: &str, name: &str, words: &[&str]) -> Problem {
    match member(value, at, name)?.as_str() {
        Some(word) if words.contains(&word) => Ok(()),
        other => fail(at, format_args!("{name} is {other:?}")),
    }
}

fn items<'a>(value: &'a Value, at: &str, name: &str) -> Result<&'a [Value], String> {
    let found = member(value, at, name)?.as_array();
    found
        .map(Vec::as_slice)
        .ok_or_else(|| format!("{at}/{name}: no array"))
}

const STATUS: &[&str] = &[
    "queued",
    "running",
    "waiting",
    "paused",
    "completed",
    "failed",
    "timed_out",
    "cancelled",
    "ambiguous",
];

fn timestamp(value: &Value, at: &str, name: &str) -> Problem {
    let text = member(value, at, name)?.as_str().unwrap_or_default();
    let shape: String = text
        .chars()
        .map(|c| if c.is_ascii_digit() { '0' } else { c })
        .collect();
    if shape == "0000-00-00T00:00:00.000Z" {
        Ok(())
    } else {
        fail(at, format_args!("{name} is {text:?}"))
    }
}

pub(crate) fn display(value: &Value, at: &str) -> Problem {
    word(value, at, "status", STATUS)?;
    if value.get("activity").is_some_and(|word| !word.is_null()) {
        word(value, at, "activity", &["supervised_runner", "origin_turn"])?;
    }
    for control in items(value, at, "controls")? {
        let known = ["pause", "resume", "cancel", "answer", "review"];
        if !known.contains(&control.as_str().unwrap_or_default()) {
            return fail(at, format_args!("control {control}"));
        }
    }
    maybe(value, at, &["reason"], Value::is_string)
}

fn source(value: &Value, at: &str) -> Problem {
    match value["kind"].as_str() {
        Some("file") => text(value, at, &["path", "hash"]),
        Some("builtin") => text(value, at, &["id", "revision"]),
        other => fail(at, format_args!("source kind {other:?}")),
    }
}

fn maybe_source(value: &Value, at: &str) -> Problem {
    match value.get("workflowSource") {
        None | Some(Value::Null) => Ok(()),
        Some(found) => source(found, at),
    }
}

fn manifest(value: &Value, at: &str) -> Problem {
    text(
        value,
        at,
        &[
            "schema",
            "runId",
            "workflowName",
            "startedAt",
            "traceSchema",
        ],
    )?;
    timestamp(value, at, "startedAt")?;
    word(value, at, "status", STATUS)?;
    text(
        member(value, at, "paths")?,
        at,
        &["workflow", "state", "trace"],
    )?;
    maybe(value, at, &["runTitle", "finishedAt"], Value::is_string)?;
    maybe_source(value, at)
}

pub(crate) fn list_page(value: &Value) -> Problem {
    text(value, "list", &["revision", "schema"])?;
    number(value, "list", &["start", "total"])?;
    for (index, entry) in items(value, "list", "items")?.iter().enumerate() {
        let at = format!("list/{index}");
        manifest(member(entry, &at, "manifest")?, &at)?;
        display(member(entry, &at, "display")?, &at)?;
        maybe(
            entry,
            &at,
            &["live", "possiblyInterrupted"],
            Value::is_boolean,
        )?;
    }
    Ok(())
}

fn step(value: &Value, at: &str) -> Problem {
    text(
        value,
        at,
        &["attemptId", "nodeId", "nodeType", "startedAt", "finishedAt"],
    )?;
    timestamp(value, at, "startedAt")?;
    timestamp(value, at, "finishedAt")?;
    word(
        value,
        at,
        "outcome",
        &["ok", "timed_out", "failed", "cancelled"],
    )?;
    member(value, at, "prompt")?;
    member(value, at, "output")?;
    maybe(
        value,
        at,
        &["error", "settingsScopeId", "settingsHash"],
        Value::is_string,
    )?;
    maybe(value, at, &["settingsChangeNumber"], Value::is_u64)?;
    if let Some(action) = value.get("action") {
        text(action, at, &["actionType"])?;
        maybe(action, at, &["command", "cwd"], Value::is_string)?;
        maybe(action, at, &["durationMs"], Value::is_number)?;
        maybe(action, at, &["args"], |args| {
            args.as_array()
                .is_some_and(|args| args.iter().all(Value::is_string))
        })?;
    }
    match value.get("conversation") {
        None => Ok(()),
        Some(range) => text(range, at, &["firstEntryId", "lastEntryId"]),
    }
}

fn trace(value: &Value, at: &str) -> Problem {
    number(value, at, &["seq"])?;
    timestamp(value, at, "at")?;
    text(value, at, &["scope", "type", "runId"])?;
    maybe(value, at, &["nodeId", "attemptId"], Value::is_string)?;
    member(value, at, "payload").map(|_| ())
}

fn entry(value: &Value, at: &str) -> Problem {
    number(value, at, &["seq"])?;
    timestamp(value, at, "at")?;
    let entry = member(value, at, "entry")?;
    if !entry.is_object() || entry.get("$artifact").is_some() {
        return fail(at, "the entry has no envelope");
    }
    text(entry, at, &["id", "type"])
}

fn event(value: &Value, at: &str) -> Problem {
    number(value, at, &["seq"])?;
    timestamp(value, at, "at")?;
    text(value, at, &["nodeId", "attemptId", "type"])?;
    maybe(
        value,
        at,
        &["turnId", "messageId", "toolCallId"],
        Value::is_string,
    )?;
    member(value, at, "payload").map(|_| ())
}

pub(crate) fn checkpoint(value: &Value, at: &str) -> Problem {
    number(value, at, &["throughSeq"])?;
    items(value, at, "settledEntryIds")?;
    items(value, at, "diagnostics")?;
    for message in items(value, at, "messages")? {
        text(message, at, &["messageId", "role"])?;
        let words = ["streaming", "finished", "error", "settled", "unsettled"];
        word(message, at, "status", &words)?;
        for block in items(message, at, "blocks")? {
            number(block, at, &["contentIndex"])?;
            word(block, at, "kind", &["text", "thinking", "toolCall"])?;
            text(block, at, &["text"])?;
        }
    }
    for tool in items(value, at, "tools")? {
        text(tool, at, &["toolCallId", "messageId", "toolName"])?;
        word(tool, at, "status", &["running", "finished", "failed"])?;
        number(tool, at, &["updates"])?;
    }
    Ok(())
}

fn all(values: &[Value], at: &str, rule: fn(&Value, &str) -> Problem) -> Problem {
    for (index, value) in values.iter().enumerate() {
        rule(value, &format!("{at}/{index}"))?;
    }
    Ok(())
}

fn window(value: &Value, at: &str, rule: fn(&Value, &str) -> Problem) -> Problem {
    number(value, at, &["start", "total"])?;
    all(items(value, at, "items")?, at, rule)
}

fn session(value: &Value) -> Problem {
    if !value.is_object() {
        return fail("session", "no object");
    }
    window(member(value, "session", "entryPage")?, "entries", entry)?;
    window(member(value, "session", "eventPage")?, "events", event)?;
    let first = value["eventPage"]["start"].as_u64().unwrap_or(0);
    let known = &value["replayCheckpoint"];
    match (first, known) {
        (0, Value::Null) => {}
        (first, known) => {
            checkpoint(known, "checkpoint")?;
            if known["throughSeq"] != first {
                return fail(
                    "checkpoint",
                    format_args!("through {} before {first}", known["throughSeq"]),
                );
            }
        }
    }
    let bound = !value["binding"].is_null();
    if bound == value["capture"].is_null() {
        return fail("session", "bound and captured go together");
    }
    if bound {
        let capture = &value["capture"];
        word(
            capture,
            "capture",
            "schema",
            &["pi-workflows.session-capture.v1"],
        )?;
        word(
            capture,
            "capture",
            "eventSchema",
            &["pi-workflows.session-event.v1"],
        )?;
        word(
            capture,
            "capture",
            "status",
            &["recording", "complete", "failed"],
        )?;
        number(
            capture,
            "capture",
            &["eventCount", "entryCount", "lastEventSeq"],
        )?;
        let fails = capture["status"] == "failed";
        if fails != capture.get("failure").is_some() {
            return fail(
                "capture",
                "a failure without its status, or the other way round",
            );
        }
        word(
            &value["binding"],
            "binding",
            "schema",
            &["pi-workflows.session-binding.v1"],
        )?;
    }
    Ok(())
}

fn workflow(value: &Value) -> Problem {
    if value.get("$artifact").is_some() {
        return Ok(());
    }
    text(value, "workflow", &["schema", "name", "startAt"])?;
    if !member(value, "workflow", "nodes")?.is_object() {
        return fail("workflow", "nodes");
    }
    for edge in items(value, "workflow", "edges")? {
        text(edge, "edge", &["from"])?;
        match edge.get("switch") {
            None => text(edge, "edge", &["to"])?,
            Some(switch) => {
                text(switch, "switch", &["on"])?;
                let cases = member(switch, "switch", "cases")?.as_object();
                if !cases.is_some_and(|cases| cases.values().all(Value::is_string)) {
                    return fail("switch", "cases");
                }
            }
        }
    }
    Ok(())
}

pub(crate) fn run_view(value: &Value) -> Problem {
    number(
        value,
        "view",
        &["revision", "stepStart", "stepTotal", "graphCursor"],
    )?;
    display(member(value, "view", "display")?, "display")?;
    manifest(member(value, "view", "manifest")?, "manifest")?;
    let state = member(value, "view", "state")?;
    text(
        state,
        "state",
        &["schema", "runId", "workflowName", "startedAt", "updatedAt"],
    )?;
    timestamp(state, "state", "updatedAt")?;
    number(state, "state", &["traceSeq"])?;
    word(state, "state", "status", STATUS)?;
    member(state, "state", "input")?;
    for name in ["outputs", "results"] {
        if !member(state, "state", name)?.is_object() {
            return fail("state", name);
        }
    }
    all(items(state, "state", "steps")?, "steps", step)?;
    let texts = [
        "finishedAt",
        "runTitle",
        "parentRunId",
        "currentNode",
        "currentAttemptId",
        "currentNodeStartedAt",
        "statusDetail",
        "waitingOn",
        "error",
    ];
    maybe(state, "state", &texts, Value::is_string)?;
    maybe(state, "state", &["updates"], Value::is_array)?;
    maybe(state, "state", &["paused"], Value::is_boolean)?;
    maybe_source(state, "state")?;
    workflow(member(value, "view", "workflow")?)?;
    all(items(value, "view", "graphSteps")?, "graphSteps", step)?;
    if !items(value, "view", "takenTransitions")?
        .iter()
        .all(Value::is_string)
    {
        return fail("view", "takenTransitions");
    }
    let total = value["stepTotal"].as_u64().unwrap_or(0);
    if value["graphCursor"].as_u64() != Some(total.saturating_sub(1)) {
        return fail("view", "the graph is not at the last step");
    }
    window(member(value, "view", "tracePage")?, "trace", trace)?;
    session(member(value, "view", "session")?)?;
    for kept_out in ["graphHistory", "graphScene"] {
        if value.get(kept_out).is_some() {
            return fail("view", kept_out);
        }
    }
    Ok(())
}

pub(crate) fn page(value: &Value) -> Problem {
    text(value, "page", &["schema", "runId", "kind"])?;
    number(value, "page", &["cursor", "revision", "start", "total"])?;
    let rule: fn(&Value, &str) -> Problem = match value["kind"].as_str().unwrap_or_default() {
        "steps" => {
            number(value, "page", &["graphCursor"])?;
            all(items(value, "page", "graphSteps")?, "graphSteps", step)?;
            items(value, "page", "takenTransitions")?;
            step
        }
        "trace" | "trace_at_step" => trace,
        "session_entries" => entry,
        "session_events" => {
            if value["start"] != 0 {
                checkpoint(member(value, "page", "replayCheckpoint")?, "checkpoint")?;
            }
            event
        }
        "settings" => |scope, at| {
            text(scope, at, &["mountPath"])?;
            number(scope, at, &["invocation", "changeNumber"])
        },
        "follow_ups" => |item, at| {
            text(item, at, &["state"])?;
            number(item, at, &["order"])
        },
        "updates" => |update, at| text(update, at, &["type", "key"]),
        other => return fail("page", other),
    };
    all(items(value, "page", "items")?, "items", rule)
}
