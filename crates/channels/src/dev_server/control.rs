//! Plays people over HTTP, for another terminal: every path is under `/dev/`, names come as a query or a form.
//!
//! Not here: the Bot API. A bot has no business here, and people none there.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::json;

use super::http::{Answer, Request};
use super::world::{Shown, World};
use super::{Fault, Shared, TOKEN};

/// What a person at a terminal has to know.
pub(super) fn help(url: &str) -> String {
    format!(
        "The Bot API, played at {url}
Token: {TOKEN} (any chat and any user will do)

From another terminal:
  # What a person sees.
  curl '{url}/dev/chat?chat=100'
  # Press a button of the newest message.
  curl '{url}/dev/press' -d user=100 -d chat=100 -d button=Go
  # Reply to the newest prompt.
  curl '{url}/dev/reply' -d user=100 -d chat=100 --data-urlencode 'text=because'
  # Write a message.
  curl '{url}/dev/say' -d user=100 -d chat=100 -d text=hello
  # Let the next call fail.
  curl '{url}/dev/fault' -d method=sendMessage -d kind=retry-after -d value=7
  # Count the calls of the bot.
  curl '{url}/dev/calls'
  # All of this again, and more.
  curl '{url}/dev/'
"
    )
}

const MORE: &str = "
Add -d message=N to press or reply to an older message; /dev/press takes a button's text or its data.
/dev/heal -d method=M ends the faults of a method; /dev/toasts shows what people were told on pressing.
Kinds of faults: refused N, refused-ok, retry-after N, server N, close-before-body, close-undone, close-done,
half-body, unreadable, without-id, late MS, hold; of getUpdates: doubled, reversed, again.
";

/// Why a person's wish can't be met, as one line of text.
struct No(u16, String);

fn no<T>(words: impl Into<String>) -> Result<T, No> {
    Err(No(400, words.into()))
}

/// Answers a path under `/dev/`, and says where to look for any other.
pub(super) fn answer(shared: &Shared, request: &Request) -> Answer {
    let named = request.named();
    let outcome = match (request.head.method.as_str(), request.head.path.as_str()) {
        ("GET", "/dev" | "/dev/") => Ok(help(&shared.url) + MORE),
        ("GET", "/dev/chat") => see(shared, &named),
        ("GET", "/dev/calls") => Ok(line(&json!(shared.world().all_calls()))),
        ("GET", "/dev/toasts") => {
            let world = shared.world();
            let told = world.toasts().iter();
            let lines = told.map(|toast| [&toast.callback, ": ", &toast.text, "\n"].concat());
            Ok(lines.collect())
        }
        ("POST", "/dev/press") => press(shared, &named),
        ("POST", "/dev/reply") => reply(shared, &named),
        ("POST", "/dev/say") => say(shared, &named),
        ("POST", "/dev/fault") => fail(shared, &named),
        ("POST", "/dev/heal") => text(&named, "method").map(|method| {
            shared.world().faults.clear(method);
            String::new()
        }),
        _ => Err(No(
            404,
            "Not found. See /dev/ for what there is.".to_owned(),
        )),
    };
    shared.changed.notify_all();
    match outcome {
        Ok(text) => Answer::text(200, text),
        Err(No(status, words)) => Answer::text(status, words + "\n"),
    }
}

type Named = BTreeMap<String, String>;

fn text<'a>(named: &'a Named, name: &str) -> Result<&'a str, No> {
    named
        .get(name)
        .map(String::as_str)
        .ok_or_else(|| No(400, format!("{name} is missing")))
}

fn number<T: std::str::FromStr>(named: &Named, name: &str) -> Result<T, No> {
    let wrong = |_| No(400, format!("{name} is not a number that it may be"));
    text(named, name)?.parse().map_err(wrong)
}

/// The message that was named, or the newest that fits.
fn message(
    world: &World,
    named: &Named,
    chat: i64,
    fits: impl FnMut(&Shown) -> bool,
) -> Result<u64, No> {
    if named.contains_key("message") {
        return number(named, "message");
    }
    match world.newest(chat, fits) {
        Some(message) => Ok(message),
        None => no("no message of that chat fits"),
    }
}

fn press(shared: &Shared, named: &Named) -> Result<String, No> {
    let (user, chat) = (number(named, "user")?, number(named, "chat")?);
    let button = text(named, "button")?;
    let mut world = shared.world();
    let message = message(&world, named, chat, |shown| !shown.buttons.is_empty())?;
    match world.press(user, chat, message, button) {
        Ok(press) => Ok(format!("pressed, as {press}\n")),
        Err(wrong) => no(wrong.to_string()),
    }
}

fn reply(shared: &Shared, named: &Named) -> Result<String, No> {
    let (user, chat) = (number(named, "user")?, number(named, "chat")?);
    let text = text(named, "text")?;
    let mut world = shared.world();
    let to = message(&world, named, chat, |shown| shown.asks_reply)?;
    match world.write(user, chat, text, Some(to)) {
        Ok(number) => Ok(format!("written, as message {number}\n")),
        Err(wrong) => no(wrong.to_string()),
    }
}

fn say(shared: &Shared, named: &Named) -> Result<String, No> {
    let (user, chat) = (number(named, "user")?, number(named, "chat")?);
    match shared.world().write(user, chat, text(named, "text")?, None) {
        Ok(number) => Ok(format!("written, as message {number}\n")),
        Err(wrong) => no(wrong.to_string()),
    }
}

fn fail(shared: &Shared, named: &Named) -> Result<String, No> {
    let value = if named.contains_key("value") {
        Some(number(named, "value")?)
    } else {
        None
    };
    let Some(fault) = Fault::from_text(text(named, "kind")?, value) else {
        return no("no such kind of fault, or its value is missing; see /dev/");
    };
    shared.world().faults.push(text(named, "method")?, fault);
    Ok(String::new())
}

fn see(shared: &Shared, named: &Named) -> Result<String, No> {
    let world = shared.world();
    if !named.contains_key("chat") {
        return Ok(line(&json!({ "chats": world.chats() })));
    }
    let mut page = String::new();
    for shown in world.chat(number(named, "chat")?) {
        let who = if shown.sender == world.bot {
            "the bot".to_owned()
        } else {
            format!("user {}", shown.sender)
        };
        let to = shown
            .reply_to
            .map(|to| format!(", in reply to {to}"))
            .unwrap_or_default();
        let _written = writeln!(page, "-- {} from {who}{to}", shown.message);
        let _written = writeln!(page, "{}", shown.text);
        for row in &shown.buttons {
            let row: Vec<_> = row.iter().map(|button| format!("[ {button} ]")).collect();
            let _written = writeln!(page, "{}", row.join(" "));
        }
        if shown.asks_reply {
            page.push_str("(asks for a reply)\n");
        }
    }
    Ok(page)
}

fn line(value: &serde_json::Value) -> String {
    format!("{value}\n")
}
