//! The routing table: outcome by route, and what a switch can read.

use std::fmt::Write as _;

use serde_json::json;

use super::*;
use crate::definition::Workflow;

fn definition(route: Option<(&str, &[&str])>) -> Definition {
    let mut workflow = Workflow::new("w").start_at("n").compute("n", |_| Ok(()));
    for node in ["a", "b", "c"] {
        workflow = workflow.compute(node, |_| Ok(()));
    }
    // The other nodes hang together so that all can be reached, whatever leaves `n`.
    workflow = workflow.edge("a", "b").edge("b", "c");
    let built = match route {
        None => {
            let start = Workflow::new("w").start_at("n").compute("n", |_| Ok(()));
            start.build()
        }
        Some(("to", _)) => workflow.edge("n", "a").build(),
        Some((on, cases)) => {
            let cases = cases.iter().map(|case| (*case, "a"));
            workflow.switch("n", on, cases).build()
        }
    };
    built.unwrap()
}

fn result(outcome: NodeOutcome, output: Value) -> NodeResult {
    let ok = outcome == NodeOutcome::Ok;
    NodeResult {
        attempt_id: "attempt-1".parse().unwrap(),
        node_id: "n".parse().unwrap(),
        node_type: "compute".to_owned(),
        outcome,
        started_at: 100,
        finished_at: 350,
        duration_ms: 250,
        output: ok.then_some(output),
        error: (!ok).then(|| "Error: broken".to_owned()),
        receipt: None,
    }
}

fn words(next: &Next) -> String {
    match next {
        Next::Node(node) => format!("node {node}"),
        Next::Complete(output) => format!("complete {output}"),
        Next::Fail(failure) => format!("fail: {failure}"),
        Next::TimedOut(failure) => format!("timed out: {failure}"),
        Next::Cancelled => "cancelled".to_owned(),
    }
}

