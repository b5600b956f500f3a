//! `server`: the live server of a home, in the foreground or in the background, and whether it runs.

use std::fs::OpenOptions;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::json;

use super::Context;
use super::work::is_anything_executed;
use crate::cli::server::{ServerRunArgs, ServerVerb, SocketArgs};
use crate::error::{CommandError, ExitStatus};
use crate::home;
use crate::output::Output;
use crate::server::{Host, Peer, ServerStatus};
use crate::signals::Interrupts;

/// Where the socket is, beside the store: where the published client looks for it.
const DIRECTORY: &str = "host";
const SOCKET: &str = "host.sock";
/// What a server in the background says, beside its socket.
const LOG: &str = "server.log";
/// How long one look around lasts.
const LOOK: Duration = Duration::from_millis(100);
/// How often `server start` looks whether it is ready, and for how long.
const START_LOOK: Duration = Duration::from_millis(20);
const START_LOOKS_MAX: u32 = 1_500;

pub(super) fn server(context: &Context, verb: &ServerVerb) -> Result<ExitStatus, CommandError> {
    match verb {
        ServerVerb::Run(args) => run(context, args),
        ServerVerb::Start(args) => start(context, args),
        ServerVerb::Status(args) => status(context, args),
        ServerVerb::Stop(args) => stop(context, args),
    }
}

fn directory(context: &Context) -> Result<PathBuf, CommandError> {
    let store = home::store_path(context.cli.home.as_deref())?;
    Ok(store.with_file_name(DIRECTORY))
}

fn socket(context: &Context, args: &SocketArgs) -> Result<PathBuf, CommandError> {
    match &args.socket {
        Some(path) => {
            std::path::absolute(path).map_err(|source| failed("finding the socket", source))
        }
        None => Ok(directory(context)?.join(SOCKET)),
    }
}

fn failed(action: &str, source: std::io::Error) -> CommandError {
    CommandError::Io {
        action: action.to_owned(),
        source,
    }
}

fn run(context: &Context, args: &ServerRunArgs) -> Result<ExitStatus, CommandError> {
    if args.detached {
        rustix::process::setsid().map_err(|error| failed("leaving the terminal", error.into()))?;
    }
    let settings = &context.cli.settings;
    let store = context.store()?;
    let interrupts = Interrupts::default();
    interrupts
        .listen(&store, context.output)
        .map_err(|source| failed("listening for signals", source))?;
    let mut host = Host::start(&store, &socket(context, &args.place)?, settings.lease_ms)?;
    let workflows = home::workflows(context.cli.home.as_deref(), store.clone())?;
    let reader = workflows.clone();
    // As for `work`: commands and files of a run are relative to its directory.
    let workflows = settings.executing(workflows).admitting(move |run| {
        reader
            .launch_options(run)
            .is_ok_and(|options| home::is_at_home(&options))
    });
    let workflows = home::with_controllers(workflows)?;
    let scheduler = workflows.scheduler(settings.scheduler())?;
    let listening = host.status();
    context.output.line(format!(
        "listening at {}",
        listening
            .get("socket")
            .and_then(serde_json::Value::as_str)
            .unwrap_or_default()
    ));
    let clock = store.clock();
    let mut busy = clock.monotonic();
    let ended = loop {
        if let Err(error) = host.look(LOOK) {
            break Err(error);
        }
        if interrupts.asked() {
            break Ok("interrupted");
        }
        if host.is_asked_to_stop() {
            break Ok("asked");
        }
        let Some(seconds) = args.idle_exit else {
            continue;
        };
        let is_quiet = host.is_alone() && scheduler.wait_until_idle(LOOK);
        // What can't be looked at now may be busy.
        if !is_quiet || is_anything_executed(&workflows).unwrap_or(true) {
            busy = clock.monotonic();
        } else if seconds.saturating_mul(1_000) <= clock.monotonic().since(busy) {
            break Ok("idle");
        }
    };
    let closing = host.close();
    context
        .output
        .note("stopping after the present nodes; Ctrl-C stops at once");
    scheduler.stop(Duration::from_millis(settings.stop_patience_ms));
    closing.end();
    let stopped = ended?;
    context.output.document(&json!({ "stopped": stopped }))?;
    context.output.line(stopped);
    Ok(if stopped == "interrupted" {
        ExitStatus::Cancelled
    } else {
        ExitStatus::Done
    })
}

