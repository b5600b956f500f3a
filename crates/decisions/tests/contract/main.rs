//! The promises of the domain, through its public surface.

mod answers;
mod files;
mod nodes;
mod plans;
mod support;
