//! Node kinds of other crates in workflow files: a member of a node that this crate does not know, read by whoever registered it.
//!
//! A kind says its key, its JSON Schema, and how it makes a node of what the file says. It reads with the tools of this crate, so that its
//! errors have path and place as all others, and its values are templates as everywhere. Not here: what any such kind means.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::compile::Prepared;
use super::error::Problem;
use super::expression::Expression;
use super::format;
use super::read;
use super::tree::{NodeIndex, Position, Tree};
use crate::definition::{NodeContext, NodeError, NodeKind};

/// A node kind of another crate, as workflow files write it.
///
/// A program registers it ([`Registry::register_kind`](crate::Registry::register_kind)) before it reads files; its worker processes do
/// the same, since they read the file of their run by themselves.
///
/// ```
/// use std::sync::Arc;
///
/// use holdpoint_workflows::Registry;
/// use holdpoint_workflows::definition::{CustomNode, NodeContext, NodeError, NodeKind, NodeStep};
/// use holdpoint_workflows::file::{FileKind, KindError, KindNode, KindValue, Template, Templated};
/// use serde::Deserialize;
/// use serde_json::{Value, json};
///
/// /// Says a word as often as the file wants.
/// struct Say {
///     word: Templated,
///     times: u32,
/// }
///
/// impl CustomNode for Say {
///     fn node_type(&self) -> &str {
///         "say"
///     }
///
///     fn snapshot(&self) -> Value {
///         json!({ "times": self.times })
///     }
///
///     fn execute(&self, context: &NodeContext<'_>) -> Result<NodeStep, NodeError> {
///         let word = self.word.value(context)?;
///         Ok(NodeStep::Output(Value::from(vec![word; self.times as usize])))
///     }
/// }
///
/// struct SayInFiles;
///
/// #[derive(Deserialize)]
/// #[serde(deny_unknown_fields)]
/// struct Document {
///     word: Template,
///     times: u32,
/// }
///
/// impl FileKind for SayInFiles {
///     fn key(&self) -> &str {
///         "say"
///     }
///
///     fn schema(&self) -> Value {
///         json!({ "type": "object", "properties": { "word": { "$ref": "#/$defs/Value" }, "times": { "type": "integer" } } })
///     }
///
///     fn read(&self, value: &KindValue<'_>) -> Result<KindNode, KindError> {
///         let document: Document = value.read()?;
///         if document.times == 0 {
///             return Err(value.refuse(["times"], "once is the least"));
///         }
///         let word = value.compile(document.word)?;
///         Ok(KindNode::new(NodeKind::custom(Say { word, times: document.times })))
///     }
/// }
///
/// let directory = tempfile::tempdir()?;
/// let path = directory.path().join("echo.workflow.yaml");
/// std::fs::write(&path, "
/// name: echo
/// startAt: echo
/// nodes:
///   echo:
///     say: { word: { jq: $input }, times: 2 }
/// ")?;
/// let registry = Registry::default();
/// assert!(registry.read_file(&path).is_err(), "nobody knows such a node");
/// registry.register_kind(Arc::new(SayInFiles));
/// assert_eq!(registry.read_file(&path)?.definition.name(), "echo");
///
/// std::fs::write(&path, "name: echo\nstartAt: echo\nnodes:\n  echo:\n    say: { word: x, times: 0 }\n")?;
/// let error = registry.read_file(&path).unwrap_err().to_string();
/// assert!(error.ends_with(":5:28: Invalid workflow definition: once is the least"), "{error}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait FileKind: Send + Sync + 'static {
    /// The member of a node that says this kind, such as `decision`: a letter, then letters and digits, and no member that nodes have
    /// already.
    fn key(&self) -> &str;

    /// The JSON Schema of that member's value, for the published schema of workflow files. `{"$ref": "#/$defs/Value"}` is any JSON value
    /// with expressions in it.
    fn schema(&self) -> Value;

    /// Makes a node of that member's value.
    ///
    /// # Errors
    ///
    /// The first mistake, with its place.
    fn read(&self, value: &KindValue<'_>) -> Result<KindNode, KindError>;
}

