//! The whole way, from a workflow file to an answer and back.

use std::fs;
use std::sync::Barrier;

use serde_json::{Value, json};

use crate::support::{CHAT, Home, SHIP, USER, until, wait_for_messages};

#[test]
fn one_command_carries_a_decision_from_question_to_answer() {
    let (home, server) = Home::with_ops();
    let host = home.host(&server.url());
    let run = home.ask();
    let message = wait_for_messages(&server, 1);
    let shown = server.chat(CHAT).remove(0);
    assert_eq!(shown.buttons, [["Ship it"], ["Redo"]]);
    assert!(shown.text.contains("All tests pass."), "{}", shown.text);
    server.press(USER, CHAT, message, "Ship it").unwrap();
    let view = home.wait_for(&run, "completed");
    assert!(view.to_string().contains(r#""choice":"go""#), "{view:#}");
    until("the buttons to go", || {
        server.chat(CHAT)[0].buttons.is_empty()
    });
    until("a word on the button", || server.toasts().len() == 1);
    until("the settlement to be noted", || {
        home.status()["channels"][0]["unsettled"] == 0
    });
    assert_eq!(host.stop(), 130);
    assert_eq!(home.run(&["state", "verify"]).0, 0);
}

#[test]
fn a_reply_carries_a_text_as_it_was_written() {
    let (home, server) = Home::with_ops();
    let _host = home.host(&server.url());
    let run = home.ask();
    let message = wait_for_messages(&server, 1);
    server.press(USER, CHAT, message, "Redo").unwrap();
    let prompt = wait_for_messages(&server, 2);
    server
        .reply(USER, CHAT, prompt, "  keep \n two lines ")
        .unwrap();
    let view = home.wait_for(&run, "completed");
    assert!(
        view.to_string().contains(r#""why":"  keep \n two lines ""#),
        "{view:#}"
    );
}

#[test]
fn answered_from_both_sides_at_once_it_has_one_answer() {
    let (home, server) = Home::with_ops();
    let _host = home.host(&server.url());
    for round in 1..=3 {
        let run = home.ask();
        let message = wait_for_messages(&server, round);
        home.wait_for(&run, "waiting");
        let barrier = Barrier::new(2);
        let local = std::thread::scope(|scope| {
            let local = scope.spawn(|| {
                barrier.wait();
                home.run(&["--json", "answer", &run, "redo", "--text", "by hand"])
            });
            barrier.wait();
            server.press(USER, CHAT, message, "Ship it").unwrap();
            local.join().unwrap()
        });
        let view = home.wait_for(&run, "completed").to_string();
        until("a word on the button", || server.toasts().len() == round);
        let by_hand = view.contains("by hand");
        assert_ne!(by_hand, view.contains(r#""choice":"go""#), "{view}");
        assert_eq!(local.0 == 0, by_hand, "{local:?}");
        let told = server.toasts().pop().unwrap().text;
        assert_eq!(told.contains("eceived"), !by_hand, "{told}");
        until("the buttons to go", || {
            server
                .chat(CHAT)
                .iter()
                .all(|shown| shown.buttons.is_empty())
        });
    }
    assert_eq!(home.run(&["state", "verify"]).0, 0);
}

/// Says in the private configuration who the one who may answer is.
fn knows(home: &Home, persons: &Value) {
    let path = home.path("config").join("channels.json");
    let mut config: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    config["telegramProfiles"]["ops"]["persons"] = persons.clone();
    // It is replaced as a whole: the host reads whatever lies there.
    let next = home.path("config").join("next");
    fs::copy(&path, &next).unwrap();
    fs::write(&next, config.to_string()).unwrap();
    fs::rename(&next, &path).unwrap();
}

#[test]
fn case_073_the_requester_is_refused_on_a_button_too_and_told_why() {
    let (home, server) = Home::with_ops();
    let asks = SHIP.replace("decision:", "decision:\n      answerers: anotherPerson");
    fs::write(home.work().join("ship.workflow.yaml"), asks).unwrap();
    let host = home.host(&server.url());
    let run = home.ask();
    let message = wait_for_messages(&server, 1);
    let cases = [
        (json!({}), "it is not known here who you are."),
        (
            json!({ "100": "command-line" }),
            "another person than the one who started the run has to answer.",
        ),
        (json!({ "100": "ben" }), "Received."),
    ];
    for (round, (persons, told)) in cases.iter().enumerate() {
        if round != 0 {
            knows(&home, persons);
        }
        host.wait_to_say("telegram:ops: running", round + 1);
        server.press(USER, CHAT, message, "Ship it").unwrap();
        until("a word on the button", || {
            server.toasts().len() == round + 1
        });
        let toast = server.toasts().pop().unwrap().text;
        assert!(toast.ends_with(told), "{toast}");
        assert!(!toast.contains("command-line"), "{toast}");
    }
    let view = home.wait_for(&run, "completed");
    assert!(view.to_string().contains(r#""choice":"go""#), "{view:#}");
    assert_eq!(host.stop(), 130);
    assert_eq!(home.run(&["state", "verify"]).0, 0);
}
