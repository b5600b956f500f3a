//! When some work will be done, estimated from the progress that it published. Pure: a function of samples and an instant.
//!
//! Only the present *epoch* counts: a new one begins when phase, total or unit change, when `completed` falls, and after a terminal
//! status. In it, an *interval* goes from one sample to the next that has done more; a sample with the same count ends none, so that a
//! pause makes the interval longer and never a rate of nothing.

use holdpoint_state::clock::UnixMillis;
use serde::Serialize;

use super::{Progress, ProgressStatus};

/// How many intervals count, the latest ones.
const INTERVALS: usize = 8;

/// One published progress and when it was recorded.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// When it was recorded.
    pub at: UnixMillis,
    /// What it says.
    pub progress: Progress,
}

/// How far an estimate can be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Confidence {
    /// One interval, or intervals that differ much.
    Low,
    /// Some intervals that are alike, or many that are roughly so.
    Medium,
    /// Many intervals that are alike.
    High,
    /// The source of the work said it itself.
    Reported,
}

/// When some work will be done.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Estimate {
    /// When it will be done.
    pub finish_at: UnixMillis,
    /// How long that is from now, in milliseconds; never negative.
    pub remaining_ms: i64,
    /// The same if the work goes as fast as in its better intervals; none for what a source reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub earliest_ms: Option<i64>,
    /// The same if it goes as slowly as in its worse intervals.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latest_ms: Option<i64>,
    /// How many units are done in a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_second: Option<f64>,
    /// How far it can be trusted.
    pub confidence: Confidence,
}

/// Estimates when the work of these samples, in the order of their recording, will be done. None when nothing can be said: the work is
/// not running, its total is not known, or nothing was done between two samples.
pub fn estimate(samples: &[Sample], now: UnixMillis) -> Option<Estimate> {
    let last = samples.last()?;
    if last.progress.status != ProgressStatus::Running {
        return None;
    }
    if let Some(eta) = last.progress.eta().filter(|eta| now <= *eta) {
        return Some(Estimate {
            finish_at: eta,
            remaining_ms: eta.since(now),
            earliest_ms: None,
            latest_ms: None,
            per_second: None,
            confidence: Confidence::Reported,
        });
    }
    let (completed, total) = (last.progress.completed?, last.progress.total?);
    let intervals = intervals(epoch(samples));
    let recent = intervals.get(intervals.len().saturating_sub(INTERVALS)..)?;
    let mut rates: Vec<f64> = recent.iter().map(|interval| interval.per_ms).collect();
    rates.sort_by(f64::total_cmp);
    let median = quantile(&rates, 0.5)?;
    let (slow, fast) = (quantile(&rates, 0.25)?, quantile(&rates, 0.75)?);
    // What was done since the last sample is not known, but time has passed.
    let passed = now.since(last.at).max(0);
    let left = |rate: f64| {
        whole_ms((total - completed) / rate)
            .saturating_sub(passed)
            .max(0)
    };
    let remaining_ms = left(median);
    Some(Estimate {
        finish_at: now.plus(remaining_ms),
        remaining_ms,
        earliest_ms: Some(left(fast)),
        latest_ms: Some(left(slow)),
        per_second: Some(median * 1_000.0).filter(|rate| rate.is_finite()),
        confidence: confidence(rates.len(), (fast - slow) / median),
    })
}

fn confidence(intervals: usize, spread: f64) -> Confidence {
    let alike = if spread <= 0.5 {
        Confidence::Medium
    } else {
        Confidence::Low
    };
    match intervals {
        0 | 1 => Confidence::Low,
        2..=4 => alike,
        _ if spread <= 0.25 => Confidence::High,
        _ => alike,
    }
}

/// The samples of the present epoch.
fn epoch(samples: &[Sample]) -> &[Sample] {
    let breaks = |pair: &[Sample]| match pair {
        [before, after] => {
            let (before, after) = (&before.progress, &after.progress);
            before.status.is_terminal()
                || before.phase != after.phase
                || before.total != after.total
                || before.unit != after.unit
                || matches!((before.completed, after.completed), (Some(was), Some(is)) if is < was)
        }
        _ => false,
    };
    let begin = samples.windows(2).rposition(breaks).map_or(0, |at| at + 1);
    samples.get(begin..).unwrap_or_default()
}

struct Interval {
    per_ms: f64,
}

