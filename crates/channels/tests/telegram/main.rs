//! The Telegram adapter against a server that plays the Bot API, and that server against an independent reading of the API.

mod host;

mod answers;
mod bot_api;
mod cases;
mod child;
mod deliver;
mod dev_server;
mod polls;
mod settle;

use std::error::Error;
use std::time::Duration;

use holdpoint_channels::telegram::BotToken;

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

/// How long a test waits for something that must happen.
const SOON: Duration = Duration::from_secs(30);

/// The bot's token, a person who may answer, and their chat.
const TOKEN: &str = "1000:test-token";
const USER: i64 = 100;
const CHAT: i64 = 100;

fn token() -> BotToken {
    let Ok(token) = BotToken::new(TOKEN) else {
        unreachable!("a token of letters, digits and ':'");
    };
    token
}
