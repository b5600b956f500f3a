//! Finds the JSON value in what a model wrote.
//!
//! Models wrap an answer in prose and fences however they are told not to. Not here: whether the value is one that the node
//! takes (its `validate`).

use serde_json::Value;

/// At how many brackets of a text a value is looked for. It bounds the work on text that is all brackets.
const STARTS_MAX: usize = 64;

/// What a model's text says: the JSON value in it, or the text itself where there is none.
///
/// Tried in this order: the whole trimmed text; the first fenced block; from left to right, the first object or array that is
/// complete, at no more than 64 opening brackets. The time is linear in the length of the text.
///
/// ```
/// use holdpoint_workflows::agents::extract;
/// use serde_json::json;
///
/// assert_eq!(extract("Sure! Here it is:\n```json\n{\"ok\": true}\n```"), json!({"ok": true}));
/// assert_eq!(extract("The answer is {\"n\": [1, 2]}, as you see."), json!({"n": [1, 2]}));
/// assert_eq!(extract("No JSON here."), json!("No JSON here."));
/// ```
pub fn extract(text: &str) -> Value {
    let trimmed = text.trim();
    serde_json::from_str(trimmed)
        .ok()
        .or_else(|| serde_json::from_str(fenced(trimmed)?.trim()).ok())
        .or_else(|| complete(trimmed))
        .unwrap_or_else(|| Value::String(text.to_owned()))
}

/// What stands in the first fenced block, without the word behind the opening fence.
fn fenced(text: &str) -> Option<&str> {
    const FENCE: &str = "```";
    let (_, behind) = text.split_once(FENCE)?;
    let unnamed = behind.trim_start_matches(|c: char| {
        c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '+' | '.')
    });
    // A word that is the whole block is no name of a language.
    let body = if unnamed.starts_with(FENCE) {
        behind
    } else {
        unnamed
    };
    // No JSON string holds a line break, so a fence that begins a line ends the block; a fence in a string does not.
    let line_end = body
        .match_indices(FENCE)
        .find(|(at, _)| {
            body.get(..*at)
                .is_some_and(|before| before.trim_end_matches([' ', '\t']).ends_with('\n'))
        })
        .or_else(|| body.match_indices(FENCE).next());
    match line_end {
        Some((at, _)) => body.get(..at),
        // The model forgot to close it.
        None => Some(body),
    }
}

/// The first object or array that is complete.
///
/// Each try reads on from one bracket until the value ends or can't be one; its depth is limited by the parser, so that neither
/// time nor stack grows with the number of brackets.
fn complete(text: &str) -> Option<Value> {
    text.match_indices(['{', '['])
        .take(STARTS_MAX)
        .find_map(|(at, _)| {
            serde_json::Deserializer::from_str(text.get(at..)?)
                .into_iter::<Value>()
                .next()?
                .ok()
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn the_whole_text_then_the_first_fence_then_what_is_complete() {
        let cases: &[(&str, Value)] = &[
            ("  {\"a\": 1}\n", json!({"a": 1})),
            ("\"text\"", json!("text")),
            ("null", json!(null)),
            ("3", json!(3)),
            ("3 apples", json!("3 apples")),
            ("", json!("")),
            ("  spaces stay  ", json!("  spaces stay  ")),
            // Fences.
            ("```json\n{\"a\": 1}\n```", json!({"a": 1})),
            ("```\n[1]\n``` and ```\n[2]\n```", json!([1])),
            ("see ```true``` there", json!(true)),
            ("```json {\"a\": 1} ```", json!({"a": 1})),
            (
                "```json\n{\"code\": \"```rust```\"}\n```\nDone.",
                json!({"code": "```rust```"}),
            ),
            ("```json\n{\"a\": 1}", json!({"a": 1})),
            ("  ```json\n  {\"a\": 1}\n  ```", json!({"a": 1})),
            // The first fence holds no JSON: what is complete anywhere counts.
            ("```sh\nls\n```\nthen {\"a\": 1}", json!({"a": 1})),
            // Complete values.
            (
                "so: {\"a\": {\"b\": \"}\"}} and {\"c\": 2}",
                json!({"a": {"b": "}"}}),
            ),
            ("{oops} {\"a\": 1}", json!({"a": 1})),
            ("[1, 2", json!("[1, 2")),
            (
                "{\"open\": [1, {\"in\": 2}",
                json!([1, {"in": 2}]).get(1).cloned().unwrap(),
            ),
            ("{\"u\": \"\\ud800\"}", json!("{\"u\": \"\\ud800\"}")),
        ];
        for (text, expected) in cases {
            assert_eq!(&extract(text), expected, "{text:?}");
        }
    }

    #[test]
    fn no_more_than_64_brackets_are_tried() {
        let text = |brackets: usize| format!("{}{{\"a\": 1}}", "{ ".repeat(brackets));
        assert_eq!(extract(&text(63)), json!({"a": 1}));
        assert_eq!(extract(&text(64)), Value::String(text(64)));
    }

    #[test]
    #[expect(
        clippy::disallowed_methods,
        reason = "the promise is about the time that it takes"
    )]
    fn edge_029_fenced_json_is_read_and_20_000_opening_braces_stay_text() {
        assert_eq!(extract("```json\n{\"ok\": true}\n```"), json!({"ok": true}));
        let began = std::time::Instant::now();
        for hostile in [
            "{".repeat(20_000),
            "[".repeat(20_000),
            "{\"a\":".repeat(20_000),
            "[\"".repeat(20_000),
            "```".repeat(20_000),
        ] {
            assert_eq!(extract(&hostile), Value::String(hostile.clone()));
        }
        // A second try at each of 20,000 brackets would take minutes in a test build.
        assert!(began.elapsed().as_secs() < 10, "{:?}", began.elapsed());
    }

    fn document() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            ".{0,12}".prop_map(Value::from),
        ];
        let inner = leaf.prop_recursive(4, 32, 5, |value| {
            prop_oneof![
                prop::collection::vec(value.clone(), 0..5).prop_map(Value::from),
                prop::collection::btree_map(".{0,6}", value, 0..5)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        });
        prop::collection::vec(inner, 0..4).prop_map(|values| json!({ "values": values }))
    }

    proptest! {
        #[test]
        fn any_text_is_taken(text in ".{0,200}") {
            let _value = extract(&text);
        }

        #[test]
        fn any_text_of_json_parts_is_taken(text in "[\\[\\]{}\",:0-9a` \\n\\\\]{0,200}") {
            let _value = extract(&text);
        }

        #[test]
        fn a_document_in_prose_is_found(
            document in document(),
            before in "[A-Za-z .,:'\\n]{0,40}",
            behind in "[A-Za-z .,:'\\n\\]}]{0,40}",
            pretty in any::<bool>(),
        ) {
            let text = if pretty { format!("{document:#}") } else { document.to_string() };
            prop_assert_eq!(&extract(&format!("{before}{text}{behind}")), &document);
            prop_assert_eq!(&extract(&format!("{before}\n```json\n{text}\n```\n{behind}")), &document);
        }
    }
}
