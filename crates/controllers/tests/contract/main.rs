//! The promises of the domain, through its public surface.

mod superseded;
mod support;

mod applied;
mod children;
mod damage;
mod deletion;
mod effects;
mod passes;
mod queue;
mod reading;
mod runtime;
mod status;
