//! `effects list`, `effects resolve`.

use holdpoint_state::effects::{self, Decision, EffectFilter, EffectView, Resolution};
use holdpoint_state::id::random_id;
use holdpoint_state::{EffectId, EffectState, OwnerScope, Payload, Resource};
use holdpoint_workflows::commands::Control;
use holdpoint_workflows::{RunId, Workflows};
use serde_json::{Value, json};

use super::{Context, actor, value};
use crate::cli::{DecisionWord, EffectsListArgs, ResolveArgs};
use crate::error::{CommandError, ExitStatus};
use crate::home;
use crate::output::text;

/// `effects list`.
pub(super) fn list(context: &Context, args: &EffectsListArgs) -> Result<ExitStatus, CommandError> {
    let state = match &args.state {
        None => None,
        Some(word) => Some(EffectState::from_text(word).ok_or_else(|| {
            let words: Vec<&str> = EffectState::ALL
                .iter()
                .map(|state| state.as_str())
                .collect();
            CommandError::input("state", format!("{word:?} is none of {}", words.join(", ")))
        })?),
    };
    let found = match context.existing() {
        Ok(store) => {
            let snapshot = store.snapshot()?;
            match &args.run {
                Some(run) => {
                    let run = Context::run_id(run)?;
                    let resource = Resource::new("run", run.as_str());
                    let mut found = effects::of_source(&snapshot, &resource)?;
                    found.retain(|effect| match state {
                        Some(state) => effect.state == state,
                        None => args.all || needs_somebody(effect.state),
                    });
                    found
                }
                None if args.all || state.is_some() => {
                    let filter = EffectFilter {
                        state,
                        ..EffectFilter::default()
                    };
                    effects::list(&snapshot, &filter, args.limit)?
                }
                None => {
                    let mut found = Vec::new();
                    for state in EffectState::ALL
                        .iter()
                        .filter(|state| needs_somebody(**state))
                    {
                        let filter = EffectFilter {
                            state: Some(*state),
                            ..EffectFilter::default()
                        };
                        found.extend(effects::list(&snapshot, &filter, args.limit)?);
                    }
                    found
                }
            }
        }
        Err(CommandError::NoStore { .. }) => Vec::new(),
        Err(error) => return Err(error),
    };
    let limit = usize::try_from(args.limit).unwrap_or(usize::MAX);
    let shown: Vec<&EffectView> = found.iter().take(limit).collect();
    context.output.document(&json!({ "effects": shown }))?;
    if shown.is_empty() {
        context.output.line("no effects");
    }
    for effect in shown {
        context.output.line(format!(
            "{:<9}  {}  {} of {} {}, attempt {}, revision {}",
            effect.state.as_str(),
            effect.effect_id,
            text::line(&effect.effect_type),
            text::line(&effect.source_type),
            text::line(&effect.source_key),
            effect.attempts,
            effect.revision
        ));
    }
    Ok(ExitStatus::Done)
}

/// Whether an effect is not over.
fn needs_somebody(state: EffectState) -> bool {
    match state {
        EffectState::Pending | EffectState::Applying | EffectState::Ambiguous => true,
        EffectState::Applied | EffectState::Rejected | EffectState::Cancelled => false,
    }
}

/// `effects resolve EFFECT confirm|retry|reject`.
pub(super) fn resolve(context: &Context, args: &ResolveArgs) -> Result<ExitStatus, CommandError> {
    let decision = decision(args)?;
    let store = context.existing()?;
    let id = EffectId::from(args.effect.clone());
    let seen = {
        let snapshot = store.snapshot()?;
        effects::fetch(&snapshot, &id)?.ok_or_else(|| CommandError::NoEffect {
            id: args.effect.clone(),
        })?
    };
    if seen.scope == OwnerScope::Channel {
        let problem = "a channel's delivery is resolved by `holdpoint channels recover`, which knows what was shown";
        return Err(CommandError::input("effect", problem));
    }
    let resolution = Resolution {
        effect_id: id.clone(),
        attempt_number: args.attempt.unwrap_or(seen.attempts),
        expected_revision: args.expect.unwrap_or(seen.revision),
        idempotency_key: args.key.clone().unwrap_or_else(|| random_id("resolution")),
        actor: actor(),
        decision,
    };
    let receipt = effects::resolve(&store, resolution)?;
    let resolved = receipt.value;
    let workflows = home::workflows(context.cli.home.as_deref(), store)?;
    let resumed = match RunId::new(&seen.source_key) {
        Ok(run) if seen.source_type == "run" && !args.stay => resume(&workflows, &run)?,
        _ => None,
    };
    context.output.document(&json!({
        "effectId": id,
        "state": resolved.state,
        "nextAttempt": resolved.next_attempt,
        "warning": resolved.warning,
        "adopted": resolved.adopted,
        "run": resumed,
    }))?;
    context.output.line(format!("{id} is {}", resolved.state));
    if let Some(warning) = resolved.warning {
        context.output.line(format!("warning: {warning}"));
    }
    if let Some(run) = &resumed {
        let status = run
            .get("displayStatus")
            .and_then(Value::as_str)
            .unwrap_or_default();
        context
            .output
            .line(format!("{} is {status}", text::line(&seen.source_key)));
    }
    Ok(ExitStatus::Done)
}

/// Lets the run of a resolved effect go on, once nothing of it is unknown any more.
fn resume(workflows: &Workflows, run: &RunId) -> Result<Option<Value>, CommandError> {
    let view = workflows.view(run)?;
    if !view.status.is_terminal() && view.ambiguous_effects == 0 && !view.paused {
        workflows.resume(&Control::of(run).by(actor()))?;
    }
    let view = workflows.view(run)?;
    Ok(Some(json!({
        "runId": view.run_id,
        "status": view.status,
        "displayStatus": view.display_status,
        "revision": view.run_revision,
        "runRevision": view.run_revision,
    })))
}

fn decision(args: &ResolveArgs) -> Result<Decision, CommandError> {
    let only = |wrong: bool, flag: &str, word: &str| {
        if wrong {
            return Err(CommandError::input(
                "decision",
                format!("{flag} goes with {word} only"),
            ));
        }
        Ok(())
    };
    let confirms = args.decision == DecisionWord::Confirm;
    only(args.receipt.is_some() && !confirms, "--receipt", "confirm")?;
    only(
        args.external_ref.is_some() && !confirms,
        "--external-ref",
        "confirm",
    )?;
    only(
        args.reason.is_some() && args.decision != DecisionWord::Reject,
        "--reason",
        "reject",
    )?;
    Ok(match args.decision {
        DecisionWord::Confirm => Decision::Confirm {
            receipt: args
                .receipt
                .as_deref()
                .map(|text| Ok::<_, CommandError>(Payload::json(&value::read("receipt", text)?)?))
                .transpose()?,
            external_ref: args.external_ref.clone(),
        },
        DecisionWord::Retry => Decision::Retry,
        DecisionWord::Reject => Decision::Reject {
            reason: args
                .reason
                .clone()
                .unwrap_or_else(|| "rejected by a person".to_owned()),
        },
    })
}
