//! Showing a request: section 7 of the channels reference, from the side of the child.

use std::fmt::Write as _;
use std::time::Duration;

use holdpoint_channels::dev_server::{DevServer, Fault};
use holdpoint_channels::protocol::{ErrorCode, Order, PresentReport, Report, SendState};
use holdpoint_channels::telegram::{TooManyParts, content_digest, render};
use holdpoint_decisions::model::{Block, OnTimeout, Presentation};

use crate::host::{ATTEMPT, Host, draft, launch, request, request_of, request_of_parts};
use crate::{CHAT, Result, SOON, token};

/// State, word, and which parts of which chats are confirmed.
fn summary(report: &PresentReport) -> (SendState, Option<String>, Vec<(String, u32)>) {
    let parts = report.messages.iter();
    (
        report.state,
        report.error_code.map(|code| code.to_string()),
        parts
            .map(|part| (part.chat_id.clone(), part.part_index))
            .collect(),
    )
}

#[test]
fn a_request_is_shown_in_document_order() -> Result {
    let mut draft = draft(&[]);
    draft.presentation = Presentation::new(
        "Ship it?",
        vec![
            Block::section("Plan"),
            Block::bullets(["first", "second"]),
            Block::fields([("Risk", "low"), ("Cost", "3")]),
            Block::preformatted("  a <b>\n\tc"),
            Block::paragraph("*x* /start @name"),
        ],
    )?;
    draft.on_timeout = Some(OnTimeout {
        after_ms: 600_000.0,
        response: serde_json::json!({ "choice": "go" }),
    });
    let server = DevServer::start(&token())?;
    let mut host = Host::start(&server)?;
    let report = host.present(&request_of(draft), &[])?;
    assert_eq!(report.state, SendState::Confirmed);
    let shown = server.chat(CHAT);
    insta::assert_snapshot!(format!("{}\n{:?}", shown[0].text, shown[0].buttons));
    assert_eq!(host.stop()?.code(), 0);
    Ok(())
}

#[test]
fn every_chat_gets_every_part_and_the_buttons_are_below_the_last() -> Result {
    let server = DevServer::start(&token())?;
    let mut launch = launch(&server);
    launch.allowed_chat_ids = vec!["9".to_owned(), "10".to_owned()];
    let mut host = Host::start_with(&launch, |_| {})?;
    let request = request_of_parts(3);
    let order = Order::Present {
        stable_message_id: ATTEMPT.to_owned(),
        attempt_id: ATTEMPT.to_owned(),
        request: Box::new(request.clone()),
        messages: Vec::new(),
    };
    let reports = host.order(order)?;
    // Each part is told on its own before the whole is; chats are in the order of their text.
    let told: Vec<_> = reports
        .iter()
        .filter_map(|report| match report {
            Report::Part { message, .. } => Some(message.clone()),
            _ => None,
        })
        .collect();
    let places: Vec<_> = told
        .iter()
        .map(|part| (part.chat_id.as_str(), part.recipient_index, part.part_index))
        .collect();
    assert_eq!(
        places,
        [
            ("10", 0, 0),
            ("10", 0, 1),
            ("10", 0, 2),
            ("9", 1, 0),
            ("9", 1, 1),
            ("9", 1, 2)
        ]
    );
    let Some(Report::Present(report)) = reports.last() else {
        panic!("{reports:?}");
    };
    assert_eq!(
        (report.state, &report.messages),
        (SendState::Confirmed, &told)
    );
    let parts = render(&request)?;
    for chat in [9, 10] {
        let shown = server.chat(chat);
        for (part, shown) in parts.iter().zip(&shown) {
            assert_eq!(shown.text, part.text);
        }
        let buttons: Vec<_> = shown.iter().map(|shown| shown.buttons.len()).collect();
        assert_eq!(buttons, [0, 0, 2]);
        assert_eq!(shown[2].buttons, [["Go"], ["Redo"]]);
    }
    assert_eq!(
        report.messages[1].content_digest,
        content_digest(&parts[1].text)
    );
    Ok(())
}

#[test]
fn no_part_leaves_before_the_host_has_the_one_before_it() -> Result {
    let server = DevServer::start(&token())?;
    let mut host = Host::start(&server)?;
    let response = host.response(Some(Order::Present {
        stable_message_id: ATTEMPT.to_owned(),
        attempt_id: ATTEMPT.to_owned(),
        request: Box::new(request_of_parts(3)),
        messages: Vec::new(),
    }));
    host.respond(&response);
    host.hear()?;
    assert!(matches!(host.pending.report, Report::Part { .. }));
    // The child waits for the response and the host is gone: the rest is never sent.
    host.leave();
    assert_eq!(host.end()?.0.code(), 4);
    assert_eq!(server.calls("sendMessage"), 1);
    Ok(())
}

