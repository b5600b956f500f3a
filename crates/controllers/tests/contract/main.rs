//! The promises of the domain, through its public surface.

mod support;

mod applied;
