//! The `decision` of workflow files: the node kind in the words of a file, with the places of its mistakes.
//!
//! ```yaml
//! nodes:
//!   review:
//!     decision:
//!       title: { jq: '"Ship \($input.version)?"' }
//!       presentation:
//!         summary: All tests pass.
//!         blocks:
//!           - { kind: preformatted, text: { jq: $outputs.notes } }
//!       subject: { jq: $outputs.notes }
//!       choices:
//!         ship: { label: Ship, to: publish }
//!         redo:
//!           label: Redo
//!           input: { name: why, prompt: What is missing? }
//!           to: draft
//!       onTimeout: { afterMs: 600000, response: { choice: ship } }
//! ```
//!
//! Each choice says where it leads, so that there is exactly one route for each.

use std::collections::BTreeMap;
use std::sync::Arc;

use holdpoint_workflows::Registry;
use holdpoint_workflows::definition::{NodeContext, NodeError};
use holdpoint_workflows::file::{FileKind, KindError, KindNode, KindValue, Template, Templated};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{CHOICE_PATH, Deadline, HumanDecision, OPERATOR, refused};
use crate::model::{
    Answerers, Choice, Choices, Invalid, OnTimeout, PRESENTATION_SCHEMA, Presentation, Response,
    TextInput, from_rfc3339,
};

/// The member of a node that says this kind.
pub const KEY: &str = "decision";

/// Makes `decision` known to the workflow files of a program.
pub fn register(registry: &Registry) {
    registry.register_kind(Arc::new(DecisionInFiles));
}

/// The node kind in workflow files.
#[derive(Debug)]
struct DecisionInFiles;

#[derive(Deserialize)]
#[serde(
    rename_all = "camelCase",
    deny_unknown_fields,
    expecting = "an object with title and choices"
)]
struct Document {
    title: Template,
    #[serde(default)]
    audience: Option<Template>,
    #[serde(default)]
    presentation: Option<PresentationDocument>,
    #[serde(default)]
    subject: Option<Template>,
    choices: BTreeMap<String, ChoiceDocument>,
    #[serde(default)]
    on_timeout: Option<Template>,
    #[serde(default)]
    expires_at: Option<Template>,
    #[serde(default)]
    answerers: Option<Answerers>,
    #[serde(default)]
    silence_is_consent: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object with summary and blocks")]
struct PresentationDocument {
    summary: Template,
    #[serde(default)]
    blocks: Option<Template>,
}

#[derive(Deserialize)]
#[serde(
    rename_all = "camelCase",
    deny_unknown_fields,
    expecting = "an object with label and to"
)]
struct ChoiceDocument {
    label: String,
    to: String,
    #[serde(default)]
    input: Option<InputDocument>,
}

#[derive(Deserialize)]
#[serde(
    rename_all = "camelCase",
    deny_unknown_fields,
    expecting = "an object with name and prompt"
)]
struct InputDocument {
    name: String,
    prompt: String,
    #[serde(default = "one")]
    min_length: u64,
    #[serde(default = "four_thousand")]
    max_length: u64,
}

fn one() -> u64 {
    1
}

