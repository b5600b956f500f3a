//! Shell actions: one command in a process group of its own.
//!
//! [`run`] is the only place of this crate that starts a process. Not here: deciding whether the
//! command may run (its managed effect, the engine), time budgets (the engine raises the signal).

mod command;
mod output;
mod process;

pub use command::{
    DEFAULT_MAX_OUTPUT_CHARS, ShellActionType, ShellCommand, ShellReceipt, ShellResult,
};
pub use process::{ShellFailure, ShellRun, run};

#[cfg(test)]
mod tests;
