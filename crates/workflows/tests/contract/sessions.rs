//! Origin sessions: what they show, whose turn it is, how long it took, and what they submit.

mod clocks;
mod damage;
mod model;
mod origin;
mod requests;
mod show;
mod turns;

use holdpoint_workflows::definition::{Definition, NodeError, Timeout, Workflow};
use serde_json::{Value, json};

pub(crate) use origin::Origin;

/// An agent must name a number, and what it named is the output; `late` catches a spent budget.
pub(crate) fn naming() -> Definition {
    Workflow::new("naming")
        .start_at("name")
        .agent("name", |ctx| {
            Ok(format!("name a number for {}", ctx.input()))
        })
        .expects("a number")
        .validate(|_, named: Value| match named.as_i64() {
            Some(number) => Ok(json!({ "number": number })),
            None => Err(NodeError::new("that is no number")),
        })
        .timeout(Timeout::millis(1_000))
        .compute("late", |_| Ok("too late"))
        .compute("end", |ctx| ctx.output::<Value>("name"))
        .switch(
            "name",
            "$result.outcome",
            [("ok", "end"), ("timed_out", "late")],
        )
        .build()
        .unwrap()
}

/// An agent's next visible text, of at most ten characters, is the output.
pub(crate) fn saying() -> Definition {
    Workflow::new("saying")
        .start_at("say")
        .assistant_message("say", Some(10), |_| Ok("say something short".to_owned()))
        .build()
        .unwrap()
}