fn four_thousand() -> u64 {
    4_000
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PolicyDocument {
    after_ms: f64,
    response: Value,
}

impl FileKind for DecisionInFiles {
    fn key(&self) -> &'static str {
        KEY
    }

    fn schema(&self) -> Value {
        let any =
            |description: &str| json!({ "description": description, "$ref": "#/$defs/Value" });
        json!({
            "description": "Asks people; the first answer wins. The output is `{choice}` or `{choice, input}`. It has its routes in itself.",
            "type": "object",
            "additionalProperties": false,
            "required": ["title", "choices"],
            "properties": {
                "title": any("One line that names it; a text."),
                "audience": any("To whom it is addressed: a name that private configuration leads to people. Default `operator`."),
                "presentation": {
                    "description": "What people see beside title and choices. Default: the title as summary.",
                    "type": "object",
                    "additionalProperties": false,
                    "required": ["summary"],
                    "properties": {
                        "summary": any("What it is about, in a sentence or two; a text."),
                        "blocks": any("A list of `{kind: paragraph, text}`, `{kind: section, title}`, `{kind: bullets, items}`, `{kind: fields, items: [{label, value}]}` and `{kind: preformatted, text}`."),
                    },
                },
                "subject": any("The machine data under decision, which no channel shows. Default null."),
                "choices": {
                    "description": "The choices by id.",
                    "type": "object",
                    "minProperties": 1,
                    "propertyNames": { "pattern": "^[A-Za-z_][A-Za-z0-9_-]{0,127}$" },
                    "additionalProperties": {
                        "type": "object",
                        "additionalProperties": false,
                        "required": ["label", "to"],
                        "properties": {
                            "label": { "type": "string", "minLength": 1, "description": "What a person reads on its button." },
                            "to": { "type": "string", "description": "The node or include that it leads to." },
                            "input": {
                                "description": "The text that a person writes with it.",
                                "type": "object",
                                "additionalProperties": false,
                                "required": ["name", "prompt"],
                                "properties": {
                                    "name": { "type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_-]{0,127}$" },
                                    "prompt": { "type": "string", "minLength": 1 },
                                    "minLength": { "type": "integer", "minimum": 0, "default": 1 },
                                    "maxLength": { "type": "integer", "minimum": 1, "default": 4000 },
                                },
                            },
                        },
                    },
                },
                "answerers": {
                    "description": "Who may answer: `anotherPerson` refuses whoever asked for the run. Default `anyone`.",
                    "enum": Answerers::ALL,
                },
                "silenceIsConsent": {
                    "description": "Says that an automatic answer which permits something is meant; otherwise a warning tells of it.",
                    "type": "boolean",
                    "default": false,
                },
                "onTimeout": any("The automatic answer: `{afterMs, response}`. From then on no person may answer. An expression may give null."),
                "expiresAt": any("An instant (RFC 3339, such as `2026-09-01T00:10:00Z`) from which on nobody may answer: the run is cancelled. Not together with onTimeout. An expression may give null."),
            },
        })
    }

    fn read(&self, value: &KindValue<'_>) -> Result<KindNode, KindError> {
        let document: Document = value.read()?;
        let mut routes = Vec::new();
        let mut choices = Vec::new();
        for (id, choice) in document.choices {
            let path = vec!["choices".to_owned(), id.clone(), "to".to_owned()];
            routes.push((id.clone(), choice.to.clone(), path));
            choices.push((id, choice.into_choice()));
        }
        let choices = all_of(value, choices)?;
        let title = value.compile(document.title)?;
        let title_text = fixed_text(value, "title", &title)?;
        let audience = match document.audience {
            None => Templated::fixed(OPERATOR.into()),
            Some(audience) => value.compile(audience)?,
        };
        let audience_text = fixed_text(value, "audience", &audience)?;
        let mut decision =
            HumanDecision::between(title_text.clone().unwrap_or_default(), choices.clone());
        if title_text.is_none() {
            decision = decision.titled(move |context| text("title", &title, context));
        }
        decision = match audience_text {
            Some(audience) => decision.to(audience),
            None => decision.to_computed(move |context| text("audience", &audience, context)),
        };
        if let Some(presentation) = document.presentation {
            let summary = value.compile(presentation.summary)?;
            let blocks = match presentation.blocks {
                None => Templated::fixed(json!([])),
                Some(blocks) => value.compile(blocks)?,
            };
            decision = match (summary.literal(), blocks.literal()) {
                (Some(summary), Some(blocks)) => {
                    let shown = presentation_of(summary, blocks)
                        .map_err(|invalid| value.refuse(["presentation"], invalid.to_string()))?;
                    decision.shows(shown)
                }
                _ => decision.showing(move |context| {
                    presentation_of(&summary.value(context)?, &blocks.value(context)?)
                        .map_err(|invalid| refused(&invalid))
                }),
            };
        }
        if let Some(subject) = document.subject {
            let template = value.compile(subject)?;
            decision = decision.about(move |context| template.value(context));
        }
        let until = match (document.on_timeout, document.expires_at) {
            (Some(_), Some(_)) => {
                return Err(value.refuse(["expiresAt"], Invalid::TwoDeadlines.to_string()));
            }
            (Some(policy), None) => Some(("onTimeout", value.compile(policy)?)),
            (None, Some(at)) => Some(("expiresAt", value.compile(at)?)),
            (None, None) => None,
        };
        if let Some((member, template)) = until {
            decision = match template.literal() {
                Some(literal) => {
                    let deadline = deadline(member, literal, &choices)
                        .map_err(|problem| value.refuse([member], problem))?;
                    decision.until(deadline)
                }
                None => decision.until_computed(move |context| {
                    let given = template.value(context)?;
                    deadline(member, &given, &choices)
                        .map_err(|problem| NodeError::named("InvalidDecision", problem))
                }),
            };
        }
        if document.silence_is_consent {
            decision = decision.silence_is_consent();
        }
        if document.answerers == Some(Answerers::AnotherPerson) {
            decision = decision.by_another_person();
        }
        Ok(KindNode::new(decision.into_kind()).switching(CHOICE_PATH, routes))
    }
}

