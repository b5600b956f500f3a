//! `decisions`, `decision show`, `decision wait`, `decision cancel`: what people are asked, and how it ended.

use std::fmt::Write as _;
use std::time::Duration;

use holdpoint_decisions::commands::{self, Cancel, Waited};
use holdpoint_decisions::document::{Segment, segments};
use holdpoint_decisions::model::{
    Adopted, ChannelRequest, Conflict, Judged, Provenance, RejectCode, Rejection, Request,
    Resolution,
};
use holdpoint_decisions::views::{self, DecisionView, Listed, Unreadable};
use holdpoint_decisions::{DecisionError, DecisionId};
use holdpoint_state::Snapshot;
use holdpoint_state::clock::UnixMillis;
use holdpoint_workflows::views::RunView;
use holdpoint_workflows::{RunId, Workflows};
use serde_json::{Value, json};

use super::{Context, actor};
use crate::cli::{DecisionCancelArgs, DecisionWaitArgs, DecisionsArgs};
use crate::error::{CommandError, ExitStatus};
use crate::output::text;
use crate::signals::Interrupts;

/// How long one look of a wait lasts; Ctrl-C is looked for between two.
const LOOK: Duration = Duration::from_millis(200);

/// `decisions`. A store that is not there yet has none.
pub(super) fn list(context: &Context, args: &DecisionsArgs) -> Result<ExitStatus, CommandError> {
    let found = match context.existing() {
        Ok(store) => {
            let now = store.clock().now();
            let snapshot = store.snapshot()?;
            match &args.run {
                Some(run) => {
                    let run = Context::run_id(run)?;
                    let mut all = views::of_run(&snapshot, &run, now)?;
                    if all.is_empty() {
                        // A run that asked nobody is not one that does not exist.
                        context.workflows()?.view(&run)?;
                    }
                    all.truncate(usize::from(args.limit));
                    all
                }
                None => views::open(&snapshot, now, u32::from(args.limit))?,
            }
        }
        Err(CommandError::NoStore { .. }) => Vec::new(),
        Err(error) => return Err(error),
    };
    let (mut documents, mut damaged) = (Vec::new(), Vec::new());
    if found.is_empty() {
        context.output.line("no decisions");
    }
    // One that can't be read is in the list as that: it hides none of the others.
    for listed in &found {
        match listed {
            Listed::Readable(view) => {
                documents.push(document(view));
                context.output.line(summary(view));
            }
            Listed::Unreadable(unreadable) => {
                damaged.push(problem(unreadable));
                context.output.line(format!(
                    "damaged    {}  ({})",
                    text::line(unreadable.decision_id.as_str()),
                    text::line(&unreadable.error.to_string())
                ));
            }
        }
    }
    context
        .output
        .document(&json!({ "decisions": documents, "damaged": damaged }))?;
    Ok(ExitStatus::Done)
}

/// A decision that can't be read, as a document.
fn problem(unreadable: &Unreadable) -> Value {
    json!({
        "decisionId": unreadable.decision_id,
        "runId": unreadable.run_id,
        "problem": unreadable.error.to_string(),
    })
}

fn summary(view: &DecisionView) -> String {
    let mut line = format!(
        "{:<9}  {}  {}",
        view.status.as_str(),
        text::line(view.request.decision_id.as_str()),
        text::line(&view.request.title)
    );
    if let Some(at) = view
        .request
        .expires_at
        .filter(|_| view.resolution.is_none())
    {
        // Writing to a string does not fail.
        let _ = write!(line, "  (until {})", text::instant(at.0));
    }
    if let Some(resolution) = &view.resolution {
        let _ = write!(line, "  ({})", ended_because(resolution, view));
    }
    if view.is_paused && view.resolution.is_none() {
        line.push_str("  (its run is paused)");
    }
    line
}

