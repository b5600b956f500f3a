//! The nouns of the domain, what they may be, and what a call's wish comes to. Pure: no SQL, no clock, no I/O.

use holdpoint_state::Resource;
use holdpoint_state::clock::UnixMillis;
use holdpoint_workflows::RunId;

use crate::error::BudgetError;

/// The resource type of the domain.
pub const RESOURCE_TYPE: &str = "budget";

/// How long a name or a call's id may be, in characters.
pub const NAME_CHARS_MAX: usize = 200;

/// A budget is nearly spent when this many hundredths of its units are gone.
pub const WARN_PERCENT: i64 = 80;

/// What a budget is called: its natural key, which never changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name(String);

impl Name {
    /// Checks a name.
    ///
    /// # Errors
    ///
    /// [`BudgetError::Name`] unless it has 1 to [`NAME_CHARS_MAX`] characters, none of them a control character.
    pub fn new(text: impl Into<String>) -> Result<Self, BudgetError> {
        checked(text.into()).map(Self)
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The resource of that name.
    pub fn resource(&self) -> Resource {
        Resource::new(RESOURCE_TYPE, self.as_str())
    }
}

/// How much may be spent in each window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    pub(crate) units: i64,
    pub(crate) window_ms: i64,
}

impl Limit {
    /// `units` in each window of `window_ms` milliseconds.
    ///
    /// # Errors
    ///
    /// [`BudgetError::Units`] unless both are positive.
    pub fn new(units: i64, window_ms: i64) -> Result<Self, BudgetError> {
        if 0 < units && 0 < window_ms {
            Ok(Self { units, window_ms })
        } else {
            Err(BudgetError::Units)
        }
    }

    /// Where the window begins that `now` lies in.
    pub fn window_at(self, now: UnixMillis) -> UnixMillis {
        UnixMillis(now.0 - now.0.rem_euclid(self.window_ms))
    }

    /// Whether this much spent is worth a warning.
    pub fn is_nearly_spent(self, spent_units: i64) -> bool {
        // Wider than a unit, so that no limit is too large to be multiplied.
        i128::from(self.units) * i128::from(WARN_PERCENT) <= i128::from(spent_units) * 100
    }
}

/// One call that asks for units.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    pub(crate) id: String,
    pub(crate) units: i64,
}

impl Call {
    /// The call `id`, which a repeat has in common, asks for `units`.
    ///
    /// # Errors
    ///
    /// [`BudgetError::Name`] for an id that is empty, too long or not printable, [`BudgetError::Units`] unless the units are positive.
    pub fn new(id: impl Into<String>, units: i64) -> Result<Self, BudgetError> {
        let id = checked(id.into())?;
        if 0 < units {
            Ok(Self { id, units })
        } else {
            Err(BudgetError::Units)
        }
    }
}

/// What a call is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// Go on: the units are spent.
    Granted,
    /// The window has not that much left. Ask again, as a new call, from then on; a call above the limit is never granted.
    Refused {
        /// When the next window begins.
        next_window_at: UnixMillis,
    },
}

/// What serving the line of a budget came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admitted {
    /// The runs that go on now; the program may offer them to its scheduler.
    pub runs: Vec<RunId>,
    /// When to serve the line again, if somebody is left in it.
    pub next_window_at: Option<UnixMillis>,
}

/// The account of a budget: what the row says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) limit: Limit,
    pub(crate) window: UnixMillis,
    pub(crate) spent_units: i64,
}

impl Account {
    /// What is spent of the window that `now` lies in. The clock may have been set back: then the row's window, which is later,
    /// goes on.
    pub(crate) fn at(self, now: UnixMillis) -> Self {
        let window = self.limit.window_at(now);
        if window <= self.window {
            self
        } else {
            Self {
                window,
                spent_units: 0,
                ..self
            }
        }
    }

    /// What a wish for `units` comes to: the account after it, or the refusal.
    pub(crate) fn judge(self, units: i64) -> Result<Self, Answer> {
        match self.spent_units.checked_add(units) {
            Some(spent_units) if spent_units <= self.limit.units => Ok(Self {
                spent_units,
                ..self
            }),
            _ => Err(Answer::Refused {
                next_window_at: self.window.plus(self.limit.window_ms),
            }),
        }
    }
}

/// One budget as readers see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Budget {
    /// Its name.
    pub name: String,
    /// How often it changed, from 1.
    pub revision: u64,
    /// What may be spent in each window.
    pub limit: Limit,
    /// What is left of the present window.
    pub remaining_units: i64,
    /// When the next window begins.
    pub next_window_at: UnixMillis,
}

fn checked(text: String) -> Result<String, BudgetError> {
    let is_right = !text.is_empty()
        && text.chars().count() <= NAME_CHARS_MAX
        && !text.chars().any(char::is_control);
    if is_right {
        Ok(text)
    } else {
        Err(BudgetError::Name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_short_and_printable() {
        let longest = "x".repeat(NAME_CHARS_MAX);
        for right in ["a", "two words", longest.as_str()] {
            assert_eq!(Name::new(right).map(|name| name.0).unwrap(), right);
        }
        let too_long = "x".repeat(NAME_CHARS_MAX + 1);
        for wrong in ["", "a\nb", "\u{1b}[2J", too_long.as_str()] {
            assert!(matches!(Name::new(wrong), Err(BudgetError::Name)));
        }
    }

    #[test]
    fn windows_follow_each_other_and_are_judged_alone() {
        let limit = Limit::new(10, 100).unwrap();
        let account = Account {
            limit,
            window: UnixMillis(200),
            spent_units: 7,
        };
        let spent = |now, units| {
            let judged = account.at(UnixMillis(now)).judge(units);
            judged.map(|after| (after.window.0, after.spent_units))
        };
        let refused = |at| {
            Err(Answer::Refused {
                next_window_at: UnixMillis(at),
            })
        };
        // In the window, up to the limit and no further.
        assert_eq!(spent(299, 3), Ok((200, 10)));
        assert_eq!(spent(299, 4), refused(300));
        assert_eq!(spent(299, i64::MAX), refused(300));
        // In the next one, and in a later one.
        assert_eq!(spent(300, 4), Ok((300, 4)));
        assert_eq!(spent(950, 10), Ok((900, 10)));
        assert_eq!(spent(950, 11), refused(1_000));
        // A clock that was set back opens no earlier window.
        assert_eq!(spent(150, 4), refused(300));
    }

    #[test]
    fn a_warning_is_due_from_the_mark_on() {
        let limit = Limit::new(10, 100).unwrap();
        let warned: Vec<bool> = [7, 8, 10].map(|spent| limit.is_nearly_spent(spent)).into();
        assert_eq!(warned, [false, true, true]);
        let largest = Limit::new(i64::MAX, 1).unwrap();
        assert!(largest.is_nearly_spent(i64::MAX));
    }
}
