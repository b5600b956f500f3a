//! Processes that die: what they may have done is in doubt, everything else goes on.

use std::fs;
use std::io::{BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use holdpoint_channels::dev_server::{DevServer, Fault};
use holdpoint_channels::protocol::{
    Choice, FromAdapter, Launch, OpenRequest, Order, TextInput, ToAdapter, Token, Verdict,
    read_line,
};
use holdpoint_channels::telegram::BotToken;
use holdpoint_state::clock::{Clock as _, SystemClock};
use rustix::process::Signal;

use crate::support::{CHAT, Home, TOKEN, USER, signal, until, wait_for_messages};

#[test]
fn channel_02_an_adapter_killed_while_it_sends_is_in_doubt_and_nothing_is_sent_again() {
    let (home, server) = Home::with_ops();
    server.fail("sendMessage", Fault::Hold);
    let host = home.host(&server.url());
    let run = home.ask();
    until("the message to be under way", || {
        server.calls("sendMessage") == 1
    });
    let polls = server.calls("getUpdates");
    signal(host.adapter(), Signal::KILL);
    until("the doubt", || {
        home.status()["ambiguous"].as_array().unwrap().len() == 1
    });
    let status = home.status();
    assert_eq!(
        status["ambiguous"][0]["errorCode"],
        "adapter_exited_without_receipt"
    );
    server.heal("sendMessage");
    host.wait_to_say("telegram:ops: running", 2);
    // It is told to read updates, and so nothing is left to be sent.
    until("a poll of the next one", || {
        polls < server.calls("getUpdates")
    });
    assert_eq!(server.calls("sendMessage"), 1);
    assert_eq!(home.run(&["answer", &run, "go"]).0, 0);
    home.wait_for(&run, "completed");
    // A person looks, and says that it is there: then its buttons go.
    let attempt = status["ambiguous"][0]["attemptId"].as_str().unwrap();
    let recovered = home.json(&["channels", "recover", attempt, "confirm"]);
    assert_eq!(recovered["channel"], "telegram:ops");
    assert_eq!(home.run(&["channels", "recover", attempt, "confirm"]).0, 0);
    assert_eq!(home.run(&["channels", "recover", attempt, "retry"]).0, 7);
    until("the settlement", || {
        home.status()["channels"][0]["unsettled"] == 0
    });
    assert_eq!(home.run(&["state", "verify"]).0, 0);
}

#[test]
fn channel_03_an_idle_adapter_that_is_killed_leaves_no_doubt() {
    let (home, server) = Home::with_ops();
    let host = home.host(&server.url());
    until("a poll", || 1 <= server.calls("getUpdates"));
    let first = host.adapter();
    signal(first, Signal::KILL);
    host.wait_to_say("telegram:ops: running", 2);
    assert_ne!(host.adapter(), first);
    assert_eq!(home.status()["ambiguous"], serde_json::json!([]));
    let run = home.ask();
    let message = wait_for_messages(&server, 1);
    server.press(USER, CHAT, message, "Ship it").unwrap();
    home.wait_for(&run, "completed");
}

#[test]
fn channel_04_a_host_killed_with_two_profiles_sending_leaves_two_doubts() {
    let home = Home::new();
    let provider = Provider::start();
    for (profile, token) in [("dev", "1:a"), ("ops", "2:b")] {
        home.token(profile, token);
        home.set_up(profile, profile, &provider.url);
    }
    let host = home.host(&provider.url);
    home.ask();
    until("both to send", || provider.sending() == 2);
    let adapters = host.adapters();
    assert_eq!(adapters.len(), 2);
    host.kill();
    until("both adapters to be gone", || {
        adapters
            .iter()
            .all(|pid| !std::path::Path::new(&format!("/proc/{pid}/exe")).exists())
    });
    // Its lease has not expired, but it is known to be dead.
    for profile in home.status()["profiles"].as_array().unwrap() {
        assert_eq!(profile["running"], false, "{profile}");
    }
    let _host = home.host(&provider.url);
    until("both doubts", || {
        home.status()["ambiguous"].as_array().unwrap().len() == 2
    });
    for doubt in home.status()["ambiguous"].as_array().unwrap() {
        assert_eq!(doubt["errorCode"], "host_restarted_without_receipt");
    }
    let polls = provider.polls();
    until("polls of the new adapters", || {
        polls + 2 <= provider.polls()
    });
    assert_eq!(provider.sending(), 2);
    assert_eq!(home.run(&["state", "verify"]).0, 0);
}

#[test]
fn a_configuration_that_others_may_read_ends_the_adapters_of_a_running_host() {
    let (home, server) = Home::with_ops();
    let host = home.host(&server.url());
    for (name, open, private) in [
        ("config/channels.json", 0o644, 0o600),
        ("config", 0o755, 0o700),
    ] {
        let mode = |mode| {
            fs::set_permissions(home.path(name), fs::Permissions::from_mode(mode)).unwrap();
        };
        host.adapter();
        mode(open);
        until("no adapter", || host.adapters().is_empty());
        mode(private);
    }
    host.adapter();
}

/// An adapter outlives no host, whatever system it is on: the end of its standard input ends it in the middle of a request. Its parent, this
/// test, lives on, so that no signal of a dead parent can be what ends it.
#[test]
fn an_adapter_whose_input_ends_while_it_sends_ends_at_once() {
    let home = Home::new();
    let server = DevServer::start(&BotToken::new(TOKEN).unwrap()).unwrap();
    server.fail("sendMessage", Fault::Hold);
    let mut adapter = home
        .command(&["channel-adapter"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = adapter.stdin.take().unwrap();
    let mut said = BufReader::new(adapter.stdout.take().unwrap());
    let launch = Launch {
        adapter_epoch: "epoch-1".to_owned(),
        profile: "ops".to_owned(),
        token: Token::new(TOKEN.to_owned().into()).unwrap(),
        allowed_user_ids: vec![USER.to_string()],
        allowed_chat_ids: vec![CHAT.to_string()],
        api_base: Some(server.url()),
    };
    input.write_all(&launch.to_line().unwrap()).unwrap();
    let first = read_line(&mut said).unwrap().unwrap();
    let first = FromAdapter::from_line(&first).unwrap();
    assert_eq!(first.sequence, 1);
    // A press of a choice that asks for a text makes it send a prompt, which is never answered.
    let request = OpenRequest {
        decision_id: "decision-1".to_owned(),
        request_digest: format!("sha256:{}", "a".repeat(64)),
        choices: [(
            "redo".to_owned(),
            Choice {
                label: "Redo".to_owned(),
                input: Some(TextInput {
                    kind: "text".to_owned(),
                    name: "why".to_owned(),
                    prompt: "Why?".to_owned(),
                    min_length: 1,
                    max_length: 9,
                }),
            },
        )]
        .into(),
    };
    server.say(USER, CHAT, "the message");
    let data = BotToken::new(TOKEN)
        .unwrap()
        .callback("ops", &request.request_digest, "redo");
    server.press_data(USER, CHAT, 1, &data).unwrap();
    let order = ToAdapter {
        sequence: 1,
        outcome: Verdict::Accepted,
        revision: 1,
        command: Some(Order::Poll {
            cursor: 0,
            requests: vec![request],
            quiet_ms: 0,
        }),
        answer: None,
        error: None,
    };
    input.write_all(&order.to_line().unwrap()).unwrap();
    assert!(server.wait_for_calls("sendMessage", 1, Duration::from_mins(1)));
    drop(input);
    // Without its watch it would wait 30 s for the answer.
    let limit = SystemClock.monotonic();
    until("its end", || adapter.try_wait().unwrap().is_some());
    assert!(SystemClock.monotonic().since(limit) < 20_000);
    assert_eq!(adapter.wait().unwrap().code(), Some(4));
    server.heal("sendMessage");
}

/// A provider of any bot that never answers a message.
struct Provider {
    url: String,
    counts: Arc<[AtomicUsize; 2]>,
}

impl Provider {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let counts: Arc<[AtomicUsize; 2]> = Arc::default();
        let counting = Arc::clone(&counts);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let counts = Arc::clone(&counting);
                std::thread::spawn(move || answer(stream, &counts));
            }
        });
        Self { url, counts }
    }

    fn sending(&self) -> usize {
        self.counts[0].load(Ordering::SeqCst)
    }

    fn polls(&self) -> usize {
        self.counts[1].load(Ordering::SeqCst)
    }
}

