//! What people do: section 8 of the channels reference, from the side of the child.

use std::collections::BTreeMap;

use holdpoint_channels::dev_server::{DevServer, Fault};
use holdpoint_channels::protocol::{AnswerOutcome, OpenRequest, Order, Report, Response, Token};
use holdpoint_channels::telegram::BotToken;
use serde_json::json;
use zeroize::Zeroizing;

use crate::host::{Host, draft, launch, request, request_of};
use crate::{CHAT, Result, USER, token};

/// A child that has shown one request in the chat, as message 1.
struct Shown {
    server: DevServer,
    host: Host,
    open: OpenRequest,
}

fn shown() -> Result<Shown> {
    let server = DevServer::start(&token())?;
    let mut host = Host::start(&server)?;
    let request = request(&[]);
    host.present(&request, &[])?;
    Ok(Shown {
        server,
        host,
        open: OpenRequest::of(&request),
    })
}

impl Shown {
    fn poll(
        &mut self,
        cursor: u64,
    ) -> Result<(Vec<holdpoint_channels::protocol::AnswerReport>, u64)> {
        self.host.poll(cursor, std::slice::from_ref(&self.open))
    }

    fn toasts(&self) -> Vec<String> {
        self.server
            .toasts()
            .into_iter()
            .map(|toast| toast.text)
            .collect()
    }

    /// Presses the choice that asks for a text, and gives the number of the prompt.
    fn prompted(&mut self, cursor: u64) -> Result<(u64, u64)> {
        self.server.press(USER, CHAT, 1, "Redo")?;
        let (answers, cursor) = self.poll(cursor)?;
        assert_eq!(answers, []);
        let chat = self.server.chat(CHAT);
        let prompt = chat
            .iter()
            .rev()
            .find(|shown| shown.asks_reply)
            .ok_or("no prompt")?;
        Ok((prompt.message, cursor))
    }
}

#[test]
fn a_press_is_an_answer_and_is_acknowledged_when_the_host_has_it() -> Result {
    let mut shown = shown()?;
    let press = shown.server.press(USER, CHAT, 1, "Go")?;
    let response = shown.host.response(Some(Order::Poll {
        cursor: 0,
        requests: vec![shown.open.clone()],
        quiet_ms: 0,
    }));
    shown.host.respond(&response);
    // Present was sent with another revision than the poll is: the harness counts on.
    shown.host.hear()?;
    let Report::Answer(answer) = shown.host.pending.report.clone() else {
        panic!("{:?}", shown.host.pending);
    };
    assert_eq!(
        (
            answer.actor_id.as_str(),
            answer.chat_id.as_str(),
            answer.event_id.as_str()
        ),
        ("100", "100", press.as_str())
    );
    assert_eq!(
        answer.idempotency_key,
        format!("telegram:ops:callback:{press}")
    );
    assert_eq!(
        answer.response,
        Response {
            choice: "go".to_owned(),
            input: None
        }
    );
    assert_eq!(answer.cursor, 1_001);
    // The host has not said that it is durable: the person hears nothing yet.
    assert_eq!(shown.server.toasts(), []);
    let mut response = shown.host.response(None);
    response.answer = Some(AnswerOutcome::Received);
    shown.host.respond(&response);
    shown.host.hear()?;
    assert_eq!(shown.toasts(), ["Received."]);
    Ok(())
}

#[test]
fn the_person_is_told_what_became_of_the_answer() -> Result {
    let mut shown = shown()?;
    let mut cursor = 0;
    for outcome in [
        Some(AnswerOutcome::Received),
        Some(AnswerOutcome::AlreadyDecided),
        Some(AnswerOutcome::Expired),
        Some(AnswerOutcome::Paused),
        Some(AnswerOutcome::Requester),
        Some(AnswerOutcome::UnknownPerson),
        Some(AnswerOutcome::NotAccepted),
        None,
    ] {
        shown.server.press(USER, CHAT, 1, "Go")?;
        shown.host.outcome = outcome;
        cursor = shown.poll(cursor)?.1;
    }
    assert_eq!(
        shown.toasts(),
        [
            "Received.",
            "Already decided.",
            "The time for an answer has passed.",
            "Not accepted: the run is paused. Answer again when it goes on.",
            "Not accepted: another person than the one who started the run has to answer.",
            "Not accepted: another person has to answer, and it is not known here who you are.",
            "Not accepted.",
            "Not accepted."
        ]
    );
    Ok(())
}

