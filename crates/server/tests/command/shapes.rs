//! The shape of every document, and that docs/COMMAND.md names each of its members.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::controllers::SITE;
use crate::decisions::RELEASE;
use crate::documents::documentation;
use crate::records::TELLING;
use crate::sessions::asking_agent;
use crate::support::{ASK, Home, TUNED, shape};

/// The documents of managed resources.
fn of_resources(home: &Home, note: &mut impl FnMut(&str, &[&str]) -> Value) {
    home.write("site.resource.yaml", SITE);
    let (apply, file) = ("apply", "site.resource.yaml");
    note("controllers apply", &["controllers", apply, file]);
    let mut resource = |verb: &str, more: &[&str]| {
        let args = [&["controllers", verb, "file-set", "site"], more].concat();
        note(&format!("controllers {verb}"), &args);
    };
    resource("get", &[]);
    resource("explain", &[]);
    resource("reconcile", &[]);
    resource("delete", &[]);
    let reason = ["nobody", "--reason", "to see"];
    resource("force-finalizer", &reason);
    note("controllers list", &["controllers", "list"]);
}

#[test]
fn every_document_has_its_shape_and_its_members_are_documented() {
    let home = Home::with("ask.workflow.yaml", ASK);
    let backup = home.work().join("copy.sqlite");
    let backup = backup.to_str().unwrap();
    let mut shapes = BTreeMap::new();
    let mut note = |name: &str, args: &[&str]| {
        let (_, document) = home.json(args);
        shapes.insert(name.to_owned(), shape(&document));
        document
    };
    note("--version", &["--version"]);
    note("error", &["show", "nobody"]);
    note("run", &["run", "ask.workflow.yaml"]);
    let run = home.newest();
    note("error with resource", &["cancel", &run, "--expect", "1"]);
    note("list", &["list"]);
    note("explain", &["explain", &run]);
    note("pause", &["pause", &run]);
    note("resume", &["resume", &run]);
    note("answer", &["answer", &run, "1"]);
    note("work", &["work", "--until-idle"]);
    note("show", &["show", &run]);
    note("restart", &["restart", &run]);
    note("cancel", &["cancel", &home.newest()]);
    note("prune", &["prune", "--before", "2100-01-01"]);
    let pruned = home.work().join("pruned.sqlite");
    let apply = [
        "prune",
        "--older-than",
        "0",
        "--apply",
        "--backup",
        pruned.to_str().unwrap(),
    ];
    let deleted = note("prune applied", &apply);
    assert_eq!(deleted["deleted"]["runs"], 2);
    let mut status = note("state status", &["state", "status"]);
    note("state doctor", &["state", "doctor"]);
    note("state backup", &["state", "backup", backup]);
    note("state verify", &["state", "verify"]);
    note("state restore", &["state", "restore", backup]);
    note("effects list", &["effects", "list", "--all"]);
    home.write("tuned.workflow.yaml", TUNED);
    note("run with settings", &["run", "tuned.workflow.yaml"]);
    let run = home.newest();
    let patch = r#"[{"op":"replace","path":"/batch","value":20}]"#;
    note("settings patch", &["settings", "patch", &run, patch]);
    note("settings show", &["settings", "show", &run]);
    note("settings history", &["settings", "history", &run]);
    home.write("telling.workflow.yaml", TELLING);
    let run = home.asking("telling.workflow.yaml");
    note("updates", &["updates", &run, "--all"]);
    note("follow-ups list", &["follow-ups", "list", &run]);
    let run = asking_agent(&home);
    note("agents", &["agents"]);
    note("messages", &["messages", &run]);
    note("submit", &["submit", &run, "1"]);
    note("completions", &["completions", "bash"]);
    home.write("release.workflow.yaml", RELEASE);
    let run = home.asking("release.workflow.yaml");
    note("decisions", &["decisions"]);
    note("channels list", &["channels", "list"]);
    note("channels status", &["channels", "status"]);
    note("channels test", &["channels", "test"]);
    note(
        "decision wait",
        &["decision", "wait", &run, "--timeout", "0s"],
    );
    note("decision show", &["decision", "show", &run]);
    note("answer refused", &["answer", &run, "sink"]);
    note("answer to a decision", &["answer", &run, "ship"]);
    note("decision cancel", &["decision", "cancel", &run]);
    of_resources(&home, &mut note);

    // Tables are a matter of the schema, not of this document.
    status["rows"].take();
    for shape in shapes.values_mut() {
        if let Some(rows) = shape.pointer_mut("/rows").or(None) {
            *rows = json!("table: number");
        }
        if let Some(rows) = shape.pointer_mut("/status/rows") {
            *rows = json!("table: number");
        }
    }
    insta::assert_json_snapshot!(shapes);

    let documentation = documentation();
    let mut missing = Vec::new();
    for (name, shape) in &shapes {
        members(shape, &mut |member| {
            if !documentation.contains(&format!("`{member}`")) {
                missing.push(format!("{name}: {member}"));
            }
        });
    }
    assert_eq!(
        missing, [""; 0],
        "docs/COMMAND.md does not name these members"
    );
}

/// Every member, but not those of the workflow's own values.
fn members(shape: &Value, see: &mut impl FnMut(&str)) {
    match shape {
        Value::Object(found) => {
            for (name, value) in found {
                see(name);
                let own = [
                    "input",
                    "outputs",
                    "results",
                    "finalOutput",
                    "contract",
                    "content",
                    "output",
                    "receipt",
                    "data",
                    "initial",
                    "patch",
                    "value",
                    // Contracts of their own, in DECISIONS.md.
                    "request",
                    "resolution",
                    "subject",
                    "reason",
                    "conflict",
                ];
                if !own.contains(&name.as_str()) {
                    members(value, see);
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| members(item, see)),
        _ => {}
    }
}
