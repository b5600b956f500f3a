//! What may be typed. Nothing is done here; docs/COMMAND.md names every command and every flag, which a test checks.

pub(crate) mod channels;
pub(crate) mod controllers;
pub(crate) mod server;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};

use crate::settings::Settings;

/// Durable workflows in one SQLite file: runs that survive a crash, and wait for the people who must decide.
#[derive(Debug, Parser)]
#[command(
    name = "holdpoint",
    disable_version_flag = true,
    arg_required_else_help = true
)]
pub(crate) struct Cli {
    /// Use the store in this home directory instead of yours: DIR/.pi/agent/workflows/state.sqlite.
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) home: Option<PathBuf>,

    /// Print one JSON document on standard output, errors too.
    #[arg(long, global = true)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) settings: Settings,

    /// Print the versions of holdpoint and of the SQLite in it.
    #[arg(short = 'V', long, action = clap::ArgAction::SetTrue)]
    pub(crate) version: bool,

    #[command(subcommand)]
    pub(crate) verb: Option<Verb>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Start a run of a workflow and follow it to its end or to its next question.
    Run(RunArgs),
    /// Execute whatever is due: new, answered, resumed and lost runs.
    Work(WorkArgs),
    /// List runs, newest first.
    List(ListArgs),
    /// Show a run with its steps.
    Show(OneRun),
    /// Answer what a run waits for, or a decision.
    Answer(AnswerArgs),
    /// List the decisions that people are asked.
    Decisions(DecisionsArgs),
    /// Look at one decision, or end it without an answer.
    #[command(subcommand)]
    Decision(DecisionVerb),
    /// List what models in sessions are asked.
    Agents(AgentsArgs),
    /// Submit the output of an agent.
    Submit(SubmitArgs),
    /// List the messages of a run or of a session.
    Messages(MessagesArgs),
    /// Hold a run.
    Pause(ControlArgs),
    /// Let a paused or parked run go on.
    Resume(ResumeArgs),
    /// End a run.
    Cancel(ControlArgs),
    /// Run a finished run again, as its one child.
    Restart(RestartArgs),
    /// Tell why a run stands where it stands.
    Explain(OneRun),
    /// Look at the live settings of a run, and change them.
    #[command(subcommand)]
    Settings(SettingsVerb),
    /// Show which finished runs could be deleted, and what holds the others; with --apply, delete them.
    Prune(PruneArgs),
    /// Look after the store.
    #[command(subcommand)]
    State(StateVerb),
    /// Print the JSON Schema of a document.
    #[command(subcommand)]
    Schema(SchemaVerb),
    /// Look at effects, and decide about those whose outcome nobody knows.
    #[command(subcommand)]
    Effects(EffectsVerb),
    /// List what a run published while it goes on.
    Updates(UpdatesArgs),
    /// Prompts for the origin session of a run, shown when it has completed.
    #[command(subcommand)]
    FollowUps(FollowUpsVerb),
    /// Show decisions to people in other places than this terminal, and take their answers.
    #[command(subcommand)]
    Channels(channels::ChannelsVerb),
    /// Look after managed resources: what is wanted, which controllers make so.
    #[command(subcommand)]
    Controllers(controllers::ControllersVerb),
    /// The live server: shows viewers what runs do, and executes whatever is due.
    #[command(subcommand)]
    Server(server::ServerVerb),
    /// Print the completions of a shell.
    Completions(CompletionsArgs),
    /// Execute one run for the process that started this one: what `work --isolate` launches.
    #[command(hide = true)]
    Worker,
    /// Speak to the provider of one channel for the process that started this one: what `channels run` launches.
    #[command(hide = true)]
    ChannelAdapter,
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// A workflow file (*.workflow.yaml, *.workflow.json), or a name that is looked for in .pi/workflows, workflows and the home.
    #[arg(value_name = "FILE|NAME")]
    pub(crate) workflow: PathBuf,

    /// The input: JSON, @FILE with JSON, or @- for standard input.
    #[arg(long, value_name = "JSON|@FILE")]
    pub(crate) input: Option<String>,

    /// Names this start: the same key again meets the same run.
    #[arg(long)]
    pub(crate) key: Option<String>,

    /// Makes the run interactive: its agents ask in this session, which it reserves until it is over.
    #[arg(long, value_name = "SESSION")]
    pub(crate) session: Option<String>,

    /// Only reserve the run; `holdpoint work` executes it.
    #[arg(long)]
    pub(crate) detach: bool,
}