#[test]
fn an_acknowledgement_that_fails_changes_nothing() -> Result {
    let mut shown = shown()?;
    let mut cursor = 0;
    for fault in [Fault::Refused(400), Fault::Server(500), Fault::CloseUndone] {
        shown.server.press(USER, CHAT, 1, "Go")?;
        shown.server.fail("answerCallbackQuery", fault);
        let (answers, read) = shown.poll(cursor)?;
        assert_eq!((answers.len(), read), (1, answers[0].cursor));
        cursor = read;
    }
    // Only the server that failed afterwards had told the person.
    assert_eq!(shown.toasts(), ["Received."]);
    assert_eq!(shown.host.stop()?.code(), 0);
    Ok(())
}

#[test]
fn channel_15_buttons_that_another_child_showed_work() -> Result {
    // The report of the delivery was lost, and a person confirmed it: nobody knows where the message is, but its button names it.
    let shown = shown()?;
    let mut next = Host::start(&shown.server)?;
    shown.server.press(USER, CHAT, 1, "Go")?;
    let (answers, _) = next.poll(0, std::slice::from_ref(&shown.open))?;
    assert_eq!(answers.len(), 1);
    Ok(())
}

#[test]
fn channel_22_and_23_user_and_chat_must_both_be_listed() -> Result {
    let mut shown = shown()?;
    // The message as it would be in another chat.
    shown.server.say(USER, 555, "hello");
    let data = token().callback("ops", &shown.open.request_digest, "go");
    shown.server.press(999, CHAT, 1, "Go")?;
    shown.server.press_data(USER, 555, 1, &data)?;
    shown.server.press_data(999, 555, 1, &data)?;
    let (answers, cursor) = shown.poll(0)?;
    assert_eq!((answers, cursor), (vec![], 1_004));
    // The stranger learns nothing about the decision.
    assert_eq!(shown.toasts(), ["You can't answer here."; 3]);
    Ok(())
}

#[test]
fn an_empty_list_of_users_is_nobody() -> Result {
    let server = DevServer::start(&token())?;
    let mut launch = launch(&server);
    launch.allowed_user_ids.clear();
    let mut host = Host::start_with(&launch, |_| {})?;
    let request = request(&[]);
    host.present(&request, &[])?;
    server.press(USER, CHAT, 1, "Go")?;
    assert_eq!(host.poll(0, &[OpenRequest::of(&request)])?, (vec![], 1_001));
    Ok(())
}

#[test]
fn channel_24_to_26_a_press_that_names_nothing_open_is_no_answer() -> Result {
    let mut shown = shown()?;
    shown
        .server
        .inject(json!({"callback_query": {"id": "1", "from": {"id": USER}, "data": "pw:x"}}));
    for data in ["pw:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", "pw:", "x"] {
        shown.server.press_data(USER, CHAT, 1, data)?;
    }
    // A reply token is no button.
    let reply = token().reply("ops", &shown.open.request_digest, "go");
    shown
        .server
        .press_data(USER, CHAT, 1, &format!("pw:{reply}"))?;
    let open = [shown.open.clone()];
    assert_eq!(shown.host.poll_twice(0, &open)?, (vec![], 1_005));
    assert_eq!(shown.toasts(), ["This is no longer active."; 4]);
    // The decision is resolved: the host lists it no more, and its button names nothing.
    shown.server.press(USER, CHAT, 1, "Go")?;
    assert_eq!(shown.host.poll_twice(1_005, &[])?, (vec![], 1_006));
    assert_eq!(shown.toasts().len(), 5);
    Ok(())
}

