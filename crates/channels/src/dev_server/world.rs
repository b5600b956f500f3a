//! What was said and done: chats with their messages, updates that wait for the bot, what people were told.
//!
//! Not here: HTTP, and what the Bot API refuses.

use std::collections::{BTreeMap, HashSet};

use holdpoint_state::clock::{Clock as _, SystemClock};
use serde_json::{Value, json};

use super::fault::Faults;
use crate::telegram::BotToken;

/// The number of the first update.
const FIRST_UPDATE: u64 = 1_000;

/// One message as a person sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// Its number within the chat.
    pub message: u64,
    /// Who sent it.
    pub sender: i64,
    /// Its text.
    pub text: String,
    /// What its buttons say, row by row.
    pub buttons: Vec<Vec<String>>,
    /// The message that it replies to.
    pub reply_to: Option<u64>,
    /// The person's client opens a reply to it.
    pub asks_reply: bool,
}

/// What a person was told on pressing a button.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Toast {
    /// The press.
    pub callback: String,
    /// The text.
    pub text: String,
}

/// What a person wants to do can't be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WorldError {
    /// There is no such message in that chat.
    #[error("there is no such message in that chat")]
    NoMessage,
    /// The message shows no such button.
    #[error("the message shows no such button")]
    NoButton,
}

#[derive(Debug, Clone)]
pub(super) struct Message {
    pub(super) sender: i64,
    pub(super) text: String,
    /// The keyboard, as the bot gave it.
    pub(super) keyboard: Option<Value>,
    pub(super) asks_reply: bool,
    pub(super) reply_to: Option<u64>,
    date: i64,
}

/// An update and its kind.
#[derive(Debug, Clone)]
struct Queued {
    id: u64,
    update: Value,
}

#[derive(Debug)]
pub(super) struct World {
    pub(super) bot: i64,
    pub(super) faults: Faults,
    messages: BTreeMap<(i64, u64), Message>,
    last_message: BTreeMap<i64, u64>,
    closed: HashSet<i64>,
    waiting: Vec<Queued>,
    done: Vec<Queued>,
    next_update: u64,
    allowed: Option<Vec<String>>,
    presses: HashSet<String>,
    toasts: Vec<Toast>,
    calls: Vec<(String, Value)>,
    /// Counts polls: a newer one ends those before it.
    pub(super) polls: u64,
}

impl World {
    pub(super) fn new(token: &BotToken) -> Self {
        let number = token.expose().split(':').next().unwrap_or_default();
        Self {
            bot: number.parse().unwrap_or(1_000),
            faults: Faults::default(),
            messages: BTreeMap::new(),
            last_message: BTreeMap::new(),
            closed: HashSet::new(),
            waiting: Vec::new(),
            done: Vec::new(),
            next_update: FIRST_UPDATE,
            allowed: None,
            presses: HashSet::new(),
            toasts: Vec::new(),
            calls: Vec::new(),
            polls: 0,
        }
    }

    pub(super) fn note(&mut self, method: &str, parameters: Value) {
        self.calls.push((method.to_owned(), parameters));
    }

    pub(super) fn calls(&self, method: &str) -> usize {
        self.calls.iter().filter(|(name, _)| name == method).count()
    }

    pub(super) fn all_calls(&self) -> BTreeMap<&str, usize> {
        let mut counts = BTreeMap::new();
        for (name, _) in &self.calls {
            *counts.entry(name.as_str()).or_default() += 1;
        }
        counts
    }

    pub(super) fn parameters(&self, method: &str) -> Vec<Value> {
        let of_method = self.calls.iter().filter(|(name, _)| name == method);
        of_method
            .map(|(_, parameters)| parameters.clone())
            .collect()
    }

    pub(super) fn toasts(&self) -> &[Toast] {
        &self.toasts
    }

    pub(super) fn close_chat(&mut self, chat: i64) {
        self.closed.insert(chat);
    }

