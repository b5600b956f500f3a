//! What can be seen from outside, and what the provider may say.

use std::fs;

use holdpoint_channels::dev_server::Fault;

use crate::support::{CHAT, Home, Running, TOKEN, USER, until, wait_for_messages};

#[test]
fn channel_50_nobody_sees_the_token_from_outside() {
    let (home, server) = Home::with_ops();
    let host = home.host(&server.url());
    home.ask();
    wait_for_messages(&server, 1);
    let adapter = host.adapter();
    for name in ["cmdline", "environ"] {
        let seen = fs::read(format!("/proc/{adapter}/{name}")).unwrap();
        assert!(!contains(&seen, TOKEN.as_bytes()), "{name}");
        assert!(
            !contains(&seen, b"HOLDPOINT"),
            "{name}: {}",
            String::from_utf8_lossy(&seen)
        );
    }
    assert!(!contains(&home.store_bytes(), TOKEN.as_bytes()));
    let said = format!(
        "{}{:?}{:?}",
        host.said(),
        home.run(&["channels", "list"]),
        home.status()
    );
    for private in [TOKEN, "\"100\"", "secret"] {
        assert!(!said.contains(private), "{private} in {said}");
    }
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

#[test]
fn channel_51_another_reader_of_the_bot_is_reported_and_messages_still_go_out() {
    let (home, server) = Home::with_ops();
    for _ in 0..3 {
        server.fail("getUpdates", Fault::Refused(409));
    }
    let host = home.host(&server.url());
    host.wait_to_say("can't read answers (telegram_conflict)", 1);
    let run = home.ask();
    let message = wait_for_messages(&server, 1);
    server.heal("getUpdates");
    server.press(USER, CHAT, message, "Ship it").unwrap();
    home.wait_for(&run, "completed");
}

#[test]
fn a_refused_token_stops_its_profile_until_it_is_put_right() {
    let (home, server) = Home::with_ops();
    home.token("token", "1000:another");
    let host = home.host(&server.url());
    host.wait_to_say("stopped: the token is refused (telegram_token_refused)", 1);
    assert_eq!(host.adapters(), Vec::<i32>::new());
    home.token("token", TOKEN);
    // Whatever touches the configuration lets it be read again.
    home.set_up("ops", "token", &server.url());
    host.wait_to_say("telegram:ops: running", 1);
    home.ask();
    wait_for_messages(&server, 1);
}

#[test]
fn channel_43_a_configuration_that_others_may_read_stops_adapters_and_nothing_else() {
    use std::os::unix::fs::PermissionsExt as _;
    let (home, server) = Home::with_ops();
    let file = home.path("config/channels.json");
    let host = home.host(&server.url());
    host.wait_to_say("telegram:ops: running", 1);
    let text = fs::read(&file).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    fs::write(&file, [text, b"\n".to_vec()].concat()).unwrap();
    host.wait_to_say("channels.json has mode 0644", 1);
    until("no adapter", || host.adapters().is_empty());
    let run = home.ask();
    home.wait_for(&run, "waiting");
    assert_eq!(home.run(&["answer", &run, "go"]).0, 0);
    home.wait_for(&run, "completed");
    assert_eq!(server.calls("sendMessage"), 0);
    let refused = home.run(&["channels", "run", "--api-base", &server.url()]);
    assert_eq!(refused.0, 2);
    assert!(refused.2.contains("channels.json"), "{}", refused.2);
    assert!(
        home.status()["error"]
            .as_str()
            .unwrap()
            .contains("channels.json")
    );
}

#[test]
fn one_host_has_a_profile_and_the_next_one_waits() {
    let (home, server) = Home::with_ops();
    let first = home.host(&server.url());
    first.wait_to_say("telegram:ops: running", 1);
    let second = home.host_with(&["channels", "run", "--no-work", "--api-base", &server.url()]);
    second.wait_to_say("another process hosts it", 1);
    assert_eq!(second.adapters(), Vec::<i32>::new());
    assert_eq!(first.stop(), 130);
    second.wait_to_say("telegram:ops: running", 1);
}

#[test]
fn case_084_a_second_profile_of_one_bot_waits_until_the_first_is_done() {
    let (home, server) = Home::with_ops();
    let url = server.url();
    let first = home.host(&url);
    first.wait_to_say("telegram:ops: running", 1);
    // Another configuration, another name, the same token.
    let elsewhere = |args: &[&str]| {
        let mut command = home.command(args);
        command.env("HOLDPOINT_CONFIG_DIR", home.path("elsewhere"));
        command
    };
    let token = home.path("token");
    let set_up = elsewhere(&[
        "channels",
        "setup",
        "dev",
        "--token-file",
        token.to_str().unwrap(),
        "--user",
        "100",
        "--chat",
        "200",
        "--api-base",
        &url,
    ])
    .output()
    .unwrap();
    assert!(set_up.status.success(), "{set_up:?}");
    let second = Running::start(&mut elsewhere(&[
        "channels",
        "run",
        "--no-work",
        "--api-base",
        &url,
    ]));
    second.wait_to_say("another profile of this store has the same bot", 1);
    until("no adapter of its own", || second.adapters().is_empty());
    let run = home.ask();
    let message = wait_for_messages(&server, 1);
    server.press(USER, CHAT, message, "Ship it").unwrap();
    home.wait_for(&run, "completed");
    assert_eq!(server.chat(CHAT).len(), 1, "one of them shows it");
    assert_eq!(first.stop(), 130);
    second.wait_to_say("telegram:dev: running", 1);
}
