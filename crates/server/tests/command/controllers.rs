//! `controllers …`: what a person of managed resources types, and what is shown.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::support::{Home, plain_document, until};

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

const PAGE: &str = r#"
name: page
input:
  fields:
    title: { type: string }
startAt: render
nodes:
  render:
    compute: { jq: '"<h1>\($input.title)</h1>\n"' }
"#;

#[test]
fn work_makes_a_directory_as_declared_and_removes_it() {
    let home = Home::with("site.resource.yaml", SITE);
    home.write("workflows/page.workflow.yaml", PAGE);
    let file =
        "    - path: about/page.html\n      from: { workflow: page, input: { title: About } }\n";
    home.write("site.resource.yaml", &format!("{SITE}{file}"));
    home.ok(&["controllers", "apply", "site.resource.yaml"]);
    let worked = home.ok(&["work", "--until-idle"]);
    assert_eq!(home.read("public/about/page.html"), "<h1>About</h1>\n");
    assert_eq!(
        worked["resources"][0]["conditions"][1]["reason"], "Equal",
        "{worked:#}"
    );
    let got = home
        .run(&[
            "--json",
            "controllers",
            "get",
            "file-set",
            "site",
            "--events",
            "1000",
        ])
        .stdout;
    // Nobody's lease, token or name: no model reads them from here.
    for private in [
        "owner",
        "token",
        "actorId",
        "command-line",
        "host-",
        "lease_",
    ] {
        assert!(!got.to_lowercase().contains(private), "{private}: {got}");
    }
    let run = worked["runs"][0]["runId"].as_str().unwrap();
    assert_eq!(
        home.ok(&["show", run])["launchOptions"]["workingDirectory"],
        json!(home.work())
    );
    let mut seen = session(
        &home,
        &[
            &["controllers", "list"],
            &["controllers", "explain", "file-set", "site"],
        ],
    );
    // By hand: one changed, one removed, one that nobody declared.
    home.write("public/index.html", "by hand");
    std::fs::remove_file(home.work().join("public/robots.txt")).unwrap();
    home.write("public/theirs", "theirs");
    home.ok(&["controllers", "reconcile", "file-set", "site"]);
    seen += &session(&home, &[&["work", "--until-idle"]]);
    assert_eq!(
        home.read("public/index.html"),
        "<h1>Hello</h1>\n<p>One.</p>\n"
    );
    assert!(home.work().join("public/robots.txt").exists());
    seen += &session(
        &home,
        &[
            &["controllers", "delete", "file-set", "site"],
            &["work", "--until-idle"],
            &["controllers", "explain", "file-set", "site"],
        ],
    );
    assert_eq!(home.read("public/theirs"), "theirs");
    assert_eq!(
        std::fs::read_dir(home.work().join("public"))
            .unwrap()
            .count(),
        1
    );
    insta::assert_snapshot!(seen);
    assert_eq!(home.run(&["state", "verify"]).status, 0);
}

/// A new spec while `work` goes on is taken up without being asked for, and a pass that fails says why, with the next time.
#[test]
fn what_stands_in_the_way_is_told() {
    let home = Home::with("site.resource.yaml", SITE);
    home.write("public", "a file where the directory should be");
    home.ok(&["controllers", "apply", "site.resource.yaml"]);
    home.ok(&["work", "--until-idle"]);
    let seen = session(
        &home,
        &[
            &["controllers", "list"],
            &["controllers", "explain", "file-set", "site"],
        ],
    );
    insta::assert_snapshot!(seen);
    let worker = home.spawn(&["work"]);
    std::fs::remove_file(home.work().join("public")).unwrap();
    home.write("site.resource.yaml", &SITE.replace("One", "Two"));
    home.ok(&["controllers", "apply", "site.resource.yaml"]);
    until("the site", || {
        home.read("public/index.html").contains("Two")
            && home.work().join("public/robots.txt").exists()
    });
    worker.kill();
}

/// Waits for something that only another process can make so, without a rest between two looks: the receipt is one commit away.
fn at_once(what: &str, is_so: impl Fn() -> bool) {
    let looks = (0..30_000_000).find(|_| is_so());
    assert!(looks.is_some(), "waited too long for {what}");
}

