//! Rows as documents. Pure: what is too large is noted as held content, and whoever renders keeps the note or drops it.

use holdpoint_state::Digest;
use holdpoint_state::json::to_canonical;
use holdpoint_workflows::capture::visible_text;
use holdpoint_workflows::views::SourceView;
use holdpoint_workflows::views::pages::{
    EntryRow, EventRow, FollowUpRow, ScopeRow, StepRow, Stored, TraceRow, UpdateRow,
};
use serde_json::{Map, Value, json};

use crate::documents::{
    Action, ContentPath, Conversation, Entry, Event, FollowUp, GraphStep, INLINE_BYTES, Reference,
    Scope, SettingsScope, Shown, Source, StepRecord, TraceEvent, Update,
};

/// The longest text of an error in a document, in bytes.
const ERROR_BYTES: usize = 4 * 1024;

/// A content that a document refers to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) path: ContentPath,
    pub(crate) size_bytes: u64,
    /// The blob that it is, or is part of.
    pub(crate) source: Digest,
    /// The place of the text in the blob's JSON.
    pub(crate) pointer: Option<String>,
}

/// Makes documents of the rows of one run.
#[derive(Debug)]
pub(crate) struct Renderer<'a> {
    pub(crate) run_id: &'a str,
    /// What the documents refer to.
    pub(crate) held: Vec<Held>,
}

impl<'a> Renderer<'a> {
    pub(crate) fn new(run_id: &'a str) -> Self {
        Self {
            run_id,
            held: Vec::new(),
        }
    }

    /// A stored value: itself or a reference.
    pub(crate) fn shown(&mut self, stored: Option<&Stored>) -> Shown {
        self.shown_up_to(stored, INLINE_BYTES)
    }

    pub(crate) fn shown_up_to(&mut self, stored: Option<&Stored>, most: u64) -> Shown {
        let Some(stored) = stored else {
            return Shown::NULL;
        };
        if stored.size_bytes <= most && stored.content.is_some() {
            return if stored.is_json {
                Shown::value(stored.json().unwrap_or_default())
            } else {
                Shown::text(stored.text().unwrap_or_default())
            };
        }
        let reference = Reference {
            path: ContentPath {
                digest: stored.digest,
                is_json: stored.is_json,
            },
            size_bytes: stored.size_bytes,
        };
        self.held.push(Held {
            path: reference.path,
            size_bytes: stored.size_bytes,
            source: stored.digest,
            pointer: None,
        });
        Shown::reference(&reference)
    }

    pub(crate) fn step(&mut self, row: &StepRow) -> StepRecord {
        let prompt = match (&row.prompt, &row.prompt_entry) {
            (Some(prompt), _) => self.shown(Some(prompt)),
            (None, Some(entry)) => self.prompt_of(entry),
            (None, None) => Shown::NULL,
        };
        let output = self.shown(row.output.as_ref());
        StepRecord {
            attempt_id: row.attempt_id.to_string(),
            node_id: row.node_id.to_string(),
            node_type: row.node_type.clone(),
            outcome: row.outcome.into(),
            started_at: row.started_at.into(),
            finished_at: row.finished_at.into(),
            prompt,
            output,
            error: row.error.as_ref().map(error_text),
            action: action(row),
            conversation: row.first_entry.clone().zip(row.last_entry.clone()).map(
                |(first_entry_id, last_entry_id)| Conversation {
                    first_entry_id,
                    last_entry_id,
                },
            ),
            settings_scope_id: row.settings.as_ref().map(|(scope, ..)| scope.to_string()),
            settings_change_number: row.settings.as_ref().map(|(_, number, _)| *number),
            settings_hash: row.settings.as_ref().map(|(.., hash)| hash.to_hex()),
        }
    }

    /// What an entry says an agent was told; the whole entry where that is too large.
    fn prompt_of(&mut self, entry: &Stored) -> Shown {
        match entry.json() {
            Some(content) => visible_text(&content).map_or(Shown::NULL, Shown::text),
            None => self.shown(Some(entry)),
        }
    }