    pub(super) fn open_chat(&mut self, chat: i64) {
        self.closed.remove(&chat);
    }

    pub(super) fn is_closed(&self, chat: i64) -> bool {
        self.closed.contains(&chat)
    }

    pub(super) fn delete(&mut self, chat: i64, message: u64) {
        self.messages.remove(&(chat, message));
    }

    pub(super) fn message(&mut self, chat: i64, message: u64) -> Option<&mut Message> {
        self.messages.get_mut(&(chat, message))
    }

    /// Puts a message into a chat.
    pub(super) fn add(
        &mut self,
        chat: i64,
        sender: i64,
        text: &str,
        reply_to: Option<u64>,
    ) -> (u64, &mut Message) {
        let last = self.last_message.entry(chat).or_insert(0);
        *last += 1;
        let message = Message {
            sender,
            text: text.to_owned(),
            keyboard: None,
            asks_reply: false,
            reply_to,
            date: SystemClock.now().0 / 1_000,
        };
        (*last, self.messages.entry((chat, *last)).or_insert(message))
    }

    /// A message as the Bot API writes it.
    pub(super) fn as_json(&self, chat: i64, number: u64) -> Value {
        let Some(message) = self.messages.get(&(chat, number)) else {
            return json!({ "message_id": number, "date": 0, "chat": chat_json(chat) });
        };
        let mut value = json!({
            "message_id": number,
            "from": self.sender_json(message.sender),
            "chat": chat_json(chat),
            "date": message.date,
            "text": message.text,
        });
        if let Some(keyboard) = &message.keyboard {
            set(&mut value, "reply_markup", keyboard.clone());
        }
        if let Some(to) = message.reply_to {
            let mut replied = self.as_json(chat, to);
            // The Bot API shows one level of replies.
            if let Some(fields) = replied.as_object_mut() {
                fields.remove("reply_to_message");
            }
            set(&mut value, "reply_to_message", replied);
        }
        value
    }

    pub(super) fn sender_json(&self, sender: i64) -> Value {
        if sender == self.bot {
            json!({ "id": sender, "is_bot": true, "first_name": "Holdpoint", "username": "holdpoint_bot" })
        } else {
            json!({ "id": sender, "is_bot": false, "first_name": format!("Person {sender}") })
        }
    }

    pub(super) fn chat(&self, chat: i64) -> Vec<Shown> {
        let of_chat = self.messages.range((chat, 0)..=(chat, u64::MAX));
        of_chat
            .map(|(&(_, number), message)| Shown {
                message: number,
                sender: message.sender,
                text: message.text.clone(),
                buttons: buttons(message)
                    .into_iter()
                    .map(|row| row.into_iter().map(|(text, _)| text).collect())
                    .collect(),
                reply_to: message.reply_to,
                asks_reply: message.asks_reply,
            })
            .collect()
    }

    pub(super) fn chats(&self) -> Vec<i64> {
        self.last_message.keys().copied().collect()
    }

    /// The newest message of a chat that a person could press or reply to, if no number was given.
    pub(super) fn newest(&self, chat: i64, mut fits: impl FnMut(&Shown) -> bool) -> Option<u64> {
        let shown = self.chat(chat);
        shown
            .iter()
            .rev()
            .find(|shown| fits(shown))
            .map(|shown| shown.message)
    }

    pub(super) fn press(
        &mut self,
        user: i64,
        chat: i64,
        message: u64,
        button: &str,
    ) -> Result<String, WorldError> {
        let shown = self
            .messages
            .get(&(chat, message))
            .ok_or(WorldError::NoMessage)?;
        let data = buttons(shown)
            .into_iter()
            .flatten()
            .find(|(text, data)| text == button || data == button)
            .map(|(_, data)| data)
            .ok_or(WorldError::NoButton)?;
        self.press_data(user, chat, message, &data)
    }

