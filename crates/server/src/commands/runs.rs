//! `list`, `show`, `explain`: what the projections say.

use std::fmt::Write as _;

use holdpoint_workflows::model::RunStatus;
use holdpoint_workflows::views::{Filter, Page, ProgressView, RunSummary, RunView};
use serde_json::{Value, json};

use super::{Context, decisions};
use crate::cli::ListArgs;
use crate::error::{CommandError, ExitStatus};
use crate::home;
use crate::output::json::{Explained, Run};
use crate::output::text;

/// `list`. A store that is not there yet has no runs.
pub(super) fn list(context: &Context, args: &ListArgs) -> Result<ExitStatus, CommandError> {
    let status = match &args.status {
        None => None,
        Some(word) => Some(RunStatus::from_text(word).ok_or_else(|| {
            let words: Vec<&str> = RunStatus::ALL
                .iter()
                .map(|status| status.as_str())
                .collect();
            CommandError::input(
                "status",
                format!("{word:?} is none of {}", words.join(", ")),
            )
        })?),
    };
    let filter = Filter {
        status,
        limit: usize::from(args.limit),
        after: args.after.clone(),
    };
    let page = match context.workflows() {
        Ok(workflows) => workflows.list(&filter)?,
        Err(CommandError::NoStore { .. }) => Page {
            runs: Vec::new(),
            next: None,
        },
        Err(error) => return Err(error),
    };
    let runs = page
        .runs
        .iter()
        .map(with_revision)
        .collect::<Result<Vec<_>, _>>()?;
    context
        .output
        .document(&json!({ "runs": runs, "next": page.next }))?;
    if page.runs.is_empty() {
        context.output.line("no runs");
    }
    for run in &page.runs {
        context.output.line(summary(run));
    }
    if let Some(next) = &page.next {
        context.output.line(format!("more: --after {next}"));
    }
    Ok(ExitStatus::Done)
}

fn with_revision(run: &RunSummary) -> Result<Value, CommandError> {
    let mut value = serde_json::to_value(run).map_err(|error| CommandError::Io {
        action: "writing the document".to_owned(),
        source: error.into(),
    })?;
    if let Some(members) = value.as_object_mut() {
        members.insert("revision".to_owned(), run.run_revision.into());
    }
    Ok(value)
}

fn summary(run: &RunSummary) -> String {
    let status = run
        .display_status
        .map_or(run.status.as_str(), |status| status.as_str());
    let title = run.run_title.as_deref().unwrap_or(&run.workflow_name);
    let mut line = format!(
        "{status:<9}  {}  {}",
        text::line(&run.run_id),
        text::line(title)
    );
    if let Some(problem) = &run.problem {
        // Writing to a string does not fail.
        let _ = write!(line, "  (unreadable: {})", text::line(problem));
    }
    line
}

/// `show RUN`.
pub(super) fn show(context: &Context, run: &str) -> Result<ExitStatus, CommandError> {
    let run = Context::run_id(run)?;
    let workflows = context.workflows()?;
    let view = workflows.view(&run)?;
    let options = workflows.launch_options(&run)?;
    let progress = if view.status.is_terminal() {
        None
    } else {
        workflows.progress(&run)?
    };
    context.output.document(&Run {
        progress: progress.as_ref(),
        ..Run::of(&view, &options)
    })?;
    let described = described(&view, &options, progress.as_ref());
    context.output.line(described.trim_end());
    Ok(ExitStatus::Done)
}

fn described(view: &RunView, options: &Value, progress: Option<&ProgressView>) -> String {
    let mut told = String::new();
    let mut row = |name: &str, value: &str| {
        let _ = writeln!(told, "{name:<9} {}", text::line(value));
    };
    row("run", view.run_id.as_str());
    row("workflow", &view.workflow_name);
    if let Some(title) = &view.run_title {
        row("title", title);
    }
    row("status", view.display_status.as_str());
    if let Some(detail) = &view.status_detail {
        row("detail", detail);
    }
    if let Some(code) = &view.error_code {
        row("code", code);
    }
    for effect in &view.effects_to_review {
        let named = format!("{} ({})", effect.effect_id, effect.effect_type);
        row("review", &named);
    }
    row("revision", &view.run_revision.to_string());
    row("created", &text::instant(view.created_at.0));
    if let Some(at) = view.finished_at {
        row("finished", &text::instant(at.0));
    }
    if let Some(source) = &view.source {
        row("source", &source.reference);
    }
    if let Some(directory) = home::directory_of(options) {
        row("directory", directory);
    }
    if let Some(parent) = &view.parent_run_id {
        row("restarts", parent.as_str());
    }
    for step in &view.steps {
        let result = &step.result;
        let took = text::duration(result.duration_ms.unsigned_abs());
        let node = text::line(result.node_id.as_str());
        let outcome = json!(result.outcome);
        let outcome = outcome.as_str().unwrap_or_default();
        let _ = writeln!(told, "step {:<4} {node}: {outcome} ({took})", step.index);
        if let Some(error) = &result.error {
            let _ = writeln!(told, "{}", text::value(&json!(error), "          "));
        }
    }
    if let Some(node) = &view.current_node {
        let _ = writeln!(told, "at        {}", text::line(node.as_str()));
    }
    if let Some(progress) = progress {
        let _ = writeln!(told, "progress  {}", super::records::told(progress));
    }
    if view.waiting_on.is_some() && view.request.is_some() {
        let _ = writeln!(told, "{}", question(view));
    }
    let request = view.request.as_ref();
    if let Some(problem) = request.and_then(|request| request.refused.as_ref()) {
        let _ = writeln!(
            told,
            "the latest candidate was refused\n{}",
            text::value(&json!(problem), "  ")
        );
    }
    if let Some(error) = &view.error {
        let _ = writeln!(told, "error\n{}", text::value(&json!(error), "  "));
    }
    if let Some(output) = &view.final_output {
        let _ = writeln!(told, "output\n{}", text::value(output, "  "));
    }
    let controls: Vec<String> = view
        .controls
        .iter()
        .filter_map(|control| json!(control).as_str().map(str::to_owned))
        .collect();
    if !controls.is_empty() {
        let _ = writeln!(told, "controls  {}", controls.join(", "));
    }
    told
}

