//! Node kinds of other crates in workflow files: registered, read with the tools of this crate, in the published schema.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use holdpoint_workflows::Registry;
use holdpoint_workflows::definition::{
    Cases, CustomNode, Definition, DefinitionError, NodeContext, NodeError, NodeKind, NodeStep,
    Workflow,
};
use holdpoint_workflows::file::{
    FileKind, KindError, KindNode, KindValue, Template, Templated, json_schema,
};
use holdpoint_workflows::model::RunStatus;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::support::{Fixture, LONG};

/// Throws a coin that the file loads: its output is `{side}`.
struct Coin {
    shows: Templated,
}

impl CustomNode for Coin {
    fn node_type(&self) -> &'static str {
        "coin"
    }

    fn snapshot(&self) -> Value {
        json!({})
    }

    fn cases(&self) -> Option<Cases> {
        Some(Cases {
            on: "$.side".to_owned(),
            names: BTreeSet::from(["heads".to_owned(), "tails".to_owned()]),
        })
    }

    fn execute(&self, context: &NodeContext<'_>) -> Result<NodeStep, NodeError> {
        Ok(NodeStep::Output(
            json!({ "side": self.shows.value(context)? }),
        ))
    }
}

struct CoinInFiles;

#[derive(Deserialize)]
#[serde(
    rename_all = "camelCase",
    deny_unknown_fields,
    expecting = "an object with shows"
)]
struct CoinDocument {
    shows: Template,
    #[serde(default)]
    heads: Option<String>,
    #[serde(default)]
    tails: Option<String>,
}

impl FileKind for CoinInFiles {
    fn key(&self) -> &'static str {
        "coin"
    }

    fn schema(&self) -> Value {
        json!({
            "description": "Throws a coin.",
            "type": "object",
            "properties": { "shows": { "$ref": "#/$defs/Value" }, "heads": { "type": "string" }, "tails": { "type": "string" } },
            "required": ["shows"],
        })
    }

    fn read(&self, value: &KindValue<'_>) -> Result<KindNode, KindError> {
        let document: CoinDocument = value.read()?;
        let shows = value.compile(document.shows)?;
        if shows.literal().is_some_and(|side| !side.is_string()) {
            return Err(value.refuse(
                ["shows"],
                format!("the coin of {:?} has two sides", value.node_id()),
            ));
        }
        let node = KindNode::new(NodeKind::custom(Coin { shows }));
        let sides = [("heads", document.heads), ("tails", document.tails)];
        let routes: Vec<_> = sides
            .into_iter()
            .filter_map(|(side, to)| Some((side.to_owned(), to?, vec![side.to_owned()])))
            .collect();
        Ok(if routes.is_empty() {
            node
        } else {
            node.switching("$.side", routes)
        })
    }
}

fn registry() -> Registry {
    let registry = Registry::default();
    registry.register_kind(Arc::new(CoinInFiles));
    registry
}

fn read(registry: &Registry, directory: &Path, text: &str) -> Result<Definition, String> {
    let path = directory.join("coin.workflow.yaml");
    std::fs::write(&path, text).unwrap();
    registry
        .read_file(&path)
        .map(|file| file.definition)
        .map_err(|error| {
            error
                .to_string()
                .replace(&directory.display().to_string(), "")
        })
}

const FAIR: &str = "name: coin
startAt: throw
nodes:
  throw:
    coin: { shows: { jq: $input.side }, heads: win, tails: lose }
  win: { compute: won }
  lose: { compute: lost }
";

#[test]
fn a_registered_kind_is_a_node_of_a_file_with_routes_of_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("coin.workflow.yaml");
    std::fs::write(&path, FAIR).unwrap();
    let fixture = Fixture::new();
    fixture
        .workflows
        .registry()
        .register_kind(Arc::new(CoinInFiles));
    let file = fixture.workflows.registry().read_file(&path).unwrap();
    assert_eq!(
        file.definition.snapshot()["nodes"]["throw"]["declared"]["coin"]["heads"],
        "win"
    );
    let scheduler = fixture.scheduler();
    let run = fixture
        .workflows
        .run_file(&file, json!({ "side": "tails" }))
        .unwrap();
    // The file is read again by whoever executes it, with the same kinds.
    let view = fixture.workflows.wait(&run, LONG).unwrap();
    scheduler.stop(LONG);
    assert_eq!(
        (view.status, view.final_output),
        (RunStatus::Completed, Some(json!("lost")))
    );
    assert_eq!(view.steps[0].result.node_type, "coin");
}

#[test]
fn mistakes_in_the_value_of_a_kind_have_their_place() {
    let registry = registry();
    let directory = tempfile::tempdir().unwrap();
    let told = |coin: &str| {
        let text = FAIR.replace(
            "{ shows: { jq: $input.side }, heads: win, tails: lose }",
            coin,
        );
        read(&registry, directory.path(), &text).unwrap_err()
    };
    let mistakes = [
        told("{ show: heads }"),
        told("{ heads: win, tails: lose }"),
        told("{ shows: 3, heads: win, tails: lose }"),
        told("{ shows: { jq: '.a +' }, heads: win, tails: lose }"),
        told("{ shows: [heads], heads: win, tails: lose, edge: lose }"),
        told("[heads]"),
        // Routes of its own that lead nowhere, or not everywhere.
        told("{ shows: heads, heads: wim, tails: lose }"),
        told("{ shows: heads, heads: win }"),
        told("{ shows: heads }"),
        told("{ shows: heads, heads: win, tails: lose }\n    compute: 1"),
        read(&registry, directory.path(), &FAIR.replace("coin:", "coim:")).unwrap_err(),
        read(
            &registry,
            directory.path(),
            &FAIR.replace("coin: {", "timeoutMs: 1 #"),
        )
        .unwrap_err(),
        read(&Registry::default(), directory.path(), FAIR).unwrap_err(),
    ];
    insta::assert_snapshot!(mistakes.join("\n"));
}

#[test]
fn routes_that_the_file_writes_itself_must_have_every_case_too() {
    let registry = registry();
    let directory = tempfile::tempdir().unwrap();
    let with = |cases: &str| {
        let text = FAIR.replace(", heads: win, tails: lose", "");
        let edge =
            format!("edges:\n  - {{ from: throw, switch: {{ on: $.side, cases: {cases} }} }}\n");
        read(&registry, directory.path(), &(text + &edge))
    };
    assert!(with("{ heads: win, tails: lose }").is_ok());
    let missing = with("{ heads: win }").unwrap_err();
    assert!(missing.contains("\"tails\" has no route"), "{missing}");
    let extra = with("{ heads: win, tails: lose, edge: lose }").unwrap_err();
    assert!(extra.contains("there is a route for \"edge\""), "{extra}");
    // The same in Rust.
    let coin = || {
        NodeKind::custom(Coin {
            shows: Templated::fixed(json!("heads")),
        })
    };
    let built = Workflow::new("coin")
        .start_at("throw")
        .node("throw", coin())
        .build();
    assert!(
        matches!(built, Err(DefinitionError::Cases { .. })),
        "{built:?}"
    );
}

#[test]
fn the_published_schema_has_what_is_registered() {
    let schema = registry().json_schema();
    let node = &schema["$defs"]["NodeDocument"];
    assert_eq!(node["properties"]["coin"]["description"], "Throws a coin.");
    assert!(
        node["oneOf"]
            .as_array()
            .unwrap()
            .contains(&json!({ "required": ["coin"] }))
    );
    assert_eq!(Registry::default().json_schema(), json_schema());
    assert_ne!(schema, json_schema());
}
