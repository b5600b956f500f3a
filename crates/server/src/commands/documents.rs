//! Documents about the program itself: schema, completions, version, help, and what is wrong with the arguments.

use clap::error::ErrorKind;
use serde_json::json;

use super::Context;
use crate::cli::{self, CompletionsArgs, SchemaVerb};
use crate::error::{CommandError, ExitStatus};
use crate::home;
use crate::output::Output;

/// `schema workflow`, `schema resource`.
pub(super) fn schema(context: &Context, verb: &SchemaVerb) -> Result<ExitStatus, CommandError> {
    let schema = match verb {
        SchemaVerb::Workflow => home::file_schema()?,
        SchemaVerb::Resource => home::resource_schema()?,
    };
    if context.output.is_json() {
        context.output.document(&schema)?;
    } else {
        Output::file(&format!("{schema:#}\n"));
    }
    Ok(ExitStatus::Done)
}

/// `completions SHELL`.
pub(super) fn completions(
    context: &Context,
    args: &CompletionsArgs,
) -> Result<ExitStatus, CommandError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut cli::command(), "holdpoint", &mut script);
    let script = String::from_utf8_lossy(&script);
    if context.output.is_json() {
        let document = json!({ "shell": args.shell.to_string(), "script": script });
        context.output.document(&document)?;
    } else {
        Output::file(&script);
    }
    Ok(ExitStatus::Done)
}

/// `--version`.
pub(super) fn version(context: &Context) -> Result<ExitStatus, CommandError> {
    let (version, sqlite) = (
        env!("CARGO_PKG_VERSION"),
        holdpoint_state::sql::engine_version(),
    );
    context
        .output
        .document(&json!({ "version": version, "sqliteVersion": sqlite }))?;
    context
        .output
        .line(format!("holdpoint {version} (SQLite {sqlite})"));
    Ok(ExitStatus::Done)
}

/// Help, or what is wrong with the arguments.
pub(super) fn arguments(output: Output, error: &clap::Error) -> ExitStatus {
    let text = error.to_string();
    match error.kind() {
        ErrorKind::DisplayHelp if output.is_json() => {
            match output.document(&json!({ "help": text })) {
                Ok(()) => ExitStatus::Done,
                Err(error) => error.exit(),
            }
        }
        ErrorKind::DisplayHelp => {
            Output::file(&text);
            ExitStatus::Done
        }
        _ if output.is_json() => {
            let message = text.trim().trim_start_matches("error: ").to_owned();
            output.error(&CommandError::Usage { message });
            ExitStatus::Usage
        }
        _ => {
            output.note(text.trim_end());
            ExitStatus::Usage
        }
    }
}
