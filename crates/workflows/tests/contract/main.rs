//! The contract of the workflows crate, through its public surface: one module for each promise. Tests named `edge_…` and
//! `case_…` are the numbered edge cases of the workflows reference and the numbered cases from the field.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod capture;
mod composition;
mod control;
mod crash;
mod damage;
mod domains;
mod duties;
mod effects;
mod file_kinds;
mod follow_ups;
mod hooks;
mod hosts;
mod kinds;
mod matrix;
mod other_work;
mod owners;
mod plans;
mod protected;
mod repeats;
mod requests;
mod resilience;
mod retention;
mod routing;
mod scheduling;
mod sessions;
mod settings;
mod sources;
mod start;
mod support;
mod transitions;
mod typed;
mod updates;
mod views;