fn answer(mut stream: TcpStream, counts: &[AtomicUsize; 2]) {
    let mut head = Vec::new();
    let mut part = [0_u8; 4096];
    loop {
        let text = String::from_utf8_lossy(&head).into_owned();
        if let Some((first, rest)) = text.split_once("\r\n\r\n") {
            let length = first.lines().find_map(|line| {
                line.to_ascii_lowercase()
                    .strip_prefix("content-length: ")?
                    .parse()
                    .ok()
            });
            if length.unwrap_or(0) <= rest.len() {
                // Two tokens are two bots.
                let bot = first
                    .split_once("/bot")
                    .and_then(|(_, rest)| rest.split_once(':'))
                    .map_or("1", |(bot, _)| bot);
                let me = format!(r#"{{"id":{bot},"is_bot":true,"first_name":"b","username":"b"}}"#);
                let result = if first.contains("/sendMessage") {
                    counts[0].fetch_add(1, Ordering::SeqCst);
                    // It is never answered: the connection stays open as long as the other side wants.
                    while stream.read(&mut part).is_ok_and(|read| 0 < read) {}
                    return;
                } else if first.contains("/getMe") {
                    me.as_str()
                } else {
                    counts[1].fetch_add(1, Ordering::SeqCst);
                    "[]"
                };
                let body = format!(r#"{{"ok":true,"result":{result}}}"#);
                let head = format!(
                    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                    body.len()
                );
                drop(stream.write_all(format!("{head}{body}").as_bytes()));
                return;
            }
        }
        match stream.read(&mut part) {
            Ok(read) if 0 < read => head.extend_from_slice(&part[..read]),
            _ => return,
        }
    }
}