/// SIGKILL at the moment a file appears: between its writing and the receipt. It is found to be written, and not written again.
#[test]
fn a_file_that_was_written_before_a_kill_is_not_written_again() {
    use std::os::unix::fs::MetadataExt as _;
    let rounds: usize = std::env::var("HOLDPOINT_TEST_KILLS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(8);
    let home = Home::new();
    let names: Vec<String> = (0..rounds).map(|number| format!("f{number:03}")).collect();
    let files: Vec<Value> = names
        .iter()
        .map(|name| json!({ "path": name, "content": name }))
        .collect();
    let resource = json!({ "controller": "file-set", "key": "many", "spec": { "directory": "many", "files": files } });
    home.write("many.resource.json", &resource.to_string());
    home.ok(&["controllers", "apply", "many.resource.json"]);
    let inode = |name: &str| {
        std::fs::metadata(home.work().join("many").join(name))
            .ok()
            .map(|found| found.ino())
    };
    let mut written = Vec::new();
    let mut left_open = 0;
    for name in &names {
        let worker = home.spawn(&["work"]);
        at_once(name, || inode(name).is_some());
        worker.kill();
        let effects = home.ok(&["effects", "list", "--state", "applying"]);
        left_open += effects["effects"].as_array().unwrap().len();
        written.extend(names.iter().filter_map(|name| Some((name, inode(name)?))));
    }
    home.ok(&["work", "--until-idle"]);
    for (name, was) in written {
        assert_eq!(inode(name), Some(was), "{name} was written a second time");
    }
    let got = home.ok(&["controllers", "get", "file-set", "many"]);
    assert_eq!(got["status"]["conditions"][1]["reason"], "Equal", "{got:#}");
    let writes = got["effects"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|effect| effect["kind"] == "file-set.write");
    assert!(writes.clone().all(|effect| effect["state"] == "applied"));
    assert_eq!(writes.count(), rounds);
    assert!(0 < left_open, "no kill came between a file and its receipt");
    assert_eq!(home.run(&["state", "verify"]).status, 0);
}

/// The controller is not there any more: a person lets the resource go, and what it stood for stays.
#[test]
fn case_076_a_finalizer_is_forced_by_a_person_and_the_trail_says_why() {
    let home = Home::with("site.resource.yaml", SITE);
    home.ok(&["controllers", "apply", "site.resource.yaml"]);
    home.ok(&["work", "--until-idle"]);
    home.ok(&["controllers", "delete", "file-set", "site"]);
    let again = home.ok(&["controllers", "delete", "file-set", "site"]);
    assert_eq!(
        (&again["adopted"], &again["blockers"][0]["kind"]),
        (&json!(true), &json!("finalizer"))
    );
    let (status, _) = home.json(&["controllers", "apply", "site.resource.yaml"]);
    assert_eq!(status, 0, "the same spec is no change");
    home.write("site.resource.yaml", &SITE.replace("One", "Two"));
    let (status, refused) = home.json(&["controllers", "apply", "site.resource.yaml"]);
    assert_eq!((status, &refused["error"]["code"]), (4, &json!("conflict")));
    let forced = home.ok(&[
        "controllers",
        "force-finalizer",
        "file-set",
        "site",
        "file-set/files",
        "--reason",
        "moved away",
    ]);
    assert_eq!(
        (&forced["isDeleted"], &forced["adopted"]),
        (&json!(true), &json!(false))
    );
    assert_eq!(home.json(&["controllers", "get", "file-set", "site"]).0, 7);
    assert_eq!(
        home.read("public/index.html"),
        "<h1>Hello</h1>\n<p>One.</p>\n"
    );
    // The directory is still marked; a new resource of the name is another one, and is told so.
    home.ok(&["controllers", "apply", "site.resource.yaml"]);
    home.ok(&["work", "--until-idle"]);
    let got = home.ok(&["controllers", "get", "file-set", "site"]);
    assert_eq!(
        got["status"]["conditions"][1]["reason"], "DirectoryTaken",
        "{got:#}"
    );
    assert_eq!(home.run(&["state", "verify"]).status, 0);
}

/// A kill between a file and its receipt, a change of the spec before the next pass, and then the end: nothing stands in its way.
#[test]
fn what_a_kill_left_open_does_not_keep_a_resource_from_being_deleted() {
    let home = Home::new();
    let mut left_open = 0;
    for round in 0..6 {
        let resource = |content: &str| {
            let files = [json!({ "path": "a", "content": content })];
            json!({ "controller": "file-set", "key": "one", "spec": { "directory": "one", "files": files } }).to_string()
        };
        home.write("one.resource.json", &resource("first"));
        home.ok(&["controllers", "apply", "one.resource.json"]);
        let worker = home.spawn(&["work"]);
        let file = home.work().join("one/a");
        at_once("the file", || file.exists());
        worker.kill();
        left_open += home.ok(&["effects", "list", "--state", "applying"])["effects"]
            .as_array()
            .unwrap()
            .len();
        home.write("one.resource.json", &resource("second"));
        home.ok(&["controllers", "apply", "one.resource.json"]);
        home.ok(&["controllers", "delete", "file-set", "one"]);
        home.ok(&["work", "--until-idle"]);
        assert_eq!(
            home.json(&["controllers", "explain", "file-set", "one"]).0,
            7,
            "round {round}"
        );
        assert!(
            !home.work().join("one").exists(),
            "round {round}: the file was its own"
        );
    }
    assert!(0 < left_open, "no kill came between a file and its receipt");
    assert_eq!(home.run(&["state", "verify"]).status, 0);
}

#[test]
fn the_schema_is_that_of_resource_files() {
    let home = Home::new();
    let schema = home.ok(&["schema", "resource"]);
    let spec = &schema["$defs"]["Resource"]["allOf"][0]["then"]["properties"]["spec"];
    assert_eq!(spec, &holdpoint_controllers::file_set::spec::schema());
    let text = home.run(&["schema", "resource"]);
    assert_eq!(serde_json::from_str::<Value>(&text.stdout).unwrap(), schema);
    assert!(!home.store().exists());
}

/// Several processes, random kills, changes and deletions: in the end every directory is what was wanted last, and nothing else is there.
#[test]
fn directories_survive_kills_and_changes() {
    let rounds: u64 = std::env::var("HOLDPOINT_TEST_ROUNDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(24);
    let home = Home::new();
    let resource = |key: u64, round: u64| {
        let files: Vec<Value> = (0..4).map(|file| json!({ "path": format!("d{}/f{file}", (round + file) % 3), "content": format!("{key} {round}") })).collect();
        json!({ "controller": "file-set", "key": format!("set{key}"), "spec": { "directory": format!("set{key}"), "files": files } })
    };
    let mut wanted: [Option<u64>; 3] = [None; 3];
    let mut state: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut random = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let mut workers: Vec<_> = (0..2).map(|_| home.spawn(&["work"])).collect();
    for round in 0..rounds {
        let key = random(3);
        let slot = usize::try_from(key).unwrap();
        if random(4) == 0 && wanted[slot].is_some() {
            home.ok(&["controllers", "delete", "file-set", &format!("set{key}")]);
            until("the end of it", || {
                home.json(&["controllers", "explain", "file-set", &format!("set{key}")])
                    .0
                    == 7
            });
            wanted[slot] = None;
        } else {
            home.write("next.resource.json", &resource(key, round).to_string());
            home.ok(&["controllers", "apply", "next.resource.json"]);
            wanted[slot] = Some(round);
        }
        if random(2) == 0 {
            workers.swap_remove(0).kill();
            workers.push(home.spawn(&["work"]));
        }
    }
    workers.into_iter().for_each(crate::support::Running::kill);
    home.ok(&["work", "--until-idle"]);
    for (key, round) in (0..).zip(wanted) {
        let mut found = Vec::new();
        let mut left = vec![home.work().join(format!("set{key}"))];
        while let Some(directory) = left.pop() {
            let Ok(entries) = std::fs::read_dir(&directory) else {
                continue;
            };
            for entry in entries.map(Result::unwrap) {
                if entry.file_type().unwrap().is_dir() {
                    left.push(entry.path());
                } else if entry.file_name() != ".holdpoint-file-set.json" {
                    let name = entry
                        .path()
                        .strip_prefix(home.work())
                        .unwrap()
                        .to_str()
                        .unwrap()
                        .to_owned();
                    found.push((name, std::fs::read_to_string(entry.path()).unwrap()));
                }
            }
        }
        found.sort();
        let mut files: Vec<_> = round
            .into_iter()
            .flat_map(|round| {
                (0..4).map(move |file| {
                    (
                        format!("set{key}/d{}/f{file}", (round + file) % 3),
                        format!("{key} {round}"),
                    )
                })
            })
            .collect();
        files.sort();
        assert_eq!(found, files, "set{key}");
    }
    assert_eq!(home.run(&["state", "verify"]).status, 0);
}
