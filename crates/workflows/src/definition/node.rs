//! What a node is made of: its kind with its functions, its time budget, its managed effect.
//!
//! Not here: whether the parts are right (`validate`, `graph`), running them (the engine).

use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use super::agent::{Agent, Notify};
use super::compose::IncludeTransition;
use super::context::{NodeContext, NodeError};
use super::custom::CustomNode;
use crate::id::NodeId;
use crate::shell::{ShellCommand, ShellResult, Stream, Streams};
use crate::updates::Update;

/// The time budget of a node that does not say one: 15 minutes.
pub const DEFAULT_TIMEOUT_MS: f64 = 15.0 * 60.0 * 1000.0;

/// How long a function that computes a title or a time budget may take, in milliseconds.
pub const RESOLVE_LIMIT_MS: u64 = 30_000;

/// A function from the context to a JSON value.
pub type ValueFunction = Arc<dyn Fn(&NodeContext<'_>) -> Result<Value, NodeError> + Send + Sync>;

/// A function that says which command a shell action runs.
pub type CommandFunction =
    Arc<dyn Fn(&NodeContext<'_>) -> Result<ShellCommand, NodeError> + Send + Sync>;

/// A function that makes the output of a shell action from what the command wrote.
pub type ParseFunction =
    Arc<dyn Fn(&NodeContext<'_>, &ShellResult) -> Result<Value, NodeError> + Send + Sync>;

/// A function that says the time budget of one attempt.
pub type TimeoutFunction =
    Arc<dyn Fn(&NodeContext<'_>) -> Result<TimeBudget, NodeError> + Send + Sync>;

/// One vertex of a definition.
#[derive(Debug, Clone)]
pub struct Node {
    /// Its id in the compiled graph.
    pub id: NodeId,
    /// What it does.
    pub kind: NodeKind,
    /// How long one attempt may take.
    pub timeout: Timeout,
    /// What a run shows while it is here. Display only.
    pub status_detail: Option<String>,
    /// The declared parts of a node that a workflow file brought: its expressions and literals.
    ///
    /// Part of the snapshot, so the digest of a definition from a file covers all that the file
    /// says of behaviour. Functions written in Rust can't be covered; their nodes have none.
    pub declared: Option<Value>,
    /// Whether the compiler made the node to lead into an included workflow or out of it.
    pub transition: Option<IncludeTransition>,
}

/// What a node does.
///
/// Kinds of other crates are [`NodeKind::Custom`]. More may come, so code outside this crate matches with a wildcard.
#[derive(Clone)]
#[non_exhaustive]
pub enum NodeKind {
    /// A pure function of the context. It may run again after a crash and must not act.
    Compute(Compute),
    /// Something that acts on the world, under a managed effect.
    Action(Action),
    /// Waits until somebody answers.
    Checkpoint(Checkpoint),
    /// A step that a model does.
    Agent(Agent),
    /// A text that the origin session is shown.
    Notify(Notify),
    /// A kind that another crate brings.
    Custom(Arc<dyn CustomNode>),
}

impl NodeKind {
    /// A node of a kind that another crate brings.
    pub fn custom(node: impl CustomNode) -> Self {
        Self::Custom(Arc::new(node))
    }

    /// The `nodeType` of snapshots and results.
    pub fn node_type(&self) -> &str {
        match self {
            Self::Compute(_) => "compute",
            Self::Action(_) => "action",
            Self::Checkpoint(_) => "checkpoint",
            Self::Agent(_) => "agent",
            Self::Notify(_) => "notify",
            Self::Custom(custom) => custom.node_type(),
        }
    }
}

/// The node types of this crate's own kinds.
pub(crate) const OWN_NODE_TYPES: [&str; 5] = ["agent", "compute", "action", "checkpoint", "notify"];

impl fmt::Debug for NodeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.node_type())
    }
}

/// A pure function of the context.
#[derive(Clone)]
pub struct Compute {
    /// Makes the output.
    pub run: ValueFunction,
    /// Whether it decides by live settings: it runs again when they change before its end is committed.
    pub settings_route: bool,
}

/// Something that acts on the world, at most once for each visit.
#[derive(Clone)]
pub struct Action {
    /// How it acts.
    pub execution: ActionExecution,
    /// The managed effect that is reserved before it acts.
    pub effect: EffectSpec,
}

/// How an action acts.
#[derive(Clone)]
pub enum ActionExecution {
    /// A function; its value is the output.
    Function(ValueFunction),
    /// A command in a process group of its own.
    Shell(ShellAction),
}

impl ActionExecution {
    /// The `actionExecution` of snapshots and the `actionType` of receipts.
    pub fn action_type(&self) -> &'static str {
        match self {
            Self::Function(_) => "function",
            Self::Shell(_) => "shell",
        }
    }
}

/// A command and what to make of its output.
#[derive(Clone)]
pub struct ShellAction {
    /// Says which command runs.
    pub exec: CommandFunction,
    /// Makes the node's output; without it the output is the [`ShellResult`] as JSON.
    pub parse: Option<ParseFunction>,
    /// Makes updates of what it writes, while it runs.
    pub updates: Option<ShellUpdates>,
}

/// How the output of a command becomes updates.
#[derive(Clone)]
pub struct ShellUpdates {
    /// The streams that are read, line by line.
    pub streams: Streams,
    /// Makes the updates of one line. An error stops the command and fails the node, and so does an update that is refused.
    pub parse_line: ParseLineFunction,
}