#[test]
fn channel_10_every_way_in_which_a_part_can_fail_has_its_state_and_word() -> Result {
    let mut table = String::new();
    for fault in [
        Fault::Refused(400),
        Fault::Refused(403),
        Fault::RefusedOk,
        Fault::RetryAfter(7),
        Fault::Server(502),
        Fault::Server(503),
        Fault::CloseBeforeBody,
        Fault::CloseUndone,
        Fault::CloseDone,
        Fault::HalfBody,
        Fault::Unreadable,
        Fault::WithoutId,
    ] {
        let server = DevServer::start(&token())?;
        let mut host = Host::start(&server)?;
        server.fail("sendMessage", fault.clone());
        let report = host.present(&request(&[]), &[])?;
        // The child never tries again by itself.
        assert_eq!(server.calls("sendMessage"), 1);
        let (state, code, parts) = summary(&report);
        writeln!(
            table,
            "{fault:?}: {state:?} {} {parts:?} retry after {:?}",
            code.unwrap_or_default(),
            report.retry_after
        )?;
        // And it goes on: the next order is carried out.
        assert_eq!(
            host.present(&request(&[]), &[])?.state,
            SendState::Confirmed
        );
    }
    insta::assert_snapshot!(table);
    Ok(())
}

#[test]
fn a_provider_that_is_not_there_was_sent_nothing() -> Result {
    let server = DevServer::start(&token())?;
    let mut launch = launch(&server);
    let free = std::net::TcpListener::bind("127.0.0.1:0")?;
    launch.api_base = Some(format!("http://{}", free.local_addr()?));
    drop(free);
    let mut host = Host::start_with(&launch, |_| {})?;
    let report = host.present(&request(&[]), &[])?;
    assert_eq!(
        summary(&report),
        (
            SendState::Failed,
            Some("telegram_unreachable".to_owned()),
            vec![]
        )
    );
    Ok(())
}

#[test]
fn channel_11_the_wait_that_the_provider_wants_is_reported() -> Result {
    let server = DevServer::start(&token())?;
    let mut host = Host::start(&server)?;
    server.fail("sendMessage", Fault::RetryAfter(7));
    let report = host.present(&request(&[]), &[])?;
    assert_eq!(
        (report.state, report.error_code, report.retry_after),
        (
            SendState::Failed,
            Some(ErrorCode::TelegramHttp(429)),
            Some(7)
        )
    );
    Ok(())
}

#[test]
fn channel_12_an_unknown_part_stops_the_delivery_and_a_retry_starts_there() -> Result {
    let server = DevServer::start(&token())?;
    let mut host = Host::start_with(&launch(&server), |settings| {
        settings.patience.request = Duration::from_millis(300);
    })?;
    let request = request_of_parts(3);
    // The first part passes, the second gets no answer in time.
    server.fail("sendMessage", Fault::Late(Duration::ZERO));
    server.fail("sendMessage", Fault::Hold);
    let first = host.present(&request, &[])?;
    server.heal("sendMessage");
    assert_eq!(
        summary(&first),
        (
            SendState::Unknown,
            Some("telegram_response_unknown".to_owned()),
            vec![("100".to_owned(), 0)]
        )
    );
    // Settlement reaches what is known.
    assert_eq!(
        host.settle(&request, &first.messages)?.state,
        SendState::Confirmed
    );
    let edited = server.parameters("editMessageReplyMarkup");
    assert_eq!(edited[0]["message_id"], first.messages[0].message_id);

    let second = host.present(&request, &first.messages)?;
    assert_eq!(second.state, SendState::Confirmed);
    let sent: Vec<_> = server
        .parameters("sendMessage")
        .iter()
        .map(|call| call["text"].as_str().unwrap_or_default()[..8].to_owned())
        .collect();
    assert_eq!(sent, ["Part 1/3", "Part 2/3", "Part 2/3", "Part 3/3"]);
    Ok(())
}

#[test]
fn channel_13_a_refused_part_stops_the_delivery_and_the_next_attempt_sends_the_rest() -> Result {
    let server = DevServer::start(&token())?;
    let mut host = Host::start(&server)?;
    let request = request_of_parts(3);
    server.fail("sendMessage", Fault::Late(Duration::ZERO));
    server.fail("sendMessage", Fault::Refused(400));
    let first = host.present(&request, &[])?;
    assert_eq!(
        summary(&first),
        (
            SendState::Failed,
            Some("telegram_http_400".to_owned()),
            vec![("100".to_owned(), 0)]
        )
    );
    let second = host.present(&request, &first.messages)?;
    let all: Vec<_> = (0..3).map(|part| ("100".to_owned(), part)).collect();
    assert_eq!(summary(&second), (SendState::Confirmed, None, all));
    let heads: Vec<_> = server
        .chat(CHAT)
        .iter()
        .map(|shown| shown.text[..8].to_owned())
        .collect();
    assert_eq!(heads, ["Part 1/3", "Part 2/3", "Part 3/3"]);
    Ok(())
}

