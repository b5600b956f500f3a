//! A poll that stays open while everything else goes on, and the pauses that the provider wants.

use holdpoint_channels::dev_server::{DevServer, Fault};
use holdpoint_channels::protocol::{ErrorCode, Launch, OpenRequest, Order, Report, SendState};
use holdpoint_channels::telegram::Exit;
use holdpoint_state::clock::{Clock as _, SystemClock};

use crate::host::{Host, launch, request};
use crate::{CHAT, Result, SOON, USER, token};

/// A child whose polls are open for as long as the provider holds any, and which asks its host again at once.
fn patient(launch: &Launch) -> Result<Host> {
    Host::start_with(launch, |settings| {
        settings.patience.poll_s = 50;
        settings.look = std::time::Duration::from_millis(1);
    })
}

fn read_up_to(cursor: u64) -> Report {
    Report::Ready {
        cursor,
        error_code: None,
        bot_id: None,
        retry_after: None,
    }
}

#[test]
fn orders_are_carried_out_while_a_poll_is_open_and_a_stop_does_not_wait_for_it() -> Result {
    let server = DevServer::start(&token())?;
    let mut host = patient(&launch(&server))?;
    // Nothing happens, and the child asks again all the same.
    assert_eq!(host.poll(0, &[])?, (vec![], 0));
    assert!(server.wait_for_calls("getUpdates", 1, SOON));
    let shown = request(&[]);
    let report = host.present(&shown, &[])?;
    assert_eq!(report.state, SendState::Confirmed);
    assert_eq!(server.calls("getUpdates"), 1, "it is open still");
    // What happens ends the poll at once.
    server.press(USER, CHAT, 1, "Go")?;
    let open = [OpenRequest::of(&shown)];
    let mut answers = Vec::new();
    let mut cursor = 0;
    while answers.is_empty() {
        (answers, cursor) = host.poll(cursor, &open)?;
    }
    assert_eq!((answers.len(), cursor), (1, 1_001));
    assert_eq!(
        host.settle(&shown, &report.messages)?.state,
        SendState::Confirmed
    );
    assert!(server.chat(CHAT)[0].buttons.is_empty());
    assert_eq!(host.poll(cursor, &[])?, (vec![], cursor));
    assert!(server.wait_for_calls("getUpdates", 2, SOON));
    // The provider holds this one for 50 s, and nobody waits for it.
    let begun = SystemClock.monotonic();
    assert_eq!(host.stop()?, Exit::Stopped);
    assert!(SystemClock.monotonic().since(begun) < 25_000);
    assert_eq!(server.calls("getUpdates"), 2);
    Ok(())
}

#[test]
fn one_poll_is_open_at_a_time_and_what_it_brought_is_handled_before_the_next() -> Result {
    let server = DevServer::start(&token())?;
    let mut host = patient(&launch(&server))?;
    let shown = request(&[]);
    host.present(&shown, &[])?;
    for _ in 0..20 {
        assert_eq!(host.poll(0, &[])?, (vec![], 0));
    }
    assert!(server.wait_for_calls("getUpdates", 1, SOON));
    // It comes while the child is at something else, and is kept until there is a list.
    server.press(USER, CHAT, 1, "Go")?;
    host.present(&shown, &[])?;
    let mut answers = Vec::new();
    while answers.is_empty() {
        answers = host.poll(0, &[OpenRequest::of(&shown)])?.0;
    }
    assert_eq!(server.calls("getUpdates"), 1);
    let polls = server.parameters("getUpdates");
    assert_eq!(
        (&polls[0]["timeout"], &polls[0]["offset"]),
        (&50.into(), &0.into())
    );
    Ok(())
}

#[test]
fn a_press_that_an_older_list_does_not_know_is_looked_up_in_a_newer_one() -> Result {
    // A delivery was in doubt and a person confirms it: the list that the child has is from before.
    let server = DevServer::start(&token())?;
    let mut host = Host::start(&server)?;
    let shown = request(&[]);
    host.present(&shown, &[])?;
    server.press(USER, CHAT, 1, "Go")?;
    assert_eq!(
        host.poll(0, &[])?,
        (vec![], 0),
        "nothing of it is done with"
    );
    assert_eq!(server.toasts(), []);
    let (answers, cursor) = host.poll(0, &[OpenRequest::of(&shown)])?;
    assert_eq!((answers.len(), cursor), (1, 1_001));
    assert_eq!(server.toasts()[0].text, "Received.");
    assert_eq!(server.calls("getUpdates"), 1, "it was read once");
    Ok(())
}

