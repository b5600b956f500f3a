//! Windows on long histories: at most so many items and so many bytes, wherever they stand. Pure.

use serde::Serialize;

/// What a window may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// How many items.
    pub items: u64,
    /// How many bytes of canonical JSON, commas included.
    pub bytes: usize,
}

impl Budget {
    /// The budget of each window of a run.
    pub const WINDOW: Self = Self {
        items: 256,
        bytes: 64 * 1024,
    };
    /// The budget of a page of the list of runs.
    pub const LIST: Self = Self {
        items: 256,
        bytes: 192 * 1024,
    };

    /// Where a window on `total` items begins that holds the one at `cursor`, and where it ends, before any byte is counted. Without a
    /// cursor it is the tail.
    pub fn span(self, total: u64, cursor: Option<u64>) -> (u64, u64) {
        let last_start = total.saturating_sub(self.items);
        let start = match cursor {
            None => last_start,
            Some(cursor) => clamp(cursor, total)
                .saturating_sub(self.items / 2)
                .min(last_start),
        };
        (start, total.min(start.saturating_add(self.items)))
    }
}

/// A cursor as the index of an item; 0 when there are none.
pub(crate) fn clamp(cursor: u64, total: u64) -> u64 {
    cursor.min(total.saturating_sub(1))
}

/// A part of a history, and how long the whole is.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Window<T> {
    /// The items.
    pub items: Vec<T>,
    /// The index of the first.
    pub start: u64,
    /// How many there are in all.
    pub total: u64,
}

impl<T> Window<T> {
    /// A window on nothing.
    pub fn empty() -> Self {
        Self {
            items: Vec::new(),
            start: 0,
            total: 0,
        }
    }

    /// The index of the item after the last.
    pub fn end(&self) -> u64 {
        self.start
            .saturating_add(u64::try_from(self.items.len()).unwrap_or(u64::MAX))
    }
}

/// The end of a history, as long as the bytes last; its last item always. `items` end the history, and each has its size.
pub fn tail<T>(items: Vec<(usize, T)>, total: u64, budget: Budget) -> Window<T> {
    let last = total.checked_sub(1);
    around(items, total, last.unwrap_or(0), budget)
}

/// The items around the one at `cursor`, as many as the budget allows, that one always. `items` are a part of the history that ends
/// at or before its end and holds the cursor; `first` is the index of the first of them.
pub fn around_from<T>(
    items: Vec<(usize, T)>,
    (first, total): (u64, u64),
    cursor: u64,
    budget: Budget,
) -> Window<T> {
    let place = usize::try_from(clamp(cursor, total).saturating_sub(first)).unwrap_or(usize::MAX);
    let sizes: Vec<usize> = items.iter().map(|(size, _)| *size).collect();
    let (from, until) = grow(&sizes, place, budget);
    let items = items.into_iter().skip(from).take(until - from);
    Window {
        items: items.map(|(_, item)| item).collect(),
        start: first.saturating_add(u64::try_from(from).unwrap_or(u64::MAX)),
        total,
    }
}

/// As [`around_from`], for items that end the history.
pub fn around<T>(items: Vec<(usize, T)>, total: u64, cursor: u64, budget: Budget) -> Window<T> {
    let first = total.saturating_sub(u64::try_from(items.len()).unwrap_or(u64::MAX));
    around_from(items, (first, total), cursor, budget)
}

/// Grows from one place to the left and the right alternately, until the next item of a side would not fit.
fn grow(sizes: &[usize], place: usize, budget: Budget) -> (usize, usize) {
    let Some(at) = sizes.len().checked_sub(1).map(|last| place.min(last)) else {
        return (0, 0);
    };
    let size_of = |index: usize| sizes.get(index).copied().unwrap_or(usize::MAX);
    let (mut from, mut until) = (at, at + 1);
    let mut used = size_of(at);
    let items = usize::try_from(budget.items).unwrap_or(usize::MAX);
    let (mut left, mut right) = (true, true);
    while (left || right) && until - from < items {
        if left {
            let fits = from
                .checked_sub(1)
                .map(|next| used.saturating_add(size_of(next)))
                .filter(|size| *size <= budget.bytes);
            match fits {
                Some(size) => (from, used) = (from - 1, size),
                None => left = false,
            }
        }
        if right && until - from < items {
            let fits = Some(until)
                .filter(|next| *next < sizes.len())
                .map(|next| used.saturating_add(size_of(next)))
                .filter(|size| *size <= budget.bytes);
            match fits {
                Some(size) => (until, used) = (until + 1, size),
                None => right = false,
            }
        }
    }
    (from, until)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_window_stands_around_its_cursor() {
        let budget = Budget::WINDOW;
        for (total, cursor, span) in [
            (0, None, (0, 0)),
            (0, Some(7), (0, 0)),
            (256, None, (0, 256)),
            (256, Some(255), (0, 256)),
            (257, None, (1, 257)),
            (257, Some(0), (0, 256)),
            (257, Some(128), (0, 256)),
            (257, Some(129), (1, 257)),
            (1_000, Some(500), (372, 628)),
            (1_000, Some(999), (744, 1_000)),
            (1_000, Some(u64::MAX), (744, 1_000)),
        ] {
            assert_eq!(budget.span(total, cursor), span, "{total} {cursor:?}");
        }
    }

    #[test]
    fn bytes_end_a_window_and_one_item_is_always_there() {
        let budget = Budget {
            items: 256,
            bytes: 10,
        };
        let sized = |sizes: &[usize]| sizes.iter().map(|size| (*size, *size)).collect::<Vec<_>>();
        assert_eq!(tail(sized(&[4, 4, 4, 4]), 4, budget).items, [4, 4]);
        assert_eq!(tail(sized(&[1, 5, 5]), 3, budget).items, [5, 5]);
        assert_eq!(tail(sized(&[1, 5, 99]), 3, budget).items, [99]);
        assert_eq!(around(sized(&[3, 3, 3, 3, 3]), 5, 2, budget).start, 1);
        assert_eq!(
            around(sized(&[3, 9, 3, 4, 3]), 5, 2, budget).items,
            [3, 4, 3]
        );
    }

    proptest! {
        #[test]
        fn a_window_holds_its_cursor_and_stays_in_its_budget(
            sizes in prop::collection::vec(1_usize..4_000, 1..600), cursor in 0_u64..700, bytes in 1_usize..80_000,
        ) {
            let total = sizes.len() as u64;
            let budget = Budget { items: 256, bytes };
            let (start, end) = budget.span(total, Some(cursor));
            prop_assert!(start <= clamp(cursor, total) && clamp(cursor, total) < end && end <= total);
            let part: Vec<_> = (start..end).map(|i| (sizes[i as usize], i)).collect();
            let window = around_from(part, (start, total), cursor, budget);
            prop_assert!(window.items.contains(&clamp(cursor, total)));
            prop_assert_eq!(window.items[0], window.start);
            prop_assert!(window.items.windows(2).all(|pair| pair[0] + 1 == pair[1]));
            prop_assert!(window.items.len() <= 256);
            let used: usize = window.items.iter().map(|i| sizes[*i as usize]).sum();
            prop_assert!(used <= bytes || window.items.len() == 1);
        }
    }
}