#[test]
fn channel_27_buttons_of_another_bot_token_are_dead() -> Result {
    let shown = shown()?;
    let open = shown.open.clone();
    // The same bot with a new token: its old messages are still there.
    let renewed = BotToken::new("1000:renewed")?;
    let server = DevServer::start(&renewed)?;
    let mut launch = launch(&server);
    launch.token = Token::new(Zeroizing::new("1000:renewed".to_owned())).ok_or("token")?;
    let mut host = Host::start_with(&launch, |_| {})?;
    server.say(USER, CHAT, "the old message");
    let old = token().callback("ops", &open.request_digest, "go");
    server.press_data(USER, CHAT, 1, &old)?;
    assert_eq!(
        host.poll_twice(0, std::slice::from_ref(&open))?,
        (vec![], 1_002)
    );
    server.press_data(
        USER,
        CHAT,
        1,
        &renewed.callback("ops", &open.request_digest, "go"),
    )?;
    assert_eq!(host.poll(1_002, &[open])?.0.len(), 1);
    Ok(())
}

#[test]
fn a_choice_that_asks_for_a_text_prompts_and_a_reply_is_the_answer() -> Result {
    let mut shown = shown()?;
    let (prompt, cursor) = shown.prompted(0)?;
    let chat = shown.server.chat(CHAT);
    let text = &chat
        .iter()
        .find(|shown| shown.message == prompt)
        .ok_or("gone")?
        .text;
    let token = token().reply("ops", &shown.open.request_digest, "redo");
    assert_eq!(*text, format!("What?\nReply token: {token}"));
    assert_eq!(shown.toasts(), ["Reply to the message below."]);

    let message = shown.server.reply(USER, CHAT, prompt, "because")?;
    let (answers, read) = shown.poll(cursor)?;
    assert_eq!(answers.len(), 1);
    assert_eq!(answers[0].event_id, format!("100:{message}"));
    assert_eq!(
        answers[0].idempotency_key,
        format!("telegram:ops:reply:100:{message}")
    );
    let input = BTreeMap::from([("why".to_owned(), "because".to_owned())]);
    assert_eq!(
        answers[0].response,
        Response {
            choice: "redo".to_owned(),
            input: Some(input)
        }
    );
    assert_eq!(answers[0].cursor, read);
    // Whoever wrote is told that it was received, below what they wrote.
    let told = shown.server.chat(CHAT).pop().ok_or("nothing")?;
    assert_eq!(
        (told.text.as_str(), told.sender, told.reply_to),
        ("Received.", 1_000, Some(message))
    );
    // A reply to a prompt of what is over is told so.
    shown.server.reply(USER, CHAT, prompt, "too late")?;
    assert_eq!(shown.host.poll_twice(read, &[])?, (vec![], read + 1));
    let told = shown.server.chat(CHAT).pop().ok_or("nothing")?;
    assert_eq!(told.text, "This is no longer active.");
    Ok(())
}

#[test]
fn a_prompt_that_fails_is_told_and_may_be_asked_for_again() -> Result {
    let mut shown = shown()?;
    shown.server.press(USER, CHAT, 1, "Redo")?;
    shown.server.fail("sendMessage", Fault::Refused(400));
    let (answers, cursor) = shown.poll(0)?;
    assert_eq!((answers, cursor), (vec![], 1_001));
    assert_eq!(shown.toasts(), ["That did not work. Press again."]);
    shown.prompted(cursor)?;
    Ok(())
}

#[test]
fn channel_28_two_prompts_and_two_replies_are_two_answers_for_the_host_to_judge() -> Result {
    let mut shown = shown()?;
    let (first, cursor) = shown.prompted(0)?;
    let (second, cursor) = shown.prompted(cursor)?;
    assert_ne!(first, second);
    shown.server.reply(USER, CHAT, first, "one")?;
    shown.server.reply(USER, CHAT, second, "two")?;
    let (answers, _) = shown.poll(cursor)?;
    let keys: Vec<_> = answers
        .iter()
        .map(|answer| answer.idempotency_key.clone())
        .collect();
    assert_eq!(keys.len(), 2);
    assert_ne!(keys[0], keys[1]);
    assert_eq!(answers[0].decision_id, answers[1].decision_id);
    Ok(())
}

