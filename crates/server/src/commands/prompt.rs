//! The question at a terminal: shows what a run asks and reads the answer, while the run may be answered elsewhere.
//!
//! Standard input is read only when there is something to read, so that the question can be taken away when somebody else was
//! faster; what was typed for it until then is thrown away, and so is what was typed before it stood there.

use std::io;
use std::time::Duration;

use holdpoint_workflows::commands::Answer;
use holdpoint_workflows::model::RequestStatus;
use holdpoint_workflows::views::{RequestView, RunView};
use holdpoint_workflows::{WorkflowError, Workflows};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{QueueSelector, tcflush};
use serde_json::Value;

use super::{Context, actor, runs};
use crate::error::CommandError;
use crate::output::{Output, text};
use crate::signals::Interrupts;

/// How long the terminal is waited for before the run is looked at again, in nanoseconds.
const LOOK_NS: i64 = 100_000_000;
/// How long the winner of a lost race is waited for, so that it can be shown.
const WINNER: Duration = Duration::from_secs(5);
/// The most bytes of one answer.
const BYTES_MAX: usize = 1024 * 1024;

/// What became of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    /// It was answered here.
    Answered,
    /// Somebody else answered, or the run was steered otherwise.
    Moved,
    /// The person went away without an answer.
    Left,
    /// Ctrl-C.
    Interrupted,
}

/// What a person typed.
pub(super) enum Typed {
    /// A line, with its end.
    Line(String),
    /// Ctrl-D.
    End,
    /// Nothing: what is asked is not open any more, or the run is paused.
    Moved,
    /// Ctrl-C.
    Interrupted,
}