#[derive(Debug, Args)]
pub(crate) struct WorkArgs {
    /// Stop when nothing is left that could be done now.
    #[arg(long)]
    pub(crate) until_idle: bool,

    /// Execute each run in a process of its own, which can't open the store and takes nothing with it when it crashes.
    #[arg(long)]
    pub(crate) isolate: bool,

    /// Let these processes see a variable of the environment, beside PATH, HOME and the like. May be given several times.
    #[arg(long, value_name = "NAME", requires = "isolate")]
    pub(crate) pass_env: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Only runs with this stored status.
    #[arg(long, value_name = "STATUS")]
    pub(crate) status: Option<String>,

    /// How many at most.
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    pub(crate) limit: u16,

    /// The cursor `next` of the page before.
    #[arg(long, value_name = "CURSOR")]
    pub(crate) after: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct OneRun {
    /// The run.
    #[arg(value_name = "RUN")]
    pub(crate) run: String,
}

#[derive(Debug, Args)]
pub(crate) struct AnswerArgs {
    /// The run, or the decision.
    #[arg(value_name = "RUN|DECISION")]
    pub(crate) run: String,

    /// To a decision: the id of a choice. Otherwise JSON, @FILE with JSON, or @- for standard input. Without it you are asked, at a terminal.
    #[arg(value_name = "CHOICE|JSON|@FILE")]
    pub(crate) answer: Option<String>,

    /// The text that the choice asks for: kept exactly, or read from @FILE or @-.
    #[arg(long, value_name = "TEXT|@FILE")]
    pub(crate) text: Option<String>,

    /// To a decision: the digest of what you saw.
    #[arg(long, value_name = "DIGEST")]
    pub(crate) seen: Option<String>,

    /// The request that is meant; otherwise the one that the run waits for.
    #[arg(long, value_name = "REQUEST")]
    pub(crate) request: Option<String>,

    /// Names this answer: the same key with the same answer gets the first receipt again.
    #[arg(long)]
    pub(crate) key: Option<String>,

