//! The numbered edge cases of the reference, each by its number: `docs/DECISIONS.md` has the table.

mod protected;
mod runs;
mod stored;
mod time;
mod winners;

pub(crate) use stored::changed;
pub(crate) use time::owner;
