//! The format of workflow files: what serde reads, and what the JSON Schema is made from.
//!
//! One rule holds everywhere that a [`Template`] stands: **text is text, and `{ jq: … }` is an
//! expression.** No text is ever searched for something to replace.
//!
//! Not here: what the parts mean (`compile`), positions (`tree`, `read`).

use std::collections::BTreeMap;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::read::Marked;
use crate::definition::{NotificationKind, Recovery};
use crate::shell::Stream;

/// A workflow: a graph of nodes and routes that a run follows from `startAt`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(
    rename_all = "camelCase",
    deny_unknown_fields,
    expecting = "a workflow, which is an object"
)]
#[schemars(title = "Holdpoint workflow")]
pub(super) struct WorkflowDocument {
    /// The JSON Schema of this file, for editors. Ignored.
    #[serde(rename = "$schema", default)]
    pub(super) _schema: Option<String>,
    /// The name of the workflow; no command word such as `list`.
    pub(super) name: String,
    /// The contract that the workflow keeps.
    #[serde(default)]
    pub(super) contract_id: Option<String>,
    /// The title of a run. An expression sees the input as `.` and as `$input`. Display only.
    #[serde(default)]
    pub(super) title: Option<Template>,
    /// What the input of a run may be. Without it a run takes any JSON value.
    #[serde(default)]
    pub(super) input: Option<InputDocument>,
    /// The live settings of its runs: one value that may be changed while a run goes on.
    #[serde(default)]
    pub(super) settings: Option<SettingsDocument>,
    /// The id of the first node.
    pub(super) start_at: String,
    /// How many steps a run may make. Default 100.
    #[serde(default)]
    #[schemars(with = "Option<u32>", range(min = 1))]
    pub(super) max_steps: Option<Value>,
    /// The nodes by id.
    #[schemars(with = "BTreeMap<String, NodeDocument>", extend("minProperties" = 1))]
    pub(super) nodes: Ordered<NodeDocument>,
    /// Other workflows that are parts of this one, by name. A route leads to the name and leaves from `name.exit`.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, IncludeDocument>")]
    pub(super) includes: Ordered<IncludeDocument>,
    /// The ways to leave this workflow when another one includes it, by name.
    #[serde(default)]
    #[schemars(with = "Option<BTreeMap<String, ExitDocument>>", extend("minProperties" = 1))]
    pub(super) exits: Option<Ordered<ExitDocument>>,
    /// The routes; a node without one ends the run with its output.
    #[serde(default)]
    pub(super) edges: Vec<EdgeDocument>,
}

/// What the input of a run may be.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(
    rename_all = "camelCase",
    deny_unknown_fields,
    expecting = "an object with fields and normalize"
)]
pub(super) struct InputDocument {
    /// The members of the input object. Others are refused.
    #[serde(default)]
    #[schemars(with = "Option<BTreeMap<String, FieldDocument>>")]
    pub(super) fields: Option<Ordered<FieldDocument>>,
    /// Makes the input that a run keeps. An expression sees the checked input as `.`.
    #[serde(default)]
    pub(super) normalize: Option<Template>,
}

/// One member of the input object.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(
    rename_all = "camelCase",
    deny_unknown_fields,
    expecting = "an object with a type"
)]
pub(super) struct FieldDocument {
    /// The type of its value.
    #[serde(rename = "type")]
    pub(super) field_type: FieldType,
    /// What it is for. Display only.
    #[serde(default)]
    #[serde(rename = "description")]
    pub(super) _description: Option<String>,
    /// The value that it gets when the input does not have it.
    #[serde(default, deserialize_with = "present")]
    pub(super) default: Option<Value>,
    /// Whether the input may leave it out though it has no default.
    #[serde(default)]
    pub(super) optional: bool,
}

/// The type of a member of the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum FieldType {
    String,
    Number,
    Integer,
    Boolean,
    Array,
    Object,
    Any,
}

/// The live settings of a run.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(
    rename_all = "camelCase",
    deny_unknown_fields,
    expecting = "an object with initial and paths"
)]
pub(super) struct SettingsDocument {
    /// What a run begins with.
    pub(super) initial: Value,
    /// What the settings are for. Display only.
    #[serde(default)]
    pub(super) description: Option<String>,
    /// The members of the settings object. Without it settings are any value.
    #[serde(default)]
    #[schemars(with = "Option<BTreeMap<String, FieldDocument>>")]
    pub(super) fields: Option<Ordered<FieldDocument>>,
    /// Who may do what, and where. The longest rule that covers a place alone decides; without one nobody may anything.
    #[serde(default)]
    pub(super) paths: Vec<PathDocument>,
    /// Whether a change that the rules allow makes sense. An expression sees `{before, after, actor}` as `.` and gives true, or a text
    /// that says why not.
    #[serde(default)]
    #[schemars(with = "Option<Template>")]
    pub(super) validate_change: Option<Template>,
}

