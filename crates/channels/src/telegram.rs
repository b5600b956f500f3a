//! The Telegram adapter: how a decision looks in a chat, and the child process that shows it there and brings back answers.
//!
//! Rooms: `split` and `render` say what is sent, `token` what a button carries, `api` speaks the Bot API and tells what is
//! known of each request, `adapter` is the loop of the child.
//!
//! Not here: the database, workflows, who may answer in the end. The host checks everything again that a child reports; a test
//! holds that no room below names a store, a command or a workflow.

pub mod adapter;
pub mod api;
pub mod render;
pub mod split;
pub mod token;

pub use adapter::{Exit, Settings, run};
pub use api::{ApiBase, ApiBaseError, Client, Failure, Patience};
pub use render::{content_digest, render};
pub use split::{CAPACITY_UNITS, MESSAGE_UNITS_MAX, PARTS_MAX, Part, TooManyParts, split};
pub use token::{BotToken, BotTokenError};
