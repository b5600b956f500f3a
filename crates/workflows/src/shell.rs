//! Shell actions: one command in a process group of its own.
//!
//! [`run`] starts one, and so does an executor of agents that has to talk with its process ([`crate::agents`]). Not here: deciding whether the
//! command may run (its managed effect, the engine), time budgets (the engine raises the signal).

mod command;
mod lines;
mod output;
mod process;

pub use command::{
    DEFAULT_MAX_OUTPUT_CHARS, ShellActionType, ShellCommand, ShellReceipt, ShellResult,
};
pub use lines::{LINE_LIMIT_BYTES, Stream, Streams, TakeLine};
pub use process::{ShellFailure, ShellRun, run, run_reading_lines};

// Executors of agents talk with a process while it runs, and end it by the same rules.
pub(crate) use output::Captured;
pub(crate) use process::{
    Ending, KILL_AFTER, RECEIPT_GRACE, millis, now, observe_exit, reap, signal_name, tail,
};

#[cfg(test)]
mod tests;
