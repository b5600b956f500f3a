//! Settings: each is a flag of every command and a `HOLDPOINT_*` variable; the flag wins.
//!
//! Not here: where the store lies. Only `--home` says that, so that no variable can move live storage unseen.

use std::path::Path;
use std::sync::Arc;

use clap::Args;
use holdpoint_state::Options;
use holdpoint_state::effects::BackOff;
use holdpoint_workflows::agents::{AgentExecutor, CommandAgent, PiAgent};
use holdpoint_workflows::{Execution, SchedulerOptions, Workflows};

/// The settings of a command.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Settings")]
pub(crate) struct Settings {
    /// How long a command waits for other processes, in milliseconds.
    #[arg(long, global = true, env = "HOLDPOINT_BUSY_TIMEOUT_MS", hide_env_values = true, value_name = "MS", default_value_t = 5_000,
          value_parser = clap::value_parser!(u64).range(0..=3_600_000))]
    pub(crate) busy_timeout_ms: u64,

    /// How long a claim on a run lasts without a renewal, in milliseconds.
    #[arg(long, global = true, env = "HOLDPOINT_LEASE_MS", hide_env_values = true, value_name = "MS", default_value_t = 30_000,
          value_parser = clap::value_parser!(i64).range(100..=86_400_000))]
    pub(crate) lease_ms: i64,

    /// How often the store is searched for work that others left, in milliseconds.
    #[arg(long, global = true, env = "HOLDPOINT_SWEEP_INTERVAL_MS", hide_env_values = true, value_name = "MS", default_value_t = 2_000,
          value_parser = clap::value_parser!(u64).range(10..=3_600_000))]
    pub(crate) sweep_interval_ms: u64,

    /// How many runs are executed at once.
    #[arg(long, global = true, env = "HOLDPOINT_WORKERS", hide_env_values = true, value_name = "N", default_value_t = 4,
          value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) workers: u16,

    /// How long a run that could not be taken up is left alone, in milliseconds; it doubles with each error.
    #[arg(long, global = true, env = "HOLDPOINT_BACK_OFF_MS", hide_env_values = true, value_name = "MS", default_value_t = 1_000,
          value_parser = clap::value_parser!(u32).range(1..=3_600_000))]
    pub(crate) back_off_ms: u32,

    /// The longest such time, in milliseconds.
    #[arg(long, global = true, env = "HOLDPOINT_BACK_OFF_MAX_MS", hide_env_values = true, value_name = "MS", default_value_t = 60_000,
          value_parser = clap::value_parser!(u32).range(1..=86_400_000))]
    pub(crate) back_off_max_ms: u32,

    /// How long Ctrl-C lets a node come to its end before it is told to stop, in milliseconds.
    #[arg(long, global = true, env = "HOLDPOINT_STOP_PATIENCE_MS", hide_env_values = true, value_name = "MS", default_value_t = 30_000,
          value_parser = clap::value_parser!(u64).range(0..=86_400_000))]
    pub(crate) stop_patience_ms: u64,

    /// Who executes agent steps: `pi` with arguments of its own, or a command that reads the prompt and writes the result. Words are
    /// split as a shell would; no shell runs.
    #[arg(long, global = true, env = "HOLDPOINT_AGENT", hide_env_values = true, value_name = "COMMAND", value_parser = agent)]
    pub(crate) agent: Option<Agent>,
}

/// Who executes agent steps.
#[derive(Debug, Clone)]
pub(crate) struct Agent {
    /// As it was said, for a process of this program that has to hear it again.
    pub(crate) line: String,
    program: Program,
}

#[derive(Debug, Clone)]
enum Program {
    /// pi, in its RPC mode.
    Pi(PiAgent),
    /// Any command.
    Command(CommandAgent),
}

fn agent(line: &str) -> Result<Agent, String> {
    let words = shlex::split(line).ok_or("a quote is not closed")?;
    let program = match words.split_first() {
        None => return Err("it needs the name of a program".to_owned()),
        Some((program, _)) if program.is_empty() => {
            return Err("it needs the name of a program".to_owned());
        }
        Some((program, args)) if is_pi(program) => {
            Program::Pi(PiAgent::new(program.as_str()).args(args))
        }
        Some(_) => Program::Command(CommandAgent::new(words).reading_updates()),
    };
    Ok(Agent {
        line: line.to_owned(),
        program,
    })
}

fn is_pi(program: &str) -> bool {
    Path::new(program)
        .file_name()
        .is_some_and(|name| name == "pi")
}

impl Settings {
    /// How the store is opened.
    pub(crate) fn database(&self, create: bool) -> Options {
        Options {
            create,
            busy_timeout_ms: self.busy_timeout_ms,
            ..Options::default()
        }
    }

    /// The workflows of a process that executes runs: with an agent, if one is named.
    pub(crate) fn executing(&self, workflows: Workflows) -> Workflows {
        match self.agents() {
            Some(agents) => workflows.executing_agents_with(agents),
            None => workflows,
        }
    }

    /// The executor of agent steps, if one is named.
    pub(crate) fn agents(&self) -> Option<Arc<dyn AgentExecutor>> {
        Some(match &self.agent.as_ref()?.program {
            Program::Pi(pi) => Arc::new(pi.clone()),
            Program::Command(command) => Arc::new(command.clone()),
        })
    }

    /// How runs are executed.
    pub(crate) fn scheduler(&self) -> SchedulerOptions {
        SchedulerOptions {
            execution: Execution::default(),
            workers: usize::from(self.workers),
            lease_ms: self.lease_ms,
            poll_interval_ms: self.sweep_interval_ms,
            back_off: BackOff {
                base_ms: self.back_off_ms,
                cap_ms: self.back_off_max_ms,
            },
        }
    }
}
