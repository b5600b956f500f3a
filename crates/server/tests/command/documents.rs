//! Help, version, schema, completions; and that docs/COMMAND.md names all that may be typed.

use clap::Command;
use holdpoint_server::ExitStatus;

use crate::support::Home;

pub(crate) fn documentation() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/COMMAND.md");
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn help_is_a_document() {
    let home = Home::new();
    let help = home.run(&["--help"]);
    assert_eq!((help.status, help.stderr.as_str()), (0, ""));
    insta::assert_snapshot!(help.stdout);
    let run = home.run(&["run", "--help"]);
    assert!(run.stdout.contains("--detach"), "{}", run.stdout);
    let document = home.ok(&["run", "--help"]);
    assert_eq!(document["help"], run.stdout);
    let nothing = home.run(&[]);
    assert_eq!(nothing.status, 2);
}

#[test]
fn the_version_tells_of_sqlite() {
    let home = Home::new();
    let text = home.run(&["--version"]);
    assert_eq!(text.status, 0);
    let sqlite = home.ok(&["--version"])["sqliteVersion"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(
        text.stdout,
        format!(
            "holdpoint {} (SQLite {sqlite})\n",
            env!("CARGO_PKG_VERSION")
        )
    );
    assert!(!home.store().exists());
}

#[test]
fn the_schema_is_that_of_workflow_files() {
    let home = Home::new();
    let text = home.run(&["schema", "workflow"]);
    let printed: serde_json::Value = serde_json::from_str(&text.stdout).unwrap();
    let own = holdpoint_workflows::file::json_schema();
    assert_eq!(printed["properties"], own["properties"]);
    // The kinds of all domains that the product composes are nodes too.
    let node = &printed["$defs"]["NodeDocument"]["properties"];
    assert_eq!(
        node["compute"],
        own["$defs"]["NodeDocument"]["properties"]["compute"]
    );
    assert!(node["decision"].is_object());
    assert_eq!(home.ok(&["schema", "workflow"]), printed);
}

#[test]
fn completions_know_the_commands() {
    let home = Home::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let text = home.run(&["completions", shell]);
        assert_eq!(text.status, 0);
        assert!(text.stdout.contains("restart"), "{shell}");
        assert!(
            !text.stdout.contains('␛'),
            "{shell}: nothing in a script had to be made inert"
        );
    }
}

/// Every command, flag and variable that clap knows, and every exit status, is in docs/COMMAND.md.
#[test]
fn the_documentation_names_all_that_may_be_typed() {
    let documentation = documentation();
    let mut missing = Vec::new();
    let root = holdpoint_server::command();
    let mut need = |text: String| {
        if !documentation.contains(&text) {
            missing.push(text);
        }
    };
    visit(&root, "holdpoint", &mut need);
    for status in ExitStatus::ALL {
        need(format!("| {} |", status.code()));
    }
    assert_eq!(missing, [""; 0], "docs/COMMAND.md does not name these");
}

fn visit(command: &Command, path: &str, need: &mut impl FnMut(String)) {
    if command.get_subcommands().next().is_none() {
        need(format!("`{path}"));
    }
    for argument in command.get_arguments() {
        if let Some(long) = argument.get_long() {
            need(format!("--{long}"));
        }
        if let Some(variable) = argument.get_env() {
            let default = argument
                .get_default_values()
                .first()
                .map_or("none", |value| value.to_str().unwrap());
            let long = argument.get_long().unwrap();
            need(format!(
                "| `--{long}` | `{}` | {default} |",
                variable.to_str().unwrap()
            ));
        }
        if argument.is_positional() {
            for name in argument.get_value_names().unwrap_or_default() {
                need(name.to_string());
            }
        }
        let takes_values = argument.get_action().takes_values();
        for value in argument
            .get_possible_values()
            .iter()
            .filter(|_| takes_values)
        {
            need(format!("`{}`", value.get_name()));
        }
    }
    for sub in command.get_subcommands() {
        visit(sub, &format!("{path} {}", sub.get_name()), need);
    }
}