#[test]
fn channel_14_a_chat_that_has_it_all_is_not_sent_it_again() -> Result {
    let server = DevServer::start(&token())?;
    let mut launch = launch(&server);
    launch.allowed_chat_ids = vec!["100".to_owned(), "200".to_owned()];
    let mut host = Host::start_with(&launch, |_| {})?;
    server.close_chat(200);
    let request = request_of_parts(2);
    let first = host.present(&request, &[])?;
    let of_first = vec![("100".to_owned(), 0), ("100".to_owned(), 1)];
    assert_eq!(
        summary(&first),
        (
            SendState::Failed,
            Some("telegram_http_400".to_owned()),
            of_first
        )
    );
    server.open_chat(200);
    let second = host.present(&request, &first.messages)?;
    assert_eq!(second.state, SendState::Confirmed);
    assert_eq!((server.chat(100).len(), server.chat(200).len()), (2, 2));
    assert_eq!(second.messages.len(), 4);
    Ok(())
}

#[test]
fn evidence_of_another_text_is_never_sent_over() -> Result {
    let server = DevServer::start(&token())?;
    let mut host = Host::start(&server)?;
    let request = request_of_parts(3);
    let mut shown = host.present(&request, &[])?.messages;
    shown.truncate(2);
    shown[1].content_digest = content_digest("another text");
    let calls = server.calls("sendMessage");
    let report = host.present(&request, &shown)?;
    assert_eq!(
        (report.state, report.error_code, &report.messages),
        (
            SendState::Unknown,
            Some(ErrorCode::TelegramPartEvidenceMismatch),
            &shown
        )
    );
    assert_eq!(
        server.calls("sendMessage"),
        calls,
        "not even what is missing"
    );

    // A part that there is none of now is such evidence too.
    shown[1].part_index = 7;
    let report = host.present(&request, &shown)?;
    assert_eq!(
        report.error_code,
        Some(ErrorCode::TelegramPartEvidenceMismatch)
    );
    Ok(())
}

#[test]
fn channel_20_a_child_sends_nothing_of_a_document_of_too_many_parts() -> Result {
    // Nobody can ask this; and if it came to a child all the same:
    let request = request_of_parts(21);
    let refused = render(&request).unwrap_err();
    assert_eq!(refused, TooManyParts { observed: 21 });
    let server = DevServer::start(&token())?;
    let mut host = Host::start(&server)?;
    let report = host.present(&request, &[])?;
    assert_eq!(
        (report.state, report.error_code),
        (SendState::Failed, Some(ErrorCode::PresentationTooLong))
    );
    assert_eq!(server.calls("sendMessage"), 0);
    assert_eq!(render(&request_of_parts(20))?.len(), 20);
    Ok(())
}

#[test]
fn channel_21_texts_that_look_like_markup_are_sent_unchanged() -> Result {
    let server = DevServer::start(&token())?;
    let mut host = Host::start(&server)?;
    let text = "<b>bold</b> *x* _y_ `z` /start @name [a](http://b) &amp;";
    host.present(&request(&[text]), &[])?;
    let sent = server.parameters("sendMessage").remove(0);
    assert!(
        sent["text"]
            .as_str()
            .is_some_and(|sent| sent.contains(text))
    );
    assert!(sent.get("parse_mode").is_none() && sent.get("entities").is_none());
    Ok(())
}

#[test]
fn without_a_chat_nothing_counts_as_shown() -> Result {
    let server = DevServer::start(&token())?;
    let mut launch = launch(&server);
    launch.allowed_chat_ids.clear();
    let mut host = Host::start_with(&launch, |_| {})?;
    let report = host.present(&request(&[]), &[])?;
    assert_eq!(
        summary(&report),
        (
            SendState::Failed,
            Some("telegram_rejected".to_owned()),
            vec![]
        )
    );
    Ok(())
}

#[test]
fn a_late_answer_is_an_answer() -> Result {
    let server = DevServer::start(&token())?;
    let mut host = Host::start(&server)?;
    server.fail("sendMessage", Fault::Late(Duration::from_millis(100)));
    assert_eq!(
        host.present(&request(&[]), &[])?.state,
        SendState::Confirmed
    );
    assert!(server.wait_for_chat(CHAT, SOON, |shown| shown.len() == 1));
    Ok(())
}