/// What a kind makes of its value: the node, and the routes that it has in itself.
pub struct KindNode {
    pub(super) kind: NodeKind,
    pub(super) routes: Option<Routes>,
}

pub(super) struct Routes {
    pub(super) on: String,
    /// By case: where it leads, and where in the value it is said.
    pub(super) cases: BTreeMap<String, (String, Vec<String>)>,
}

impl KindNode {
    /// A node whose routes the file says in its `edges`.
    pub fn new(kind: NodeKind) -> Self {
        Self { kind, routes: None }
    }

    /// A node with a switch of its own: `on` selects one of the cases, each with the node that it leads to and the path in the value at
    /// which the file says that, for errors.
    #[must_use]
    pub fn switching(
        mut self,
        on: impl Into<String>,
        cases: impl IntoIterator<Item = (String, String, Vec<String>)>,
    ) -> Self {
        self.routes = Some(Routes {
            on: on.into(),
            cases: cases
                .into_iter()
                .map(|(case, to, path)| (case, (to, path)))
                .collect(),
        });
        self
    }
}

impl fmt::Debug for KindNode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("KindNode")
            .field("type", &self.kind.node_type())
            .finish_non_exhaustive()
    }
}

/// The value of a kind's member in a file, with its place.
pub struct KindValue<'t> {
    pub(super) tree: &'t Tree,
    pub(super) index: NodeIndex,
    /// The path of the value in the file.
    pub(super) path: Vec<String>,
}

impl KindValue<'_> {
    /// The id of the node.
    pub fn node_id(&self) -> &str {
        self.path.get(1).map_or("", String::as_str)
    }

    /// The value as plain JSON: what decides behaviour, for [`CustomNode::snapshot`](crate::definition::CustomNode::snapshot).
    pub fn json(&self) -> Value {
        self.tree.value(self.index)
    }

    /// Reads the value. Members that take expressions are [`Template`]s; unknown members are for `#[serde(deny_unknown_fields)]`.
    ///
    /// # Errors
    ///
    /// The first mistake, with its place.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, KindError> {
        read::value(self.tree, self.index).map_err(|error| KindError(error.into_problem(|_| CODE)))
    }

    /// Compiles the expressions of a template.
    ///
    /// # Errors
    ///
    /// An expression is none, with its place.
    pub fn compile(&self, template: Template) -> Result<Templated, KindError> {
        prepare(self.tree, template.0)
            .map(Templated)
            .map_err(KindError)
    }

    /// A mistake at a path within the value.
    pub fn refuse<'p>(
        &self,
        path: impl IntoIterator<Item = &'p str>,
        problem: impl Into<String>,
    ) -> KindError {
        let within: Vec<&str> = path.into_iter().collect();
        let path = self.path.iter().map(String::as_str).chain(within);
        KindError((
            self.tree.locate(path),
            Problem::Shape {
                code: CODE,
                message: problem.into(),
            },
        ))
    }
}

impl fmt::Debug for KindValue<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("KindValue")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

/// The check that a mistake in a node of another crate's kind breaks: a node does one thing, in the form of that.
const CODE: &str = "V15";

/// A mistake in the value of a kind, with its place in the file.
#[derive(Debug, Clone, PartialEq)]
pub struct KindError(pub(super) (Position, Problem));

impl fmt::Display for KindError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.0.0, self.0.1)
    }
}

impl std::error::Error for KindError {}

/// A JSON value of a workflow file in which an object with the one member `jq` is an expression. Only such a file can be read into it.
#[derive(Debug, Clone)]
pub struct Template(format::Template);

impl<'de> Deserialize<'de> for Template {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        format::Template::deserialize(deserializer).map(Self)
    }
}

impl JsonSchema for Template {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        format::Template::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        format::Template::json_schema(generator)
    }
}

