//! The verbs. Each room checks what was typed, makes one call of a lower floor and shows what came of it.

mod answer;
mod channels;
mod control;
mod controllers;
mod decide;
mod decisions;
mod documents;
mod effects;
mod prompt;
mod prune;
mod records;
mod run;
mod runs;
mod server;
mod sessions;
mod settings;
mod state;
mod value;
mod work;

use std::ffi::OsString;
use std::fmt::Write as _;

use clap::Parser as _;
use holdpoint_state::{Actor, Database};
use holdpoint_workflows::{RunId, Workflows};

use crate::cli::{Cli, DecisionVerb, EffectsVerb, FollowUpsVerb, SettingsVerb, StateVerb, Verb};
use crate::error::{CommandError, ExitStatus};
use crate::home;
use crate::output::text;
use crate::output::{self, Output, log};

/// What every verb has.
pub(crate) struct Context {
    pub(crate) cli: Cli,
    pub(crate) output: Output,
}

impl Context {
    /// The store; it is made when there is none.
    pub(crate) fn store(&self) -> Result<Database, CommandError> {
        home::open(self.cli.home.as_deref(), &self.cli.settings)
    }

    /// The store, for a command that makes none.
    pub(crate) fn existing(&self) -> Result<Database, CommandError> {
        home::open_existing(self.cli.home.as_deref(), &self.cli.settings)
    }

    /// The workflows of the store, for a command about a run.
    pub(crate) fn workflows(&self) -> Result<Workflows, CommandError> {
        home::workflows(self.cli.home.as_deref(), self.existing()?)
    }

    /// A command line that does something in the same home, for a person to copy.
    pub(crate) fn hint(&self, words: &[&str]) -> String {
        let mut line = "holdpoint".to_owned();
        if let Some(home) = &self.cli.home {
            line.push_str(" --home ");
            line.push_str(&quoted(&home.to_string_lossy()));
        }
        for word in words {
            line.push(' ');
            line.push_str(&quoted(word));
        }
        line
    }

    /// The run that was named. A text that is no id names no run.
    pub(crate) fn run_id(text: &str) -> Result<RunId, CommandError> {
        RunId::new(text).map_err(|error| CommandError::input("run", error.to_string()))
    }
}

/// A word as a shell reads it back.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@,+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else if text::line(word) != word {
        // Characters that must not reach a terminal as they are: as shells read them back from their numbers.
        let mut escaped = String::new();
        for c in word.chars() {
            let shown = c.to_string();
            if c != '\'' && c != '\\' && text::line(&shown) == shown {
                escaped.push(c);
                continue;
            }
            for byte in shown.bytes() {
                // Writing to a string does not fail.
                let _ = write!(escaped, "\\x{byte:02x}");
            }
        }
        format!("$'{escaped}'")
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// Who acts: whoever may type here has the store anyway.
pub(crate) fn actor() -> Actor {
    Actor::control("command-line")
}

/// Reads arguments and runs one verb. Success is said only when its output was written.
pub(crate) fn run(arguments: Vec<OsString>) -> ExitStatus {
    output::finish(told(arguments))
}

fn told(arguments: Vec<OsString>) -> ExitStatus {
    // Wrong arguments must be told as a document too, before anything else is known.
    let json = arguments
        .iter()
        .take_while(|argument| *argument != "--")
        .any(|argument| argument == "--json");
    let output = Output::new(json);
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => return documents::arguments(output, &error),
    };
    let output = Output::new(cli.json);
    log::show();
    let context = Context { cli, output };
    match verb(&context) {
        Ok(status) => status,
        Err(error) => {
            output.error(&error);
            error.exit()
        }
    }
}

fn verb(context: &Context) -> Result<ExitStatus, CommandError> {
    if context.cli.version {
        return documents::version(context);
    }
    let Some(verb) = &context.cli.verb else {
        return Err(CommandError::Usage {
            message: "say what to do; `holdpoint --help` lists the commands".to_owned(),
        });
    };
    match verb {
        Verb::Run(args) => run::run(context, args),
        Verb::Work(args) => work::work(context, args),
        Verb::Worker => work::worker(context),
        Verb::Channels(verb) => channels::channels(context, verb),
        Verb::ChannelAdapter => channels::adapter(),
        Verb::List(args) => runs::list(context, args),
        Verb::Show(args) => runs::show(context, &args.run),
        Verb::Explain(args) => runs::explain(context, &args.run),
        Verb::Answer(args) => answer::answer(context, args),
        Verb::Decisions(args) => decisions::list(context, args),
        Verb::Decision(DecisionVerb::Show(args)) => decisions::show(context, &args.decision),
        Verb::Decision(DecisionVerb::Wait(args)) => decisions::wait(context, args),
        Verb::Decision(DecisionVerb::Cancel(args)) => decisions::cancel(context, args),
        Verb::Agents(args) => sessions::agents(context, args),
        Verb::Submit(args) => sessions::submit(context, args),
        Verb::Messages(args) => sessions::messages(context, args),
        Verb::Pause(args) => control::pause(context, args),
        Verb::Resume(args) => control::resume(context, args),
        Verb::Cancel(args) => control::cancel(context, args),
        Verb::Restart(args) => control::restart(context, args),
        Verb::Prune(args) => prune::prune(context, args),
        Verb::Settings(SettingsVerb::Show(args)) => settings::show(context, args),
        Verb::Settings(SettingsVerb::Patch(args)) => settings::patch(context, args),
        Verb::Settings(SettingsVerb::History(args)) => settings::history(context, args),
        Verb::State(StateVerb::Status) => state::status(context),
        Verb::State(StateVerb::Doctor) => state::doctor(context),
        Verb::State(StateVerb::Verify(args)) => state::verify(context, args),
        Verb::State(StateVerb::Backup(args)) => state::backup(context, args),
        Verb::State(StateVerb::Restore(args)) => state::restore(context, args),
        Verb::Schema(verb) => documents::schema(context, verb),
        Verb::Effects(EffectsVerb::List(args)) => effects::list(context, args),
        Verb::Effects(EffectsVerb::Resolve(args)) => effects::resolve(context, args),
        Verb::Updates(args) => records::updates(context, args),
        Verb::FollowUps(FollowUpsVerb::List(args)) => records::list(context, &args.run),
        Verb::FollowUps(FollowUpsVerb::Queue(args)) => records::queue(context, args),
        Verb::FollowUps(FollowUpsVerb::Remove(args)) => records::remove(context, args),
        Verb::Controllers(verb) => controllers::controllers(context, verb),
        Verb::Server(verb) => server::server(context, verb),
        Verb::Completions(args) => documents::completions(context, args),
    }
}
