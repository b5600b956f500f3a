//! The answer to a decision: given in one command, or asked for at a terminal.
//!
//! At a terminal the person sees the document and answers what was shown: the answer names its digest, so that a screen which is stale by
//! then is told so. A choice that asks for a text is followed by it, to the end of its line. Not here: which answer wins.

use std::io;

use holdpoint_decisions::commands::{self, Answer};
use holdpoint_decisions::digest::DocumentDigest;
use holdpoint_decisions::model::{Choice, Judged, RejectCode, Rejection};
use holdpoint_decisions::views::{self, DecisionView};
use holdpoint_workflows::Workflows;
use holdpoint_workflows::views::RunView;
use rustix::termios::{QueueSelector, tcflush};
use serde_json::{Value, json};

use super::prompt::{Asked, Typed, read_line};
use super::{Context, decisions, value};
use crate::cli::AnswerArgs;
use crate::error::{CommandError, ExitStatus};
use crate::output::{Output, text};
use crate::signals::Interrupts;

/// Who answers here: whoever may type in this terminal has the store anyway.
const PERSON: &str = "command-line";

/// `answer`, when what is asked is a decision.
pub(super) fn answer(
    context: &Context,
    workflows: &Workflows,
    view: &DecisionView,
    args: &AnswerArgs,
) -> Result<ExitStatus, CommandError> {
    let Some(choice) = &args.answer else {
        if args.text.is_some() {
            return Err(CommandError::input(
                "answer",
                "--text belongs to a choice; name it",
            ));
        }
        return at_terminal(context, workflows, view);
    };
    let response = response(view, choice, args.text.as_deref())?;
    let mut answer = Answer::new(&view.request.decision_id, response, PERSON);
    answer = answer.seeing(match &args.seen {
        Some(digest) => DocumentDigest::from_text(digest).ok_or_else(|| {
            CommandError::input(
                "seen",
                "a digest is sha256: and 64 hexadecimal digits, as `decision show` tells it",
            )
        })?,
        // What is asked of an attempt never changes.
        None => view.request.request_digest,
    });
    if let Some(key) = &args.key {
        answer = answer.key(key);
    }
    if let Some(revision) = args.expect {
        answer = answer.at_revision(revision);
    }
    let judged = commands::answer(workflows.database(), &answer)?.value;
    let told = decisions::verdict(&judged, &view.request);
    let status = decisions::tell(context, view, &judged, &told)?;
    if status == ExitStatus::Done {
        context.output.line(format!(
            "whoever executes the run goes on now; else: {}",
            context.hint(&["work", "--until-idle"])
        ));
    }
    Ok(status)
}

/// The answer that was typed: a choice, or a whole answer as JSON.
fn response(view: &DecisionView, choice: &str, typed: Option<&str>) -> Result<Value, CommandError> {
    if choice.starts_with(['{', '@']) {
        if typed.is_some() {
            return Err(CommandError::input("text", "it is in the JSON already"));
        }
        return value::read("answer", choice);
    }
    let asked = view.request.choices.get(choice);
    let Some(typed) = typed else {
        return Ok(json!({ "choice": choice }));
    };
    let text = value::text("text", typed)?;
    // A text for a choice that takes none is refused by the judge, with its row.
    let name = asked
        .and_then(|choice| choice.input.as_ref())
        .map_or("text", |input| input.name());
    Ok(json!({ "choice": choice, "input": { name: text } }))
}

/// `answer` without an answer, at a terminal.
fn at_terminal(
    context: &Context,
    workflows: &Workflows,
    view: &DecisionView,
) -> Result<ExitStatus, CommandError> {
    if !context.output.is_interactive() {
        return Err(CommandError::input(
            "answer",
            "name a choice; only at a terminal you are asked for it",
        ));
    }
    if let Some(resolution) = &view.resolution {
        context.output.line(format!(
            "not asked any more: {}",
            decisions::ended(resolution, &view.request)
        ));
        return Ok(ExitStatus::Conflict);
    }
    let interrupts = Interrupts::default();
    interrupts
        .listen(workflows.database(), context.output)
        .map_err(|source| CommandError::Io {
            action: "listening for signals".to_owned(),
            source,
        })?;
    let run = workflows.view(&view.run_id)?;
    Ok(match ask(context, workflows, &run, &interrupts)? {
        Asked::Answered => {
            context.output.line(format!(
                "whoever executes the run goes on now; else: {}",
                context.hint(&["work", "--until-idle"])
            ));
            ExitStatus::Done
        }
        Asked::Moved => ExitStatus::Conflict,
        Asked::Left => ExitStatus::Waiting,
        Asked::Interrupted => ExitStatus::Cancelled,
    })
}

