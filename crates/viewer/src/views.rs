//! What readers are given of runs: documents of one instant. SELECT only; nothing is repaired, stored or cached here.
//!
//! Every function costs what its document holds: neither the length of a run nor that of the list matters. Statuses are those of
//! `holdpoint_workflows::views`; there is no second reducer here.

mod content;
mod deltas;
mod graph;
mod list;
mod page;
mod rows;
mod run;
mod session;
mod window;

pub use content::content;
pub use deltas::{Follow, deltas};
pub use list::{ListPosition, list_page, list_revision};
pub use page::page;
pub use run::{presented, revision, run_view};

pub(crate) use graph::older_than_window;
pub(crate) use rows::{Span, ViewerRun, newest_visit, viewer_run, visit_at};
pub(crate) use run::{definition, settings_window, steps, summary, updates_window};
pub(crate) use session::{checkpoint_before, fold_between, load_checkpoint};