    pub(crate) fn trace(&mut self, row: &TraceRow) -> TraceEvent {
        let payload = row.payload.as_ref().and_then(Stored::json);
        let text = |name: &str| Some(payload.as_ref()?.get(name)?.as_str()?.to_owned());
        let (node_id, attempt_id) = (text("nodeId"), text("attemptId"));
        let scope = if attempt_id.is_some() || node_id.is_some() {
            Scope::Node
        } else {
            Scope::Run
        };
        let shown = match (&row.update, payload) {
            (Some(update), Some(Value::Object(mut members))) => {
                let data = self.shown(Some(update));
                let mut escaped: Map<String, Value> = Map::new();
                for (name, value) in &mut members {
                    escaped.insert(name.clone(), Shown::value(value.take()).as_json().clone());
                }
                escaped.insert("data".to_owned(), data.as_json().clone());
                Shown::prepared(Value::Object(escaped))
            }
            (_, None) if row.payload.is_none() => Shown::value(json!({})),
            _ => self.shown(row.payload.as_ref()),
        };
        TraceEvent {
            seq: row.revision,
            at: row.recorded_at.into(),
            scope,
            event_type: row.event_type.clone(),
            run_id: self.run_id.to_owned(),
            node_id,
            attempt_id,
            payload: shown,
        }
    }

    pub(crate) fn event(&mut self, row: &EventRow) -> Event {
        Event {
            seq: row.seq,
            at: row.recorded_at.into(),
            event_type: row.event_type.clone(),
            node_id: row.node_id.clone().unwrap_or_default(),
            attempt_id: row.attempt_id.clone().unwrap_or_default(),
            turn_id: row.turn_id.clone(),
            message_id: row.message_id.clone(),
            tool_call_id: row.tool_call_id.clone(),
            payload: self.shown(row.payload.as_ref()),
        }
    }

    /// An entry with its envelope. Where it is too large its long texts become references; what is large even so is left out.
    pub(crate) fn entry(&mut self, row: &EntryRow) -> Entry {
        let limit = usize::try_from(INLINE_BYTES).unwrap_or(usize::MAX);
        // The client reads objects only; one entry of another form would make all of them unreadable for it.
        let is_object = row.content.is_object();
        let mut shown = if is_object {
            Shown::value(row.content.clone())
        } else {
            Shown::value(json!({ "id": row.entry_id, "type": "unknown", "content": row.content }))
        };
        for longest in [4 * 1024, 512] {
            if !is_object || size_of(shown.as_json()) <= limit {
                break;
            }
            let mut held = Vec::new();
            let replaced = with_references(&row.content, row.digest, longest, &mut held);
            if size_of(&replaced) <= limit {
                self.held.append(&mut held);
            }
            shown = Shown::prepared(replaced);
        }
        if limit < size_of(shown.as_json()) {
            shown = Shown::value(envelope(row));
        }
        Entry {
            seq: row.seq,
            at: row.recorded_at.into(),
            entry: shown,
        }
    }

    pub(crate) fn scope(&mut self, row: &ScopeRow) -> SettingsScope {
        SettingsScope {
            scope_id: row.scope_id.clone(),
            mount_path: row.mount_path.clone(),
            invocation: row.invocation,
            change_number: row.change_number,
            settings: self.shown(row.value.as_ref()),
        }
    }

    pub(crate) fn follow_up(&mut self, row: &FollowUpRow) -> FollowUp {
        FollowUp {
            follow_up_id: row.follow_up_id.clone(),
            order: row.order,
            state: row.status.as_str(),
            prompt: self.shown(row.prompt.as_ref()),
        }
    }

    pub(crate) fn update(&mut self, row: &UpdateRow) -> Update {
        Update {
            seq: row.seq,
            update_type: row.update_type.clone(),
            key: row.key.clone(),
            node_id: row.node_id.clone(),
            data: self.shown(row.data.as_ref()),
        }
    }
}

/// An entry whose long texts are references; they are noted in `held`.
fn with_references(entry: &Value, source: Digest, longest: usize, held: &mut Vec<Held>) -> Value {
    fn walk(
        value: &Value,
        pointer: &mut String,
        longest: usize,
        found: &mut impl FnMut(&str, &str) -> Value,
    ) -> Value {
        let before = pointer.len();
        let mut inner = |name: &str, value: &Value, pointer: &mut String| {
            pointer.push('/');
            pointer.push_str(&name.replace('~', "~0").replace('/', "~1"));
            let walked = walk(value, pointer, longest, found);
            pointer.truncate(before);
            walked
        };
        match value {
            Value::String(text) if longest < text.len() => found(text, pointer),
            Value::Array(items) => items
                .iter()
                .enumerate()
                .map(|(index, item)| inner(&index.to_string(), item, pointer))
                .collect(),
            Value::Object(members) => {
                let walked: Map<String, Value> = members
                    .iter()
                    .map(|(name, member)| (name.clone(), inner(name, member, pointer)))
                    .collect();
                // An object of the user's with a special name is wrapped, whatever its member became.
                if members.len() == 1
                    && (members.contains_key("$artifact") || members.contains_key("$escaped"))
                {
                    json!({ "$escaped": walked })
                } else {
                    Value::Object(walked)
                }
            }
            Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        }
    }
    let mut refer = |text: &str, pointer: &str| {
        let path = ContentPath {
            digest: Digest::of(text.as_bytes()),
            is_json: false,
        };
        let size_bytes = u64::try_from(text.len()).unwrap_or(u64::MAX);
        held.push(Held {
            path,
            size_bytes,
            source,
            pointer: Some(pointer.to_owned()),
        });
        Reference { path, size_bytes }.to_json()
    };
    walk(entry, &mut String::new(), longest, &mut refer)
}

