//! The server that plays the Bot API: what it says and takes is read by another crate's types, and it can be used by hand.

use std::fmt::Write as _;
use std::process::Command;

use frankenstein::methods::{
    AnswerCallbackQueryParams, EditMessageReplyMarkupParams, GetUpdatesParams, SendMessageParams,
};
use frankenstein::types::{ChatId, Message, ReplyMarkup, User};
use frankenstein::updates::{Update, UpdateContent};
use holdpoint_channels::dev_server::{DevServer, Fault, WorldError};
use holdpoint_channels::telegram::api::{Button, Event, Markup};
use holdpoint_channels::telegram::{Client, Patience};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{CHAT, Result, USER, token};

fn client(server: &DevServer) -> Client {
    let patience = Patience {
        poll_s: 0,
        ..Patience::default()
    };
    Client::new(server.base(), token(), patience)
}

fn buttons(labels: &[&str]) -> Markup {
    let button = |label: &&str| Button {
        text: (*label).to_owned(),
        data: format!("pw:{label}"),
    };
    Markup::Buttons(labels.iter().map(button).collect())
}

/// Calls a method without our client and reads its result with types that are not ours.
fn call<T: DeserializeOwned>(server: &DevServer, method: &str, parameters: &Value) -> Result<T> {
    let url = format!("{}/bot1000:test-token/{method}", server.url());
    let mut response = ureq::post(url.as_str())
        .header("content-type", "application/json")
        .send(parameters.to_string())?;
    let mut answer: Value = serde_json::from_str(&response.body_mut().read_to_string()?)?;
    let result = answer.get_mut("result").map(Value::take);
    Ok(serde_json::from_value(result.unwrap_or_default())?)
}

#[test]
fn another_crate_reads_what_our_client_sends() -> Result {
    let server = DevServer::start(&token())?;
    let client = client(&server);
    let first = client.send_message("-100200", "Ship <b>it</b>?", &buttons(&["Go", "Redo"]))?;
    client.send_message("100", "Why?", &Markup::ForceReply)?;
    client.remove_buttons("-100200", first)?;
    let press = server.press_data(USER, CHAT, 1, "pw:x")?;
    client.answer_callback(&press, "Received.")?;
    client.get_updates(7)?;

    let sent: Vec<SendMessageParams> = server
        .parameters("sendMessage")
        .into_iter()
        .map(serde_json::from_value)
        .collect::<std::result::Result<_, _>>()?;
    assert_eq!(sent[0].chat_id, ChatId::Integer(-100_200));
    assert_eq!(
        (sent[0].text.as_str(), sent[0].parse_mode),
        ("Ship <b>it</b>?", None)
    );
    let Some(ReplyMarkup::InlineKeyboardMarkup(keyboard)) = &sent[0].reply_markup else {
        panic!("{:?}", sent[0].reply_markup);
    };
    assert_eq!(keyboard.inline_keyboard.len(), 2, "one row for each choice");
    assert_eq!(
        keyboard.inline_keyboard[1][0].callback_data.as_deref(),
        Some("pw:Redo")
    );
    assert!(
        matches!(&sent[1].reply_markup, Some(ReplyMarkup::ForceReply(force)) if force.selective == Some(true))
    );

    let one = |method: &str| server.parameters(method).remove(0);
    let edit: EditMessageReplyMarkupParams = serde_json::from_value(one("editMessageReplyMarkup"))?;
    assert_eq!(
        edit.reply_markup.map(|markup| markup.inline_keyboard.len()),
        Some(0)
    );
    let told: AnswerCallbackQueryParams = serde_json::from_value(one("answerCallbackQuery"))?;
    assert_eq!(
        (told.callback_query_id, told.text.as_deref()),
        (press, Some("Received."))
    );
    let poll: GetUpdatesParams = serde_json::from_value(one("getUpdates"))?;
    assert_eq!((poll.offset, poll.limit), (Some(7), Some(20)));
    assert_eq!(poll.allowed_updates.map(|kinds| kinds.len()), Some(2));
    Ok(())
}

