//! One server for each home: its lease, its socket, its connections.
//!
//! The lease says which server it is, and its generation is the epoch; a dead one is taken over at once. The socket is made after the
//! lease was got, so that a socket file which nobody answers at is a dead server's. Not here: what is served.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, Permissions};
use std::io::ErrorKind;
use std::net::Shutdown;
use std::os::unix::fs::{
    DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, PermissionsExt as _,
};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use holdpoint_state::clock::{MonotonicMillis, UnixMillis};
use holdpoint_state::{Claim, Database, Owner, OwnerKind, OwnerPresence, StateError};
use holdpoint_workflows::commands::{start_host, stop_host};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::{Value, json};

use super::connection;
use super::protocol::CLIENT_VERSION;
use super::subscriptions::Shown;
use crate::error::CommandError;

/// How many connections there may be at once. More are closed as they come.
const CONNECTIONS_MAX: usize = 64;
/// The rights of the socket, and of the directory that is made for it.
const SOCKET_MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o700;

/// What the connections of one server share.
pub(super) struct Shared {
    db: Database,
    shown: Shown,
    epoch: u64,
    started_at: UnixMillis,
    socket: PathBuf,
    stops: AtomicBool,
    connections: Mutex<BTreeMap<u64, Option<UnixStream>>>,
}

impl Shared {
    pub(super) fn db(&self) -> &Database {
        &self.db
    }

    pub(super) fn shown(&self) -> &Shown {
        &self.shown
    }

    pub(super) fn status(&self) -> Value {
        json!({
            "running": true,
            "pid": std::process::id(),
            "epoch": self.epoch,
            "socket": self.socket.to_string_lossy(),
            "startedAt": self.started_at.0,
            "connections": self.lock().len(),
            "clientVersion": CLIENT_VERSION,
        })
    }

    pub(super) fn ask_to_stop(&self) {
        self.stops.store(true, Ordering::SeqCst);
    }

