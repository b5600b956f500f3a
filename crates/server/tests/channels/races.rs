//! A button and the terminal at one instant: the program as host and adapter, a provider, and a process that answers, each started once
//! for all rounds.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use holdpoint_decisions::DecisionId;
use holdpoint_decisions::commands::{self, Answer};
use holdpoint_decisions::views;
use serde_json::json;

use crate::store::Store;
use crate::support::{CHAT, Home, USER, until};

/// How many rounds there are; `HOLDPOINT_RACE_ROUNDS` says otherwise.
const ROUNDS: usize = 20;
const HOME: &str = "HOLDPOINT_TEST_TERMINAL_HOME";
/// What the child says begins with this, so that the words of the test harness are not taken for its own.
const MARK: &str = "child-says ";
/// How far a round moves the word to the terminal, and the furthest: about the way of a press to its host.
const STEP_US: u64 = 130;
const LATEST_US: u64 = 2_000;

/// A person at the session, in a process of its own.
struct Terminal {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Terminal {
    fn start(home: &Path) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "races::terminal",
                "--ignored",
                "--nocapture",
                "--test-threads=1",
            ])
            .env(HOME, home)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            input: process.stdin.take().unwrap(),
            output: BufReader::new(process.stdout.take().unwrap()),
            process,
        }
    }

    fn tell(&mut self, words: &str) {
        writeln!(self.input, "{words}").unwrap();
    }

    fn hear(&mut self) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert_ne!(self.output.read_line(&mut line).unwrap(), 0, "it is gone");
            // The harness prints `test NAME ... ` without a line's end before it.
            if let Some((_, words)) = line.split_once(MARK) {
                return words.trim_end().to_owned();
            }
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

#[test]
#[ignore = "the child of the other test"]
fn terminal() {
    let Some(home) = std::env::var_os(HOME) else {
        return;
    };
    let store = Store::open(Path::new(&home));
    let mut lines = std::io::stdin().lines().map_while(Result::ok);
    let say = |words: &str| writeln!(std::io::stdout(), "{MARK}{words}").unwrap();
    while let Some(decision) = lines.next() {
        let answer = Answer::new(
            &DecisionId::new(decision).unwrap(),
            json!({ "choice": "redo", "input": { "why": "by hand" } }),
            "ann",
        );
        say("ready");
        if lines.next().is_none() {
            return;
        }
        let judged = commands::answer(&store.db, &answer).unwrap().value;
        say(if judged.has_won() { "won" } else { "lost" });
    }
}

/// The one decision that is open.
fn open(store: &Store) -> DecisionId {
    let snapshot = store.db.snapshot().unwrap();
    let id: String = snapshot
        .sql()
        .prepare_cached(
            "SELECT decision_id FROM human_decisions WHERE resource_key NOT IN (SELECT r.decision_key FROM human_decision_resolutions r)",
        )
        .unwrap()
        .query_row([], |row| row.get(0))
        .unwrap();
    DecisionId::new(id).unwrap()
}

#[test]
fn a_button_and_the_terminal_are_two_processes_and_one_wins() {
    let rounds = std::env::var("HOLDPOINT_RACE_ROUNDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(ROUNDS);
    let (home, server) = Home::with_ops();
    let host = home.host(&server.url());
    host.wait_to_say("telegram:ops: running", 1);
    let store = Store::open(&home.path("home"));
    let mut terminal = Terminal::start(&home.path("home"));
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for round in 0..rounds {
        home.ask();
        until("the delivery", || {
            store.one("SELECT count(*) FROM effects WHERE effect_type = 'channel.delivery' AND status = 'applied'")
                == i64::try_from(round + 1).unwrap()
        });
        let decision = open(&store);
        let message = server.chat(CHAT).last().unwrap().message;
        terminal.tell(decision.as_str());
        assert_eq!(terminal.hear(), "ready");
        server.press(USER, CHAT, message, "Ship it").unwrap();
        // A press has a longer way: the word to the terminal is moved along it from round to round.
        let later = round as u64 * STEP_US % LATEST_US;
        std::thread::park_timeout(Duration::from_micros(later));
        terminal.tell("go");
        let by_hand = terminal.hear();
        until("a word on the button", || {
            server.toasts().len() == round + 1
        });
        let on_button = server.toasts().pop().unwrap().text;
        let snapshot = store.db.snapshot().unwrap();
        let resolved = views::resolved(&snapshot, &decision).unwrap().unwrap();
        let choice = resolved.resolution.response().unwrap().choice().to_string();
        let mut rows: Vec<String> = views::submissions(&snapshot, &decision)
            .unwrap()
            .iter()
            .map(|row| format!("{} {}", row.source.as_str(), row.result.as_str()))
            .collect();
        rows.sort();
        let end = (by_hand.as_str(), on_button.as_str(), choice.as_str());
        let expected: &[&str] = match end {
            ("lost", "Received.", "go") => &["channel won", "human already_resolved"],
            ("won", "Already decided.", "redo") => &["channel already_resolved", "human won"],
            // The decision was over when the adapter was told what may be answered.
            ("won", "This is no longer active.", "redo") => &["human won"],
            _ => panic!("round {round}: {end:?}"),
        };
        assert_eq!(rows, expected, "round {round}: {end:?}");
        assert_eq!(resolved.resolution.provenance().to_string(), "human");
        *seen
            .entry(format!("the terminal {by_hand}: {on_button}"))
            .or_default() += 1;
    }
    println!("{seen:?}");
    // In many rounds nobody is always first: otherwise the two would not race.
    let has_won = |who: &str| seen.keys().any(|end| end.starts_with(who));
    assert!(
        rounds < 100 || (has_won("the terminal won") && has_won("the terminal lost")),
        "{seen:?}"
    );
    let rounds = i64::try_from(rounds).unwrap();
    until("all settlements and all ends", || {
        store.one("SELECT count(*) FROM effects WHERE effect_type = 'channel.settlement' AND status = 'applied'") == rounds
            && store.one("SELECT count(*) FROM runs WHERE status = 'completed'") == rounds
    });
    assert!(
        server
            .chat(CHAT)
            .iter()
            .all(|shown| shown.buttons.is_empty())
    );
    assert_eq!(host.stop(), 130);
    assert_eq!(home.run(&["state", "verify"]).0, 0);
}
