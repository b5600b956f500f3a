//! Setting up, looking and trying, in text.

use holdpoint_channels::dev_server::DevServer;
use holdpoint_channels::telegram::BotToken;

use crate::support::{Home, TOKEN};

#[test]
fn a_profile_is_set_up_tried_and_listed() {
    let home = Home::new();
    let server = DevServer::start(&BotToken::new(TOKEN).unwrap()).unwrap();
    let url = server.url();
    home.token("token", TOKEN);
    home.token("wrong", "1000:wrong");
    let token = home.path("token");
    let wrong = home.path("wrong");
    let mut told = String::new();
    let mut tell = |args: &[&str]| {
        let (status, stdout, stderr) = home.run(args);
        let words: Vec<&str> = args
            .iter()
            .filter(|word| !word.contains('/') && **word != "--api-base")
            .copied()
            .collect();
        let text = format!(
            "$ holdpoint {}\n{stdout}{stderr}exit {status}\n\n",
            words.join(" ")
        );
        told.push_str(&text.replace(
            home.path("").to_str().unwrap().trim_end_matches('/'),
            "[place]",
        ));
    };
    tell(&["channels", "list"]);
    tell(&["channels", "status"]);
    tell(&[
        "channels",
        "setup",
        "ops",
        "--token-file",
        wrong.to_str().unwrap(),
        "--user",
        "100",
        "--chat",
        "200",
        "--api-base",
        &url,
    ]);
    tell(&[
        "channels",
        "setup",
        "ops",
        "--token-file",
        token.to_str().unwrap(),
        "--user",
        "@ann",
        "--chat",
        "200",
        "--api-base",
        &url,
    ]);
    tell(&[
        "channels",
        "setup",
        "ops",
        "--token-file",
        token.to_str().unwrap(),
        "--user",
        "100",
        "--chat",
        "-200",
        "--api-base",
        &url,
    ]);
    let again = |users: &'static [&'static str], more: &'static [&'static str]| {
        let mut args = vec![
            "channels",
            "setup",
            "ops",
            "--token-file",
            token.to_str().unwrap(),
        ];
        for user in users {
            args.extend(["--user", user]);
        }
        args.extend(["--chat", "-200", "--api-base", &url]);
        args.extend(more);
        args
    };
    tell(&again(&["0"], &[]));
    tell(&again(&["-7"], &[]));
    tell(&again(&["100", "101"], &[]));
    tell(&again(&["100", "101"], &["--replace"]));
    tell(&again(&["100", "101"], &[]));
    tell(&["channels", "list"]);
    tell(&["channels", "test", "--api-base", &url]);
    tell(&["channels", "test", "dev"]);
    tell(&["channels", "status"]);
    tell(&["channels", "recover", "channel-none", "confirm"]);
    tell(&["channels", "run", "--api-base", "http://bots.example.org"]);
    assert!(
        !told.contains(TOKEN) && !told.contains("1000:wrong"),
        "{told}"
    );
    insta::assert_snapshot!(told);
}

#[test]
fn a_broken_configuration_hides_nothing_that_the_store_knows() {
    use std::os::unix::fs::PermissionsExt as _;
    let (home, server) = Home::with_ops();
    let host = home.host(&server.url());
    home.ask();
    crate::support::wait_for_messages(&server, 1);
    crate::support::until("it to be noted", || {
        home.status()["channels"][0]["open"] == 1
    });
    host.stop();
    let file = home.path("config/channels.json");
    let mode = |mode| {
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    mode(0o644);
    let status = home.status();
    assert_eq!(
        status["profiles"],
        serde_json::json!([{ "profile": "ops", "running": false, "configured": null }])
    );
    assert_eq!(status["errorFile"], file.to_str().unwrap());
    let told = home.run(&["channels", "status"]).1;
    assert!(told.contains("telegram:ops: not running, 1 open"), "{told}");
    assert!(
        told.contains("no adapter can start: ") && told.contains("channels.json has mode 0644"),
        "{told}"
    );
    // A profile that is configured no more is shown as long as the store knows it.
    std::fs::remove_file(&file).unwrap();
    assert_eq!(home.status()["profiles"][0]["configured"], false);
    let told = home.run(&["channels", "status"]).1;
    assert!(
        told.contains("not running, not configured any more, 1 open"),
        "{told}"
    );
}

#[test]
fn a_host_says_at_its_end_where_its_profiles_stand_then() {
    let (home, server) = Home::with_ops();
    let url = server.url();
    let mut host = home
        .command(&["--json", "channels", "run", "--no-work", "--api-base", &url])
        .spawn()
        .unwrap();
    assert!(server.wait_for_calls("getUpdates", 1, std::time::Duration::from_mins(1)));
    let pid = i32::try_from(host.id()).unwrap();
    crate::support::signal(pid, rustix::process::Signal::INT);
    let output = host.stdout.take().unwrap();
    let said: serde_json::Value = serde_json::from_reader(output).unwrap();
    host.wait().unwrap();
    assert_eq!(
        said["profiles"],
        serde_json::json!([{ "profile": "ops", "state": { "state": "stopped" } }])
    );
}

#[test]
fn a_refused_delivery_is_named_and_can_be_tried_again() {
    let (home, server) = Home::with_ops();
    server.close_chat(crate::support::CHAT);
    let _host = home.host(&server.url());
    home.ask();
    crate::support::until("three refusals", || {
        home.status()["refused"].as_array().unwrap().len() == 1
    });
    assert_eq!(server.calls("sendMessage"), 3);
    let attempt = home.status()["refused"][0]["attemptId"]
        .as_str()
        .unwrap()
        .to_owned();
    let told = home.run(&["channels", "status"]).1;
    assert!(
        told.contains(&format!("refused: {attempt} in telegram:ops, delivery of ")),
        "{told}"
    );
    assert!(told.contains("(0 parts seen): telegram_http_400"), "{told}");
    assert_eq!(home.run(&["channels", "recover", &attempt, "confirm"]).0, 7);
    server.open_chat(crate::support::CHAT);
    let retried = home.json(&["channels", "recover", &attempt, "retry"]);
    assert_eq!(retried["warning"], serde_json::Value::Null);
    crate::support::wait_for_messages(&server, 1);
    crate::support::until("nothing to wait", || {
        home.status()["refused"] == serde_json::json!([])
    });
    assert_eq!(home.run(&["state", "verify"]).0, 0);
}
