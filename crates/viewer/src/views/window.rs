//! Windows on rows, read in small parts from the cursor outwards, so that what does not fit is hardly read.

use std::collections::BTreeMap;

use holdpoint_state::StateError;
use serde::Serialize;

use crate::documents::{Budget, Window};
use crate::render::size_of;

/// How many rows are read at once.
const CHUNK: u64 = 32;

/// Reads the items of a window: those around `cursor`, or the tail without one. `load` gives the items from one place to before
/// another.
pub(super) fn window<T: Serialize>(
    total: u64,
    cursor: Option<u64>,
    budget: Budget,
    mut load: impl FnMut(u64, u64) -> Result<Vec<T>, StateError>,
) -> Result<Window<T>, StateError> {
    if total == 0 {
        return Ok(Window::empty());
    }
    let (first, end) = budget.span(total, cursor);
    let at = cursor.unwrap_or(u64::MAX).min(total - 1);
    let mut items: BTreeMap<u64, (usize, T)> = BTreeMap::new();
    let mut size_at = |index: u64, items: &mut BTreeMap<u64, (usize, T)>| {
        if !items.contains_key(&index) {
            let from = (index / CHUNK * CHUNK).max(first);
            let until = (index / CHUNK * CHUNK + CHUNK).min(end);
            for (place, item) in (from..until).zip(load(from, until)?) {
                // With its comma.
                let size = size_of(&item).saturating_add(1);
                items.insert(place, (size, item));
            }
        }
        Ok::<_, StateError>(items.get(&index).map(|(size, _)| *size))
    };
    let Some(mut used) = size_at(at, &mut items)? else {
        // A row that should be there is not: `verify` tells; a reader gets what there is.
        return Ok(Window {
            items: Vec::new(),
            start: at,
            total,
        });
    };
    let (mut from, mut until) = (at, at + 1);
    let (mut left, mut right) = (true, true);
    while left || right {
        if left {
            left = first < from;
            if left {
                let size = size_at(from - 1, &mut items)?;
                match size.map(|size| used.saturating_add(size)) {
                    Some(size) if size <= budget.bytes => (from, used) = (from - 1, size),
                    _ => left = false,
                }
            }
        }
        if right {
            right = until < end;
            if right {
                let size = size_at(until, &mut items)?;
                match size.map(|size| used.saturating_add(size)) {
                    Some(size) if size <= budget.bytes => (until, used) = (until + 1, size),
                    _ => right = false,
                }
            }
        }
    }
    let items = items
        .into_iter()
        .filter(|(place, _)| (from..until).contains(place))
        .map(|(_, (_, item))| item)
        .collect();
    Ok(Window {
        items,
        start: from,
        total,
    })
}
