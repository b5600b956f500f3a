//! A node kind for workflow definitions: its attempt waits in line until the budget has its units.
//!
//! `workflows` knows nothing of budgets. The kind is a value with a trait; the attempt and its place in line are written in one
//! transaction, and [`commands::admit`](crate::commands::admit) settles the attempt in the transaction that spends. Not here: SQL.
//!
//! ```
//! use budgets::{Limit, Name, Spend, commands};
//! use holdpoint_state::Actor;
//! use holdpoint_state::testing::TestStore;
//! use holdpoint_workflows::definition::{NodeKind, Workflow};
//! use holdpoint_workflows::{SchedulerOptions, Workflows};
//! use std::time::Duration;
//!
//! let store = TestStore::new([holdpoint_workflows::DOMAIN, budgets::DOMAIN])?;
//! let model = Name::new("model-tokens")?;
//! commands::open(store.db(), &model, Limit::new(1_000, 60_000)?, Actor::human("ann"))?;
//! let summary = Workflow::new("summary")
//!     .start_at("pay")
//!     .node("pay", NodeKind::custom(Spend::new(&model, 900)))
//!     .compute("work", |ctx| ctx.output::<serde_json::Value>("pay"))
//!     .edge("pay", "work")
//!     .build()?;
//!
//! let workflows = Workflows::new(store.db().clone());
//! let scheduler = workflows.scheduler(SchedulerOptions::default())?;
//! let run = workflows.run(&summary, "a text")?;
//! // Parked, in line.
//! workflows.wait(&run, Duration::from_secs(30))?;
//! let admitted = commands::admit(store.db(), &model, Actor::host("budgets"))?.value;
//! assert_eq!(admitted.runs, [run.clone()]);
//! workflows.offer(&run);
//! let view = workflows.wait(&run, Duration::from_secs(30))?;
//! assert_eq!(view.final_output, Some(serde_json::json!({ "units": 900 })));
//! scheduler.stop(Duration::from_secs(1));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use holdpoint_workflows::definition::{CustomNode, NodeContext, NodeError, NodeStep, Park};
use serde_json::{Value, json};

use crate::commands;
use crate::model::Name;

/// Waits for units of a budget. The output says how many were granted.
#[derive(Debug, Clone)]
pub struct Spend {
    budget: Name,
    units: i64,
}

impl Spend {
    /// So many units of a budget, which must be open when a run comes to the node.
    pub fn new(budget: &Name, units: i64) -> Self {
        Self {
            budget: budget.clone(),
            units,
        }
    }

    /// The wait in line, with the place in it: rows of this domain that are written with the attempt.
    fn park(&self) -> Park {
        let wish = self.clone();
        Park::new(self.snapshot())
            .detail(format!(
                "in line for {} units of {}",
                self.units,
                self.budget.as_str()
            ))
            .beside(move |change, parked| {
                commands::wait(change, &wish.budget, wish.units, parked).map_err(Into::into)
            })
    }
}

impl CustomNode for Spend {
    fn node_type(&self) -> &'static str {
        "budget-spend"
    }

    fn snapshot(&self) -> Value {
        json!({ "budget": self.budget.as_str(), "units": self.units })
    }

    fn execute(&self, _context: &NodeContext<'_>) -> Result<NodeStep, NodeError> {
        if self.units < 1 {
            return Err(NodeError::new("units are positive"));
        }
        Ok(NodeStep::Park(self.park()))
    }

    /// In a worker process nothing writes, so that the host puts the attempt in line. What it needs for that is in the node itself; a
    /// contract of another wish is none of this node.
    fn park_again(&self, contract: &Value) -> Option<Park> {
        (*contract == self.snapshot()).then(|| self.park())
    }
}
