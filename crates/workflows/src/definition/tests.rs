//! Every check of a definition, its snapshot and its digest.

mod includes;

use std::fmt::Write as _;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::*;
use crate::shell::ShellCommand;

fn effect() -> EffectSpec {
    EffectSpec::idempotent("test.effect")
}

/// Two nodes and a route between them: the base of every mistake below.
fn good() -> Draft {
    let compute = || {
        NodeKind::Compute(Compute {
            run: Arc::new(|_| Ok(Value::Null)),
            settings_route: false,
        })
    };
    let node = |id: &str| NodeDraft {
        id: id.to_owned(),
        kind: compute(),
        timeout: Timeout::Default,
        status_detail: None,
        declared: None,
    };
    Draft {
        name: "good".to_owned(),
        start_at: "one".to_owned(),
        nodes: vec![node("one"), node("two")],
        edges: vec![to("one", "two")],
        ..Draft::default()
    }
}

fn to(from: &str, to: &str) -> EdgeDraft {
    EdgeDraft {
        from: from.to_owned(),
        to: TargetDraft::Node(to.to_owned()),
    }
}

fn switch(from: &str, on: &str, cases: &[(&str, &str)]) -> EdgeDraft {
    let cases = cases
        .iter()
        .map(|(case, node)| ((*case).to_owned(), (*node).to_owned()))
        .collect();
    EdgeDraft {
        from: from.to_owned(),
        to: TargetDraft::Switch {
            on: on.to_owned(),
            cases,
        },
    }
}

fn act(effect_type: &str) -> NodeKind {
    NodeKind::Action(Action {
        execution: ActionExecution::Function(Arc::new(|_| Ok(Value::Null))),
        effect: EffectSpec::manual(effect_type),
    })
}

/// Sections 2.3 and 2.4 of the workflows reference, as far as a program can break them.
#[test]
fn every_check_names_its_item() {
    let mut table = String::new();
    let mut case = |change: &dyn Fn(&mut Draft)| {
        let mut draft = good();
        change(&mut draft);
        match draft.build() {
            Ok(_) => writeln!(table, "ok").unwrap(),
            Err(error) => {
                let prefix = error
                    .to_string()
                    .starts_with("Invalid workflow definition: ");
                assert_eq!(prefix, !error.code().starts_with('G'), "{error}");
                let text = error
                    .to_string()
                    .replace("Invalid workflow definition: ", "… ");
                writeln!(table, "{:4} {text}", error.code()).unwrap();
            }
        }
    };
    case(&|_| ());
    for name in [
        "",
        "  ",
        "answer",
        "list",
        "queue-follow-up",
        "Answer",
        "list2",
    ] {
        case(&|draft| name.clone_into(&mut draft.name));
    }
    for id in [
        "",
        "-a",
        "a b",
        &"a".repeat(129),
        "a:b.c_d-1",
        &"a".repeat(128),
    ] {
        case(&|draft| draft.contract_id = Some(id.to_owned()));
    }
    case(&|draft| draft.start_at = " ".to_owned());
    case(&|draft| draft.max_steps = Some(0));
    case(&|draft| draft.nodes.clear());
    for id in [
        "",
        "1",
        "a.b",
        "a/b",
        "ä",
        "__piw_x",
        "constructor",
        "toString",
        "__proto__",
        "valueOf",
    ] {
        case(&|draft| id.clone_into(&mut draft.nodes[1].id));
    }
    case(&|draft| draft.nodes[1].id = "one".to_owned());
    for millis in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        case(&|draft| draft.nodes[0].timeout = Timeout::Fixed(millis));
    }
    for effect_type in [
        "",
        " \t",
        &"x".repeat(257),
        &format!(" {} ", "x".repeat(256)),
    ] {
        case(&|draft| draft.nodes[0].kind = act(effect_type));
    }
    case(&|draft| {
        let kind = act("t");
        let NodeKind::Action(mut action) = kind else {
            unreachable!()
        };
        action.effect = action.effect.with_request(json!(9_007_199_254_740_993_u64));
        draft.nodes[0].kind = NodeKind::Action(action);
    });
    case(&|draft| draft.edges = vec![to("", "two")]);
    case(&|draft| draft.edges = vec![to("one", " ")]);
    for on in ["", "x", "$", "$x", "output.x", "$outputs.x", "$result"] {
        case(&|draft| draft.edges = vec![switch("one", on, &[("a", "two")])]);
    }
    case(&|draft| draft.edges = vec![switch("one", "$.x", &[])]);
    case(&|draft| draft.edges = vec![switch("one", "$.x", &[("a", "two"), ("b", "")])]);
    case(&|draft| draft.start_at = "three".to_owned());
    case(&|draft| draft.edges.push(to("three", "two")));
    case(&|draft| draft.edges.push(to("one", "one")));
    case(&|draft| draft.edges = vec![to("one", "three")]);
    case(&|draft| draft.edges = vec![switch("one", "$.x", &[("a", "two"), ("b", "three")])]);
    case(&|draft| draft.edges.clear());
    case(&|draft| draft.edges = vec![to("two", "one"), to("one", "one")]);
    // A self-edge and a loop are allowed.
    case(&|draft| draft.edges.push(to("two", "two")));
    case(&|draft| draft.edges.push(to("two", "one")));
    insta::assert_snapshot!(table);
}

