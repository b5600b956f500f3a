//! `channels run`: adapters and, unless told otherwise, a scheduler, so that one command carries a decision from question to answer.

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use holdpoint_channels::config::{CHANNELS_FILE, CREDENTIALS_FILE};
use holdpoint_channels::host::{Host, HostOptions, ProfileState};
use holdpoint_channels::telegram;
use serde_json::json;

use super::{base, directory, load};
use crate::cli::channels::ChannelsRunArgs;
use crate::commands::Context;
use crate::error::{CommandError, ExitStatus};
use crate::home;
use crate::output::Output;
use crate::signals::Interrupts;

/// How long one look around lasts.
const LOOK: Duration = Duration::from_millis(100);
/// The hidden word by which this program knows that it is an adapter.
const ADAPTER: &str = "channel-adapter";

/// `channels run`.
pub(super) fn run(context: &Context, args: &ChannelsRunArgs) -> Result<ExitStatus, CommandError> {
    let directory = directory()?;
    // Before it is read: what changes meanwhile is read again.
    let mut seen = fingerprint(&directory);
    let config = load(&directory)?;
    if config.profiles().is_empty() && args.no_work {
        let problem = "no profile is configured, so that there is nothing to host; see `holdpoint channels setup`";
        return Err(CommandError::input("configuration", problem));
    }
    let store = context.store()?;
    let interrupts = Interrupts::default();
    interrupts
        .listen(&store, context.output)
        .map_err(|source| CommandError::Io {
            action: "listening for signals".to_owned(),
            source,
        })?;
    let host = Host::start(&store, &directory, options(context, args)?)?;
    let scheduler = if args.no_work {
        None
    } else {
        let workflows = home::workflows(context.cli.home.as_deref(), store.clone())?;
        let workflows = home::with_controllers(context.cli.settings.executing(workflows))?;
        Some(workflows.scheduler(context.cli.settings.scheduler())?)
    };
    if config.profiles().is_empty() {
        context
            .output
            .note("no profile is configured; decisions are answered locally");
    }
    while !interrupts.asked() {
        std::thread::park_timeout(LOOK);
        let now = fingerprint(&directory);
        if now != seen {
            seen = now;
            context
                .output
                .line("the configuration has changed and is read again");
            if let Err(error) = host.reload() {
                Output::warning(&format!("no adapter runs until it is put right: {error}"));
            }
        }
    }
    context.output.note("stopping; Ctrl-C again stops at once");
    let profiles: Vec<_> = host
        .stop()
        .into_iter()
        .map(|(profile, state)| json!({ "profile": profile, "state": state }))
        .collect();
    if let Some(scheduler) = scheduler {
        scheduler.stop(Duration::from_millis(context.cli.settings.stop_patience_ms));
    }
    context
        .output
        .document(&json!({ "stopped": "interrupted", "profiles": profiles }))?;
    Ok(ExitStatus::Cancelled)
}

fn options(context: &Context, args: &ChannelsRunArgs) -> Result<HostOptions, CommandError> {
    // Checked here, where a person can read what is wrong with it.
    base(&args.api)?;
    let program = std::env::current_exe().map_err(|source| CommandError::Io {
        action: "finding this program".to_owned(),
        source,
    })?;
    let output = context.output;
    Ok(HostOptions {
        arguments: vec![OsString::from(ADAPTER)],
        api_base: args.api.api_base.clone(),
        lease_ms: context.cli.settings.lease_ms,
        observer: Some(Arc::new(move |profile, state| {
            output.line(format!("telegram:{profile}: {}", words(state)));
        })),
        ..HostOptions::new(program)
    })
}

fn words(state: ProfileState) -> String {
    match state {
        ProfileState::HostedElsewhere => "another process hosts it; waiting".to_owned(),
        ProfileState::BotElsewhere => {
            "another profile of this store has the same bot; waiting".to_owned()
        }
        ProfileState::Starting => "starting".to_owned(),
        ProfileState::Running => "running".to_owned(),
        ProfileState::Impeded(code) => format!("running, and can't read answers ({code})"),
        ProfileState::Restarting => "its adapter ended; the next one starts soon".to_owned(),
        ProfileState::Refused(code) => {
            format!("stopped: the token is refused ({code}); put it right in the configuration")
        }
        ProfileState::Stopped => "stopped".to_owned(),
    }
}

/// By what a change of the configuration is seen: its directory by mode, its files by when anything of them changed, which their mode is
/// a part of.
fn fingerprint(directory: &Path) -> (Option<u32>, [Option<[i64; 3]>; 2]) {
    let mode = std::fs::metadata(directory).ok().map(|found| found.mode());
    let files = [CHANNELS_FILE, CREDENTIALS_FILE].map(|name| {
        let found = std::fs::metadata(directory.join(name)).ok()?;
        Some([found.ctime(), found.ctime_nsec(), found.ino().cast_signed()])
    });
    (mode, files)
}

/// One adapter: the launch line on standard input, the conversation on standard input and output.
pub(super) fn adapter() -> Result<ExitStatus, CommandError> {
    if !follow_the_host()? {
        return Ok(ExitStatus::Failed);
    }
    let exit = telegram::run(
        std::io::stdin(),
        std::io::stdout(),
        std::io::stderr(),
        &telegram::Settings {
            // The first line against an adapter that outlives its host, on every system: in the middle of a request too.
            host_gone: || std::process::exit(i32::from(telegram::Exit::HostGone.code())),
            ..telegram::Settings::default()
        },
    );
    // Its code is a contract of its own: docs/TELEGRAM.md.
    std::process::exit(i32::from(exit.code()))
}

/// Waits for Ctrl-C or SIGTERM.
pub(super) fn wait_for_signal() -> std::io::Result<()> {
    use signal_hook::consts::{SIGINT, SIGTERM};
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM])?;
    signals.forever().next();
    Ok(())
}

/// The second line, on Linux: the kernel ends this process with its host, also when another process still holds the host's end of
/// standard input. Returns whether the host is still there. Elsewhere the end of standard input is what there is.
#[cfg(target_os = "linux")]
fn follow_the_host() -> Result<bool, CommandError> {
    use rustix::process::{Signal, getppid, set_parent_process_death_signal};
    let parent = getppid();
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|error| CommandError::Io {
        action: "following the host".to_owned(),
        source: error.into(),
    })?;
    Ok(parent.is_some() && getppid() == parent)
}

#[cfg(not(target_os = "linux"))]
fn follow_the_host() -> Result<bool, CommandError> {
    Ok(true)
}
