//! Time: the wall clock that is stored, and the monotonic clock that measures.
//!
//! Every room takes its time from a [`Clock`], so that tests turn the hands. Nothing else in the workspace may ask the
//! operating system for the time.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use rusqlite::types::{FromSql, FromSqlResult, ToSql, ToSqlOutput, ValueRef};

/// An instant of the wall clock: UTC milliseconds since the Unix epoch.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(transparent)]
pub struct UnixMillis(pub i64);

impl UnixMillis {
    /// The instant `duration_ms` milliseconds later; it stops at the end of time instead of wrapping.
    #[must_use]
    pub fn plus(self, duration_ms: i64) -> Self {
        Self(self.0.saturating_add(duration_ms))
    }

    /// Milliseconds from `earlier` to `self`; negative when `earlier` is later.
    pub fn since(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Display for UnixMillis {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.0)
    }
}

impl ToSql for UnixMillis {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(self.0.into())
    }
}

impl FromSql for UnixMillis {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        value.as_i64().map(Self)
    }
}

/// A point of the monotonic clock: milliseconds since an unnamed start. Only differences mean something, and only within one
/// process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MonotonicMillis(pub u64);

impl MonotonicMillis {
    /// Milliseconds from `earlier` to `self`, 0 when `earlier` is later.
    pub fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// Where time comes from.
pub trait Clock: Send + Sync + fmt::Debug {
    /// The wall clock. It may jump, backwards too.
    fn now(&self) -> UnixMillis;

    /// The monotonic clock. It never goes back, and it keeps counting while the machine sleeps.
    fn monotonic(&self) -> MonotonicMillis;
}

/// The clocks of the operating system: `CLOCK_REALTIME` and `CLOCK_BOOTTIME`.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> UnixMillis {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        UnixMillis(
            now.tv_sec
                .saturating_mul(1_000)
                .saturating_add(now.tv_nsec / 1_000_000),
        )
    }

    fn monotonic(&self) -> MonotonicMillis {
        // CLOCK_BOOTTIME counts a suspended laptop's sleep, during which other owners may have taken a lease.
        #[cfg(any(target_os = "linux", target_os = "android"))]
        let clock = rustix::time::ClockId::Boottime;
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        let clock = rustix::time::ClockId::Monotonic;
        let now = rustix::time::clock_gettime(clock);
        MonotonicMillis(
            (now.tv_sec.unsigned_abs() * 1_000)
                .saturating_add(now.tv_nsec.unsigned_abs() / 1_000_000),
        )
    }
}

/// A clock that a test turns by hand. Clones show the same time.
///
/// ```
/// use holdpoint_state::clock::{Clock, ManualClock};
///
/// let clock = ManualClock::at(1_000);
/// clock.advance(250);
/// assert_eq!(clock.now().0, 1_250);
/// clock.set_wall(0); // A jump of the wall clock leaves the monotonic clock alone.
/// assert_eq!(clock.monotonic().0, 250);
/// ```
#[derive(Debug, Clone)]
pub struct ManualClock {
    hands: Arc<Hands>,
}

#[derive(Debug)]
struct Hands {
    wall: AtomicI64,
    monotonic: AtomicU64,
}

impl ManualClock {
    /// A clock that shows `wall` (epoch milliseconds) until it is turned.
    pub fn at(wall: i64) -> Self {
        Self {
            hands: Arc::new(Hands {
                wall: AtomicI64::new(wall),
                monotonic: AtomicU64::new(0),
            }),
        }
    }

    /// Lets `duration_ms` milliseconds pass on both clocks.
    pub fn advance(&self, duration_ms: u64) {
        self.hands.wall.fetch_add(
            i64::try_from(duration_ms).unwrap_or(i64::MAX),
            Ordering::SeqCst,
        );
        self.hands
            .monotonic
            .fetch_add(duration_ms, Ordering::SeqCst);
    }

    /// Makes the wall clock jump to `wall` (epoch milliseconds); the monotonic clock does not move.
    pub fn set_wall(&self, wall: i64) {
        self.hands.wall.store(wall, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> UnixMillis {
        UnixMillis(self.hands.wall.load(Ordering::SeqCst))
    }

    fn monotonic(&self) -> MonotonicMillis {
        MonotonicMillis(self.hands.monotonic.load(Ordering::SeqCst))
    }
}
