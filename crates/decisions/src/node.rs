//! The node kind: a workflow asks a person.
//!
//! Everything that is asked is computed once, when an attempt reaches the node; the request is made of it in the transaction that parks the
//! attempt, by the host, with the one instant of that transaction. The answer completes that very attempt, and the run goes on by a
//! switch with exactly one case for each choice. Not here: what may be answered (`model`), rows (`commands`), the words of workflow files
//! ([`mod@file`]).
//!
//! ```
//! use holdpoint_decisions::choices;
//! use holdpoint_decisions::model::{Block, Choice, Presentation, TextInput};
//! use holdpoint_decisions::node::{AskPeople as _, Given, HumanDecision};
//! use holdpoint_workflows::definition::Workflow;
//!
//! choices! {
//!     /// What a reviewer may say.
//!     pub enum Review {
//!         /// It goes out.
//!         Ship = "ship" => Choice::new("Ship"),
//!         /// It is done again.
//!         Redo = "redo" => Choice::new("Redo").with_text(TextInput::new("why", "What is missing?")),
//!     }
//! }
//!
//! let review = HumanDecision::of::<Review>("Ship 1.2?")
//!     .to("operator")
//!     .showing(|ctx| Ok(Presentation::new("All tests pass.", vec![Block::paragraph(ctx.output::<String>("draft")?)])?))
//!     .about(|ctx| Ok(ctx.outputs["draft"].clone()));
//! let release = Workflow::new("release")
//!     .start_at("draft")
//!     .compute("draft", |ctx| Ok(format!("Notes of {}", ctx.input())))
//!     .ask_people("review", review, |review| match review {
//!         Review::Ship => "publish",
//!         Review::Redo => "again",
//!     })
//!     .compute("publish", |_| Ok("published"))
//!     .compute("again", |ctx| {
//!         let given: Given<Review> = ctx.output("review")?;
//!         Ok(given.text)
//!     })
//!     .edge("draft", "review")
//!     .build()?;
//! assert_eq!(release.snapshot()["nodes"]["review"]["nodeType"], "checkpoint");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A choice without a route does not compile:
//!
//! ```compile_fail,E0004
//! # use holdpoint_decisions::choices;
//! # use holdpoint_decisions::model::Choice;
//! # use holdpoint_decisions::node::{AskPeople as _, HumanDecision};
//! # use holdpoint_workflows::definition::Workflow;
//! choices! {
//!     /// What a reviewer may say.
//!     pub enum Review {
//!         /// It goes out.
//!         Ship = "ship" => Choice::new("Ship"),
//!         /// It does not.
//!         Stop = "stop" => Choice::new("Stop"),
//!     }
//! }
//! let review = HumanDecision::of::<Review>("Ship 1.2?");
//! Workflow::new("release").start_at("review").ask_people("review", review, |review| match review {
//!     Review::Ship => "publish",
//! });
//! ```

mod choices;
mod consent;
pub mod file;
mod plan;

use std::collections::BTreeSet;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use holdpoint_state::clock::UnixMillis;
use holdpoint_workflows::WorkflowError;
use holdpoint_workflows::definition::{
    Asked, Cases, CustomNode, NodeContext, NodeError, NodeKind, NodeStep, Park, Workflow,
};
use serde_json::{Value, json};

pub use choices::{AnswerSet, AnyChoice, ChoiceSet, Given, read_answer};

use crate::commands;
use crate::error::DecisionError;
use crate::model::{Answerers, Choices, Invalid, OnTimeout, Presentation, Request};
use plan::Plan;

/// Where the choice is in the output of a decision.
const CHOICE_PATH: &str = "$.choice";
/// The audience of a decision that names none.
pub const OPERATOR: &str = "operator";

