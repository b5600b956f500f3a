//! The child as a process: what ends it, what keeps it going, and what it never says.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::Path;

use holdpoint_channels::dev_server::{DevServer, Fault};
use holdpoint_channels::protocol::{
    ErrorCode, OpenRequest, Order, Report, SendState, Verdict, read_line,
};
use holdpoint_channels::telegram::Exit;
use holdpoint_state::clock::ManualClock;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use serde_json::{Value, json};

use crate::host::{ATTEMPT, Host, launch, request, settings, spawn};
use crate::{CHAT, Result, TOKEN, USER, token};

#[test]
fn a_launch_line_that_can_not_be_used_ends_the_child_without_a_word() -> Result {
    let server = DevServer::start(&token())?;
    let good: Value = serde_json::from_slice(&launch(&server).to_line()?)?;
    let with = |name: &str, value: Value| {
        let mut line = good.clone();
        line[name] = value;
        line.to_string() + "\n"
    };
    for line in [
        String::new(),
        "\n".to_owned(),
        "{}\n".to_owned(),
        "{\"token\":".to_owned(),
        with("schema", json!("another")),
        with("profile", json!("a b")),
        with("token", json!("")),
        with("token", json!("a/b")),
        with("token", json!(7)),
        with("allowedUserIds", json!(["x"])),
        with("allowedChatIds", json!(null)),
        with("apiBase", json!("http://bots.example.org")),
        with("apiBase", json!("ftp://127.0.0.1")),
        with("subject", json!({})),
    ] {
        let (mut to, mut from, child, diagnostics) = spawn(settings(&ManualClock::at(0)))?;
        to.write_all(line.as_bytes())?;
        drop(to);
        assert_eq!(read_line(&mut from)?, None, "{line}");
        let exit = child.join().or(Err("panicked"))?;
        assert!(
            matches!(exit, Exit::Launch | Exit::HostGone | Exit::Malformed),
            "{line}: {exit:?}"
        );
        assert_ne!(exit.code(), 0);
        assert!(!diagnostics.text().contains("a/b"));
    }
    Ok(())
}

#[test]
fn channel_49_a_subject_or_another_broken_rule_ends_the_child() -> Result {
    let request = request(&[]).document();
    let mut with_subject = request.clone();
    with_subject["subject"] = json!({});
    let present = |request: &Value, attempt: &str| json!({"kind": "channel.present", "stableMessageId": attempt, "attemptId": attempt, "request": request, "messages": []});
    let response = |sequence: u64, command: Value| {
        json!({
            "schema": "pi-workflows.channel-adapter.v1", "type": "response", "sequence": sequence,
            "outcome": "accepted", "revision": 7, "command": command,
        })
    };
    let open = json!({
        "decisionId": request["decisionId"], "requestDigest": request["requestDigest"], "choices": request["choices"],
    });
    let mut open_with_subject = open.clone();
    open_with_subject["subject"] = json!({"plan": "a"});
    let poll = |requests: Value| json!({"kind": "channel.poll", "cursor": 0, "requests": requests});
    let mut without_type = response(1, Value::Null);
    without_type["type"] = json!("request");
    let mut without_command = response(1, Value::Null);
    if let Some(fields) = without_command.as_object_mut() {
        fields.remove("command");
    }
    for (what, line) in [
        ("not JSON", "{\n".to_owned()),
        ("an empty line", "\n".to_owned()),
        ("another sequence", response(2, Value::Null).to_string()),
        ("another type", without_type.to_string()),
        ("no command at all", without_command.to_string()),
        (
            "an unknown command",
            response(1, json!({"kind": "channel.shout"})).to_string(),
        ),
        (
            "a negative cursor",
            response(
                1,
                json!({"kind": "channel.poll", "cursor": -1, "requests": []}),
            )
            .to_string(),
        ),
        (
            "an attempt that is none",
            response(1, present(&request, "attempt-1")).to_string(),
        ),
        (
            "a subject to present",
            response(1, present(&with_subject, ATTEMPT)).to_string(),
        ),
        (
            "a subject to poll for",
            response(1, poll(json!([open_with_subject]))).to_string(),
        ),
    ] {
        let server = DevServer::start(&token())?;
        let mut host = Host::start(&server)?;
        host.write(format!("{line}\n").as_bytes());
        let (exit, _) = host.end()?;
        assert_eq!(exit, Exit::Malformed, "{what}");
        assert_eq!(
            server.calls("sendMessage") + server.calls("getUpdates"),
            0,
            "{what}"
        );
    }
    // The line without a subject is one that it takes.
    let server = DevServer::start(&token())?;
    let mut host = Host::start(&server)?;
    host.write(format!("{}\n", response(1, present(&request, ATTEMPT))).as_bytes());
    host.hear()?;
    assert!(matches!(host.pending.report, Report::Part { .. }));
    Ok(())
}