/// Who may do what with one place of the settings and all that lies beneath it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(
    rename_all = "camelCase",
    deny_unknown_fields,
    expecting = "an object with a path and permissions"
)]
pub(super) struct PathDocument {
    /// The place: a JSON Pointer, empty for the whole.
    pub(super) path: String,
    /// Who may look: `test`, and the source of `copy` and `move`.
    #[serde(default)]
    pub(super) read: Option<Vec<ActorWord>>,
    /// Who may put something new there.
    #[serde(default)]
    pub(super) add: Option<Vec<ActorWord>>,
    /// Who may take something away.
    #[serde(default)]
    pub(super) remove: Option<Vec<ActorWord>>,
    /// Who may put another value there.
    #[serde(default)]
    pub(super) replace: Option<Vec<ActorWord>>,
    /// What the place is for. Display only.
    #[serde(default)]
    pub(super) description: Option<String>,
}

/// A kind of actor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum ActorWord {
    Session,
    Host,
    Controller,
    Channel,
    Human,
    Policy,
    Control,
    System,
}

/// One node: exactly one of `compute`, `settingsRoute`, `shell`, `writeFile`, `readFile`, `checkpoint`, `agent`, `decide`,
/// `assistantMessage` and `notify`, and options.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(
    rename_all = "camelCase",
    deny_unknown_fields,
    expecting = "a node, which is an object"
)]
#[schemars(extend("oneOf" = [
    { "required": ["compute"] },
    { "required": ["settingsRoute"] },
    { "required": ["shell"] },
    { "required": ["writeFile"] },
    { "required": ["readFile"] },
    { "required": ["checkpoint"] },
    { "required": ["agent"] },
    { "required": ["decide"] },
    { "required": ["assistantMessage"] },
    { "required": ["notify"] },
]))]
pub(super) struct NodeDocument {
    /// A pure value; it may be computed again after a crash.
    #[serde(default, deserialize_with = "present")]
    #[schemars(with = "Template")]
    pub(super) compute: Option<Template>,
    /// A pure value that is made again, in the same attempt, when the live settings change before it is committed.
    #[serde(default, deserialize_with = "present")]
    #[schemars(with = "Template")]
    pub(super) settings_route: Option<Template>,
    /// A command, run under a managed effect.
    #[serde(default)]
    pub(super) shell: Option<ShellDocument>,
    /// Writes one file in the working directory: a temporary file, renamed when it is whole.
    #[serde(default)]
    pub(super) write_file: Option<WriteFileDocument>,
    /// Reads one UTF-8 file in the working directory, at most 1 MiB.
    #[serde(default)]
    pub(super) read_file: Option<ReadFileDocument>,
    /// Waits for an answer, which becomes the output.
    #[serde(default)]
    pub(super) checkpoint: Option<CheckpointDocument>,
    /// A step that a model does; its output is what it submits.
    #[serde(default)]
    pub(super) agent: Option<AgentDocument>,
    /// A step in which a model chooses where the run goes on; its output is `{choice, reason}`. It has its routes in itself.
    #[serde(default)]
    pub(super) decide: Option<DecideDocument>,
    /// A step whose output is the next text that the model shows in the origin session. A headless run fails there.
    #[serde(default)]
    pub(super) assistant_message: Option<AssistantMessageDocument>,
    /// A text that the origin session is shown. A headless run fails there.
    #[serde(default)]
    pub(super) notify: Option<NotifyDocument>,
    /// How long one attempt may take, in milliseconds. Default 15 minutes, null is no limit.
    #[serde(default, deserialize_with = "present")]
    #[schemars(with = "Option<Template>")]
    pub(super) timeout_ms: Option<Marked<Template>>,
    /// What a run shows while it is here. Display only.
    #[serde(default)]
    pub(super) status_detail: Option<String>,
}

