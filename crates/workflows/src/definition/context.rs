//! What a node's functions see: committed facts of the run, and the signal to stop.
//!
//! Everything here is borrowed from rows that are already durable, so the engine can build the same
//! context again after a crash. Not here: anything that writes.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::cancellation::{CancellationSignal, StopReason};
use super::value::read;
use crate::id::{AttemptId, NodeId, RunId};
use crate::routing::{NodeOutcome, NodeResult};
use crate::updates::{OVERALL, Progress, Publisher, Update, progress, refused};

/// The facts that one attempt of a node starts from.
#[derive(Debug, Clone)]
pub struct NodeContext<'a> {
    /// The run.
    pub run_id: &'a RunId,
    /// The node.
    pub node_id: &'a NodeId,
    /// The number of this visit of the node, from 1.
    pub visit: u32,
    /// The attempt.
    pub attempt_id: &'a AttemptId,
    /// The normalised input of the run.
    pub input: &'a Value,
    /// The latest output of each node whose latest visit ended `ok`.
    pub outputs: &'a BTreeMap<NodeId, Value>,
    /// The latest result of each node that has been visited.
    pub results: &'a BTreeMap<NodeId, NodeResult>,
    /// Tells the node that it should stop.
    pub cancellation: CancellationSignal,
    /// The live settings of the node's workflow as they were when the attempt began, if it has any.
    ///
    /// They stay the same until it ends, whatever changes meanwhile; a settings route is asked again with the new ones.
    pub settings: Option<&'a Value>,
    /// The managed effect that is reserved for this visit; only an action has one.
    ///
    /// It stays the same when the action has to run again, so a provider can use it as its own
    /// idempotency key.
    pub effect_id: Option<&'a str>,
    /// Where updates of this attempt go.
    pub publisher: Publisher,
}

impl NodeContext<'_> {
    /// Publishes an update: a full replacement of the value that `update_type` and `key` had in this attempt. It is durable when this
    /// returns, and it was copied: what becomes of `data` later changes nothing.
    ///
    /// At most 20 in a second, with 100 at once after a rest, and 1,024 pairs of type and key.
    ///
    /// # Errors
    ///
    /// It was refused: its form, a limit, or the attempt is not the present one any more. Nothing of it is stored; the node may go on.
    pub fn publish<T: Serialize + ?Sized>(
        &self,
        update_type: &str,
        key: &str,
        data: &T,
    ) -> Result<(), NodeError> {
        let update =
            Update::new(update_type, key, data).map_err(|error| refused(error.to_string()))?;
        self.publisher.publish(update)
    }

    /// Publishes how far the whole work of this attempt is.
    ///
    /// # Errors
    ///
    /// As [`NodeContext::publish`].
    pub fn report(&self, progress: &Progress) -> Result<(), NodeError> {
        self.publish(progress::TYPE, OVERALL, progress)
    }

    /// Reads the latest output of a node as a Rust value.
    ///
    /// # Errors
    ///
    /// The node has no output (it was not reached, or its latest visit did not end `ok`), or the
    /// output has another shape.
    pub fn output<T: DeserializeOwned>(&self, node: &str) -> Result<T, NodeError> {
        let value = self
            .outputs
            .get(node)
            .ok_or_else(|| NodeError::new(format!("node {node:?} has no output yet")))?;
        read(value.clone())
            .map_err(|error| NodeError::new(format!("output of node {node:?}: {error}")))
    }

    /// Reads the live settings of the node's workflow, as they were when the attempt began.
    ///
    /// # Errors
    ///
    /// The workflow declares no settings, or they have another shape.
    pub fn settings<T: DeserializeOwned>(&self) -> Result<T, NodeError> {
        let value = self
            .settings
            .ok_or_else(|| NodeError::new("the workflow of this node declares no settings"))?;
        read(value.clone()).map_err(|error| NodeError::new(format!("settings: {error}")))
    }

    /// The latest result of a node, whatever its outcome.
    pub fn result(&self, node: &str) -> Option<&NodeResult> {
        self.results.get(node)
    }
}

/// A [`NodeContext`] whose input is already read as `I`.
///
/// It derefs to the plain context, so everything else is there too.
#[derive(Debug)]
pub struct Context<'a, I> {
    node: &'a NodeContext<'a>,
    input: I,
}

impl<'a, I: DeserializeOwned> Context<'a, I> {
    /// Reads the input.
    ///
    /// # Errors
    ///
    /// The input of the run does not have the shape of `I`.
    pub fn new(node: &'a NodeContext<'a>) -> Result<Self, NodeError> {
        let input = read(node.input.clone())
            .map_err(|error| NodeError::new(format!("input of run {}: {error}", node.run_id)))?;
        Ok(Self { node, input })
    }
}

impl<I> Context<'_, I> {
    /// The normalised input of the run.
    pub fn input(&self) -> &I {
        &self.input
    }
}

impl<'a, I> Deref for Context<'a, I> {
    type Target = NodeContext<'a>;

    fn deref(&self) -> &NodeContext<'a> {
        self.node
    }
}

/// Why a node did not produce a value: a name and a message, which is what a run keeps of it.
///
/// Any error turns into one by `?`. It deliberately is not a [`std::error::Error`] itself: that is
/// what makes the blanket conversion possible.
///
/// ```
/// use holdpoint_workflows::definition::NodeError;
///
/// fn parse(text: &str) -> Result<u8, NodeError> {
///     Ok(text.parse::<u8>()?)
/// }
/// assert_eq!(parse("x").unwrap_err().to_string(), "Error: invalid digit found in string");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeError {
    name: String,
    message: String,
    stop: Option<StopReason>,
}

impl NodeError {
    /// An error with the ordinary name `Error`.
    pub fn new(message: impl Into<String>) -> Self {
        Self::named("Error", message)
    }

    /// An error with a name of its own, for readers that sort errors by it.
    pub fn named(name: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            message: message.into(),
            stop: None,
        }
    }

    /// The node stopped because it was asked to.
    pub fn stopped(reason: StopReason) -> Self {
        let (name, message) = match reason {
            StopReason::Cancelled => ("Cancelled", "the node was cancelled"),
            StopReason::TimedOut => ("TimedOut", "the node's time budget is spent"),
        };
        Self {
            name: name.into(),
            message: message.into(),
            stop: Some(reason),
        }
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The message.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The outcome that a node which ended with this error has.
    pub fn outcome(&self) -> NodeOutcome {
        match self.stop {
            None => NodeOutcome::Failed,
            Some(StopReason::Cancelled) => NodeOutcome::Cancelled,
            Some(StopReason::TimedOut) => NodeOutcome::TimedOut,
        }
    }
}

impl fmt::Display for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.message)
    }
}

impl<E: std::error::Error> From<E> for NodeError {
    fn from(error: E) -> Self {
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            message.push_str(": ");
            message.push_str(&cause.to_string());
            source = cause.source();
        }
        Self::new(message)
    }
}
