//! Ctrl-C: the first asks for a stop at the next durable boundary, the second stops at once.
//!
//! The second one ends the process from a thread of its own. A process may end between any two instructions here, so that nothing
//! has to be tidied; but the commands of shell actions have process groups of their own and would live on, so they are ended too.
//! The store is closed before that: what a command says that was ended here is no result.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use holdpoint_state::Database;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::error::ExitStatus;

/// How long stopping at once waits for the store.
const CLOSE_PATIENCE: Duration = Duration::from_millis(500);

/// Whether somebody asked for a stop.
///
/// While it lives, stopping at once closes the store. Dropping it gives that handle back, so that the last handle goes before the
/// process ends and SQLite puts the write-ahead log into the file.
#[derive(Debug, Default)]
pub(crate) struct Interrupts {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    asked: AtomicBool,
    store: Mutex<Option<Database>>,
}

impl Interrupts {
    /// Listens from now on; before that a signal ends the process, as it does by default.
    pub(crate) fn listen(&self, store: &Database) -> std::io::Result<()> {
        *self
            .shared
            .store
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(store.clone());
        let shared = Arc::clone(&self.shared);
        let mut signals = Signals::new([SIGINT, SIGTERM])?;
        std::thread::Builder::new()
            .name("holdpoint-signals".to_owned())
            .spawn(move || {
                for _ in &mut signals {
                    if shared.asked.swap(true, Ordering::SeqCst) {
                        shared.stop_at_once();
                    }
                }
            })?;
        Ok(())
    }

    /// Whether a stop was asked for.
    pub(crate) fn asked(&self) -> bool {
        self.shared.asked.load(Ordering::SeqCst)
    }
}

impl Drop for Interrupts {
    fn drop(&mut self) {
        drop(self.shared.take_store());
    }
}

impl Shared {
    fn take_store(&self) -> Option<Database> {
        self.store
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }

    fn stop_at_once(&self) -> ! {
        if let Some(store) = self.take_store() {
            // The transaction that is running commits; one that waits for another process is not waited for.
            let (closed, waiting) = std::sync::mpsc::channel();
            std::thread::spawn(move || {
                store.close_now();
                closed.send(())
            });
            let _ = waiting.recv_timeout(CLOSE_PATIENCE);
        }
        end_children();
        std::process::exit(i32::from(ExitStatus::Cancelled.code()))
    }
}

/// Kills the process groups of this process's children.
#[cfg(target_os = "linux")]
fn end_children() {
    use rustix::process::{Pid, Signal, kill_process_group};
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else {
        return;
    };
    for task in tasks.flatten() {
        let children = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
        for child in children.split_ascii_whitespace() {
            if let Some(group) = child.parse().ok().and_then(Pid::from_raw) {
                // Only a child that leads a group of its own has a group of this number.
                let _gone = kill_process_group(group, Signal::KILL);
            }
        }
    }
}

/// Elsewhere the commands see their pipes break.
#[cfg(not(target_os = "linux"))]
fn end_children() {}
