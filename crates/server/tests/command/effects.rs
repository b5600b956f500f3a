//! Effects whose outcome nobody knows: listed, explained, resolved.

use serde_json::{Value, json};

use crate::support::{Home, held, plain_document};

/// A run whose manual action was cut off.
fn ambiguous(home: &Home) -> (String, String) {
    let running = home.spawn(&["run", "held.workflow.yaml"]);
    home.wait_for_file("started");
    running.kill();
    home.ok(&["work", "--until-idle"]);
    let listed = home.ok(&["effects", "list"]);
    let effect = listed["effects"][0]["effectId"]
        .as_str()
        .unwrap()
        .to_owned();
    (home.newest(), effect)
}

/// Case 58: sent or not sent is a question for a person, and each answer leads somewhere.
#[test]
fn case_058_an_ambiguous_effect_is_confirmed() {
    let home = Home::with("held.workflow.yaml", &held("manual"));
    let (run, effect) = ambiguous(&home);
    let why = home.ok(&["explain", &run]);
    assert_eq!(why["blockedBy"], "effectAmbiguous");
    // Who has to look is told which one it is.
    let reason = why["reason"].as_str().unwrap();
    assert!(reason.contains(&format!("effect {effect} (")), "{reason}");
    let view = home.ok(&["show", &run]);
    assert_eq!(view["effectsToReview"][0]["effectId"], effect.as_str());
    let told = home.run(&["show", &run]).stdout;
    assert!(told.contains(&format!("review    {effect} (")), "{told}");
    let (status, error) = home.json(&["resume", &run]);
    assert_eq!((status, &error["error"]["code"]), (4, &json!("rejected")));
    let (status, error) = home.json(&["effects", "resolve", &effect, "confirm"]);
    assert_eq!(
        (status, &error["error"]["code"]),
        (2, &json!("input")),
        "{error:#}"
    );
    let (status, error) = home.json(&["effects", "resolve", &effect, "retry", "--attempt", "7"]);
    assert_eq!((status, &error["error"]["code"]), (4, &json!("conflict")));
    let (status, _) = home.json(&["effects", "resolve", &effect, "retry", "--receipt", "1"]);
    assert_eq!(status, 2);

    let receipt = [
        "effects",
        "resolve",
        &effect,
        "confirm",
        "--receipt",
        r#""by hand""#,
        "--key",
        "k",
        "--attempt",
        "1",
    ];
    let resolved = home.ok(&receipt);
    insta::assert_json_snapshot!(plain_document(&home, &resolved), @r#"
{
  "adopted": false,
  "effectId": "effect-HEX",
  "nextAttempt": null,
  "run": {
    "displayStatus": "queued",
    "revision": 9,
    "runId": "RUN-held",
    "runRevision": 9,
    "status": "running"
  },
  "state": "applied",
  "warning": null
}
"#);
    assert_eq!(home.ok(&receipt)["adopted"], true);
    let (status, error) = home.json(&["effects", "resolve", &effect, "reject"]);
    assert_eq!((status, &error["error"]["code"]), (4, &json!("conflict")));
    home.ok(&["work", "--until-idle"]);
    assert_eq!(home.ok(&["show", &run])["displayStatus"], "completed");
    assert_eq!(home.read("started").lines().count(), 1);
}

#[test]
fn an_ambiguous_effect_is_tried_again_or_rejected() {
    let home = Home::with("held.workflow.yaml", &held("manual"));
    let (run, effect) = ambiguous(&home);
    home.write("go", "");
    let text = home.run(&["effects", "resolve", &effect, "retry", "--stay"]);
    assert_eq!(text.status, 0);
    assert!(
        text.stdout.contains("can now happen twice"),
        "{}",
        text.stdout
    );
    home.ok(&["resume", &run]);
    home.ok(&["work", "--until-idle"]);
    assert_eq!(home.ok(&["show", &run])["displayStatus"], "completed");

    let home = Home::with("held.workflow.yaml", &held("manual"));
    let (run, effect) = ambiguous(&home);
    home.ok(&[
        "effects",
        "resolve",
        &effect,
        "reject",
        "--reason",
        "it was not me",
    ]);
    home.ok(&["work", "--until-idle"]);
    let view = home.ok(&["show", &run]);
    assert_eq!(view["displayStatus"], "failed");
    assert!(
        view["error"].as_str().unwrap().contains("it was not me"),
        "{view:#}"
    );
    home.write("go", "");
}

#[test]
fn effects_are_listed() {
    let home = Home::with("held.workflow.yaml", &held("idempotent"));
    assert_eq!(home.ok(&["effects", "list"]), json!({ "effects": [] }));
    home.write("go", "");
    let run = home.ok(&["run", "held.workflow.yaml"]);
    let run = run["runId"].as_str().unwrap();
    assert_eq!(home.ok(&["effects", "list"])["effects"], json!([]));
    let all = home.ok(&["effects", "list", "--all"]);
    insta::assert_json_snapshot!(plain_document(&home, &all), @r#"
{
  "effects": [
    {
      "attempts": 1,
      "createdAt": "[time]",
      "effectId": "effect-HEX",
      "effectType": "test.hold",
      "errorCode": null,
      "nextAttemptAt": null,
      "revision": 2,
      "scope": "run",
      "settledAt": "[time]",
      "sourceKey": "RUN-held",
      "sourceRevision": 6,
      "sourceType": "run",
      "state": "applied",
      "updatedAt": "[time]"
    }
  ]
}
"#);
    let listed = |args: &[&str]| home.ok(&[&["effects", "list"], args].concat())["effects"].clone();
    assert_eq!(
        listed(&["--state", "applied", "--run", run]),
        all["effects"]
    );
    assert_eq!(listed(&["--state", "ambiguous"]), Value::Array(Vec::new()));
    assert_eq!(listed(&["--run", "another"]), Value::Array(Vec::new()));
    let text = home.run(&["effects", "list", "--all"]);
    insta::assert_snapshot!(home.plain(&text.stdout), @r#"applied    effect-HEX  test.hold of run RUN-held, attempt 1, revision 2"#);
}
