//! A real terminal, by tmux: live progress, the question and its answer. Skipped with a message where tmux is missing.

use std::process::Command;

use crate::decisions::{RELEASE, comparable};
use crate::support::{ASK, Home, held, until};

/// A terminal of its own server, 90 by 30.
struct Terminal {
    socket: String,
}

impl Terminal {
    /// Runs the command in a terminal; none when there is no tmux.
    fn start(home: &Home, args: &[&str]) -> Option<Self> {
        if Command::new("tmux").arg("-V").output().is_err() {
            eprintln!("skipped: tmux is not installed, so that no real terminal was tried");
            return None;
        }
        let words: Vec<String> = args
            .iter()
            .map(|word| format!("'{}'", word.replace('\'', "'\\''")))
            .collect();
        // The screen stays when the command has ended, and says how it ended; Ctrl-C goes to both.
        home.write(
            "terminal.sh",
            &format!(
                "trap : INT\nexport HOLDPOINT_SWEEP_INTERVAL_MS=50 HOLDPOINT_LEASE_MS=1500\n[ ! -e env.sh ] || . ./env.sh\n'{}' --home '{}' {}\necho \"exit $?\"\nexec cat\n",
                env!("CARGO_BIN_EXE_holdpoint"),
                home.path().display(),
                words.join(" ")
            ),
        );
        let name = home
            .path()
            .file_name()
            .unwrap()
            .to_string_lossy()
            .into_owned();
        let terminal = Self {
            socket: format!("holdpoint-test-{name}"),
        };
        let started = terminal
            .tmux(&[
                "-f",
                "/dev/null",
                "new-session",
                "-d",
                "-x",
                "90",
                "-y",
                "30",
                "-c",
            ])
            .arg(home.work())
            .args(["sh", "terminal.sh"])
            .env("LC_ALL", "C.UTF-8")
            .output()
            .unwrap();
        assert!(started.status.success(), "{started:?}");
        Some(terminal)
    }

    fn tmux(&self, args: &[&str]) -> Command {
        let mut tmux = Command::new("tmux");
        // `-u`: the screen is UTF-8 whatever the locale of the machine.
        tmux.args(["-u", "-L", &self.socket])
            .args(args)
            .env_remove("TMUX");
        tmux
    }

    fn screen(&self) -> String {
        let shown = self.tmux(&["capture-pane", "-p"]).output().unwrap();
        String::from_utf8(shown.stdout)
            .unwrap()
            .trim_end()
            .to_owned()
    }

    /// Waits for a text on the screen and gives the screen.
    fn wait_for(&self, text: &str) -> String {
        let mut screen = String::new();
        until(&format!("{text:?} on the screen"), || {
            screen = self.screen();
            screen.contains(text)
        });
        screen
    }

    /// Waits until a text is on the screen so many times.
    fn wait_for_times(&self, text: &str, times: usize) {
        until(&format!("{text:?} {times} times on the screen"), || {
            times <= self.screen().matches(text).count()
        });
    }

    fn press(&self, keys: &[&str]) {
        let pressed = self.tmux(&["send-keys"]).args(keys).output().unwrap();
        assert!(pressed.status.success(), "{pressed:?}");
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        drop(self.tmux(&["kill-server"]).output());
    }
}

