//! Checks of includes and exits in the typed builder, and what they become.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::definition::{
    Choice, Definition, DefinitionError, IncludeProblem, Library, NODES_MAX, Referrer,
    SourceIdentity, Workflow,
};
use crate::id::NodeId;
use crate::settings::Settings;

fn child() -> Workflow<Value> {
    Workflow::new("child")
        .start_at("work")
        .compute("work", |_| Ok(()))
        .exit("done", "work")
}

/// A parent whose include is the option under test.
fn parent(child: &Definition) -> Workflow<Value> {
    Workflow::new("parent")
        .start_at("first")
        .compute("first", |_| Ok(()))
        .edge("first", "it")
        .include("it", child)
}

/// Sections 2.3 (V30 to V32) and 2.4 of the workflows reference, as far as a program can break them. A file is checked beside
/// [`crate::file`].
#[test]
fn every_check_of_includes_names_its_item() {
    let mut table = String::new();
    let mut case = |workflow: Workflow<Value>| match workflow.build() {
        Ok(_) => writeln!(table, "ok").unwrap(),
        Err(error) => writeln!(table, "{:4} {error}", error.code()).unwrap(),
    };
    let built = child().build().unwrap();
    let named = |name: &str| {
        Workflow::new("parent")
            .start_at("first")
            .compute("first", |_| Ok(()))
            .edge("first", name)
            .include(name, &built)
    };
    case(parent(&built));
    for name in ["", "1", "a.b", "__piw_x", "toString", "first"] {
        case(named(name));
    }
    case(parent(&built).include("it", &built));
    case(parent(&built).include_named("other", " "));
    for name in ["", "a b", "__piw_x", "__proto__"] {
        case(child().exit(name, "work"));
    }
    case(child().exit("done", "work"));
    case(child().exit("also", " "));
    case(parent(&built).start_at("it"));
    for from in [
        "it",
        "it.nothing",
        "it.done.done",
        "it/work",
        ".done",
        "other.done",
    ] {
        case(
            parent(&built)
                .compute("last", |_| Ok(()))
                .edge(from, "last"),
        );
    }
    case(
        parent(&built)
            .edge("it.done", "first")
            .edge("it.done", "first"),
    );
    case(parent(&built).edge("it.done", "nothing"));
    case(parent(&built).edge("it.done", "it.done"));
    case(parent(&built).switch("it.done", "$.exit", [("done", "nothing")]));
    case(child().exit("also", "nothing"));
    case(child().edge("work", "work"));
    case(child().exit("also", "work"));
    case(parent(&built).include("unreached", &built));
    case(parent(&built).include_named("other", "somewhere"));
    case(parent(&built).settings_map(|_| Ok(1)));
    let exitless = Workflow::new("exitless")
        .start_at("work")
        .compute("work", |_| Ok(()))
        .build()
        .unwrap();
    case(parent(&exitless));
    // An exit of an include inside that nothing follows ends the workflow too, and can't be given an exit.
    let open = Workflow::new("open")
        .start_at("pick")
        .compute("pick", |_| Ok(json!({ "way": "end" })))
        .include("inner", &built)
        .compute("end", |_| Ok(()))
        .switch("pick", "$.way", [("end", "end"), ("in", "inner")])
        .exit("done", "end")
        .build()
        .unwrap();
    case(parent(&open));
    let contract = |workflow: Workflow<Value>| {
        let contract = workflow.build().unwrap();
        parent(&built).contract(&contract)
    };
    case(contract(child()));
    case(contract(child().contract_id("a.contract")));
    case(contract(
        child()
            .compute("other", |_| Ok(()))
            .switch("start", "$.way", [("a", "work"), ("b", "other")])
            .compute("start", |_| Ok(()))
            .start_at("start")
            .exit("other", "other"),
    ));
    let checked = Workflow::new("checked")
        .input::<i64>()
        .start_at("work")
        .compute("work", |_| Ok(()))
        .exit("done", "work")
        .build()
        .unwrap();
    case(parent(&built).contract(&checked));
    case(parent(&checked).contract(&built));
    // Options in a wrong place.
    case(child().input_map(|_| Ok(1)));
    case(child().settings_map(|_| Ok(1)));
    case(child().contract(&built));
    case(parent(&built).validate_exit(|_, value: Value| Ok(value)));
    case(parent(&built).status_detail("of no node"));
    case(child().status_detail("of no node"));
    insta::assert_snapshot!(table);
}

