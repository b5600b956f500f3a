//! Workflows with agent steps, executed by a command.

use crate::support::Home;

const AGENT: &str = r#"
name: told
startAt: think
nodes:
  think:
    agent:
      prompt: { jq: '"How many letters has \($input.word)?"' }
      expects: an object with the number
  tell:
    compute: { jq: $outputs.think.letters }
edges:
  - { from: think, to: tell }
"#;

/// Says what an agent would: prose around JSON.
const ANSWERING: &str =
    r#"sh -c 'read -r prompt; printf "Let me see: %s\n{\"letters\": 5}\n" "$prompt"'"#;

#[test]
fn a_command_executes_the_agents_of_a_run() {
    let home = Home::new();
    home.write("told.workflow.yaml", AGENT);
    let run = home.ok(&[
        "run",
        "told.workflow.yaml",
        "--input",
        r#"{"word":"agent"}"#,
        "--agent",
        ANSWERING,
    ]);
    assert_eq!(
        (&run["status"], &run["finalOutput"]),
        (&"completed".into(), &5.into())
    );
}

#[test]
fn without_an_agent_a_run_is_refused_before_it_is_made() {
    let home = Home::new();
    home.write("told.workflow.yaml", AGENT);
    let refused = home.run(&["run", "told.workflow.yaml"]);
    assert_eq!(refused.status, 2);
    assert!(refused.stderr.contains("--agent pi"), "{}", refused.stderr);
    assert!(!home.store().exists());
    for wrong in ["", "  ", "sh 'open"] {
        assert_eq!(home.run(&["list", "--agent", wrong]).status, 2, "{wrong:?}");
    }
}

#[test]
fn a_session_is_asked_without_an_agent() {
    let home = Home::new();
    home.write("told.workflow.yaml", AGENT);
    let input = ["--input", r#"{"word":"agent"}"#];
    let run = home.run(&[
        "run",
        "told.workflow.yaml",
        input[0],
        input[1],
        "--session",
        "session-1",
    ]);
    assert_eq!(run.status, 3, "{}", run.stderr);
    assert!(run.stdout.contains("its session answers"), "{}", run.stdout);
}

#[test]
fn work_leaves_agents_to_others_and_says_so() {
    let home = Home::new();
    home.write("told.workflow.yaml", AGENT);
    home.ok(&[
        "run",
        "told.workflow.yaml",
        "--input",
        r#"{"word":"agent"}"#,
        "--detach",
    ]);
    let left = home.run(&["work", "--until-idle"]);
    assert_eq!(left.status, 0);
    assert!(
        left.stderr.contains("nobody here executes"),
        "{}",
        left.stderr
    );
    let done = home.run(&["work", "--until-idle", "--agent", ANSWERING]);
    assert!(
        done.stdout.contains(": completed"),
        "{}\n{}",
        done.stdout,
        done.stderr
    );
}
