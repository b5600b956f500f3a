//! The list of runs, newest first.

use holdpoint_state::clock::UnixMillis;
use holdpoint_state::sql::{OptionalExtension as _, named_params};
use holdpoint_state::{Reads, ResourceKey, Snapshot, StateError};
use holdpoint_workflows::views::pages::{self, RunFacts};

use super::rows::unsigned;
use super::run::{display, is_interrupted, is_live, manifest};
use crate::documents::{Budget, ListEntry, ListPage, Window};
use crate::error::ViewerError;
use crate::render::size_of;

/// Where a page of the list begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ListPosition {
    /// The index of the first entry.
    pub start: u64,
    /// The run before it, if it is known from the page before: then nothing is skipped.
    pub after: Option<ResourceKey>,
}

/// The revision of the list: another text whenever a run came, went, or changed what the list says of it. That a lease ran out or a
/// model turn began is no change of the list, though the entries show it.
///
/// # Errors
///
/// Those of the database.
pub fn list_revision(snapshot: &Snapshot<'_>) -> Result<String, StateError> {
    Ok(revision_and_total(snapshot)?.0)
}

fn revision_and_total(reads: &impl Reads) -> Result<(String, u64), StateError> {
    let revision: Option<u64> = reads
        .reading()
        .prepare_cached("SELECT revision FROM viewer_list WHERE id = :id")?
        .query_row(named_params! { ":id": 1_i64 }, |row| unsigned(row, 0))
        .optional()?;
    let total = pages::total(reads)?;
    Ok((format!("{}:{total}", revision.unwrap_or(0)), total))
}

/// A page of the list: at most `limit` entries, and no more than 256 or 192 KiB. Pages after the first name the revision that they
/// belong to. Returns the page, and the position of the next one if there is one.
///
/// # Errors
///
/// [`ViewerError::ListChanged`] for a page of another revision.
pub fn list_page(
    snapshot: &Snapshot<'_>,
    of_revision: Option<&str>,
    position: ListPosition,
    limit: u64,
    now: UnixMillis,
) -> Result<(ListPage, Option<ListPosition>), ViewerError> {
    let (revision, total) = revision_and_total(snapshot)?;
    if of_revision.is_some_and(|of| of != revision) {
        return Err(ViewerError::ListChanged { revision });
    }
    let budget = Budget::LIST;
    let limit = limit.clamp(1, budget.items);
    let skip = match position.after {
        Some(_) => 0,
        None => position.start,
    };
    let mut items = Vec::new();
    let (mut used, mut last) = (0_usize, None);
    for facts in pages::newest(snapshot, position.after, (skip, limit), now)? {
        let entry = entry(&facts);
        used = used.saturating_add(size_of(&entry)).saturating_add(1);
        if budget.bytes < used && !items.is_empty() {
            break;
        }
        last = Some(facts.key);
        items.push(entry);
    }
    let page = Window {
        items,
        start: position.start.min(total),
        total,
    };
    let next = ListPosition {
        start: page.end(),
        after: last,
    };
    let next = (last.is_some() && next.start < total).then_some(next);
    Ok((ListPage::new(revision, page), next))
}

/// A run as the list shows it.
fn entry(facts: &RunFacts) -> ListEntry {
    ListEntry {
        run_id: facts.run_id.to_string(),
        workflow_name: facts.workflow_name.clone(),
        origin_session_id: Some(facts.origin_session_id.clone()),
        manifest: manifest(facts),
        display: display(facts, None),
        live: is_live(facts),
        possibly_interrupted: is_interrupted(facts),
        created_at: facts.created_at.into(),
        updated_at: facts.updated_at.into(),
    }
}
