//! The decision of a model: a closed set of choices, and where each of them leads.
//!
//! A decision is no node kind. It is an agent that is told the choices, a validator that takes one of them and nothing else, and a switch
//! that has a case for each. Not here: decisions of people, and the words of workflow files (`file`).

use std::fmt::Write as _;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::agent::{Agent, ExpectedOutput, TextFunction};
use super::context::NodeError;
use super::edge::{EdgeDraft, TargetDraft};

/// Where the choice is in the output of a decision.
const CHOICE_PATH: &str = "$.choice";

/// One choice of a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    name: String,
    to: String,
    means: Option<String>,
}

impl Choice {
    /// The choice of this name, which leads to this node or include.
    pub fn new(name: impl Into<String>, to: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            to: to.into(),
            means: None,
        }
    }

    /// Tells the model in a few words when to choose it.
    #[must_use]
    pub fn means(mut self, means: impl Into<String>) -> Self {
        self.means = Some(means.into());
        self
    }
}

/// The output of a decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Decided {
    /// The name of the choice.
    pub choice: String,
    /// Why, if the model said it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What is wrong with the names of the choices. What a model says is compared without the spaces around it.
pub(crate) fn problem(choices: &[Choice]) -> Option<String> {
    let mut before = std::collections::BTreeSet::new();
    choices.iter().find_map(|Choice { name, .. }| {
        if name.is_empty() || name.trim() != name {
            Some(format!(
                "the name {name:?} is empty or has spaces around it"
            ))
        } else if before.insert(name) {
            None
        } else {
            Some(format!("choice {name:?} is there twice"))
        }
    })
}

/// The agent of a decision.
pub(crate) fn agent(prompt: TextFunction, choices: &[Choice]) -> Agent {
    let mut description = String::from(
        "JSON {\"choice\": one of the choices, \"reason\": why, which may be left out}. The choices:",
    );
    for choice in choices {
        let name = Value::from(choice.name.as_str());
        let separator = if choice.means.is_some() { " - " } else { "" };
        let means = choice.means.as_deref().unwrap_or_default();
        // A String takes whatever is written to it.
        let _infallible = write!(description, "\n{name}{separator}{means}");
    }
    let names: Vec<String> = choices.iter().map(|choice| choice.name.clone()).collect();
    let expected = ExpectedOutput::Submitted {
        description: Some(description),
        validate: Some(Arc::new(move |_, candidate| decided(&names, candidate))),
    };
    Agent { prompt, expected }
}

/// The routes of a decision.
pub(crate) fn edge(from: &str, choices: Vec<Choice>) -> EdgeDraft {
    let cases = choices
        .into_iter()
        .map(|choice| (choice.name, choice.to))
        .collect();
    EdgeDraft {
        from: from.to_owned(),
        to: TargetDraft::Switch {
            on: CHOICE_PATH.to_owned(),
            cases,
        },
    }
}

/// The output that a candidate stands for. The bare name of a choice is that choice: models often say no more. `true` and `2` were read
/// out of a text as JSON, and stand for the choices that are called so.
fn decided(names: &[String], candidate: Value) -> Result<Value, NodeError> {
    let candidate = match candidate {
        Value::String(text) => json!({ "choice": text.trim() }),
        Value::Bool(_) | Value::Number(_) => json!({ "choice": candidate.to_string() }),
        object @ Value::Object(_) => object,
        Value::Null | Value::Array(_) => return Err(refused("an object with `choice` is wanted")),
    };
    let decided: Decided =
        serde_json::from_value(candidate).map_err(|error| refused(error.to_string()))?;
    if names.contains(&decided.choice) {
        return Ok(serde_json::to_value(decided)?);
    }
    let choices: Vec<String> = names.iter().map(|name| format!("{name:?}")).collect();
    Err(refused(format!(
        "the choice must be one of {}, not {:?}",
        choices.join(", "),
        decided.choice
    )))
}

fn refused(problem: impl Into<String>) -> NodeError {
    NodeError::named("InvalidOutput", problem)
}
