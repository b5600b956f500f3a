//! The pure half of settings: vectors of the RFC, every rule as a line of a table, and an independent implementation to compare with.

mod declared;
mod properties;
mod rfc6902;

use holdpoint_state::{Actor, ActorKind};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::*;
use crate::definition::NodeError;

/// Applies a patch for which everything is allowed.
fn apply(document: &Value, patch: &Value) -> Result<Value, PatchError> {
    Patch::parse(patch)?.apply(document, |_, _| Ok(()))
}

/// What a patch by a session comes to under some rules: the document, or the error as text.
fn change(rules: &[PathRule], document: &Value, patch: &Value) -> String {
    let spec = SettingsSpec {
        initial: document.clone(),
        description: None,
        parse: std::sync::Arc::new(|value| Ok(value.clone())),
        paths: rules.to_vec(),
        validate_change: None,
        declared: None,
    };
    let settings = spec.check().unwrap();
    let actor = Actor::new(ActorKind::Session, "s");
    Patch::parse(patch)
        .map_err(ChangeError::from)
        .and_then(|patch| settings.change(document, &patch, &actor))
        .map_or_else(|error| error.to_string(), |after| after.to_string())
}

const ANY: &[ActorKind] = ActorKind::ALL;

fn all(path: &str) -> PathRule {
    PathRule::new(path)
        .may_read(ANY)
        .may_add(ANY)
        .may_remove(ANY)
        .may_replace(ANY)
}

#[test]
fn pointers() {
    for (text, tokens) in [
        ("", &[] as &[&str]),
        ("/", &[""]),
        ("/a~1b/~0~01/", &["a/b", "~~1", ""]),
        ("/ä", &["ä"]),
    ] {
        let pointer = Pointer::parse(text).unwrap();
        assert_eq!(
            (pointer.tokens(), pointer.to_string()),
            (
                tokens
                    .iter()
                    .map(ToString::to_string)
                    .collect::<Vec<_>>()
                    .as_slice(),
                text.to_owned()
            )
        );
    }
    let longest = format!("/{}", "x".repeat(POINTER_BYTES_MAX - 1));
    assert!(Pointer::parse(&longest).is_ok());
    for bad in ["a", "#/a", "/~", "/~2", "/a~", &format!("{longest}x")] {
        assert!(Pointer::parse(bad).is_err(), "{bad}");
    }
    let at = |text| Pointer::parse(text).unwrap();
    assert!(
        at("/a/b").starts_with(&at("/a"))
            && at("/a").starts_with(&at("/a"))
            && at("/a").starts_with(&at(""))
    );
    assert!(!at("/ab").starts_with(&at("/a")) && !at("/a").starts_with(&at("/a/b")));
}

#[test]
fn an_operation_has_exactly_the_members_of_its_kind() {
    let errors: Vec<String> = [
        json!({}),
        json!([1]),
        json!([{ "path": "/a" }]),
        json!([{ "op": 1, "path": "/a" }]),
        json!([{ "op": "Add", "path": "/a", "value": 1 }]),
        json!([{ "op": "add", "value": 1 }]),
        json!([{ "op": "add", "path": "/a" }]),
        json!([{ "op": "add", "path": 1, "value": 1 }]),
        json!([{ "op": "add", "path": "/a", "value": 1, "from": "/b" }]),
        json!([{ "op": "remove", "path": "/a", "value": 1 }]),
        json!([{ "op": "replace", "path": "/a" }]),
        json!([{ "op": "move", "path": "/a" }]),
        json!([{ "op": "copy", "from": "/a" }]),
        json!([{ "op": "copy", "from": "/a", "path": "/b", "value": 1 }]),
        json!([{ "op": "test", "path": "/a" }]),
        json!([{ "op": "test", "path": "a", "value": 1 }]),
        json!([{ "op": "remove", "path": "/a" }, { "op": "remove", "path": "/~3" }]),
    ]
    .iter()
    .map(|patch| Patch::parse(patch).unwrap_err().to_string())
    .collect();
    insta::assert_snapshot!(errors.join("\n"));
}

