//! `controllers …`: what a person of managed resources types, and what is shown.

use std::fmt::Write as _;

use serde_json::Value;

use crate::support::{Home, plain_document};

pub(crate) const SITE: &str = "\
controller: file-set
key: site
spec:
  directory: public
  files:
    - path: index.html
      content: |
        <h1>Hello</h1>
        <p>One.</p>
    - { path: robots.txt, content: '' }
";

/// Runs each command and writes down what a person sees.
fn session(home: &Home, commands: &[&[&str]]) -> String {
    let mut seen = String::new();
    for command in commands {
        let done = home.run(command);
        writeln!(
            seen,
            "$ holdpoint {}\n{}{}[{}]\n",
            command.join(" "),
            done.stdout,
            done.stderr,
            done.status
        )
        .unwrap();
    }
    home.plain(&seen)
}

#[test]
fn a_resource_from_its_file_to_its_end_without_a_controller() {
    let home = Home::with("site.resource.yaml", SITE);
    home.write(
        "lamp.resource.json",
        r#"{ "controller": "lamp", "key": "hall", "spec": { "watts": 40 } }"#,
    );
    let mut seen = session(
        &home,
        &[
            &["controllers", "list"],
            &["controllers", "apply", "site.resource.yaml", "--dry-run"],
            &["controllers", "get", "file-set", "site"],
            &["controllers", "apply", "site.resource.yaml"],
            &["controllers", "apply", "site.resource.yaml"],
        ],
    );
    home.write("site.resource.yaml", &SITE.replace("One", "Two"));
    seen += &session(
        &home,
        &[
            &["controllers", "apply", "site.resource.yaml", "--dry-run"],
            &["controllers", "apply", "site.resource.yaml"],
            &["controllers", "apply", "lamp.resource.json"],
            &["controllers", "reconcile", "file-set", "site"],
            &["controllers", "list"],
            &["controllers", "list", "--limit", "1"],
            &["controllers", "list", "--after", "file-set/site"],
            &["controllers", "explain", "file-set", "site"],
            &["controllers", "get", "lamp", "hall"],
            &[
                "controllers",
                "force-delete",
                "lamp",
                "hall",
                "--reason",
                "no lamps any more",
            ],
            &["controllers", "delete", "lamp", "hall"],
            &["controllers", "delete", "lamp", "hall"],
            &[
                "controllers",
                "force-finalizer",
                "lamp",
                "hall",
                "lamp/off",
                "--reason",
                " ",
            ],
            &[
                "controllers",
                "force-finalizer",
                "lamp",
                "hall",
                "lamp/off",
                "--reason",
                "no lamps any more",
            ],
            &[
                "controllers",
                "force-delete",
                "lamp",
                "hall",
                "--reason",
                "no lamps any more",
            ],
            &["controllers", "get", "lamp", "hall"],
            &["controllers", "list", "lamp"],
        ],
    );
    insta::assert_snapshot!(seen);
}

#[test]
fn a_mistake_in_a_file_has_its_place_and_changes_nothing() {
    let home = Home::new();
    let two = format!(
        "{SITE}---\ncontroller: file-set\nkey: other\nspec:\n  directory: other\n  file: []\n"
    );
    for (text, place) in [
        (
            two.as_str(),
            "site.resource.yaml:16:9: /file must not be there; did you mean \"files\"?",
        ),
        ("controller: file-set\nkey: [\n", "site.resource.yaml:"),
        ("", "site.resource.yaml:1:1: there is no resource in it"),
    ] {
        home.write("site.resource.yaml", text);
        let (status, document) = home.json(&["controllers", "apply", "site.resource.yaml"]);
        assert_eq!(
            (status, &document["error"]["code"]),
            (2, &Value::from("resourceFile"))
        );
        let message = document["error"]["message"].as_str().unwrap();
        assert!(message.starts_with(place), "{message}");
    }
    assert!(!home.store().exists());
    let (status, _) = home.json(&["controllers", "apply", "nowhere.resource.yaml"]);
    assert_eq!(status, 7);
}

#[test]
fn standard_input_is_a_file_and_a_project_is_a_directory() {
    use std::io::Write as _;
    let home = Home::new();
    home.write("a/b/.keep", "");
    let apply = |text: &str, project: &str| {
        let mut command =
            home.command(&["--json", "controllers", "apply", "-", "--project", project]);
        let mut child = command.stdin(std::process::Stdio::piped()).spawn().unwrap();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(text.as_bytes())
            .unwrap();
        let output = child.wait_with_output().unwrap();
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        (output.status.code().unwrap(), document)
    };
    let (status, first) = apply(SITE, "a/b");
    assert_eq!(
        (status, &first["resources"][0]["change"]),
        (0, &Value::from("created")),
        "{first:#}"
    );
    // Another way to the same directory, another syntax, another order of members.
    let same = r#"[{ "spec": { "files": [{ "content": "<h1>Hello</h1>\n<p>One.</p>\n", "path": "index.html" },
        { "path": "robots.txt", "content": "" }], "directory": "public" }, "key": "site", "controller": "file-set" }]"#;
    let (_, second) = apply(same, "a/../a/b/.");
    assert_eq!(second["resources"][0]["change"], "unchanged", "{second:#}");
    assert_eq!(second["resources"][0]["uid"], first["resources"][0]["uid"]);
    let (_, third) = apply(same, ".");
    assert_eq!(third["resources"][0]["change"], "created");
    assert_eq!(
        home.ok(&["controllers", "list", "--project", "a/b"])["resources"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    let (status, document) = home.json(&["controllers", "list", "--project", "nowhere"]);
    assert_eq!(
        (status, &document["error"]["code"]),
        (7, &Value::from("notFound"))
    );
    let (status, _) = home.json(&["controllers", "get", "File Set", "site"]);
    assert_eq!(status, 2);
}

#[test]
fn what_a_file_says_can_not_drive_the_terminal() {
    let home = Home::new();
    home.write(
        "x.resource.json",
        r#"{ "controller": "lamp", "key": "\u001b[2J\u202e", "spec": "\u001b]0;owned\u0007\nok" }"#,
    );
    let seen = session(
        &home,
        &[
            &["controllers", "apply", "x.resource.json"],
            &["controllers", "get", "lamp", "\u{1b}[2J\u{202e}"],
            &["controllers", "list"],
        ],
    );
    assert!(
        !seen.contains('\u{1b}') || seen.matches('\u{1b}').count() == 1,
        "{seen:?}"
    );
    let done = home.run(&["controllers", "list"]);
    assert!(
        !done.stdout.contains(['\u{1b}', '\u{202e}']),
        "{:?}",
        done.stdout
    );
}

#[test]
fn documents_say_all_of_it() {
    let home = Home::with("site.resource.yaml", SITE);
    let applied = home.ok(&["controllers", "apply", "site.resource.yaml"]);
    let mut got = home.ok(&["controllers", "get", "file-set", "site"]);
    let explained = home.ok(&["controllers", "explain", "file-set", "site"]);
    got["events"][0]["at"].take();
    let documents = serde_json::json!({ "apply": applied, "get": got, "explain": explained });
    insta::assert_json_snapshot!(plain_document(&home, &documents));
}
