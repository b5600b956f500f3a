//! The built-in approval of a plan: a reusable workflow that a person, a deadline or nobody has to let through.
//!
//! Another workflow includes it, in Rust by [`definition`] or in a file by [`REFERENCE`] once a program [registered](register) it. It is left
//! by one of three exits:
//!
//! | exit | output |
//! |---|---|
//! | `continue` | `{provenance, round}`; `provenance` is `human`, `timeout` or `skipped` |
//! | `stop` | `{provenance, round}`, always by a person |
//! | `replan` | `{provenance, round, text}`, always by a person; `text` is exactly what was written |
//!
//! The loop is the parent's: `replan` leads back to whatever makes plans, and the next round comes here again. It is bounded by `maxReplans`:
//! in the last round nobody can ask for another plan. Not here: making plans.
//!
//! ```
//! use holdpoint_decisions::plan_approval::{self, PlanInput, Policy};
//! use holdpoint_workflows::definition::Workflow;
//! use serde_json::Value;
//!
//! let work = Workflow::new("work")
//!     .start_at("plan")
//!     .compute("plan", |ctx| {
//!         // In the second round the text of the first is there.
//!         let asked = ctx.outputs.get("approval").map(|approval| approval["output"]["text"].clone());
//!         Ok(format!("1. Do it.\n2. {}", asked.unwrap_or_default()))
//!     })
//!     .include("approval", &plan_approval::definition()?)
//!     .input_map(|ctx| {
//!         let plan = ctx.output::<String>("plan")?;
//!         Ok(PlanInput::new(plan, Policy::Required).after(ctx.outputs.get("approval")))
//!     })
//!     .compute("do", |_| Ok("done"))
//!     .compute("stopped", |_| Ok("stopped"))
//!     .edge("plan", "approval")
//!     .edge("approval.continue", "do")
//!     .edge("approval.stop", "stopped")
//!     .edge("approval.replan", "plan")
//!     .build()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use holdpoint_workflows::Registry;
use holdpoint_workflows::definition::{
    Definition, DefinitionError, NodeContext, NodeError, Workflow,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::choices;
use crate::model::{Block, Choice, OnTimeout, Presentation, STRING_UNITS_MAX, TextInput};
use crate::node::{AskPeople as _, ChoiceSet as _, Deadline, HumanDecision, OPERATOR};

/// The id under which a program registers it.
pub const ID: &str = "plan-approval";
/// How another workflow file includes it.
pub const REFERENCE: &str = "builtin:plan-approval";
/// Changes with its behaviour: runs that were started with another one are parked.
const REVISION: &str = "1";
/// How long a person has under the policy `auto`, unless the input says otherwise.
pub const AUTO_MS: u64 = 600_000;
/// How often a plan may be sent back, unless the input says otherwise.
pub const REPLANS_MAX: u32 = 3;

choices! {
    /// What a person may say about a plan.
    pub enum Verdict {
        /// It is carried out.
        Continue = "continue" => Choice::new("Continue"),
        /// It is made anew.
        Replan = "replan" => Choice::new("Replan").with_text(TextInput::new("text", "What should be different?")),
        /// Nothing is done.
        Stop = "stop" => Choice::new("Stop"),
    }
}

choices! {
    /// What a person may say about the last plan.
    pub enum LastVerdict {
        /// It is carried out.
        Continue = "continue" => Choice::new("Continue"),
        /// Nothing is done.
        Stop = "stop" => Choice::new("Stop"),
    }
}

/// Who lets a plan through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// A person may say something for a while; then it goes on.
    Auto,
    /// A person has to, however long that takes.
    Required,
    /// Nobody is asked.
    Skip,
}

/// The input of the workflow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PlanInput {
    /// The plan, as people read it; shown whole.
    pub plan: String,
    /// Who lets it through.
    pub policy: Policy,
    /// One line that names the decision.
    #[serde(default = "default_title")]
    pub title: String,
    /// Says in a sentence what the plan is for.
    #[serde(default = "default_summary")]
    pub summary: String,
    /// To whom it is addressed.
    #[serde(default = "default_audience")]
    pub audience: String,
    /// How long a person has under `auto`, in milliseconds.
    #[serde(default = "default_auto_ms")]
    pub auto_ms: u64,
    /// Which plan this is, from 1.
    #[serde(default = "first")]
    pub round: u32,
    /// How often a plan may be sent back.
    #[serde(default = "default_replans")]
    pub max_replans: u32,
}

fn default_title() -> String {
    "Approve the plan?".to_owned()
}

fn default_summary() -> String {
    "A plan waits for approval.".to_owned()
}

fn default_audience() -> String {
    OPERATOR.to_owned()
}

const fn default_auto_ms() -> u64 {
    AUTO_MS
}

const fn first() -> u32 {
    1
}

const fn default_replans() -> u32 {
    REPLANS_MAX
}

impl PlanInput {
    /// The first round of a plan.
    pub fn new(plan: impl Into<String>, policy: Policy) -> Self {
        Self {
            plan: plan.into(),
            policy,
            title: default_title(),
            summary: default_summary(),
            audience: default_audience(),
            auto_ms: AUTO_MS,
            round: first(),
            max_replans: REPLANS_MAX,
        }
    }

    /// The round after what the parent has of the approval so far: nothing, or `{exit, output}`.
    #[must_use]
    pub fn after(mut self, approval: Option<&Value>) -> Self {
        let round = approval.and_then(|approval| approval.pointer("/output/round"));
        let before = round.and_then(Value::as_u64).unwrap_or(0);
        self.round = u32::try_from(before.saturating_add(1)).unwrap_or(u32::MAX);
        self
    }

