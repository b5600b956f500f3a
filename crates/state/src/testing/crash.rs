//! Crash points: named places in the writer at which a test lets its process end as if the machine's power had gone.
//!
//! A child process with [`VARIABLE`] in its environment kills itself (SIGKILL: no handler, no destructor) when its writer reaches the
//! named point. Without the variable a point costs one load.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// The environment variable: a point's name, or `name:count` for the time of its being reached that counts, from 1.
pub const VARIABLE: &str = "HOLDPOINT_CRASH_POINT";

/// A place in the writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Point {
    /// The writer has its turn and opens no transaction yet.
    BeforeBegin,
    /// A command has run, and its transaction is open.
    AfterCommand,
    /// Every command of the transaction has run.
    BeforeCommit,
    /// The transaction is durable, and nobody knows yet.
    AfterCommit,
}

impl Point {
    /// Every point, in the order of a transaction.
    pub const ALL: [Self; 4] = [
        Self::BeforeBegin,
        Self::AfterCommand,
        Self::BeforeCommit,
        Self::AfterCommit,
    ];

    /// The word in the variable.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::BeforeBegin => "beforeBegin",
            Self::AfterCommand => "afterCommand",
            Self::BeforeCommit => "beforeCommit",
            Self::AfterCommit => "afterCommit",
        }
    }
}

struct Wanted {
    point: Point,
    /// How many times the point is passed before the process ends.
    passes: AtomicU64,
}

/// The writer is at `point`.
pub(crate) fn reached(point: Point) {
    static WANTED: OnceLock<Option<Wanted>> = OnceLock::new();
    let wanted = WANTED.get_or_init(|| std::env::var(VARIABLE).ok().as_deref().and_then(read));
    let Some(wanted) = wanted.as_ref().filter(|wanted| wanted.point == point) else {
        return;
    };
    if wanted.passes.fetch_sub(1, Ordering::SeqCst) == 0 {
        end();
    }
}

fn read(text: &str) -> Option<Wanted> {
    let (name, count) = text.split_once(':').unwrap_or((text, "1"));
    let count: u64 = count.parse().ok()?;
    Some(Wanted {
        point: Point::ALL
            .into_iter()
            .find(|point| point.as_str() == name)?,
        passes: AtomicU64::new(count.checked_sub(1)?),
    })
}

/// Ends this process at once.
fn end() -> ! {
    let pid = rustix::process::getpid();
    // Nobody may kill themselves only in name: should the signal fail, the abort is as sudden.
    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    std::process::abort()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_names_a_point_and_a_count() {
        let found =
            |text| read(text).map(|wanted| (wanted.point, wanted.passes.load(Ordering::SeqCst)));
        for point in Point::ALL {
            assert_eq!(found(point.as_str()), Some((point, 0)));
        }
        assert_eq!(found("afterCommit:3"), Some((Point::AfterCommit, 2)));
        for text in ["", "afterCommit:", "afterCommit:0", "commit"] {
            assert_eq!(found(text), None, "{text}");
        }
    }
}