#[test]
fn channel_29_a_reply_is_taken_exactly_as_it_was_written() -> Result {
    let mut shown = shown()?;
    let (prompt, mut cursor) = shown.prompted(0)?;
    for text in [
        "  keep \n two lines ",
        " ",
        "\n",
        "🚦é\u{301}",
        "\u{202e}x",
        "Reply token: y",
    ] {
        shown.server.reply(USER, CHAT, prompt, text)?;
        let (answers, read) = shown.poll(cursor)?;
        let input = answers[0]
            .response
            .input
            .as_ref()
            .and_then(|input| input.get("why"));
        assert_eq!(input.map(String::as_str), Some(text));
        cursor = read;
    }
    Ok(())
}

#[test]
fn channel_30_and_31_only_a_reply_to_the_bots_own_prompt_is_an_answer() -> Result {
    let mut shown = shown()?;
    let (prompt, cursor) = shown.prompted(0)?;
    let token = token().reply("ops", &shown.open.request_digest, "redo");
    // Ordinary text, also with the token in it.
    shown.server.say(USER, CHAT, "yes");
    let quoting = shown
        .server
        .say(USER, CHAT, &format!("What?\nReply token: {token}"));
    // A reply to a person's message that quotes the token.
    shown.server.reply(USER, CHAT, quoting, "because")?;
    // Another bot that quotes it.
    let other = json!({"id": 2_000, "is_bot": true, "first_name": "Other"});
    let quoted = json!({"message_id": 77, "from": other, "chat": {"id": CHAT}, "text": format!("Reply token: {token}")});
    let from = json!({"id": USER, "is_bot": false});
    shown.server.inject(json!({"message": {
        "message_id": 78, "from": from, "chat": {"id": CHAT}, "text": "because", "reply_to_message": quoted,
    }}));
    // A person with the number of the bot, as a client might forge it.
    let forged = json!({"message_id": 79, "from": {"id": 1_000, "is_bot": false}, "text": format!("Reply token: {token}")});
    shown.server.inject(json!({"message": {
        "message_id": 80, "from": from, "chat": {"id": CHAT}, "text": "because", "reply_to_message": forged,
    }}));
    // A stranger, and a reply to a message of the bot without a token.
    shown.server.reply(999, CHAT, prompt, "because")?;
    shown.server.reply(USER, CHAT, 1, "because")?;
    let (answers, read) = shown.poll(cursor)?;
    assert_eq!((answers, read), (vec![], cursor + 7));
    // And the right one is one.
    shown.server.reply(USER, CHAT, prompt, "because")?;
    assert_eq!(shown.poll(read)?.0.len(), 1);
    Ok(())
}

#[test]
fn the_last_token_of_a_prompt_counts() -> Result {
    let server = DevServer::start(&token())?;
    let mut host = Host::start(&server)?;
    let mut draft = draft(&[]);
    let value = json!({"redo": {"label": "Redo", "input": {
        "kind": "text", "name": "why", "prompt": "Write Reply token: x", "minLength": 1, "maxLength": 9,
    }}});
    draft.choices = holdpoint_decisions::model::Choices::read(&value)?;
    let request = request_of(draft);
    host.present(&request, &[])?;
    server.press(USER, CHAT, 1, "Redo")?;
    let open = [OpenRequest::of(&request)];
    let (_, cursor) = host.poll(0, &open)?;
    server.reply(USER, CHAT, 2, "because")?;
    assert_eq!(host.poll(cursor, &open)?.0.len(), 1);
    Ok(())
}

#[test]
fn channel_32_the_same_number_in_two_chats_is_two_answers() -> Result {
    let server = DevServer::start(&token())?;
    let mut launch = launch(&server);
    launch.allowed_chat_ids = vec!["100".to_owned(), "200".to_owned()];
    let mut host = Host::start_with(&launch, |_| {})?;
    let request = request(&[]);
    host.present(&request, &[])?;
    let open = [OpenRequest::of(&request)];
    server.press(USER, 100, 1, "Redo")?;
    server.press(USER, 200, 1, "Redo")?;
    let (_, cursor) = host.poll(0, &open)?;
    let in_first = server.reply(USER, 100, 2, "same")?;
    let in_second = server.reply(USER, 200, 2, "same")?;
    assert_eq!(in_first, in_second);
    let (answers, _) = host.poll(cursor, &open)?;
    assert_ne!(answers[0].idempotency_key, answers[1].idempotency_key);
    assert_ne!(answers[0].event_id, answers[1].event_id);
    Ok(())
}

