//! What is said to pi and what its records mean, from the prompt to the settled answer. A pure state machine.
//!
//! The end of an agent run is not the end of the work: pi may try again after an error of the provider, or compact an overflowing
//! context and go on. Both are announced in the same breath as the end, before pi reads its next command. So the executor asks
//! for the state after each end; when the answer comes and nothing was announced before it, the work is settled.
//!
//! Not here: processes and pipes (`peer`), the shape of records (`record`), when to give up (the executor).

use serde_json::{Value, json};

use super::error::PiError;
use super::framing::Record;
use super::record::{
    AgentEnd, Compaction, Failed, Kind, Message, MessageEnd, Response, ToolCall, UiRequest, Usage,
};

/// The id of the prompt.
const PROMPT: &str = "prompt";

/// The id of the question whether the prompt began a run.
const BEGUN: &str = "begun";

/// How many characters of an error are kept.
const ERROR_CHARS: usize = 2000;

/// What the executor has to do.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    /// Say this to pi.
    Say(Value),
    /// Somebody may want to know how far it is.
    Progress,
    /// Nothing more will happen.
    Settled,
}

/// What is known of the work until now; the most part of the receipt.
#[derive(Debug, Default, Clone, PartialEq)]
pub(super) struct Facts {
    pub(super) provider: Option<String>,
    pub(super) model: Option<String>,
    pub(super) stop_reason: Option<String>,
    pub(super) error: Option<String>,
    pub(super) turns: u64,
    pub(super) tool_calls: u64,
    pub(super) tool_errors: u64,
    pub(super) last_tool: Option<String>,
    pub(super) retries: u64,
    pub(super) compactions: u64,
    pub(super) usage: Usage,
    pub(super) session_id: Option<String>,
    pub(super) session_file: Option<String>,
}

/// The conversation.
#[derive(Debug, Default)]
pub(super) struct Dialogue {
    facts: Facts,
    /// The last thing that the model said.
    last: Option<Message>,
    /// A run of the agent has begun.
    begun: bool,
    /// Pi announced that it will go on by itself.
    goes_on: bool,
    /// How often the state was asked for after an end; the id of the last question.
    asked: u64,
    /// An answer to the last question would settle the work.
    is_asking: bool,
}

impl Dialogue {
    /// The command that begins the work.
    pub(super) fn prompt(message: &str) -> Value {
        json!({ "id": PROMPT, "type": "prompt", "message": message })
    }

    /// The command that ends it early.
    pub(super) fn abort() -> Value {
        json!({ "id": "abort", "type": "abort" })
    }

    pub(super) fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Takes one record.
    pub(super) fn hear(&mut self, record: &Record) -> Result<Option<Step>, PiError> {
        let bytes = match record {
            Record::Whole(bytes) => bytes,
            Record::Long { head, bytes } => return self.hear_long(head, *bytes),
        };
        let kind: Kind = read(bytes)?;
        Ok(match kind.kind.as_str() {
            "response" => self.response(read(bytes)?)?,
            "agent_start" => {
                self.begun = true;
                self.goes_on = false;
                self.is_asking = false;
                None
            }
            "turn_start" => {
                self.facts.turns += 1;
                None
            }
            "message_end" => {
                let MessageEnd { message } = read(bytes)?;
                self.message(message)
            }
            "tool_execution_start" => {
                let call: ToolCall = read(bytes)?;
                self.facts.tool_calls += 1;
                self.facts.last_tool = Some(short(&call.tool_name));
                Some(Step::Progress)
            }
            "tool_execution_end" => {
                let call: ToolCall = read(bytes)?;
                self.facts.tool_errors += u64::from(call.is_error);
                None
            }
            "agent_end" => {
                let AgentEnd { messages } = read(bytes)?;
                // An error of pi itself comes with no message of its own.
                if let Some(message) = messages.0 {
                    self.remember(message);
                }
                Some(self.ask())
            }
            "auto_retry_start" => {
                self.facts.retries += 1;
                self.goes_on = true;
                None
            }
            "auto_retry_end" => {
                let Failed { success } = read(bytes)?;
                self.goes_on = false;
                (!success).then(|| self.ask())
            }
            "compaction_start" => {
                let compaction: Compaction = read(bytes)?;
                self.facts.compactions += 1;
                // Otherwise it is tidying behind a finished answer.
                self.goes_on |= compaction.reason == "overflow";
                None
            }
            "compaction_end" => {
                let compaction: Compaction = read(bytes)?;
                if let Some(error) = compaction.error_message {
                    self.facts.error = Some(short(&error));
                }
                self.goes_on = compaction.will_retry;
                (compaction.reason == "overflow" && !compaction.will_retry).then(|| self.ask())
            }
            "extension_ui_request" => dismiss(&read(bytes)?),
            // Pi adds kinds of records as it grows; what they tell is for people who watch.
            _ => None,
        })
    }