type Compute<T> = Arc<dyn Fn(&NodeContext<'_>) -> Result<T, NodeError> + Send + Sync>;

/// Something that is asked: always the same, or computed when an attempt reaches the node.
enum Part<T> {
    Fixed(T),
    Computed(Compute<T>),
}

impl<T: Clone> Part<T> {
    fn get(&self, context: &NodeContext<'_>) -> Result<T, NodeError> {
        match self {
            Self::Fixed(value) => Ok(value.clone()),
            Self::Computed(compute) => compute(context),
        }
    }

    fn fixed(&self) -> Option<&T> {
        match self {
            Self::Fixed(value) => Some(value),
            Self::Computed(_) => None,
        }
    }
}

/// Until when a decision waits.
#[derive(Clone, PartialEq)]
pub enum Deadline {
    /// Without end.
    None,
    /// The automatic answer is given after so long.
    OnTimeout(OnTimeout),
    /// From this instant on nobody may answer, and the run is cancelled.
    ExpiresAt(UnixMillis),
}

/// A decision that a workflow asks of people; `C` is what they choose from.
///
/// What a person sees is exactly the title, the presentation, the choices and the deadline; the subject is machine data that no
/// channel shows.
pub struct HumanDecision<C = AnyChoice> {
    parts: Arc<Parts>,
    choices: PhantomData<fn() -> C>,
}

struct Parts {
    audience: Part<String>,
    title: Part<String>,
    presentation: Option<Part<Presentation>>,
    choices: Result<Choices, Invalid>,
    subject: Part<Value>,
    deadline: Part<Deadline>,
    answerers: Answerers,
    silence_is_consent: bool,
}

impl HumanDecision<AnyChoice> {
    /// A decision with this title between the choices of a closed set. It is addressed to the audience [`OPERATOR`], shows its title
    /// only, is about nothing that a machine would read, and waits without end, unless something else is said.
    pub fn of<S: ChoiceSet>(title: impl Into<String>) -> HumanDecision<S> {
        let all = S::ALL.iter().map(|choice| (choice.id(), choice.choice()));
        HumanDecision::new(title, Choices::new(all))
    }

    /// A decision as [`HumanDecision::of`], whose answers have a type: the output is read as an `A`.
    pub fn answered_as<A: AnswerSet>(title: impl Into<String>) -> HumanDecision<A::Choice> {
        Self::of::<A::Choice>(title)
    }

    /// A decision with this title between choices that are known only when the program runs. Its routes are checked when the workflow is
    /// built.
    pub fn between(title: impl Into<String>, choices: Choices) -> Self {
        Self::new(title, Ok(choices))
    }
}

impl<C> HumanDecision<C> {
    fn new(title: impl Into<String>, choices: Result<Choices, Invalid>) -> Self {
        Self {
            parts: Arc::new(Parts {
                audience: Part::Fixed(OPERATOR.to_owned()),
                title: Part::Fixed(title.into()),
                presentation: None,
                choices,
                subject: Part::Fixed(Value::Null),
                deadline: Part::Fixed(Deadline::None),
                answerers: Answerers::Anyone,
                silence_is_consent: false,
            }),
            choices: PhantomData,
        }
    }

    fn with(mut self, set: impl FnOnce(&mut Parts)) -> Self {
        // A builder is never shared: only a node is, and a node is not built on.
        if let Some(parts) = Arc::get_mut(&mut self.parts) {
            set(parts);
        }
        self
    }

    /// Says to whom it is addressed: a name that private configuration leads to people.
    #[must_use]
    pub fn to(self, audience: impl Into<String>) -> Self {
        self.with(|parts| parts.audience = Part::Fixed(audience.into()))
    }

    /// Computes to whom it is addressed.
    #[must_use]
    pub fn to_computed(
        self,
        audience: impl Fn(&NodeContext<'_>) -> Result<String, NodeError> + Send + Sync + 'static,
    ) -> Self {
        self.with(|parts| parts.audience = Part::Computed(Arc::new(audience)))
    }

    /// Computes the title, in place of the fixed one.
    #[must_use]
    pub fn titled(
        self,
        title: impl Fn(&NodeContext<'_>) -> Result<String, NodeError> + Send + Sync + 'static,
    ) -> Self {
        self.with(|parts| parts.title = Part::Computed(Arc::new(title)))
    }

    /// Says what people see beside title and choices.
    #[must_use]
    pub fn shows(self, presentation: Presentation) -> Self {
        self.with(|parts| parts.presentation = Some(Part::Fixed(presentation)))
    }

    /// Computes what people see beside title and choices.
    #[must_use]
    pub fn showing(
        self,
        presentation: impl Fn(&NodeContext<'_>) -> Result<Presentation, NodeError>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        self.with(|parts| parts.presentation = Some(Part::Computed(Arc::new(presentation))))
    }

    /// Computes the machine data under decision. No person sees it, and the request is pinned to it.
    #[must_use]
    pub fn about(
        self,
        subject: impl Fn(&NodeContext<'_>) -> Result<Value, NodeError> + Send + Sync + 'static,
    ) -> Self {
        self.with(|parts| parts.subject = Part::Computed(Arc::new(subject)))
    }

    /// Says until when it waits.
    #[must_use]
    pub fn until(self, deadline: Deadline) -> Self {
        self.with(|parts| parts.deadline = Part::Fixed(deadline))
    }

    /// Computes until when it waits.
    #[must_use]
    pub fn until_computed(
        self,
        deadline: impl Fn(&NodeContext<'_>) -> Result<Deadline, NodeError> + Send + Sync + 'static,
    ) -> Self {
        self.with(|parts| parts.deadline = Part::Computed(Arc::new(deadline)))
    }

    /// Demands another person than the one who asked for the run: nobody approves a wish of his own. An answer of that person is refused, and
    /// so is one from a place whose people the host does not know by their names here; both are recorded.
    #[must_use]
    pub fn by_another_person(self) -> Self {
        self.with(|parts| parts.answerers = Answerers::AnotherPerson)
    }

    /// Says that an automatic answer which permits something is meant. Otherwise
    /// [`Definition::warnings`](holdpoint_workflows::definition::Definition::warnings) tells of it, and the log when it is computed.
    #[must_use]
    pub fn silence_is_consent(self) -> Self {
        self.with(|parts| parts.silence_is_consent = true)
    }

    /// The node kind, for [`Workflow::node`]. Its routes are a switch on `$.choice` with exactly one case for each choice, which is checked
    /// when the workflow is built; [`AskPeople::ask_people`] makes them of an exhaustive `match`.
    pub fn into_kind(self) -> NodeKind {
        NodeKind::custom(Node(self.parts))
    }
}

impl<C> fmt::Debug for HumanDecision<C> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("HumanDecision")
            .field("snapshot", &self.parts.snapshot())
            .finish_non_exhaustive()
    }
}

/// Adds decisions of people to a workflow.
pub trait AskPeople: Sized {
    /// Adds a decision with its routes: `route` says for each choice to which node it leads. It is a `match`, so that no choice is
    /// forgotten.
    #[must_use]
    fn ask_people<C: ChoiceSet>(
        self,
        id: &str,
        decision: HumanDecision<C>,
        route: impl Fn(C) -> &'static str,
    ) -> Self;
}

impl<I> AskPeople for Workflow<I>
where
    I: serde::de::DeserializeOwned + 'static,
{
    fn ask_people<C: ChoiceSet>(
        self,
        id: &str,
        decision: HumanDecision<C>,
        route: impl Fn(C) -> &'static str,
    ) -> Self {
        let cases: Vec<(&str, &str)> = C::ALL
            .iter()
            .map(|choice| (choice.id(), route(*choice)))
            .collect();
        self.node(id, decision.into_kind())
            .switch(id, CHOICE_PATH, cases)
    }
}

/// A decision as a node of a definition.
struct Node(Arc<Parts>);

impl Parts {
    /// What of the node decides behaviour (decisions reference, section 3). Code has no form: it shows as computed.
    fn snapshot(&self) -> Value {
        let audience = self.audience.fixed();
        let choices = match &self.choices {
            Ok(choices) => json!(choices),
            Err(invalid) => json!({ "invalid": invalid.to_string() }),
        };
        let mut decision = json!({
            "audience": audience.map_or("<dynamic>", String::as_str),
            "choices": choices,
        });
        let Some(members) = decision.as_object_mut() else {
            return decision;
        };
        if audience.is_none() {
            members.insert("dynamicAudience".to_owned(), true.into());
        }
        match self.deadline.fixed() {
            Some(Deadline::None) => {}
            Some(deadline) => members.extend(plan::deadline_members(deadline)),
            None => {
                members.insert("dynamicTimeout".to_owned(), true.into());
            }
        }
        if let Some(title) = self.title.fixed() {
            members.insert("title".to_owned(), title.as_str().into());
        }
        if let Some(presentation) = self.presentation.as_ref().and_then(Part::fixed) {
            members.insert("presentation".to_owned(), json!(presentation));
        }
        if self.answerers != Answerers::Anyone {
            members.insert("answerers".to_owned(), self.answerers.as_str().into());
        }
        json!({ "humanDecision": decision })
    }

    fn choices(&self) -> Result<&Choices, NodeError> {
        self.choices.as_ref().map_err(refused)
    }

    /// Everything that is asked, computed and checked.
    fn plan(&self, context: &NodeContext<'_>) -> Result<Plan, NodeError> {
        let title = self.title.get(context)?;
        let presentation = match &self.presentation {
            Some(presentation) => presentation.get(context)?,
            None => Presentation::new(title.as_str(), Vec::new())
                .map_err(|invalid| refused(&invalid))?,
        };
        let plan = Plan {
            audience: self.audience.get(context)?,
            title,
            presentation,
            choices: self.choices()?.clone(),
            subject: self.subject.get(context)?,
            deadline: self.deadline.get(context)?,
            answerers: self.answerers,
        };
        plan.check().map_err(|invalid| refused(&invalid))?;
        // What is fixed was told when the definition was built.
        let is_computed = self.deadline.fixed().is_none();
        if let Some(warning) = consent::warning(&plan.deadline, &plan.choices)
            .filter(|_| is_computed && !self.silence_is_consent)
        {
            tracing::warn!("{warning}");
        }
        Ok(plan)
    }

    /// The wait with its request and rows.
    fn park(plan: Plan) -> Park {
        let draft = plan.document();
        let planned = plan.clone();
        Park::new(draft)
            .decision()
            // A deadline that has passed, or lies after the last instant there is.
            .checked_at(move |now| planned.check_at(now).map_err(|invalid| refused(&invalid)))
            .asking(move |waiting| {
                let request = plan.request(waiting).map_err(DecisionError::from)?;
                Ok(Asked {
                    request_id: request.decision_id().to_string(),
                    contract: request.document(),
                })
            })
            .beside(|change, parked| {
                let request = Request::read(&parked.contract)
                    .map_err(|problem| DecisionError::stored(&parked.request_id, problem))?;
                commands::request_in(change, &request, parked)?;
                Ok::<(), WorkflowError>(())
            })
    }
}

impl CustomNode for Node {
    fn node_type(&self) -> &'static str {
        "checkpoint"
    }

    fn snapshot(&self) -> Value {
        self.0.snapshot()
    }

    fn cases(&self) -> Option<Cases> {
        let choices = self.0.choices.as_ref().ok()?;
        let names: BTreeSet<String> = choices.iter().map(|(id, _)| id.to_string()).collect();
        Some(Cases {
            on: CHOICE_PATH.to_owned(),
            names,
        })
    }

    fn warnings(&self) -> Vec<String> {
        let (Some(deadline), Ok(choices)) = (self.0.deadline.fixed(), &self.0.choices) else {
            return Vec::new();
        };
        let warning = consent::warning(deadline, choices);
        warning
            .filter(|_| !self.0.silence_is_consent)
            .into_iter()
            .collect()
    }

    fn execute(&self, context: &NodeContext<'_>) -> Result<NodeStep, NodeError> {
        Ok(NodeStep::Park(Parts::park(self.0.plan(context)?)))
    }

    fn park_again(&self, contract: &Value) -> Option<Park> {
        // The word of a worker: what the definition fixes is not taken from it, and everything is checked again.
        let mut plan = Plan::read(contract).ok()?;
        let parts = &*self.0;
        plan.choices = parts.choices.as_ref().ok()?.clone();
        plan.answerers = parts.answerers;
        if let Some(audience) = parts.audience.fixed() {
            plan.audience.clone_from(audience);
        }
        if let Some(title) = parts.title.fixed() {
            plan.title.clone_from(title);
        }
        if let Some(presentation) = parts.presentation.as_ref().and_then(Part::fixed) {
            plan.presentation.clone_from(presentation);
        }
        if let Some(subject) = parts.subject.fixed() {
            plan.subject.clone_from(subject);
        }
        if let Some(deadline) = parts.deadline.fixed() {
            plan.deadline.clone_from(deadline);
        }
        plan.check().ok()?;
        Some(Parts::park(plan))
    }
}

fn refused(invalid: &Invalid) -> NodeError {
    NodeError::named("InvalidDecision", invalid.to_string())
}
