//! `decision` in workflow files: read, checked at load with places, run, and in the published schema.

use std::path::Path;

use holdpoint_decisions::commands::{self, Answer};
use holdpoint_decisions::model::Block;
use holdpoint_decisions::{node, views};
use holdpoint_workflows::Registry;
use serde_json::json;

use crate::support::{Fixture, LONG};

const RELEASE: &str = "name: release
startAt: draft
nodes:
  draft:
    compute: { jq: '\"Notes of \\($input.version)\"' }
  review:
    decision:
      title: { jq: '\"Ship \\($input.version)?\"' }
      audience: release
      presentation:
        summary: All tests pass.
        blocks:
          - { kind: preformatted, text: { jq: $outputs.draft } }
      subject: { jq: $outputs }
      choices:
        ship: { label: Ship, to: publish }
        redo:
          label: Redo
          input: { name: why, prompt: What is missing? }
          to: draft
      onTimeout: { afterMs: 600000, response: { choice: ship } }
  publish:
    compute: { jq: $outputs.review }
edges:
  - { from: draft, to: review }
";

fn registry() -> Registry {
    let registry = Registry::default();
    node::file::register(&registry);
    registry
}

#[test]
fn all_examples_are_read() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut names = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.to_str().unwrap().contains(".workflow.") {
            let file = registry()
                .read_file(&path)
                .unwrap_or_else(|error| panic!("{error}"));
            names.push(file.definition.name().to_owned());
        }
    }
    assert!(names.contains(&"ship".to_owned()), "{names:?}");
}

fn mistake(directory: &Path, text: &str) -> String {
    let path = directory.join("r.workflow.yaml");
    std::fs::write(&path, text).unwrap();
    let error = registry().read_file(&path).unwrap_err().to_string();
    error.replace(&directory.display().to_string(), "")
}

#[test]
fn decision_43_a_file_asks_and_goes_where_the_answer_leads() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("release.workflow.yaml");
    std::fs::write(&path, RELEASE).unwrap();
    let fixture = Fixture::new();
    node::file::register(fixture.workflows.registry());
    let file = fixture.workflows.registry().read_file(&path).unwrap();
    let scheduler = fixture.scheduler();
    let run = fixture
        .workflows
        .run_file(&file, json!({ "version": "1.2" }))
        .unwrap();
    let mut seen = Vec::new();
    for round in 0..3 {
        fixture.workflows.wait(&run, LONG).unwrap();
        let decision = fixture.asked(&run);
        let view = views::fetch(&fixture.snapshot(), &decision, fixture.now())
            .unwrap()
            .unwrap();
        assert_eq!(view.request.title, "Ship 1.2?");
        assert_eq!(view.request.audience.as_str(), "release");
        assert_eq!(
            view.request.presentation.blocks(),
            [Block::preformatted("Notes of 1.2")]
        );
        assert_eq!(view.request.expires_at, Some(fixture.now().plus(600_000)));
        let response = if round < 2 {
            json!({ "choice": "redo", "input": { "why": "more" } })
        } else {
            json!({ "choice": "ship" })
        };
        // An answer to the round before answers nothing any more.
        if let Some((old, digest)) = seen.last() {
            let late = Answer::new(old, json!({ "choice": "ship" }), "ann").seeing(*digest);
            assert!(
                !commands::answer(fixture.db(), &late)
                    .unwrap()
                    .value
                    .has_won()
            );
        }
        let answer = Answer::new(&decision, response, "ann").seeing(view.request.request_digest);
        assert!(
            commands::answer(fixture.db(), &answer)
                .unwrap()
                .value
                .has_won()
        );
        fixture.workflows.offer(&run);
        seen.push((decision, view.request.request_digest));
    }
    let view = fixture.workflows.wait(&run, LONG).unwrap();
    scheduler.stop(LONG);
    assert_eq!(view.final_output, Some(json!({ "choice": "ship" })));
    let digests: std::collections::BTreeSet<String> =
        seen.iter().map(|(_, digest)| digest.to_string()).collect();
    assert_eq!(digests.len(), 3);
}

#[test]
fn mistakes_in_a_decision_have_their_place() {
    let directory = tempfile::tempdir().unwrap();
    let told = |from: &str, to: &str| {
        assert!(RELEASE.contains(from), "{from}");
        mistake(directory.path(), &RELEASE.replace(from, to))
    };
    let mistakes = [
        told(
            "title: { jq: '\"Ship \\($input.version)?\"' }",
            "titel: Ship",
        ),
        told("title: { jq: '\"Ship \\($input.version)?\"' }", "title: 3"),
        told(
            "      choices:\n        ship: { label: Ship, to: publish }\n",
            "      choices:\n",
        ),
        told("label: Redo", "label: Ship"),
        told("label: Redo", "label: \"Re\\tdo\""),
        told("redo:", "re do:"),
        told(
            "ship: { label: Ship, to: publish }",
            "ship: { label: Ship }",
        ),
        told(
            "ship: { label: Ship, to: publish }",
            "ship: { label: Ship, to: publisch }",
        ),
        told(
            "prompt: What is missing?",
            "prompt: What?, minLength: 5, maxLength: 4",
        ),
        told("summary: All tests pass.", "sumary: All tests pass."),
        told(
            "          - { kind: preformatted, text: { jq: $outputs.draft } }",
            "          - { kind: heading, text: x }",
        ),
        told("afterMs: 600000", "afterMs: 0"),
        told("response: { choice: ship }", "response: { choice: sink }"),
        told("response: { choice: ship }", "response: { choice: redo }"),
        told(
            "      onTimeout:",
            "      expiresAt: 2030-01-01T00:00:00Z\n      onTimeout:",
        ),
        told(
            "      onTimeout: { afterMs: 600000, response: { choice: ship } }",
            "      expiresAt: tomorrow",
        ),
        told("subject: { jq: $outputs }", "subject: { jq: '$output' }"),
        told(
            "  - { from: draft, to: review }",
            "  - { from: draft, to: review }\n  - { from: review, to: publish }",
        ),
    ];
    insta::assert_snapshot!(mistakes.join("\n"));
}

#[test]
fn the_published_schema_has_decisions() {
    let schema = registry().json_schema();
    let node = &schema["$defs"]["NodeDocument"];
    insta::assert_snapshot!(format!("{:#}", node["properties"]["decision"]));
    assert!(
        node["oneOf"]
            .as_array()
            .unwrap()
            .contains(&json!({ "required": ["decision"] }))
    );
}
