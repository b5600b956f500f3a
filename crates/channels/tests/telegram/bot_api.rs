//! What is known of each request: the table of section 7, row by row, for every way in which a call can fail.

use std::fmt::Write as _;
use std::net::TcpListener;
use std::time::Duration;

use holdpoint_channels::dev_server::{DevServer, Fault};
use holdpoint_channels::telegram::api::{Button, Markup, Reason};
use holdpoint_channels::telegram::{ApiBase, BotToken, Client, Failure, Patience};

use crate::{CHAT, Result, SOON, token};

fn client(server: &DevServer) -> Client {
    Client::new(server.base(), token(), Patience::default())
}

fn go() -> Markup {
    Markup::Buttons(vec![Button {
        text: "Go".to_owned(),
        data: "pw:go".to_owned(),
    }])
}

#[test]
fn every_outcome_of_a_send_is_told_apart() -> Result {
    let mut table = String::new();
    let faults = [
        None,
        Some(Fault::Refused(400)),
        Some(Fault::Refused(401)),
        Some(Fault::Refused(403)),
        Some(Fault::Refused(404)),
        Some(Fault::Refused(409)),
        Some(Fault::RefusedOk),
        Some(Fault::RetryAfter(7)),
        Some(Fault::Server(500)),
        Some(Fault::Server(502)),
        Some(Fault::Server(503)),
        Some(Fault::CloseBeforeBody),
        Some(Fault::CloseUndone),
        Some(Fault::CloseDone),
        Some(Fault::HalfBody),
        Some(Fault::Unreadable),
        Some(Fault::WithoutId),
        Some(Fault::Late(Duration::from_millis(50))),
    ];
    for fault in faults {
        let server = DevServer::start(&token())?;
        if let Some(fault) = &fault {
            server.fail("sendMessage", fault.clone());
        }
        let outcome = client(&server).send_message(&CHAT.to_string(), "Ship it?", &go());
        let code = outcome.err().map(|failure| failure.code().to_string());
        let fault = fault.map_or("none".to_owned(), |fault| format!("{fault:?}"));
        let outcome = match outcome {
            Ok(id) => format!("confirmed {id}"),
            Err(Failure::NotSent) => "not sent".to_owned(),
            Err(Failure::Refused(refusal)) => {
                format!("refused, retry after {:?}", refusal.retry_after_s)
            }
            Err(Failure::Unknown) => "unknown".to_owned(),
        };
        let shown = server.chat(CHAT).len();
        // One call, whatever happened: nothing is ever tried again in here.
        assert_eq!(server.calls("sendMessage"), 1);
        writeln!(
            table,
            "{fault}: {outcome} ({}), {shown} shown",
            code.unwrap_or_default()
        )?;
    }
    insta::assert_snapshot!(table);
    Ok(())
}

#[test]
fn a_request_that_takes_too_long_is_unknown() -> Result {
    let server = DevServer::start(&token())?;
    server.fail("sendMessage", Fault::Hold);
    let patience = Patience {
        request: Duration::from_millis(200),
        ..Patience::default()
    };
    let client = Client::new(server.base(), token(), patience);
    let outcome = client.send_message("100", "Ship it?", &go());
    assert_eq!(outcome, Err(Failure::Unknown));
    assert_eq!(server.chat(CHAT).len(), 1, "it was done all the same");
    server.heal("sendMessage");
    Ok(())
}

#[test]
fn what_never_left_is_provably_not_sent() -> Result {
    // A port on which nobody listens.
    let free = TcpListener::bind("127.0.0.1:0")?;
    let refused = format!("http://{}", free.local_addr()?);
    drop(free);
    // Somebody listens, but speaks no TLS: the handshake fails before the request.
    let plain = DevServer::start(&token())?;
    let no_tls = plain.url().replace("http://", "https://");
    let quick = Patience {
        connect: Duration::from_millis(500),
        request: Duration::from_secs(1),
        ..Patience::default()
    };
    for base in [
        refused.as_str(),
        no_tls.as_str(),
        "https://no-such-host.invalid",
    ] {
        let client = Client::new(ApiBase::new(base)?, token(), quick);
        let outcome = client.send_message("100", "Ship it?", &Markup::None);
        assert_eq!(outcome, Err(Failure::NotSent), "{base}");
        assert_eq!(client.get_updates(0), Err(Failure::NotSent), "{base}");
    }
    // Somebody listens and never speaks: the handshake takes too long.
    let silent = TcpListener::bind("127.0.0.1:0")?;
    let base = ApiBase::new(&format!("https://{}", silent.local_addr()?))?;
    let patience = Patience {
        connect: Duration::from_millis(200),
        request: Duration::from_millis(400),
        ..Patience::default()
    };
    let outcome = Client::new(base, token(), patience).send_message("100", "x", &Markup::None);
    assert_eq!(outcome, Err(Failure::NotSent));
    Ok(())
}