/// What a run asks, for a person: the summary and each member of the request.
pub(super) fn question(view: &RunView) -> String {
    let mut told = String::new();
    let Some(request) = &view.request else {
        return told;
    };
    if let Some(asked) = decisions::asked(view) {
        let _ = write!(
            told,
            "waits at {} for a decision of {}: {}\n{}",
            text::line(request.node_id.as_str()),
            text::line(asked.audience.as_str()),
            asked.decision_id,
            decisions::shown_to_people(&asked).trim_end()
        );
        return told;
    }
    let said = |member| request.contract.get(member).and_then(Value::as_str);
    let summary = said("summary").or_else(|| said("prompt"));
    let _ = write!(
        told,
        "waits at {}: {}",
        text::line(request.node_id.as_str()),
        text::line(summary.unwrap_or("an answer is needed"))
    );
    match request.contract.get("request") {
        Some(Value::Object(members)) => {
            for (name, value) in members {
                let _ = write!(told, "\n  {}:", text::line(name));
                match value {
                    Value::String(text) if text.contains('\n') => {
                        let _ = write!(told, "\n{}", text::value(value, "    "));
                    }
                    Value::String(text) => {
                        let _ = write!(told, " {}", text::line(text));
                    }
                    Value::Object(_) | Value::Array(_) => {
                        let _ = write!(told, "\n{}", text::value(value, "    "));
                    }
                    other => {
                        let _ = write!(told, " {other}");
                    }
                }
            }
        }
        None | Some(Value::Null) => {}
        Some(value) => {
            let _ = write!(told, "\n{}", text::value(value, "  "));
        }
    }
    told
}

/// `explain RUN`.
pub(super) fn explain(context: &Context, run: &str) -> Result<ExitStatus, CommandError> {
    let run = Context::run_id(run)?;
    let workflows = context.workflows()?;
    let explanation = workflows.explain(&run)?;
    let options = workflows.launch_options(&run)?;
    let directory = home::directory_of(&options);
    let (decision, rows) = decisions::explained(&workflows, &run)?;
    context.output.document(&Explained {
        explanation: &explanation,
        decision,
        working_directory: directory,
    })?;
    let mut told = String::new();
    let mut row = |name: &str, value: &str| {
        let _ = writeln!(told, "{name:<11} {}", text::line(value));
    };
    row("run", explanation.run_id.as_str());
    row("status", explanation.display_status.as_str());
    row("queue", explanation.queue_status.as_str());
    match &explanation.holder {
        Some(holder) => row(
            "holder",
            &format!(
                "a {}, {} {}",
                holder.kind,
                if holder.live { "until" } else { "lost since" },
                text::instant(holder.expires_at.0)
            ),
        ),
        None => row("holder", "nobody"),
    }
    row("generation", &explanation.generation.to_string());
    row("due", &text::instant(explanation.due_at.0));
    row(
        "blocked by",
        explanation.blocked_by.as_deref().unwrap_or("nothing"),
    );
    row("reason", &explanation.reason);
    for (name, value) in &rows {
        row(name, value);
    }
    if let Some(error) = &explanation.last_error {
        row("last error", error);
    }
    if let Some(worker) = &explanation.worker {
        let mut words = worker.status.as_str().to_owned();
        if let Some(pid) = worker.pid {
            let _ = write!(words, ", process {pid}");
        }
        if let Some(code) = worker.exit_code {
            let _ = write!(words, ", exit code {code}");
        }
        if let Some(signal) = &worker.signal {
            let _ = write!(words, ", ended by {signal}");
        }
        row("worker", &words);
        if let Some(diagnostic) = &worker.diagnostic {
            row("it wrote", diagnostic);
        }
    }
    if let Some(directory) = directory {
        let there = if home::is_at_home(&options) {
            ""
        } else {
            " (it is executed there only)"
        };
        row("directory", &format!("{directory}{there}"));
    }
    context.output.line(told.trim_end());
    Ok(ExitStatus::Done)
}
