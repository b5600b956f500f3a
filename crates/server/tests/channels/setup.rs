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