/// Section 2.5, and edge cases 19 and 20.
#[test]
fn outcome_by_route() {
    let routes = [
        ("no route", None),
        ("plain", Some(("to", &[][..]))),
        ("$.x", Some(("$.x", &["1"][..]))),
        ("$output.x", Some(("$output.x", &["1"][..]))),
        (
            "$result.outcome, all",
            Some((
                "$result.outcome",
                &["ok", "failed", "timed_out", "cancelled"][..],
            )),
        ),
        (
            "$result.outcome, ok",
            Some(("$result.outcome", &["ok"][..])),
        ),
    ];
    let outcomes = [
        NodeOutcome::Ok,
        NodeOutcome::Failed,
        NodeOutcome::TimedOut,
        NodeOutcome::Cancelled,
    ];
    let mut table = String::new();
    for (name, route) in routes {
        for outcome in outcomes {
            let found = next(&definition(route), &result(outcome, json!({"x": 1})));
            writeln!(table, "{name:21} {:9} {}", outcome.as_str(), words(&found)).unwrap();
        }
    }
    insta::assert_snapshot!(table, @r#"
    no route              ok        complete {"x":1}
    no route              failed    fail: node "n" failed: Error: broken
    no route              timed_out timed out: node "n" timed out: Error: broken
    no route              cancelled cancelled
    plain                 ok        node a
    plain                 failed    fail: node "n" failed: Error: broken
    plain                 timed_out timed out: node "n" timed out: Error: broken
    plain                 cancelled cancelled
    $.x                   ok        node a
    $.x                   failed    fail: node "n" failed: Error: broken
    $.x                   timed_out timed out: node "n" timed out: Error: broken
    $.x                   cancelled cancelled
    $output.x             ok        node a
    $output.x             failed    fail: node "n" failed: Error: broken
    $output.x             timed_out timed out: node "n" timed out: Error: broken
    $output.x             cancelled cancelled
    $result.outcome, all  ok        node a
    $result.outcome, all  failed    node a
    $result.outcome, all  timed_out node a
    $result.outcome, all  cancelled cancelled
    $result.outcome, ok   ok        node a
    $result.outcome, ok   failed    fail: node "n": the switch on $result.outcome has no case for "failed"; its cases are "ok"
    $result.outcome, ok   timed_out fail: node "n": the switch on $result.outcome has no case for "timed_out"; its cases are "ok"
    $result.outcome, ok   cancelled cancelled
    "#);
}

/// Section 2.5, and edge cases 13, 17 and 18.
#[test]
fn what_a_switch_reads() {
    let mut table = String::new();
    let output = json!({
        "text": "1", "int": 1, "float": 1.0, "half": 1.5, "big": 1e21, "small": 1e-7, "minus": -0.0, "yes": true,
        "no": false, "nothing": null, "empty": "", "list": [10, [20], {"x": 30}], "deep": {"a": {"b": 7}},
        "a.b": 8, "constructor": "own",
    });
    for on in [
        "$.text",
        "$.int",
        "$.float",
        "$.half",
        "$.big",
        "$.small",
        "$.minus",
        "$.yes",
        "$.no",
        "$.nothing",
        "$.empty",
        "$.list",
        "$.list.0",
        "$.list.1",
        "$.list.1.0",
        "$.list.2.x",
        "$.list.3",
        "$.list.-1",
        "$.list.00",
        "$.list.+0",
        "$.list.length",
        "$.deep",
        "$.deep.a.b",
        "$.deep.a.b.c",
        "$.a.b",
        "$.missing",
        "$.constructor",
        "$.toString",
        "$.__proto__",
        "$.",
        "$output.int",
        "$result.output.int",
        "$result.outcome",
        "$result.nodeId",
        "$result.nodeType",
        "$result.attemptId",
        "$result.durationMs",
        "$result.startedAt",
        "$result.finishedAt",
        "$result.error",
        "$result.outcome.x",
        "$result.missing",
        "$result.",
    ] {
        let cases = [
            "1",
            "1.5",
            "1e+21",
            "1e-7",
            "0",
            "true",
            "false",
            "",
            "10",
            "20",
            "30",
            "7",
            "own",
            "ok",
            "n",
            "compute",
            "attempt-1",
            "250",
            "100",
            "350",
        ];
        let definition = definition(Some((on, &cases)));
        let found = next(&definition, &result(NodeOutcome::Ok, output.clone()));
        writeln!(table, "{on:20} {}", words(&found)).unwrap();
    }
    for (case, value) in [
        ("toString", json!("toString")),
        ("1", json!("1.0")),
        ("1", json!(2)),
        ("True", json!(true)),
    ] {
        let definition = definition(Some(("$.x", &[case])));
        let found = next(&definition, &result(NodeOutcome::Ok, json!({"x": value})));
        writeln!(table, "{value} by case {case:10} {}", words(&found)).unwrap();
    }
    for output in [json!(7), json!("x"), json!(null), json!([5])] {
        let definition = definition(Some(("$.0", &["5"])));
        let found = next(&definition, &result(NodeOutcome::Ok, output.clone()));
        writeln!(table, "$.0 of {output}: {}", words(&found)).unwrap();
    }
    insta::assert_snapshot!(table);
}

#[test]
fn a_node_of_another_definition_is_no_route() {
    let mut strange = result(NodeOutcome::Ok, json!(1));
    strange.node_id = "x".parse().unwrap();
    assert!(matches!(
        next(&definition(None), &strange),
        Next::Fail(RunFailure::UnknownNode { .. })
    ));
}

/// Edge case 22: the limit is checked before a node is dispatched.
#[test]
fn edge_22_three_steps_are_three_steps() {
    let definition = Workflow::new("loop")
        .start_at("n")
        .max_steps(3)
        .compute("n", |_| Ok(()))
        .edge("n", "n")
        .build()
        .unwrap();
    let node = "n".parse().unwrap();
    for steps in 0..3 {
        assert_eq!(check_max_steps(&definition, |_| steps, &node), Ok(()));
    }
    let failure = check_max_steps(&definition, |_| 3, &node).unwrap_err();
    assert_eq!(
        failure.to_string(),
        "workflow \"loop\" reached its limit of 3 steps before node \"n\""
    );
}

/// Edge case 21: a failed visit takes the output out; a later success brings a new one.
#[test]
fn edge_21_a_failed_visit_removes_the_earlier_output() {
    let (mut outputs, mut results) = (BTreeMap::new(), BTreeMap::new());
    for (outcome, output, there) in [
        (NodeOutcome::Ok, json!(1), Some(json!(1))),
        (NodeOutcome::Failed, json!(null), None),
        (NodeOutcome::Ok, json!(null), Some(json!(null))),
        (NodeOutcome::TimedOut, json!(null), None),
        (NodeOutcome::Ok, json!(2), Some(json!(2))),
        (NodeOutcome::Cancelled, json!(null), None),
    ] {
        apply(&mut outputs, &mut results, result(outcome, output));
        assert_eq!(outputs.get("n"), there.as_ref());
        assert_eq!(results["n"].outcome, outcome);
    }
}

#[test]
fn visits_are_counted_from_steps() {
    let ids: Vec<NodeId> = ["a", "b", "a", "a/b"]
        .iter()
        .map(|id| id.parse().unwrap())
        .collect();
    assert_eq!(visit_number(&"a".parse().unwrap(), &ids), 3);
    assert_eq!(visit_number(&"c".parse().unwrap(), &ids), 1);
    assert_eq!(visit_number(&"a".parse().unwrap(), []), 1);
}

#[test]
fn results_come_back_as_they_went() {
    for result in [
        result(NodeOutcome::Ok, json!({"x": 1})),
        result(NodeOutcome::Ok, json!(null)),
        result(NodeOutcome::TimedOut, json!(null)),
    ] {
        let text = serde_json::to_string(&result).unwrap();
        assert_eq!(
            serde_json::from_str::<NodeResult>(&text).unwrap(),
            result,
            "{text}"
        );
    }
    insta::assert_snapshot!(
        serde_json::to_string(&result(NodeOutcome::Ok, json!(null))).unwrap(),
        @r#"{"attemptId":"attempt-1","nodeId":"n","nodeType":"compute","outcome":"ok","startedAt":100,"finishedAt":350,"durationMs":250,"output":null}"#
    );
}