fn start(context: &Context, args: &ServerRunArgs) -> Result<ExitStatus, CommandError> {
    let socket = socket(context, &args.place)?;
    if let Ok(status) = Peer::connect(&socket).and_then(|peer| peer.status()) {
        return told(context, &status, Some(false));
    }
    let log = log(context)?;
    let mut child = command(context, args, &socket)?
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log.1)
        .spawn()
        .map_err(|source| failed("starting the server", source))?;
    for _ in 0..START_LOOKS_MAX {
        let found = Peer::connect(&socket).and_then(|peer| peer.status());
        if let Ok(status) = found.as_ref() {
            return told(context, status, Some(status.pid == child.id()));
        }
        let ended = child
            .try_wait()
            .map_err(|source| failed("waiting for the server", source))?;
        if let Some(ended) = ended {
            let problem =
                std::io::Error::other(format!("it ended with {ended}; see {}", log.0.display()));
            return Err(failed("starting the server", problem));
        }
        std::thread::park_timeout(START_LOOK);
    }
    let problem = std::io::Error::other(format!("it does not answer; see {}", log.0.display()));
    Err(failed("starting the server", problem))
}

/// This program as a server, with the settings of this command.
fn command(
    context: &Context,
    args: &ServerRunArgs,
    socket: &std::path::Path,
) -> Result<Command, CommandError> {
    let program =
        std::env::current_exe().map_err(|source| failed("finding this program", source))?;
    let settings = &context.cli.settings;
    let mut command = Command::new(program);
    if let Some(home) = &context.cli.home {
        command.arg("--home").arg(home);
    }
    for (name, value) in [
        (
            "HOLDPOINT_BUSY_TIMEOUT_MS",
            settings.busy_timeout_ms.to_string(),
        ),
        ("HOLDPOINT_LEASE_MS", settings.lease_ms.to_string()),
        (
            "HOLDPOINT_SWEEP_INTERVAL_MS",
            settings.sweep_interval_ms.to_string(),
        ),
        ("HOLDPOINT_WORKERS", settings.workers.to_string()),
        ("HOLDPOINT_BACK_OFF_MS", settings.back_off_ms.to_string()),
        (
            "HOLDPOINT_BACK_OFF_MAX_MS",
            settings.back_off_max_ms.to_string(),
        ),
        (
            "HOLDPOINT_STOP_PATIENCE_MS",
            settings.stop_patience_ms.to_string(),
        ),
    ] {
        command.env(name, value);
    }
    if let Some(agent) = &settings.agent {
        command.arg(format!("--agent={}", agent.line));
    }
    command
        .args(["server", "run", "--detached", "--socket"])
        .arg(socket);
    if let Some(seconds) = args.idle_exit {
        command.arg("--idle-exit").arg(seconds.to_string());
    }
    Ok(command)
}

/// The file for what a server in the background says.
fn log(context: &Context) -> Result<(PathBuf, std::fs::File), CommandError> {
    let directory = directory(context)?;
    let opened = std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&directory)
        .and_then(|()| {
            OpenOptions::new()
                .create(true)
                .append(true)
                .mode(0o600)
                .open(directory.join(LOG))
        });
    let file = opened.map_err(|source| failed("opening the log of the server", source))?;
    Ok((directory.join(LOG), file))
}

fn status(context: &Context, args: &SocketArgs) -> Result<ExitStatus, CommandError> {
    let socket = socket(context, args)?;
    match Peer::connect(&socket) {
        Ok(peer) => told(
            context,
            &peer
                .status()
                .map_err(|source| failed("asking the server", source))?,
            None,
        ),
        Err(_) => Err(CommandError::NoServer { socket }),
    }
}

fn told(
    context: &Context,
    status: &ServerStatus,
    started: Option<bool>,
) -> Result<ExitStatus, CommandError> {
    let mut document = json!(status);
    if let (Some(started), Some(members)) = (started, document.as_object_mut()) {
        members.insert("started".to_owned(), started.into());
    }
    context.output.document(&document)?;
    context.output.line(format!(
        "{}at {} (process {}, epoch {}, {} connections)",
        match started {
            Some(true) => "started ",
            Some(false) => "a server runs already ",
            None => "a server runs ",
        },
        status.socket,
        status.pid,
        status.epoch,
        status.connections
    ));
    Ok(ExitStatus::Done)
}

fn stop(context: &Context, args: &SocketArgs) -> Result<ExitStatus, CommandError> {
    let socket = socket(context, args)?;
    let stopped = match Peer::connect(&socket) {
        Ok(peer) => {
            let asked = peer.ask("server.stop").and_then(|_| {
                // Nodes may take their time, and get their signal after it.
                let patience = context.cli.settings.stop_patience_ms.saturating_add(30_000);
                peer.wait_for_its_end(Duration::from_millis(patience))
            });
            asked.map_err(|source| failed("stopping the server", source))?;
            true
        }
        Err(_) => false,
    };
    context.output.document(&json!({ "stopped": stopped }))?;
    context
        .output
        .line(if stopped { "stopped" } else { "no server runs" });
    if !stopped {
        Output::warning(&format!("nobody listens at {}", socket.display()));
    }
    Ok(ExitStatus::Done)
}