/// A command with its arguments. No shell reads them.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(
    rename_all = "camelCase",
    deny_unknown_fields,
    expecting = "an object with argv and effect"
)]
pub(super) struct ShellDocument {
    /// Program and arguments, at least the program. Each item is one argument; an expression that
    /// gives a list gives one argument for each of its items.
    #[schemars(extend("minItems" = 1))]
    pub(super) argv: Vec<Template>,
    /// Where it runs. Default: where the engine runs.
    #[serde(default)]
    pub(super) cwd: Option<Template>,
    /// Variables to add to the environment.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, Template>")]
    pub(super) env: Ordered<Template>,
    /// Whether an exit status other than 0 is an ordinary result.
    #[serde(default)]
    pub(super) allow_non_zero_exit: bool,
    /// How many characters of each output stream are kept. Default 1000000.
    #[serde(default)]
    #[schemars(range(max = 67_108_864))]
    pub(super) max_output_chars: Option<u32>,
    /// Makes the output. An expression sees `{stdout, stderr, exitCode, signal, …}` as `.`. Without
    /// it that object is the output.
    #[serde(default, deserialize_with = "present")]
    #[schemars(with = "Option<Template>")]
    pub(super) parse: Option<Template>,
    /// Makes updates of what it writes, while it runs.
    #[serde(default)]
    pub(super) updates: Option<UpdatesDocument>,
    /// The managed effect.
    pub(super) effect: EffectDocument,
}

/// How the output of a command becomes updates.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(
    rename_all = "camelCase",
    deny_unknown_fields,
    expecting = "an object with parseLine and streams"
)]
pub(super) struct UpdatesDocument {
    /// Makes the updates of one line. An expression sees `{line, stream}` as `.`; it gives null for none, `{type, key, data}` for
    /// one, or a list of those.
    pub(super) parse_line: Template,
    /// The streams that are read.
    #[schemars(length(min = 1, max = 2), extend("uniqueItems" = true))]
    pub(super) streams: Vec<Stream>,
}

/// Writes one file.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(
    rename_all = "camelCase",
    deny_unknown_fields,
    expecting = "an object with path and content"
)]
pub(super) struct WriteFileDocument {
    /// The file, relative to the working directory and inside it.
    pub(super) path: Template,
    /// A text is written as it is, any other value as JSON.
    pub(super) content: Template,
    /// The managed effect. Default: type `file.write`, idempotent, requested by path and content.
    #[serde(default)]
    pub(super) effect: Option<EffectDocument>,
}

/// Reads one file.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(
    rename_all = "camelCase",
    deny_unknown_fields,
    expecting = "an object with a path"
)]
pub(super) struct ReadFileDocument {
    /// The file, relative to the working directory and inside it.
    pub(super) path: Template,
    /// The managed effect. Default: type `file.read`, idempotent, requested by path.
    #[serde(default)]
    pub(super) effect: Option<EffectDocument>,
}

/// What makes a repeated visit of an action meet its earlier self.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(
    rename_all = "camelCase",
    deny_unknown_fields,
    expecting = "an object with type and recovery"
)]
pub(super) struct EffectDocument {
    /// The type of the effect, for example `git.log`.
    #[serde(rename = "type")]
    #[schemars(length(min = 1, max = 256))]
    pub(super) effect_type: String,
    /// What to do when a crash leaves it open whether the action acted: `idempotent` acts again,
    /// `manual` waits for a person.
    pub(super) recovery: Recovery,
    /// What identifies the work. Default: the input and all outputs.
    #[serde(default, deserialize_with = "present")]
    #[schemars(with = "Option<Template>")]
    pub(super) request: Option<Template>,
}

/// Waits for an answer.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, expecting = "an object")]
pub(super) struct CheckpointDocument {
    /// What the wait is about, in a few words. Display only.
    #[serde(default)]
    pub(super) summary: Option<String>,
    /// What the answering person sees.
    #[serde(default, deserialize_with = "present")]
    #[schemars(with = "Option<Template>")]
    pub(super) request: Option<Template>,
}

/// A step that a model does.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(
    rename_all = "camelCase",
    deny_unknown_fields,
    expecting = "an object with a prompt"
)]
pub(super) struct AgentDocument {
    /// What the model is told; a text.
    pub(super) prompt: Template,
    /// Says in words which output is wanted.
    #[serde(default)]
    pub(super) expects: Option<String>,
    /// Accepts or rejects what is submitted: a JSON Schema, or an expression that sees it as `.` and gives true, false or a text that
    /// says what is wrong.
    #[serde(default)]
    #[schemars(with = "Option<Validation>")]
    pub(super) validate: Option<Marked<Value>>,
}

