//! The end of a history that grows: what comes in, and what has to go out so that it stays in its budget.

use holdpoint_state::StateError;
use serde_json::Value;

use super::{append, remove, replace};
use crate::documents::{Budget, Op};
use crate::render::size_of;
use crate::views::Span;

/// What happens to the items of a window.
#[derive(Debug, PartialEq)]
pub(super) enum Slide {
    /// So many go at the front, and these come at the end.
    Moved(u64, Vec<Value>),
    /// None of those before stays.
    Replaced(Vec<Value>),
}

/// How many bytes an item takes, with its comma.
pub(super) fn size(item: &Value) -> u64 {
    u64::try_from(size_of(item).saturating_add(1)).unwrap_or(u64::MAX)
}

/// Appends items to a window that is the end of its history. `load` gives an item that was there before, to know its size.
///
/// The window is always the longest end that fits: one item more at the end never lets one fit again that did not before.
pub(super) fn slide(
    span: &mut Span,
    items: Vec<Value>,
    mut load: impl FnMut(u64) -> Result<Vec<Value>, StateError>,
) -> Result<Slide, StateError> {
    let budget = Budget::WINDOW;
    let most_bytes = u64::try_from(budget.bytes).unwrap_or(u64::MAX);
    let (known, start) = (span.total, span.start);
    let sizes: Vec<u64> = items.iter().map(size).collect();
    span.total += u64::try_from(items.len()).unwrap_or(u64::MAX);
    span.bytes = sizes
        .iter()
        .fold(span.bytes, |sum, size| sum.saturating_add(*size));
    let mut gone = 0_usize;
    while budget.items < span.total - span.start
        || (most_bytes < span.bytes && 1 < span.total - span.start)
    {
        let leaving = match span.start.checked_sub(known) {
            Some(_) => {
                let leaving = sizes.get(gone).copied().unwrap_or(0);
                gone += 1;
                leaving
            }
            None => load(span.start)?.iter().map(size).sum(),
        };
        span.bytes = span.bytes.saturating_sub(leaving);
        span.start += 1;
    }
    let kept: Vec<Value> = items.into_iter().skip(gone).collect();
    Ok(if span.start < known {
        Slide::Moved(span.start - start, kept)
    } else {
        Slide::Replaced(kept)
    })
}

impl Slide {
    /// The operations that do it, with the members that say where the window stands.
    pub(super) fn ops(self, items: &str, start: &str, total: &str, span: &Span) -> Vec<Op> {
        let mut ops = Vec::new();
        match self {
            Self::Moved(gone, kept) => {
                ops.extend((0..gone).map(|_| remove(format!("{items}/0"))));
                ops.push(append(items, kept));
            }
            Self::Replaced(kept) => ops.push(replace(items, kept)),
        }
        ops.push(replace(start, span.start));
        ops.push(replace(total, span.total));
        ops
    }
}
