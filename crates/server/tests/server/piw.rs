//! The published client `piw` 0.16.6, unmodified, on this server.
//!
//! `cargo install pi-workflows --version 0.16.6 --locked --root target/piw` installs it; `HOLDPOINT_PIW=target/piw/bin/piw` names it.
//! Without that the tests say so and pass.

use std::path::PathBuf;
use std::process::Command;

use crate::support::{Home, until};

#[expect(clippy::print_stdout, reason = "a test that is skipped says so")]
fn piw() -> Option<PathBuf> {
    let named = std::env::var_os("HOLDPOINT_PIW").map(PathBuf::from);
    if named.is_none() {
        println!("skipped: HOLDPOINT_PIW names no piw; see docs/DEVELOPMENT.md");
    }
    // Tests run in the folder of their crate.
    named.map(|path| {
        std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../..")
            .join(path)
    })
}

/// A screen without what differs from run to run: numbers of seconds, and how wide they are.
fn stable(screen: &str) -> String {
    let mut stable = String::new();
    for line in screen.lines() {
        let words = line.split_whitespace().map(|word| {
            let is_time = word
                .strip_suffix('s')
                .is_some_and(|time| time.starts_with(|c: char| c.is_ascii_digit()));
            if is_time {
                "TIME"
            } else if word.starts_with("(attempt-") {
                "(ATTEMPT)"
            } else {
                word
            }
        });
        stable.push_str(&words.collect::<Vec<_>>().join(" "));
        stable.push('\n');
    }
    stable
}

#[test]
fn piw_once_prints_a_finished_run() {
    let Some(piw) = piw() else { return };
    let home = Home::new();
    let run = home.asking();
    let _server = home.serve();
    assert_eq!(home.run(&["answer", &run, "1"]).status.code(), Some(0));
    until("the run completes", || {
        home.json(&["show", &run]).1["status"] == "completed"
    });
    let once = |run: &str| {
        let output = Command::new(&piw)
            .args([run, "--once"])
            .env("HOME", home.path())
            .env("PATH", "/nonexistent")
            .output()
            .unwrap();
        (
            output.status.success(),
            String::from_utf8(output.stdout).unwrap(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    let (ok, screen, errors) = once(&run);
    assert!(ok, "{errors}");
    for part in [
        "ask (latest)",
        "prepare",
        "review",
        "finish",
        "✓ completed",
        "step 3/3",
    ] {
        assert!(screen.contains(part), "{part}:\n{screen}");
    }
    insta::assert_snapshot!(stable(&screen));
    let (ok, _, errors) = once("nobody");
    assert!(!ok);
    assert!(errors.contains("Workflow run not found"), "{errors}");
}

/// A terminal with a program in it, of a tmux server of its own.
struct Terminal {
    socket: PathBuf,
}

impl Terminal {
    fn open(home: &Home, piw: &std::path::Path) -> Self {
        let terminal = Self {
            socket: home.path().join("tmux.sock"),
        };
        let line = format!(
            "env HOME='{}' PATH=/nonexistent '{}'",
            home.path().display(),
            piw.display()
        );
        assert!(
            terminal
                .tmux(&[
                    "-f",
                    "/dev/null",
                    "new-session",
                    "-d",
                    "-x",
                    "140",
                    "-y",
                    "40",
                    &line
                ])
                .0
        );
        terminal
    }

    fn tmux(&self, args: &[&str]) -> (bool, String) {
        let output = Command::new("tmux")
            .arg("-S")
            .arg(&self.socket)
            .args(args)
            .output()
            .unwrap();
        (
            output.status.success(),
            String::from_utf8_lossy(&output.stdout).into_owned(),
        )
    }

    fn shows(&self, parts: &[&str]) -> String {
        let mut screen = String::new();
        until(&format!("the screen shows {parts:?}"), || {
            screen = self.tmux(&["capture-pane", "-p"]).1;
            parts.iter().all(|part| screen.contains(part))
        });
        screen
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

#[test]
fn piw_shows_list_graph_and_steps_live_and_after_a_kill_of_the_server() {
    let Some(piw) = piw() else { return };
    let home = Home::new();
    let run = home.asking();
    let mut server = home.serve();
    let terminal = Terminal::open(&home, &piw);
    terminal.shows(&["ask (", "prepare", "review", "Steps"]);
    server.kill();
    let _successor = home.serve();
    assert_eq!(home.run(&["answer", &run, "1"]).status.code(), Some(0));
    terminal.shows(&["finish [compute]", "✓ completed", "step 3/3"]);
    // Replay by steps asks for pages.
    terminal.tmux(&["send-keys", "[", "["]);
    terminal.shows(&["(replay)", "step 1/3"]);
    until("the replay is loaded", || {
        !terminal
            .tmux(&["capture-pane", "-p"])
            .1
            .contains("LOADING REPLAY")
    });
}
