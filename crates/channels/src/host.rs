//! The channel host: one supervised adapter process for each profile, under the host's lease on that profile.
//!
//! A host needs no wake-up from elsewhere: an adapter asks for its next order at least once a second, and the order is chosen anew
//! from the rows each time. When an adapter ends, for whatever reason, what it had in flight is in doubt before another one starts.
//! Not here: what an order is (`commands`), the provider (`telegram`).

mod bot;
mod child;
mod supervise;
mod talk;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use holdpoint_state::{Database, Owner, OwnerKind, OwnerPresence};
use serde::Serialize;

use crate::config::Config;
use crate::error::ChannelError;
use crate::identity::ChannelId;
use crate::protocol::ErrorCode;
use supervise::{Stopper, Supervisor};

/// How a host works.
#[derive(Clone)]
pub struct HostOptions {
    /// The program that is the adapter.
    pub program: PathBuf,
    /// Its arguments. No secret is ever among them.
    pub arguments: Vec<OsString>,
    /// Another address of the provider's API, for a server that plays it.
    pub api_base: Option<String>,
    /// How long the claim on a profile lasts without a renewal, in milliseconds.
    pub lease_ms: i64,
    /// How long an adapter may take until it is ready, in milliseconds.
    pub ready_ms: u64,
    /// How long an adapter may say nothing, in milliseconds: longer than any one request to the provider.
    pub silence_ms: u64,
    /// How long an adapter may go on after it was told to stop, and again after SIGTERM, in milliseconds.
    pub stop_grace_ms: u64,
    /// How long a new adapter waits after one that ended, in milliseconds; it doubles with each that was never ready.
    pub restart_ms: u64,
    /// The longest such wait, in milliseconds.
    pub restart_max_ms: u64,
    /// Hears of every change of a profile.
    pub observer: Option<Observer>,
}

/// Hears of the changes of profiles.
pub type Observer = Arc<dyn Fn(&str, ProfileState) + Send + Sync>;

impl HostOptions {
    /// The ordinary times, with a program for the adapter.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            arguments: Vec::new(),
            api_base: None,
            lease_ms: 30_000,
            ready_ms: 15_000,
            silence_ms: 180_000,
            stop_grace_ms: 2_000,
            restart_ms: 1_000,
            restart_max_ms: 60_000,
            observer: None,
        }
    }
}

impl fmt::Debug for HostOptions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("HostOptions")
            .field("program", &self.program)
            .finish_non_exhaustive()
    }
}

/// Where a profile stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(tag = "state", content = "code", rename_all = "camelCase")]
pub enum ProfileState {
    /// Another host has it; this one waits for it.
    HostedElsewhere,
    /// Another profile of this store has the same bot; this one waits for it.
    BotElsewhere,
    /// Its adapter starts.
    Starting,
    /// Its adapter works.
    Running,
    /// Its adapter works, and can't read updates for this reason.
    Impeded(ErrorCode),
    /// Its adapter ended; the next one starts after a while.
    Restarting,
    /// The provider refuses the token: no adapter runs until the configuration is read again.
    Refused(ErrorCode),
    /// Its host stopped.
    Stopped,
}

/// Hosts all profiles of a configuration until it is stopped or dropped.
#[must_use = "the host stops when it is dropped"]
pub struct Host {
    db: Database,
    directory: PathBuf,
    options: HostOptions,
    owner: Owner,
    /// By it other processes know that this host lives.
    presence: Option<OwnerPresence>,
    states: Arc<States>,
    running: Mutex<Running>,
}

#[derive(Default)]
struct Running {
    supervisors: Vec<(Stopper, JoinHandle<()>)>,
}

/// Where the profiles stand, for whoever asks.
pub(crate) struct States {
    states: Mutex<BTreeMap<String, ProfileState>>,
    observer: Option<Observer>,
}

impl States {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, ProfileState>> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, profile: &str, state: ProfileState) {
        if self.lock().insert(profile.to_owned(), state) != Some(state)
            && let Some(observer) = &self.observer
        {
            observer(profile, state);
        }
    }
}

impl Host {
    /// Reads the configuration, and starts an adapter for each profile.
    ///
    /// # Errors
    ///
    /// [`ChannelError::Config`]: nothing was started.
    pub fn start(
        db: &Database,
        directory: &Path,
        options: HostOptions,
    ) -> Result<Self, ChannelError> {
        let config = Config::load(directory)?;
        let owner = Owner::new(OwnerKind::Host, "channels");
        // Before the first claim. Without it the claims of this process end by their time only.
        let presence = db
            .announce_owner(&owner)
            .inspect_err(|error| tracing::warn!(error = %error, "nobody can know when this host dies; its leases end by their time"))
            .ok();
        let host = Self {
            db: db.clone(),
            directory: directory.to_owned(),
            owner,
            presence,
            states: Arc::new(States {
                states: Mutex::default(),
                observer: options.observer.clone(),
            }),
            options,
            running: Mutex::default(),
        };
        host.start_all(&mut host.running(), config)?;
        Ok(host)
    }

    fn running(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start_all(&self, running: &mut Running, config: Config) -> Result<(), ChannelError> {
        let config = Arc::new(config);
        for profile in config.profiles().keys() {
            let supervisor = Supervisor {
                db: self.db.clone(),
                channel: ChannelId::telegram(profile)?,
                config: Arc::clone(&config),
                options: self.options.clone(),
                owner: self.owner.clone(),
                states: Arc::clone(&self.states),
            };
            running.supervisors.push(supervisor.start()?);
        }
        Ok(())
    }

    /// Where each profile stands, by name.
    pub fn profiles(&self) -> BTreeMap<String, ProfileState> {
        self.states.lock().clone()
    }

    /// Stops all adapters, reads the configuration again, and starts them anew. Only one does so at a time.
    ///
    /// # Errors
    ///
    /// [`ChannelError::Config`]: no adapter runs until the next reload. Decisions wait, and the local channel works.
    pub fn reload(&self) -> Result<(), ChannelError> {
        let mut running = self.running();
        stop_all(&mut running);
        self.states.lock().clear();
        let config = Config::load(&self.directory)?;
        self.start_all(&mut running, config)
    }

    /// Stops all adapters and gives the profiles back. Returns where each profile stands then.
    pub fn stop(mut self) -> BTreeMap<String, ProfileState> {
        self.shut_down();
        self.profiles()
    }

    fn shut_down(&mut self) {
        stop_all(&mut self.running());
        drop(self.presence.take());
        if let Err(error) = self.db.clean_owners() {
            tracing::debug!(error = %error, "the next host cleans up");
        }
    }
}

fn stop_all(running: &mut Running) {
    for (stopper, _) in &running.supervisors {
        stopper.stop();
    }
    for (_, thread) in running.supervisors.drain(..) {
        if thread.join().is_err() {
            tracing::error!("BUG: a supervisor of an adapter panicked");
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.shut_down();
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Host")
            .field("profiles", &self.profiles())
            .finish_non_exhaustive()
    }
}
