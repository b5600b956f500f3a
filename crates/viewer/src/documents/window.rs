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
fn clamp(cursor: u64, total: u64) -> u64 {
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

#[cfg(test)]
mod tests {
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
}
