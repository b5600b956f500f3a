//! Shell actions: one command in a process group of its own.
//!
//! [`run`](crate::shell) is the only place of this crate that starts a process. Not here: deciding whether the
//! command may run (its managed effect, the engine).

mod command;

pub use command::{
    DEFAULT_MAX_OUTPUT_CHARS, ShellActionType, ShellCommand, ShellReceipt, ShellResult,
};