impl ChoiceDocument {
    fn into_choice(self) -> Choice {
        let choice = Choice::new(self.label);
        match self.input {
            None => choice,
            Some(input) => choice.with_text(
                TextInput::new(input.name, input.prompt).units(input.min_length, input.max_length),
            ),
        }
    }
}

/// The choices; a mistake is told at the choice that has it.
fn all_of(value: &KindValue<'_>, choices: Vec<(String, Choice)>) -> Result<Choices, KindError> {
    for (id, choice) in &choices {
        if let Err(invalid) = Choices::new([(id.as_str(), choice.clone())]) {
            return Err(value.refuse(["choices", id.as_str()], invalid.to_string()));
        }
    }
    Choices::new(choices).map_err(|invalid| value.refuse(["choices"], invalid.to_string()))
}

/// The text of a template without expressions.
fn fixed_text(
    value: &KindValue<'_>,
    member: &'static str,
    template: &Templated,
) -> Result<Option<String>, KindError> {
    match template.literal() {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(other) => Err(value.refuse([member], format!("{member} must be a text, not {other}"))),
    }
}

fn text(
    member: &'static str,
    template: &Templated,
    context: &NodeContext<'_>,
) -> Result<String, NodeError> {
    match template.value(context)? {
        Value::String(text) => Ok(text),
        other => Err(NodeError::named(
            "InvalidDecision",
            format!("{member} must be a text, not {other}"),
        )),
    }
}

/// What people see, as the contract has it.
fn presentation_of(summary: &Value, blocks: &Value) -> Result<Presentation, Invalid> {
    Presentation::read(&json!({
        "schema": PRESENTATION_SCHEMA,
        "summary": summary,
        "blocks": blocks,
    }))
}

fn deadline(member: &'static str, value: &Value, choices: &Choices) -> Result<Deadline, String> {
    if value.is_null() {
        return Ok(Deadline::None);
    }
    if member == "expiresAt" {
        let at = value.as_str().and_then(from_rfc3339);
        return at.map(Deadline::ExpiresAt).ok_or_else(|| {
            format!(
                "expiresAt is an instant as RFC 3339 writes it, such as 2026-09-01T00:10:00Z or 2026-09-01T02:10:00+02:00, not {value}"
            )
        });
    }
    let policy: PolicyDocument = serde_json::from_value(value.clone())
        .map_err(|error| format!("onTimeout is {{afterMs, response}}: {error}"))?;
    if !policy.after_ms.is_finite() || policy.after_ms <= 0.0 {
        return Err(format!(
            "afterMs is a number above 0, not {}",
            policy.after_ms
        ));
    }
    Response::check(&policy.response, choices)
        .map_err(|code| Invalid::Default { code }.to_string())?;
    Ok(Deadline::OnTimeout(OnTimeout {
        after_ms: policy.after_ms,
        response: policy.response,
    }))
}