/// `decision show RUN|DECISION`.
pub(super) fn show(context: &Context, named: &str) -> Result<ExitStatus, CommandError> {
    let store = context.existing()?;
    let now = store.clock().now();
    let snapshot = store.snapshot()?;
    let view = find(&snapshot, named, now)?;
    let request = views::request(&snapshot, &view.request.decision_id)?;
    let subject = request.as_ref().map_or(Value::Null, |request| {
        request
            .document()
            .get("subject")
            .cloned()
            .unwrap_or_default()
    });
    let mut shown = document(&view);
    if let Some(members) = shown.as_object_mut() {
        members.insert("subject".to_owned(), subject.clone());
    }
    context.output.document(&shown)?;
    let mut told = String::new();
    let mut row = |name: &str, value: &str| {
        let _ = writeln!(told, "{name:<9} {}", text::line(value));
    };
    row("decision", view.request.decision_id.as_str());
    row("run", view.run_id.as_str());
    row("node", &view.request.node_id);
    row("audience", view.request.audience.as_str());
    row("status", view.status.as_str());
    if view.is_paused {
        row(
            "paused",
            "its run is paused; nobody can answer until it is resumed",
        );
    }
    row("asked", &text::instant(view.request.created_at.0));
    let _ = writeln!(told, "digest    {}", view.request.request_digest);
    if let Some(resolution) = &view.resolution {
        let _ = writeln!(told, "ended     {}", ended_because(resolution, &view));
    }
    let _ = writeln!(told, "next      {}", text::line(&view.next().to_string()));
    told.push('\n');
    told.push_str(&shown_to_people(&view.request));
    if subject != Value::Null {
        let _ = write!(
            told,
            "\nsubject (machine data, not part of what is shown to people)\n{}",
            text::value(&subject, "  ")
        );
    }
    context.output.line(told.trim_end());
    if view.resolution.is_none() {
        let id = view.request.decision_id.as_str();
        context.output.line(format!(
            "\nanswer it with:  {}",
            context.hint(&["answer", id, "CHOICE"])
        ));
    }
    Ok(ExitStatus::Done)
}

/// `decision wait DECISION`. It only reads, and looks until the decision is resolved or its own limit has come.
pub(super) fn wait(context: &Context, args: &DecisionWaitArgs) -> Result<ExitStatus, CommandError> {
    let store = context.existing()?;
    let view = find(&store.snapshot()?, &args.decision, store.clock().now())?;
    let id = view.request.decision_id;
    let interrupts = Interrupts::default();
    interrupts
        .listen(&store, context.output)
        .map_err(|source| CommandError::Io {
            action: "listening for signals".to_owned(),
            source,
        })?;
    let mut left = args.timeout;
    let waited = loop {
        let look = left.map_or(LOOK, |left| left.min(LOOK));
        let waited = commands::wait(&store, &id, look)?;
        if let Waited::Resolved(_) = waited {
            break waited;
        }
        if interrupts.asked() {
            return Err(CommandError::Interrupted);
        }
        left = left.map(|left| left.saturating_sub(look));
        if left.is_some_and(|left| left.is_zero()) {
            break waited;
        }
    };
    let (view, status) = match &waited {
        Waited::Resolved(view) => (view, ExitStatus::Done),
        Waited::Open(view) => (view, ExitStatus::Waiting),
    };
    context.output.document(&document(view))?;
    context.output.line(summary(view));
    if status == ExitStatus::Waiting {
        context.output.line(format!(
            "it is still open: {}",
            text::line(&view.next().to_string())
        ));
    }
    Ok(status)
}

/// `decision cancel DECISION`.
pub(super) fn cancel(
    context: &Context,
    args: &DecisionCancelArgs,
) -> Result<ExitStatus, CommandError> {
    let store = context.existing()?;
    let view = find(&store.snapshot()?, &args.decision, store.clock().now())?;
    let mut cancel = Cancel::of(&view.request.decision_id).by(actor());
    if let Some(reason) = &args.reason {
        cancel = cancel.because(reason);
    }
    let judged = commands::cancel(&store, &cancel)?.value;
    let told = match &judged {
        Judged::Accepted { .. } => "cancelled; its run is cancelled with it".to_owned(),
        Judged::Adopted { .. } => "cancelled already".to_owned(),
        other => verdict(other, &view.request),
    };
    let status = tell(context, &view, &judged, &told)?;
    // The run was cancelled right after its decision, unless something kept that from happening.
    let ended = find(&store.snapshot()?, &args.decision, store.clock().now())?;
    if judged.has_won() && !ended.is_over {
        context.output.line(format!(
            "whoever works on this store next ends the run; else: {}",
            context.hint(&["work", "--until-idle"])
        ));
    }
    Ok(status)
}

/// The decision that is named, or the one that the named run asks.
pub(super) fn find(
    snapshot: &Snapshot<'_>,
    named: &str,
    now: UnixMillis,
) -> Result<DecisionView, CommandError> {
    if let Ok(id) = DecisionId::new(named)
        && let Some(view) = views::fetch(snapshot, &id, now)?
    {
        return Ok(view);
    }
    let of_run = match RunId::new(named) {
        Ok(run) => views::of_run(snapshot, &run, now)?,
        Err(_) => Vec::new(),
    };
    // The latest is the one that is open, if one is.
    let last = of_run
        .into_iter()
        .next_back()
        .ok_or_else(|| CommandError::NoDecision {
            id: named.to_owned(),
        })?;
    Ok(last.readable()?)
}

