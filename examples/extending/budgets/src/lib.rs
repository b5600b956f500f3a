//! Budgets of calls: how many units of something scarce, such as the tokens of a model, may be spent in each window of time.
//!
//! Many agents in many processes spend from one budget, and it is never overdrawn. A call that asks twice, because its process died
//! before it heard, gets its first answer again.
//!
//! ```
//! use budgets::{Answer, Call, DOMAIN, Limit, Name, commands, views};
//! use holdpoint_state::testing::TestStore;
//! use holdpoint_state::{Actor, Disposition};
//!
//! let store = TestStore::new([DOMAIN])?;
//! let (db, model) = (store.db(), Name::new("model-tokens")?);
//! let a_minute = Limit::new(1_000, 60_000)?;
//! commands::open(db, &model, a_minute, Actor::human("ann"))?;
//!
//! let call = Call::new("run-7/summary/1", 900)?;
//! let granted = commands::spend(db, &model, &call, Actor::host("worker"))?;
//! assert_eq!(granted.value, Answer::Granted);
//!
//! // The worker died before it heard. Its repeat spends nothing more.
//! let again = commands::spend(db, &model, &call, Actor::host("worker"))?;
//! assert_eq!(again.disposition, Disposition::Adopted);
//! let budget = views::fetch(&db.snapshot()?, &model, db.clock().now())?;
//! assert_eq!(budget.map(|budget| budget.remaining_units), Some(100));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Rooms
//!
//! - [`model`]: nouns, limits, judgement. Pure.
//! - `operations`: every transition, as data; other crates call the functions of [`commands`].
//! - [`commands`]: the public verbs. Each checks its input, builds a command and calls the store.
//! - `store`: the only room that writes, on this domain's tables only.
//! - [`views`]: the only room that reads for people; it never writes.
//! - [`node`]: a node kind for workflow definitions, whose attempts wait in line for units.
//! - `verify`: the invariants.

pub mod model;
mod operations;
mod store;

pub mod commands;
pub mod node;
pub mod views;

mod error;
mod verify;

use holdpoint_state::Domain;
use holdpoint_state::schema::{EffectType, Reach};

pub use error::BudgetError;
pub use model::{Admitted, Answer, Budget, Call, Limit, Name};
pub use node::Spend;

/// The effect type that warns of a budget that is nearly spent. Whoever talks to people brings its handler.
pub const WARN: &str = "budget.warn";

/// The budgets domain, to be composed after [`holdpoint_state::DOMAIN`].
pub const DOMAIN: Domain = Domain {
    ddl: include_str!("schema.sql"),
    resource_types: &[model::RESOURCE_TYPE],
    operations: operations::ALL,
    effect_types: &[EffectType {
        name: WARN,
        summary: "Warns people that a budget is nearly spent, once in each window.",
        reach: Reach::External,
    }],
    invariants: verify::INVARIANTS,
    ..Domain::named("budgets")
};
