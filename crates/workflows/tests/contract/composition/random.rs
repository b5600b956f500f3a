//! Random trees of workflows, run and compared with an interpreter that knows nothing of composition: it calls a child as a function,
//! with an input, and with nothing of its own from an earlier call.

use std::cell::Cell;
use std::collections::BTreeMap;

use holdpoint_workflows::definition::{Definition, NodeContext, NodeError, Workflow};
use holdpoint_workflows::model::RunStatus;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::support::{Fixture, LONG};

/// A workflow: its parts one after the other, then a pick between two ends.
#[derive(Debug, Clone)]
struct Tree {
    parts: Vec<Part>,
    max_steps: Option<u32>,
}

#[derive(Debug, Clone)]
enum Part {
    Node(u64),
    Include {
        child: Tree,
        is_mapped: bool,
        /// Whether it is entered again, up to three times, when it ends odd.
        again: bool,
    },
}

fn tree() -> impl Strategy<Value = Tree> {
    let limit = || prop_oneof![2 => Just(None), 1 => (1_u32..16).prop_map(Some)];
    let leaf = (
        prop::collection::vec((0_u64..9).prop_map(Part::Node), 0..3),
        limit(),
    )
        .prop_map(|(parts, max_steps)| Tree { parts, max_steps });
    leaf.prop_recursive(3, 12, 3, move |child| {
        let part = prop_oneof![
            1 => (0_u64..9).prop_map(Part::Node),
            2 => (child, any::<bool>(), any::<bool>()).prop_map(|(child, is_mapped, again)| {
                Part::Include { child, is_mapped, again }
            }),
        ];
        (prop::collection::vec(part, 0..4), limit())
            .prop_map(|(parts, max_steps)| Tree { parts, max_steps })
    })
}

/// A number that depends on all that a node can see, so that each difference in what is seen shows.
fn mix(input: &Value, outputs: &BTreeMap<String, Value>, results: &[String], salt: u64) -> u64 {
    let text = json!([input, outputs, results, salt]).to_string();
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (hash >> 32) % 1000
}

fn seen(context: &NodeContext<'_>, salt: u64) -> u64 {
    let outputs = context
        .outputs
        .iter()
        .map(|(node, output)| (node.to_string(), output.clone()))
        .collect();
    let results: Vec<String> = context.results.keys().map(ToString::to_string).collect();
    mix(context.input, &outputs, &results, salt)
}

fn built(tree: &Tree, name: &str) -> Definition {
    let picked = |salt: u64| {
        move |context: &NodeContext<'_>| {
            let n = seen(context, salt);
            Ok::<_, NodeError>(
                json!({ "n": n, "way": if n.is_multiple_of(2) { "even" } else { "odd" } }),
            )
        }
    };
    let mut workflow = Workflow::new(name)
        .start_at("start")
        .compute("start", |ctx| Ok(seen(ctx, 100)))
        .compute("pick", move |ctx| picked(101)(ctx))
        .compute("even", |ctx| Ok(seen(ctx, 102)))
        .compute("odd", |ctx| Ok(seen(ctx, 103)))
        .switch("pick", "$.way", [("even", "even"), ("odd", "odd")])
        .exit("even", "even")
        .exit("odd", "odd");
    if let Some(max_steps) = tree.max_steps {
        workflow = workflow.max_steps(max_steps);
    }
    let mut from = vec!["start".to_owned()];
    for (index, part) in tree.parts.iter().enumerate() {
        let id = format!("p{index}");
        for from in from.drain(..) {
            workflow = route(workflow, &from, &id);
        }
        match part {
            Part::Node(salt) => {
                let salt = *salt;
                workflow = workflow.compute(&id, move |ctx| Ok(seen(ctx, salt)));
                from.push(id);
            }
            Part::Include {
                child,
                is_mapped,
                again,
            } => {
                workflow = workflow.include(&id, &built(child, &format!("{name}-{index}")));
                if *is_mapped {
                    workflow = workflow.input_map(|ctx| Ok(json!({ "n": seen(ctx, 104) })));
                }
                from.push(format!("{id}.even"));
                if *again {
                    let judge = format!("again{index}");
                    workflow = workflow
                        .compute(&judge, |ctx| {
                            Ok(json!({ "again": !ctx.visit.is_multiple_of(3) }))
                        })
                        .edge(format!("{id}.odd"), &judge);
                    from.push(format!("{judge}?{id}"));
                } else {
                    from.push(format!("{id}.odd"));
                }
            }
        }
    }
    for from in from {
        workflow = route(workflow, &from, "pick");
    }
    workflow.build().unwrap()
}

/// An edge, or the two ways of a judge: back to its include, or on.
fn route(workflow: Workflow, from: &str, to: &str) -> Workflow {
    match from.split_once('?') {
        None => workflow.edge(from, to),
        Some((judge, include)) => {
            workflow.switch(judge, "$.again", [("true", include), ("false", to)])
        }
    }
}

