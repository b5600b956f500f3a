//! A domain that declares nothing.
pub const DOMAIN: Domain = Domain::named("empty");
