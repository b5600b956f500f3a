//! The checks and generators of this workspace, as a library that other workspaces can use too.
//!
//! [`lint`] knows nothing of Holdpoint: it reads a workspace and its `lint.toml`. [`docs`]
//! prints the composed domains. [`ci`] runs every check in order. [`new_domain`] writes the crate of a new domain. [`mutants`]
//! takes rules and guards away and sees whether a test notices. The binary only reads arguments and prints.

pub mod ci;
pub mod docs;
pub mod lint;
pub mod mutants;
pub mod new_domain;