fn intervals(epoch: &[Sample]) -> Vec<Interval> {
    let mut found = Vec::new();
    let mut from: Option<(UnixMillis, f64)> = None;
    for sample in epoch {
        let Some(completed) = sample.progress.completed else {
            continue;
        };
        let Some((at, was)) = from else {
            from = Some((sample.at, completed));
            continue;
        };
        // Two samples in one millisecond are one, and a clock that was set back tells nothing.
        let took = sample.at.since(at);
        if was < completed && 0 < took {
            let per_ms = (completed - was) / millis(took);
            if per_ms.is_finite() && 0.0 < per_ms {
                found.push(Interval { per_ms });
            }
            from = Some((sample.at, completed));
        } else if took < 0 {
            from = Some((sample.at, completed));
        }
    }
    found
}

/// A quantile of sorted values, interpolated between its neighbours.
fn quantile(sorted: &[f64], at: f64) -> Option<f64> {
    let last = u32::try_from(sorted.len().checked_sub(1)?).ok()?;
    let place = f64::from(last) * at;
    let (low, high) = (index(place.floor()), index(place.ceil()));
    let (low, high) = (*sorted.get(low)?, *sorted.get(high)?);
    Some(low + (high - low) * (place - place.floor()))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "at most as large as an index"
)]
fn index(place: f64) -> usize {
    place as usize
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a span of 285,000 years is exact enough"
)]
fn millis(span: i64) -> f64 {
    span as f64
}