/// Asks the decision of a run at the terminal, while it may be answered elsewhere.
pub(super) fn ask(
    context: &Context,
    workflows: &Workflows,
    run: &RunView,
    interrupts: &Interrupts,
) -> Result<Asked, CommandError> {
    let output = context.output;
    let Some(view) = decisions::of_run(workflows, &run.run_id)? else {
        output.line("the run waits for no decision any more");
        return Ok(Asked::Moved);
    };
    let id = view.request.decision_id.as_str();
    output.line(decisions::shown_to_people(&view.request).trim_end());
    output.line(format!(
        "Type a choice; Ctrl-D leaves it open. From elsewhere: {}",
        context.hint(&["answer", id, "CHOICE"])
    ));
    let _ = tcflush(io::stdin(), QueueSelector::IFlush);
    let session = Session {
        workflows,
        run,
        interrupts,
        output,
    };
    loop {
        let choice = match session.read("choice> ")? {
            Typed::Line(line) => line,
            other => return session.ended(&other, &view),
        };
        let typed = choice.trim();
        if typed.is_empty() {
            continue;
        }
        let Some((choice, asked)) = choice_of(&view, typed) else {
            output.line(format!(
                "there is no choice {}",
                text::line(&format!("{typed:?}"))
            ));
            continue;
        };
        let mut response = json!({ "choice": choice });
        if let Some(input) = &asked.input {
            output.line(format!("  {}", text::line(input.prompt())));
            let line = match session.read("text> ")? {
                Typed::Line(line) => line,
                other => return session.ended(&other, &view),
            };
            // Exactly what was typed, but for the key that ended it.
            let line = line.strip_suffix('\n').unwrap_or(&line);
            response = json!({ "choice": choice, "input": { input.name(): line } });
        }
        let answer = Answer::new(&view.request.decision_id, response, PERSON)
            .seeing(view.request.request_digest);
        let judged = commands::answer(workflows.database(), &answer)?.value;
        output.line(decisions::verdict(&judged, &view.request));
        match judged {
            Judged::Accepted { .. } => {
                workflows.offer(&run.run_id);
                return Ok(Asked::Answered);
            }
            Judged::Rejected {
                reason:
                    Rejection::Invalid {
                        code: RejectCode::Requester,
                    },
            } => return Ok(Asked::Left),
            Judged::Rejected {
                reason: Rejection::Invalid { code },
            } if code != RejectCode::Expired => {}
            _ => return Ok(Asked::Moved),
        }
    }
}

/// A choice by its id or its label.
fn choice_of<'a>(view: &'a DecisionView, typed: &str) -> Option<(&'a str, &'a Choice)> {
    let mut choices = view.request.choices.iter();
    choices
        .find(|(id, choice)| id.as_str() == typed || choice.label == typed)
        .map(|(id, choice)| (id.as_str(), choice))
}

/// One question at a terminal.
struct Session<'a> {
    workflows: &'a Workflows,
    run: &'a RunView,
    interrupts: &'a Interrupts,
    output: Output,
}

impl Session<'_> {
    fn read(&self, sign: &'static str) -> Result<Typed, CommandError> {
        let Some(request) = &self.run.request else {
            return Ok(Typed::Moved);
        };
        Output::prompt(sign);
        read_line(self.workflows, self.run, request, self.interrupts)
    }

    /// What came instead of a line.
    fn ended(&self, typed: &Typed, view: &DecisionView) -> Result<Asked, CommandError> {
        self.output.line("");
        Ok(match typed {
            Typed::Interrupted => Asked::Interrupted,
            Typed::Moved => {
                let _ = tcflush(io::stdin(), QueueSelector::IFlush);
                self.show_winner(view)?;
                Asked::Moved
            }
            Typed::End | Typed::Line(_) => Asked::Left,
        })
    }

    /// Says what ended the question.
    fn show_winner(&self, view: &DecisionView) -> Result<(), CommandError> {
        let store = self.workflows.database();
        let now = store.clock().now();
        let present = views::fetch(&store.snapshot()?, &view.request.decision_id, now)?;
        match present.as_ref().and_then(|view| view.resolution.as_ref()) {
            Some(resolution) => self.output.line(format!(
                "meanwhile {}",
                decisions::ended(resolution, &view.request)
            )),
            None => self.output.line("the run moved on"),
        }
        Ok(())
    }
}
