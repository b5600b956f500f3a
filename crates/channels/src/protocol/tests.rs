//! Lines of both directions: what is written is read, and what breaks a rule is not.

use std::io::Cursor;

use proptest::prelude::*;
use serde_json::json;
use zeroize::Zeroizing;

use super::*;

fn stable(digit: char) -> String {
    format!("channel-{}", digit.to_string().repeat(64))
}

fn digest(digit: char) -> String {
    format!("sha256:{}", digit.to_string().repeat(64))
}

fn request() -> ChannelRequest {
    use holdpoint_decisions::model::{Choice, Choices, Draft, Presentation, Request, TextInput};
    let draft = Draft {
        run_id: "run-1".to_owned(),
        workflow_name: "wf".to_owned(),
        node_id: "gate".to_owned(),
        attempt_id: "att-1".to_owned(),
        audience: "operator".to_owned(),
        title: "Ship".to_owned(),
        choices: Choices::new([
            ("go", Choice::new("Go")),
            (
                "redo",
                Choice::new("Redo").with_text(TextInput::new("why", "What?")),
            ),
        ])
        .unwrap(),
        subject: json!({ "plan": "a" }),
        presentation: Presentation::new("Ship it?", Vec::new()).unwrap(),
        revision: 1,
        on_timeout: None,
        expires_at: None,
        created_at: holdpoint_state::clock::UnixMillis(0),
    };
    Request::new(draft).unwrap().for_channels()
}

fn message(part_index: u32) -> MessageRef {
    MessageRef {
        chat_id: "-100".into(),
        message_id: 7,
        recipient_index: 0,
        part_index,
        content_digest: digest('c'),
    }
}

fn from_adapter(report: Report) -> FromAdapter {
    FromAdapter {
        adapter_epoch: "epoch-1".into(),
        profile: "ops".into(),
        sequence: 3,
        expected_revision: 2,
        stable_message_id: stable('1'),
        report,
    }
}

fn reports() -> Vec<Report> {
    vec![
        Report::Ready {
            cursor: 0,
            error_code: None,
            bot_id: None,
            retry_after: None,
        },
        Report::Ready {
            cursor: 9,
            error_code: Some(ErrorCode::TelegramConflict),
            bot_id: None,
            retry_after: None,
        },
        Report::Part {
            decision_id: "decision-1".into(),
            request_digest: digest('a'),
            attempt_id: stable('2'),
            message: message(0),
        },
        Report::Present(PresentReport {
            decision_id: "decision-1".into(),
            request_digest: digest('a'),
            attempt_id: stable('1'),
            state: SendState::Failed,
            messages: vec![message(0), message(1)],
            error_code: Some(ErrorCode::TelegramHttp(429)),
            retry_after: Some(7),
        }),
        Report::Answer(AnswerReport {
            decision_id: "decision-1".into(),
            request_digest: digest('a'),
            response: Response {
                choice: "redo".into(),
                input: Some([("why".to_owned(), " keep \n two ".to_owned())].into()),
            },
            actor_id: "100".into(),
            chat_id: "-100".into(),
            event_id: "cb-1".into(),
            idempotency_key: "telegram:ops:callback:cb-1".into(),
            cursor: 12,
        }),
        Report::Settle(SettleReport {
            decision_id: "decision-1".into(),
            request_digest: digest('a'),
            attempt_id: stable('1'),
            state: SendState::Confirmed,
            error_code: None,
            retry_after: None,
        }),
        Report::Exiting {
            cursor: 4,
            error_code: Some(ErrorCode::TelegramTokenRefused),
        },
    ]
}

fn orders() -> Vec<Order> {
    let request = Box::new(request());
    let ids = || (stable('1'), stable('1'));
    vec![
        Order::Present {
            stable_message_id: ids().0,
            attempt_id: ids().1,
            request: request.clone(),
            messages: vec![message(0)],
        },
        Order::Settle {
            stable_message_id: ids().0,
            attempt_id: ids().1,
            request: request.clone(),
            outcome: SettleOutcome::Accepted,
            response: Some(Response {
                choice: "go".into(),
                input: None,
            }),
            messages: vec![],
        },
        Order::Poll {
            cursor: 3,
            requests: vec![OpenRequest::of(&request)],
            quiet_ms: 0,
        },
        Order::Stop,
    ]
}

fn to_adapter(command: Option<Order>) -> ToAdapter {
    ToAdapter {
        sequence: 3,
        outcome: Verdict::Accepted,
        revision: 4,
        command,
        answer: None,
        error: None,
    }
}

