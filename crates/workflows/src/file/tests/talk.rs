//! Agents and notifications in files, and what validates an output.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::Trial;
use crate::definition::{Definition, ExpectedOutput, NodeKind, NotificationKind};
use crate::file::parse;
use crate::id::{AttemptId, NodeId, RunId};

fn talking(node: &str) -> String {
    format!("name: a\nstartAt: one\nnodes:\n  one: {node}\n")
}

fn node(text: &str) -> Definition {
    parse("a.workflow.yaml", &talking(text)).unwrap()
}

/// What the validation of an agent makes of a candidate.
fn validated(definition: &Definition, candidate: &Value) -> String {
    let NodeKind::Agent(agent) = &definition.node(&"one".parse().unwrap()).unwrap().kind else {
        panic!("no agent");
    };
    let ExpectedOutput::Submitted {
        validate: Some(validate),
        ..
    } = &agent.expected
    else {
        panic!("no validation");
    };
    let trial = Trial::new(definition, json!({ "least": 3 }));
    let (run_id, attempt_id) = (
        RunId::new("run-1").unwrap(),
        AttemptId::new("attempt-1").unwrap(),
    );
    let id = NodeId::new("one").unwrap();
    let context = trial.context(&id, &run_id, &attempt_id);
    match validate(&context, candidate.clone()) {
        Ok(output) => {
            assert_eq!(&output, candidate);
            "accepted".to_owned()
        }
        Err(error) => error.to_string(),
    }
}

