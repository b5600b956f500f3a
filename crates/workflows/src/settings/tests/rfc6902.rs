//! The examples of RFC 6902, appendix A, in its order.

use serde_json::{Value, json};

use super::super::{PatchError, Problem};
use super::apply;

#[test]
fn appendix_a() {
    let accepted: [(&str, Value, Value, Value); 13] = [
        (
            "A.1 adding an object member",
            json!({ "foo": "bar" }),
            json!([{ "op": "add", "path": "/baz", "value": "qux" }]),
            json!({ "baz": "qux", "foo": "bar" }),
        ),
        (
            "A.2 adding an array element",
            json!({ "foo": ["bar", "baz"] }),
            json!([{ "op": "add", "path": "/foo/1", "value": "qux" }]),
            json!({ "foo": ["bar", "qux", "baz"] }),
        ),
        (
            "A.3 removing an object member",
            json!({ "baz": "qux", "foo": "bar" }),
            json!([{ "op": "remove", "path": "/baz" }]),
            json!({ "foo": "bar" }),
        ),
        (
            "A.4 removing an array element",
            json!({ "foo": ["bar", "qux", "baz"] }),
            json!([{ "op": "remove", "path": "/foo/1" }]),
            json!({ "foo": ["bar", "baz"] }),
        ),
        (
            "A.5 replacing a value",
            json!({ "baz": "qux", "foo": "bar" }),
            json!([{ "op": "replace", "path": "/baz", "value": "boo" }]),
            json!({ "baz": "boo", "foo": "bar" }),
        ),
        (
            "A.6 moving a value",
            json!({ "foo": { "bar": "baz", "waldo": "fred" }, "qux": { "corge": "grault" } }),
            json!([{ "op": "move", "from": "/foo/waldo", "path": "/qux/thud" }]),
            json!({ "foo": { "bar": "baz" }, "qux": { "corge": "grault", "thud": "fred" } }),
        ),
        (
            "A.7 moving an array element",
            json!({ "foo": ["all", "grass", "cows", "eat"] }),
            json!([{ "op": "move", "from": "/foo/1", "path": "/foo/3" }]),
            json!({ "foo": ["all", "cows", "eat", "grass"] }),
        ),
        (
            "A.8 testing a value: success",
            json!({ "baz": "qux", "foo": ["a", 2, "c"] }),
            json!([
                { "op": "test", "path": "/baz", "value": "qux" },
                { "op": "test", "path": "/foo/1", "value": 2 }
            ]),
            json!({ "baz": "qux", "foo": ["a", 2, "c"] }),
        ),
        (
            "A.10 adding a nested member object",
            json!({ "foo": "bar" }),
            json!([{ "op": "add", "path": "/child", "value": { "grandchild": {} } }]),
            json!({ "foo": "bar", "child": { "grandchild": {} } }),
        ),
        (
            "A.14 escape ordering",
            json!({ "/": 9, "~1": 10 }),
            json!([{ "op": "test", "path": "/~01", "value": 10 }]),
            json!({ "/": 9, "~1": 10 }),
        ),
        (
            "A.16 adding an array value",
            json!({ "foo": ["bar"] }),
            json!([{ "op": "add", "path": "/foo/-", "value": ["abc", "def"] }]),
            json!({ "foo": ["bar", ["abc", "def"]] }),
        ),
        (
            "4.1 replacing the whole document by add",
            json!({ "foo": 1 }),
            json!([{ "op": "add", "path": "", "value": [1] }]),
            json!([1]),
        ),
        (
            "4.1 adding replaces a member that exists",
            json!({ "foo": 1 }),
            json!([{ "op": "add", "path": "/foo", "value": null }]),
            json!({ "foo": null }),
        ),
    ];
    for (name, document, patch, expected) in accepted {
        assert_eq!(apply(&document, &patch), Ok(expected), "{name}");
    }
}

#[test]
fn appendix_a_errors() {
    let problem = |document: Value, patch: Value| match apply(&document, &patch) {
        Err(PatchError::Operation { index: 0, problem }) => problem,
        other => panic!("{other:?}"),
    };
    let failed = problem(
        json!({ "baz": "qux" }),
        json!([{ "op": "test", "path": "/baz", "value": "bar" }]),
    );
    assert!(matches!(failed, Problem::TestFailed { .. }), "A.9");
    // A.11 ignores members that an operation does not have; here they are refused.
    let extra = problem(
        json!({ "foo": "bar" }),
        json!([{ "op": "add", "path": "/baz", "value": "qux", "xyz": 123 }]),
    );
    assert!(matches!(extra, Problem::Extra { .. }), "A.11");
    let parent = problem(
        json!({ "foo": "bar" }),
        json!([{ "op": "add", "path": "/baz/bat", "value": "qux" }]),
    );
    assert!(matches!(parent, Problem::NoParent { .. }), "A.12");
    // A.13 has `op` twice in one object, which reading JSON refuses already.
    let twice = br#"[{ "op": "add", "path": "/baz", "value": "qux", "op": "remove" }]"#;
    assert!(holdpoint_state::json::parse(twice).is_err(), "A.13");
    let strings = problem(
        json!({ "/": 9, "~1": 10 }),
        json!([{ "op": "test", "path": "/~01", "value": "10" }]),
    );
    assert!(matches!(strings, Problem::TestFailed { .. }), "A.15");
}