    pub(super) fn press_data(
        &mut self,
        user: i64,
        chat: i64,
        message: u64,
        data: &str,
    ) -> Result<String, WorldError> {
        if !self.messages.contains_key(&(chat, message)) {
            return Err(WorldError::NoMessage);
        }
        let press = format!("{}", 4_000_000 + self.presses.len());
        self.presses.insert(press.clone());
        let query = json!({
            "id": press,
            "from": self.sender_json(user),
            "message": self.as_json(chat, message),
            "chat_instance": "1",
            "data": data,
        });
        self.inject(json!({ "callback_query": query }));
        Ok(press)
    }

    pub(super) fn write(
        &mut self,
        user: i64,
        chat: i64,
        text: &str,
        to: Option<u64>,
    ) -> Result<u64, WorldError> {
        if to.is_some_and(|to| !self.messages.contains_key(&(chat, to))) {
            return Err(WorldError::NoMessage);
        }
        let (number, _) = self.add(chat, user, text, to);
        let message = self.as_json(chat, number);
        self.inject(json!({ "message": message }));
        Ok(number)
    }

    pub(super) fn inject(&mut self, mut update: Value) -> u64 {
        let given = update.get("update_id").and_then(Value::as_u64);
        let id = given.unwrap_or(self.next_update);
        set(&mut update, "update_id", id.into());
        self.next_update = self.next_update.max(id.saturating_add(1));
        let is_wanted = self.allowed.as_ref().is_none_or(|allowed| {
            allowed
                .iter()
                .any(|kind| update.get(kind.as_str()).is_some())
        });
        if is_wanted {
            self.waiting.push(Queued { id, update });
        }
        id
    }

    /// The bot wants only these kinds from now on.
    pub(super) fn allow(&mut self, kinds: Vec<String>) {
        // An empty list means every kind.
        self.allowed = (!kinds.is_empty()).then_some(kinds);
    }

    /// The bot is done with all updates before `offset`.
    pub(super) fn confirm(&mut self, offset: u64) {
        let (done, waiting) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|queued: &Queued| queued.id < offset);
        self.waiting = waiting;
        self.done.extend::<Vec<_>>(done);
    }

    pub(super) fn has_updates(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub(super) fn updates(&self, limit: usize) -> Vec<Value> {
        let first = self.waiting.iter().take(limit);
        first.map(|queued| queued.update.clone()).collect()
    }

    pub(super) fn past_updates(&self) -> Vec<Value> {
        self.done
            .iter()
            .map(|queued| queued.update.clone())
            .collect()
    }

    /// Tells the person who pressed; false if there was no such press.
    pub(super) fn tell(&mut self, callback: &str, text: &str) -> bool {
        let is_known = self.presses.contains(callback);
        if is_known {
            self.toasts.push(Toast {
                callback: callback.to_owned(),
                text: text.to_owned(),
            });
        }
        is_known
    }
}

fn chat_json(chat: i64) -> Value {
    if chat < 0 {
        json!({ "id": chat, "type": "supergroup", "title": format!("Group {chat}") })
    } else {
        json!({ "id": chat, "type": "private", "first_name": format!("Person {chat}") })
    }
}

fn set(value: &mut Value, name: &str, field: Value) {
    if let Some(fields) = value.as_object_mut() {
        fields.insert(name.to_owned(), field);
    }
}

/// The buttons of a message: text and what they carry, row by row.
fn buttons(message: &Message) -> Vec<Vec<(String, String)>> {
    let rows = message
        .keyboard
        .as_ref()
        .and_then(|keyboard| keyboard.get("inline_keyboard"))
        .and_then(Value::as_array);
    let text = |button: &Value, name: &str| {
        button
            .get(name)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let row = |row: &Value| {
        let row = row.as_array().map(Vec::as_slice).unwrap_or_default();
        row.iter()
            .map(|button| (text(button, "text"), text(button, "callback_data")))
            .collect()
    };
    rows.map(|rows| rows.iter().map(row).collect())
        .unwrap_or_default()
}
