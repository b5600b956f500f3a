//! Pages of the histories of one run.

use holdpoint_state::clock::UnixMillis;
use holdpoint_state::{Reads, ResourceKey, Snapshot, StateError};
use holdpoint_workflows::views::pages;

use super::graph::graph;
use super::rows::{ViewerRun, viewer_run, visit_at};
use super::run::{follow_ups, settings_window, steps, trace, updates_window};
use super::session::{checkpoint_before, entries, events};
use crate::documents::{INLINE_BYTES, Page, PageItems, PageKind};
use crate::error::ViewerError;
use crate::render::Renderer;

/// A page of one history of a run: the window around the item at `cursor`, which is clamped into the history. For
/// [`PageKind::TraceAtStep`] the cursor is a step, for [`PageKind::SessionEntries`] an event of the sessions.
///
/// # Errors
///
/// [`ViewerError::NoRun`].
pub fn page(
    snapshot: &Snapshot<'_>,
    run: &str,
    (kind, cursor): (PageKind, u64),
    now: UnixMillis,
) -> Result<Page, ViewerError> {
    let no_run = || ViewerError::NoRun {
        run: run.to_owned(),
    };
    let key = pages::key_of(snapshot, run)?.ok_or_else(no_run)?;
    let facts = pages::facts(snapshot, key, now)?.ok_or_else(no_run)?;
    let kept = viewer_run(snapshot, key)?.ok_or_else(no_run)?;
    let mut renderer = Renderer::new(run);
    let renderer = &mut renderer;
    let (of, what) = ((run, kept.revision), (kind, cursor));
    Ok(match kind {
        PageKind::Steps => {
            let total = facts.step_total;
            let window = steps(snapshot, key, (total, Some(cursor)), renderer)?;
            let (graph_steps, taken) = graph(snapshot, key, (cursor, total))?;
            Page {
                graph_cursor: Some(cursor.min(total.saturating_sub(1))),
                graph_steps: Some(graph_steps),
                taken_transitions: Some(taken),
                ..Page::new(of, what, window, PageItems::Steps)
            }
        }
        PageKind::Trace => {
            let window = trace(snapshot, key, (facts.revision, Some(cursor)), renderer)?;
            Page::new(of, what, window, PageItems::Trace)
        }
        PageKind::TraceAtStep => {
            let step = cursor.min(facts.step_total.saturating_sub(1));
            let began = visit_at(snapshot, key, step)?.map_or(0, |visit| visit.trace_seq);
            let place = (facts.revision, Some(began.saturating_sub(1)));
            let window = trace(snapshot, key, place, renderer)?;
            Page::new(of, what, window, PageItems::Trace)
        }
        PageKind::SessionEntries => {
            let place = entry_near(snapshot, key, &kept, cursor)?;
            let window = entries(snapshot, key, (kept.entries.total, Some(place)), renderer)?;
            Page::new(of, what, window, PageItems::Entries)
        }
        PageKind::SessionEvents => {
            let window = events(snapshot, key, (kept.events.total, Some(cursor)), renderer)?;
            Page {
                replay_checkpoint: checkpoint_before(snapshot, key, window.start)?,
                ..Page::new(of, what, window, PageItems::Events)
            }
        }
        PageKind::Settings => {
            let window = settings_window(snapshot, key, Some(cursor), renderer)?;
            Page::new(of, what, window, PageItems::Settings)
        }
        PageKind::FollowUps => {
            let window = follow_ups(snapshot, key, Some(cursor), renderer)?;
            Page::new(of, what, window, PageItems::FollowUps)
        }
        PageKind::Updates => {
            let window = updates_window(snapshot, facts.present_attempt, Some(cursor), renderer)?;
            Page::new(of, what, window, PageItems::Updates)
        }
    })
}

/// The entry that was the newest when an event was recorded: entries and events have numbers of their own.
fn entry_near(
    reads: &impl Reads,
    run: ResourceKey,
    kept: &ViewerRun,
    event: u64,
) -> Result<u64, StateError> {
    let event = event.min(kept.events.total.saturating_sub(1));
    let row = pages::events(reads, run, (event, event.saturating_add(1)), INLINE_BYTES)?;
    let Some(row) = row.first() else {
        return Ok(event);
    };
    Ok(pages::newest_entry_at(reads, run, row.recorded_at)?.saturating_sub(1))
}
