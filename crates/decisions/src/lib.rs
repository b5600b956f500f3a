//! Human decisions: a workflow asks a person, and exactly one answer wins, whoever races with whom.
//!
//! A decision is asked in the transaction that parks the attempt of a run, and its answer completes that very attempt. A person may
//! answer before the deadline, the declared automatic answer is given from it on, and there is no instant at which both may. What loses,
//! comes late or may not be given is recorded all the same, and its sender is told what won.
//!
//! ```
//! use holdpoint_decisions::model::{Block, Choice, Choices, Draft, OnTimeout, Presentation, Request, TextInput};
//! use holdpoint_decisions::document::{Segment, segments};
//! use holdpoint_state::clock::UnixMillis;
//!
//! let request = Request::new(Draft {
//!     run_id: "run-1".to_owned(),
//!     workflow_name: "release".to_owned(),
//!     node_id: "gate".to_owned(),
//!     attempt_id: "attempt-1".to_owned(),
//!     audience: "operator".to_owned(),
//!     title: "Ship 1.2?".to_owned(),
//!     choices: Choices::new([
//!         ("go", Choice::new("Go")),
//!         ("redo", Choice::new("Redo").with_text(TextInput::new("why", "What is missing?"))),
//!     ])?,
//!     subject: serde_json::json!({ "commit": "abc" }),
//!     presentation: Presentation::new("All tests pass.", vec![Block::bullets(["faster start", "two fixes"])])?,
//!     revision: 1,
//!     on_timeout: Some(OnTimeout { after_ms: 600_000.0, response: serde_json::json!({ "choice": "go" }) }),
//!     expires_at: None,
//!     created_at: UnixMillis(0),
//! })?;
//! // What a channel gets has what a person sees, and not the machine data.
//! let shown = request.for_channels();
//! assert!(shown.document().get("subject").is_none());
//! assert_eq!(segments(&shown)[0], Segment::Title("Ship 1.2?"));
//! assert!(matches!(segments(&shown)[4], Segment::Deadline { automatic: Some("Go"), .. }));
//! # Ok::<(), holdpoint_decisions::model::Invalid>(())
//! ```
//!
//! # Rooms
//!
//! - [`model`]: nouns, limits, and the judge. Pure.
//! - [`digest`]: the two digests, kept apart by type, and the ids that follow from them.
//! - [`document`]: what a person reads of a request, in the one order of every renderer.
//! - `operations`: every transition, as data; other crates call the functions of [`commands`].
//! - [`commands`]: the public verbs. Each checks its input, builds a command and calls the store.
//! - `store`: the only room that writes, on this domain's tables only.
//! - [`views`]: the only room that reads for people; it never writes.
//! - [`effects`]: what follows from a resolution; [`duty`]: the background work that a scheduler does.
//! - [`node`]: the node kind, in Rust and in workflow files; [`plan_approval`]: a workflow that others include.
//! - `verify`: the invariants.
//!
//! `docs/DECISIONS.md` has the rules, and where they differ from the reference.

pub mod digest;
pub mod document;
pub mod model;
mod operations;
mod store;

pub mod commands;
pub mod views;

pub mod effects;

pub mod duty;
pub mod node;
pub mod plan_approval;

mod error;
mod hooks;
mod verify;

use holdpoint_state::Domain;
use holdpoint_state::schema::{EffectType, Projector, Reach};

#[doc(hidden)]
pub use serde as __serde;

pub use error::DecisionError;
pub use model::{DecisionId, Judged};

/// The effect type that takes the controls off everything that shows a resolved decision.
pub const SETTLE_PRESENTATIONS: &str = "decision.settle_presentations";
/// The effect type that cancels the run of a decision which ended without an answer.
pub const CANCEL_PARENT: &str = "decision.cancel_parent";

/// The decisions domain, to be composed after [`holdpoint_state::DOMAIN`] and [`holdpoint_workflows::DOMAIN`].
pub const DOMAIN: Domain = Domain {
    ddl: include_str!("schema.sql"),
    resource_types: &[model::RESOURCE_TYPE],
    operations: operations::ALL,
    effect_types: &[
        EffectType {
            name: SETTLE_PRESENTATIONS,
            summary: "Takes the controls off everything that shows a resolved decision.",
            reach: Reach::Local,
        },
        EffectType {
            name: CANCEL_PARENT,
            summary: "Cancels the run of a decision that ended without an answer.",
            reach: Reach::Local,
        },
    ],
    invariants: verify::INVARIANTS,
    retention: store::retention::RETENTION,
    projectors: &[Projector {
        name: "decisions of runs that ended",
        project: hooks::run_ended,
    }],
    ..Domain::named("decisions")
};