/// A step in which a model chooses.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(
    rename_all = "camelCase",
    deny_unknown_fields,
    expecting = "an object with a prompt and choices"
)]
pub(super) struct DecideDocument {
    /// What the model is told; a text. It is told the choices besides.
    pub(super) prompt: Template,
    /// The choices by name. Nothing else is accepted.
    #[schemars(with = "BTreeMap<String, ChoiceDocument>", extend("minProperties" = 1))]
    pub(super) choices: Ordered<ChoiceDocument>,
}

/// One choice of a model.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(
    rename_all = "camelCase",
    deny_unknown_fields,
    expecting = "an object with to"
)]
pub(super) struct ChoiceDocument {
    /// The node or include that it leads to.
    pub(super) to: String,
    /// Tells the model in a few words when to choose it.
    #[serde(default)]
    pub(super) means: Option<String>,
}

/// A step whose output is the next text that the model shows.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(
    rename_all = "camelCase",
    deny_unknown_fields,
    expecting = "an object with a prompt"
)]
pub(super) struct AssistantMessageDocument {
    /// What the model is told; a text.
    pub(super) prompt: Template,
    /// The most characters that the text may have.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub(super) max_chars: Option<u32>,
}

/// A text that the origin session is shown.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(
    rename_all = "camelCase",
    deny_unknown_fields,
    expecting = "an object with kind and message"
)]
pub(super) struct NotifyDocument {
    /// `progress` when the work goes on, `final` when it is done.
    pub(super) kind: NotificationKind,
    /// The text; not blank.
    pub(super) message: Template,
}

/// A workflow in this one.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(
    rename_all = "camelCase",
    deny_unknown_fields,
    expecting = "an object with a workflow"
)]
pub(super) struct IncludeDocument {
    /// Which one: a path, relative to this file; `builtin:` and an id; or a name.
    pub(super) workflow: String,
    /// Its input. Without it, it gets the input of this workflow.
    #[serde(default, deserialize_with = "present")]
    #[schemars(with = "Option<Template>")]
    pub(super) input: Option<Template>,
    /// The settings that it begins with. Without it, those that it declares.
    #[serde(default, deserialize_with = "present")]
    #[schemars(with = "Option<Template>")]
    pub(super) settings: Option<Template>,
    /// A workflow whose outside it must have: contract id, exits, and whether the input is checked.
    #[serde(default)]
    pub(super) contract: Option<String>,
}

/// A way to leave this workflow.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(
    rename_all = "camelCase",
    deny_unknown_fields,
    expecting = "an object with from"
)]
pub(super) struct ExitDocument {
    /// The node that it follows; no route leaves it. Its output is taken out.
    pub(super) from: String,
    /// Accepts or rejects the output: a JSON Schema, or an expression that sees it as `.` and gives true, false or a text that says
    /// what is wrong.
    #[serde(default)]
    #[schemars(with = "Option<Validation>")]
    pub(super) validate: Option<Marked<Value>>,
}

/// What accepts or rejects an output, for the JSON Schema of the format.
struct Validation;

impl JsonSchema for Validation {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Validation".into()
    }

    fn json_schema(_generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "An expression, or a JSON Schema with the keywords type, enum, const, properties, required, additionalProperties, items, minItems, maxItems, minLength, maxLength, minimum, maximum, exclusiveMinimum, exclusiveMaximum, allOf, anyOf, oneOf and not.",
            "anyOf": [
                {
                    "type": "object",
                    "properties": { "jq": { "type": "string", "description": "Gives true, false, or a text that says what is wrong." } },
                    "required": ["jq"],
                    "additionalProperties": false,
                },
                { "type": ["object", "boolean"] },
            ],
        })
    }
}

/// A route: `to` one node, or by a `switch`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(
    rename_all = "camelCase",
    deny_unknown_fields,
    expecting = "a route, which is an object"
)]
#[schemars(extend("oneOf" = [{ "required": ["to"] }, { "required": ["switch"] }]))]
pub(super) struct EdgeDocument {
    /// The node that the route leaves, or an exit of an include: `name.exit`.
    #[serde(default)]
    #[schemars(required)]
    pub(super) from: Option<String>,
    /// The node or include that it leads to.
    #[serde(default)]
    #[schemars(with = "String")]
    pub(super) to: Option<String>,
    /// Leads to the node of the case that a value selects.
    #[serde(default)]
    #[schemars(with = "SwitchDocument")]
    pub(super) switch: Option<SwitchDocument>,
}