/// Asks what the run asks.
pub(super) fn ask(
    context: &Context,
    workflows: &Workflows,
    view: &RunView,
    interrupts: &Interrupts,
) -> Result<Asked, CommandError> {
    let output = context.output;
    let Some(request) = view.request.clone() else {
        return Ok(Asked::Moved);
    };
    output.line(runs::question(view));
    output.line(format!(
        "Type JSON or plain text; Ctrl-D leaves it open. From elsewhere: {}",
        context.hint(&["answer", view.run_id.as_str(), "JSON"])
    ));
    let _ = tcflush(io::stdin(), QueueSelector::IFlush);
    let mut typed = String::new();
    loop {
        Output::prompt(if typed.is_empty() {
            "answer> "
        } else {
            "   ...> "
        });
        match read_line(workflows, view, &request, interrupts)? {
            Typed::Interrupted => {
                output.line("");
                return Ok(Asked::Interrupted);
            }
            Typed::End => {
                output.line("");
                return Ok(Asked::Left);
            }
            Typed::Moved => {
                output.line("");
                let _ = tcflush(io::stdin(), QueueSelector::IFlush);
                show_winner(context, workflows, view, &request)?;
                return Ok(Asked::Moved);
            }
            Typed::Line(line) => typed.push_str(&line),
        }
        let value = match judge(&typed) {
            Judged::Value(value) => value,
            Judged::More if typed.len() < BYTES_MAX => continue,
            Judged::More => {
                output.line("that is too long; use `holdpoint answer RUN @FILE`");
                typed.clear();
                continue;
            }
            Judged::Nothing => {
                typed.clear();
                continue;
            }
            Judged::Mistake(problem) => {
                output.line(format!("that is no JSON: {problem}"));
                typed.clear();
                continue;
            }
        };
        let answer = Answer::new(&view.run_id, value)
            .to(&request.request_id)
            .expecting(request.revision)
            .by(actor());
        match workflows.answer(&answer) {
            Ok(_) => return Ok(Asked::Answered),
            Err(WorkflowError::Conflict { .. } | WorkflowError::Rejected { .. }) => {
                show_winner(context, workflows, view, &request)?;
                return Ok(Asked::Moved);
            }
            Err(error @ (WorkflowError::Input { .. } | WorkflowError::State(_))) => {
                output.line(format!("not taken: {error}"));
                typed.clear();
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// One line of the terminal, or what happened before it came.
pub(super) fn read_line(
    workflows: &Workflows,
    view: &RunView,
    request: &RequestView,
    interrupts: &Interrupts,
) -> Result<Typed, CommandError> {
    let stdin = io::stdin();
    let look = Timespec {
        tv_sec: 0,
        tv_nsec: LOOK_NS,
    };
    let mut line = Vec::new();
    loop {
        if interrupts.asked() {
            return Ok(Typed::Interrupted);
        }
        let now = workflows.view(&view.run_id)?;
        let open = now.request.as_ref().is_some_and(|present| {
            present.request_id == request.request_id && present.status == RequestStatus::Pending
        });
        if !open || now.paused {
            return Ok(Typed::Moved);
        }
        let mut waited = [PollFd::new(&stdin, PollFlags::IN)];
        match poll(&mut waited, Some(&look)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => continue,
            Ok(_) => {}
            Err(error) => return Err(failed(error)),
        }
        let mut part = [0_u8; 4096];
        match rustix::io::read(&stdin, &mut part) {
            Ok(0) => return Ok(Typed::End),
            Ok(size) => line.extend(part.iter().take(size)),
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
            Err(error) => return Err(failed(error)),
        }
        if line.ends_with(b"\n") {
            return Ok(Typed::Line(String::from_utf8_lossy(&line).into_owned()));
        }
    }
}

fn failed(error: rustix::io::Errno) -> CommandError {
    CommandError::Io {
        action: "reading the terminal".to_owned(),
        source: error.into(),
    }
}

/// Shows what somebody else did.
fn show_winner(
    context: &Context,
    workflows: &Workflows,
    before: &RunView,
    request: &RequestView,
) -> Result<(), CommandError> {
    let seen = before.steps.len();
    let view = workflows.wait_for(&before.run_id, WINNER, |view| {
        seen < view.steps.len() || view.paused || view.status.is_terminal()
    })?;
    let winner = view
        .steps
        .iter()
        .skip(seen)
        .find(|step| step.result.node_id == request.node_id);
    match winner.and_then(|step| step.result.output.as_ref()) {
        Some(value) => {
            context.output.line("answered elsewhere:");
            context.output.line(text::value(value, "  "));
        }
        None => context.output.line(format!(
            "the run moved on: {}",
            view.display_status.as_str()
        )),
    }
    Ok(())
}

/// What a text is as an answer.
#[derive(Debug, PartialEq)]
enum Judged {
    Value(Value),
    /// JSON that is not whole yet.
    More,
    Nothing,
    Mistake(String),
}

/// What begins like a JSON object, list or text is JSON; anything else that is no JSON is plain text.
fn judge(typed: &str) -> Judged {
    let text = typed.trim();
    if text.is_empty() {
        return Judged::Nothing;
    }
    match holdpoint_state::json::parse(text.as_bytes()) {
        Ok(value) => Judged::Value(value),
        Err(error) if text.starts_with(['{', '[', '"']) => {
            let unfinished = serde_json::from_str::<Value>(text).is_err_and(|error| error.is_eof());
            if unfinished && !text.starts_with('"') {
                Judged::More
            } else {
                Judged::Mistake(error.to_string())
            }
        }
        Err(_) => Judged::Value(Value::String(text.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_typed_is_json_text_or_a_mistake() {
        let value = |value: Value| Judged::Value(value);
        assert_eq!(judge("  \n"), Judged::Nothing);
        assert_eq!(
            judge("{\"approved\": true}\n"),
            value(serde_json::json!({ "approved": true }))
        );
        assert_eq!(judge("{\"approved\":\n"), Judged::More);
        assert_eq!(judge("true"), value(Value::Bool(true)));
        assert_eq!(
            judge("yes, go on"),
            value(Value::String("yes, go on".into()))
        );
        assert!(matches!(judge("{approved: true}"), Judged::Mistake(_)));
        assert!(matches!(judge("\"open"), Judged::Mistake(_)));
        assert!(matches!(judge("{\"a\":1,\"a\":2}"), Judged::Mistake(_)));
    }
}
