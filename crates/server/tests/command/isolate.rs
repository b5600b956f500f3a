//! `work --isolate`: runs in processes of their own, which are this program again.

use crate::support::Home;

const WORKFLOW: &str = r"
name: apart
startAt: who
nodes:
  who:
    shell:
      argv: [sh, -c, 'echo $PPID ${ALLOWED-none} ${FORBIDDEN-none} >> who']
      effect: { type: test.who, recovery: idempotent }
";

#[test]
fn runs_are_executed_apart_with_an_environment_of_few_names() {
    let home = Home::with("apart.workflow.yaml", WORKFLOW);
    home.ok(&["run", "apart.workflow.yaml", "--detach"]);
    let run = home.newest();
    let args = [
        "--json",
        "work",
        "--until-idle",
        "--isolate",
        "--pass-env",
        "ALLOWED",
    ];
    let ended = home
        .command(&args)
        .env("ALLOWED", "yes")
        .env("FORBIDDEN", "yes")
        .spawn()
        .unwrap();
    let host = ended.id();
    let output = ended.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let who = home.read("who");
    let words: Vec<&str> = who.split_whitespace().collect();
    assert_eq!(words[1..], ["yes", "none"], "{who}");
    let why = home.ok(&["explain", &run]);
    let worker = &why["worker"];
    assert_eq!(worker["status"], "exited", "{why:#}");
    assert_eq!(worker["pid"].to_string(), words[0], "{why:#}");
    assert_ne!(words[0], host.to_string());
    assert_eq!(why["status"], "completed");
    let told = home.run(&["explain", &run]).stdout;
    let line = format!("worker      exited, process {}, exit code 0\n", words[0]);
    assert!(told.contains(&line), "{told}");
    // Typed by hand it has no host, and says so.
    let alone = home.command(&["worker"]).output().unwrap();
    assert_eq!(alone.status.code(), Some(1), "{alone:?}");
}

const AGENT: &str = r"
name: asked
startAt: ask
nodes:
  ask:
    agent:
      prompt: Which process asks?
      validate: { type: object, required: [parent] }
";

/// The agent is executed by the worker, which hears of it from its host.
#[test]
fn agents_of_runs_that_are_executed_apart_are_executed_there() {
    let home = Home::with("asked.workflow.yaml", AGENT);
    home.ok(&["run", "asked.workflow.yaml", "--detach"]);
    let run = home.newest();
    let agent = r#"sh -c 'read -r prompt; printf "{\"parent\": %s, \"key\": \"%s\"}" "$PPID" "${KEY-none}"' --resume"#;
    let output = home
        .command(&[
            "--json",
            "work",
            "--until-idle",
            "--isolate",
            "--pass-env",
            "KEY",
            "--agent",
            agent,
        ])
        .env("KEY", "secret")
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let view = home.ok(&["show", &run]);
    assert_eq!(view["status"], "completed", "{view:#}");
    let why = home.ok(&["explain", &run]);
    assert_eq!(
        view["finalOutput"]["parent"], why["worker"]["pid"],
        "{why:#}"
    );
    assert_eq!(view["finalOutput"]["key"], "secret");
}

const FRAGILE: &str = r"
name: fragile
startAt: act
nodes:
  act:
    shell:
      argv: [sh, -c, 'echo x >> tries; test $(wc -l < tries) -gt ${DEATHS} || { kill -9 $PPID; sleep 60; }']
      effect: { type: test.act, recovery: idempotent }
";

/// A worker that is killed is followed by another one, and `--until-idle` waits for it; not for ever.
#[test]
fn work_until_idle_waits_out_the_first_back_offs_after_a_killed_worker() {
    for (deaths, status) in [("3", "completed"), ("9", "running")] {
        let home = Home::with("fragile.workflow.yaml", FRAGILE);
        home.ok(&["run", "fragile.workflow.yaml", "--detach"]);
        let run = home.newest();
        let args = [
            "--json",
            "--back-off-ms",
            "20",
            "work",
            "--until-idle",
            "--isolate",
            "--pass-env",
            "DEATHS",
        ];
        let output = home.command(&args).env("DEATHS", deaths).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let view = home.ok(&["show", &run]);
        assert_eq!(view["status"], status, "{view:#}");
        assert_eq!(home.read("tries").lines().count(), 4);
    }
}
