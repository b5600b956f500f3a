//! How a pass ends, and when the next one comes.

use serde_json::Value;

use super::invalid::{ERROR_CHARS_MAX, Invalid, REQUEUE_MS_MAX};

/// What a pass wants next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Nothing, until something changes.
    Settled,
    /// Another pass: after so many milliseconds, or at once.
    Requeue {
        /// How long to wait. [`Next::requeue_after`] checks it; whatever else is found here when the pass is finished fails the pass.
        after_ms: Option<u64>,
    },
}

impl Next {
    /// Another pass after so many milliseconds.
    ///
    /// # Errors
    ///
    /// [`Invalid::Result`] unless it is between 1 and [`REQUEUE_MS_MAX`].
    pub fn requeue_after(after_ms: u64) -> Result<Self, Invalid> {
        let next = Self::Requeue {
            after_ms: Some(after_ms),
        };
        next.check()?;
        Ok(next)
    }

    /// Reads the result of a pass as a process sends it: `{"kind":"settled"}` or `{"kind":"requeue","afterMs":…}`. Its member `status` is
    /// for others to read.
    ///
    /// # Errors
    ///
    /// [`Invalid::Result`] for every other shape.
    pub fn from_json(result: &Value) -> Result<Self, Invalid> {
        let invalid = |problem: &str| Invalid::Result(problem.to_owned());
        let Some(members) = result.as_object() else {
            return Err(invalid("it is not an object"));
        };
        if let Some(foreign) = members
            .keys()
            .find(|name| !matches!(name.as_str(), "kind" | "afterMs" | "status"))
        {
            return Err(Invalid::Result(format!("it has a member {foreign:?}")));
        }
        match (
            members.get("kind").and_then(Value::as_str),
            members.get("afterMs"),
        ) {
            (Some("settled"), None) => Ok(Self::Settled),
            (Some("settled"), Some(_)) => Err(invalid("a settled pass has no afterMs")),
            (Some("requeue"), None) => Ok(Self::Requeue { after_ms: None }),
            (Some("requeue"), Some(after)) => Self::requeue_after(
                whole(after)
                    .ok_or_else(|| invalid("afterMs must be a positive whole number below 2^53"))?,
            ),
            _ => Err(invalid("its kind must be \"settled\" or \"requeue\"")),
        }
    }

    pub(crate) fn check(self) -> Result<(), Invalid> {
        match self {
            Self::Requeue { after_ms: Some(0) } => {
                Err(Invalid::Result("afterMs must be positive".to_owned()))
            }
            Self::Requeue {
                after_ms: Some(after),
            } if REQUEUE_MS_MAX < after => {
                Err(Invalid::Result("afterMs must be below 2^53".to_owned()))
            }
            Self::Settled | Self::Requeue { .. } => Ok(()),
        }
    }
}

/// A whole number, also one that is written as 30000.0 or 3e4, as JSON of other programs has it.
fn whole(value: &Value) -> Option<u64> {
    if let Some(number) = value.as_u64() {
        return Some(number);
    }
    let number = value.as_f64()?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it was found to be whole and in range"
    )]
    (number.fract() == 0.0 && (1.0..9_007_199_254_740_992.0).contains(&number))
        .then_some(number as u64)
}

/// How many milliseconds a resource rests after a failed pass, when `errors` others failed before it without one that succeeded between.
/// `unit` is a random number from 0 to 1: it moves the rest by a fifth at most, so that what failed together does not come back together.
pub fn back_off_ms(errors: u64, unit: f64) -> u64 {
    const BASE_MS: u64 = 1_000;
    const CAP_MS: u64 = 60_000;
    const JITTER: f64 = 0.2;
    let doublings = u32::try_from(errors.min(6)).unwrap_or(6);
    let raw = CAP_MS.min(BASE_MS << doublings);
    let unit = if unit.is_finite() {
        unit.clamp(0.0, 1.0)
    } else {
        0.5
    };
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "between 800 and 72 000"
    )]
    let moved = (raw as f64 * (1.0 + (2.0 * unit - 1.0) * JITTER)).round() as u64;
    moved.max(1)
}

/// An error as it is stored.
pub(crate) fn cut(error: &str) -> String {
    let mut kept: String = error.chars().take(ERROR_CHARS_MAX).collect();
    if kept.len() < error.len() {
        kept.push('…');
    }
    kept
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_result_of_a_pass_has_two_shapes() {
        for (result, expected) in [
            (json!({"kind": "settled"}), Some(Next::Settled)),
            (
                json!({"kind": "settled", "status": {}}),
                Some(Next::Settled),
            ),
            (
                json!({"kind": "requeue"}),
                Some(Next::Requeue { after_ms: None }),
            ),
            (
                json!({"kind": "requeue", "afterMs": 1}),
                Some(Next::Requeue { after_ms: Some(1) }),
            ),
            (
                json!({"kind": "requeue", "afterMs": 2000.0}),
                Some(Next::Requeue {
                    after_ms: Some(2000),
                }),
            ),
            (json!({"kind": "settled", "afterMs": 1}), None),
            (json!({"kind": "requeue", "afterMs": 0}), None),
            (json!({"kind": "requeue", "afterMs": -1}), None),
            (json!({"kind": "requeue", "afterMs": 1.5}), None),
            (
                json!({"kind": "requeue", "afterMs": 9_007_199_254_740_992_u64}),
                None,
            ),
            (json!({"kind": "requeue", "afterMs": "1"}), None),
            (json!({"kind": "done"}), None),
            (json!({"kind": "settled", "more": 1}), None),
            (json!({}), None),
            (json!(null), None),
        ] {
            assert_eq!(Next::from_json(&result).ok(), expected, "{result}");
        }
    }

    #[test]
    fn the_back_off_doubles_up_to_a_minute_and_is_moved_by_a_fifth() {
        let rests: Vec<_> = (0..9).map(|errors| back_off_ms(errors, 0.5)).collect();
        assert_eq!(
            rests,
            [
                1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000, 60_000
            ]
        );
        assert_eq!(back_off_ms(u64::MAX, 0.5), 60_000);
        assert_eq!((back_off_ms(0, 0.0), back_off_ms(0, 1.0)), (800, 1_200));
        assert_eq!(back_off_ms(0, f64::NAN), 1_000);
    }

    #[test]
    fn a_long_error_is_cut() {
        assert_eq!(cut("short"), "short");
        let long = cut(&"é".repeat(9_000));
        assert_eq!(long.chars().count(), ERROR_CHARS_MAX + 1);
        assert!(long.ends_with('…'));
    }
}