#[test]
fn channel_33_each_answer_has_its_own_cursor_and_a_crash_between_two_skips_none() -> Result {
    let mut shown = shown()?;
    shown.server.say(USER, CHAT, "noise");
    let first = shown.server.press(USER, CHAT, 1, "Go")?;
    let second = shown.server.press(USER, CHAT, 1, "Go")?;
    let response = shown.host.response(Some(Order::Poll {
        cursor: 0,
        requests: vec![shown.open.clone()],
        quiet_ms: 0,
    }));
    shown.host.respond(&response);
    shown.host.hear()?;
    let Report::Answer(answer) = &shown.host.pending.report else {
        panic!("{:?}", shown.host.pending);
    };
    assert_eq!((&answer.event_id, answer.cursor), (&first, 1_002));
    // The host stored this one, and the child ends before it says the second.
    let cursor = answer.cursor;
    shown.host.leave();
    assert_eq!(shown.host.end()?.0.code(), 4);
    // The next child reads from the stored cursor, and finds the second.
    let mut next = Host::start(&shown.server)?;
    let (answers, read) = next.poll(cursor, std::slice::from_ref(&shown.open))?;
    let events: Vec<_> = answers.iter().map(|answer| &answer.event_id).collect();
    assert_eq!((events, read), (vec![&second], 1_003));
    Ok(())
}

#[test]
fn channel_34_an_update_that_comes_twice_is_reported_under_one_name() -> Result {
    let mut shown = shown()?;
    shown.server.press(USER, CHAT, 1, "Go")?;
    shown.server.fail("getUpdates", Fault::Doubled);
    let lines = shown.host.lines.len();
    let (answers, _) = shown.poll(0)?;
    assert_eq!(answers[0], answers[1]);
    let names: Vec<_> = shown.host.lines[lines..]
        .iter()
        .filter(|line| line.contains("channel.answer"))
        .filter_map(|line| {
            let line: serde_json::Value = serde_json::from_str(line).ok()?;
            Some(line["stableMessageId"].clone())
        })
        .collect();
    assert_eq!(names.len(), 2);
    assert_eq!(names[0], names[1]);
    Ok(())
}

#[test]
fn channel_47_updates_out_of_order_are_read_in_order_and_take_nothing_back() -> Result {
    let mut shown = shown()?;
    shown.server.press(USER, CHAT, 1, "Go")?;
    shown.server.press(USER, CHAT, 1, "Go")?;
    shown.server.fail("getUpdates", Fault::Reversed);
    let (answers, read) = shown.poll(0)?;
    let cursors: Vec<_> = answers.iter().map(|answer| answer.cursor).collect();
    assert_eq!((cursors, read), (vec![1_001, 1_002], 1_002));
    // Old ones come again beside nothing new: the cursor stays.
    shown.server.fail("getUpdates", Fault::Again);
    let (answers, read) = shown.poll(1_002)?;
    let cursors: Vec<_> = answers.iter().map(|answer| answer.cursor).collect();
    assert_eq!((cursors, read), (vec![1_001, 1_002], 1_002));
    shown.server.fail("getUpdates", Fault::Again);
    assert_eq!(shown.poll(1_010)?.1, 1_010);
    Ok(())
}

#[test]
fn a_bot_whose_token_has_no_number_asks_once_who_it_is() -> Result {
    let plain = BotToken::new("test-token")?;
    let server = DevServer::start(&plain)?;
    let mut launch = launch(&server);
    launch.token = Token::new(Zeroizing::new("test-token".to_owned())).ok_or("token")?;
    let mut host = Host::start_with(&launch, |_| {})?;
    let request = request(&[]);
    let open = [OpenRequest::of(&request)];
    host.present(&request, &[])?;
    server.press(USER, CHAT, 1, "Redo")?;
    let (_, cursor) = host.poll(0, &open)?;
    server.reply(USER, CHAT, 2, "because")?;
    assert_eq!(host.poll(cursor, &open)?.0.len(), 1);
    assert_eq!(server.calls("getMe"), 1);
    Ok(())
}
