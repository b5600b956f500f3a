//! Taking the buttons off: section 9 of the channels reference, from the side of the child.

use std::fmt::Write as _;

use holdpoint_channels::dev_server::{DevServer, Fault};
use holdpoint_channels::protocol::{ErrorCode, SendState};

use crate::host::{Host, launch, request, request_of_parts};
use crate::{CHAT, Result, token};

#[test]
fn the_buttons_go_in_every_chat_and_nothing_else_is_touched() -> Result {
    let server = DevServer::start(&token())?;
    let mut launch = launch(&server);
    launch.allowed_chat_ids = vec!["100".to_owned(), "200".to_owned()];
    let mut host = Host::start_with(&launch, |_| {})?;
    let request = request_of_parts(2);
    let shown = host.present(&request, &[])?.messages;
    let report = host.settle(&request, &shown)?;
    assert_eq!(
        (report.state, report.error_code),
        (SendState::Confirmed, None)
    );
    for chat in [100, 200] {
        let shown = server.chat(chat);
        assert_eq!(shown.len(), 2, "nothing more is sent");
        assert!(shown.iter().all(|shown| shown.buttons.is_empty()));
    }
    assert_eq!(
        server.calls("editMessageReplyMarkup"),
        2,
        "one for each chat"
    );
    Ok(())
}

#[test]
fn channel_38_what_is_already_done_counts_as_done() -> Result {
    let server = DevServer::start(&token())?;
    let mut host = Host::start(&server)?;
    let request = request(&[]);
    let shown = host.present(&request, &[])?.messages;
    for round in 0..2 {
        // The second edit finds nothing to modify.
        assert_eq!(
            host.settle(&request, &shown)?.state,
            SendState::Confirmed,
            "{round}"
        );
    }
    // A message that is gone has no buttons either.
    server.delete(CHAT, shown[0].message_id);
    assert_eq!(host.settle(&request, &shown)?.state, SendState::Confirmed);
    assert_eq!(server.calls("editMessageReplyMarkup"), 3);
    Ok(())
}

#[test]
fn channel_39_every_other_failure_may_be_tried_again_by_the_host() -> Result {
    let server = DevServer::start(&token())?;
    let mut host = Host::start(&server)?;
    let request = request(&[]);
    let shown = host.present(&request, &[])?.messages;
    let mut table = String::new();
    for (calls, fault) in (1..).zip([
        Fault::Refused(400),
        Fault::Refused(403),
        Fault::RefusedOk,
        Fault::RetryAfter(7),
        Fault::Server(500),
        Fault::CloseUndone,
        Fault::CloseDone,
        Fault::Unreadable,
    ]) {
        server.fail("editMessageReplyMarkup", fault.clone());
        let report = host.settle(&request, &shown)?;
        let code = report
            .error_code
            .map(|code| code.to_string())
            .unwrap_or_default();
        writeln!(
            table,
            "{fault:?}: {:?} {code} retry after {:?}",
            report.state, report.retry_after
        )?;
        assert_eq!(
            server.calls("editMessageReplyMarkup"),
            calls,
            "one call for each attempt"
        );
    }
    insta::assert_snapshot!(table);
    assert_eq!(host.settle(&request, &shown)?.state, SendState::Confirmed);
    Ok(())
}

#[test]
fn one_chat_that_fails_does_not_keep_the_buttons_in_another() -> Result {
    let server = DevServer::start(&token())?;
    let mut launch = launch(&server);
    launch.allowed_chat_ids = vec!["100".to_owned(), "200".to_owned()];
    let mut host = Host::start_with(&launch, |_| {})?;
    let request = request(&[]);
    let shown = host.present(&request, &[])?.messages;
    server.fail("editMessageReplyMarkup", Fault::Refused(403));
    let report = host.settle(&request, &shown)?;
    assert_eq!(
        (report.state, report.error_code),
        (SendState::Failed, Some(ErrorCode::TelegramHttp(403)))
    );
    assert!(!server.chat(100)[0].buttons.is_empty());
    assert!(server.chat(200)[0].buttons.is_empty());
    // But a provider that wants to be left alone is left alone.
    server.fail("editMessageReplyMarkup", Fault::RetryAfter(3));
    let calls = server.calls("editMessageReplyMarkup");
    assert_eq!(host.settle(&request, &shown)?.retry_after, Some(3));
    assert_eq!(server.calls("editMessageReplyMarkup"), calls + 1);
    Ok(())
}

#[test]
fn without_references_there_is_nothing_to_do() -> Result {
    let server = DevServer::start(&token())?;
    let mut host = Host::start(&server)?;
    assert_eq!(host.settle(&request(&[]), &[])?.state, SendState::Confirmed);
    assert_eq!(server.calls("editMessageReplyMarkup"), 0);
    Ok(())
}
