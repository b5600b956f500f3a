//! Ctrl-C: the first asks for a stop at the next durable boundary, the second stops at once. SIGTERM is the same; SIGHUP only ever
//! asks, since a terminal that goes away may send it twice, from the kernel and from the shell.
//!
//! The second one ends the process from a thread of its own. A process may end between any two instructions here, so that nothing
//! has to be tidied; but the commands of shell actions have process groups of their own and would live on, so they are ended too.
//! The store is closed before that: what a command says that was ended here is no result.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use holdpoint_state::Database;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::error::{CommandError, ExitStatus};
use crate::output::Output;

/// How long stopping at once waits for the terminal, and then for the store.
const PATIENCE: Duration = Duration::from_millis(500);

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
    pub(crate) fn listen(&self, store: &Database, output: Output) -> std::io::Result<()> {
        *self
            .shared
            .store
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(store.clone());
        let shared = Arc::clone(&self.shared);
        let mut signals = Signals::new([SIGINT, SIGTERM])?;
        if !is_hangup_ignored() {
            signals.handle().add_signal(SIGHUP)?;
        }
        std::thread::Builder::new()
            .name("holdpoint-signals".to_owned())
            .spawn(move || {
                for signal in &mut signals {
                    let again = shared.asked.swap(true, Ordering::SeqCst);
                    if again && signal != SIGHUP {
                        shared.stop_at_once(output);
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

    /// Runs on the thread that listens, not in a signal handler, so that it may write and lock.
    fn stop_at_once(&self, output: Output) -> ! {
        // Whoever writes to a pipe that nobody reads is not waited for.
        with_patience(move || output.last_word(&CommandError::Interrupted));
        if let Some(store) = self.take_store() {
            // The transaction that is running commits; one that waits for another process is not waited for.
            with_patience(move || store.close_now());
        }
        end_children();
        std::process::exit(i32::from(ExitStatus::Cancelled.code()))
    }
}

/// Does something and waits for it, but not for long.
fn with_patience(act: impl FnOnce() + Send + 'static) {
    let (done, waiting) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        act();
        done.send(())
    });
    let _ = waiting.recv_timeout(PATIENCE);
}

/// Whether whoever started this process has it ignore that the terminal goes away, as `nohup` does.
#[cfg(target_os = "linux")]
fn is_hangup_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask & (1 << (SIGHUP - 1)) != 0)
}

/// Elsewhere it is not known without unsafe code.
#[cfg(not(target_os = "linux"))]
fn is_hangup_ignored() -> bool {
    false
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
