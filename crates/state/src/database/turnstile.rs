//! The turnstile between processes: two advisory lock files beside the database make waiting fair and bounded.
//!
//! SQLite's own busy handler polls, so that a process which commits in a loop starves the others. Here a writer takes the queue
//! lock Q, then the work lock W, and releases Q: whoever waits for W holds Q, and the next one waits for Q in the kernel's own
//! order. The locks protect nothing; SQLite's locks do. They end with the process that holds them.

use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

use super::open::open_lock_file;
use crate::error::StateError;

pub(super) struct Turnstile {
    files: Arc<Files>,
    waiter: Option<Arc<Waiter>>,
}

struct Files {
    queue: File,
    work: File,
}

/// A thread that waits in the kernel for the locks, so that the writer's own wait can end after its time. It exists once this
/// process has met another one.
struct Waiter {
    stage: Mutex<Stage>,
    changed: Condvar,
}

/// Where a request for the locks stands.
enum Stage {
    Idle,
    Asked,
    Granted,
    Failed(std::io::Error),
    /// The writer stopped waiting. When the locks come they are given back, so that an idle process blocks nobody.
    Abandoned,
    Ended,
}

/// The work lock; dropping it lets the next writer in.
pub(super) struct Turn {
    files: Arc<Files>,
}

impl Turnstile {
    /// Opens the two lock files beside the database, with mode 0600. They stay: a lock file that is removed becomes two.
    pub(super) fn open(database: &Path) -> Result<Self, StateError> {
        Ok(Self {
            files: Arc::new(Files {
                queue: lock_file(database, "queue-lock")?,
                work: lock_file(database, "work-lock")?,
            }),
            waiter: None,
        })
    }

    /// Waits for the turn for at most `timeout_ms`.
    pub(super) fn enter(&mut self, timeout_ms: u64) -> Result<Turn, StateError> {
        let failed = |source: std::io::Error| StateError::Io {
            action: "locking the turnstile".into(),
            source,
        };
        let in_kernel = self
            .waiter
            .as_ref()
            .is_some_and(|waiter| matches!(*waiter.lock(), Stage::Abandoned));
        if !in_kernel && try_enter(&self.files).map_err(failed)? {
            return Ok(self.turn());
        }
        let waiter = match &self.waiter {
            Some(waiter) => Arc::clone(waiter),
            None => Arc::clone(
                self.waiter
                    .insert(Waiter::spawn(&self.files).map_err(failed)?),
            ),
        };
        if waiter.wait(timeout_ms).map_err(failed)? {
            Ok(self.turn())
        } else {
            Err(StateError::Busy {
                waited_ms: timeout_ms,
            })
        }
    }

    fn turn(&self) -> Turn {
        Turn {
            files: Arc::clone(&self.files),
        }
    }
}

impl Drop for Turnstile {
    fn drop(&mut self) {
        if let Some(waiter) = &self.waiter {
            *waiter.lock() = Stage::Ended;
            waiter.changed.notify_all();
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // Unlocking an open descriptor that we hold can't fail; if it did, the lock would end with the process.
        let _ = flock(&self.files.work, FlockOperation::Unlock);
    }
}

impl Waiter {
    fn spawn(files: &Arc<Files>) -> std::io::Result<Arc<Self>> {
        let waiter = Arc::new(Self {
            stage: Mutex::new(Stage::Idle),
            changed: Condvar::new(),
        });
        let (shared, files) = (Arc::clone(&waiter), Arc::clone(files));
        std::thread::Builder::new()
            .name("holdpoint-turnstile".into())
            .spawn(move || shared.serve(&files))?;
        Ok(waiter)
    }

    /// The thread: waits to be asked, waits in the kernel, tells.
    fn serve(&self, files: &Files) {
        loop {
            let mut stage = self.lock();
            while !matches!(*stage, Stage::Asked | Stage::Ended) {
                stage = self
                    .changed
                    .wait(stage)
                    .unwrap_or_else(PoisonError::into_inner);
            }
            if matches!(*stage, Stage::Ended) {
                return;
            }
            drop(stage);
            let entered = enter_blocking(files);
            let mut stage = self.lock();
            *stage = match (&*stage, entered) {
                (Stage::Asked, Ok(())) => Stage::Granted,
                (Stage::Asked, Err(error)) => Stage::Failed(error),
                (ended, entered) => {
                    if entered.is_ok() {
                        // As in the drop of a turn: can't fail on a descriptor that we hold.
                        let _ = flock(&files.work, FlockOperation::Unlock);
                    }
                    if matches!(ended, Stage::Ended) {
                        Stage::Ended
                    } else {
                        Stage::Idle
                    }
                }
            };
            self.changed.notify_all();
        }
    }

    /// Asks, or takes an abandoned request up again. Returns whether the locks were granted in time.
    #[expect(
        clippy::disallowed_methods,
        reason = "the wait for a turn is real time of this process, not stored time"
    )]
    fn wait(&self, timeout_ms: u64) -> std::io::Result<bool> {
        let deadline = Instant::now() + Duration::from_millis(timeout_ms);
        let mut stage = self.lock();
        *stage = Stage::Asked;
        self.changed.notify_all();
        loop {
            match std::mem::replace(&mut *stage, Stage::Idle) {
                Stage::Granted => return Ok(true),
                Stage::Failed(error) => return Err(error),
                waiting => *stage = waiting,
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                *stage = Stage::Abandoned;
                return Ok(false);
            }
            stage = self
                .changed
                .wait_timeout(stage, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn try_enter(files: &Files) -> std::io::Result<bool> {
    match flock(&files.queue, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => return Ok(false),
        Err(error) => return Err(error.into()),
    }
    let work = flock(&files.work, FlockOperation::NonBlockingLockExclusive);
    flock(&files.queue, FlockOperation::Unlock)?;
    match work {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn enter_blocking(files: &Files) -> std::io::Result<()> {
    lock(&files.queue)?;
    let work = lock(&files.work);
    flock(&files.queue, FlockOperation::Unlock)?;
    work
}

fn lock(file: &File) -> std::io::Result<()> {
    loop {
        match flock(file, FlockOperation::LockExclusive) {
            Err(rustix::io::Errno::INTR) => {}
            other => return other.map_err(Into::into),
        }
    }
}

fn lock_file(database: &Path, suffix: &str) -> Result<File, StateError> {
    let mut path = database.as_os_str().to_owned();
    path.push(format!(".{suffix}"));
    let path = Path::new(&path);
    open_lock_file(path).map_err(|source| StateError::Io {
        action: format!("opening the lock file {}", path.display()),
        source,
    })
}