/// The interpreter.
#[derive(Default)]
struct Interpreter {
    visits: BTreeMap<String, u32>,
    steps: Vec<String>,
    /// The workflows that go on, outermost first: name, limit, steps.
    limits: Vec<(String, Option<u32>, u32)>,
}

/// What one call of a workflow has seen.
struct Call<'c> {
    path: &'c str,
    input: Value,
    outputs: BTreeMap<String, Value>,
}

impl Interpreter {
    fn step(
        &mut self,
        call: &mut Call<'_>,
        node: &str,
        make: impl FnOnce(&Call<'_>, u32) -> Value,
    ) -> Result<Value, String> {
        let id = format!("{}{node}", call.path);
        for (name, limit, steps) in &self.limits {
            if let Some(limit) = limit.filter(|limit| limit <= steps) {
                return Err(format!(
                    "workflow {name:?} reached its limit of {limit} steps before node {id:?}"
                ));
            }
        }
        for (_, _, steps) in &mut self.limits {
            *steps += 1;
        }
        let visit = self.visits.entry(id.clone()).or_default();
        *visit += 1;
        let output = make(call, *visit);
        self.steps.push(id);
        call.outputs.insert(node.to_owned(), output.clone());
        Ok(output)
    }

    fn call(
        &mut self,
        tree: &Tree,
        name: &str,
        path: &str,
        input: Value,
    ) -> Result<(&'static str, Value), String> {
        let limit = match tree.max_steps {
            None if path.is_empty() => Some(100),
            limit => limit,
        };
        self.limits.push((name.to_owned(), limit, 0));
        let mut call = Call {
            path,
            input,
            outputs: BTreeMap::new(),
        };
        let mixed = |salt: u64| move |call: &Call<'_>, _: u32| json!(call.mix(salt));
        self.step(&mut call, "start", mixed(100))?;
        for (index, part) in tree.parts.iter().enumerate() {
            let id = format!("p{index}");
            match part {
                Part::Node(salt) => drop(self.step(&mut call, &id, mixed(*salt))?),
                Part::Include {
                    child,
                    is_mapped,
                    again,
                } => loop {
                    let input = if *is_mapped {
                        json!({ "n": call.mix(104) })
                    } else {
                        call.input.clone()
                    };
                    let inner = format!("{path}{id}/");
                    let (exit, output) =
                        self.call(child, &format!("{name}-{index}"), &inner, input)?;
                    let alias = json!({ "exit": exit, "output": output });
                    call.outputs.insert(id.clone(), alias);
                    if exit == "even" || !again {
                        break;
                    }
                    let judged = self.step(
                        &mut call,
                        &format!("again{index}"),
                        |_, visit| json!({ "again": !visit.is_multiple_of(3) }),
                    )?;
                    if judged == json!({ "again": false }) {
                        break;
                    }
                },
            }
        }
        let picked = self.step(&mut call, "pick", |call, _| {
            let n = call.mix(101);
            json!({ "n": n, "way": if n.is_multiple_of(2) { "even" } else { "odd" } })
        })?;
        let (exit, salt) = if picked.get("way") == Some(&json!("even")) {
            ("even", 102)
        } else {
            ("odd", 103)
        };
        let output = self.step(&mut call, exit, mixed(salt))?;
        self.limits.pop();
        Ok((exit, output))
    }
}

impl Call<'_> {
    fn mix(&self, salt: u64) -> u64 {
        // Nothing fails here, so that each result has its output.
        let results: Vec<String> = self.outputs.keys().cloned().collect();
        mix(&self.input, &self.outputs, &results, salt)
    }
}

#[test]
fn a_composed_run_is_a_call_of_functions() {
    let fixture = Fixture::new();
    let scheduler = fixture.scheduler();
    let (included, limited) = (Cell::new(0), Cell::new(0));
    proptest!(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() }, |(tree in tree())| {
        let definition = built(&tree, "w");
        let run = fixture.workflows.run(&definition, json!({ "n": 1 })).unwrap();
        let view = fixture.workflows.wait(&run, LONG).unwrap();
        let mut interpreter = Interpreter::default();
        let expected = interpreter.call(&tree, "w", "", json!({ "n": 1 }));
        let steps: Vec<String> = view
            .steps
            .iter()
            .map(|step| &step.result.node_id)
            .filter(|id| definition.node(id).unwrap().transition.is_none())
            .map(ToString::to_string)
            .collect();
        prop_assert_eq!(steps, interpreter.steps);
        match expected {
            Ok((_, output)) => prop_assert_eq!(view.final_output, Some(output)),
            Err(error) => {
                limited.set(limited.get() + 1);
                prop_assert_eq!(view.status, RunStatus::Failed);
                prop_assert_eq!(view.error, Some(error));
            }
        }
        included.set(included.get() + usize::from(!definition.mounts().is_empty()));
    });
    scheduler.stop(LONG);
    // The trees were not all trivial.
    assert!(
        8 <= included.get() && 1 <= limited.get(),
        "{included:?} {limited:?}"
    );
}
