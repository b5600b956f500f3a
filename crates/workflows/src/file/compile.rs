//! Makes a definition of a document that has been read: expressions become functions.
//!
//! Not here: syntax and positions (`tree`, `read`), the checks that every definition has to pass.

mod action;
mod include;
mod input;
mod settings;
mod talk;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::error::Problem;
use super::expression::{Environment, Expression};
use super::format::{DecideDocument, EdgeDocument, NodeDocument, Template, WorkflowDocument};
use super::kinds::{self, KindNode, KindValue, Kinds, OfKinds};
use super::library::Loader;
use super::tree::{NodeIndex, Position, Tree};
use crate::definition::{
    Checkpoint, Compute, Definition, DefinitionError, Draft, EdgeDraft, IncludeProblem,
    NodeContext, NodeDraft, NodeError, NodeKind, SourceIdentity, TargetDraft, TimeBudget, Timeout,
    Title, ValueFunction,
};

type Located = (Position, Problem);
type Result<T> = std::result::Result<T, Located>;

/// A template whose expressions are compiled.
#[derive(Debug, Clone)]
pub(super) enum Prepared {
    Literal(Value),
    Expression(Expression),
    List(Vec<Prepared>),
    Object(Vec<(String, Prepared)>),
}

impl Prepared {
    /// The value in an environment. The environment is made only if there is an expression.
    pub(super) fn value(
        &self,
        environment: &dyn Fn() -> Environment,
    ) -> std::result::Result<Value, NodeError> {
        Ok(match self {
            Self::Literal(value) => value.clone(),
            Self::Expression(expression) => expression
                .evaluate(environment())
                .map_err(|error| NodeError::named("ExpressionError", error.to_string()))?,
            Self::List(items) => items
                .iter()
                .map(|item| item.value(environment))
                .collect::<std::result::Result<Value, NodeError>>()?,
            Self::Object(fields) => fields
                .iter()
                .map(|(key, field)| Ok((key.clone(), field.value(environment)?)))
                .collect::<std::result::Result<Map<_, _>, NodeError>>()?
                .into(),
        })
    }

    pub(super) fn in_context(
        &self,
        context: &NodeContext<'_>,
    ) -> std::result::Result<Value, NodeError> {
        self.value(&|| Environment::of(context))
    }
}

struct Compiler<'t> {
    tree: &'t Tree,
    loader: &'t Loader<'t>,
    source: Option<&'t SourceIdentity>,
    /// The nodes with a switch in themselves, in the order of their routes, and how many routes of the file's own stand before those.
    switching: (usize, Vec<Switching>),
    kinds: &'t Kinds,
    /// The values of members that are for kinds of other crates, by node.
    of_kinds: OfKinds,
}

/// A node whose switch is written in itself.
struct Switching {
    node: String,
    /// Where, in the node, the cases are.
    choices: Vec<String>,
    /// Where, in the node, each case says where it leads.
    cases: BTreeMap<String, Vec<String>>,
}

/// Makes the definition.
pub(super) fn definition<'t>(
    tree: &'t Tree,
    document: WorkflowDocument,
    (kinds, of_kinds): (&'t Kinds, OfKinds),
    loader: &'t Loader<'t>,
    source: Option<&'t SourceIdentity>,
) -> Result<Definition> {
    let mut compiler = Compiler {
        tree,
        loader,
        source,
        switching: (document.edges.len(), Vec::new()),
        kinds,
        of_kinds,
    };
    let max_steps = compiler.max_steps(document.max_steps.as_ref())?;
    let title = document
        .title
        .map(|title| compiler.title(title))
        .transpose()?;
    let declared_input = document.input.as_ref().map(|_| compiler.declared_input());
    let input = document
        .input
        .map(|input| compiler.input(input))
        .transpose()?
        .flatten();
    let settings = document
        .settings
        .map(|settings| compiler.settings(settings))
        .transpose()?;
    let mut nodes = Vec::new();
    let mut switches = Vec::new();
    for (id, node) in document.nodes.0 {
        let (node, switch) = compiler.node(id, node)?;
        if let Some((edge, switching)) = switch {
            compiler.switching.1.push(switching);
            switches.push(edge);
        }
        nodes.push(node);
    }
    let mut edges = Vec::new();
    for (index, edge) in document.edges.into_iter().enumerate() {
        edges.push(compiler.edge(index, edge)?);
    }
    edges.append(&mut switches);
    let mut includes = Vec::new();
    for (name, include) in document.includes.0 {
        includes.push(compiler.include(&document.name, name, include)?);
    }
    let exits = compiler.exits(document.exits)?;
    let draft = Draft {
        name: document.name,
        contract_id: document.contract_id,
        title,
        input,
        declared_input,
        settings,
        start_at: document.start_at,
        max_steps,
        nodes,
        includes,
        exits,
        edges,
        source: source.cloned(),
    };
    draft
        .build()
        .map_err(|error| (compiler.place(&error), Problem::Definition(error)))
}

