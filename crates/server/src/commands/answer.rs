//! `answer`: one accepted answer to what a run waits for.

use holdpoint_workflows::commands::Answer;
use serde_json::json;

use super::{Context, actor, value};
use crate::cli::AnswerArgs;
use crate::error::{CommandError, ExitStatus};

pub(super) fn answer(context: &Context, args: &AnswerArgs) -> Result<ExitStatus, CommandError> {
    let run = Context::run_id(&args.run)?;
    let mut answer = Answer::new(&run, value::read("answer", &args.answer)?).by(actor());
    if let Some(request) = &args.request {
        answer = answer.to(request);
    }
    if let Some(key) = &args.key {
        answer = answer.key(key);
    }
    if let Some(revision) = args.expect {
        answer = answer.expecting(revision);
    }
    let workflows = context.workflows()?;
    let receipt = workflows.answer(&answer)?;
    let adopted = !receipt.is_accepted();
    let view = workflows.view(&run)?;
    context.output.document(&json!({
        "runId": run,
        "requestId": receipt.value.request_id,
        "submissionId": receipt.value.submission_id,
        "requestRevision": receipt.value.request_revision,
        "adopted": adopted,
        "status": view.status,
        "displayStatus": view.display_status,
        "revision": view.run_revision,
        "runRevision": view.run_revision,
    }))?;
    context.output.line(if adopted {
        "answered already, with the same answer"
    } else {
        "answered"
    });
    if !view.status.is_terminal() {
        context.output.line(format!(
            "whoever executes the run goes on now; else: {}",
            context.hint(&["work", "--until-idle"])
        ));
    }
    Ok(ExitStatus::Done)
}
