//! How long to wait before the next attempt: exponential, capped, with jitter, and never before the provider allows it.

use crate::clock::UnixMillis;

/// The share of the wait by which jitter moves it, in each direction.
const JITTER: f64 = 0.2;
/// After this many doublings the wait does not grow any more.
const DOUBLINGS_MAX: u32 = 6;

/// The wait after n attempts: `min(cap, base * 2^min(n - 1, 6))`, moved by jitter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackOff {
    /// The wait after the first attempt, in milliseconds.
    pub base_ms: u32,
    /// The longest wait before jitter, in milliseconds.
    pub cap_ms: u32,
}

impl Default for BackOff {
    fn default() -> Self {
        Self {
            base_ms: 1_000,
            cap_ms: 60_000,
        }
    }
}

impl BackOff {
    /// The wait after `attempts` attempts, without jitter, in milliseconds.
    pub fn raw_ms(self, attempts: u32) -> u32 {
        let doublings = attempts.saturating_sub(1).min(DOUBLINGS_MAX);
        self.base_ms.saturating_mul(1 << doublings).min(self.cap_ms)
    }

    /// The wait with jitter, in milliseconds. `unit` is a random number from 0 to 1; one half leaves the wait as it is.
    pub fn jittered_ms(self, attempts: u32, unit: f64) -> i64 {
        let raw = f64::from(self.raw_ms(attempts));
        let moved = (raw * (1.0 + (2.0 * unit.clamp(0.0, 1.0) - 1.0) * JITTER)).round();
        #[expect(
            clippy::cast_possible_truncation,
            reason = "at most 1.2 times a u32, and a whole number already"
        )]
        let moved = moved as i64;
        moved.max(1)
    }

    /// The instant of the next attempt without jitter; `not_before` is the provider's lower bound.
    pub(crate) fn next_attempt_at(
        self,
        now: UnixMillis,
        attempts: u32,
        not_before: Option<UnixMillis>,
    ) -> UnixMillis {
        let at = now.plus(i64::from(self.raw_ms(attempts)));
        not_before.map_or(at, |bound| at.max(bound))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_doubles_up_to_the_cap_and_jitter_moves_it_by_a_fifth() {
        let back_off = BackOff::default();
        let waits: Vec<_> = (1..=8)
            .map(|attempts| back_off.raw_ms(attempts) / 1_000)
            .collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(back_off.jittered_ms(1, 0.5), 1_000);
        assert_eq!(back_off.jittered_ms(1, 0.0), 800);
        assert_eq!(back_off.jittered_ms(8, 1.0), 72_000);
        let tiny = BackOff {
            base_ms: 0,
            cap_ms: 0,
        };
        assert_eq!(tiny.jittered_ms(3, 0.0), 1);
    }
}
