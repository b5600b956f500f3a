//! Settings as a part of a definition: the check, the snapshot, the digest.

use holdpoint_state::ActorKind;
use serde_json::json;

use super::super::{PathRule, Settings};
use crate::definition::{Definition, DefinitionError, Workflow};

fn define(settings: Settings<u8>) -> Result<Definition, DefinitionError> {
    Workflow::new("tuned")
        .settings(settings)
        .start_at("only")
        .compute("only", |_| Ok(1))
        .build()
}

fn rule() -> PathRule {
    PathRule::new("").may_read(ActorKind::ALL)
}

#[test]
fn a_definition_shows_its_settings_and_is_pinned_to_their_rules() {
    let plain = define(Settings::new(1).path(rule())).unwrap();
    let all: Vec<&str> = ActorKind::ALL.iter().map(|kind| kind.as_str()).collect();
    assert_eq!(
        plain.snapshot()["settings"],
        json!({ "paths": [{ "path": "", "read": all }] })
    );
    assert_eq!(plain.settings("").unwrap().initial(), &json!(1));
    let described = define(
        Settings::new(1)
            .description("how fast")
            .path(rule().description("all of it")),
    )
    .unwrap();
    assert_eq!(described.snapshot()["settings"]["description"], "how fast");
    assert_eq!(
        described.snapshot()["settings"]["paths"][0]["description"],
        "all of it"
    );
    assert_eq!(described.digest(), plain.digest());
    let wider = define(Settings::new(1).path(rule().may_replace(&[ActorKind::Human]))).unwrap();
    assert_ne!(wider.digest(), plain.digest());
}

#[test]
fn a_mistake_in_settings_is_v7() {
    let error = define(Settings::new(1).path(PathRule::new("x"))).unwrap_err();
    assert_eq!(error.code(), "V7");
    assert!(
        error
            .to_string()
            .starts_with("Invalid workflow definition: settings: "),
        "{error}"
    );
}
