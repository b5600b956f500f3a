//! The typed builder: a workflow in Rust, with closures that see a typed input. Includes and exits have a room of their own.
//!
//! Not here: checks beyond the place of an option; [`Workflow::build`] hands the parts to `validate`.

mod include;

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::agent::{Agent, ExpectedOutput, NotificationKind, Notify, TextFunction};
use super::compose::Library;
use super::context::{Context, NodeContext, NodeError};
use super::edge::{EdgeDraft, TargetDraft};
use super::node::{
    Action, ActionExecution, Checkpoint, Compute, EffectSpec, NodeKind, ParseLineFunction,
    ShellAction, ShellUpdates, TimeBudget, Timeout,
};
use super::value::{self, to_value};
use super::{Definition, DefinitionError, Draft, NodeDraft, Title};
use crate::settings::{Settings, SettingsError};
use crate::shell::{ShellCommand, ShellResult, Stream, Streams};
use crate::updates::Update;

/// Builds a [`Definition`] whose functions read the input as `I`.
///
/// Nodes are added one after the other; an option such as [`timeout`](Self::timeout) belongs to the
/// node added last.
///
/// ```
/// use holdpoint_workflows::definition::{EffectSpec, Workflow};
/// use holdpoint_workflows::shell::ShellCommand;
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize)]
/// struct ReleaseInput {
///     since: String,
/// }
///
/// let definition = Workflow::new("release-notes")
///     .input::<ReleaseInput>()
///     .start_at("log")
///     .shell("log", EffectSpec::idempotent("git.log"), |ctx| {
///         Ok(ShellCommand::new("git").args(["log", "--format=%s"]).arg(format!("{}..", ctx.input().since)))
///     })
///     .parse(|_, result| Ok(result.stdout.lines().map(str::to_owned).collect::<Vec<_>>()))
///     .compute("draft", |ctx| {
///         let subjects: Vec<String> = ctx.output("log")?;
///         Ok(subjects.iter().map(|subject| format!("- {subject}\n")).collect::<String>())
///     })
///     .checkpoint("review")
///     .summary("Publish these notes?")
///     .request(|ctx| ctx.output::<String>("draft"))
///     .edge("log", "draft")
///     .edge("draft", "review")
///     .build()?;
/// assert_eq!(definition.start_at(), &"log");
/// # Ok::<(), holdpoint_workflows::definition::DefinitionError>(())
/// ```
///
/// Routes may depend on a value, and on how a node ended:
///
/// ```
/// use holdpoint_workflows::definition::Workflow;
///
/// let definition = Workflow::new("retry")
///     .start_at("try")
///     .max_steps(5)
///     .compute("try", |ctx| if ctx.visit < 3 { Err("not yet".parse::<u8>().unwrap_err())? } else { Ok(ctx.visit) })
///     .compute("done", |ctx| ctx.output::<u32>("try"))
///     .switch("try", "$result.outcome", [("ok", "done"), ("failed", "try")])
///     .build()?;
/// # Ok::<(), holdpoint_workflows::definition::DefinitionError>(())
/// ```
pub struct Workflow<I = Value> {
    draft: Draft,
    latest: Latest,
    misplaced: Option<DefinitionError>,
    input: PhantomData<fn() -> I>,
}

/// What an option belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Latest {
    Nothing,
    Node,
    Include,
    Exit,
}

impl Workflow<Value> {
    /// Begins a workflow that takes any JSON value.
    pub fn new(name: impl Into<String>) -> Self {
        let draft = Draft {
            name: name.into(),
            ..Draft::default()
        };
        Self {
            draft,
            latest: Latest::Nothing,
            misplaced: None,
            input: PhantomData,
        }
    }
}