#[test]
fn another_crate_reads_what_the_server_says() -> Result {
    let server = DevServer::start(&token())?;
    let me: User = call(&server, "getMe", &serde_json::json!({}))?;
    assert!(me.is_bot && me.id == 1_000);
    let keyboard =
        serde_json::json!({"inline_keyboard": [[{"text": "Go", "callback_data": "pw:go"}]]});
    let shown: Message = call(
        &server,
        "sendMessage",
        &serde_json::json!({"chat_id": -100, "text": "Ship it?", "reply_markup": keyboard}),
    )?;
    assert_eq!(
        (shown.message_id, shown.text.as_deref()),
        (1, Some("Ship it?"))
    );
    server.press(USER, -100, 1, "Go")?;
    server.reply(USER, -100, 1, "because")?;
    let updates: Vec<Update> = call(&server, "getUpdates", &serde_json::json!({"offset": 0}))?;
    let UpdateContent::CallbackQuery(pressed) = &updates[0].content else {
        panic!("{updates:?}");
    };
    assert_eq!(
        (pressed.from.id, pressed.data.as_deref()),
        (100, Some("pw:go"))
    );
    let UpdateContent::Message(written) = &updates[1].content else {
        panic!("{updates:?}");
    };
    let to = written.reply_to_message.as_ref().unwrap();
    assert_eq!(
        (to.message_id, to.from.as_ref().map(|from| from.is_bot)),
        (1, Some(true))
    );
    Ok(())
}

#[test]
fn our_client_reads_the_same() -> Result {
    let server = DevServer::start(&token())?;
    let client = client(&server);
    // The first poll says which kinds are wanted.
    assert_eq!(client.get_updates(0)?, []);
    client.send_message("-100", "Ship it?", &buttons(&["Go"]))?;
    let press = server.press(USER, -100, 1, "Go")?;
    server.reply(USER, -100, 1, "  because \n")?;
    server.say(USER, -100, "yes");
    server.inject(serde_json::json!({"poll_answer": {}}));
    let updates = client.get_updates(0)?;
    let ids: Vec<_> = updates.iter().map(|update| update.id).collect();
    // `poll_answer` is none of them.
    assert_eq!(ids, [1_000, 1_001, 1_002]);
    assert!(
        matches!(&updates[0].event, Event::Callback(pressed) if pressed.id == press && pressed.data == "pw:Go")
    );
    assert!(matches!(&updates[1].event, Event::Reply(reply)
        if reply.text == "  because \n" && reply.to.is_bot && reply.to.sender == 1_000 && reply.to.text == "Ship it?"));
    assert_eq!(
        updates[2].event,
        Event::Other,
        "a message that replies to nothing"
    );
    // What the bot is done with does not come again.
    assert_eq!(client.get_updates(1_003)?, []);
    assert_eq!(client.get_updates(0)?, []);
    Ok(())
}

#[test]
fn updates_come_doubled_reversed_and_again_when_asked_to() -> Result {
    let server = DevServer::start(&token())?;
    let client = client(&server);
    let write = |text| server.say(USER, CHAT, text);
    let raw = |fault: Option<Fault>, offset: u64| -> Result<Vec<u64>> {
        if let Some(fault) = fault {
            server.fail("getUpdates", fault);
        }
        let updates: Vec<Value> = call(
            &server,
            "getUpdates",
            &serde_json::json!({"offset": offset}),
        )?;
        Ok(updates
            .iter()
            .filter_map(|update| update["update_id"].as_u64())
            .collect())
    };
    write("a");
    write("b");
    assert_eq!(raw(Some(Fault::Doubled), 0)?, [1_000, 1_000, 1_001, 1_001]);
    assert_eq!(raw(Some(Fault::Reversed), 0)?, [1_001, 1_000]);
    // Our client puts them in order.
    server.fail("getUpdates", Fault::Reversed);
    let ids: Vec<_> = client
        .get_updates(0)?
        .iter()
        .map(|update| update.id)
        .collect();
    assert_eq!(ids, [1_000, 1_001]);
    assert_eq!(raw(Some(Fault::Again), 1_001)?, [1_001, 1_000]);
    assert_eq!(raw(None, 1_001)?, [1_001]);
    Ok(())
}

#[test]
fn a_person_can_only_press_what_is_shown() -> Result {
    let server = DevServer::start(&token())?;
    let client = client(&server);
    assert_eq!(
        server.press(USER, CHAT, 1, "Go"),
        Err(WorldError::NoMessage)
    );
    let id = client.send_message("100", "Ship it?", &buttons(&["Go"]))?;
    assert_eq!(
        server.press(USER, CHAT, id, "Stop"),
        Err(WorldError::NoButton)
    );
    server.press(USER, CHAT, id, "pw:Go")?;
    client.remove_buttons("100", id)?;
    assert_eq!(
        server.press(USER, CHAT, id, "Go"),
        Err(WorldError::NoButton)
    );
    Ok(())
}