impl Compiler<'_> {
    /// The place of an error that only shows in the whole definition.
    fn place(&self, error: &DefinitionError) -> Position {
        use DefinitionError as E;
        let edge = |index: &usize, rest: &[&str]| {
            let (own, switching) = &self.switching;
            let switch = index.checked_sub(*own).and_then(|at| switching.get(at));
            if let Some(switch) = switch {
                let case = rest.get(2).and_then(|case| switch.cases.get(*case));
                let within = case.unwrap_or(&switch.choices).iter().map(String::as_str);
                let path = ["nodes", switch.node.as_str()];
                return self.tree.locate(path.into_iter().chain(within));
            }
            let index = index.to_string();
            let path = ["edges", index.as_str()];
            self.tree
                .locate(path.into_iter().chain(rest.iter().copied()))
        };
        let node = |id: &str, rest: &[&str]| {
            self.tree
                .locate(["nodes", id].into_iter().chain(rest.iter().copied()))
        };
        let key_of = |block: &str, id: &str| {
            let block = self
                .tree
                .root()
                .and_then(|root| self.tree.child(root, block));
            block.and_then(|block| self.tree.locate_key(block, id))
        };
        let key = |id: &str| {
            key_of("nodes", id)
                .or_else(|| key_of("includes", id))
                .unwrap_or_else(|| node(id, &[]))
        };
        let named =
            |block: &str, id: &str| key_of(block, id).unwrap_or_else(|| self.tree.locate([block]));
        match error {
            E::NameMissing | E::NameReserved { .. } => self.tree.locate(["name"]),
            E::ContractId { .. } => self.tree.locate(["contractId"]),
            E::Settings(error) => self.tree.locate(["settings", settings::member_of(error)]),
            E::StartAtMissing | E::StartAtUnknown { .. } | E::StartAtInclude { .. } => {
                self.tree.locate(["startAt"])
            }
            E::IncludeName { include, .. } => named("includes", include),
            E::IncludeWorkflow { include } => {
                self.tree.locate(["includes", include.as_str(), "workflow"])
            }
            E::Exit { exit, .. } => named("exits", exit),
            E::ExitFromUnknown { exit, .. }
            | E::ExitNotTerminal { exit, .. }
            | E::ExitTwice { exit, .. } => self.tree.locate(["exits", exit.as_str(), "from"]),
            E::Include { include, problem } => {
                let member = match &**problem {
                    IncludeProblem::NoSettings { .. } => "settings",
                    problem if problem.is_contract() => "contract",
                    _ => "workflow",
                };
                self.tree.locate(["includes", include.as_str(), member])
            }
            E::MaxSteps { .. } => self.tree.locate(["maxSteps"]),
            E::NoNodes => self.tree.locate(["nodes"]),
            E::NodeIdForm { node }
            | E::NodeIdReserved { node }
            | E::NodeIdInherited { node }
            | E::NodeTwice { node } => key(node),
            E::NodeTimeout { node: id, .. } => node(id, &["timeoutMs"]),
            E::NodeType { node: id, .. } | E::Cases { node: id, .. } => node(id, &[]),
            E::ExpectedOutput { node: id, .. } => {
                [["agent", "expects"], ["assistantMessage", "maxChars"]]
                    .into_iter()
                    .map(|path| node(id, &path))
                    .max()
                    .unwrap_or_else(|| node(id, &[]))
            }
            E::EffectType { node: id, .. } => ["shell", "writeFile", "readFile"]
                .into_iter()
                .map(|kind| node(id, &[kind, "effect", "type"]))
                .max()
                .unwrap_or_else(|| node(id, &[])),
            E::EdgeFrom { index }
            | E::EdgeFromUnknown { index, .. }
            | E::EdgeFromNoExit { index, .. }
            | E::EdgeTwice { index, .. } => edge(index, &["from"]),
            E::EdgeTarget { index, .. } | E::EdgeToUnknown { index, .. } => edge(index, &["to"]),
            E::SwitchPath { index, .. } => edge(index, &["switch", "on"]),
            E::SwitchNoCases { index, .. } => edge(index, &["switch", "cases"]),
            E::SwitchCaseBlank { index, case, .. } | E::SwitchCaseUnknown { index, case, .. } => {
                edge(index, &["switch", "cases", case])
            }
            E::Unreachable { nodes, .. } => nodes
                .first()
                .map_or_else(|| self.tree.locate(["nodes"]), |id| key(id)),
            E::Misplaced { .. } | E::Value { .. } | E::Choices { .. } | E::TooLarge { .. } => {
                self.tree.locate([])
            }
        }
    }

    fn refuse<T>(&self, path: &[&str], code: &'static str, message: String) -> Result<T> {
        let at = self.tree.locate(path.iter().copied());
        Err((at, Problem::Shape { code, message }))
    }

    fn max_steps(&self, given: Option<&Value>) -> Result<Option<u32>> {
        let Some(given) = given else { return Ok(None) };
        if let Some(Ok(max_steps)) = given.as_u64().map(u32::try_from) {
            return Ok(Some(max_steps));
        }
        let error = DefinitionError::MaxSteps {
            given: given.to_string(),
        };
        Err((self.place(&error), Problem::Definition(error)))
    }

    fn prepare(&self, template: Template) -> Result<Prepared> {
        kinds::prepare(self.tree, template)
    }

    fn function(&self, template: Template) -> Result<ValueFunction> {
        let prepared = self.prepare(template)?;
        Ok(Arc::new(move |context| prepared.in_context(context)))
    }

    fn title(&self, template: Template) -> Result<Title> {
        let prepared = match self.prepare(template)? {
            Prepared::Literal(Value::String(text)) => return Ok(Title::Text(text)),
            Prepared::Literal(other) => {
                let message = format!("title must be a text or an expression, not {other}");
                return self.refuse(&["title"], "V8", message);
            }
            prepared => prepared,
        };
        Ok(Title::Function(Arc::new(move |input| {
            let environment = || Environment {
                dot: input.clone(),
                input: input.clone(),
                ..Environment::default()
            };
            text("the title", prepared.value(&environment)?)
        })))
    }

    fn node(
        &self,
        id: String,
        document: NodeDocument,
    ) -> Result<(NodeDraft, Option<(EdgeDraft, Switching)>)> {
        let NodeDocument {
            compute,
            settings_route,
            shell,
            write_file,
            read_file,
            checkpoint,
            agent,
            decide,
            assistant_message,
            notify,
            timeout_ms,
            status_detail,
        } = document;
        let timeout = match timeout_ms {
            None => Timeout::Default,
            Some(marked) => self.timeout(&id, marked.index, marked.value)?,
        };
        let mut kinds = Vec::new();
        if let Some(template) = compute {
            let run = self.function(template)?;
            kinds.push((
                "compute",
                NodeKind::Compute(Compute {
                    run,
                    settings_route: false,
                }),
            ));
        }
        if let Some(template) = settings_route {
            let run = self.function(template)?;
            let settings_route = true;
            let kind = NodeKind::Compute(Compute {
                run,
                settings_route,
            });
            kinds.push(("settingsRoute", kind));
        }
        if let Some(document) = shell {
            kinds.push(("shell", NodeKind::Action(self.shell(&id, document)?)));
        }
        if let Some(document) = write_file {
            kinds.push(("writeFile", NodeKind::Action(self.write_file(document)?)));
        }
        if let Some(document) = read_file {
            kinds.push(("readFile", NodeKind::Action(self.read_file(document)?)));
        }
        if let Some(document) = checkpoint {
            let run = document
                .request
                .map(|request| self.function(request))
                .transpose()?;
            let checkpoint = Checkpoint {
                summary: document.summary,
                run,
            };
            kinds.push(("checkpoint", NodeKind::Checkpoint(checkpoint)));
        }
        if let Some(document) = agent {
            kinds.push(("agent", self.agent(&id, document)?));
        }
        let mut switch = None;
        if let Some(document) = decide {
            let (kind, routes) = self.deciding(&id, document)?;
            kinds.push(("decide", kind));
            switch = Some(routes);
        }
        if let Some(document) = assistant_message {
            kinds.push(("assistantMessage", self.assistant_message(document)?));
        }
        if let Some(document) = notify {
            kinds.push(("notify", self.notify(document)?));
        }
        for (key, index) in self.of_kinds.get(&id).into_iter().flatten() {
            let (kind, routes) = self.of_kind(&id, key, *index)?;
            kinds.push((key, kind));
            switch = routes.or(switch);
        }
        let kind = self.only(&id, kinds)?;
        let declared = Some(self.declared_node(&id));
        let node = NodeDraft {
            id,
            kind,
            timeout,
            status_detail,
            declared,
        };
        Ok((node, switch))
    }

    /// The one thing that a node does.
    fn only(&self, id: &str, mut kinds: Vec<(&str, NodeKind)>) -> Result<NodeKind> {
        let path = ["nodes", id];
        let found: Vec<&str> = kinds.iter().map(|(name, _)| *name).collect();
        if 1 < found.len() {
            let message = format!(
                "node {id:?} has {}; a node does one thing",
                found.join(" and ")
            );
            return self.refuse(&path, "V15", message);
        }
        if let Some((_, kind)) = kinds.pop() {
            return Ok(kind);
        }
        let own = "compute, settingsRoute, shell, writeFile, readFile, checkpoint, agent, decide, assistantMessage, notify";
        let names: Vec<&str> = std::iter::once(own)
            .chain(self.kinds.keys().map(String::as_str))
            .collect();
        let message = format!("node {id:?} needs one of {}", names.join(", "));
        self.refuse(&path, "V15", message)
    }

    /// A decision of a model, with its switch.
    fn deciding(
        &self,
        id: &str,
        document: DecideDocument,
    ) -> Result<(NodeKind, (EdgeDraft, Switching))> {
        let names = document.choices.0.iter();
        let cases = names.map(|(name, _)| {
            let path = ["decide", "choices", name, "to"].map(str::to_owned);
            (name.clone(), path.to_vec())
        });
        let switching = Switching {
            node: id.to_owned(),
            choices: vec!["decide".to_owned(), "choices".to_owned()],
            cases: cases.collect(),
        };
        let (kind, edge) = self.decide(id, document)?;
        Ok((kind, (edge, switching)))
    }

    /// A node of another crate's kind.
    fn of_kind(
        &self,
        id: &str,
        key: &str,
        index: NodeIndex,
    ) -> Result<(NodeKind, Option<(EdgeDraft, Switching)>)> {
        let Some(kind) = self.kinds.get(key) else {
            let message = format!("node {id:?} has {key}, which nobody knows");
            return self.refuse(&["nodes", id, key], "V15", message);
        };
        let value = KindValue {
            tree: self.tree,
            index,
            path: ["nodes", id, key].map(str::to_owned).to_vec(),
        };
        let KindNode { kind, routes } = kind.read(&value).map_err(|error| error.0)?;
        let switch = routes.map(|routes| {
            let within = |path: Vec<String>| {
                std::iter::once(key.to_owned())
                    .chain(path)
                    .collect::<Vec<String>>()
            };
            let mut cases = BTreeMap::new();
            let mut places = BTreeMap::new();
            for (case, (to, path)) in routes.cases {
                places.insert(case.clone(), within(path));
                cases.insert(case, to);
            }
            let edge = EdgeDraft {
                from: id.to_owned(),
                to: TargetDraft::Switch {
                    on: routes.on,
                    cases,
                },
            };
            let switching = Switching {
                node: id.to_owned(),
                choices: within(Vec::new()),
                cases: places,
            };
            (edge, switching)
        });
        Ok((kind, switch))
    }

    /// What of a node decides behaviour.
    fn declared_node(&self, id: &str) -> Value {
        let nodes = self
            .tree
            .root()
            .and_then(|root| self.tree.child(root, "nodes"));
        let index = nodes.and_then(|nodes| self.tree.child(nodes, id));
        let mut declared = index.map_or(Value::Null, |index| self.tree.value(index));
        if let Some(members) = declared.as_object_mut() {
            members.remove("statusDetail");
        }
        if let Some(checkpoint) = declared
            .get_mut("checkpoint")
            .and_then(Value::as_object_mut)
        {
            checkpoint.remove("summary");
        }
        declared
    }

    fn timeout(&self, id: &str, index: NodeIndex, template: Template) -> Result<Timeout> {
        let refuse = |given: String| {
            let at = self
                .tree
                .node(index)
                .map_or(Position { line: 1, column: 1 }, |node| node.at);
            let error = DefinitionError::NodeTimeout {
                node: id.to_owned(),
                given,
            };
            Err((at, Problem::Definition(error)))
        };
        match self.prepare(template)? {
            Prepared::Literal(Value::Null) => Ok(Timeout::Unlimited),
            Prepared::Literal(Value::Number(number)) => match number.as_f64() {
                Some(millis) => Ok(Timeout::Fixed(millis)),
                None => refuse(number.to_string()),
            },
            Prepared::Expression(expression) => Ok(Timeout::Function(Arc::new(move |context| {
                let value = Prepared::Expression(expression.clone()).in_context(context)?;
                match &value {
                    Value::Null => Ok(TimeBudget::Unlimited),
                    Value::Number(number) => {
                        Ok(TimeBudget::Millis(number.as_f64().unwrap_or(f64::NAN)))
                    }
                    other => Err(NodeError::new(format!(
                        "timeoutMs must be a number or null, not {other}"
                    ))),
                }
            }))),
            Prepared::Literal(other) => refuse(other.to_string()),
            Prepared::List(_) => refuse("a list".to_owned()),
            Prepared::Object(_) => refuse("an object".to_owned()),
        }
    }

    fn edge(&self, index: usize, document: EdgeDocument) -> Result<EdgeDraft> {
        let from = document.from.unwrap_or_default();
        let to = match (document.to, document.switch) {
            _ if from.trim().is_empty() => {
                let error = DefinitionError::EdgeFrom { index };
                return Err((self.place(&error), Problem::Definition(error)));
            }
            (Some(to), None) => TargetDraft::Node(to),
            (None, Some(switch)) => TargetDraft::Switch {
                on: switch.on,
                cases: switch.cases.0.into_iter().collect::<BTreeMap<_, _>>(),
            },
            (None, None) | (Some(_), Some(_)) => {
                let error = DefinitionError::EdgeTarget { index, from };
                return Err((self.place(&error), Problem::Definition(error)));
            }
        };
        Ok(EdgeDraft { from, to })
    }
}

fn text(what: &str, value: Value) -> std::result::Result<String, NodeError> {
    match value {
        Value::String(text) => Ok(text),
        other => Err(NodeError::new(format!(
            "{what} must be a text, not {other}"
        ))),
    }
}