/// A decision as a document: what everybody may see.
pub(super) fn document(view: &DecisionView) -> Value {
    json!({
        "decisionId": view.request.decision_id,
        "runId": view.run_id,
        "status": view.status,
        "isPaused": view.is_paused,
        "request": view.request.document(),
        "resolution": view.resolution,
        "reason": view.reason,
        "next": view.next(),
    })
}

/// Says what became of a candidate: a document, or a line.
pub(super) fn tell(
    context: &Context,
    view: &DecisionView,
    judged: &Judged,
    told: &str,
) -> Result<ExitStatus, CommandError> {
    let mut document = json!(judged);
    if let Some(members) = document.as_object_mut() {
        members.insert("decisionId".to_owned(), json!(view.request.decision_id));
        members.insert("runId".to_owned(), json!(view.run_id));
        members.insert("message".to_owned(), told.into());
    }
    context.output.document(&document)?;
    context.output.line(told);
    Ok(exit(judged))
}

/// The exit status that a judgement means.
fn exit(judged: &Judged) -> ExitStatus {
    match judged {
        Judged::Accepted { .. }
        | Judged::Adopted {
            earlier: Adopted::Won { .. },
        } => ExitStatus::Done,
        Judged::Rejected {
            reason: Rejection::Invalid { code },
        }
        | Judged::Adopted {
            earlier: Adopted::Rejected { code },
        } if !matches!(
            code,
            RejectCode::Expired
                | RejectCode::Paused
                | RejectCode::Requester
                | RejectCode::UnknownPerson
        ) =>
        {
            ExitStatus::Usage
        }
        Judged::NotFound => ExitStatus::NotFound,
        Judged::Adopted { .. }
        | Judged::Conflict { .. }
        | Judged::Rejected { .. }
        | Judged::NotDue { .. } => ExitStatus::Conflict,
    }
}

/// What a judgement says to whoever sent the candidate. Every loser is told what won, and never who.
pub(super) fn verdict(judged: &Judged, request: &ChannelRequest) -> String {
    match judged {
        Judged::Accepted { .. } => "answered".to_owned(),
        Judged::Adopted { earlier } => match earlier {
            Adopted::Won { .. } => "answered already, with the same answer".to_owned(),
            Adopted::AlreadyResolved { resolution } => lost(resolution, request),
            Adopted::Stale => STALE.to_owned(),
            Adopted::Rejected { code } => refusal(*code).to_owned(),
        },
        Judged::Conflict { conflict } => match conflict {
            Conflict::Winner { resolution } => lost(resolution, request),
            Conflict::Key => "not taken: the key was used for another answer".to_owned(),
            Conflict::Paused => {
                "not taken: its run is paused; resume the run and answer again".to_owned()
            }
        },
        Judged::Rejected { reason } => match reason {
            Rejection::Stale => STALE.to_owned(),
            Rejection::Invalid { code } => refusal(*code).to_owned(),
            Rejection::Cancelled { resolution } => lost(resolution, request),
        },
        Judged::NotDue { .. } => "not taken: its time has not come".to_owned(),
        Judged::NotFound => "there is no such decision".to_owned(),
    }
}

const STALE: &str = "not taken: what is asked is not what you saw any more; look at it again";

fn lost(resolution: &Resolution, request: &ChannelRequest) -> String {
    format!("not taken: {}", ended(resolution, request))
}

/// How a decision ended. Whose answer it was is nobody's business here.
pub(super) fn ended(resolution: &Resolution, request: &ChannelRequest) -> String {
    let choice = resolution.response().map(|response| {
        let id = response.choice();
        let label = request.choices.get(id.as_str());
        text::line(label.map_or(id.as_str(), |choice| choice.label.as_str())).into_owned()
    });
    match (resolution.provenance(), choice) {
        (Provenance::Human, Some(choice)) => format!("a person answered: {choice}"),
        (Provenance::TimeoutPolicy, Some(choice)) => {
            format!("the automatic answer was given: {choice}")
        }
        (Provenance::ExplicitCancel, _) => "the decision was cancelled".to_owned(),
        (Provenance::ExpiredNoDefault, _) => "nobody answered in time".to_owned(),
        (Provenance::Human | Provenance::TimeoutPolicy, None) => "it is answered".to_owned(),
    }
}

/// How a decision ended, and why it was cancelled, if somebody said so.
fn ended_because(resolution: &Resolution, view: &DecisionView) -> String {
    let ended = ended(resolution, &view.request);
    match &view.reason {
        Some(reason) if *reason != ended => format!("{ended}: {}", text::line(reason)),
        _ => ended,
    }
}