    /// Under `auto` it goes on by itself; the others wait.
    fn deadline(&self) -> Deadline {
        match self.policy {
            Policy::Auto => {
                #[expect(clippy::cast_precision_loss, reason = "exact far beyond any wait")]
                let after_ms = self.auto_ms as f64;
                Deadline::OnTimeout(OnTimeout {
                    after_ms,
                    response: json!({ "choice": Verdict::Continue.id() }),
                })
            }
            Policy::Required | Policy::Skip => Deadline::None,
        }
    }

    /// The whole plan, in as many blocks as it takes.
    fn presentation(&self) -> Result<Presentation, NodeError> {
        let mut blocks: Vec<Block> = pieces(&self.plan).map(Block::preformatted).collect();
        if self.max_replans < self.round {
            blocks.push(Block::paragraph(format!(
                "This is plan {}; no other one can be asked for.",
                self.round
            )));
        }
        Ok(Presentation::new(self.summary.as_str(), blocks)?)
    }
}

/// The text in pieces that fit a block, cut between characters, after a line's end where there is one. A piece of white space alone is no
/// block and says nothing.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let limit = usize::try_from(STRING_UNITS_MAX).unwrap_or(usize::MAX);
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let mut units = 0;
        let mut end = rest.len();
        let mut line_end = None;
        for (at, character) in rest.char_indices() {
            units += character.len_utf16();
            if limit < units {
                end = line_end.unwrap_or(at);
                break;
            }
            if character == '\n' {
                line_end = Some(at + 1);
            }
        }
        let (piece, after) = rest.split_at_checked(end)?;
        rest = after;
        Some(piece)
    })
    .filter(|piece| !piece.trim().is_empty())
}

fn input(context: &NodeContext<'_>) -> Result<PlanInput, NodeError> {
    Ok(serde_json::from_value(context.input.clone())?)
}

fn decision<C: crate::node::ChoiceSet>() -> HumanDecision<C> {
    HumanDecision::of::<C>(default_title())
        .titled(|context| Ok(input(context)?.title))
        .to_computed(|context| Ok(input(context)?.audience))
        .showing(|context| input(context)?.presentation())
        .about(|context| {
            let input = input(context)?;
            Ok(json!({ "plan": input.plan, "round": input.round }))
        })
        .until_computed(|context| Ok(input(context)?.deadline()))
        // That is what the policy `auto` says.
        .silence_is_consent()
}

/// The node that asks in this round.
fn asking(context: &NodeContext<'_>) -> Result<&'static str, NodeError> {
    let input = input(context)?;
    Ok(if input.max_replans < input.round {
        "askLast"
    } else {
        "ask"
    })
}

/// Who answered in this round.
fn provenance(context: &NodeContext<'_>) -> Result<Value, NodeError> {
    let result = context.result(asking(context)?);
    let provenance = result.and_then(|result| result.receipt.as_ref()?.get("provenance"));
    provenance
        .cloned()
        .ok_or_else(|| NodeError::new("the answer about the plan has no receipt"))
}

/// What a person alone may decide.
fn by_person(context: &NodeContext<'_>) -> Result<Value, NodeError> {
    let provenance = provenance(context)?;
    if provenance == "human" {
        return Ok(provenance);
    }
    Err(NodeError::named(
        "InvalidDecision",
        format!("only a person ends or changes a plan, not {provenance}"),
    ))
}

/// The workflow.
///
/// # Errors
///
/// It is checked as every workflow is.
pub fn definition() -> Result<Definition, DefinitionError> {
    Workflow::new(ID)
        .input_with(|value| {
            let input: PlanInput = serde_json::from_value(value.clone())?;
            if input.plan.trim().is_empty() {
                return Err(NodeError::new("the plan must not be blank"));
            }
            if input.round == 0 {
                return Err(NodeError::new("rounds are counted from 1"));
            }
            if input.auto_ms == 0 {
                return Err(NodeError::new("autoMs must be above 0"));
            }
            Ok(input)
        })
        .contract_id(ID)
        .start_at("begin")
        .compute("begin", |context| {
            let input = context.input();
            Ok(json!({ "next": match input.policy {
                Policy::Skip => "skip",
                Policy::Auto | Policy::Required if input.max_replans < input.round => "last",
                Policy::Auto | Policy::Required => "ask",
            } }))
        })
        .switch(
            "begin",
            "$.next",
            [("skip", "continued"), ("ask", "ask"), ("last", "askLast")],
        )
        .ask_people("ask", decision::<Verdict>(), |verdict| match verdict {
            Verdict::Continue => "continued",
            Verdict::Replan => "replanned",
            Verdict::Stop => "stopped",
        })
        .ask_people(
            "askLast",
            decision::<LastVerdict>(),
            |verdict| match verdict {
                LastVerdict::Continue => "continued",
                LastVerdict::Stop => "stopped",
            },
        )
        .compute("continued", |context| {
            let provenance = match context.input().policy {
                Policy::Skip => json!("skipped"),
                Policy::Auto | Policy::Required => provenance(context)?,
            };
            Ok(json!({ "provenance": provenance, "round": context.input().round }))
        })
        .compute("stopped", |context| {
            Ok(json!({ "provenance": by_person(context)?, "round": context.input().round }))
        })
        .compute("replanned", |context| {
            Ok(json!({
                "provenance": by_person(context)?,
                "round": context.input().round,
                "text": context.output::<Value>("ask")?.pointer("/input/text"),
            }))
        })
        .exit("continue", "continued")
        .exit("stop", "stopped")
        .exit("replan", "replanned")
        .build()
}

/// Makes it known to a program, for files and for workflows that include it by [`REFERENCE`].
///
/// # Errors
///
/// As [`definition`].
pub fn register(registry: &Registry) -> Result<(), DefinitionError> {
    registry.register_builtin(ID, REVISION, &definition()?);
    Ok(())
}
