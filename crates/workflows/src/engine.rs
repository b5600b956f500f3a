//! Executing the nodes of a run: a stepper over committed state.
//!
//! What comes next is decided from committed facts alone, by [`routing`](crate::routing); what a node gives is proposed by one
//! command, and counts once that is durable. Between any two instructions here the process may end: the next runner reads the
//! same facts and goes on. Not here: which run is executed when (`scheduler`), rows (`commands`, `store`).

mod active;
mod deadlines;
mod drive;
mod early;
mod executor;
mod facts;
mod host;
mod node;
mod plan;
mod publish;
mod runner;
mod validation;

pub(crate) use active::{ActiveRun, ActiveRuns, Signals, Stop};
pub(crate) use deadlines::Deadlines;
pub(crate) use drive::execute_for;
pub(crate) use early::Early;
pub(crate) use executor::Executor;
pub(crate) use facts::Documents;
pub(crate) use host::{
    Direct, Host, Opening, Stepped, effectless, is_effect_conflict, without_effect,
};
pub(crate) use node::{adopted_value, execution};
pub(crate) use publish::{AGAIN_FIRST, AGAIN_MAX};
pub(crate) use runner::{Executed, Runner};

/// What a panic said, as far as it said it in text.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a value that is not text".to_owned())
}
