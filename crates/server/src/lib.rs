//! The `holdpoint` command, and the live server in it.
//!
//! [`run`] is the whole command: it reads arguments, does one thing to one store and gives an [`ExitStatus`]. docs/COMMAND.md is
//! its contract: what each command does, the shape of its JSON, its exit statuses and settings.
//!
//! # Rooms
//!
//! - `cli`, `settings`: what may be typed. Nothing is done there.
//! - `home`: which store, and where workflow files are looked for.
//! - `commands`: one room for each verb or group. Rules are not here: each is one call of `holdpoint_workflows` or
//!   `holdpoint_state`, and every status shown is the one that the projection gives.
//! - `output`: the only way to the terminal. Text from outside is made inert there, whoever wrote it.
//! - `server`: the live server, its socket and its protocol.
//! - `signals`: Ctrl-C.
//! - `error`: from an error to its code, its message and its exit status.

mod cli;
mod commands;
mod error;
mod home;
mod output;
mod server;
mod settings;
mod signals;

use std::ffi::OsString;

pub use cli::command;
pub use error::ExitStatus;
pub use home::schema;

/// Runs the command with these arguments, the first of which is the program's name. Writes to standard output and standard error.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitStatus {
    commands::run(arguments.into_iter().collect())
}
