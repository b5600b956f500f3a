//! `agents`, `submit`, `messages`: what models in origin sessions are asked, and what their sessions show.

use holdpoint_workflows::commands::Submission;
use holdpoint_workflows::model::{RequestKind, SubmissionOutcome};
use holdpoint_workflows::views::{AgentRequestView, MessageView};
use serde_json::{Value, json};

use super::{Context, actor, value};
use crate::cli::{AgentsArgs, MessagesArgs, SubmitArgs};
use crate::error::{CommandError, ExitStatus};
use crate::output::text;

pub(super) fn agents(context: &Context, args: &AgentsArgs) -> Result<ExitStatus, CommandError> {
    let workflows = context.workflows()?;
    let requests = workflows.agent_requests(args.session.as_deref(), usize::from(args.limit))?;
    context.output.document(&json!({ "requests": requests }))?;
    if requests.is_empty() {
        context.output.line("no model is asked anything");
    }
    for request in &requests {
        show_request(context, request);
    }
    Ok(ExitStatus::Done)
}

fn show_request(context: &Context, request: &AgentRequestView) {
    let state = if request.paused {
        "paused"
    } else if request.validating {
        "a candidate is being looked at"
    } else {
        "waits"
    };
    let time = match request.timeout_ms {
        Some(timeout) => format!("{} of {}", duration(request.spent_ms), duration(timeout)),
        None => duration(request.spent_ms),
    };
    context.output.line(format!(
        "{}  {}  session {}  node {}  {state}  {time} of model time",
        request.run_id,
        request.kind,
        text::line(&request.session_id),
        request.node_id
    ));
    if let Some(prompt) = request.contract.get("prompt").and_then(Value::as_str) {
        context.output.line(format!("  {}", text::line(prompt)));
    }
    if request.kind == RequestKind::Agent && !request.paused && !request.validating {
        context.output.line(format!(
            "  {}",
            context.hint(&["submit", request.run_id.as_str(), "JSON"])
        ));
    }
}

fn duration(ms: f64) -> String {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a duration, which is shown in seconds; the cast saturates"
    )]
    let ms = ms.max(0.0) as u64;
    text::duration(ms)
}

pub(super) fn submit(context: &Context, args: &SubmitArgs) -> Result<ExitStatus, CommandError> {
    let run = Context::run_id(&args.run)?;
    let mut submission = Submission::new(&run, value::read("output", &args.output)?).by(actor());
    if let Some(request) = &args.request {
        submission = submission.to(request);
    }
    if let Some(key) = &args.key {
        submission = submission.key(key);
    }
    if let Some(revision) = args.expect {
        submission = submission.expecting(revision);
    }
    let workflows = context.workflows()?;
    let receipt = workflows.submit(&submission)?;
    let adopted = !receipt.is_accepted();
    let submitted = receipt.value;
    let view = workflows.view(&run)?;
    context.output.document(&json!({
        "runId": run,
        "requestId": submitted.request_id,
        "submissionId": submitted.submission_id,
        "requestRevision": submitted.request_revision,
        "outcome": submitted.outcome,
        "message": submitted.message,
        "adopted": adopted,
        "status": view.status,
        "displayStatus": view.display_status,
        "revision": view.run_revision,
        "runRevision": view.run_revision,
    }))?;
    context.output.line(match submitted.outcome {
        SubmissionOutcome::Validating if adopted => {
            "submitted already; nobody looked at it yet".to_owned()
        }
        SubmissionOutcome::Validating => format!(
            "submitted; whoever executes the run looks at it now; else: {}",
            context.hint(&["work", "--until-idle"])
        ),
        SubmissionOutcome::Accepted | SubmissionOutcome::Adopted => "accepted already".to_owned(),
        SubmissionOutcome::Rejected => format!(
            "refused: {}",
            text::line(submitted.message.as_deref().unwrap_or_default())
        ),
    });
    Ok(ExitStatus::Done)
}

pub(super) fn messages(context: &Context, args: &MessagesArgs) -> Result<ExitStatus, CommandError> {
    let workflows = context.workflows()?;
    let messages = match (&args.run, &args.session) {
        (Some(run), _) => {
            let run = Context::run_id(run)?;
            // A run that is not there is told, and one without messages has none.
            workflows.view(&run)?;
            let mut messages = workflows.messages(&run)?;
            let surplus = messages.len().saturating_sub(usize::from(args.limit));
            messages.drain(..surplus);
            messages
        }
        (None, Some(session)) => workflows
            .session(session.as_str())
            .messages(usize::from(args.limit))?,
        (None, None) => Vec::new(),
    };
    context.output.document(&json!({ "messages": messages }))?;
    if messages.is_empty() {
        context.output.line("no messages");
    }
    for message in &messages {
        show_message(context, message);
    }
    Ok(ExitStatus::Done)
}

fn show_message(context: &Context, message: &MessageView) {
    let entry = match &message.entry_id {
        Some(entry) => format!("  entry {}", text::line(entry)),
        None => String::new(),
    };
    context.output.line(format!(
        "{}  {}  {}  {}  session {}{entry}",
        message.order_number,
        message.kind,
        message.status,
        message.run_id,
        text::line(&message.session_id)
    ));
    let said = [
        "/text",
        "/prompt",
        "/contract/prompt",
        "/contract/summary",
        "/error",
    ]
    .iter()
    .find_map(|place| message.content.pointer(place).and_then(Value::as_str));
    if let Some(said) = said {
        context.output.line(format!("  {}", text::line(said)));
    }
}
