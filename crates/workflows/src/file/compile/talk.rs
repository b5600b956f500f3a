//! Agents, decisions of models, assistant messages and notifications of a workflow file, and what validates an output.

use std::sync::Arc;

use serde_json::Value;

use super::{Compiler, Result, text};
use crate::definition::{
    Agent, Choice, EdgeDraft, ExitFunction, ExpectedOutput, NodeError, NodeKind, Notify,
    TextFunction, decision_agent, decision_edge, problem_of_choices,
};
use crate::file::error::Problem;
use crate::file::expression::{Environment, Expression};
use crate::file::format::{
    AgentDocument, AssistantMessageDocument, DecideDocument, NotifyDocument, Template,
};
use crate::file::read::Marked;
use crate::file::schema::JsonSchema;

/// What decides whether an output is taken.
enum Validator {
    Expression(Expression),
    Schema(JsonSchema),
}

impl Compiler<'_> {
    pub(super) fn agent(&self, id: &str, document: AgentDocument) -> Result<NodeKind> {
        let prompt = self.text_function("the prompt", document.prompt)?;
        let validator = document
            .validate
            .map(|validate| self.validator(&["nodes", id, "agent", "validate"], "V20", &validate))
            .transpose()?;
        // Who has to submit the output is told its shape, unless the author tells it in words.
        let description = match (document.expects, &validator) {
            (Some(expects), _) => Some(expects),
            (None, Some(Validator::Schema(schema))) => Some(format!(
                "JSON that is valid by this JSON Schema: {}",
                schema.text()
            )),
            (None, Some(Validator::Expression(_)) | None) => None,
        };
        let expected = ExpectedOutput::Submitted {
            description,
            validate: validator.map(Validator::function),
        };
        Ok(NodeKind::Agent(Agent { prompt, expected }))
    }

    /// A decision is an agent and a switch on what it chose.
    pub(super) fn decide(
        &self,
        id: &str,
        document: DecideDocument,
    ) -> Result<(NodeKind, EdgeDraft)> {
        let prompt = self.text_function("the prompt", document.prompt)?;
        let choices: Vec<Choice> = document
            .choices
            .0
            .into_iter()
            .map(|(name, choice)| match choice.means {
                Some(means) => Choice::new(name, choice.to).means(means),
                None => Choice::new(name, choice.to),
            })
            .collect();
        if let Some(problem) = problem_of_choices(&choices) {
            let message = format!("the choices of node {id:?}: {problem}");
            return self.refuse(&["nodes", id, "decide", "choices"], "G20", message);
        }
        let agent = decision_agent(prompt, &choices);
        Ok((NodeKind::Agent(agent), decision_edge(id, choices)))
    }

    pub(super) fn assistant_message(&self, document: AssistantMessageDocument) -> Result<NodeKind> {
        let prompt = self.text_function("the prompt", document.prompt)?;
        let expected = ExpectedOutput::AssistantMessage {
            max_chars: document.max_chars,
        };
        Ok(NodeKind::Agent(Agent { prompt, expected }))
    }

    pub(super) fn notify(&self, document: NotifyDocument) -> Result<NodeKind> {
        Ok(NodeKind::Notify(Notify {
            message: self.text_function("the message", document.message)?,
            kind: document.kind,
        }))
    }

    fn text_function(&self, what: &'static str, template: Template) -> Result<TextFunction> {
        let prepared = self.prepare(template)?;
        Ok(Arc::new(move |context| {
            text(what, prepared.in_context(context)?)
        }))
    }

    /// `{ jq: … }` is an expression, any other object a JSON Schema.
    pub(super) fn validation(
        &self,
        path: &[&str],
        code: &'static str,
        validate: &Marked<Value>,
    ) -> Result<ExitFunction> {
        Ok(self.validator(path, code, validate)?.function())
    }

    fn validator(
        &self,
        path: &[&str],
        code: &'static str,
        validate: &Marked<Value>,
    ) -> Result<Validator> {
        let expression = match &validate.value {
            Value::Object(members) if members.len() == 1 => members.get("jq"),
            _ => None,
        };
        match expression {
            Some(Value::String(text)) => {
                let index = self.tree.child(validate.index, "jq");
                let compiled = Expression::compile(text).map_err(|error| {
                    let at = index.map_or_else(
                        || self.tree.locate(path.iter().copied()),
                        |index| self.tree.locate_in_text(index, error.offset),
                    );
                    let message = error.message;
                    (at, Problem::Expression { message })
                })?;
                Ok(Validator::Expression(compiled))
            }
            Some(other) => {
                let message = format!("jq must be a text, not {other}");
                self.refuse(path, code, message)
            }
            None => JsonSchema::compile(&validate.value)
                .map(Validator::Schema)
                .or_else(|(within, message)| {
                    let steps = within.iter().map(String::as_str);
                    let path: Vec<&str> = path.iter().copied().chain(steps).collect();
                    self.refuse(&path, code, message)
                }),
        }
    }
}

impl Validator {
    /// The value itself when it is taken.
    fn function(self) -> ExitFunction {
        Arc::new(move |context, value| {
            let problem = match &self {
                Self::Schema(schema) => schema.problem(&value),
                Self::Expression(expression) => {
                    let environment = Environment::of(context).with_dot(value.clone());
                    let verdict = expression
                        .evaluate(environment)
                        .map_err(|error| NodeError::named("ExpressionError", error.to_string()))?;
                    match verdict {
                        Value::Bool(true) => None,
                        Value::Bool(false) => Some("the value is not what is expected".to_owned()),
                        Value::String(problem) => Some(problem),
                        other => {
                            return Err(NodeError::named(
                                "ExpressionError",
                                format!(
                                    "validate gives true, false or a text that says what is wrong, not {other}"
                                ),
                            ));
                        }
                    }
                }
            };
            match problem {
                None => Ok(value),
                Some(problem) => Err(NodeError::named("InvalidOutput", problem)),
            }
        })
    }
}