/// A function that makes updates of one line of a stream.
pub type ParseLineFunction =
    Arc<dyn Fn(&NodeContext<'_>, Stream, &str) -> Result<Vec<Update>, NodeError> + Send + Sync>;

/// Waits until somebody answers; the accepted answer is the output.
#[derive(Clone, Default)]
pub struct Checkpoint {
    /// What the wait is about, in a few words. Display only.
    pub summary: Option<String>,
    /// Makes the request that the answering person sees.
    pub run: Option<ValueFunction>,
}

/// The managed effect of an action: what makes a repeated visit meet its earlier self.
#[derive(Clone)]
pub struct EffectSpec {
    /// The type, a part of the idempotency key: trimmed, 1 to 256 characters.
    pub effect_type: String,
    /// What to do with an effect whose runner was lost while it may have acted.
    pub recovery: Recovery,
    /// What identifies the work; without it `{input, outputs}`. A repeat of the same key with
    /// another request is a conflict.
    pub request: Option<EffectRequest>,
}

impl EffectSpec {
    /// An effect that may be repeated safely: after a lost runner the action runs again.
    pub fn idempotent(effect_type: impl Into<String>) -> Self {
        Self {
            effect_type: effect_type.into(),
            recovery: Recovery::Idempotent,
            request: None,
        }
    }

    /// An effect that must not be repeated blindly: after a lost runner it waits for a person.
    pub fn manual(effect_type: impl Into<String>) -> Self {
        Self {
            effect_type: effect_type.into(),
            recovery: Recovery::Manual,
            request: None,
        }
    }

    /// Uses a fixed request.
    #[must_use]
    pub fn with_request(mut self, request: Value) -> Self {
        self.request = Some(EffectRequest::Value(request));
        self
    }

    /// Computes the request from the context.
    #[must_use]
    pub fn with_request_fn(
        mut self,
        request: impl Fn(&NodeContext<'_>) -> Result<Value, NodeError> + Send + Sync + 'static,
    ) -> Self {
        self.request = Some(EffectRequest::Function(Arc::new(request)));
        self
    }

    /// The request of one visit.
    ///
    /// # Errors
    ///
    /// The error of the request function.
    pub fn resolve_request(&self, context: &NodeContext<'_>) -> Result<Value, NodeError> {
        match &self.request {
            None => Ok(serde_json::json!({ "input": context.input, "outputs": context.outputs })),
            Some(EffectRequest::Value(value)) => Ok(value.clone()),
            Some(EffectRequest::Function(function)) => function(context),
        }
    }
}

impl fmt::Debug for EffectSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EffectSpec")
            .field("effect_type", &self.effect_type)
            .field("recovery", &self.recovery)
            .finish_non_exhaustive()
    }
}

/// What identifies the work of an effect.
#[derive(Clone)]
pub enum EffectRequest {
    /// Always the same.
    Value(Value),
    /// Depends on the visit.
    Function(ValueFunction),
}

/// What to do with an effect whose runner was lost while it may have acted.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Recovery {
    /// Act again: the provider, or the act itself, makes a repeat harmless.
    Idempotent,
    /// Wait for a person to look.
    Manual,
}

impl Recovery {
    /// The word of snapshots and effect payloads.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Idempotent => "idempotent",
            Self::Manual => "manual",
        }
    }
}

/// The time budget of a node, as its definition says it.
#[derive(Clone, Default)]
pub enum Timeout {
    /// [`DEFAULT_TIMEOUT_MS`].
    #[default]
    Default,
    /// So many milliseconds: finite and positive.
    Fixed(f64),
    /// None.
    Unlimited,
    /// Computed once for each attempt, within [`RESOLVE_LIMIT_MS`].
    Function(TimeoutFunction),
}

impl Timeout {
    /// A fixed budget of whole milliseconds.
    pub fn millis(millis: u32) -> Self {
        Self::Fixed(f64::from(millis))
    }

    /// The budget of one attempt.
    ///
    /// # Errors
    ///
    /// The error of the function, or that its result is not finite and positive.
    pub fn resolve(&self, context: &NodeContext<'_>) -> Result<TimeBudget, NodeError> {
        let budget = match self {
            Self::Default => TimeBudget::Millis(DEFAULT_TIMEOUT_MS),
            Self::Fixed(millis) => TimeBudget::Millis(*millis),
            Self::Unlimited => TimeBudget::Unlimited,
            Self::Function(function) => function(context)?,
        };
        match budget {
            TimeBudget::Millis(millis) if !is_budget(millis) => Err(NodeError::new(format!(
                "node {:?}: the timeout must be a finite positive number of milliseconds or null, not {millis}",
                context.node_id
            ))),
            TimeBudget::Millis(_) | TimeBudget::Unlimited => Ok(budget),
        }
    }
}

impl fmt::Debug for Timeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("Default"),
            Self::Fixed(millis) => write!(f, "Fixed({millis})"),
            Self::Unlimited => f.write_str("Unlimited"),
            Self::Function(_) => f.write_str("Function"),
        }
    }
}

/// Whether a number can be a time budget in milliseconds.
pub(crate) fn is_budget(millis: f64) -> bool {
    millis.is_finite() && 0.0 < millis
}

/// The time budget of one attempt.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum TimeBudget {
    /// So many milliseconds.
    Millis(f64),
    /// No limit.
    Unlimited,
}
