//! Node kinds of other crates: what one must say of itself, and how it parks an attempt with rows of its own.
//!
//! A kind is a value that an author puts into a definition, so that nothing is registered anywhere: the run is pinned to what the
//! kind says of itself in the snapshot. Not here: executing (the engine), answering a parked attempt
//! ([`commands::settle`](crate::commands::settle)).

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use holdpoint_state::Change;
use holdpoint_state::clock::UnixMillis;
use serde_json::Value;

use super::context::{NodeContext, NodeError};
use crate::error::WorkflowError;
use crate::id::{AttemptId, NodeId, RunId};

/// A node kind that another crate brings.
///
/// ```
/// use holdpoint_workflows::definition::{CustomNode, NodeContext, NodeError, NodeKind, NodeStep, Park, Workflow};
/// use serde_json::{Value, json};
///
/// /// Waits until a gate of this (imagined) domain is open.
/// struct Gate(&'static str);
///
/// impl CustomNode for Gate {
///     fn node_type(&self) -> &str {
///         "gate"
///     }
///
///     fn snapshot(&self) -> Value {
///         json!({ "gate": self.0 })
///     }
///
///     fn execute(&self, _context: &NodeContext<'_>) -> Result<NodeStep, NodeError> {
///         let gate = self.0;
///         Ok(NodeStep::Park(Park::new(json!({ "gate": gate })).beside(move |change, parked| {
///             // Here the domain writes its own row, by a command of its own: `change.also(…)`.
///             assert!(parked.request_id.starts_with("request-"));
///             Ok(())
///         })))
///     }
/// }
///
/// let definition = Workflow::new("guarded").start_at("wait").node("wait", NodeKind::custom(Gate("north"))).build()?;
/// assert_eq!(definition.snapshot()["nodes"]["wait"]["declared"]["gate"], "north");
/// # Ok::<(), holdpoint_workflows::definition::DefinitionError>(())
/// ```
pub trait CustomNode: Send + Sync + 'static {
    /// The `nodeType` of snapshots, attempts and results: a letter, then letters, digits, `_` and `-`, at most 64 characters. None
    /// of the names that this crate's own kinds have, but for `checkpoint`, which a kind that [parks as a decision](Park::decision)
    /// has.
    fn node_type(&self) -> &str;

    /// What of the node decides behaviour: the run is pinned to it.
    fn snapshot(&self) -> Value;

    /// What the kind demands of the routes that leave its node, if it demands anything.
    fn cases(&self) -> Option<Cases> {
        None
    }

    /// What is allowed of the node and still deserves a second look of its author, each a sentence. It decides nothing.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }

    /// Executes one attempt. It may be called again after a crash: what acts on the world belongs under an effect of the domain that
    /// brings the kind, reserved where it parks.
    ///
    /// # Errors
    ///
    /// The node's error; the attempt failed.
    fn execute(&self, context: &NodeContext<'_>) -> Result<NodeStep, NodeError>;

    /// Makes the wait of [`CustomNode::execute`] again from what [`Park::new`] was given, with the request and the rows of the domain.
    /// The host calls it when a worker process parked the attempt: code can't travel from there, and only the host writes. It checks
    /// what it is given, which is the word of a worker. `None`, as by default, when the kind can't; an attempt that parks with rows of
    /// its own then parks its run, because it can only be executed on threads.
    fn park_again(&self, contract: &Value) -> Option<Park> {
        let _ = contract;
        None
    }

    /// Makes the output of the answer that settled the parked attempt. Pure; the answer itself unless the kind says otherwise. A
    /// decision's output is its answer: no kind makes anything else of it.
    ///
    /// # Errors
    ///
    /// The answer means a failure: the attempt failed, and a route on `$result.outcome` applies.
    fn complete(&self, context: &NodeContext<'_>, answer: Value) -> Result<Value, NodeError> {
        let _ = context;
        Ok(answer)
    }
}

/// A closed set of outputs, each of which has a route: the node is left by one switch with exactly these cases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cases {
    /// Where the case is in the output, such as `$.choice`.
    pub on: String,
    /// The cases.
    pub names: BTreeSet<String>,
}

/// What an attempt at a node of another crate came to.
#[derive(Debug)]
pub enum NodeStep {
    /// Its output.
    Output(Value),
    /// It waits for its own domain.
    Park(Park),
}