    /// The revision of the request that you saw.
    #[arg(long, value_name = "REVISION")]
    pub(crate) expect: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct DecisionsArgs {
    /// All decisions of this run, instead of the open ones of all runs.
    #[arg(long, value_name = "RUN")]
    pub(crate) run: Option<String>,

    /// How many at most.
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    pub(crate) limit: u16,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DecisionVerb {
    /// Show what is asked, and how it ended.
    Show(OneDecision),
    /// Wait until a decision is resolved. The limit of the wait never ends the decision.
    Wait(DecisionWaitArgs),
    /// End a decision without an answer, and its run with it.
    Cancel(DecisionCancelArgs),
}

#[derive(Debug, Args)]
pub(crate) struct OneDecision {
    /// The decision, or a run that asked one.
    #[arg(value_name = "DECISION|RUN")]
    pub(crate) decision: String,
}

#[derive(Debug, Args)]
pub(crate) struct DecisionCancelArgs {
    /// The decision, or the run that asks it.
    #[arg(value_name = "DECISION|RUN")]
    pub(crate) decision: String,

    /// Why, in at most 1,000 characters; everybody who sees the decision sees it.
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct DecisionWaitArgs {
    /// The decision, or a run that asked one.
    #[arg(value_name = "DECISION|RUN")]
    pub(crate) decision: String,

    /// How long at most, as 500ms, 30s, 10m or 2h; otherwise until it is resolved.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
}

#[derive(Debug, Args)]
pub(crate) struct AgentsArgs {
    /// Only what this session is asked.
    #[arg(long, value_name = "SESSION")]
    pub(crate) session: Option<String>,

    /// How many at most.
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    pub(crate) limit: u16,
}

#[derive(Debug, Args)]
pub(crate) struct SubmitArgs {
    /// The run.
    #[arg(value_name = "RUN")]
    pub(crate) run: String,

    /// The output: JSON, @FILE with JSON, or @- for standard input. In a text, JSON is looked for.
    #[arg(value_name = "JSON|@FILE")]
    pub(crate) output: String,

    /// The request that is meant; otherwise the one that the run waits for.
    #[arg(long, value_name = "REQUEST")]
    pub(crate) request: Option<String>,

    /// Names this output: the same key with the same output gets what became of the first.
    #[arg(long)]
    pub(crate) key: Option<String>,

    /// The revision of the request that you saw.
    #[arg(long, value_name = "REVISION")]
    pub(crate) expect: Option<u64>,
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("whose").required(true).args(["run", "session"]))]
pub(crate) struct MessagesArgs {
    /// The run.
    #[arg(value_name = "RUN")]
    pub(crate) run: Option<String>,

    /// All runs of this session instead.
    #[arg(long, value_name = "SESSION")]
    pub(crate) session: Option<String>,

    /// How many at most: the latest.
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    pub(crate) limit: u16,
}

#[derive(Debug, Args)]
pub(crate) struct ControlArgs {
    /// The run.
    #[arg(value_name = "RUN")]
    pub(crate) run: String,

    /// Why, for the audit trail.
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,

    /// The revision of the run that you saw.
    #[arg(long, value_name = "REVISION")]
    pub(crate) expect: Option<u64>,

    /// Refuse while another process executes the run, instead of taking it away.
    #[arg(long)]
    pub(crate) if_free: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ResumeArgs {
    /// The run.
    #[arg(value_name = "RUN")]
    pub(crate) run: String,

    /// Why, for the audit trail.
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,

    /// The revision of the run that you saw.
    #[arg(long, value_name = "REVISION")]
    pub(crate) expect: Option<u64>,

    /// Go on with the definition that the workflow's file gives now, although the run was started with another one.
    #[arg(long)]
    pub(crate) accept_definition: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RestartArgs {
    /// The run.
    #[arg(value_name = "RUN")]
    pub(crate) run: String,

    /// The revision of the run that you saw.
    #[arg(long, value_name = "REVISION")]
    pub(crate) expect: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct PruneArgs {
    /// Runs that ended before this time: epoch milliseconds, a day (2026-07-01), or an instant in UTC (2026-07-01T12:00:00Z).
    #[arg(long, value_name = "TIME", conflicts_with = "older_than")]
    pub(crate) before: Option<String>,

    /// Runs that ended more than so many days ago; 30 unless something else is said.
    #[arg(long, value_name = "DAYS")]
    pub(crate) older_than: Option<u32>,

    /// Delete them, after a backup.
    #[arg(long, requires = "backup")]
    pub(crate) apply: bool,

    /// The backup that is made before: an absolute path, where nothing is yet.
    #[arg(long, value_name = "FILE", requires = "apply")]
    pub(crate) backup: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SettingsVerb {
    /// Show the settings of a run.
    Show(SettingsShowArgs),
    /// Change the settings of a run by a JSON Patch (RFC 6902).
    Patch(SettingsPatchArgs),
    /// List the changes of the settings of a run, oldest first.
    History(SettingsHistoryArgs),
}

#[derive(Debug, Args)]
pub(crate) struct SettingsShowArgs {
    /// The run.
    #[arg(value_name = "RUN")]
    pub(crate) run: String,

    /// Only this scope.
    #[arg(long, value_name = "SCOPE")]
    pub(crate) scope: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct SettingsPatchArgs {
    /// The run.
    #[arg(value_name = "RUN")]
    pub(crate) run: String,

    /// The patch, a list of operations: JSON, @FILE with JSON, or @- for standard input.
    #[arg(value_name = "JSON|@FILE")]
    pub(crate) patch: String,

    /// The scope; needed when the run has more than one.
    #[arg(long, value_name = "SCOPE")]
    pub(crate) scope: Option<String>,

    /// The change number that you saw.
    #[arg(long, value_name = "N")]
    pub(crate) expect: Option<u64>,

    /// Names this change: the same id with the same patch gets the first receipt again.
    #[arg(long, value_name = "ID")]
    pub(crate) request: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct SettingsHistoryArgs {
    /// The run.
    #[arg(value_name = "RUN")]
    pub(crate) run: String,

    /// The scope; needed when the run has more than one.
    #[arg(long, value_name = "SCOPE")]
    pub(crate) scope: Option<String>,

    /// How many at most.
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    pub(crate) limit: u16,

    /// Only changes after this number: `next` of the page before.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) after: u64,
}

#[derive(Debug, Subcommand)]
pub(crate) enum StateVerb {
    /// What the store is and what stands open in it.
    Status,
    /// The status, judged: what is wrong and what to do.
    Doctor,
    /// Check everything that must hold, in the store or in a backup.
    Verify(VerifyArgs),
    /// Copy the live store into a new file.
    Backup(PathArgs),
    /// Put a backup in the place of the store; the old store is kept aside.
    Restore(PathArgs),
}

#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// A backup to verify instead of the store.
    #[arg(value_name = "PATH")]
    pub(crate) path: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct PathArgs {
    /// The backup.
    #[arg(value_name = "PATH")]
    pub(crate) path: PathBuf,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SchemaVerb {
    /// Of workflow files.
    Workflow,
    /// Of resource files, which `controllers apply` reads.
    Resource,
}

#[derive(Debug, Subcommand)]
pub(crate) enum EffectsVerb {
    /// List effects: those that need somebody, unless --all or --state says otherwise.
    List(EffectsListArgs),
    /// Say what became of an effect whose outcome nobody knows.
    Resolve(ResolveArgs),
}

#[derive(Debug, Args)]
pub(crate) struct EffectsListArgs {
    /// Settled effects too.
    #[arg(long, conflicts_with = "state")]
    pub(crate) all: bool,

    /// Only effects in this state: pending, applying, applied, rejected, ambiguous, cancelled.
    #[arg(long, value_name = "STATE")]
    pub(crate) state: Option<String>,

    /// Only effects of this run.
    #[arg(long, value_name = "RUN")]
    pub(crate) run: Option<String>,

    /// How many at most.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) limit: u32,
}

#[derive(Debug, Args)]
pub(crate) struct ResolveArgs {
    /// The effect.
    #[arg(value_name = "EFFECT")]
    pub(crate) effect: String,

    /// What you decide after looking at the outside world.
    #[arg(value_enum)]
    pub(crate) decision: DecisionWord,

    /// With confirm: what the action gave, as JSON or @FILE.
    #[arg(long, value_name = "JSON|@FILE")]
    pub(crate) receipt: Option<String>,

    /// With confirm: the provider's name of what was done.
    #[arg(long, value_name = "TEXT")]
    pub(crate) external_ref: Option<String>,

    /// With reject: why; the node fails with it.
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,

    /// The attempt that you saw; otherwise the latest.
    #[arg(long, value_name = "N")]
    pub(crate) attempt: Option<u32>,

    /// The revision of the effect that you saw; otherwise the present one.
    #[arg(long, value_name = "REVISION")]
    pub(crate) expect: Option<u64>,

    /// Names this decision: the same key again gets the first answer.
    #[arg(long)]
    pub(crate) key: Option<String>,

    /// Leave the run parked instead of resuming it.
    #[arg(long)]
    pub(crate) stay: bool,
}

/// The decisions about an ambiguous effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DecisionWord {
    /// It happened.
    Confirm,
    /// Do it again, at the risk of a duplicate.
    Retry,
    /// It did not happen and must not.
    Reject,
}

#[derive(Debug, Args)]
pub(crate) struct UpdatesArgs {
    /// The run.
    #[arg(value_name = "RUN")]
    pub(crate) run: String,

    /// All that it published, in order, instead of what holds now.
    #[arg(long)]
    pub(crate) all: bool,

    /// With --all: only those above this revision of the run.
    #[arg(long, value_name = "REVISION", requires = "all", default_value_t = 0)]
    pub(crate) after: u64,

    /// With --all: how many at most.
    #[arg(long, value_name = "N", requires = "all", default_value_t = 1_000, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub(crate) limit: u16,
}

#[derive(Debug, Subcommand)]
pub(crate) enum FollowUpsVerb {
    /// List the follow-ups of a run, in their order.
    List(OneRun),
    /// Queue a prompt for the origin session of a run that goes on.
    Queue(FollowUpsQueueArgs),
    /// Take a prompt back that this command queued.
    Remove(FollowUpsRemoveArgs),
}

#[derive(Debug, Args)]
pub(crate) struct FollowUpsQueueArgs {
    /// The run.
    #[arg(value_name = "RUN")]
    pub(crate) run: String,

    /// What the session is asked, as plain text.
    #[arg(value_name = "PROMPT")]
    pub(crate) prompt: String,

    /// Names this follow-up: the same key with the same prompt is the same one.
    #[arg(long)]
    pub(crate) key: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct FollowUpsRemoveArgs {
    /// The follow-up.
    #[arg(value_name = "FOLLOW-UP")]
    pub(crate) follow_up: String,

    /// Why, for the audit trail.
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell.
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}

/// A duration as it is typed: a whole number with its unit.
fn duration(typed: &str) -> Result<Duration, String> {
    let digits = typed.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = typed.split_at(digits);
    let per_unit = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => {
            return Err(
                "a duration is a whole number with its unit: 500ms, 30s, 10m, 2h".to_owned(),
            );
        }
    };
    let ms = number
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(per_unit));
    ms.map(Duration::from_millis).ok_or_else(|| {
        "a duration is a whole number with its unit, and not longer than anybody waits".to_owned()
    })
}

/// The whole command line as clap knows it: for completions, and for tests that compare it with the documentation.
pub fn command() -> clap::Command {
    Cli::command()
}