/// A step without its contents.
pub(crate) fn graph_step(row: &StepRow, visit: u64) -> GraphStep {
    GraphStep {
        attempt_id: row.attempt_id.to_string(),
        node_id: row.node_id.to_string(),
        node_type: row.node_type.clone(),
        outcome: row.outcome.into(),
        started_at: row.started_at.into(),
        finished_at: row.finished_at.into(),
        prompt: (),
        output: (),
        step_index: row.index,
        visit,
    }
}

/// The public source of a definition.
pub(crate) fn source(source: &SourceView) -> Option<Source> {
    match source.source_type.as_str() {
        "file" => Some(Source::File {
            path: source.reference.clone(),
            hash: source.revision.clone(),
        }),
        "builtin" => Some(Source::Builtin {
            id: source.reference.clone(),
            revision: source.revision.clone(),
        }),
        _ => None,
    }
}

/// The text of an error, cut where it is too long for a document.
pub(crate) fn error_text(stored: &Stored) -> String {
    let Some(text) = stored.text() else {
        return format!("an error of {} bytes", stored.size_bytes);
    };
    cut(text)
}

fn cut(mut text: String) -> String {
    if ERROR_BYTES < text.len() {
        let mut end = ERROR_BYTES;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push('…');
    }
    text
}

/// How many bytes an item takes in a document.
pub(crate) fn size_of(value: &impl serde::Serialize) -> usize {
    to_canonical(value).map_or(usize::MAX, |bytes| bytes.len())
}

fn action(row: &StepRow) -> Option<Action> {
    if row.node_type != "action" {
        return None;
    }
    let receipt = row.receipt.as_ref().and_then(Stored::json)?;
    let text = |name: &str| Some(receipt.get(name)?.as_str()?.to_owned());
    let value = |name: &str| receipt.get(name).filter(|value| !value.is_null()).cloned();
    let args = receipt.get("args").and_then(Value::as_array);
    Some(Action {
        action_type: text("actionType").unwrap_or_else(|| "function".to_owned()),
        command: text("command"),
        args: args
            .into_iter()
            .flatten()
            .filter_map(|arg| Some(arg.as_str()?.to_owned()))
            .collect(),
        cwd: text("cwd"),
        exit_code: value("exitCode"),
        signal: value("signal"),
        duration_ms: receipt
            .get("durationMs")
            .and_then(Value::as_number)
            .cloned(),
    })
}

/// What remains of an entry that no shortening makes small: who said it, and that it was too much.
fn envelope(row: &EntryRow) -> Value {
    let text = |value: Option<&Value>| {
        let text = value.and_then(Value::as_str)?;
        Some(Value::from(text.chars().take(128).collect::<String>()))
    };
    let message = row.content.get("message");
    let said = format!("[{} bytes are not shown]", size_of(&row.content));
    json!({
        "id": row.entry_id.chars().take(128).collect::<String>(),
        "parentId": text(row.content.get("parentId")),
        "type": text(row.content.get("type")),
        "timestamp": text(row.content.get("timestamp")),
        "message": { "role": text(message.and_then(|message| message.get("role"))), "content": said },
    })
}

/// A definition as the client reads it: what a decision asks is where it looks for it.
pub(crate) fn definition(stored: &Stored) -> Option<Value> {
    let mut definition = stored.json()?;
    let nodes = definition.get_mut("nodes").and_then(Value::as_object_mut);
    for node in nodes.into_iter().flat_map(Map::values_mut) {
        let asks = node.pointer("/declared/humanDecision");
        if let (Some(asks), Some(node)) = (asks.cloned(), node.as_object_mut()) {
            node.insert("humanDecision".to_owned(), asks);
        }
    }
    Some(definition)
}
