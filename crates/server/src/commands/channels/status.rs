//! `channels status` and `channels recover`: where the channels stand, and what waits for a person.
//!
//! What the store knows of a profile is shown whatever the configuration says, so that a broken file hides nothing.

use std::collections::BTreeSet;

use holdpoint_channels::commands::{Recovery, recover as recover_attempt};
use holdpoint_channels::config::Config;
use holdpoint_channels::model::RecoverAction;
use holdpoint_channels::views::{self, ChannelView, WaitingView};
use holdpoint_state::Actor;
use serde_json::{Value, json};

use super::{Context, counted, directory};
use crate::cli::channels::{RecoverArgs, RecoverWord};
use crate::error::{CommandError, ExitStatus};
use crate::output::text;

/// What the store knows.
#[derive(Default)]
struct Stored {
    channels: Vec<ChannelView>,
    ambiguous: Vec<WaitingView>,
    refused: Vec<WaitingView>,
}

impl Stored {
    fn read(context: &Context) -> Result<Self, CommandError> {
        let store = match context.existing() {
            Ok(store) => store,
            Err(CommandError::NoStore { .. }) => return Ok(Self::default()),
            Err(error) => return Err(error),
        };
        let snapshot = store.snapshot()?;
        Ok(Self {
            channels: views::list(&snapshot, store.clock().now())?,
            ambiguous: views::ambiguous(&snapshot)?,
            refused: views::refused(&snapshot)?,
        })
    }

    fn channel(&self, profile: &str) -> Option<&ChannelView> {
        let is_of = |channel: &&ChannelView| channel.channel.profile() == Some(profile);
        self.channels.iter().find(is_of)
    }
}

/// `channels status`.
pub(super) fn status(context: &Context) -> Result<ExitStatus, CommandError> {
    let (config, error) = match Config::load(&directory()?) {
        Ok(config) => (config, None),
        Err(error) => (Config::default(), Some(error)),
    };
    let stored = Stored::read(context)?;
    let of_store = stored
        .channels
        .iter()
        .filter_map(|channel| channel.channel.profile());
    let names: BTreeSet<&str> = config
        .profiles()
        .keys()
        .map(String::as_str)
        .chain(of_store)
        .collect();
    // Of a configuration that can't be read nobody knows what is in it.
    let is_configured = |profile: &str| error.is_none().then(|| config.profile(profile).is_some());
    let profiles: Vec<Value> = names
        .iter()
        .map(|profile| {
            let hosted = stored
                .channel(profile)
                .is_some_and(|channel| channel.hosted);
            json!({ "profile": profile, "running": hosted, "configured": is_configured(profile) })
        })
        .collect();
    context.output.document(&json!({
        "configured": !config.profiles().is_empty(),
        "profiles": profiles,
        "channels": stored.channels,
        "ambiguous": stored.ambiguous,
        "refused": stored.refused,
        "error": error.as_ref().map(explain),
        "errorFile": error.as_ref().map(|error| error.path().display().to_string()),
    }))?;
    context.output.line("pi: always there");
    for profile in names {
        let gone = if is_configured(profile) == Some(false) {
            ", not configured any more"
        } else {
            ""
        };
        show(context, profile, gone, stored.channel(profile));
    }
    for attempt in &stored.ambiguous {
        waits(context, "in doubt", attempt);
    }
    for attempt in &stored.refused {
        waits(context, "refused", attempt);
    }
    if !stored.refused.is_empty() {
        let retry = context.hint(&["channels", "recover", "ATTEMPT", "retry"]);
        context
            .output
            .line(format!("`{retry}` lets what was refused be tried again"));
    }
    if let Some(error) = error {
        context.output.line(format!(
            "no adapter can start: {}",
            text::line(&explain(&error))
        ));
    }
    Ok(ExitStatus::Done)
}

/// An error with what is behind it.
fn explain(error: &holdpoint_channels::config::ConfigError) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

fn show(context: &Context, profile: &str, gone: &str, channel: Option<&ChannelView>) {
    let output = context.output;
    let Some(channel) = channel else {
        output.line(format!("telegram:{profile}: never ran"));
        return;
    };
    let running = if channel.hosted {
        "running"
    } else {
        "not running"
    };
    output.line(format!(
        "telegram:{profile}: {running}{gone}, {} open, {} to be settled, {} in doubt",
        channel.open, channel.unsettled, channel.ambiguous
    ));
    if 0 < channel.refused {
        let (decisions, are) = match channel.refused {
            1 => ("1 open decision".to_owned(), "is"),
            many => (format!("{many} open decisions"), "are"),
        };
        output.line(format!(
            "telegram:{profile}: {decisions} {are} not shown, the provider refused; an answer can be given here"
        ));
    }
    if let Some(until) = channel.quiet_until {
        output.line(format!(
            "telegram:{profile}: the provider wants nothing sent before {}",
            holdpoint_decisions::model::to_iso(until)
        ));
    }
}

/// What waits for a person, in a line.
fn waits(context: &Context, why: &str, attempt: &WaitingView) {
    let parts = usize::try_from(attempt.parts).unwrap_or(usize::MAX);
    context.output.line(format!(
        "{why}: {} in {}, {} of {} ({} seen): {}",
        text::line(&attempt.attempt_id),
        text::line(attempt.channel.as_str()),
        attempt.purpose,
        text::line(&attempt.decision_id),
        counted(parts, "part"),
        text::line(attempt.error_code.as_deref().unwrap_or("unknown"))
    ));
}

/// `channels recover ATTEMPT confirm|retry`.
pub(super) fn recover(context: &Context, args: &RecoverArgs) -> Result<ExitStatus, CommandError> {
    let store = context.existing()?;
    let action = match args.action {
        RecoverWord::Confirm => RecoverAction::Confirm,
        RecoverWord::Retry => RecoverAction::Retry,
    };
    let recovery = Recovery {
        attempt_id: args.attempt.clone(),
        action,
        by: Actor::human("command-line"),
    };
    let recovered = recover_attempt(&store, &recovery)?;
    context.output.document(&json!({
        "attemptId": args.attempt,
        "action": action.as_str(),
        "channel": recovered.channel,
        "purpose": recovered.purpose,
        "nextAttemptId": recovered.next_attempt_id,
        "warning": recovered.warning,
    }))?;
    match &recovered.next_attempt_id {
        Some(next) => context
            .output
            .line(format!("the host of {} begins {next}", recovered.channel)),
        None => context.output.line(format!(
            "{} of {} is confirmed",
            recovered.purpose, recovered.channel
        )),
    }
    if let Some(warning) = recovered.warning {
        context.output.line(format!("warning: {warning}"));
    }
    Ok(ExitStatus::Done)
}