#[test]
fn limits_of_a_patch() {
    let operations =
        |count: usize| Value::from(vec![json!({ "op": "test", "path": "", "value": 1 }); count]);
    assert_eq!(apply(&json!(1), &json!([])), Ok(json!(1)));
    assert_eq!(apply(&json!(1), &operations(OPERATIONS_MAX)), Ok(json!(1)));
    assert_eq!(
        apply(&json!(1), &operations(OPERATIONS_MAX + 1)),
        Err(PatchError::TooMany { count: 257 })
    );
    let text = |bytes: usize| json!([{ "op": "add", "path": "", "value": "x".repeat(bytes - r#"[{"op":"add","path":"","value":""}]"#.len()) }]);
    assert!(Patch::parse(&text(PATCH_BYTES_MAX)).is_ok());
    assert_eq!(
        Patch::parse(&text(PATCH_BYTES_MAX + 1)),
        Err(PatchError::TooLarge {
            bytes: PATCH_BYTES_MAX + 1
        })
    );
    // `{"a":"…","b":1}`: one byte more than fits is refused.
    let document = |bytes: usize| json!({ "a": "x".repeat(bytes - r#"{"a":"","b":1}"#.len()) });
    let add = json!([{ "op": "add", "path": "/b", "value": 1 }]);
    assert!(apply(&document(VALUE_BYTES_MAX), &add).is_ok());
    assert_eq!(
        apply(&document(VALUE_BYTES_MAX + 1), &add),
        Err(PatchError::ValueTooLarge {
            bytes: VALUE_BYTES_MAX + 1
        })
    );
}

/// Each copy doubles the document, or its depth: two hundred of them would be more than any machine has.
#[test]
fn copies_of_copies_stop_early() {
    let wide = json!(vec![json!({ "op": "copy", "from": "", "path": "/-" }); 200]);
    let Err(PatchError::Operation { problem, .. }) = apply(&json!(["x"]), &wide) else {
        panic!("it grew");
    };
    assert_eq!(problem, Problem::Grows);
    let deep = json!(vec![json!({ "op": "copy", "from": "", "path": "/a" }); 200]);
    let Err(PatchError::Operation { index, problem }) = apply(&json!({ "a": 1 }), &deep) else {
        panic!("it grew");
    };
    assert_eq!((index, problem), (126, Problem::Grows));
}

#[test]
fn places_of_values() {
    let document = json!({ "list": [1, 2], "object": { "a": 1 }, "text": "x" });
    let outcomes: Vec<String> = [
        json!({ "op": "add", "path": "/list/-", "value": 3 }),
        json!({ "op": "add", "path": "/list/2", "value": 3 }),
        json!({ "op": "add", "path": "/list/3", "value": 3 }),
        json!({ "op": "add", "path": "/list/01", "value": 3 }),
        json!({ "op": "add", "path": "/list/+1", "value": 3 }),
        json!({ "op": "add", "path": "/list/99999999999999999999999", "value": 3 }),
        json!({ "op": "add", "path": "/missing/a", "value": 3 }),
        json!({ "op": "add", "path": "/text/a", "value": 3 }),
        json!({ "op": "add", "path": "/list/5/a", "value": 3 }),
        json!({ "op": "add", "path": "/object/a", "value": -0.0 }),
        json!({ "op": "remove", "path": "" }),
        json!({ "op": "remove", "path": "/list/-" }),
        json!({ "op": "remove", "path": "/list/2" }),
        json!({ "op": "replace", "path": "/list/-", "value": 3 }),
        json!({ "op": "replace", "path": "/list/2", "value": 3 }),
        json!({ "op": "replace", "path": "/object/b", "value": 3 }),
        json!({ "op": "test", "path": "/list/-", "value": 3 }),
        json!({ "op": "test", "path": "/list", "value": [1.0, 2] }),
        json!({ "op": "test", "path": "/object", "value": { "a": "1" } }),
        json!({ "op": "move", "from": "", "path": "/a" }),
        json!({ "op": "move", "from": "/object", "path": "/object/a/b" }),
        json!({ "op": "move", "from": "/object", "path": "/objects" }),
        json!({ "op": "move", "from": "/list/0", "path": "/list/1" }),
        json!({ "op": "move", "from": "/list/0", "path": "/list/2" }),
        json!({ "op": "move", "from": "/list/1", "path": "/list/-" }),
        json!({ "op": "move", "from": "/object/a", "path": "/object" }),
        json!({ "op": "move", "from": "/missing", "path": "/missing" }),
        json!({ "op": "move", "from": "", "path": "" }),
        json!({ "op": "move", "from": "/object", "path": "" }),
        json!({ "op": "copy", "from": "", "path": "/object/a" }),
        json!({ "op": "copy", "from": "/list/-", "path": "/object/a" }),
    ]
    .iter()
    .map(|operation| {
        let after = apply(&document, &json!([operation]))
            .map_or_else(|error| error.to_string(), |after| after.to_string());
        format!("{operation}\n    {after}")
    })
    .collect();
    insta::assert_snapshot!(outcomes.join("\n"));
}

#[test]
fn edge_091_a_move_needs_read_and_remove_of_its_source() {
    let document = json!({ "a": 1, "b": {} });
    let patch = json!([{ "op": "move", "from": "/a", "path": "/b/c" }]);
    let under_b = PathRule::new("/b").may_add(ANY);
    let source = |rule: PathRule| change(&[rule, under_b.clone()], &document, &patch);
    assert_eq!(
        source(PathRule::new("/a").may_remove(ANY)),
        r#"operation 0 of the patch: session may not read "/a""#
    );
    assert_eq!(
        source(PathRule::new("/a").may_read(ANY)),
        r#"operation 0 of the patch: session may not remove "/a""#
    );
    assert_eq!(
        source(PathRule::new("/a").may_read(ANY).may_remove(ANY)),
        r#"{"b":{"c":1}}"#
    );
    assert_eq!(
        change(
            &[PathRule::new("/a").may_read(ANY).may_remove(ANY)],
            &document,
            &patch
        ),
        r#"operation 0 of the patch: session may not add "/b/c""#
    );
}

#[test]
fn edge_092_the_longest_rule_alone_decides() {
    let document = json!({ "a": { "b": 1, "bc": 1 } });
    let rules = [
        all("/a"),
        PathRule::new("/a/b").may_read(ANY),
        PathRule::new("").may_replace(&[ActorKind::Human]),
    ];
    let replace = |path: &str| {
        change(
            &rules,
            &document,
            &json!([{ "op": "replace", "path": path, "value": 2 }]),
        )
    };
    assert_eq!(
        replace("/a/b"),
        r#"operation 0 of the patch: session may not replace "/a/b""#
    );
    // By whole parts: `/a/bc` does not lie beneath `/a/b`.
    assert_eq!(replace("/a/bc"), r#"{"a":{"b":1,"bc":2}}"#);
    // The rule of the whole is for a person. Where no rule is, nobody may anything.
    assert_eq!(
        replace(""),
        r#"operation 0 of the patch: session may not replace """#
    );
    assert_eq!(
        change(
            &[],
            &document,
            &json!([{ "op": "test", "path": "/a/b", "value": 1 }])
        ),
        r#"operation 0 of the patch: session may not read "/a/b""#
    );
}

#[test]
fn edge_093_adding_over_a_member_is_replacing_it() {
    let document = json!({ "a": 1, "list": [1] });
    let only_add = [PathRule::new("").may_add(ANY)];
    let add = |path: &str| {
        change(
            &only_add,
            &document,
            &json!([{ "op": "add", "path": path, "value": 2 }]),
        )
    };
    assert_eq!(
        add("/a"),
        r#"operation 0 of the patch: session may not replace "/a""#
    );
    assert_eq!(
        add(""),
        r#"operation 0 of the patch: session may not replace """#
    );
    assert_eq!(add("/b"), r#"{"a":1,"b":2,"list":[1]}"#);
    assert_eq!(add("/list/-"), r#"{"a":1,"list":[1,2]}"#);
    assert_eq!(add("/list/0"), r#"{"a":1,"list":[2,1]}"#);
    assert_eq!(
        add("/list/01"),
        r#"operation 0 of the patch: "/list/01" names an item of an array by something that is no index"#
    );
    // The end of an array has the rule of the index that it would be.
    let first_only = [
        PathRule::new("/list").may_add(ANY),
        PathRule::new("/list/1").may_read(ANY),
    ];
    assert_eq!(
        change(
            &first_only,
            &document,
            &json!([{ "op": "add", "path": "/list/-", "value": 2 }])
        ),
        r#"operation 0 of the patch: session may not add "/list/1""#
    );
}

/// A path that an earlier operation of the same patch filled is replaced, one that it emptied is added to.
#[test]
fn each_operation_is_authorised_against_what_the_earlier_ones_left() {
    let rules = [PathRule::new("").may_read(ANY).may_add(ANY).may_remove(ANY)];
    let document = json!({ "a": 1, "list": [{ "x": 1 }, {}] });
    let outcome = |patch: Value| change(&rules, &document, &patch);
    assert_eq!(
        outcome(
            json!([{ "op": "add", "path": "/b", "value": 1 }, { "op": "add", "path": "/b", "value": 2 }])
        ),
        r#"operation 1 of the patch: session may not replace "/b""#
    );
    assert_eq!(
        outcome(
            json!([{ "op": "remove", "path": "/a" }, { "op": "add", "path": "/a", "value": 2 }])
        ),
        r#"{"a":2,"list":[{"x":1},{}]}"#
    );
    // What moves closes its gap first: `/list/0/x` then is what was `/list/1/x`.
    assert_eq!(
        outcome(json!([{ "op": "move", "from": "/list/0", "path": "/list/0/x" }])),
        "operation 0 of the patch: a value can't be moved into itself"
    );
    let document = json!({ "list": [0, {}, { "x": 1 }] });
    assert_eq!(
        change(
            &rules,
            &document,
            &json!([{ "op": "move", "from": "/list/0", "path": "/list/1/x" }])
        ),
        r#"operation 0 of the patch: session may not replace "/list/1/x""#
    );
    // Nothing moves, and it takes what moving takes all the same.
    for (rule, outcome) in [
        (
            PathRule::new("").may_remove(ANY).may_replace(ANY),
            r#"operation 0 of the patch: session may not read "/list""#,
        ),
        (
            PathRule::new("").may_read(ANY).may_replace(ANY),
            r#"operation 0 of the patch: session may not remove "/list""#,
        ),
        (
            PathRule::new("").may_read(ANY).may_remove(ANY),
            r#"operation 0 of the patch: session may not replace "/list""#,
        ),
        (all(""), r#"{"list":[0,{},{"x":1}]}"#),
    ] {
        assert_eq!(
            change(
                &[rule],
                &document,
                &json!([{ "op": "move", "from": "/list", "path": "/list" }])
            ),
            outcome
        );
    }
}

#[test]
fn rules_are_checked_when_they_are_declared() {
    let human = &[ActorKind::Human];
    let errors: Vec<String> = [
        vec![PathRule::new("a").may_read(human)],
        vec![PathRule::new("/~2").may_read(human)],
        vec![PathRule::new("/a")],
        vec![PathRule::new("/a").may_read(&[])],
        vec![
            PathRule::new("/a").may_read(human),
            PathRule::new("/a").may_replace(human),
        ],
        vec![PathRule::new("/a").may_read(human).description(" ")],
    ]
    .iter()
    .map(|rules| Rules::check(rules).unwrap_err().to_string())
    .collect();
    insta::assert_snapshot!(errors.join("\n"), @r#"
    the path of a rule: a pointer is empty or begins with /, but this is "a"
    the path of a rule: pointer "/~2" has a ~ that is followed by neither 0 nor 1
    the rule for "/a" names no permission; leave it out, or name one of read, add, remove, replace
    the rule for "/a" names nobody who may read
    two rules for "/a" allow different things
    the description of the rule for "/a" is blank
    "#);
    // The same said twice is said once, in whatever order.
    let twice = [
        PathRule::new("/a").may_read(&[ActorKind::Human, ActorKind::Session]),
        PathRule::new("/a").may_read(&[ActorKind::Session, ActorKind::Human, ActorKind::Human]),
    ];
    assert_eq!(Rules::check(&twice), Rules::check(&twice[..1]));
}

#[derive(Debug, Serialize, Deserialize)]
struct Limits {
    batch: u32,
    #[serde(default)]
    mode: String,
}

fn limits() -> Settings<Limits> {
    Settings::new(Limits {
        batch: 10,
        mode: "slow".to_owned(),
    })
    .path(all(""))
}

#[test]
fn edge_094_a_parser_that_would_alter_the_settings_refuses_the_change() {
    let settings = limits()
        .validate_change(|before, after, actor| {
            if actor.kind() != ActorKind::Human && after.batch > 2 * before.batch {
                return Err(NodeError::new("only a person may more than double it"));
            }
            Ok(())
        })
        .into_spec()
        .unwrap()
        .check()
        .unwrap();
    assert_eq!(settings.initial(), &json!({ "batch": 10, "mode": "slow" }));
    let change = |actor: &Actor, patch: Value| {
        settings.change(settings.initial(), &Patch::parse(&patch).unwrap(), actor)
    };
    let session = Actor::new(ActorKind::Session, "s");
    let set = |value: Value| json!([{ "op": "replace", "path": "/batch", "value": value }]);
    assert_eq!(
        change(&session, set(json!(20))),
        Ok(json!({ "batch": 20, "mode": "slow" }))
    );
    assert!(matches!(
        change(&session, set(json!(21))),
        Err(ChangeError::Refused(_))
    ));
    assert_eq!(
        change(&Actor::human("ada"), set(json!(21))),
        Ok(json!({ "batch": 21, "mode": "slow" }))
    );
    assert!(matches!(
        change(&session, set(json!("20"))),
        Err(ChangeError::Parse(_))
    ));
    // A member that the type does not have would be dropped, and one that is missing filled in.
    for altered in [
        json!([{ "op": "add", "path": "/other", "value": 1 }]),
        json!([{ "op": "remove", "path": "/mode" }]),
    ] {
        assert!(matches!(
            change(&session, altered),
            Err(ChangeError::Altered(_))
        ));
    }
}

#[test]
fn an_initial_value_that_the_workflow_does_not_take_is_a_mistake_of_its_author() {
    let spec = SettingsSpec {
        initial: json!({ "batch": "ten" }),
        ..limits().into_spec().unwrap()
    };
    assert!(matches!(spec.check(), Err(SettingsError::Initial(_))));
    // What is missing is filled in: the first document is what the parser makes of it.
    let spec = SettingsSpec {
        initial: json!({ "batch": 3.0 }),
        ..limits().into_spec().unwrap()
    };
    assert_eq!(
        spec.check().unwrap().initial(),
        &json!({ "batch": 3, "mode": "" })
    );
    let spec = limits().description("\t").into_spec().unwrap();
    assert!(matches!(
        spec.check(),
        Err(SettingsError::BlankDescription { path: None })
    ));
}