/// With everything wrong at once, the checks come out in the order of the reference, one by one.
#[test]
fn the_order_of_checks() {
    let mut draft = good();
    draft.name = String::new();
    draft.contract_id = Some("-".to_owned());
    draft.start_at = String::new();
    draft.max_steps = Some(0);
    draft.nodes.clear();
    draft.edges = vec![switch("", "x", &[])];
    let mut codes = Vec::new();
    for _ in 0..40 {
        let Err(error) = draft.clone().build() else {
            break;
        };
        codes.push(error.code());
        match error.code() {
            "V2" => draft.name = "list".to_owned(),
            "V3" => draft.name = "good".to_owned(),
            "V5" => draft.contract_id = None,
            "V9" => draft.start_at = "three".to_owned(),
            "V10" => draft.max_steps = None,
            "V11" => {
                draft.nodes = good().nodes;
                draft.nodes[0].id = "1".to_owned();
                draft.nodes[0].kind = act("");
                draft.nodes[0].timeout = Timeout::Fixed(0.0);
            }
            "V12" => draft.nodes[0].id = "__piw_one".to_owned(),
            "V13" => draft.nodes[0].id = "constructor".to_owned(),
            "V14" => draft.nodes[0].id = "one".to_owned(),
            "V16" => draft.nodes[0].timeout = Timeout::Default,
            "V26" => draft.nodes[0].kind = act("t"),
            "V33" => draft.edges[0].from = "three".to_owned(),
            "V34" => draft.edges = vec![switch("three", "$.x", &[])],
            "V35" => draft.edges = vec![switch("three", "$.x", &[("a", "four")])],
            "G1" => draft.start_at = "one".to_owned(),
            "G2" => draft.edges = vec![switch("one", "$.x", &[("a", "four")])],
            "G5" => draft.edges = vec![to("one", "four")],
            "G4" => draft.edges = vec![to("one", "one")],
            "G10" => draft.edges = vec![to("one", "two")],
            other => panic!("{other}: {error}"),
        }
    }
    assert_eq!(
        codes.join(" "),
        "V2 V3 V5 V9 V10 V11 V12 V13 V14 V16 V26 V33 V34 V35 G1 G2 G5 G4 G10"
    );
}

#[derive(Debug, Serialize, Deserialize)]
struct ReleaseInput {
    file: String,
    #[serde(default)]
    limit: u32,
}

fn release_notes() -> Workflow<ReleaseInput> {
    Workflow::new("release-notes")
        .input::<ReleaseInput>()
        .contract_id("release.v1")
        .title_with(|input| Ok(format!("Notes for {}", input.file)))
        .start_at("log")
        .max_steps(20)
        .shell("log", EffectSpec::idempotent(" git.log "), |ctx| {
            Ok(ShellCommand::new("git")
                .arg("log")
                .arg(format!("-{}", ctx.input().limit)))
        })
        .parse(|_, result| Ok(result.stdout.lines().map(str::to_owned).collect::<Vec<_>>()))
        .timeout(Timeout::millis(30_000))
        .status_detail("Reading the history")
        .compute("draft", |ctx| {
            Ok(ctx.output::<Vec<String>>("log")?.join("\n"))
        })
        .timeout_with(|ctx| Ok(TimeBudget::Millis(f64::from(ctx.input().limit))))
        .checkpoint("review")
        .summary("Publish?")
        .request(|ctx| ctx.output::<String>("draft"))
        .timeout(Timeout::Unlimited)
        .action("write", EffectSpec::manual("file.write"), |ctx| {
            Ok(ctx.input().file.clone())
        })
        .compute("stop", |_| Ok(()))
        .edge("log", "draft")
        .edge("draft", "review")
        .switch(
            "review",
            "$.approved",
            [("true", "write"), ("false", "stop")],
        )
}