#[test]
fn an_agent_has_a_prompt_and_says_what_it_expects() {
    let definition = node(
        "{ agent: { prompt: { jq: '\"Count to \\($input.least)\"' }, expects: a number, validate: { jq: '. >= $input.least' } } }",
    );
    assert_eq!(definition.snapshot()["nodes"]["one"]["nodeType"], "agent");
    assert_eq!(
        definition.snapshot()["nodes"]["one"]["expectedOutput"],
        "a number"
    );
    let said = [json!(3), json!(2), json!("x")].map(|value| validated(&definition, &value));
    assert_eq!(
        said,
        [
            "accepted",
            "InvalidOutput: the value is not what is expected",
            "accepted"
        ]
    );
    let words = node(
        "{ agent: { prompt: Count, validate: { jq: 'if . < 3 then \"too small\" elif . > 9 then 7 else true end' } } }",
    );
    let said = [json!(3), json!(2), json!(10)].map(|value| validated(&words, &value));
    insta::assert_snapshot!(said.join("\n"), @r"
    accepted
    InvalidOutput: too small
    ExpressionError: validate gives true, false or a text that says what is wrong, not 7
    ");
}

#[test]
fn a_schema_tells_the_agent_the_shape_and_checks_it() {
    let definition = node(
        "{ agent: { prompt: Judge, validate: { type: object, required: [verdict], additionalProperties: false, properties: { verdict: { enum: [good, bad] }, points: { type: array, maxItems: 2, items: { type: string, minLength: 1 } } } } } }",
    );
    let expected = &definition.snapshot()["nodes"]["one"]["expectedOutput"];
    assert!(
        expected
            .as_str()
            .unwrap()
            .starts_with("JSON that is valid by this JSON Schema: {"),
        "{expected}"
    );
    let mut table = String::new();
    for candidate in [
        json!({ "verdict": "good", "points": ["a"] }),
        json!("good"),
        json!({}),
        json!({ "verdict": "fine" }),
        json!({ "verdict": "bad", "points": ["a", ""] }),
        json!({ "verdict": "bad", "points": ["a", "b", "c"] }),
        json!({ "verdict": "bad", "more": 1 }),
    ] {
        writeln!(table, "{candidate}: {}", validated(&definition, &candidate)).unwrap();
    }
    insta::assert_snapshot!(table);
}

/// Each keyword takes what it says and nothing else.
#[test]
fn keywords_of_schemas() {
    let mut table = String::new();
    for (schema, values) in [
        (
            "{ type: integer }",
            vec![json!(1), json!(1.0), json!(1.5), json!("1")],
        ),
        (
            "{ type: [string, 'null'] }",
            vec![json!("a"), json!(null), json!(1)],
        ),
        (
            "{ const: { a: 1 } }",
            vec![json!({ "a": 1 }), json!({ "a": 1.0 }), json!({ "a": 2 })],
        ),
        (
            "{ minimum: 1, exclusiveMaximum: 3 }",
            vec![json!(0), json!(1), json!(2.9), json!(3), json!("0")],
        ),
        (
            "{ maximum: 1, exclusiveMinimum: 0 }",
            vec![json!(0), json!(1), json!(2)],
        ),
        (
            "{ minLength: 2, maxLength: 3 }",
            vec![json!("ä"), json!("äö"), json!("äöüß")],
        ),
        (
            "{ minItems: 1, items: { type: number } }",
            vec![json!([]), json!([1]), json!([1, "a"])],
        ),
        (
            "{ additionalProperties: { type: number }, properties: { a: true } }",
            vec![json!({ "a": "x", "b": 1 }), json!({ "b": "x" })],
        ),
        (
            "{ anyOf: [{ type: number }, { minLength: 2, type: string }] }",
            vec![json!(1), json!("a"), json!("ab")],
        ),
        (
            "{ allOf: [{ type: number }, { minimum: 2 }] }",
            vec![json!(1), json!(2), json!("a")],
        ),
        (
            "{ oneOf: [{ minimum: 1 }, { maximum: 3 }] }",
            vec![json!(0), json!(2), json!(4)],
        ),
        ("{ not: { type: string } }", vec![json!(1), json!("a")]),
        ("false", vec![json!(1)]),
        ("{ jq: true, type: string }", vec![]),
        ("{ type: text }", vec![]),
        ("{ minLength: -1 }", vec![]),
        ("{ required: a }", vec![]),
        ("{ anyOf: [] }", vec![]),
        ("[]", vec![]),
    ] {
        let text = talking(&format!("{{ agent: {{ prompt: x, validate: {schema} }} }}"));
        match parse("a.workflow.yaml", &text) {
            Ok(definition) => {
                for value in values {
                    let said = validated(&definition, &value);
                    writeln!(
                        table,
                        "{schema} {value}: {}",
                        said.replace("InvalidOutput: ", "")
                    )
                    .unwrap();
                }
            }
            Err(error) => writeln!(table, "{schema} {error} {:?}", error.code()).unwrap(),
        }
    }
    insta::assert_snapshot!(table);
}

const CHOICES: &str = "good: { to: two, means: It may go out }, bad: { to: three }";

/// A decision takes one of its choices, in the words that models use, and leads where the choice says.
#[test]
fn a_decision_takes_one_of_its_choices() {
    let text = talking(&format!(
        "{{ decide: {{ prompt: Judge, choices: {{ {CHOICES} }} }} }}\n  two: {{ compute: 2 }}\n  three: {{ compute: 3 }}"
    ));
    let definition = parse("a.workflow.yaml", &text).unwrap();
    let NodeKind::Agent(agent) = &definition.node(&"one".parse().unwrap()).unwrap().kind else {
        panic!("no agent");
    };
    let ExpectedOutput::Submitted {
        validate: Some(validate),
        ..
    } = &agent.expected
    else {
        panic!("no validation");
    };
    let trial = Trial::new(&definition, json!(null));
    let (run_id, attempt_id) = (
        RunId::new("run-1").unwrap(),
        AttemptId::new("attempt-1").unwrap(),
    );
    let id = NodeId::new("one").unwrap();
    let context = trial.context(&id, &run_id, &attempt_id);
    let mut table = String::new();
    for candidate in [
        json!({ "choice": "good", "reason": "no mistakes" }),
        json!({ "choice": "bad" }),
        json!(" good\n"),
        json!({ "choice": "fine" }),
        json!({ "choice": "toString" }),
        json!(true),
        json!({ "choice": "good", "score": 3 }),
        json!({ "reason": "x" }),
        json!(["good"]),
        json!(null),
    ] {
        let said = match validate(&context, candidate.clone()) {
            Ok(output) => output.to_string(),
            Err(error) => error.to_string(),
        };
        writeln!(table, "{candidate}: {said}").unwrap();
    }
    insta::assert_snapshot!(table);
    assert_eq!(
        definition.snapshot()["edges"],
        json!([{ "from": "one", "switch": { "on": "$.choice", "cases": { "good": "two", "bad": "three" } } }])
    );
}

/// The routes of a decision are in it, and so are the places of their mistakes.
#[test]
fn mistakes_of_decisions() {
    let mut table = String::new();
    for choices in [
        "{}",
        "{ good: two }",
        "{ good: { means: x } }",
        "{ good: { to: two, meens: x } }",
        "{ good: { to: nowhere } }",
        "{ ' ': { to: two } }",
        "{ good: { to: two }, good: { to: two } }",
    ] {
        let text = format!(
            "name: a\nstartAt: one\nedges: [{{ from: two, to: one }}]\nnodes:\n  two: {{ compute: 1 }}\n  one:\n    decide:\n      prompt: x\n      choices: {choices}\n"
        );
        let error = parse("a.workflow.yaml", &text).unwrap_err();
        writeln!(table, "{choices}\n    {error} {:?}", error.code()).unwrap();
    }
    let twice = format!(
        "name: a\nstartAt: one\nedges: [{{ from: one, to: two }}]\nnodes:\n  two: {{ compute: 1 }}\n  three: {{ compute: 1 }}\n  one: {{ decide: {{ prompt: x, choices: {{ {CHOICES} }} }} }}\n"
    );
    let error = parse("a.workflow.yaml", &twice).unwrap_err();
    writeln!(table, "a route besides\n    {error} {:?}", error.code()).unwrap();
    insta::assert_snapshot!(table);
}

#[test]
fn assistant_messages_and_notifications() {
    let message = node("{ assistantMessage: { prompt: Say hello, maxChars: 20 } }");
    assert_eq!(
        message.snapshot()["nodes"]["one"]["expectedOutput"],
        json!({ "kind": "assistant-message", "maxChars": 20 })
    );
    let notify = node("{ notify: { kind: final, message: { jq: '\"done\"' } } }");
    let NodeKind::Notify(notify) = &notify.node(&"one".parse().unwrap()).unwrap().kind else {
        panic!("no notification");
    };
    assert_eq!(notify.kind, NotificationKind::Final);

    let mut table = String::new();
    for text in [
        "{ agent: {} }",
        "{ agent: { prompt: x, expects: ' ' } }",
        "{ agent: { prompt: x, expects: 7 } }",
        "{ agent: { prompt: x, maxChars: 7 } }",
        "{ agent: { prompt: { jq: '. +' } } }",
        "{ agent: { prompt: x, validate: { jq: $nothing } } }",
        "{ assistantMessage: { prompt: x, maxChars: 0 } }",
        "{ assistantMessage: { prompt: x, validate: true } }",
        "{ assistantMessage: { } }",
        "{ notify: { message: x } }",
        "{ notify: { kind: finale, message: x } }",
        "{ notify: { kind: progress } }",
        "{ notify: { kind: progress, message: x }, compute: 1 }",
    ] {
        let found = match parse("a.workflow.yaml", &talking(text)) {
            Ok(_) => "is read".to_owned(),
            Err(error) => format!("{error} {:?}", error.code()),
        };
        writeln!(table, "{text}\n    {found}").unwrap();
    }
    insta::assert_snapshot!(table);
}