#[test]
fn an_answer_larger_than_the_limit_is_not_read() -> Result {
    use std::io::{Read as _, Write as _};
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let base = ApiBase::new(&format!("http://{}", listener.local_addr()?))?;
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _read = stream.read(&mut [0; 4_096]).unwrap();
        stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n{\"ok\":true,\"result\":\"")
            .unwrap();
        // Until the client has had enough.
        let much = vec![b'x'; 65_536];
        while stream.write_all(&much).is_ok() {}
    });
    let outcome = Client::new(base, token(), Patience::default()).get_updates(0);
    assert_eq!(outcome, Err(Failure::Unknown));
    server.join().unwrap();
    Ok(())
}

#[test]
fn edits_tell_what_is_already_as_it_should_be() -> Result {
    let server = DevServer::start(&token())?;
    let client = client(&server);
    let id = client.send_message("100", "Ship it?", &go())?;
    assert_eq!(server.chat(CHAT)[0].buttons, [["Go"]]);
    client.remove_buttons("100", id)?;
    assert!(server.chat(CHAT)[0].buttons.is_empty());

    let reason = |outcome| match outcome {
        Err(Failure::Refused(refusal)) => Some((refusal.status, refusal.reason)),
        _ => None,
    };
    let again = client.remove_buttons("100", id);
    assert_eq!(reason(again), Some((Some(400), Reason::NotModified)));
    server.delete(CHAT, id);
    let gone = client.remove_buttons("100", id);
    assert_eq!(reason(gone), Some((Some(400), Reason::MessageNotFound)));
    Ok(())
}

#[test]
fn who_the_bot_is_proves_the_token() -> Result {
    let server = DevServer::start(&token())?;
    let me = client(&server).get_me()?;
    assert_eq!(
        (me.id, me.username.as_deref()),
        (1_000, Some("holdpoint_bot"))
    );

    let other = Client::new(
        server.base(),
        BotToken::new("1000:other")?,
        Patience::default(),
    );
    let refused = other.get_me().unwrap_err();
    assert_eq!(refused.status(), Some(401));
    Ok(())
}

#[test]
fn two_pollers_are_told_of_each_other() -> Result {
    let server = DevServer::start(&token())?;
    let patience = Patience {
        poll_s: 50,
        ..Patience::default()
    };
    let first = Client::new(server.base(), token(), patience);
    let waiting = std::thread::spawn(move || first.get_updates(0));
    assert!(server.wait_for_calls("getUpdates", 1, SOON));
    let quick = Patience {
        poll_s: 0,
        ..Patience::default()
    };
    let second = Client::new(server.base(), token(), quick);
    assert_eq!(second.get_updates(0)?, []);
    let ended = waiting.join().unwrap().unwrap_err();
    assert_eq!(ended.status(), Some(409));
    Ok(())
}

#[test]
fn polls_share_a_connection_and_sends_do_not() -> Result {
    // A send on an old connection could be lost in it without anybody knowing whether it arrived.
    let server = DevServer::start(&token())?;
    let quick = Patience {
        poll_s: 0,
        ..Patience::default()
    };
    let client = Client::new(server.base(), token(), quick);
    let before = server.connections();
    for _ in 0..3 {
        client.get_updates(0)?;
    }
    assert_eq!(server.connections() - before, 1);
    for _ in 0..3 {
        client.send_message("100", "x", &Markup::None)?;
    }
    assert_eq!(server.connections() - before, 4);
    Ok(())
}

#[test]
fn no_failure_and_no_debug_text_shows_the_token() -> Result {
    let secret = "1000:test-token";
    let server = DevServer::start(&token())?;
    let mut shown = format!("{server:?} {:?} {:?}", client(&server), token());
    for base in [server.base(), ApiBase::new("https://no-such-host.invalid")?] {
        for fault in [Fault::Refused(401), Fault::CloseDone, Fault::Server(500)] {
            server.fail("sendMessage", fault);
            let client = Client::new(base.clone(), token(), Patience::default());
            let failure = client.send_message("100", "x", &Markup::None).unwrap_err();
            write!(shown, "{failure} {failure:?} {}", failure.code())?;
        }
    }
    assert!(
        !shown.contains(secret) && !shown.contains("test-token"),
        "{shown}"
    );
    Ok(())
}
