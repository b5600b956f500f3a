//! Typed values: what does not fit is told with its place, and what JSON can't keep is an output that can't be.

use holdpoint_workflows::WorkflowError;
use holdpoint_workflows::definition::Workflow;
use holdpoint_workflows::model::RunStatus;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::support::Fixture;

#[derive(Serialize, Deserialize)]
struct Order {
    lines: Vec<Line>,
}

#[derive(Serialize, Deserialize)]
struct Line {
    count: u32,
}

#[test]
fn an_input_of_another_shape_names_the_member_that_does_not_fit() {
    let fixture = Fixture::new();
    let definition = Workflow::new("typed")
        .input::<Order>()
        .start_at("n")
        .compute("n", |_| Ok(1))
        .build()
        .unwrap();
    for (input, problem) in [
        (
            json!({ "lines": [{ "count": 1 }, { "count": "two" }] }),
            r#"lines[1].count: invalid type: string "two", expected u32"#,
        ),
        (json!({ "lines": [{}] }), "lines[0]: missing field `count`"),
        (
            json!([1]),
            "[0]: invalid type: integer `1`, expected a sequence",
        ),
        (json!({}), "missing field `lines`"),
    ] {
        let refused = fixture.workflows.run(&definition, input).unwrap_err();
        assert!(
            matches!(refused, WorkflowError::Input { .. }),
            "{refused:?}"
        );
        assert!(refused.to_string().contains(problem), "{refused}");
    }
}

#[test]
fn what_json_would_lose_or_is_nested_too_deep_is_an_invalid_output() {
    let fixture = Fixture::new();
    let lossy = Workflow::new("lossy")
        .start_at("n")
        .compute("n", |_| Ok(f64::NAN))
        .build()
        .unwrap();
    let deep = Workflow::new("deep")
        .start_at("n")
        .compute("n", |_| {
            let mut value = json!(1);
            for _ in 0..500 {
                value = json!([value]);
            }
            Ok(value)
        })
        .build()
        .unwrap();
    for definition in [lossy, deep] {
        let view = fixture.run(&definition, json!(null));
        assert_eq!(view.status, RunStatus::Failed);
        let error = view.steps[0].result.error.clone().unwrap();
        assert!(error.starts_with("InvalidOutput: "), "{error}");
    }
}