/// Selects a node by a value.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(
    rename_all = "camelCase",
    deny_unknown_fields,
    expecting = "an object with on and cases"
)]
pub(super) struct SwitchDocument {
    /// Where the value is: `$.x` or `$output.x` in the output, `$result.x` in the result record.
    /// Only a `$result.` path applies when the node failed or ran out of time.
    #[schemars(regex(pattern = r"^(\$|\$output|\$result)\."))]
    pub(super) on: String,
    /// Node by case; a case is the text of a string, number or boolean.
    #[schemars(with = "BTreeMap<String, String>", extend("minProperties" = 1))]
    pub(super) cases: Ordered<String>,
}

/// A member that is there is `Some`, even if it is null.
fn present<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// An object in the order of the file. The reader has refused repeated keys.
#[derive(Debug, Clone)]
pub(super) struct Ordered<T>(pub(super) Vec<(String, T)>);

impl<T> Default for Ordered<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Ordered<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OrderedVisitor<T>(std::marker::PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for OrderedVisitor<T> {
            type Value = Ordered<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<Ordered<T>, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Ordered(fields))
            }
        }
        deserializer.deserialize_map(OrderedVisitor(std::marker::PhantomData))
    }
}

/// A JSON value in which an object with the one member `jq` is an expression.
#[derive(Debug, Clone)]
pub(super) enum Template {
    Literal(Value),
    Expression(Marked<String>),
    List(Vec<Template>),
    Object(Vec<(String, Template)>),
}

impl JsonSchema for Template {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Value".into()
    }

    fn json_schema(_generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Any JSON value. Text is text; an object with the one member `jq`, here or deeper inside, is an expression and stands for its value. It sees $input, $outputs, $results, $run and $settings.",
            "anyOf": [
                {
                    "type": "object",
                    "properties": { "jq": { "type": "string", "description": "A jq expression with exactly one output." } },
                    "required": ["jq"],
                    "additionalProperties": false,
                },
                true,
            ],
        })
    }
}

impl<'de> Deserialize<'de> for Template {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TemplateVisitor)
    }
}

struct TemplateVisitor;

impl<'de> Visitor<'de> for TemplateVisitor {
    type Value = Template;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value, or { jq: an expression }")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Template, E> {
        Ok(Template::Literal(Value::Null))
    }

    fn visit_bool<E: de::Error>(self, flag: bool) -> Result<Template, E> {
        Ok(Template::Literal(flag.into()))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Template, E> {
        Ok(Template::Literal(number.into()))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Template, E> {
        Ok(Template::Literal(number.into()))
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<Template, E> {
        Ok(Template::Literal(number.into()))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Template, E> {
        Ok(Template::Literal(text.into()))
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, mut items: A) -> Result<Template, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Template::List(list).folded())
    }

    fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<Template, A::Error> {
        let mut fields = Vec::new();
        let mut expression = None;
        while let Some(key) = map.next_key::<String>()? {
            if key == "jq" {
                expression = Some(map.next_value::<Marked<String>>()?);
            } else {
                fields.push((key, map.next_value()?));
            }
        }
        match expression {
            Some(expression) if fields.is_empty() => Ok(Template::Expression(expression)),
            Some(_) => Err(de::Error::custom(
                "an object with `jq` is an expression and can't have other members; to have a member of that name, make the object in jq",
            )),
            None => Ok(Template::Object(fields).folded()),
        }
    }
}

impl Template {
    /// A collection without expressions becomes a literal, so it costs nothing at run time.
    fn folded(self) -> Self {
        let literal = |template: &Template| match template {
            Template::Literal(value) => Some(value.clone()),
            Template::Expression(_) | Template::List(_) | Template::Object(_) => None,
        };
        let folded = match &self {
            Self::Literal(_) | Self::Expression(_) => None,
            Self::List(items) => items.iter().map(literal).collect::<Option<Value>>(),
            Self::Object(fields) => fields
                .iter()
                .map(|(key, value)| Some((key.clone(), literal(value)?)))
                .collect::<Option<Value>>(),
        };
        folded.map_or(self, Self::Literal)
    }
}

/// The JSON Schema of workflow files.
pub(super) fn json_schema() -> Value {
    schemars::schema_for!(WorkflowDocument).to_value()
}