#[test]
fn case_093_nothing_is_sent_before_the_pause_is_over_that_the_provider_wants() -> Result {
    let server = DevServer::start(&token())?;
    let mut host = Host::start(&server)?;
    let shown = request(&[]);
    host.present(&shown, &[])?;
    let open = || vec![OpenRequest::of(&shown)];
    let poll = |cursor, quiet_ms| Order::Poll {
        cursor,
        requests: open(),
        quiet_ms,
    };
    server.press(USER, CHAT, 1, "Redo")?;
    server.press(USER, CHAT, 1, "Go")?;
    // The host says that the provider wants a pause: the answer is told to the host, and nobody is told anything.
    let told = host.order(poll(0, 7_000))?;
    assert!(
        matches!(
            told.as_slice(),
            [Report::Answer(_), Report::Ready { cursor: 1_002, .. }]
        ),
        "{told:?}"
    );
    host.clock.advance(6_999);
    host.order(poll(1_002, 1))?;
    assert_eq!(
        (
            server.calls("answerCallbackQuery"),
            server.calls("sendMessage")
        ),
        (0, 1)
    );
    // Then everything is told, in its order.
    host.clock.advance(1);
    host.order(poll(1_002, 0))?;
    let toasts: Vec<_> = server
        .toasts()
        .into_iter()
        .map(|toast| toast.text)
        .collect();
    assert_eq!(toasts, ["Reply to the message below.", "Received."]);
    assert!(server.chat(CHAT)[1].asks_reply);
    Ok(())
}

#[test]
fn case_093_a_pause_that_a_prompt_or_a_word_meets_is_told_to_the_host_and_ends_all_sending()
-> Result {
    let server = DevServer::start(&token())?;
    let mut host = Host::start(&server)?;
    let shown = request(&[]);
    host.present(&shown, &[])?;
    let poll = |cursor| Order::Poll {
        cursor,
        requests: vec![OpenRequest::of(&shown)],
        quiet_ms: 0,
    };
    for (method, button, reports) in [("sendMessage", "Redo", 1), ("answerCallbackQuery", "Go", 2)]
    {
        let cursor = if button == "Go" { 1_002 } else { 0 };
        server.press(USER, CHAT, 1, button)?;
        server.press(USER, CHAT, 1, "Redo")?;
        server.fail(method, Fault::RetryAfter(9));
        let (words, sent) = (server.toasts().len(), server.chat(CHAT).len());
        let mut told = host.order(poll(cursor))?;
        assert_eq!(told.len(), reports, "{told:?}");
        let wants_pause = Report::Ready {
            cursor: cursor.max(1_000) + 2,
            error_code: None,
            bot_id: None,
            retry_after: Some(9),
        };
        assert_eq!(told.pop(), Some(wants_pause));
        let calls = server.calls(method);
        // It is told once, and nothing is tried before it is over.
        host.clock.advance(8_999);
        assert_eq!(
            host.order(poll(cursor.max(1_000) + 2))?,
            [read_up_to(cursor.max(1_000) + 2)]
        );
        assert_eq!(server.calls(method), calls);
        assert_eq!(
            (server.toasts().len(), server.chat(CHAT).len()),
            (words, sent)
        );
        host.clock.advance(1);
        host.order(poll(cursor.max(1_000) + 2))?;
        assert_eq!(
            server.toasts().len(),
            words + 2,
            "what was refused is done then"
        );
    }
    Ok(())
}

#[test]
fn a_word_that_is_of_no_use_any_more_is_not_sent() -> Result {
    let server = DevServer::start(&token())?;
    let mut host = Host::start(&server)?;
    let shown = request(&[]);
    host.present(&shown, &[])?;
    server.press(USER, CHAT, 1, "Go")?;
    let poll = |cursor, quiet_ms| Order::Poll {
        cursor,
        requests: vec![OpenRequest::of(&shown)],
        quiet_ms,
    };
    host.order(poll(0, 60_000))?;
    host.clock.advance(60_000);
    host.order(poll(1_001, 0))?;
    assert_eq!(server.calls("answerCallbackQuery"), 0);
    Ok(())
}

#[test]
fn who_the_bot_is_is_asked_of_the_provider_and_told_once() -> Result {
    let server = DevServer::start(&token())?;
    let mut host = Host::start(&server)?;
    server.fail("getMe", Fault::Server(502));
    let failed = Report::Ready {
        cursor: 0,
        error_code: Some(ErrorCode::TelegramResponseUnknown),
        bot_id: None,
        retry_after: None,
    };
    assert_eq!(host.order(Order::Identify)?, std::slice::from_ref(&failed));
    // Not at once again.
    assert_eq!(host.order(Order::Identify)?, [failed]);
    assert_eq!(server.calls("getMe"), 1);
    host.clock.advance(1_000);
    let known = Report::Ready {
        cursor: 0,
        error_code: None,
        bot_id: Some(1_000),
        retry_after: None,
    };
    assert_eq!(host.order(Order::Identify)?, [known]);
    assert_eq!(host.poll(0, &[])?, (vec![], 0));
    server.fail("getMe", Fault::Refused(401));
    host.order(Order::Identify)?;
    let exiting = Report::Exiting {
        cursor: 0,
        error_code: Some(ErrorCode::TelegramTokenRefused),
    };
    assert_eq!(host.pending.report, exiting);
    Ok(())
}
