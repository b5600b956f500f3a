//! The Bot API: the five methods that a channel needs, and what is known of each request afterwards.
//!
//! The difference that everything rests on: was it done, was it provably not done, or can nobody say. `transport` sees where a
//! request failed; this room turns that and the answer into a [`Failure`] (channels reference, section 7).
//!
//! Not here: trying again, waiting, and any text of the provider. A failure carries closed words only, because the URL of every
//! request holds the token and descriptions may quote what was sent.

mod base;
mod transport;
mod update;

use std::fmt;
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::token::BotToken;
use crate::protocol::{ErrorCode, INTEGER_MAX};

pub use base::{ApiBase, ApiBaseError};
pub use update::{Callback, Event, Repliable, Reply, Update};

use transport::{Answered, Lost, Transport};

/// How many updates one poll asks for. Few, so that the largest batch stays far below what an answer may have.
const UPDATES_MAX: u32 = 20;

/// How long a request may take.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// To find the name, connect and agree on TLS.
    pub connect: Duration,
    /// From the first byte to the last, connecting included.
    pub request: Duration,
    /// How long the provider may hold a poll open when there is no update, in whole seconds; it comes on top of `request`. Nothing
    /// waits for it, so that it may be long.
    pub poll_s: u32,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            request: Duration::from_secs(30),
            poll_s: 20,
        }
    }
}

/// What is known of a request that was not confirmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// No name, no connection or no TLS: not a byte of the request left.
    #[error("the Bot API can't be reached")]
    NotSent,
    /// The provider says no, in a way that it can be read: it was not done.
    #[error("the Bot API refused")]
    Refused(Refusal),
    /// Whatever else: it may have been done.
    #[error("what became of a request to the Bot API is not known")]
    Unknown,
}

/// A readable no.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    /// The HTTP status, if it is one from 400 to 499.
    pub status: Option<u16>,
    /// What it says, as far as that is told apart.
    pub reason: Reason,
    /// Seconds before which the provider wants no further request.
    pub retry_after_s: Option<u64>,
}

/// The refusals that mean something else than "no".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// An edit would change nothing: the message is as it should be.
    NotModified,
    /// The message to edit is gone.
    MessageNotFound,
    /// Any other.
    Other,
}

impl Failure {
    /// The word that is stored and shown.
    pub fn code(self) -> ErrorCode {
        match self {
            Self::NotSent => ErrorCode::TelegramUnreachable,
            Self::Refused(Refusal {
                status: Some(status),
                ..
            }) => ErrorCode::TelegramHttp(status),
            Self::Refused(Refusal { status: None, .. }) => ErrorCode::TelegramRejected,
            Self::Unknown => ErrorCode::TelegramResponseUnknown,
        }
    }

    /// Seconds before which the provider wants no further request.
    pub fn retry_after_s(self) -> Option<u64> {
        match self {
            Self::Refused(refusal) => refusal.retry_after_s,
            Self::NotSent | Self::Unknown => None,
        }
    }

    /// The HTTP status of a refusal.
    pub fn status(self) -> Option<u16> {
        match self {
            Self::Refused(refusal) => refusal.status,
            Self::NotSent | Self::Unknown => None,
        }
    }
}

/// One button: what it says, and what it carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Button {
    /// What it says.
    pub text: String,
    /// What it carries, at most 64 bytes.
    pub data: String,
}

/// What stands below a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Markup {
    /// Nothing.
    None,
    /// Buttons, one in each row.
    Buttons(Vec<Button>),
    /// The person's client opens a reply to this message.
    ForceReply,
}

/// Who the bot is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Me {
    /// Its numeric id.
    pub id: i64,
    /// Its name, without the `@`.
    pub username: Option<String>,
}

/// A client for one bot. `Debug` shows neither the token nor an address that holds it.
pub struct Client {
    base: ApiBase,
    token: BotToken,
    patience: Patience,
    transport: Transport,
}

impl fmt::Debug for Client {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Client")
            .field("base", &self.base)
            .finish_non_exhaustive()
    }
}

#[derive(Deserialize)]
struct Envelope<'a> {
    ok: bool,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    error_code: Option<i64>,
    description: Option<String>,
    parameters: Option<Parameters>,
}

#[derive(Deserialize)]
struct Parameters {
    retry_after: Option<u64>,
}

impl Client {
    /// A client; nothing is sent yet.
    pub fn new(base: ApiBase, token: BotToken, patience: Patience) -> Self {
        Self {
            transport: Transport::new(patience, base.has_tls()),
            base,
            token,
            patience,
        }
    }

    /// Asks who the bot is, which proves that the token is right.
    ///
    /// # Errors
    ///
    /// [`Failure`].
    pub fn get_me(&self) -> Result<Me, Failure> {
        let result = self.once("getMe", &json!({}))?;
        let me: Value = read(&result)?;
        Ok(Me {
            id: me
                .get("id")
                .and_then(Value::as_i64)
                .ok_or(Failure::Unknown)?,
            username: me
                .get("username")
                .and_then(Value::as_str)
                .map(str::to_owned),
        })
    }

    /// Reads updates from `offset` on, and tells the provider that all before it are done with. In the order of their ids.
    ///
    /// An update that can't be read is an [`Event::Other`], so that it can't keep those behind it from being read.
    ///
    /// # Errors
    ///
    /// [`Failure`]; nothing is lost, the same updates come again.
    pub fn get_updates(&self, offset: u64) -> Result<Vec<Update>, Failure> {
        let body = json!({
            "offset": offset,
            "limit": UPDATES_MAX,
            "timeout": self.patience.poll_s,
            "allowed_updates": ["callback_query", "message"],
        });
        let url = self.base.method_url(&self.token, "getUpdates");
        let answered = self.transport.poll(&url, &body);
        let result = settle(answered)?;
        let raw: Vec<&RawValue> = read(&result)?;
        let mut updates: Vec<_> = raw.into_iter().filter_map(Update::read).collect();
        updates.sort_by_key(|update| update.id);
        Ok(updates)
    }

