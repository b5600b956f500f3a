//! The promises of the domain, through its public surface.

mod superseded;
mod support;

mod applied;
mod children;
mod damage;
mod deletion;
mod effects;
mod history;
mod machine;
mod pages;
mod passes;
mod plans;
mod queue;
mod reading;
mod runtime;
mod status;