/// Writes what belongs beside a parked attempt, in the same transaction.
pub(crate) type Beside =
    Arc<dyn Fn(&mut Change<'_>, &Parked) -> Result<(), WorkflowError> + Send + Sync>;

/// Makes the request of a parked attempt, in the same transaction.
pub(crate) type Asking = Arc<dyn Fn(&Waiting<'_>) -> Result<Asked, WorkflowError> + Send + Sync>;

/// Looks at a draft with the present instant.
pub(crate) type Checking = Arc<dyn Fn(UnixMillis) -> Result<(), NodeError> + Send + Sync>;

/// A wait: the attempt is parked until the domain that brought its kind settles it.
#[derive(Clone)]
pub struct Park {
    pub(crate) contract: Value,
    pub(crate) detail: Option<String>,
    pub(crate) is_decision: bool,
    pub(crate) asking: Option<Asking>,
    pub(crate) checking: Option<Checking>,
    pub(crate) beside: Option<Beside>,
}

impl Park {
    /// A wait with the contract of its request: what a client needs to understand it. It never changes.
    pub fn new(contract: Value) -> Self {
        Self {
            contract,
            detail: None,
            is_decision: false,
            asking: None,
            checking: None,
            beside: None,
        }
    }

    /// Says what the run shows while it waits.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// The request is of kind `decision`: a verified person answers it, and its node type is `checkpoint`.
    #[must_use]
    pub fn decision(mut self) -> Self {
        self.is_decision = true;
        self
    }

    /// Tells what only the present instant can show to be wrong with the draft, such as a deadline that has passed: an error fails the
    /// attempt. Called after [`CustomNode::execute`], where the node was executed, just before the attempt is to wait.
    #[must_use]
    pub fn checked_at(
        mut self,
        check: impl Fn(UnixMillis) -> Result<(), NodeError> + Send + Sync + 'static,
    ) -> Self {
        self.checking = Some(Arc::new(check));
        self
    }

    /// Lets the domain make its request in the transaction that parks the attempt: its id, and a contract that holds what only that
    /// transaction knows, such as the one instant of it. What [`Park::new`] was given is then the draft from which this is made; a
    /// worker process sends the draft, and the host makes the request of it ([`CustomNode::park_again`]).
    ///
    /// Pure and cheap: the one writer of the process waits for it, and it is called again when the transaction has to be made again.
    /// An error leaves the attempt as it was, so that it is tried again later: what can be wrong with the draft is found in
    /// [`CustomNode::execute`] and by [`Park::checked_at`].
    #[must_use]
    pub fn asking(
        mut self,
        request: impl Fn(&Waiting<'_>) -> Result<Asked, WorkflowError> + Send + Sync + 'static,
    ) -> Self {
        self.asking = Some(Arc::new(request));
        self
    }

    /// Writes rows of another domain in the transaction that parks the attempt: either both are durable or neither. The change is
    /// that of the run; rows of another domain are written by its own commands, with [`Change::also`]. Called again when the
    /// transaction has to be made again.
    #[must_use]
    pub fn beside(
        mut self,
        rows: impl Fn(&mut Change<'_>, &Parked) -> Result<(), WorkflowError> + Send + Sync + 'static,
    ) -> Self {
        self.beside = Some(Arc::new(rows));
        self
    }
}

impl fmt::Debug for Park {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Park")
            .field("contract", &self.contract)
            .field("is_decision", &self.is_decision)
            .finish_non_exhaustive()
    }
}

/// The attempt that is about to wait, as the transaction that parks it sees it.
#[derive(Debug)]
pub struct Waiting<'a> {
    /// The run.
    pub run_id: &'a RunId,
    /// The name of the workflow that the run was started from.
    pub workflow: &'a str,
    /// The session that the run belongs to.
    pub session: &'a str,
    /// The node.
    pub node_id: &'a NodeId,
    /// The attempt.
    pub attempt_id: &'a AttemptId,
    /// The instant of the transaction.
    pub now: UnixMillis,
}

/// A request as its domain made it.
#[derive(Debug, Clone, PartialEq)]
pub struct Asked {
    /// Its id: 1 to 200 letters, digits, `.`, `_` and `-`, the first one a letter or digit. It is unique in the whole store and
    /// follows from the attempt and the contract, so that a repeat meets its earlier self.
    pub request_id: String,
    /// What a client needs to understand it. It never changes.
    pub contract: Value,
}

/// The attempt that is being parked.
#[derive(Debug, Clone)]
pub struct Parked {
    /// The run.
    pub run_id: RunId,
    /// The node.
    pub node_id: NodeId,
    /// The attempt.
    pub attempt_id: AttemptId,
    /// The request that the answer has to name.
    pub request_id: String,
    /// Its contract, as the domain made it.
    pub contract: Value,
}
