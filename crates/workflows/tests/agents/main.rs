//! The contract of the executors of agent steps, through their public surface and with real processes.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod command;
mod false_pi;
mod install;
mod provider;
mod real_pi;
mod steps;
mod support;