/// Milliseconds of a length that may be beyond all bounds. The cast ends at the largest number.
#[expect(
    clippy::cast_possible_truncation,
    reason = "it saturates, which is meant"
)]
fn whole_ms(length: f64) -> i64 {
    if length.is_nan() {
        0
    } else {
        length.max(0.0).ceil() as i64
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn running(at: i64, completed: f64, total: f64) -> Sample {
        Sample {
            at: UnixMillis(at),
            progress: Progress::new(ProgressStatus::Running).counting(
                completed,
                Some(total),
                "files",
            ),
        }
    }

    /// `remaining [earliest..latest] confidence`, in seconds.
    fn told(samples: &[Sample], now: i64) -> String {
        match estimate(samples, UnixMillis(now)) {
            None => "nothing".to_owned(),
            Some(estimate) => {
                let bound =
                    |ms: Option<i64>| ms.map_or("-".to_owned(), |ms| (ms / 1_000).to_string());
                format!(
                    "{} [{}..{}] {:?}",
                    estimate.remaining_ms / 1_000,
                    bound(estimate.earliest_ms),
                    bound(estimate.latest_ms),
                    estimate.confidence
                )
            }
        }
    }

    #[test]
    fn cases() {
        let every_second = |counts: &[f64]| -> Vec<Sample> {
            let at = (0..).map(|second| second * 1_000);
            at.zip(counts)
                .map(|(at, count)| running(at, *count, 100.0))
                .collect()
        };
        let changed = |change: fn(&mut Progress)| {
            let mut samples = every_second(&[0.0, 10.0, 20.0, 21.0]);
            samples[2..]
                .iter_mut()
                .for_each(|sample| change(&mut sample.progress));
            samples
        };
        let mut over = every_second(&[0.0, 10.0, 20.0, 21.0]);
        over[1].progress.status = ProgressStatus::Completed;
        let mut reported = every_second(&[0.0, 10.0]);
        reported[1].progress.eta = Some("1970-01-01T00:01:00Z".to_owned());
        let mut paused = every_second(&[0.0, 10.0]);
        paused[1].progress.status = ProgressStatus::Waiting;
        let mut back = every_second(&[0.0, 10.0, 20.0]);
        back[2].at = UnixMillis(-60_000);
        let cases = [
            ("no sample", vec![], 0),
            ("one sample", every_second(&[5.0]), 0),
            ("nothing done", every_second(&[5.0, 5.0, 5.0]), 2_000),
            ("one interval", every_second(&[0.0, 10.0]), 1_000),
            ("time passes", every_second(&[0.0, 10.0]), 4_000),
            ("it is overdue", every_second(&[0.0, 10.0]), 60_000),
            ("three alike", every_second(&[0.0, 10.0, 20.0, 30.0]), 3_000),
            (
                "three that differ",
                every_second(&[0.0, 1.0, 20.0, 60.0]),
                3_000,
            ),
            (
                "five alike",
                every_second(&[0.0, 10.0, 20.0, 30.0, 40.0, 50.0]),
                5_000,
            ),
            (
                "five roughly alike",
                every_second(&[0.0, 8.0, 18.0, 31.0, 40.0, 53.0]),
                5_000,
            ),
            (
                "five that differ",
                every_second(&[0.0, 1.0, 21.0, 22.0, 42.0, 43.0]),
                5_000,
            ),
            (
                "only the last eight",
                every_second(&[0.0, 30.0, 31.0, 32.0, 33.0, 34.0, 35.0, 36.0, 37.0, 38.0]),
                9_000,
            ),
            (
                "a stall is a part of its interval",
                every_second(&[0.0, 0.0, 0.0, 0.0, 10.0]),
                4_000,
            ),
            (
                "another phase",
                changed(|progress| progress.phase = Some("second".to_owned())),
                3_000,
            ),
            (
                "another total",
                changed(|progress| progress.total = Some(50.0)),
                3_000,
            ),
            (
                "another unit",
                changed(|progress| progress.unit = Some("rows".to_owned())),
                3_000,
            ),
            ("it falls", every_second(&[50.0, 90.0, 0.0, 1.0]), 3_000),
            ("after a terminal status", over, 3_000),
            ("reported", reported.clone(), 1_000),
            ("reported, and past", reported, 61_000),
            ("it waits", paused, 1_000),
            ("done", every_second(&[50.0, 100.0]), 1_000),
            ("the clock was set back", back, -60_000),
        ];
        let lines: Vec<String> = cases
            .iter()
            .map(|(name, samples, now)| format!("{name}: {}", told(samples, *now)))
            .collect();
        insta::assert_snapshot!(lines.join("\n"));
    }

    #[test]
    fn confidence_at_its_bounds() {
        use Confidence::{High, Low, Medium};
        for (intervals, spread, expected) in [
            (1, 0.0, Low),
            (2, 0.5, Medium),
            (4, 0.5, Medium),
            (4, 0.51, Low),
            (5, 0.25, High),
            (5, 0.26, Medium),
            (8, 0.5, Medium),
            (8, 0.51, Low),
            (8, f64::NAN, Low),
        ] {
            assert_eq!(
                confidence(intervals, spread),
                expected,
                "{intervals} {spread}"
            );
        }
    }

    fn sample() -> impl Strategy<Value = Sample> {
        let status = prop_oneof![8 => Just(ProgressStatus::Running), 1 => Just(ProgressStatus::Completed), 1 => Just(ProgressStatus::Waiting)];
        let count = prop_oneof![
            0.0..100.0,
            Just(0.0),
            Just(f64::MIN_POSITIVE),
            Just(1e300),
            Just(f64::MAX)
        ];
        let total = prop_oneof![1.0..200.0, Just(f64::MAX), Just(f64::MIN_POSITIVE)];
        let at = prop_oneof![0..100_000_i64, Just(i64::MAX), Just(i64::MIN)];
        let phase = proptest::option::of(Just("second".to_owned()));
        (
            at,
            status,
            proptest::option::of(count),
            proptest::option::of(total),
            phase,
        )
            .prop_map(|(at, status, completed, total, phase)| {
                let mut progress = Progress::new(status);
                progress.total = total;
                progress.completed =
                    completed.map(|count: f64| total.map_or(count, |total: f64| count.min(total)));
                progress.unit = Some("files".to_owned());
                progress.phase = phase;
                Sample {
                    at: UnixMillis(at),
                    progress,
                }
            })
    }

    proptest! {
        #[test]
        fn an_estimate_is_never_negative_and_never_no_number(
            samples in proptest::collection::vec(sample(), 0..20),
            now in prop_oneof![0..200_000_i64, Just(i64::MIN), Just(i64::MAX)],
        ) {
            if let Some(estimate) = estimate(&samples, UnixMillis(now)) {
                prop_assert!(0 <= estimate.remaining_ms);
                let (earliest, latest) = (estimate.earliest_ms.unwrap(), estimate.latest_ms.unwrap());
                prop_assert!(0 <= earliest && earliest <= estimate.remaining_ms && estimate.remaining_ms <= latest);
                prop_assert!(estimate.per_second.is_none_or(|rate| rate.is_finite() && 0.0 < rate));
                prop_assert!(UnixMillis(now) <= estimate.finish_at);
            }
        }

        /// Steady work is known exactly, however often somebody looked.
        #[test]
        fn steady_work_is_estimated_exactly(steps in proptest::collection::vec(1..10_u8, 5..30), per_step in 1..50_u8) {
            let mut samples = vec![running(0, 0.0, 10_000.0)];
            let (mut at, mut done) = (0_i64, 0.0);
            for step in steps {
                at += i64::from(step) * 1_000;
                done += f64::from(step) * f64::from(per_step);
                samples.push(running(at, done, 10_000.0));
            }
            let estimate = estimate(&samples, UnixMillis(at)).unwrap();
            let exact = whole_ms((10_000.0 - done) / f64::from(per_step) * 1_000.0);
            prop_assert!((estimate.remaining_ms - exact).abs() <= 1);
            prop_assert_eq!(estimate.confidence, Confidence::High);
        }
    }
}
