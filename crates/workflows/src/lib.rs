//! Durable workflows: definitions, engine, runs, queue and attempts.
//!
//! A run survives a crash at any instruction. What a node gives counts once it is committed; what was committed is never done
//! again; what acts on the world does so under a managed effect, so that nothing happens twice unseen.
//!
//! ```
//! use std::time::Duration;
//!
//! use holdpoint_state::{Database, Identity, Schema};
//! use holdpoint_workflows::commands::Answer;
//! use holdpoint_workflows::definition::{EffectSpec, Workflow};
//! use holdpoint_workflows::model::RunStatus;
//! use holdpoint_workflows::{DOMAIN, SchedulerOptions, Workflows};
//!
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("state.sqlite");
//! let schema = Schema::compose(Identity::PI_WORKFLOWS, [holdpoint_state::DOMAIN, DOMAIN])?;
//! let workflows = Workflows::new(Database::open(path, &schema)?);
//!
//! let greeting = Workflow::new("greeting")
//!     .input::<String>()
//!     .start_at("draft")
//!     .compute("draft", |ctx| Ok(format!("Hello {}", ctx.input())))
//!     .checkpoint("review")
//!     .request(|ctx| ctx.output::<String>("draft"))
//!     .action("send", EffectSpec::manual("example.send"), |ctx| {
//!         // Acts once: a provider can use `ctx.effect_id` as its own idempotency key.
//!         Ok(format!("{}, {}", ctx.output::<String>("draft")?, ctx.output::<String>("review")?))
//!     })
//!     .edge("draft", "review")
//!     .edge("review", "send")
//!     .build()?;
//!
//! let scheduler = workflows.scheduler(SchedulerOptions::default())?;
//! let run = workflows.run(&greeting, "Ada")?;
//! let view = workflows.wait(&run, Duration::from_secs(30))?;
//! assert_eq!(view.status, RunStatus::Waiting);
//! assert_eq!(view.request.unwrap().contract["request"], "Hello Ada");
//!
//! // The answer may come years later, from another process.
//! workflows.answer(&Answer::new(&run, "welcome".into()))?;
//! let view = workflows.wait(&run, Duration::from_secs(30))?;
//! assert_eq!(view.final_output, Some("Hello Ada, welcome".into()));
//! scheduler.stop(Duration::from_secs(1));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A [`Definition`](definition::Definition) is a graph of nodes and routes. It is built in Rust by
//! [`Workflow`](definition::Workflow) or read from a workflow file by [`mod@file`]; either way it has
//! passed every check of `definition::validate` and can be shared between threads. [`routing`]
//! says, from committed facts only, where a run goes next.
//!
//! # Rooms of the pure half
//!
//! - [`id`]: the forms of run, node and attempt ids.
//! - [`definition`]: nodes, routes, the typed builder, validation, snapshot and digest.
//! - [`routing`]: what follows a finished node. Pure.
//! - [`settings`]: the live settings of a run: patches, who may change what, and the workflow's own checks.
//! - [`shell`]: runs one command of a shell action in its own process group.
//! - [`capture`]: what a recorder keeps of the sessions that work for a run.
//! - [`updates`]: progress that attempts publish, the convention for it, and when work will be done.
//! - [`agents`]: who executes agent steps without an origin session.
//! - [`mod@file`]: workflow files, their positions, expressions and JSON Schema.
//!
//! None of these knows the database: they take and give values.
//!
//! # Rooms of the durable half
//!
//! - [`Workflows`]: the handle of a program, with every verb; [`Scheduler`]: executes runs in this process.
//! - [`Session`]: an origin session, from the side of whoever speaks for it.
//! - [`model`]: nouns. `operations`: every transition as data, in [`DOMAIN`] for readers. Another crate can't send one, it calls its
//!   function:
//!
//!   ```compile_fail,E0603
//!   use holdpoint_workflows::operations::CANCEL;
//!   ```
//!   ```
//!   use holdpoint_workflows::{DOMAIN, commands::cancel};
//!   assert!(DOMAIN.operation("run.cancel").is_some());
//!   ```
//! - [`commands`]: the verbs, one transaction each; `store` has the only statements that write.
//! - [`hooks`]: what a domain above this one hangs into the transactions of runs.
//! - [`retention`]: which runs are deleted after their time, and what holds them.
//! - [`views`]: what readers see, with one display status for all surfaces; `verify`: what holds at every commit.
//! - `engine`: a stepper over committed state; [`Registry`]: where the code of a run comes from.
//!
//! `docs/WORKFLOWS.md` has the decisions behind them.

pub mod id;

pub mod beneath;
pub mod definition;
pub mod file;
pub mod routing;
pub mod settings;
pub mod shell;
pub mod updates;

pub mod capture;

pub mod agents;

pub mod model;
mod operations;
mod store;

pub mod commands;
pub mod hooks;
pub mod retention;
pub mod views;

mod registry;

mod engine;
mod error;
mod worker;

mod scheduler;
mod session;
mod sessions;
mod verify;
mod workflows;

use holdpoint_state::Domain;

pub use error::WorkflowError;
pub use id::{AttemptId, NodeId, RunId, ScopeId};
pub use registry::{Registry, SourceResolver, Unresolved, differences};
pub use scheduler::{
    Admission, DueWork, Duty, DutyError, DutyPass, Scheduler, SchedulerOptions, Work, WorkError,
    WorkTurn, Worked,
};
pub use session::{Coordinator, Session};
pub use worker::{
    Execution, WorkerEnd, WorkerLauncher, WorkerLimits, WorkerProcess, run_child,
    take_worker_channel,
};
pub use workflows::Workflows;

/// The workflows domain, to be composed after [`holdpoint_state::DOMAIN`].
pub const DOMAIN: Domain = Domain {
    ddl: include_str!("schema.sql"),
    resource_types: &["run", "settings", "follow_up", "session", commands::HOST],
    operations: operations::ALL,
    invariants: verify::INVARIANTS,
    retention: retention::RETENTION,
    ..Domain::named("workflows")
};
