//! The promises of the domain, through its public surface.

mod superseded;
mod support;

mod applied;