    /// The text of the settled answer.
    pub(super) fn reply(self, chars_max: usize) -> Result<String, PiError> {
        let last = self.last.ok_or(PiError::EmptyReply)?;
        match last.stop_reason.as_deref() {
            Some("stop" | "toolUse") => {}
            Some("length") => return Err(PiError::ReplyTruncated),
            stop => {
                let error = match (self.facts.error, stop) {
                    (Some(error), _) => error,
                    (None, Some(stop)) => format!("the model stopped with {:?}", short(stop)),
                    (None, None) => "the model gave no reason to stop".to_owned(),
                };
                return Err(PiError::Model { error });
            }
        }
        if last.content.text.trim().is_empty() {
            return Err(PiError::EmptyReply);
        }
        if chars_max < last.content.text.chars().count() {
            return Err(PiError::ReplyTooLarge { chars_max });
        }
        Ok(last.content.text)
    }

    fn ask(&mut self) -> Step {
        self.asked += 1;
        self.is_asking = true;
        Step::Say(json!({ "id": format!("settled-{}", self.asked), "type": "get_state" }))
    }

    fn response(&mut self, response: Response) -> Result<Option<Step>, PiError> {
        let id = response.id.as_deref().unwrap_or_default();
        let is_settling = id == format!("settled-{}", self.asked);
        if id == PROMPT {
            if !response.success {
                let error = short(&response.error.unwrap_or_default());
                return Err(PiError::PromptRejected { error });
            }
            return Ok(Some(Step::Say(json!({ "id": BEGUN, "type": "get_state" }))));
        }
        if id != BEGUN && !is_settling {
            // Of an earlier question, or of an abort.
            return Ok(None);
        }
        let Some(state) = response.data.filter(|_| response.success) else {
            let error = short(&response.error.unwrap_or_default());
            return Err(PiError::Protocol {
                problem: format!("it did not tell its state: {error}"),
            });
        };
        self.facts.session_id = state.session_id.map(|id| short(&id));
        self.facts.session_file = state.session_file.map(|file| short(&file));
        if let Some(model) = state.model {
            self.facts.provider.get_or_insert(short(&model.provider));
            self.facts.model.get_or_insert(short(&model.id));
        }
        if id == BEGUN {
            // An extension took the prompt for itself, and nothing would ever end the wait.
            return if self.begun || state.is_streaming {
                Ok(None)
            } else {
                Err(PiError::PromptNotRun)
            };
        }
        Ok((self.is_asking && !self.goes_on && !state.is_streaming).then_some(Step::Settled))
    }

    fn message(&mut self, message: Message) -> Option<Step> {
        if message.role != "assistant" {
            return None;
        }
        if let Some(usage) = &message.usage {
            self.facts.usage.add(usage);
        }
        self.remember(message);
        Some(Step::Progress)
    }

    fn remember(&mut self, message: Message) {
        let facts = &mut self.facts;
        if let Some(provider) = &message.provider {
            facts.provider = Some(short(provider));
        }
        if let Some(model) = &message.model {
            facts.model = Some(short(model));
        }
        facts.stop_reason = message.stop_reason.as_deref().map(short);
        facts.error = message.error.as_deref().map(short);
        self.last = Some(message);
    }

    /// A record that is too long to be read: what it is decides whether the work can go on without it.
    fn hear_long(&mut self, head: &[u8], bytes: u64) -> Result<Option<Step>, PiError> {
        let is = |start: &str| head.starts_with(start.as_bytes());
        if is(r#"{"type":"message_end","message":{"role":"assistant""#) {
            return Err(PiError::RecordTooLarge { bytes });
        }
        if is(r#"{"type":"agent_end""#) {
            // It repeats what was heard message by message.
            return Ok(Some(self.ask()));
        }
        if is(r#"{"type":"tool_execution_start""#) {
            self.facts.tool_calls += 1;
            return Ok(Some(Step::Progress));
        }
        // What a tool gave, or what a person said: it is between pi and the model.
        if is(r#"{"type":"message_end","message":{"role":""#)
            || is(r#"{"type":"tool_execution_end""#)
        {
            return Ok(None);
        }
        Err(PiError::RecordTooLarge { bytes })
    }
}

/// A dialog of an extension has nobody to answer it: it is dismissed. What asks for no answer gets none.
fn dismiss(request: &UiRequest) -> Option<Step> {
    match request.method.as_str() {
        "select" | "confirm" | "input" | "editor" => Some(Step::Say(json!({
            "type": "extension_ui_response",
            "id": request.id,
            "cancelled": true,
        }))),
        _ => None,
    }
}

fn read<'a, T: serde::Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, PiError> {
    serde_json::from_slice(bytes).map_err(|error| PiError::Protocol {
        problem: format!(
            "{error} in {:?}",
            short_to(&String::from_utf8_lossy(bytes), 200)
        ),
    })
}

fn short(text: &str) -> String {
    short_to(text, ERROR_CHARS)
}

fn short_to(text: &str, chars: usize) -> String {
    match text.char_indices().nth(chars) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests;
