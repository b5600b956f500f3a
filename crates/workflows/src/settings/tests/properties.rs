//! Random patches: ours against the `json-patch` crate, which knows nothing of our limits and rules.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::{Patch, Pointer};
use super::apply;

/// Documents of few names, so that pointers meet something.
fn document() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3_i64..3).prop_map(Value::from),
        "[ab~/]{0,2}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(name(), inner, 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("a"),
        Just("b"),
        Just("0"),
        Just("1"),
        Just("-"),
        Just("~"),
        Just("")
    ]
    .prop_map(str::to_owned)
}

fn pointer() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        4 => Just("/a"), 4 => Just("/b"), 4 => Just("/0"), 4 => Just("/1"), 2 => Just("/-"), 1 => Just("/01"), 1 => Just("/~0"),
        1 => Just("/")
    ];
    prop::collection::vec(part, 0..4).prop_map(|parts| parts.concat())
}

fn operation() -> impl Strategy<Value = Value> {
    let add = (pointer(), document())
        .prop_map(|(path, value)| json!({ "op": "add", "path": path, "value": value }));
    let replace = (pointer(), document())
        .prop_map(|(path, value)| json!({ "op": "replace", "path": path, "value": value }));
    let test = (pointer(), document())
        .prop_map(|(path, value)| json!({ "op": "test", "path": path, "value": value }));
    let remove = pointer().prop_map(|path| json!({ "op": "remove", "path": path }));
    let take = (pointer(), pointer())
        .prop_map(|(from, path)| json!({ "op": "move", "from": from, "path": path }));
    let copy = (pointer(), pointer())
        .prop_map(|(from, path)| json!({ "op": "copy", "from": from, "path": path }));
    prop_oneof![4 => add, 2 => replace, 1 => test, 2 => remove, 2 => take, 2 => copy]
}

/// Where the two are known to differ: what the RFC leaves open, or we forbid.
fn is_ours_alone(document: &Value, operation: &Value) -> bool {
    let at = |field: &str| operation.get(field).and_then(Value::as_str).unwrap_or("x");
    match at("op") {
        "remove" => at("path").is_empty(),
        "move" => {
            let (from, path) = (at("from"), at("path"));
            let into_itself = Pointer::parse(path)
                .and_then(|path| Ok(path.starts_with(&Pointer::parse(from)?)))
                .unwrap_or_default();
            into_itself || from.is_empty() || document.pointer(from).is_none()
        }
        _ => false,
    }
}

fn theirs(document: &Value, operation: &Value) -> Option<Value> {
    let patch: json_patch::Patch = serde_json::from_value(json!([operation])).ok()?;
    let mut document = document.clone();
    json_patch::patch(&mut document, &patch).ok()?;
    Some(document)
}

proptest! {
    #[test]
    fn an_operation_does_what_another_implementation_does(before in document(), operation in operation()) {
        prop_assume!(!is_ours_alone(&before, &operation));
        prop_assert_eq!(apply(&before, &json!([operation])).ok(), theirs(&before, &operation), "{}", operation);
    }

    #[test]
    fn a_patch_is_its_operations_one_after_the_other(before in document(), operations in prop::collection::vec(operation(), 0..6)) {
        let whole = apply(&before, &Value::from(operations.clone()));
        let parts = operations.iter().try_fold(before, |document, operation| apply(&document, &json!([operation])));
        prop_assert_eq!(whole.ok(), parts.ok());
    }

    #[test]
    fn no_garbage_is_a_patch_or_makes_reading_one_fail_in_another_way(garbage in document()) {
        if let Ok(patch) = Patch::parse(&garbage) {
            prop_assert_eq!(patch.operations().len(), 0);
        }
    }
}