    /// Sends one message as plain text, and gives its id.
    ///
    /// # Errors
    ///
    /// [`Failure`]; an answer without an id is [`Failure::Unknown`], since nobody could ever take the buttons off.
    pub fn send_message(&self, chat: &str, text: &str, markup: &Markup) -> Result<u64, Failure> {
        let markup = match markup {
            Markup::None => None,
            Markup::Buttons(buttons) => Some(("reply_markup", keyboard(buttons))),
            Markup::ForceReply => Some((
                "reply_markup",
                json!({ "force_reply": true, "selective": true }),
            )),
        };
        self.send(chat, text, markup)
    }

    /// Sends a word in reply to a message of a person, or without it when that message is gone. Gives the id of the new one.
    ///
    /// # Errors
    ///
    /// [`Failure`].
    pub fn send_reply(&self, chat: &str, message: u64, text: &str) -> Result<u64, Failure> {
        let to = json!({ "message_id": message, "allow_sending_without_reply": true });
        self.send(chat, text, Some(("reply_parameters", to)))
    }

    fn send(&self, chat: &str, text: &str, beside: Option<(&str, Value)>) -> Result<u64, Failure> {
        let mut body = json!({
            "chat_id": chat_id(chat),
            "text": text,
            // A preview would fetch what the text of a decision links to.
            "link_preview_options": { "is_disabled": true },
        });
        if let (Some((name, value)), Some(fields)) = (beside, body.as_object_mut()) {
            fields.insert(name.to_owned(), value);
        }
        let result = self.once("sendMessage", &body)?;
        read::<Value>(&result)?
            .get("message_id")
            .and_then(Value::as_u64)
            .filter(|id| *id <= INTEGER_MAX)
            .ok_or(Failure::Unknown)
    }

    /// Takes the buttons off a message.
    ///
    /// # Errors
    ///
    /// [`Failure`]; [`Reason`] tells the refusals that mean that there is nothing left to do.
    pub fn remove_buttons(&self, chat: &str, message: u64) -> Result<(), Failure> {
        let body = json!({
            "chat_id": chat_id(chat),
            "message_id": message,
            "reply_markup": keyboard(&[]),
        });
        self.once("editMessageReplyMarkup", &body).map(drop)
    }

    /// Tells the person who pressed a button what came of it.
    ///
    /// # Errors
    ///
    /// [`Failure`]; it says nothing about the answer itself.
    pub fn answer_callback(&self, callback: &str, text: &str) -> Result<(), Failure> {
        let body = json!({ "callback_query_id": callback, "text": text });
        self.once("answerCallbackQuery", &body).map(drop)
    }

    fn once(&self, method: &str, body: &Value) -> Result<Vec<u8>, Failure> {
        let url = self.base.method_url(&self.token, method);
        settle(self.transport.once(&url, body))
    }
}

/// Chats are 64-bit integers, kept as text everywhere else.
fn chat_id(chat: &str) -> Value {
    chat.parse::<i64>()
        .map_or_else(|_| Value::from(chat), Value::from)
}

fn keyboard(buttons: &[Button]) -> Value {
    let row = |button: &Button| json!([{ "text": button.text, "callback_data": button.data }]);
    json!({ "inline_keyboard": buttons.iter().map(row).collect::<Vec<_>>() })
}

/// The bytes of `result`, or what is known of the request instead.
fn settle(answered: Result<Answered, Lost>) -> Result<Vec<u8>, Failure> {
    let answered = answered.map_err(|lost| match lost {
        Lost::NotSent => Failure::NotSent,
        Lost::Sent => Failure::Unknown,
    })?;
    let status = answered.status;
    // A failing server may have done the work before it failed, whatever its body says; a redirect is no answer of the Bot API.
    if !(200..300).contains(&status) && !(400..500).contains(&status) {
        return Err(Failure::Unknown);
    }
    let envelope: Envelope<'_> = read(&answered.body)?;
    match (envelope.ok, (400..500).contains(&status)) {
        (true, false) => envelope
            .result
            .map(|result| result.get().as_bytes().to_vec())
            .ok_or(Failure::Unknown),
        // A refusal that says yes can't be believed either way.
        (true, true) => Err(Failure::Unknown),
        (false, false) if envelope.error_code.is_some_and(|code| 500 <= code) => {
            Err(Failure::Unknown)
        }
        (false, is_refusal) => Err(Failure::Refused(Refusal {
            status: is_refusal.then_some(status),
            reason: reason(envelope.description.as_deref().unwrap_or_default()),
            retry_after_s: envelope
                .parameters
                .and_then(|parameters| parameters.retry_after)
                .map(|seconds| seconds.min(INTEGER_MAX)),
        })),
    }
}

/// The Bot API has no codes for these: its descriptions are what there is (cases 92 of the collection of known faults).
fn reason(description: &str) -> Reason {
    let description = description.to_ascii_lowercase();
    if description.contains("message is not modified") {
        Reason::NotModified
    } else if description.contains("message to edit not found") {
        Reason::MessageNotFound
    } else {
        Reason::Other
    }
}

/// What can't be read as it should be says nothing about what was done.
fn read<'a, T: Deserialize<'a>>(result: &'a [u8]) -> Result<T, Failure> {
    serde_json::from_slice(result).or(Err(Failure::Unknown))
}
