//! The methods of the Bot API: what they check, do and answer, and the faults that were asked for.
//!
//! Not here: how a request came in, and what people do.

use std::time::Duration;

use serde_json::{Value, json};

use super::fault::Fault;
use super::http::{Answer, Request};
use super::markup::{self, Below};
use super::{Shared, World};

/// The longest that a poll is held open, in seconds.
const POLL_S_MAX: u64 = 50;

/// How long an acknowledgement may be, in UTF-16 code units.
const TOAST_UNITS_MAX: usize = 200;

/// The method that a path names, and the token in it.
#[derive(Debug)]
pub(super) struct Method {
    pub(super) name: String,
    token: String,
}

/// Reads `/bot<token>/<method>`.
pub(super) fn method_of(path: &str) -> Option<Method> {
    let (token, name) = path.strip_prefix("/bot")?.split_once('/')?;
    Some(Method {
        name: name.to_owned(),
        token: token.to_owned(),
    })
}

/// A refusal of the Bot API: its code and its words.
struct Refusal(u16, String);

impl From<String> for Refusal {
    fn from(words: String) -> Self {
        Self(400, format!("Bad Request: {words}"))
    }
}

impl Refusal {
    fn answer(self) -> Answer {
        let Self(status, description) = self;
        Answer::json(
            status,
            &json!({ "ok": false, "error_code": status, "description": description }),
        )
    }
}

/// Answers one call, in the way of `fault` if there is one.
pub(super) fn answer(
    shared: &Shared,
    method: &Method,
    fault: Option<&Fault>,
    request: &Request,
) -> Answer {
    let parameters = request.parameters();
    let healed = {
        let mut world = shared.world();
        world.note(&method.name, parameters.clone().unwrap_or(Value::Null));
        world.faults.healed(&method.name)
    };
    shared.changed.notify_all();
    if method.token != shared.token.expose() {
        return Refusal(401, "Unauthorized".to_owned()).answer();
    }
    if let Some(fault) = fault
        && !fault.is_done()
    {
        return undone(fault);
    }
    let Some(parameters) = parameters else {
        return Refusal::from("can't parse parameters".to_owned()).answer();
    };
    let result = match method.name.as_str() {
        "getMe" => get_me(shared, &parameters),
        "getUpdates" => get_updates(shared, &parameters, fault),
        "sendMessage" => send_message(shared, &parameters),
        "editMessageReplyMarkup" => edit_reply_markup(shared, &parameters),
        "answerCallbackQuery" => answer_callback_query(shared, &parameters),
        _ => Err(Refusal(404, "Not Found".to_owned())),
    };
    shared.changed.notify_all();
    let result = match result {
        Ok(result) => result,
        Err(refusal) => return refusal.answer(),
    };
    done(
        shared,
        method,
        fault,
        healed,
        &json!({ "ok": true, "result": result }),
    )
}

fn undone(fault: &Fault) -> Answer {
    match fault {
        Fault::Refused(status) => {
            let description = match status {
                401 => "Unauthorized",
                403 => "Forbidden: bot was blocked by the user",
                404 => "Not Found",
                409 => {
                    "Conflict: terminated by other getUpdates request; make sure that only one bot instance is running"
                }
                _ => "Bad Request: as a test asked for",
            };
            Refusal(*status, description.to_owned()).answer()
        }
        Fault::RefusedOk => Answer::json(
            200,
            &json!({ "ok": false, "error_code": 400, "description": "Bad Request: as a test asked for" }),
        ),
        Fault::RetryAfter(seconds) => Answer::json(
            429,
            &json!({
                "ok": false, "error_code": 429,
                "description": format!("Too Many Requests: retry after {seconds}"),
                "parameters": { "retry_after": seconds },
            }),
        ),
        _ => Answer::Close,
    }
}