/// A template whose expressions are compiled.
#[derive(Debug, Clone)]
pub struct Templated(Prepared);

impl Templated {
    /// A value without expressions.
    pub fn fixed(value: Value) -> Self {
        Self(Prepared::Literal(value))
    }

    /// The value, if no expression is in it.
    pub fn literal(&self) -> Option<&Value> {
        match &self.0 {
            Prepared::Literal(value) => Some(value),
            Prepared::Expression(_) | Prepared::List(_) | Prepared::Object(_) => None,
        }
    }

    /// The value for an attempt.
    ///
    /// # Errors
    ///
    /// `ExpressionError`: an expression can't be evaluated.
    pub fn value(&self, context: &NodeContext<'_>) -> Result<Value, NodeError> {
        self.0.in_context(context)
    }
}

/// Compiles the expressions of a template.
pub(super) fn prepare(
    tree: &Tree,
    template: format::Template,
) -> Result<Prepared, (Position, Problem)> {
    Ok(match template {
        format::Template::Literal(value) => Prepared::Literal(value),
        format::Template::Expression(text) => {
            Prepared::Expression(Expression::compile(&text.value).map_err(|error| {
                let at = tree.locate_in_text(text.index, error.offset);
                let message = error.message;
                (at, Problem::Expression { message })
            })?)
        }
        format::Template::List(items) => Prepared::List(
            items
                .into_iter()
                .map(|item| prepare(tree, item))
                .collect::<Result<_, _>>()?,
        ),
        format::Template::Object(fields) => Prepared::Object(
            fields
                .into_iter()
                .map(|(key, field)| Ok((key, prepare(tree, field)?)))
                .collect::<Result<_, _>>()?,
        ),
    })
}

/// The kinds of other crates that a program registered, by key.
pub(crate) type Kinds = BTreeMap<String, Arc<dyn FileKind>>;

/// The values of members that are for kinds of other crates, by node: key and place.
pub(super) type OfKinds = BTreeMap<String, Vec<(String, NodeIndex)>>;

/// Sets the members of registered kinds apart: the document is read without them. Returns the values by node.
pub(super) fn set_apart(tree: &mut Tree, kinds: &Kinds) -> OfKinds {
    let mut found = OfKinds::new();
    let nodes = tree.root().and_then(|root| tree.child(root, "nodes"));
    let nodes = nodes.map_or_else(Vec::new, |nodes| tree.members(nodes));
    for (id, node) in nodes {
        for (key, value) in tree.members(node) {
            if kinds.contains_key(&key) {
                tree.hide(value);
                found.entry(id.clone()).or_default().push((key, value));
            }
        }
    }
    found
}

/// Adds the keys of registered kinds to what a node may have.
pub(super) fn with_keys(problem: Problem, kinds: &Kinds) -> Problem {
    match problem {
        Problem::UnknownField {
            field,
            allowed: mut all,
            meant: _,
        } if all.iter().any(|name| name == "checkpoint") => {
            let at = all
                .iter()
                .position(|name| name == "timeoutMs")
                .unwrap_or(all.len());
            all.splice(at..at, kinds.keys().cloned());
            Problem::UnknownField {
                meant: super::error::did_you_mean(&field, &all),
                field,
                allowed: all,
            }
        }
        other => other,
    }
}

/// Adds registered kinds to the JSON Schema of workflow files.
pub(super) fn with_kinds(mut schema: Value, kinds: &Kinds) -> Value {
    let Some(node) = schema
        .pointer_mut("/$defs/NodeDocument")
        .and_then(Value::as_object_mut)
    else {
        return schema;
    };
    for (key, kind) in kinds {
        if let Some(properties) = node.get_mut("properties").and_then(Value::as_object_mut) {
            properties.insert(key.clone(), kind.schema());
        }
        if let Some(one_of) = node.get_mut("oneOf").and_then(Value::as_array_mut) {
            one_of.push(serde_json::json!({ "required": [key] }));
        }
    }
    schema
}
