//! Settings of a run: a live JSON value that people and programs change by RFC 6902 patches while the run goes on.
//!
//! A workflow declares its settings as a value: [`Settings`] in Rust, a block in a workflow file; both become a [`SettingsSpec`]
//! and, checked, a [`SettingsDefinition`]. What a change does is decided here and is pure:
//!
//! 1. [`Patch::parse`] reads the patch, with every limit that needs no document.
//! 2. [`SettingsDefinition::change`] applies it. Each operation is authorised by the path rules ([`Rules`]) against the document as
//!    the operations before it left it, and only then applied; one that fails leaves nothing of the others.
//! 3. The workflow's own `parse` must give the new document back unchanged, and its `validate_change` must agree.
//!
//! ```
//! use holdpoint_state::{Actor, ActorKind};
//! use holdpoint_workflows::settings::{Patch, PathRule, Settings};
//! use serde::{Deserialize, Serialize};
//! use serde_json::json;
//!
//! #[derive(Serialize, Deserialize)]
//! struct Limits {
//!     batch: u32,
//! }
//!
//! let settings = Settings::new(Limits { batch: 10 })
//!     .path(PathRule::new("/batch").may_read(ActorKind::ALL).may_replace(&[ActorKind::Human]))
//!     .into_spec()?
//!     .check()?;
//! let patch = Patch::parse(&json!([{ "op": "replace", "path": "/batch", "value": 20 }]))?;
//! assert_eq!(settings.change(settings.initial(), &patch, &Actor::human("ada"))?, json!({ "batch": 20 }));
//! // A session may look, and may not touch.
//! assert!(settings.change(settings.initial(), &patch, &Actor::new(ActorKind::Session, "s")).is_err());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Not here: rows, runs, change numbers (`commands::settings`, `store::settings`).

mod declaration;
mod patch;
mod pointer;
mod rules;

#[cfg(test)]
mod tests;

pub use declaration::{
    ChangeError, ChangeValidator, Settings, SettingsDefinition, SettingsError, SettingsParser,
    SettingsSpec,
};
pub use patch::{
    OPERATIONS_MAX, PATCH_BYTES_MAX, Patch, PatchError, PatchOperation, Problem, VALUE_BYTES_MAX,
};
pub use pointer::{POINTER_BYTES_MAX, Pointer, PointerError};
pub use rules::{PathRule, Permission, Rules};