fn done(
    shared: &Shared,
    method: &Method,
    fault: Option<&Fault>,
    healed: u64,
    body: &Value,
) -> Answer {
    match fault {
        None | Some(Fault::Doubled | Fault::Reversed | Fault::Again) => Answer::json(200, body),
        // The provider's own failure is JSON, that of a server before it a page for people.
        Some(Fault::Server(500)) => Answer::json(
            500,
            &json!({ "ok": false, "error_code": 500, "description": "Internal Server Error" }),
        ),
        Some(Fault::Server(503)) => Answer::json(503, &json!({ "ok": false })),
        Some(Fault::Server(status)) => {
            Answer::Whole(*status, "text/html", b"<html>Bad Gateway</html>".to_vec())
        }
        Some(Fault::HalfBody) => {
            Answer::Half(200, "application/json", body.to_string().into_bytes())
        }
        Some(Fault::Unreadable) => Answer::Whole(200, "application/json", b"{\"ok\":tr".to_vec()),
        Some(Fault::WithoutId) => Answer::json(200, &json!({ "ok": true, "result": {} })),
        Some(Fault::Late(delay)) => {
            shared.wait(*delay, |_| false);
            Answer::json(200, body)
        }
        Some(Fault::Hold) => {
            shared.wait(Duration::MAX, |world| {
                healed < world.faults.healed(&method.name)
            });
            Answer::json(200, body)
        }
        // Those that are not done were answered before.
        Some(
            Fault::CloseDone
            | Fault::CloseUndone
            | Fault::CloseBeforeBody
            | Fault::Refused(_)
            | Fault::RefusedOk
            | Fault::RetryAfter(_),
        ) => Answer::Close,
    }
}

/// Refuses a parameter that the method does not have.
fn only(parameters: &Value, names: &[&str]) -> Result<(), Refusal> {
    let fields = parameters.as_object().into_iter().flatten();
    match fields
        .map(|(name, _)| name)
        .find(|name| !names.contains(&name.as_str()))
    {
        Some(name) => Err(format!("unknown parameter {name}").into()),
        None => Ok(()),
    }
}

fn chat(parameters: &Value) -> Result<i64, Refusal> {
    match parameters.get("chat_id") {
        None | Some(Value::Null) => Err("chat_id is empty".to_owned().into()),
        Some(id) => id
            .as_i64()
            .or_else(|| id.as_str()?.parse().ok())
            .ok_or_else(|| "chat not found".to_owned().into()),
    }
}

fn get_me(shared: &Shared, parameters: &Value) -> Result<Value, Refusal> {
    only(parameters, &[])?;
    let world = shared.world();
    let mut me = world.sender_json(world.bot);
    if let Some(fields) = me.as_object_mut() {
        for (name, holds) in [
            ("can_join_groups", true),
            ("can_read_all_group_messages", false),
            ("supports_inline_queries", false),
            ("can_connect_to_business", false),
            ("has_main_web_app", false),
        ] {
            fields.insert(name.to_owned(), holds.into());
        }
    }
    Ok(me)
}

fn get_updates(
    shared: &Shared,
    parameters: &Value,
    fault: Option<&Fault>,
) -> Result<Value, Refusal> {
    only(
        parameters,
        &["offset", "limit", "timeout", "allowed_updates"],
    )?;
    let number = |name: &str, default: u64| match parameters.get(name) {
        None | Some(Value::Null) => Ok(default),
        Some(value) => value
            .as_u64()
            .ok_or_else(|| Refusal::from(format!("{name} must be a non-negative Integer here"))),
    };
    let limit = usize::try_from(number("limit", 100)?).unwrap_or(100);
    if !(1..=100).contains(&limit) {
        return Err("limit must be from 1 to 100".to_owned().into());
    }
    let offset = number("offset", 0)?;
    let wait = Duration::from_secs(number("timeout", 0)?.min(POLL_S_MAX));
    let kinds = match parameters.get("allowed_updates") {
        None | Some(Value::Null) => None,
        Some(kinds) => match serde_json::from_value::<Vec<String>>(kinds.clone()) {
            Ok(kinds) => Some(kinds),
            Err(_) => return Err("can't parse allowed updates".to_owned().into()),
        },
    };
    let this_poll = {
        let mut world = shared.world();
        if let Some(kinds) = kinds {
            world.allow(kinds);
        }
        world.confirm(offset);
        world.polls += 1;
        world.polls
    };
    // Whoever polls beside this one is told so.
    shared.changed.notify_all();
    let brings_past = fault == Some(&Fault::Again);
    shared.wait(wait, |world| {
        world.has_updates() || world.polls != this_poll || brings_past
    });
    let world = shared.world();
    if world.polls != this_poll {
        let words = "Conflict: terminated by other getUpdates request; make sure that only one bot instance is running";
        return Err(Refusal(409, words.to_owned()));
    }
    let mut updates = world.updates(limit);
    match fault {
        Some(Fault::Doubled) => {
            updates = updates
                .iter()
                .flat_map(|update| [update.clone(), update.clone()])
                .collect();
        }
        Some(Fault::Reversed) => updates.reverse(),
        Some(Fault::Again) => updates.extend(world.past_updates()),
        _ => {}
    }
    Ok(Value::Array(updates))
}