/// A change here changes the identity of stored definitions: every parked run would be refused.
#[test]
fn the_snapshot_and_the_digest_are_stable() {
    let definition = release_notes().build().unwrap();
    let snapshot = serde_json::to_string_pretty(definition.snapshot()).unwrap();
    insta::assert_snapshot!(format!("{}\n{snapshot}", definition.digest_text()));
    assert_eq!(
        snapshot::digest_of(definition.snapshot()),
        Ok(definition.digest())
    );
}

/// Cases 55 and 56: what decides behaviour changes the digest, what is displayed does not.
#[test]
fn case_56_the_digest_leaves_out_what_is_displayed() {
    let digest = |workflow: Workflow<ReleaseInput>| workflow.build().unwrap().digest();
    let base = digest(release_notes());
    let same = [
        release_notes().title("Another title"),
        release_notes().max_steps(21),
        release_notes().status_detail("At the end"),
    ];
    for workflow in same {
        assert_eq!(digest(workflow), base);
    }
    let mut summary = release_notes().build().unwrap().snapshot().clone();
    summary["nodes"]["review"]["summary"] = json!("Really publish?");
    assert_eq!(snapshot::digest_of(&summary), Ok(base));

    let other = [
        release_notes().contract_id("release.v2"),
        release_notes().start_at("log").timeout(Timeout::millis(1)),
        release_notes()
            .compute("more", |_| Ok(1))
            .edge("write", "more"),
        release_notes().edge("write", "stop"),
        release_notes().edge("write", "log"),
    ];
    let mut digests: Vec<_> = other.into_iter().map(digest).collect();
    digests.push(base);
    for path in [
        "/nodes/review/nodeType",
        "/nodes/log/effect/type",
        "/nodes/log/effect/recovery",
        "/edges/0/to",
        "/name",
    ] {
        let mut snapshot = release_notes().build().unwrap().snapshot().clone();
        *snapshot.pointer_mut(path).unwrap() = json!("other");
        digests.push(snapshot::digest_of(&snapshot).unwrap());
    }
    let count = digests.len();
    digests.sort_unstable();
    digests.dedup();
    assert_eq!(digests.len(), count);
}

#[test]
fn the_order_of_nodes_and_edges_means_nothing() {
    let mut draft = good();
    draft.edges.push(to("two", "one"));
    let digest = draft.clone().build().unwrap().digest();
    draft.nodes.reverse();
    draft.edges.reverse();
    assert_eq!(draft.build().unwrap().digest(), digest);
}

#[test]
fn inputs_and_titles() {
    let definition = release_notes().build().unwrap();
    let input = definition.normalize_input(json!({"file": "A.md"})).unwrap();
    assert_eq!(input, json!({"file": "A.md", "limit": 0}));
    assert_eq!(
        definition.resolve_title(&input),
        Ok(Some("Notes for A.md".to_owned()))
    );
    assert!(definition.normalize_input(json!({})).is_err());
    assert!(definition.has_input_normalizer());

    let plain = good().build().unwrap();
    assert_eq!(
        plain.normalize_input(json!({"a": [1.0, -0.0]})),
        Ok(json!({"a": [1, 0]}))
    );
    assert!(
        plain
            .normalize_input(json!(9_007_199_254_740_993_u64))
            .is_err()
    );
    assert_eq!(
        (plain.max_steps(), plain.title().is_none()),
        (DEFAULT_MAX_STEPS, true)
    );
    let checked = Workflow::new("checked")
        .input_with(|value| match value.as_u64() {
            Some(number) => Ok(number),
            None => Err(NodeError::named("InputError", "a number, please")),
        })
        .start_at("n")
        .compute("n", |ctx| Ok(*ctx.input() + 1))
        .build()
        .unwrap();
    assert_eq!(checked.normalize_input(json!(7)), Ok(json!(7)));
    assert_eq!(
        checked.normalize_input(json!("x")).unwrap_err().to_string(),
        "InputError: a number, please"
    );
}

#[test]
fn options_belong_to_the_node_before_them() {
    let misplaced = |workflow: Workflow| workflow.build().unwrap_err().to_string();
    insta::assert_snapshot!(
        [
            misplaced(Workflow::new("w").status_detail("x").start_at("n").compute("n", |_| Ok(1))),
            misplaced(Workflow::new("w").start_at("n").compute("n", |_| Ok(1)).summary("x")),
            misplaced(Workflow::new("w").start_at("n").compute("n", |_| Ok(1)).parse(|_, _| Ok(1))),
            misplaced(Workflow::new("w").start_at("n").action("n", effect(), |_| Ok(1)).request(|_| Ok(1))),
        ]
        .join("\n"),
        @"
    Invalid workflow definition: status_detail stands before the first node
    Invalid workflow definition: summary does not belong to node \"n\" of type compute
    Invalid workflow definition: parse does not belong to node \"n\" of type compute
    Invalid workflow definition: request does not belong to node \"n\" of type action
    "
    );
}