fn as_value(line: &[u8]) -> Value {
    serde_json::from_slice(line).unwrap()
}

#[test]
fn every_message_is_read_as_it_was_written() {
    let mut lines = String::new();
    for report in reports() {
        let message = from_adapter(report);
        let line = message.to_line().unwrap();
        assert_eq!(
            FromAdapter::from_line(line.trim_ascii_end()).unwrap(),
            message
        );
        lines.push_str(std::str::from_utf8(&line).unwrap());
    }
    for command in orders().into_iter().map(Some).chain([None]) {
        let response = to_adapter(command);
        let line = response.to_line().unwrap();
        assert_eq!(
            ToAdapter::from_line(line.trim_ascii_end()).unwrap(),
            response
        );
        lines.push_str(std::str::from_utf8(&line).unwrap());
    }
    insta::assert_snapshot!("lines", lines);
}

#[test]
fn no_field_can_be_left_out_or_added() {
    let optional = [
        "errorCode",
        "retryAfter",
        "answer",
        "error",
        "input",
        "response",
        "messages",
    ];
    let mut lines: Vec<(bool, Value)> = Vec::new();
    for report in reports() {
        lines.push((true, as_value(&from_adapter(report).to_line().unwrap())));
    }
    for order in orders() {
        lines.push((false, as_value(&to_adapter(Some(order)).to_line().unwrap())));
    }
    let is_read = |from_child: bool, value: &Value| {
        let line = serde_json::to_vec(value).unwrap();
        if from_child {
            FromAdapter::from_line(&line).is_ok()
        } else {
            ToAdapter::from_line(&line).is_ok()
        }
    };
    for (from_child, line) in lines {
        assert!(is_read(from_child, &line));
        let mut more = line.clone();
        more["more"] = json!(1);
        assert!(!is_read(from_child, &more), "{more}");
        for name in line.as_object().unwrap().keys() {
            let mut less = line.clone();
            less.as_object_mut().unwrap().remove(name);
            assert!(
                optional.contains(&name.as_str()) || !is_read(from_child, &less),
                "{name} can be left out of {line}"
            );
            let mut other = line.clone();
            other[name] = json!({"x": []});
            assert!(
                !is_read(from_child, &other),
                "{name} can be anything in {line}"
            );
        }
    }
}

#[test]
fn channel_49_a_subject_is_refused_wherever_it_stands() {
    let mut with_subject = request().document();
    with_subject["subject"] = json!({"plan": "secret"});
    let mut present = as_value(&to_adapter(orders().into_iter().next()).to_line().unwrap());
    present["command"]["request"] = with_subject;
    assert!(ToAdapter::from_line(&serde_json::to_vec(&present).unwrap()).is_err());
    let mut poll = as_value(&to_adapter(orders().into_iter().nth(2)).to_line().unwrap());
    poll["command"]["requests"][0]["subject"] = json!({"plan": "secret"});
    assert!(ToAdapter::from_line(&serde_json::to_vec(&poll).unwrap()).is_err());
}

#[test]
fn wrong_values_are_refused() {
    let base = as_value(&from_adapter(reports().remove(3)).to_line().unwrap());
    let wrong: &[(&str, Value)] = &[
        ("/schema", json!("pi-workflows.channel-adapter.v2")),
        ("/kind", json!("channel.open")),
        ("/adapterEpoch", json!("")),
        ("/adapterEpoch", json!("a\nb")),
        ("/profile", json!("../ops")),
        ("/sequence", json!(0)),
        ("/sequence", json!(-1)),
        ("/sequence", json!(1.5)),
        ("/sequence", json!(INTEGER_MAX + 1)),
        ("/expectedRevision", json!("1")),
        ("/stableMessageId", json!("channel-1")),
        ("/attemptId", json!(stable('2'))),
        ("/requestDigest", json!("a".repeat(64))),
        ("/decisionId", json!("x".repeat(257))),
        ("/state", json!("done")),
        ("/state", json!("confirmed")),
        ("/errorCode", json!("Bad Request: chat not found")),
        ("/messages/1/partIndex", json!(0)),
        ("/messages/0/partIndex", json!(20)),
        ("/messages/0/chatId", json!(-100)),
        ("/messages/0/chatId", json!("general")),
        ("/messages/0/text", json!("shown")),
    ];
    for (pointer, value) in wrong {
        let mut line = base.clone();
        let (parent, name) = pointer.rsplit_once('/').unwrap();
        line.pointer_mut(parent).unwrap()[name] = value.clone();
        let read = FromAdapter::from_line(&serde_json::to_vec(&line).unwrap());
        assert!(read.is_err(), "{pointer} {value}");
    }
    for not_json in [
        &b""[..],
        b"[]",
        b"{",
        b"{}x",
        br#"{"schema":"a","schema":"a"}"#,
        b"\xff",
    ] {
        assert!(FromAdapter::from_line(not_json).is_err());
    }
}