fn send_message(shared: &Shared, parameters: &Value) -> Result<Value, Refusal> {
    only(
        parameters,
        &[
            "chat_id",
            "text",
            "parse_mode",
            "entities",
            "link_preview_options",
            "disable_notification",
            "protect_content",
            "reply_parameters",
            "reply_markup",
        ],
    )?;
    let chat = chat(parameters)?;
    let text = markup::text(parameters)?;
    let below = markup::below(parameters)?;
    let mut world = shared.world();
    open(&world, chat)?;
    let reply_to = reply_to(&mut world, chat, parameters)?;
    let bot = world.bot;
    let (number, message) = world.add(chat, bot, &text, reply_to);
    match below {
        Below::Nothing => {}
        Below::Keyboard(keyboard) => message.keyboard = Some(keyboard),
        Below::ForceReply => message.asks_reply = true,
    }
    Ok(world.as_json(chat, number))
}

/// The message that a new one replies to.
fn reply_to(world: &mut World, chat: i64, parameters: &Value) -> Result<Option<u64>, Refusal> {
    let Some(reply) = parameters
        .get("reply_parameters")
        .filter(|value| !value.is_null())
    else {
        return Ok(None);
    };
    only(reply, &["message_id", "allow_sending_without_reply"])?;
    let number = reply
        .get("message_id")
        .and_then(Value::as_u64)
        .ok_or_else(|| Refusal::from("can't parse reply parameters".to_owned()))?;
    if world.message(chat, number).is_some() {
        return Ok(Some(number));
    }
    if reply.get("allow_sending_without_reply") == Some(&Value::Bool(true)) {
        return Ok(None);
    }
    Err("message to be replied not found".to_owned().into())
}

fn open(world: &World, chat: i64) -> Result<(), Refusal> {
    if world.is_closed(chat) {
        return Err("chat not found".to_owned().into());
    }
    Ok(())
}

fn edit_reply_markup(shared: &Shared, parameters: &Value) -> Result<Value, Refusal> {
    only(parameters, &["chat_id", "message_id", "reply_markup"])?;
    let chat = chat(parameters)?;
    let keyboard = match markup::below(parameters)? {
        Below::Nothing => None,
        Below::Keyboard(keyboard) => Some(keyboard),
        Below::ForceReply => return Err("message can't be edited".to_owned().into()),
    };
    let number = parameters
        .get("message_id")
        .and_then(Value::as_u64)
        .ok_or_else(|| Refusal::from("message identifier is not specified".to_owned()))?;
    let mut world = shared.world();
    open(&world, chat)?;
    let bot = world.bot;
    let message = world
        .message(chat, number)
        .ok_or_else(|| Refusal::from("message to edit not found".to_owned()))?;
    if message.sender != bot {
        return Err("message can't be edited".to_owned().into());
    }
    if message.keyboard == keyboard {
        let words = "message is not modified: specified new message content and reply markup are exactly the same as a current content and reply markup of the message";
        return Err(words.to_owned().into());
    }
    message.keyboard = keyboard;
    Ok(world.as_json(chat, number))
}

fn answer_callback_query(shared: &Shared, parameters: &Value) -> Result<Value, Refusal> {
    only(
        parameters,
        &[
            "callback_query_id",
            "text",
            "show_alert",
            "url",
            "cache_time",
        ],
    )?;
    let words = |name: &str| {
        parameters
            .get(name)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let text = words("text");
    if TOAST_UNITS_MAX < text.encode_utf16().count() {
        return Err("MESSAGE_TOO_LONG".to_owned().into());
    }
    if !shared.world().tell(words("callback_query_id"), text) {
        let words = "query is too old and response timeout expired or query ID is invalid";
        return Err(words.to_owned().into());
    }
    Ok(Value::Bool(true))
}