#[test]
fn a_rejected_message_ends_the_child() -> Result {
    let server = DevServer::start(&token())?;
    let mut host = Host::start(&server)?;
    let mut response = host.response(None);
    response.outcome = Verdict::Rejected;
    response.error = Some("stale".to_owned());
    host.respond(&response);
    let (exit, words) = host.end()?;
    assert_eq!(exit, Exit::Rejected);
    assert_eq!(words, "telegram adapter: the host rejected a message\n");
    Ok(())
}

#[test]
fn an_order_where_none_may_be_ends_the_child() -> Result {
    let server = DevServer::start(&token())?;
    let mut host = Host::start(&server)?;
    let shown = request(&[]);
    host.present(&shown, &[])?;
    server.press(USER, CHAT, 1, "Go")?;
    let response = host.response(Some(Order::Poll {
        cursor: 0,
        requests: vec![OpenRequest::of(&shown)],
        quiet_ms: 0,
    }));
    host.respond(&response);
    host.hear()?;
    assert!(matches!(host.pending.report, Report::Answer(_)));
    let response = host.response(Some(Order::Stop));
    host.respond(&response);
    assert_eq!(host.end()?.0, Exit::Malformed);
    assert_eq!(
        server.toasts(),
        [],
        "whoever is out of step acknowledges nothing"
    );
    Ok(())
}

#[test]
fn a_word_that_nobody_asked_for_ends_the_child() -> Result {
    let server = DevServer::start(&token())?;
    let mut host = Host::start(&server)?;
    let line = host.response(None).to_line()?;
    // The second one answers nothing.
    host.write(&[line.clone(), line].concat());
    let (exit, _) = {
        // It may still have asked again in between: that message is answered with the wrong sequence.
        drop(host.hear());
        host.end()?
    };
    assert_eq!(exit, Exit::Malformed);
    Ok(())
}

#[test]
fn the_end_of_the_stream_ends_the_child_also_while_it_rests() -> Result {
    let server = DevServer::start(&token())?;
    let mut host = Host::start_with(&launch(&server), |settings| {
        settings.idle = std::time::Duration::from_hours(1);
    })?;
    let response = host.response(None);
    host.respond(&response);
    host.leave();
    assert_eq!(host.end()?.0, Exit::HostGone);
    Ok(())
}

#[test]
fn without_an_order_it_asks_again() -> Result {
    let server = DevServer::start(&token())?;
    let mut host = Host::start(&server)?;
    for _ in 0..3 {
        let response = host.response(None);
        host.respond(&response);
        host.hear()?;
        assert_eq!(
            host.pending.report,
            Report::Ready {
                cursor: 0,
                error_code: None,
                bot_id: None,
                retry_after: None
            }
        );
    }
    assert_eq!(
        server.calls("getUpdates"),
        0,
        "it does nothing of its own accord"
    );
    assert_eq!(host.stop()?, Exit::Stopped);
    Ok(())
}