/// Rows for people: what it is, and what is said of it.
type Told = Vec<(&'static str, String)>;

/// The decision that a run asked last, as `explain` tells it: a document, and rows for people. One that can't be read is told by its
/// problem, because whoever asks why a run stands still has to hear that.
pub(super) fn explained(
    workflows: &Workflows,
    run: &RunId,
) -> Result<(Value, Told), DecisionError> {
    let store = workflows.database();
    let now = store.clock().now();
    let mut all = views::of_run(&store.snapshot()?, run, now)?;
    Ok(match all.pop() {
        Some(Listed::Readable(view)) => (document(&view), explanation(&view)),
        Some(Listed::Unreadable(Unreadable { error, .. })) => {
            let problem = error.to_string();
            (json!({ "problem": problem }), vec![("decision", problem)])
        }
        None => (Value::Null, Vec::new()),
    })
}

fn explanation(view: &DecisionView) -> Vec<(&'static str, String)> {
    let id = view.request.decision_id.as_str();
    let mut rows = vec![("decision", format!("{id}, {}", view.status))];
    if let Some(resolution) = &view.resolution {
        rows.push(("ended", ended_because(resolution, view)));
    }
    rows.push(("next", view.next().to_string()));
    rows
}

/// Why an answer may not be given.
pub(super) fn refusal(code: RejectCode) -> &'static str {
    match code {
        RejectCode::Malformed => {
            "not taken: an answer is a choice, with its text if it asks for one"
        }
        RejectCode::UnknownChoice => "not taken: there is no such choice",
        RejectCode::MissingInput => "not taken: this choice needs a text; give it with --text",
        RejectCode::UnexpectedInput => "not taken: this choice takes no text",
        RejectCode::UnknownInput => "not taken: this choice asks for another text",
        RejectCode::InputNotText => "not taken: the input must be a text",
        RejectCode::InputTooShort => "not taken: the text is too short",
        RejectCode::InputTooLong => "not taken: the text is too long",
        RejectCode::Requester => {
            "not taken: another person than the one who started the run has to answer"
        }
        RejectCode::UnknownPerson => {
            "not taken: another person has to answer, and nobody knows here who you are"
        }
        RejectCode::Expired => "not taken: the deadline has come; no person may answer any more",
        RejectCode::Paused => "not taken: its run is paused; resume the run and answer again",
    }
}

/// What people see of a request, in document order. Whatever came from outside is indented, so that none of it begins a line that reads
/// like one of ours.
pub(super) fn shown_to_people(request: &ChannelRequest) -> String {
    let mut told = String::new();
    let mut in_choices = false;
    for segment in segments(request) {
        // Writing to a string does not fail.
        let _ = match segment {
            Segment::Title(title) => writeln!(told, "  {}", text::line(title)),
            Segment::Summary(summary) => writeln!(told, "  {}", text::line(summary)),
            Segment::Paragraph(paragraph) => {
                writeln!(told, "\n{}", text::value(&paragraph.into(), "  "))
            }
            Segment::Section(title) => writeln!(told, "\n  # {}", text::line(title)),
            Segment::Bullet(item) => writeln!(told, "  - {}", text::line(item)),
            Segment::Field { label, value } => {
                writeln!(told, "  {}: {}", text::line(label), text::line(value))
            }
            Segment::Preformatted(pre) => {
                writeln!(told, "\n{}", text::value(&pre.into(), "  | "))
            }
            Segment::Deadline { at, automatic } => {
                let at = text::instant(at.0);
                match automatic {
                    Some(label) => {
                        writeln!(told, "until {at}; then by itself: {}", text::line(label))
                    }
                    None => writeln!(told, "until {at}; then it ends, and its run with it"),
                }
            }
            Segment::AnotherPerson => {
                writeln!(
                    told,
                    "another person than the one who started the run has to answer"
                )
            }
            Segment::Choice { id, label, prompt } => {
                if !std::mem::replace(&mut in_choices, true) {
                    told.push_str("choices\n");
                }
                let prompt = prompt.map(|prompt| format!(" ({})", text::line(prompt)));
                writeln!(
                    told,
                    "  {:<10} {}{}",
                    id.as_str(),
                    text::line(label),
                    prompt.unwrap_or_default()
                )
            }
        };
    }
    told
}

/// What the pending decision of a run shows to people, if the run asks one.
pub(super) fn asked(view: &RunView) -> Option<ChannelRequest> {
    let contract = view.request.as_ref()?.contract.get("request")?;
    Request::read(contract)
        .ok()
        .map(|request| request.for_channels())
}

/// The decision that a run waits for.
pub(super) fn of_run(
    workflows: &Workflows,
    run: &RunId,
) -> Result<Option<DecisionView>, DecisionError> {
    let store = workflows.database();
    let now = store.clock().now();
    let all = views::of_run(&store.snapshot()?, run, now)?;
    let last = all.into_iter().next_back();
    let last = last.map(Listed::readable).transpose()?;
    Ok(last.filter(|view| view.resolution.is_none()))
}