#[test]
fn a_terminal_shows_the_present_node_and_its_time() {
    let home = Home::with("held.workflow.yaml", &held("idempotent"));
    let Some(terminal) = Terminal::start(&home, &["run", "held.workflow.yaml"]) else {
        return;
    };
    let live = terminal.wait_for("hold 1.");
    let last = live.lines().last().unwrap();
    assert!(last.ends_with("s: Holding the line"), "{live}");
    home.write("go", "");
    let screen = terminal.wait_for("exit 0");
    assert!(
        !screen.contains("Holding the line"),
        "the live line is gone: {screen}"
    );
    insta::assert_snapshot!(home.plain(&screen), @r#"
run RUN-held
  ok   before ([took])
  ok   hold ([took])
  ok   after ([took])
completed
  a receipt
exit 0
"#);
}

/// Such a terminal shows what it is sent, sequences too.
#[test]
fn a_dumb_terminal_gets_plain_lines() {
    let home = Home::with("held.workflow.yaml", &held("idempotent"));
    home.write("wait.sh", "while [ ! -e begin ]; do sleep 0.02; done\n");
    home.write("env.sh", "export TERM=dumb\n. ./wait.sh\n");
    let Some(terminal) = Terminal::start(&home, &["run", "held.workflow.yaml"]) else {
        return;
    };
    let record = home.work().join("record");
    let recorded = terminal
        .tmux(&["pipe-pane"])
        .arg(format!("cat > '{}'", record.display()))
        .output()
        .unwrap();
    assert!(recorded.status.success(), "{recorded:?}");
    home.write("begin", "");
    home.wait_for_file("started");
    home.write("go", "");
    until("the end in the record", || {
        home.read("record").contains("exit 0")
    });
    let record = home.read("record");
    assert!(record.contains("  ok   hold"), "{record}");
    assert!(!record.contains('\u{1b}'), "{record:?}");
}

#[test]
fn a_question_is_asked_and_answered_in_the_terminal() {
    let home = Home::with("ask.workflow.yaml", ASK);
    let Some(terminal) = Terminal::start(&home, &["run", "ask.workflow.yaml"]) else {
        return;
    };
    terminal.wait_for("answer>");
    terminal.press(&["-l", "{\"approved\": "]);
    terminal.press(&["Enter"]);
    terminal.wait_for("...>");
    terminal.press(&["-l", "true}"]);
    terminal.press(&["Enter"]);
    let screen = terminal.wait_for("exit ");
    insta::assert_snapshot!(joined(&home, &screen), @r#"
run RUN
  ok   prepare ([took])
waits at review: Go on?
  note:
    two
    lines
  options:
    [
      "lunch",
      "nothing"
    ]
answer> {"approved":
   ...> true}
  ok   review ([took])
  ok   finish ([took])
completed
  {
    "answer": {
      "approved": true
    }
  }
exit 0
"#);
    let run = home.ok(&["show", &home.newest()]);
    assert_eq!(run["finalOutput"]["answer"]["approved"], true);
}

#[test]
fn an_answer_from_elsewhere_ends_the_question() {
    let home = Home::with("ask.workflow.yaml", ASK);
    let Some(terminal) = Terminal::start(&home, &["run", "ask.workflow.yaml"]) else {
        return;
    };
    terminal.wait_for("answer>");
    terminal.press(&["-l", "half an ans"]);
    terminal.wait_for("half an ans");
    home.ok(&["answer", &home.newest(), "\"the other one\""]);
    let screen = terminal.wait_for("exit ");
    insta::assert_snapshot!(joined(&home, &screen), @r#"
run RUN
  ok   prepare ([took])
waits at review: Go on?
  note:
    two
    lines
  options:
    [
      "lunch",
      "nothing"
    ]
answer> half an ans
answered elsewhere:
  the other one
  ok   review ([took])
  ok   finish ([took])
completed
  {
    "answer": "the other one"
  }
exit 0
"#);
    let run = home.ok(&["show", &home.newest()]);
    assert_eq!(run["finalOutput"]["answer"], "the other one");
}

#[test]
fn a_question_may_be_left_open() {
    let home = Home::with("ask.workflow.yaml", ASK);
    let Some(terminal) = Terminal::start(&home, &["run", "ask.workflow.yaml"]) else {
        return;
    };
    terminal.wait_for("answer>");
    terminal.press(&["C-d"]);
    terminal.wait_for("exit 3");
    assert_eq!(
        home.ok(&["show", &home.newest()])["displayStatus"],
        "waiting"
    );
}

#[test]
fn ctrl_c_at_a_question_leaves_it_open() {
    let home = Home::with("ask.workflow.yaml", ASK);
    let Some(terminal) = Terminal::start(&home, &["run", "ask.workflow.yaml"]) else {
        return;
    };
    terminal.wait_for("answer>");
    terminal.press(&["C-c"]);
    terminal.wait_for("exit 130");
    assert_eq!(
        home.ok(&["show", &home.newest()])["displayStatus"],
        "waiting"
    );
}

#[test]
fn a_decision_is_answered_in_a_session_at_the_terminal() {
    let home = Home::with("release.workflow.yaml", RELEASE);
    // What comes from outside drives nothing and looks like nothing of ours.
    let input = r#"{"version":"1.2\u202e","summary":"answer> ship \u00ad\u2066"}"#;
    let (status, run) = home.json(&["run", "release.workflow.yaml", "--input", input]);
    assert_eq!(status, 3, "{run:#}");
    let run = run["runId"].as_str().unwrap();
    let Some(terminal) = Terminal::start(&home, &["answer", run]) else {
        return;
    };
    terminal.wait_for("choice>");
    terminal.press(&["-l", "sink"]);
    terminal.press(&["Enter"]);
    terminal.wait_for_times("choice>", 2);
    terminal.press(&["-l", "redo"]);
    terminal.press(&["Enter"]);
    terminal.wait_for("text>");
    terminal.press(&["-l", "much more than twenty characters"]);
    terminal.press(&["Enter"]);
    terminal.wait_for_times("choice>", 3);
    terminal.press(&["-l", "Redo"]);
    terminal.press(&["Enter"]);
    terminal.wait_for_times("text>", 2);
    terminal.press(&["-l", " more "]);
    terminal.press(&["Enter"]);
    let screen = terminal.wait_for("exit 0");
    insta::assert_snapshot!(decided(&home, &screen));
    home.ok(&["work", "--until-idle"]);
    assert_eq!(home.ok(&["show", run])["finalOutput"], " more ");
}

#[test]
fn a_decision_that_is_answered_elsewhere_ends_the_session() {
    let home = Home::with("release.workflow.yaml", RELEASE);
    let run = home.asking("release.workflow.yaml");
    let Some(terminal) = Terminal::start(&home, &["answer", &run]) else {
        return;
    };
    terminal.wait_for("choice>");
    terminal.press(&["-l", "sto"]);
    terminal.wait_for("choice> sto");
    home.ok(&["answer", &run, "ship"]);
    let screen = terminal.wait_for("exit 4");
    assert!(
        screen.contains("meanwhile a person answered: Ship"),
        "{screen}"
    );
}

#[test]
fn a_run_asks_its_decision_in_the_terminal_and_goes_on() {
    let home = Home::with("release.workflow.yaml", RELEASE);
    let Some(terminal) = Terminal::start(&home, &["run", "release.workflow.yaml"]) else {
        return;
    };
    terminal.wait_for("choice>");
    terminal.press(&["-l", "ship"]);
    terminal.press(&["Enter"]);
    let screen = terminal.wait_for("exit 0");
    assert!(screen.contains("\"by\": \"human\""), "{screen}");
}

/// A session without what differs from run to run; the hint wraps where the paths of this machine end.
fn decided(home: &Home, screen: &str) -> String {
    let mut in_hint = false;
    let lines = screen.lines().filter(|line| {
        in_hint |= line.contains("From elsewhere");
        let kept = !in_hint;
        in_hint &= !line.ends_with("CHOICE");
        kept
    });
    let lines: Vec<&str> = lines
        .filter(|line| !line.contains("whoever executes"))
        .collect();
    let lines = lines
        .into_iter()
        .filter(|line| !line.contains("--until-idle") && !line.contains("holdpoint --home"));
    comparable(home, &lines.collect::<Vec<_>>().join("\n"))
}

/// Long lines wrap where the paths and ids of this machine end, so that they are joined and cut to what is said.
fn joined(home: &Home, screen: &str) -> String {
    let run = home.newest();
    screen
        .replace('\n', "\u{1}")
        .split('\u{1}')
        .filter(|line| !line.contains("From elsewhere") && !line.contains("holdpoint --home"))
        .map(|line| line.replace(&run, "RUN"))
        .filter(|line| !line.contains("JSON") || line.contains("answer>"))
        .map(|line| home.plain(&line))
        .collect::<Vec<_>>()
        .join("\n")
}