    /// This connection is not closed when the server stops, but when its process ends.
    pub(super) fn keep_to_the_end(&self, id: u64) {
        self.lock().insert(id, None);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Option<UnixStream>>> {
        self.connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection counts as long as its thread lives, however that ends.
struct Counted {
    shared: Arc<Shared>,
    id: u64,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.shared.lock().remove(&self.id);
    }
}

/// The one server of a home.
pub(crate) struct Host {
    shared: Arc<Shared>,
    listener: UnixListener,
    inode: Option<(u64, u64)>,
    claim: Claim,
    presence: Option<OwnerPresence>,
    renew_ms: u64,
    renewed: MonotonicMillis,
    numbers: AtomicU64,
}

impl Host {
    /// Becomes the server of the store, and listens at the socket.
    pub(crate) fn start(db: &Database, socket: &Path, lease_ms: i64) -> Result<Self, CommandError> {
        let owner = Owner::new(OwnerKind::Host, "server");
        let presence = db
            .announce_owner(&owner)
            .inspect_err(|error| tracing::warn!(error = %error, "a successor has to wait for the end of the lease"))
            .ok();
        let claim = start_host(db, &owner, lease_ms).map_err(|error| match error {
            StateError::LeaseHeld { .. } => CommandError::ServerRuns,
            error => error.into(),
        })?;
        let listener = match bind(socket) {
            Ok(listener) => listener,
            Err(error) => {
                let _given_back = stop_host(db, &claim);
                return Err(error);
            }
        };
        let shared = Arc::new(Shared {
            db: db.clone(),
            shown: Shown::new(claim.generation()),
            epoch: claim.generation(),
            started_at: db.clock().now(),
            socket: socket.to_owned(),
            stops: AtomicBool::new(false),
            connections: Mutex::default(),
        });
        Ok(Self {
            shared,
            listener,
            inode: inode(socket),
            claim,
            presence,
            renew_ms: u64::try_from(lease_ms / 3).unwrap_or(0),
            renewed: db.clock().monotonic(),
            numbers: AtomicU64::new(0),
        })
    }

    /// Whether somebody asked the server to stop.
    pub(crate) fn is_asked_to_stop(&self) -> bool {
        self.shared.stops.load(Ordering::SeqCst)
    }

    /// How the server is.
    pub(crate) fn status(&self) -> Value {
        self.shared.status()
    }

    /// Whether nobody is connected.
    pub(crate) fn is_alone(&self) -> bool {
        self.shared.lock().is_empty()
    }

    /// Takes connections for so long, and keeps the lease.
    pub(crate) fn look(&mut self, patience: Duration) -> Result<(), CommandError> {
        let timeout = Timespec::try_from(patience).ok();
        let mut descriptors = [PollFd::new(&self.listener, PollFlags::IN)];
        match poll(&mut descriptors, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => {
                return Err(CommandError::Io {
                    action: "waiting for connections".to_owned(),
                    source: error.into(),
                });
            }
        }
        // One round: whoever connects without end must not keep the lease from being renewed.
        for _ in 0..CONNECTIONS_MAX {
            match self.listener.accept() {
                Ok((stream, _)) => self.take(stream),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => {
                    // Such as too many open files: the others go on.
                    tracing::warn!(error = %error, "a connection could not be taken");
                    std::thread::park_timeout(patience);
                    break;
                }
            }
        }
        self.keep()
    }

    fn take(&self, stream: UnixStream) {
        let id = self
            .numbers
            .fetch_add(1, Ordering::SeqCst)
            .saturating_add(1);
        let shared = Arc::clone(&self.shared);
        {
            let mut connections = shared.lock();
            if CONNECTIONS_MAX <= connections.len() {
                tracing::debug!("a connection is closed: there are {CONNECTIONS_MAX}");
                return;
            }
            let Ok(clone) = stream.try_clone() else {
                return;
            };
            connections.insert(id, Some(clone));
        }
        let counted = Counted { shared, id };
        let name = format!("holdpoint-peer-{id}");
        let spawned = std::thread::Builder::new().name(name).spawn(move || {
            if let Err(error) = connection::serve(&stream, id, &counted.shared) {
                tracing::debug!(error = %error, "a connection ended");
            }
        });
        if let Err(error) = spawned {
            tracing::warn!(error = %error, "a connection could not be served");
        }
    }

    fn keep(&mut self) -> Result<(), CommandError> {
        let db = &self.shared.db;
        let now = db.clock().monotonic();
        if now.since(self.renewed) < self.renew_ms {
            return Ok(());
        }
        match db.renew(&self.claim) {
            Ok(()) => self.renewed = now,
            Err(error @ StateError::ClaimLost { .. }) => return Err(error.into()),
            Err(error) if self.claim.is_expired(db.clock().as_ref()) => return Err(error.into()),
            Err(error) => {
                tracing::warn!(error = %error, "the lease of the server could not be renewed; it is tried again");
            }
        }
        Ok(())
    }

    /// Takes no connection any more and ends those that there are. The lease stays until the rest is dropped with [`Closing::end`].
    pub(crate) fn close(self) -> Closing {
        if inode(&self.shared.socket) == self.inode && self.inode.is_some() {
            let _removed = std::fs::remove_file(&self.shared.socket);
        }
        drop(self.listener);
        for stream in self.shared.lock().values().flatten() {
            let _closed = stream.shutdown(Shutdown::Both);
        }
        Closing {
            shared: self.shared,
            claim: self.claim,
            presence: self.presence,
        }
    }
}

/// A server that only has its lease.
pub(crate) struct Closing {
    shared: Arc<Shared>,
    claim: Claim,
    presence: Option<OwnerPresence>,
}

impl Closing {
    /// Gives the lease back.
    pub(crate) fn end(self) {
        let _alive_until_then = self.presence;
        if let Err(error) = stop_host(&self.shared.db, &self.claim) {
            tracing::warn!(error = %error, "the lease of the server could not be given back; it ends by itself");
        }
    }
}

fn inode(path: &Path) -> Option<(u64, u64)> {
    let found = std::fs::symlink_metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

/// Listens at a socket that nobody else listens at. A file that a dead server left goes; nothing else does.
fn bind(socket: &Path) -> Result<UnixListener, CommandError> {
    let failed = |source: std::io::Error| CommandError::Io {
        action: format!("listening at {}", socket.display()),
        source,
    };
    if let Some(directory) = socket
        .parent()
        .filter(|directory| !directory.as_os_str().is_empty())
        && !directory.exists()
    {
        DirBuilder::new()
            .mode(DIRECTORY_MODE)
            .recursive(true)
            .create(directory)
            .map_err(failed)?;
    }
    if let Ok(found) = std::fs::symlink_metadata(socket) {
        let in_the_way = |problem: &str| {
            CommandError::input("socket", format!("{} {problem}", socket.display()))
        };
        if !found.file_type().is_socket() {
            return Err(in_the_way(
                "is there and no socket; name another one with --socket",
            ));
        }
        match UnixStream::connect(socket) {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                std::fs::remove_file(socket).map_err(failed)?;
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            _ => {
                return Err(in_the_way(
                    "is another program's; name another one with --socket",
                ));
            }
        }
    }
    // Nobody can connect before the rights are right: the process is still alone with its files here.
    let mask = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o177));
    let bound = UnixListener::bind(socket);
    rustix::process::umask(mask);
    let listener = bound.map_err(failed)?;
    std::fs::set_permissions(socket, Permissions::from_mode(SOCKET_MODE)).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    Ok(listener)
}
