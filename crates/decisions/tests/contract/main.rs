//! The promises of the domain, through its public surface.

mod answers;
mod support;
