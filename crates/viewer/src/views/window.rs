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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// An item that takes `size` bytes with its comma: a text of ASCII letters in quotes.
    fn item(size: usize) -> String {
        "x".repeat(size.saturating_sub(3))
    }

    fn of(sizes: &[usize], cursor: Option<u64>, bytes: usize) -> (Window<String>, usize) {
        let mut read = 0;
        let total = u64::try_from(sizes.len()).unwrap();
        let budget = Budget { items: 256, bytes };
        let window = window(total, cursor, budget, |from, until| {
            let part = &sizes[usize::try_from(from).unwrap()..usize::try_from(until).unwrap()];
            read += part.len();
            Ok(part.iter().map(|size| item(*size)).collect())
        });
        (window.unwrap(), read)
    }

    #[test]
    fn bytes_end_a_window_and_one_item_is_always_there() {
        let place = |sizes: &[usize], cursor| {
            let (window, _) = of(sizes, cursor, 10);
            (window.start, window.end())
        };
        assert_eq!(place(&[], None), (0, 0));
        assert_eq!(place(&[4, 4, 4, 4], None), (2, 4));
        assert_eq!(place(&[3, 5, 5], None), (1, 3));
        assert_eq!(place(&[3, 5, 99], None), (2, 3));
        assert_eq!(place(&[3, 3, 3, 3, 3], Some(2)), (1, 4));
        assert_eq!(place(&[3, 9, 3, 3, 4], Some(2)), (2, 5));
        assert_eq!(place(&[3, 3, 3], Some(9)), (0, 3));
    }

    #[test]
    fn what_does_not_fit_is_hardly_read() {
        let (window, read) = of(&vec![1_000; 5_000], None, 10_000);
        assert_eq!((window.items.len(), window.end()), (10, 5_000));
        assert!(read <= 64, "{read}");
        let (window, read) = of(&vec![4; 5_000], Some(2_500), 1_000_000);
        assert_eq!((window.items.len(), window.start), (256, 2_372));
        assert!(read <= 256, "{read}");
    }

    proptest! {
        #[test]
        fn a_window_holds_its_cursor_and_stays_in_its_budget(
            sizes in prop::collection::vec(3_usize..4_000, 1..600), cursor in 0_u64..700, bytes in 1_usize..80_000,
        ) {
            let total = u64::try_from(sizes.len()).unwrap();
            let (window, _) = of(&sizes, Some(cursor), bytes);
            let place = cursor.min(total - 1);
            prop_assert!(window.start <= place && place < window.end() && window.end() <= total);
            prop_assert!(window.items.len() <= 256);
            let used: usize = window.items.iter().map(|item| item.len() + 3).sum();
            prop_assert!(used <= bytes || window.items.len() == 1);
            for (item, size) in window.items.iter().zip(&sizes[usize::try_from(window.start).unwrap()..]) {
                prop_assert_eq!(item.len() + 3, *size);
            }
        }
    }
}
