//! `run` is killed at any moment, again and again: what it acknowledged is there, and everything comes to its end.

use std::io::{BufRead as _, BufReader};
use std::time::Duration;

use crate::support::Home;

/// How many runs are killed; `HOLDPOINT_COMMAND_KILLS` asks for more.
const KILLS: u64 = 20;
/// The latest moment of a kill, in milliseconds: about as long as a run takes.
const LATEST_MS: u64 = 120;

const WORKFLOW: &str = r#"
name: killed
input: { fields: { round: { type: integer } } }
startAt: count
nodes:
  count:
    compute: { jq: '($outputs.count // 0) + 1' }
  once:
    shell:
      argv: [sh, -c, 'echo "$0" >> once', { jq: '"\($input.round)"' }]
      effect: { type: test.once, recovery: manual }
  again:
    shell:
      argv: [sh, -c, 'echo "$0" >> again', { jq: '"\($input.round)"' }]
      effect: { type: test.again, recovery: idempotent }
edges:
  - { from: count, to: once }
  - { from: once, to: again }
"#;

#[test]
fn runs_that_are_killed_at_any_moment_end_once_or_ask() {
    let home = Home::with("killed.workflow.yaml", WORKFLOW);
    let kills = std::env::var("HOLDPOINT_COMMAND_KILLS")
        .ok()
        .and_then(|kills| kills.parse().ok())
        .unwrap_or(KILLS);
    let mut acknowledged = Vec::new();
    for round in 0..kills {
        let input = format!("{{\"round\":{round}}}");
        let mut child = home
            .command(&["run", "killed.workflow.yaml", "--input", &input])
            .spawn()
            .unwrap();
        let mut told = BufReader::new(child.stdout.take().unwrap()).lines();
        // Every second one is killed after it was acknowledged, the others from their very beginning on.
        let mut first = if round % 2 == 0 { told.next() } else { None };
        // Spread over the run's life by steps of an odd size.
        std::thread::park_timeout(Duration::from_millis(round * 37 % LATEST_MS));
        drop(child.kill());
        first = first.or_else(|| told.next());
        let first = first.and_then(Result::ok);
        child.wait().unwrap();
        if let Some(run) = first.as_deref().and_then(|line| line.strip_prefix("run ")) {
            acknowledged.push((round, run.to_owned()));
        }
    }
    assert!(!acknowledged.is_empty());
    home.ok(&["work", "--until-idle"]);

    let count = |name: &str, round: u64| {
        let line = round.to_string();
        home.read(name)
            .lines()
            .filter(|found| *found == line)
            .count()
    };
    for (round, run) in &acknowledged {
        let view = home.ok(&["show", run]);
        match view["displayStatus"].as_str() {
            Some("completed") => {
                assert_eq!(count("once", *round), 1, "{run}");
                assert!(1 <= count("again", *round), "{run}");
            }
            Some("ambiguous") => assert!(count("once", *round) <= 1, "{run}"),
            other => panic!("{run} is {other:?}: {view:#}"),
        }
    }
    // Also what was not acknowledged is whole, if it is there.
    let list = home.ok(&["list", "--limit", "1000"]);
    for run in list["runs"].as_array().unwrap() {
        let status = run["displayStatus"].as_str().unwrap();
        assert!(["completed", "ambiguous"].contains(&status), "{run:#}");
    }
    assert_eq!(
        home.ok(&["state", "verify"])["findings"],
        serde_json::json!([])
    );
}