#[test]
fn choices_have_routes_and_routes_have_choices() {
    let routed = |routes: &[(&'static str, &'static str)]| {
        Workflow::new("deciding")
            .start_at("ask")
            .checkpoint("ask")
            .compute("yes", |_| Ok(()))
            .compute("no", |_| Ok(()))
            .switch_choices("ask", "$.choice", ["yes", "no"], routes.iter().copied())
            .build()
            .map(drop)
            .map_err(|error| format!("{} {error}", error.code()))
    };
    assert_eq!(routed(&[("yes", "yes"), ("no", "no")]), Ok(()));
    assert_eq!(
        routed(&[("yes", "yes")]).unwrap_err(),
        "G20 the choices of \"ask\": choice \"no\" has no route"
    );
    assert_eq!(
        routed(&[("yes", "yes"), ("no", "no"), ("perhaps", "no")]).unwrap_err(),
        "G20 the choices of \"ask\": a route is for \"perhaps\", which is no choice"
    );
}

#[test]
fn a_decision_of_a_model_is_an_agent_with_a_validator_and_a_route_for_each_choice() {
    let decide = |choices: Vec<Choice>| {
        Workflow::new("deciding")
            .start_at("ask")
            .decide("ask", choices, |_| Ok("Which?".to_owned()))
            .compute("yes", |_| Ok(()))
            .compute("no", |_| Ok(()))
            .build()
    };
    let yes = || Choice::new("yes", "yes").means("It is right");
    let definition = decide(vec![yes(), Choice::new("no", "no")]).unwrap();
    let snapshot = definition.snapshot();
    insta::assert_snapshot!(snapshot["nodes"]["ask"]["expectedOutput"].as_str().unwrap(), @r#"
    JSON {"choice": one of the choices, "reason": why, which may be left out}. The choices:
    "yes" - It is right
    "no"
    "#);
    assert_eq!(
        snapshot["edges"],
        json!([{ "from": "ask", "switch": { "on": "$.choice", "cases": { "yes": "yes", "no": "no" } } }])
    );
    let refused = |choices| {
        let error = decide(choices).unwrap_err();
        format!("{} {error}", error.code())
    };
    let table = [
        refused(vec![]),
        refused(vec![yes(), Choice::new("no", "no"), yes()]),
        refused(vec![yes(), Choice::new("no", "nowhere")]),
        refused(vec![yes(), Choice::new(" ", "no")]),
    ];
    insta::assert_snapshot!(table.join("\n"));
}

#[test]
fn edge_013_names_that_objects_inherit_are_names_of_nothing() {
    for name in ["constructor", "__proto__", "hasOwnProperty"] {
        let node = Workflow::new("a").start_at(name).compute(name, |_| Ok(()));
        assert_eq!(node.build().unwrap_err().code(), "V14");
        let include = parent(&child().build().unwrap()).include(name, &child().build().unwrap());
        assert_eq!(include.build().unwrap_err().code(), "V30");
        assert_eq!(
            child().exit(name, "work").build().unwrap_err().code(),
            "V32"
        );
        // An edge that names one finds no exit by it.
        let edge = parent(&child().build().unwrap())
            .compute("last", |_| Ok(()))
            .edge(format!("it.{name}"), "last");
        assert_eq!(edge.build().unwrap_err().code(), "G2");
    }
}

#[test]
fn edge_014_an_include_can_not_be_the_start() {
    let error = parent(&child().build().unwrap())
        .start_at("it")
        .build()
        .unwrap_err();
    assert_eq!(error.code(), "G1");
    assert!(error.to_string().contains("is an include"), "{error}");
}

#[test]
fn edge_016_a_workflow_does_not_include_what_its_source_includes() {
    /// Gives a workflow that came from the file which has the reference.
    struct Circle;

    impl Library for Circle {
        fn resolve(
            &self,
            _reference: &str,
            referrer: &Referrer<'_>,
        ) -> Result<(Definition, SourceIdentity), IncludeProblem> {
            assert_eq!(referrer.workflow, "parent");
            let deep = SourceIdentity::Builtin {
                id: "parent".to_owned(),
                revision: "0".to_owned(),
            };
            let mut middle = Workflow::new("middle")
                .start_at("first")
                .compute("first", |_| Ok(()))
                .include("deep", &child().build().unwrap())
                .compute("last", |_| Ok(()))
                .edge("first", "deep")
                .edge("deep.done", "last")
                .exit("done", "last")
                .into_draft();
            middle.includes[0].workflow =
                crate::definition::IncludedWorkflow::Found(child().build().unwrap(), deep.clone());
            let middle = middle.build().unwrap();
            let source = SourceIdentity::inline(&middle);
            Ok((middle, source))
        }
    }
    let mut draft = Workflow::new("parent")
        .start_at("first")
        .compute("first", |_| Ok(()))
        .include_named("it", "middle")
        .edge("first", "it")
        .into_draft();
    draft.source = Some(SourceIdentity::Builtin {
        id: "parent".to_owned(),
        revision: "1".to_owned(),
    });
    let error = draft.build_with(&Circle).unwrap_err();
    assert_eq!(
        error.to_string(),
        "include \"it\": the workflows include each other: parent -> middle -> child"
    );
    assert_eq!(error.code(), "G14");
}

#[test]
fn a_graph_that_is_too_large_is_refused_before_it_is_made() {
    let mut workflow = child().build().unwrap();
    let error = loop {
        let twice = Workflow::new("twice")
            .start_at("first")
            .compute("first", |_| Ok(()))
            .include("a", &workflow)
            .include("b", &workflow)
            .compute("last", |_| Ok(()))
            .edge("first", "a")
            .edge("a.done", "b")
            .edge("b.done", "last")
            .exit("done", "last")
            .build();
        match twice {
            Ok(larger) => workflow = larger,
            Err(error) => break error,
        }
    };
    let DefinitionError::TooLarge { nodes } = error else {
        panic!("{error}");
    };
    assert!(workflow.nodes().len() <= NODES_MAX && NODES_MAX < nodes);
}

#[test]
fn a_definition_says_what_is_in_it() {
    let child = child()
        .settings(Settings::new(json!({ "a": 1 })).description("words"))
        .max_steps(7)
        .build()
        .unwrap();
    let middle = Workflow::new("middle")
        .start_at("first")
        .compute("first", |_| Ok(()))
        .include("inner", &child)
        .compute("last", |_| Ok(()))
        .edge("first", "inner")
        .edge("inner.done", "last")
        .exit("out", "last")
        .build()
        .unwrap();
    let root = parent(&middle).build().unwrap();
    assert_eq!(middle.exits().collect::<Vec<_>>(), ["out"]);
    assert_eq!(root.exits().count(), 0);
    let paths: Vec<&str> = root.mounts().keys().map(NodeId::as_str).collect();
    assert_eq!(paths, ["it", "it/inner"]);
    let inner = &root.mounts()["it/inner"];
    assert_eq!(
        (
            inner.workflow.as_str(),
            inner.max_steps,
            inner.start_at.as_str()
        ),
        ("child", Some(7), "it/inner/work")
    );
    assert!(root.settings("it/inner").is_some() && root.settings("it").is_none());
    insta::assert_json_snapshot!(json!([
        root.snapshot()["composition"],
        root.snapshot()["settingsScopes"]
    ]));
    // The words of what is included decide nothing; its limit does.
    let digest = |child: &Definition| parent(child).build().unwrap().digest_text();
    let with = |max_steps, words: &str| {
        Workflow::new("child")
            .max_steps(max_steps)
            .settings(Settings::new(json!({ "a": 1 })).description(words))
            .start_at("work")
            .compute("work", |_| Ok(()))
            .status_detail(words)
            .exit("done", "work")
            .build()
            .unwrap()
    };
    assert_eq!(digest(&with(7, "words")), digest(&with(7, "other")));
    assert_ne!(digest(&with(7, "words")), digest(&with(8, "words")));
}