#[test]
fn channel_50_nothing_that_it_says_holds_the_token() -> Result {
    let server = DevServer::start(&token())?;
    let mut host = Host::start(&server)?;
    let shown = request(&[]);
    for fault in [
        Fault::Refused(401),
        Fault::CloseDone,
        Fault::Server(500),
        Fault::Unreadable,
    ] {
        for method in [
            "sendMessage",
            "getUpdates",
            "answerCallbackQuery",
            "editMessageReplyMarkup",
        ] {
            if (method, &fault) != ("getUpdates", &Fault::Refused(401)) {
                server.fail(method, fault.clone());
            }
        }
    }
    let mut messages = Vec::new();
    for _ in 0..5 {
        messages = host.present(&shown, &[])?.messages;
        host.settle(&shown, &messages)?;
    }
    server.press(USER, CHAT, messages[0].message_id, "Go").ok();
    for _ in 0..5 {
        host.order(Order::Poll {
            cursor: 0,
            requests: vec![OpenRequest::of(&shown)],
            quiet_ms: 0,
        })?;
        host.clock.advance(60_000);
    }
    let diagnostics = host.diagnostics.clone();
    let lines = host.lines.join("\n");
    host.stop()?;
    let said = lines + &diagnostics.text();
    assert!(said.contains("telegram adapter: a delivery stopped: telegram_http_401"));
    for secret in [TOKEN, "test-token", "/bot1000"] {
        assert!(!said.contains(secret), "{said}");
    }
    assert!(
        !diagnostics.text().contains("100"),
        "no user, no chat: {}",
        diagnostics.text()
    );
    Ok(())
}

#[test]
fn channel_51_a_second_poller_is_reported_and_the_child_backs_off_and_still_delivers() -> Result {
    let server = DevServer::start(&token())?;
    let mut host = Host::start(&server)?;
    let shown = request(&[]);
    let poll = || Order::Poll {
        cursor: 0,
        requests: vec![],
        quiet_ms: 0,
    };
    let conflict = || Report::Ready {
        cursor: 0,
        error_code: Some(ErrorCode::TelegramConflict),
        bot_id: None,
        retry_after: None,
    };
    let mut calls = 0;
    for wait_ms in [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000] {
        server.fail("getUpdates", Fault::Refused(409));
        assert_eq!(host.order(poll())?, [conflict()]);
        calls += 1;
        // Until the wait is over, no call is made, and the reason stays visible.
        host.clock.advance(wait_ms - 1);
        assert_eq!(host.order(poll())?, [conflict()]);
        assert_eq!(server.calls("getUpdates"), calls);
        assert_eq!(host.present(&shown, &[])?.state, SendState::Confirmed);
        host.clock.advance(1);
    }
    // The other one is gone: the first good poll ends it.
    assert_eq!(
        host.order(poll())?,
        [Report::Ready {
            cursor: 0,
            error_code: None,
            bot_id: None,
            retry_after: None
        }]
    );
    assert_eq!(
        host.order(poll())?,
        [Report::Ready {
            cursor: 0,
            error_code: None,
            bot_id: None,
            retry_after: None
        }]
    );
    assert_eq!(server.calls("getUpdates"), calls + 2);
    let said = host.diagnostics.text();
    assert_eq!(
        said, "telegram adapter: updates can't be read at the moment: telegram_conflict\n",
        "said once"
    );
    Ok(())
}

#[test]
fn every_failed_poll_has_its_word_and_loses_nothing() -> Result {
    let server = DevServer::start(&token())?;
    let mut host = Host::start(&server)?;
    let shown = request(&[]);
    host.present(&shown, &[])?;
    server.press(USER, CHAT, 1, "Go")?;
    let mut table = String::new();
    for fault in [
        Fault::Refused(400),
        Fault::Refused(409),
        Fault::RefusedOk,
        Fault::Server(502),
        Fault::CloseUndone,
        Fault::CloseDone,
        Fault::HalfBody,
        Fault::Unreadable,
        Fault::WithoutId,
        Fault::RetryAfter(100),
    ] {
        server.fail("getUpdates", fault.clone());
        let heard = host.order(Order::Poll {
            cursor: 0,
            requests: vec![OpenRequest::of(&shown)],
            quiet_ms: 0,
        })?;
        writeln!(table, "{fault:?}: {heard:?}")?;
        host.clock.advance(60_000);
    }
    insta::assert_snapshot!(table);
    // The provider wanted 100 s.
    let calls = server.calls("getUpdates");
    host.order(Order::Poll {
        cursor: 0,
        requests: vec![OpenRequest::of(&shown)],
        quiet_ms: 0,
    })?;
    assert_eq!(server.calls("getUpdates"), calls);
    host.clock.advance(40_000);
    assert_eq!(host.poll(0, &[OpenRequest::of(&shown)])?.0.len(), 1);
    Ok(())
}