#[test]
fn the_launch_line_shows_the_token_to_nobody_else() {
    let launch = Launch {
        adapter_epoch: "epoch-1".into(),
        profile: "ops".into(),
        token: Token::new(Zeroizing::new("123:secret".into())).unwrap(),
        allowed_user_ids: vec!["100".into()],
        allowed_chat_ids: vec!["-100".into()],
        api_base: Some("http://127.0.0.1:1".into()),
    };
    let line = launch.to_line().unwrap();
    assert_eq!(Launch::from_line(line.trim_ascii_end()).unwrap(), launch);
    assert!(!format!("{launch:?}").contains("secret"));
    for (name, wrong) in [
        ("token", json!("")),
        ("token", json!("a b")),
        ("allowedUserIds", json!(["@ann"])),
        ("allowedChatIds", json!([100])),
        ("apiBase", json!("ftp://x")),
        ("schema", json!(ADAPTER_SCHEMA)),
        ("database", json!("/x.sqlite")),
    ] {
        let mut value = as_value(&line);
        value[name] = wrong;
        let error = Launch::from_line(&serde_json::to_vec(&value).unwrap()).unwrap_err();
        assert!(!error.to_string().contains("secret") && !format!("{error:?}").contains("secret"));
    }
}

#[test]
fn a_line_ends_where_it_must() {
    let mut exact = vec![b'x'; LINE_BYTES_MAX];
    exact.push(b'\n');
    assert_eq!(
        read_line(&mut Cursor::new(&exact))
            .unwrap()
            .map(|line| line.len()),
        Some(LINE_BYTES_MAX)
    );
    let endless = vec![b'x'; LINE_BYTES_MAX + 1];
    assert!(matches!(
        read_line(&mut Cursor::new(&endless)),
        Err(ProtocolError::TooLong)
    ));
    assert!(matches!(
        read_line(&mut Cursor::new(b"{}")),
        Err(ProtocolError::Cut)
    ));
    assert!(matches!(read_line(&mut Cursor::new(b"")), Ok(None)));
    let mut two = Cursor::new(b"a\n\nb\n");
    let mut lines = Vec::new();
    while let Some(line) = read_line(&mut two).unwrap() {
        lines.push(line);
    }
    assert_eq!(lines, [b"a".to_vec(), b"".to_vec(), b"b".to_vec()]);
}

proptest! {
    /// Whatever a person writes arrives byte for byte.
    #[test]
    fn an_answer_is_carried_exactly(text in any::<String>(), choice in "[A-Za-z_][A-Za-z0-9_-]{0,20}", cursor in 0..=INTEGER_MAX) {
        let Report::Answer(mut report) = reports().remove(4) else { unreachable!() };
        report.response = Response { choice, input: Some([("why".to_owned(), text)].into()) };
        report.cursor = cursor;
        let message = from_adapter(Report::Answer(report));
        let line = message.to_line().unwrap();
        prop_assert_eq!(line.iter().position(|byte| *byte == b'\n'), Some(line.len() - 1));
        prop_assert_eq!(FromAdapter::from_line(line.trim_ascii_end()).unwrap(), message);
    }

    /// No line whatever makes a reader panic, and none is read that is not written again in the same way.
    #[test]
    fn what_is_read_can_be_written(line in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(message) = FromAdapter::from_line(&line) {
            prop_assert!(message.to_line().is_ok());
        }
        prop_assert!(Launch::from_line(&line).is_err());
    }

    /// A changed byte of a line is refused or read as what it then says; it never breaks a rule of the fields.
    #[test]
    fn a_changed_line_keeps_the_rules(which in 0..7_usize, place in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut line = from_adapter(reports().remove(which)).to_line().unwrap();
        line.pop();
        let at = place.index(line.len());
        line[at] = byte;
        if let Ok(message) = FromAdapter::from_line(&line) {
            prop_assert!(message.to_line().is_ok());
        }
    }
}
