//! `settings`: what is shown of live settings, and how they are changed.

use std::fmt::Write as _;

use serde_json::json;

use crate::support::{Home, TUNED};

fn batch(batch: u32) -> String {
    json!([{ "op": "replace", "path": "/batch", "value": batch }]).to_string()
}

#[test]
fn settings_are_shown_changed_and_their_history_told_in_text() {
    let home = Home::with("tuned.workflow.yaml", TUNED);
    let mut told = String::new();
    let mut tell = |args: &[&str]| {
        let done = home.run(args);
        let shown: Vec<String> = args.iter().map(|arg| home.plain(arg)).collect();
        let _ = write!(
            told,
            "$ holdpoint {}   # {}\n{}{}\n",
            shown.join(" "),
            done.status,
            home.plain(&done.stdout),
            home.plain(&done.stderr)
        );
    };
    tell(&["run", "tuned.workflow.yaml"]);
    let run = home.newest();
    tell(&["settings", "show", &run]);
    tell(&["settings", "history", &run]);
    tell(&["settings", "patch", &run, &batch(20), "--request", "r-1"]);
    tell(&["settings", "patch", &run, &batch(20), "--request", "r-1"]);
    tell(&["settings", "patch", &run, &batch(21), "--request", "r-1"]);
    tell(&["settings", "patch", &run, &batch(30), "--expect", "0"]);
    tell(&["settings", "patch", &run, &batch(50), "--expect", "1"]);
    tell(&[
        "settings",
        "patch",
        &run,
        r#"[{"op":"replace","path":"/mode","value":"fast"}]"#,
    ]);
    tell(&[
        "settings",
        "patch",
        &run,
        r#"[{"op":"replace","path":"/batch","value":"many"}]"#,
    ]);
    tell(&["settings", "patch", &run, r#"{"batch":1}"#]);
    home.write("patch.json", &batch(40));
    tell(&["settings", "patch", &run, "@patch.json"]);
    tell(&["settings", "history", &run, "--limit", "1"]);
    tell(&["settings", "history", &run, "--after", "1"]);
    tell(&["settings", "show", &run, "--scope", "elsewhere"]);
    tell(&["settings", "patch", &run, "[]", "--scope", "elsewhere"]);
    tell(&["answer", &run, "1"]);
    tell(&["work", "--until-idle"]);
    tell(&["settings", "patch", &run, &batch(20)]);
    tell(&["settings", "show", &run]);
    insta::assert_snapshot!(told);
    let view = home.ok(&["show", &run]);
    assert_eq!(view["finalOutput"], "10 became 40");
    assert_eq!(view["steps"][0]["settings"]["changeNumber"], 0);
    assert_eq!(view["steps"][2]["settings"]["changeNumber"], 2);
}

#[test]
fn a_run_without_settings_has_none_to_change() {
    let home = Home::with("ask.workflow.yaml", crate::support::ASK);
    home.run(&["run", "ask.workflow.yaml"]);
    let run = home.newest();
    assert_eq!(home.ok(&["settings", "show", &run])["scopes"], json!([]));
    let (status, error) = home.json(&["settings", "patch", &run, "[]"]);
    assert_eq!((status, &error["error"]["code"]), (7, &json!("notFound")));
    let (status, _) = home.json(&["settings", "show", "nobody"]);
    assert_eq!(status, 7);
}

/// The rules are those of the file as it was: an edited one can't decide.
#[test]
fn a_changed_file_can_not_change_settings() {
    let home = Home::with("tuned.workflow.yaml", TUNED);
    home.run(&["run", "tuned.workflow.yaml"]);
    let run = home.newest();
    home.write("tuned.workflow.yaml", &TUNED.replace("control]", "host]"));
    let (status, error) = home.json(&["settings", "patch", &run, &batch(20)]);
    assert_eq!((status, &error["error"]["code"]), (7, &json!("notFound")));
    home.write("tuned.workflow.yaml", TUNED);
    home.ok(&["settings", "patch", &run, &batch(20)]);
}