#[test]
fn a_refused_token_ends_the_child_and_the_host_knows_why() -> Result {
    for status in [401, 404] {
        let server = DevServer::start(&token())?;
        let mut host = Host::start(&server)?;
        server.fail("getUpdates", Fault::Refused(status));
        let heard = host.order(Order::Poll {
            cursor: 5,
            requests: vec![],
            quiet_ms: 0,
        })?;
        let refused = Some(ErrorCode::TelegramTokenRefused);
        assert_eq!(
            heard,
            [Report::Exiting {
                cursor: 5,
                error_code: refused
            }]
        );
        let response = host.response(None);
        host.respond(&response);
        assert_eq!(host.end()?.0, Exit::TokenRefused);
    }
    Ok(())
}

/// The child gets no database and no workflow: no room of it names one. What it may have of the crates below is listed here, so
/// that anything more is a decision.
#[test]
fn the_rooms_of_the_child_name_no_database_and_no_workflow() -> Result {
    let allowed = [
        "holdpoint_channels::",
        "holdpoint_decisions::document::",
        "holdpoint_decisions::model::",
        "holdpoint_state::clock::",
        "holdpoint_state::json::",
        "holdpoint_state::Digest;",
    ];
    let forbidden = [
        "holdpoint_workflows",
        "crate::commands",
        "crate::store",
        "crate::views",
        "crate::config",
        "crate::host",
        "rusqlite",
    ];
    let mut rooms = Vec::new();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut folders = vec![source.join("telegram"), source.join("dev_server")];
    rooms.extend([source.join("telegram.rs"), source.join("dev_server.rs")]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|kind| kind == "rs") {
                rooms.push(path);
            }
        }
    }
    assert!(15 < rooms.len(), "{rooms:?}");
    for room in rooms {
        let text = fs::read_to_string(&room)?;
        for (number, line) in text.lines().enumerate() {
            let place = || format!("{}:{}: {line}", room.display(), number + 1);
            for word in forbidden {
                assert!(!line.contains(word), "{}", place());
            }
            for (at, _) in line.match_indices("holdpoint_") {
                let rest = &line[at..];
                let is_path = rest
                    .split("::")
                    .next()
                    .is_some_and(|name| name.len() < rest.len());
                assert!(
                    !is_path || allowed.iter().any(|path| rest.starts_with(path)),
                    "{}",
                    place()
                );
            }
        }
    }
    Ok(())
}

/// Anything that a provider could say, with the words of the Bot API among its keys.
fn hostile() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        Just(Value::from(USER)),
        any::<String>().prop_map(Value::from),
        Just(Value::from(
            "What?\nReply token: AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
        )),
        Just(Value::from("pw:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA")),
    ];
    leaf.prop_recursive(5, 64, 8, |inner| {
        let key = proptest::sample::select(vec![
            "callback_query", "message", "reply_to_message", "from", "chat", "id", "data", "text", "message_id", "is_bot",
        ]);
        prop_oneof![
            1 => proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            4 => proptest::collection::btree_map(key, inner, 0..8).prop_map(|fields| {
                Value::Object(fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
            }),
        ]
    })
}

/// No update ends the child, answers anything, or keeps the one behind it from being read.
#[test]
fn hostile_updates_move_the_cursor_and_nothing_else() -> Result {
    let rounds = std::env::var("HOLDPOINT_HOSTILE_ROUNDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(60_usize);
    let server = DevServer::start(&token())?;
    let mut host = Host::start(&server)?;
    let shown = request(&[]);
    host.present(&shown, &[])?;
    let open = [OpenRequest::of(&shown)];
    let mut cursor = 0;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    for _ in 0..rounds {
        for _ in 0..12 {
            let mut update = hostile()
                .new_tree(&mut runner)
                .map_err(|reason| reason.to_string())?
                .current();
            if !update.is_object() {
                update = json!({ "message": update });
            }
            server.inject(update);
        }
        server.press(USER, CHAT, 1, "Go")?;
        let last = server.say(USER, CHAT, "noise");
        assert_ne!(last, 0);
        let (answers, read) = host.poll(cursor, &open)?;
        assert_eq!(answers.len(), 1, "the one press of a button");
        assert_eq!(read, cursor.max(1_000) + 14);
        cursor = read;
    }
    assert_eq!(host.stop()?, Exit::Stopped);
    Ok(())
}
