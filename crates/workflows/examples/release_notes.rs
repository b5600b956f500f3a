//! Release notes from the git history of this repository, approved by a person before they are written.
//!
//! ```sh
//! cargo run -p holdpoint-workflows --example release_notes              # asks on the terminal
//! cargo run -p holdpoint-workflows --example release_notes -- yes       # takes the answer from its arguments
//! ```
//!
//! The program may be killed at any moment: started again, its scheduler also finishes what the earlier process left.

use std::error::Error;
use std::io::{BufRead as _, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use holdpoint_state::{Database, Identity, Schema};
use holdpoint_workflows::commands::Answer;
use holdpoint_workflows::definition::{Definition, DefinitionError, EffectSpec, Workflow};
use holdpoint_workflows::shell::ShellCommand;
use holdpoint_workflows::views::DisplayStatus;
use holdpoint_workflows::{DOMAIN, SchedulerOptions, Workflows};
use serde::{Deserialize, Serialize};

/// What the workflow takes.
#[derive(Debug, Serialize, Deserialize)]
struct Input {
    /// How many commits the notes are about.
    commits: u32,
    /// The file to write.
    file: PathBuf,
}

fn release_notes() -> Result<Definition, DefinitionError> {
    Workflow::new("release-notes")
        .input::<Input>()
        .title_with(|input| Ok(format!("Release notes of {} commits", input.commits)))
        .start_at("log")
        // Reading the history changes nothing, so that it may happen again after a crash.
        .shell("log", EffectSpec::idempotent("git.log"), |ctx| {
            let count = format!("-{}", ctx.input().commits);
            Ok(ShellCommand::new("git")
                .args(["log", "--format=%s", "--no-merges"])
                .arg(count))
        })
        .parse(|_, result| Ok(result.stdout.lines().map(str::to_owned).collect::<Vec<_>>()))
        .compute("draft", |ctx| {
            let mut subjects: Vec<String> = ctx.output("log")?;
            subjects.sort();
            Ok(format!("# Release notes\n\n- {}\n", subjects.join("\n- ")))
        })
        .checkpoint("review")
        .summary("Write these notes?")
        .request(|ctx| ctx.output::<String>("draft"))
        .compute("decide", |ctx| {
            let answer: String = ctx.output("review")?;
            Ok(serde_json::json!({ "publish": matches!(answer.trim(), "y" | "yes") }))
        })
        .action("write", EffectSpec::idempotent("file.write"), |ctx| {
            std::fs::write(&ctx.input().file, ctx.output::<String>("draft")?)?;
            Ok(ctx.input().file.clone())
        })
        .compute("drop", |_| Ok("nothing was written"))
        .edge("log", "draft")
        .edge("draft", "review")
        .edge("review", "decide")
        .switch(
            "decide",
            "$.publish",
            [("true", "write"), ("false", "drop")],
        )
        .build()
}

fn main() -> Result<(), Box<dyn Error>> {
    let home = std::env::temp_dir().join("holdpoint-release-notes");
    std::fs::create_dir_all(&home)?;
    let schema = Schema::compose(Identity::PI_WORKFLOWS, [holdpoint_state::DOMAIN, DOMAIN])?;
    let workflows = Workflows::new(Database::open(home.join("state.sqlite"), &schema)?);
    let definition = release_notes()?;
    let scheduler = workflows.scheduler(SchedulerOptions::default())?;

    let input = Input {
        commits: 20,
        file: home.join("RELEASE-NOTES.md"),
    };
    let run = workflows.run(&definition, serde_json::to_value(&input)?)?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "run {run}")?;

    let limit = Duration::from_mins(1);
    let mut view = workflows.wait(&run, limit)?;
    if view.display_status == DisplayStatus::Waiting {
        let request = view
            .request
            .as_ref()
            .ok_or("the run waits without a request")?;
        writeln!(out, "{}", text_of(&request.contract, "request"))?;
        let answer = match std::env::args().nth(1) {
            Some(answer) => answer,
            None => ask(&mut out, text_of(&request.contract, "summary"))?,
        };
        workflows.answer(&Answer::new(&run, answer.into()).to(&request.request_id))?;
        view = workflows.wait(&run, limit)?;
    }
    match (&view.final_output, &view.error) {
        (Some(output), _) => writeln!(out, "{}: {output}", view.status)?,
        (None, error) => writeln!(
            out,
            "{}: {}",
            view.status,
            error.as_deref().unwrap_or("no error text")
        )?,
    }
    scheduler.stop(Duration::from_secs(5));
    Ok(())
}

/// A text of a contract; the workflow above puts them there.
fn text_of<'a>(contract: &'a serde_json::Value, member: &str) -> &'a str {
    contract
        .get(member)
        .and_then(serde_json::Value::as_str)
        .unwrap_or_default()
}

fn ask(out: &mut impl std::io::Write, question: &str) -> std::io::Result<String> {
    write!(out, "{question} [yes/no] ")?;
    out.flush()?;
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    Ok(line.trim().to_owned())
}
