//! The `settings` block of a file and its `settingsRoute` nodes.

use std::fmt::Write as _;

use holdpoint_state::{Actor, ActorKind};
use serde_json::{Value, json};

use crate::definition::NodeKind;
use crate::file::parse;
use crate::settings::{ChangeError, Patch};

const GOOD: &str = r#"name: tuned
settings:
  description: How fast it goes
  initial: { batch: 10 }
  fields:
    batch: { type: integer, description: rows at once }
    mode: { type: string, default: slow }
  paths:
    - { path: '', read: [human, session] }
    - { path: /batch, read: [human, session], replace: [human, session] }
  validateChange: { jq: 'if .actor == .before.mode or .after.batch <= 2 * .before.batch then true else "not more than twice" end' }
startAt: one
nodes:
  one: { settingsRoute: { jq: $settings.batch } }
"#;

#[test]
fn a_file_declares_settings() {
    let definition = parse("a.workflow.yaml", GOOD).unwrap();
    let settings = definition.settings("").unwrap();
    assert_eq!(settings.initial(), &json!({ "batch": 10, "mode": "slow" }));
    assert_eq!(settings.description(), Some("How fast it goes"));
    let node = definition.node(definition.start_at()).unwrap();
    assert!(matches!(&node.kind, NodeKind::Compute(compute) if compute.settings_route));
    assert_eq!(definition.snapshot()["nodes"]["one"]["settingsRoute"], true);

    let change = |kind, patch: Value| {
        let patch = Patch::parse(&patch).unwrap();
        settings.change(settings.initial(), &patch, &Actor::new(kind, "x"))
    };
    let batch = |batch: i64| json!([{ "op": "replace", "path": "/batch", "value": batch }]);
    assert_eq!(
        change(ActorKind::Session, batch(20)),
        Ok(json!({ "batch": 20, "mode": "slow" }))
    );
    let refused = |result: Result<Value, ChangeError>| result.unwrap_err().to_string();
    assert_eq!(
        refused(change(ActorKind::Session, batch(21))),
        "the workflow refuses this change: SettingsError: not more than twice"
    );
    assert_eq!(
        refused(change(ActorKind::Host, batch(11))),
        r#"operation 0 of the patch: host may not replace "/batch""#
    );
    assert_eq!(
        refused(change(
            ActorKind::Human,
            json!([{ "op": "replace", "path": "/batch", "value": "many" }])
        )),
        r#"the workflow does not take these settings: SettingsError: setting "batch" must be an integer, not "many""#
    );
}

#[test]
fn the_digest_covers_what_decides_in_settings() {
    let digest = |from: &str, to: &str| {
        assert!(GOOD.contains(from), "{from}");
        let definition = parse("a.workflow.yaml", &GOOD.replacen(from, to, 1)).unwrap();
        definition.digest()
    };
    let same = digest("batch", "batch");
    for (from, to) in [
        ("How fast it goes", "How it goes"),
        ("rows at once", "rows"),
        ("path: '',", "path: '', description: all of it,"),
    ] {
        assert_eq!(digest(from, to), same, "{from}");
    }
    for (from, to) in [
        ("batch: 10", "batch: 11"),
        ("default: slow", "default: fast"),
        ("[human, session] }", "[human] }"),
        ("2 * ", "3 * "),
        ("settingsRoute", "compute"),
    ] {
        assert_ne!(digest(from, to), same, "{from}");
    }
}

#[test]
fn mistakes_in_settings() {
    let mut table = String::new();
    for (from, to) in [
        ("  initial: { batch: 10 }\n", ""),
        ("initial: { batch: 10 }", "initial: { batch: ten }"),
        ("initial: { batch: 10 }", "initial: 10"),
        ("default: slow", "default: 7"),
        ("How fast it goes", "' '"),
        ("path: /batch", "path: batch"),
        ("path: /batch", "path: ''"),
        (", replace: [human, session]", ", replace: [human, boss]"),
        (", replace: [human, session]", ", write: [human]"),
        (", replace: [human, session]", ", replace: []"),
        (", read: [human, session], replace: [human, session]", ""),
        ("jq: 'if", "jq: 'iff"),
        ("paths:", "path:"),
        ("settingsRoute: {", "compute: 1, settingsRoute: {"),
    ] {
        assert!(GOOD.contains(from), "{from}");
        let found = parse("a.workflow.yaml", &GOOD.replacen(from, to, 1)).map_or_else(
            |error| {
                let code = error.code().unwrap_or("-");
                format!("{code} {error}").replacen("a.workflow.yaml:", "", 1)
            },
            |_| "is read".to_owned(),
        );
        writeln!(table, "{} => {}\n    {found}", from.trim(), to.trim()).unwrap();
    }
    insta::assert_snapshot!(table);
}