#[test]
fn a_call_that_the_provider_refuses_is_refused() -> Result {
    let server = DevServer::start(&token())?;
    let mut table = String::new();
    for (method, parameters) in [
        ("sendMessage", r#"{"text":"x"}"#),
        ("sendMessage", r#"{"chat_id":100}"#),
        ("sendMessage", r#"{"chat_id":"nobody","text":"x"}"#),
        (
            "sendMessage",
            r#"{"chat_id":100,"text":"x","parse_mod":"HTML"}"#,
        ),
        (
            "sendMessage",
            r#"{"chat_id":100,"text":"<x>","parse_mode":"HTML"}"#,
        ),
        ("sendMessage", "[]"),
        (
            "editMessageReplyMarkup",
            r#"{"chat_id":100,"message_id":9}"#,
        ),
        (
            "answerCallbackQuery",
            r#"{"callback_query_id":"1","text":"x"}"#,
        ),
        ("getUpdates", r#"{"limit":0}"#),
        ("deleteEverything", "{}"),
    ] {
        let url = format!("{}/bot1000:test-token/{method}", server.url());
        let agent: ureq::Agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .build()
            .into();
        let mut response = agent
            .post(url.as_str())
            .header("content-type", "application/json")
            .send(parameters)?;
        let status = response.status().as_u16();
        let body = response.body_mut().read_to_string()?;
        write!(table, "{method} {parameters}\n  {status} {body}\n")?;
    }
    insta::assert_snapshot!(table);
    Ok(())
}

#[test]
fn its_help_can_be_pasted_into_a_shell() -> Result {
    let server = DevServer::start(&token())?;
    let url = server.url();
    let mut more = ureq::get(format!("{url}/dev/").as_str()).call()?;
    let more = more.body_mut().read_to_string()?;
    assert!(more.starts_with(&server.help()), "{more}");
    insta::assert_snapshot!(more.replace(&url, "http://127.0.0.1:PORT"));
    Ok(())
}

/// What the help says, typed into a shell. Skipped where there is no curl.
#[test]
#[expect(
    clippy::too_many_lines,
    reason = "a transcript is read from top to bottom"
)]
fn it_can_be_used_by_hand() -> Result {
    if Command::new("curl").arg("--version").output().is_err() {
        return Ok(());
    }
    let server = DevServer::start(&token())?;
    let client = client(&server);
    client.send_message("100", "Ship it?\nfive & <six>", &buttons(&["Go", "Redo"]))?;
    client.send_message("100", "Why?\nReply token: x", &Markup::ForceReply)?;
    let curl = |arguments: &[&str]| -> Result<String> {
        let mut arguments: Vec<_> = arguments.iter().map(|word| (*word).to_owned()).collect();
        arguments[0] = format!("{}{}", server.url(), arguments[0]);
        let ran = Command::new("curl")
            .args(["-sS", "--max-time", "20"])
            .args(&arguments)
            .output()?;
        Ok(String::from_utf8(ran.stdout)? + &String::from_utf8(ran.stderr)?)
    };
    let mut transcript = String::new();
    for arguments in [
        &["/dev/chat?chat=100"][..],
        &[
            "/dev/press",
            "-d",
            "user=100",
            "-d",
            "chat=100",
            "-d",
            "button=Go",
        ],
        &[
            "/dev/reply",
            "-d",
            "user=100",
            "-d",
            "chat=100",
            "--data-urlencode",
            "text=because & why",
        ],
        &[
            "/dev/press",
            "-d",
            "user=100",
            "-d",
            "chat=100",
            "-d",
            "button=Stop",
        ],
        &[
            "/dev/press",
            "-d",
            "user=x",
            "-d",
            "chat=100",
            "-d",
            "button=Go",
        ],
        &[
            "/dev/say",
            "-d",
            "user=100",
            "-d",
            "chat=100",
            "-d",
            "text=hello+there",
        ],
        &[
            "/dev/fault",
            "-d",
            "method=sendMessage",
            "-d",
            "kind=retry-after",
            "-d",
            "value=7",
        ],
        &[
            "/dev/fault",
            "-d",
            "method=sendMessage",
            "-d",
            "kind=explode",
        ],
        &[
            "/bot1000:test-token/sendMessage",
            "-d",
            "chat_id=100",
            "-d",
            "text=x",
        ],
        &["/dev/calls"],
        &["/dev/chat"],
        &["/dev/chat?chat=100"],
        &["/nowhere"],
    ] {
        write!(
            transcript,
            "$ curl {}\n{}\n",
            arguments.join(" "),
            curl(arguments)?
        )?;
    }
    insta::assert_snapshot!(transcript);
    assert_eq!(client.get_updates(0)?.len(), 3);
    Ok(())
}
