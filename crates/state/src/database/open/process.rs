//! In which process stores are open. A forked child has the parent's memory but none of its locks.
//!
//! SQLite keeps the locks of a file in one table for the whole process. A child that opens a store which its parent has open would
//! find that table filled in and believe that it holds the locks (<https://www.sqlite.org/howtocorrupt.html>, section 2.6). It
//! must become a program of its own (`exec`) first.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use crate::error::StateError;

/// The process that counted, and how many stores it has open. Atomics: a mutex could be locked for ever in a forked child.
static PROCESS: AtomicU32 = AtomicU32::new(0);
static OPEN: AtomicUsize = AtomicUsize::new(0);

/// One open store of this process; dropped after its last connection.
#[derive(Debug)]
pub(in crate::database) struct OpenHere(());

impl OpenHere {
    /// Counts one more open store, unless the count is a forking parent's.
    pub(super) fn enter() -> Result<Self, StateError> {
        let me = std::process::id();
        let counted_by = PROCESS.load(Ordering::SeqCst);
        if counted_by != me {
            if OPEN.load(Ordering::SeqCst) != 0 && counted_by != 0 {
                return Err(StateError::Forked {
                    opened_by: counted_by,
                });
            }
            PROCESS.store(me, Ordering::SeqCst);
        }
        OPEN.fetch_add(1, Ordering::SeqCst);
        Ok(Self(()))
    }
}

impl Drop for OpenHere {
    fn drop(&mut self) {
        if PROCESS.load(Ordering::SeqCst) == std::process::id() {
            OPEN.fetch_sub(1, Ordering::SeqCst);
        }
    }
}
