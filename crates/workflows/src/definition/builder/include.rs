//! Includes and exits of the typed builder, and routes by a closed set of choices.

use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::super::compose::{ExitDraft, IncludeDraft, IncludedWorkflow};
use super::super::context::{Context, NodeError};
use super::super::decision::{self, Choice};
use super::super::node::NodeKind;
use super::super::value;
use super::super::{Definition, DefinitionError};
use super::{Latest, Workflow, text_function, value_function};

/// # Includes
///
/// A workflow can be a part of another one. It is entered by a route to its name and left by its exits:
///
/// ```
/// use holdpoint_workflows::definition::Workflow;
/// use serde_json::{Value, json};
///
/// let review = Workflow::new("review")
///     .start_at("ask")
///     .checkpoint("ask")
///     .compute("yes", |ctx| ctx.output::<Value>("ask"))
///     .compute("no", |_| Ok("not today"))
///     .switch("ask", "$.approved", [("true", "yes"), ("false", "no")])
///     .exit("approved", "yes")
///     .exit("rejected", "no")
///     .build()?;
///
/// let release = Workflow::new("release")
///     .start_at("draft")
///     .compute("draft", |_| Ok("Version 2"))
///     .include("review", &review)
///     .input_map(|ctx| Ok(json!({ "text": ctx.output::<String>("draft")? })))
///     .compute("publish", |ctx| Ok(ctx.output::<Value>("review")?["output"].clone()))
///     .edge("draft", "review")
///     .edge("review.approved", "publish")
///     .edge("review.rejected", "draft")
///     .build()?;
/// assert!(release.node(&"review/ask".parse()?).is_some());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
impl<I: DeserializeOwned + 'static> Workflow<I> {
    /// Includes a workflow under a name. Edges lead to the name and leave from `name.exit`; an exit without an edge ends the run.
    /// `outputs` of the parent have `{exit, output}` under the name, once the workflow was left.
    #[must_use]
    pub fn include(self, name: impl Into<String>, workflow: &Definition) -> Self {
        self.including(name, IncludedWorkflow::Definition(workflow.clone()))
    }

    /// Includes the workflow that a reference names: a path, `builtin:` and an id, or a name. It is found by the library that the
    /// workflow is [built with](Workflow::build_with).
    #[must_use]
    pub fn include_named(self, name: impl Into<String>, reference: impl Into<String>) -> Self {
        self.including(name, IncludedWorkflow::Reference(reference.into()))
    }

    fn including(mut self, name: impl Into<String>, workflow: IncludedWorkflow) -> Self {
        self.draft.includes.push(IncludeDraft {
            name: name.into(),
            workflow,
            input: None,
            settings: None,
            contract: None,
            declared: None,
        });
        self.latest = Latest::Include;
        self
    }

    /// Makes the input of the workflow included last. Without it the workflow gets the input of its parent.
    #[must_use]
    pub fn input_map<O: Serialize>(
        self,
        input: impl Fn(&Context<'_, I>) -> Result<O, NodeError> + Send + Sync + 'static,
    ) -> Self {
        self.of_include("input_map", |include| {
            include.input = Some(value_function(input));
        })
    }

    /// Makes the settings that each invocation of the workflow included last begins with. Without it they are those that the
    /// workflow declares.
    #[must_use]
    pub fn settings_map<O: Serialize>(
        self,
        settings: impl Fn(&Context<'_, I>) -> Result<O, NodeError> + Send + Sync + 'static,
    ) -> Self {
        self.of_include("settings_map", |include| {
            include.settings = Some(value_function(settings));
        })
    }

    /// Asks that the workflow included last has the outside of this one: its contract id if it has one, its exits, and whether it
    /// checks its input.
    #[must_use]
    pub fn contract(self, contract: &Definition) -> Self {
        let contract = IncludedWorkflow::Definition(contract.clone());
        self.of_include("contract", |include| include.contract = Some(contract))
    }

    /// Declares a way to leave the workflow when another one includes it: after this node, which no edge leaves. The node's output
    /// is what the parent gets.
    #[must_use]
    pub fn exit(mut self, name: impl Into<String>, from: impl Into<String>) -> Self {
        self.draft.exits.push(ExitDraft {
            name: name.into(),
            from: from.into(),
            validate: None,
            declared: None,
        });
        self.latest = Latest::Exit;
        self
    }

    /// Reads what the exit declared last takes out as `T`, and lets a function accept, change or reject it. A rejected output fails
    /// the exit.
    #[must_use]
    pub fn validate_exit<T: DeserializeOwned, O: Serialize>(
        mut self,
        validate: impl Fn(&Context<'_, I>, T) -> Result<O, NodeError> + Send + Sync + 'static,
    ) -> Self {
        let exit = match self.latest {
            Latest::Exit => self.draft.exits.last_mut(),
            Latest::Nothing | Latest::Node | Latest::Include => None,
        };
        let Some(exit) = exit else {
            return self.misplaced("validate_exit", Some("does not follow an exit".to_owned()));
        };
        exit.validate = Some(Arc::new(move |node, output| {
            let output = value::read(output)?;
            value::output(&validate(&Context::new(node)?, output)?)
        }));
        self
    }

    /// Adds a switch that must have a route for each of these choices and for nothing else: the answer of a decision leads somewhere
    /// whatever it is.
    #[must_use]
    pub fn switch_choices<C: Into<String>, N: Into<String>>(
        mut self,
        from: impl Into<String>,
        on: impl Into<String>,
        choices: impl IntoIterator<Item = C>,
        routes: impl IntoIterator<Item = (C, N)>,
    ) -> Self {
        let from = from.into();
        let choices: Vec<String> = choices.into_iter().map(Into::into).collect();
        let routes: Vec<(String, String)> = routes
            .into_iter()
            .map(|(choice, node)| (choice.into(), node.into()))
            .collect();
        let unrouted = choices
            .iter()
            .find(|choice| routes.iter().all(|(routed, _)| routed != *choice));
        let unknown = routes.iter().find(|(routed, _)| !choices.contains(routed));
        let problem = match (unrouted, unknown) {
            (Some(choice), _) => Some(format!("choice {choice:?} has no route")),
            (None, Some((choice, _))) => {
                Some(format!("a route is for {choice:?}, which is no choice"))
            }
            (None, None) => None,
        };
        if let (Some(problem), None) = (problem, &self.misplaced) {
            self.misplaced = Some(DefinitionError::Choices {
                from: from.clone(),
                problem,
            });
        }
        self.switch(from, on, routes)
    }

    /// Adds a decision of a model: an agent that is told the choices, a validator that takes one of them and nothing else, and the routes to
    /// where they lead. Its output is a [`Decided`](crate::definition::Decided).
    ///
    /// ```
    /// use holdpoint_workflows::definition::{Choice, Decided, Workflow};
    ///
    /// let definition = Workflow::new("letter")
    ///     .start_at("draft")
    ///     .compute("draft", |_| Ok("Dear all"))
    ///     .decide(
    ///         "judge",
    ///         [Choice::new("good", "send").means("It may go out"), Choice::new("bad", "draft")],
    ///         |ctx| Ok(format!("Judge this letter: {}", ctx.output::<String>("draft")?)),
    ///     )
    ///     .compute("send", |ctx| Ok(ctx.output::<Decided>("judge")?.reason))
    ///     .edge("draft", "judge")
    ///     .build()?;
    /// # Ok::<(), holdpoint_workflows::definition::DefinitionError>(())
    /// ```
    #[must_use]
    pub fn decide(
        self,
        id: impl Into<String>,
        choices: impl IntoIterator<Item = Choice>,
        prompt: impl Fn(&Context<'_, I>) -> Result<String, NodeError> + Send + Sync + 'static,
    ) -> Self {
        let (id, choices) = (id.into(), choices.into_iter().collect::<Vec<_>>());
        let agent = decision::agent(text_function(prompt), &choices);
        let mut workflow = self.node(id.clone(), NodeKind::Agent(agent));
        if let (Some(problem), None) = (decision::problem(&choices), &workflow.misplaced) {
            workflow.misplaced = Some(DefinitionError::Choices {
                from: id.clone(),
                problem,
            });
        }
        workflow.draft.edges.push(decision::edge(&id, choices));
        workflow
    }

    fn of_include(mut self, option: &'static str, set: impl FnOnce(&mut IncludeDraft)) -> Self {
        match (self.latest, self.draft.includes.last_mut()) {
            (Latest::Include, Some(include)) => set(include),
            _ => return self.misplaced(option, Some("does not follow an include".to_owned())),
        }
        self
    }
}
