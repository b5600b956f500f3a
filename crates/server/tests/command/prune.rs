//! `prune`: the dry run explains itself, and what is typed wrongly changes nothing.

use serde_json::json;

use crate::support::{ASK, Home};

/// A home with a run that is over and one that waits.
fn home() -> (Home, String, String) {
    let home = Home::with("ask.workflow.yaml", ASK);
    let over = home.asking("ask.workflow.yaml");
    home.ok(&["cancel", &over]);
    let restarted = home.ok(&["restart", &over])["runId"]
        .as_str()
        .unwrap()
        .to_owned();
    home.ok(&["cancel", &restarted]);
    let single = home.asking("ask.workflow.yaml");
    home.ok(&["cancel", &single]);
    let waiting = home.ok(&["restart", &single])["runId"]
        .as_str()
        .unwrap()
        .to_owned();
    home.ok(&["work", "--until-idle"]);
    (home, over, waiting)
}

#[test]
fn the_dry_run_explains_each_tree_and_the_prune_deletes_what_it_said() {
    let (home, over, waiting) = home();
    let nothing = home.run(&["prune"]);
    assert!(
        nothing.stdout.ends_with("0 of 0 trees can go, 0 runs\n"),
        "{}",
        nothing.stdout
    );
    let told = home.run(&["prune", "--before", "2100-01-01T00:00Z"]);
    assert_eq!((told.status, told.stderr.as_str()), (0, ""));
    insta::assert_snapshot!(home.plain(&told.stdout));
    let plan = home.ok(&["prune", "--before", "2100-01-01"]);
    assert_eq!(
        (&plan["applied"], &plan["selectedRuns"]),
        (&json!(false), &json!(2))
    );
    assert_eq!(home.ok(&["list"])["runs"].as_array().unwrap().len(), 4);

    let backup = home.work().join("before.sqlite");
    let backup = backup.to_str().unwrap();
    let told = home.run(&["prune", "--older-than", "0", "--apply", "--backup", backup]);
    assert_eq!((told.status, told.stderr.as_str()), (0, ""));
    assert!(
        told.stdout.contains("\ndeleted 1 trees, 2 runs, "),
        "{}",
        told.stdout
    );
    assert_eq!(home.ok(&["list"])["runs"].as_array().unwrap().len(), 2);
    assert_eq!(home.json(&["show", &over]).0, 7);
    home.ok(&["state", "verify"]);
    home.ok(&["state", "verify", backup]);
    // What waits is answered as ever.
    home.ok(&["answer", &waiting, "1"]);
    home.ok(&["work", "--until-idle"]);
    assert_eq!(home.ok(&["show", &waiting])["status"], "completed");
}

#[test]
fn edge_116_what_is_typed_wrongly_deletes_nothing() {
    let (home, over, _) = home();
    let there = home.work().join("there.sqlite");
    std::fs::write(&there, "something").unwrap();
    let there = there.to_str().unwrap();
    let absent = home.work().join("absent.sqlite");
    let absent = absent.to_str().unwrap();
    for (args, code) in [
        (vec!["--before", "yesterday"], "input"),
        (
            vec!["--before", "yesterday", "--apply", "--backup", absent],
            "input",
        ),
        (vec!["--before", "1", "--older-than", "1"], "usage"),
        (vec!["--older-than", "0", "--apply"], "usage"),
        (vec!["--older-than", "0", "--backup", absent], "usage"),
        (
            vec![
                "--older-than",
                "0",
                "--apply",
                "--backup",
                "relative.sqlite",
            ],
            "input",
        ),
        (
            vec!["--older-than", "0", "--apply", "--backup", there],
            "input",
        ),
        (
            vec!["--older-than", "0", "--apply", "--backup", "/missing/dir/x"],
            "input",
        ),
    ] {
        let (status, error) = home.json(&[&["prune"], args.as_slice()].concat());
        assert_eq!(
            (status, &error["error"]["code"]),
            (2, &json!(code)),
            "{args:?}"
        );
    }
    assert_eq!(std::fs::read_to_string(there).unwrap(), "something");
    assert!(!std::path::Path::new(absent).exists());
    home.ok(&["show", &over]);
    let nowhere = Home::new();
    assert_eq!(nowhere.json(&["prune"]).0, 7);
}