impl<I: DeserializeOwned + 'static> Workflow<I> {
    /// Reads the input as `T` from here on; an input of another shape is refused before a run exists.
    ///
    /// What a run stores is the serialised form of `T`, so the defaults of its fields are in it.
    #[must_use]
    pub fn input<T: Serialize + DeserializeOwned + 'static>(self) -> Workflow<T> {
        self.input_with(|value| Ok(value::read::<T>(value)?))
    }

    /// Like [`input`](Self::input), with a function that reads and checks.
    #[must_use]
    pub fn input_with<T: Serialize + DeserializeOwned + 'static>(
        mut self,
        normalize: impl Fn(Value) -> Result<T, NodeError> + Send + Sync + 'static,
    ) -> Workflow<T> {
        self.draft.input = Some(Arc::new(move |value| Ok(to_value(&normalize(value)?)?)));
        Workflow {
            draft: self.draft,
            latest: self.latest,
            misplaced: self.misplaced,
            input: PhantomData,
        }
    }

    /// Names the contract that the workflow keeps.
    #[must_use]
    pub fn contract_id(mut self, contract_id: impl Into<String>) -> Self {
        self.draft.contract_id = Some(contract_id.into());
        self
    }

    /// Gives the workflow live settings, which people and programs may change while a run goes on.
    #[must_use]
    pub fn settings<S: Serialize + DeserializeOwned + 'static>(
        mut self,
        settings: Settings<S>,
    ) -> Self {
        match settings.into_spec() {
            Ok(spec) => self.draft.settings = Some(spec),
            Err(error) => {
                let error = DefinitionError::Settings(SettingsError::Json(error));
                self.misplaced.get_or_insert(error);
            }
        }
        self
    }

    /// Gives all runs one title.
    #[must_use]
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.draft.title = Some(Title::Text(title.into()));
        self
    }

    /// Makes the title of each run from its input.
    #[must_use]
    pub fn title_with(
        mut self,
        title: impl Fn(&I) -> Result<String, NodeError> + Send + Sync + 'static,
    ) -> Self {
        self.draft.title = Some(Title::Function(Arc::new(move |input| {
            title(&value::read(input.clone())?)
        })));
        self
    }

    /// Names the first node.
    #[must_use]
    pub fn start_at(mut self, node: impl Into<String>) -> Self {
        self.draft.start_at = node.into();
        self
    }

    /// Sets how many steps a run may make.
    #[must_use]
    pub fn max_steps(mut self, max_steps: u32) -> Self {
        self.draft.max_steps = Some(max_steps);
        self
    }

    /// Adds a pure function of the context. It may run again after a crash, so it must not act.
    #[must_use]
    pub fn compute<O: Serialize>(
        self,
        id: impl Into<String>,
        run: impl Fn(&Context<'_, I>) -> Result<O, NodeError> + Send + Sync + 'static,
    ) -> Self {
        self.node(
            id,
            NodeKind::Compute(Compute {
                run: value_function(run),
                settings_route: false,
            }),
        )
    }

    /// Adds a pure function that decides by the live settings. It is asked again, in the same attempt, when they change between its
    /// start and the commit of its end; an ordinary node keeps what it began with.
    #[must_use]
    pub fn settings_route<O: Serialize>(
        self,
        id: impl Into<String>,
        run: impl Fn(&Context<'_, I>) -> Result<O, NodeError> + Send + Sync + 'static,
    ) -> Self {
        self.node(
            id,
            NodeKind::Compute(Compute {
                run: value_function(run),
                settings_route: true,
            }),
        )
    }

    /// Adds a function that acts, under a managed effect.
    #[must_use]
    pub fn action<O: Serialize>(
        self,
        id: impl Into<String>,
        effect: EffectSpec,
        run: impl Fn(&Context<'_, I>) -> Result<O, NodeError> + Send + Sync + 'static,
    ) -> Self {
        let execution = ActionExecution::Function(value_function(run));
        self.node(id, NodeKind::Action(Action { execution, effect }))
    }

    /// Adds a command that acts, under a managed effect. Without [`parse`](Self::parse) its output is
    /// the [`ShellResult`].
    #[must_use]
    pub fn shell(
        self,
        id: impl Into<String>,
        effect: EffectSpec,
        exec: impl Fn(&Context<'_, I>) -> Result<ShellCommand, NodeError> + Send + Sync + 'static,
    ) -> Self {
        let exec = Arc::new(move |node: &NodeContext<'_>| exec(&Context::new(node)?));
        let execution = ActionExecution::Shell(ShellAction {
            exec,
            parse: None,
            updates: None,
        });
        self.node(id, NodeKind::Action(Action { execution, effect }))
    }

    /// Adds a wait for an answer, which becomes the output.
    #[must_use]
    pub fn checkpoint(self, id: impl Into<String>) -> Self {
        self.node(id, NodeKind::Checkpoint(Checkpoint::default()))
    }

    /// Adds a step that a model does: an executor of the program in a headless run, the origin session in an interactive one. Its
    /// output is what it submits; JSON in a text is found.
    #[must_use]
    pub fn agent(
        self,
        id: impl Into<String>,
        prompt: impl Fn(&Context<'_, I>) -> Result<String, NodeError> + Send + Sync + 'static,
    ) -> Self {
        let expected = ExpectedOutput::Submitted {
            description: None,
            validate: None,
        };
        let prompt = text_function(prompt);
        self.node(id, NodeKind::Agent(Agent { prompt, expected }))
    }

    /// Says in words which output the agent added last shall submit.
    #[must_use]
    pub fn expects(self, output: impl Into<String>) -> Self {
        self.of_last("expects", |node| match expected(node)? {
            ExpectedOutput::Submitted { description, .. } => {
                *description = Some(output.into());
                Some(())
            }
            ExpectedOutput::AssistantMessage { .. } => None,
        })
    }

    /// Reads what the agent added last submits as `T`, and lets a function accept, change or reject it. A rejected submission of an
    /// origin session can be corrected; a headless step fails.
    #[must_use]
    pub fn validate<T: DeserializeOwned, O: Serialize>(
        self,
        validate: impl Fn(&Context<'_, I>, T) -> Result<O, NodeError> + Send + Sync + 'static,
    ) -> Self {
        self.of_last("validate", |node| match expected(node)? {
            ExpectedOutput::Submitted { validate: held, .. } => {
                *held = Some(Arc::new(move |node, candidate| {
                    let candidate = value::read(candidate)?;
                    value::output(&validate(&Context::new(node)?, candidate)?)
                }));
                Some(())
            }
            ExpectedOutput::AssistantMessage { .. } => None,
        })
    }

    /// Adds a step whose output is the next visible text of the model in the origin session. A headless run can't execute it.
    #[must_use]
    pub fn assistant_message(
        self,
        id: impl Into<String>,
        max_chars: Option<u32>,
        prompt: impl Fn(&Context<'_, I>) -> Result<String, NodeError> + Send + Sync + 'static,
    ) -> Self {
        let expected = ExpectedOutput::AssistantMessage { max_chars };
        let prompt = text_function(prompt);
        self.node(id, NodeKind::Agent(Agent { prompt, expected }))
    }

    /// Adds a text that the origin session is shown. A headless run has none, and fails there.
    #[must_use]
    pub fn notify(
        self,
        id: impl Into<String>,
        kind: NotificationKind,
        message: impl Fn(&Context<'_, I>) -> Result<String, NodeError> + Send + Sync + 'static,
    ) -> Self {
        let message = text_function(message);
        self.node(id, NodeKind::Notify(Notify { message, kind }))
    }

    /// Adds a node of any kind, also of one that [another crate](super::CustomNode) brings.
    #[must_use]
    pub fn node(mut self, id: impl Into<String>, kind: NodeKind) -> Self {
        self.draft.nodes.push(NodeDraft {
            id: id.into(),
            kind,
            timeout: Timeout::Default,
            status_detail: None,
            declared: None,
        });
        self.latest = Latest::Node;
        self
    }

    /// Sets the time budget of the node added last.
    #[must_use]
    pub fn timeout(self, timeout: Timeout) -> Self {
        self.of_last("timeout", |node| {
            node.timeout = timeout;
            Some(())
        })
    }

    /// Computes the time budget of each attempt at the node added last.
    #[must_use]
    pub fn timeout_with(
        self,
        timeout: impl Fn(&Context<'_, I>) -> Result<TimeBudget, NodeError> + Send + Sync + 'static,
    ) -> Self {
        self.timeout(Timeout::Function(Arc::new(move |node| {
            timeout(&Context::new(node)?)
        })))
    }

    /// Sets what a run shows while it is at the node added last.
    #[must_use]
    pub fn status_detail(self, detail: impl Into<String>) -> Self {
        self.of_last("status_detail", |node| {
            node.status_detail = Some(detail.into());
            Some(())
        })
    }

    /// Makes the output of the command added last from what it wrote.
    #[must_use]
    pub fn parse<O: Serialize>(
        self,
        parse: impl Fn(&Context<'_, I>, &ShellResult) -> Result<O, NodeError> + Send + Sync + 'static,
    ) -> Self {
        self.of_last("parse", |node| match &mut node.kind {
            NodeKind::Action(Action {
                execution: ActionExecution::Shell(shell),
                ..
            }) => {
                shell.parse = Some(Arc::new(move |node, result| {
                    value::output(&parse(&Context::new(node)?, result)?)
                }));
                Some(())
            }
            _ => None,
        })
    }

    /// Makes updates of the lines that the command added last writes to some of its streams, while it runs. A line has at most 64 KiB
    /// of UTF-8. When the function fails, or an update is refused, the command is stopped and the node fails.
    #[must_use]
    pub fn updates<U: IntoIterator<Item = Update>>(
        self,
        streams: Streams,
        parse_line: impl Fn(&Context<'_, I>, Stream, &str) -> Result<U, NodeError>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        self.of_last("updates", |node| match &mut node.kind {
            NodeKind::Action(Action {
                execution: ActionExecution::Shell(shell),
                ..
            }) => {
                let parse_line: ParseLineFunction = Arc::new(move |node, stream, line| {
                    Ok(parse_line(&Context::new(node)?, stream, line)?
                        .into_iter()
                        .collect())
                });
                shell.updates = Some(ShellUpdates {
                    streams,
                    parse_line,
                });
                Some(())
            }
            _ => None,
        })
    }

    /// Says in a few words what the checkpoint added last is about.
    #[must_use]
    pub fn summary(self, summary: impl Into<String>) -> Self {
        self.of_last("summary", |node| {
            checkpoint(node)?.summary = Some(summary.into());
            Some(())
        })
    }

    /// Makes the request that the answering person sees at the checkpoint added last.
    #[must_use]
    pub fn request<O: Serialize>(
        self,
        request: impl Fn(&Context<'_, I>) -> Result<O, NodeError> + Send + Sync + 'static,
    ) -> Self {
        self.of_last("request", |node| {
            checkpoint(node)?.run = Some(value_function(request));
            Some(())
        })
    }

    /// Adds a route from one node to another.
    #[must_use]
    pub fn edge(mut self, from: impl Into<String>, to: impl Into<String>) -> Self {
        self.draft.edges.push(EdgeDraft {
            from: from.into(),
            to: TargetDraft::Node(to.into()),
        });
        self
    }

    /// Adds a route whose target the value at `on` selects: `$.x` or `$output.x` in the output of
    /// `from`, `$result.x` in its result record (and then for failures and timeouts too).
    #[must_use]
    pub fn switch<C: Into<String>, N: Into<String>>(
        mut self,
        from: impl Into<String>,
        on: impl Into<String>,
        cases: impl IntoIterator<Item = (C, N)>,
    ) -> Self {
        let cases: BTreeMap<String, String> = cases
            .into_iter()
            .map(|(case, node)| (case.into(), node.into()))
            .collect();
        let to = TargetDraft::Switch {
            on: on.into(),
            cases,
        };
        self.draft.edges.push(EdgeDraft {
            from: from.into(),
            to,
        });
        self
    }

    /// Checks the workflow.
    ///
    /// # Errors
    ///
    /// The first failing check. An option in a wrong place comes before all others.
    pub fn build(self) -> Result<Definition, DefinitionError> {
        match self.misplaced {
            Some(error) => Err(error),
            None => self.draft.build(),
        }
    }

    /// Checks the workflow, with a library that finds what it [includes by name](Self::include_named).
    ///
    /// # Errors
    ///
    /// As [`build`](Self::build).
    pub fn build_with(self, library: &dyn Library) -> Result<Definition, DefinitionError> {
        match self.misplaced {
            Some(error) => Err(error),
            None => self.draft.build_with(library),
        }
    }

    /// The parts, before any check.
    #[cfg(test)]
    pub(super) fn into_draft(self) -> Draft {
        self.draft
    }

    /// Sets an option of the node added last; `None` says that its kind does not have the option.
    fn of_last(
        mut self,
        option: &'static str,
        set: impl FnOnce(&mut NodeDraft) -> Option<()>,
    ) -> Self {
        let why = match (self.latest, self.draft.nodes.last_mut()) {
            (Latest::Include, _) => Some("does not belong to an include".to_owned()),
            (Latest::Exit, _) => Some("does not belong to an exit".to_owned()),
            (_, None) => Some("stands before the first node".to_owned()),
            (Latest::Nothing | Latest::Node, Some(node)) => {
                let (id, node_type) = (node.id.clone(), node.kind.node_type().to_owned());
                set(node)
                    .is_none()
                    .then(|| format!("does not belong to node {id:?} of type {node_type}"))
            }
        };
        self.misplaced(option, why)
    }

    pub(super) fn misplaced(mut self, option: &'static str, why: Option<String>) -> Self {
        if let (Some(why), None) = (why, &self.misplaced) {
            self.misplaced = Some(DefinitionError::Misplaced { option, why });
        }
        self
    }
}

fn checkpoint(node: &mut NodeDraft) -> Option<&mut Checkpoint> {
    match &mut node.kind {
        NodeKind::Checkpoint(checkpoint) => Some(checkpoint),
        _ => None,
    }
}

fn expected(node: &mut NodeDraft) -> Option<&mut ExpectedOutput> {
    match &mut node.kind {
        NodeKind::Agent(agent) => Some(&mut agent.expected),
        _ => None,
    }
}

fn text_function<I: DeserializeOwned + 'static>(
    text: impl Fn(&Context<'_, I>) -> Result<String, NodeError> + Send + Sync + 'static,
) -> TextFunction {
    Arc::new(move |node| text(&Context::new(node)?))
}

/// Hides the types of a closure behind JSON.
fn value_function<I: DeserializeOwned + 'static, O: Serialize>(
    run: impl Fn(&Context<'_, I>) -> Result<O, NodeError> + Send + Sync + 'static,
) -> super::node::ValueFunction {
    Arc::new(move |node| value::output(&run(&Context::new(node)?)?))
}
