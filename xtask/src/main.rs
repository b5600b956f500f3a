//! The checks and generators of this workspace.
fn main() {}