/// Edge case 27 of the workflows reference: an output that JSON would change fails the node.
#[test]
fn edge_27_outputs_survive_json_or_fail() {
    use std::collections::BTreeMap;
    let run = |kind: &NodeKind, input: &Value| {
        let (run_id, attempt_id) = ("run".parse().unwrap(), "attempt".parse().unwrap());
        let (outputs, results) = (BTreeMap::new(), BTreeMap::new());
        let node_id: NodeId = "n".parse().unwrap();
        let context = NodeContext {
            publisher: crate::updates::Publisher::default(),
            run_id: &run_id,
            node_id: &node_id,
            visit: 1,
            attempt_id: &attempt_id,
            input,
            outputs: &outputs,
            results: &results,
            cancellation: CancellationSignal::never(),
            settings: None,
            effect_id: None,
        };
        match kind {
            NodeKind::Compute(compute) => (compute.run)(&context),
            _ => unreachable!(),
        }
    };
    let kind = |workflow: Workflow<u8>| {
        let definition = workflow.start_at("n").build().unwrap();
        definition.nodes().values().next().unwrap().kind.clone()
    };
    let new = || Workflow::new("w").input::<u8>();
    assert_eq!(
        run(&kind(new().compute("n", |_| Ok(()))), &json!(1)),
        Ok(Value::Null)
    );
    assert_eq!(
        run(&kind(new().compute("n", |_| Ok(1.0))), &json!(1)),
        Ok(json!(1))
    );
    assert!(run(&kind(new().compute("n", |_| Ok(f64::NAN))), &json!(1)).is_err());
    assert!(
        run(
            &kind(new().compute("n", |_| Ok(vec![f64::INFINITY]))),
            &json!(1)
        )
        .is_err()
    );
    assert!(run(&kind(new().compute("n", |_| Ok(u64::MAX))), &json!(1)).is_err());
    assert!(
        run(
            &kind(new().compute("n", |_| Ok(BTreeMap::from([(vec![1], 2)])))),
            &json!(1)
        )
        .is_err()
    );
    let error = run(
        &kind(new().compute("n", |ctx| ctx.output::<u8>("other"))),
        &json!(1),
    )
    .unwrap_err();
    assert_eq!(error.to_string(), "Error: node \"other\" has no output yet");
    let error = run(&kind(new().compute("n", |_| Ok(1))), &json!("x")).unwrap_err();
    assert!(error.message().starts_with("input of run run: "), "{error}");
    let stopped = CancellationSource::new();
    stopped.stop(StopReason::TimedOut);
    let signal = stopped.signal();
    let kind = kind(new().compute("n", move |_| signal.check()));
    let error = run(&kind, &json!(1)).unwrap_err();
    assert_eq!(error.outcome(), crate::routing::NodeOutcome::TimedOut);
}

#[test]
fn sources_have_one_form() {
    let hex = "0".repeat(64);
    let parts = |source_type: &str, reference: &str, revision: &str| {
        SourceIdentity::from_parts(source_type, reference, revision)
    };
    for (source_type, reference, revision) in [
        ("builtin", "plan", "1"),
        ("file", "/a/b.workflow.yaml", hex.as_str()),
        ("file", "inline:x", hex.as_str()),
    ] {
        let source = parts(source_type, reference, revision).unwrap();
        assert_eq!(
            (
                source.source_type(),
                source.reference().as_str(),
                source.revision()
            ),
            (source_type, reference, revision)
        );
        assert_eq!(source.is_public(), !reference.starts_with("inline:"));
    }
    assert!(matches!(
        parts("url", "/a", &hex),
        Err(SourceError::UnknownType { .. })
    ));
    assert!(matches!(
        parts("file", "a", &hex),
        Err(SourceError::RelativePath { .. })
    ));
    for revision in ["", "0", &"g".repeat(64), &"A".repeat(64)] {
        assert!(matches!(
            parts("file", "/a", revision),
            Err(SourceError::Revision { .. })
        ));
    }
    assert!(matches!(
        parts("builtin", "", "1"),
        Err(SourceError::BlankBuiltin)
    ));
    let definition = good().build().unwrap();
    let inline = SourceIdentity::inline(&definition);
    assert_eq!(
        parts("file", &inline.reference(), inline.revision()),
        Ok(inline)
    );
}
