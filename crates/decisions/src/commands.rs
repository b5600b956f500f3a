//! The public verbs. Each checks its input, builds a command and calls the store, in one transaction, and can be sent twice.
//!
//! | verb | transition of the reference | called by |
//! |---|---|---|
//! | [`request_in`] | T1 | the node's kind, beside the parked attempt |
//! | [`answer`] | T2 | the surface of the run's session, the command line |
//! | [`submit_in`] | T3 | channels, inside the change that moves the cursor |
//! | [`timeout`], [`expire`], [`sweep`] | T4, T7 | the duty of a scheduler |
//! | [`cancel`] | T5 | control |
//! | [`cancel_in`] | T6 | the end of a run, in its own transaction |
//! | [`wait()`] | none: it only reads | whoever wants to know how a decision ends |
//!
//! A refused, stale or late candidate is a committed fact: it comes back in `Ok`, with its row. Not here: SQL (`store`), the rule
//! (`model::judge`), other I/O.

mod answer;
mod blind;
mod cancel;
mod policy;
mod request;
mod resolve;
mod submit;
mod wait;

pub use answer::{Answer, answer};
pub use cancel::{Cancel, cancel, cancel_in};
pub use policy::{Swept, Unusable, expire, sweep, timeout};
pub use request::request_in;
pub use submit::submit_in;
pub use wait::{Waited, wait};
