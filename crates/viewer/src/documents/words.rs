//! The closed sets of the client, and its form of instants.
#![warn(clippy::wildcard_enum_match_arm)]

use holdpoint_state::clock::UnixMillis;
use holdpoint_workflows::model::RunStatus;
use holdpoint_workflows::routing::NodeOutcome;
use holdpoint_workflows::views::{self, DisplayStatus};
use serde::Serialize;

/// The status of a run as people see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[expect(
    missing_docs,
    reason = "the words are those of `DisplayStatus`, which explains them"
)]
pub enum Status {
    Queued,
    Running,
    Waiting,
    Paused,
    Completed,
    Failed,
    TimedOut,
    Cancelled,
    Ambiguous,
}

impl Status {
    /// Whether nothing follows it.
    pub const fn is_terminal(self) -> bool {
        match self {
            Self::Completed | Self::Failed | Self::TimedOut | Self::Cancelled => true,
            Self::Queued | Self::Running | Self::Waiting | Self::Paused | Self::Ambiguous => false,
        }
    }
}

impl From<DisplayStatus> for Status {
    fn from(status: DisplayStatus) -> Self {
        match status {
            DisplayStatus::Queued => Self::Queued,
            DisplayStatus::Running => Self::Running,
            DisplayStatus::Waiting => Self::Waiting,
            DisplayStatus::Paused => Self::Paused,
            DisplayStatus::Completed => Self::Completed,
            DisplayStatus::Failed => Self::Failed,
            DisplayStatus::TimedOut => Self::TimedOut,
            DisplayStatus::Cancelled => Self::Cancelled,
            DisplayStatus::Ambiguous => Self::Ambiguous,
        }
    }
}

impl From<RunStatus> for Status {
    fn from(status: RunStatus) -> Self {
        match status {
            RunStatus::Queued => Self::Queued,
            RunStatus::Running => Self::Running,
            RunStatus::Waiting => Self::Waiting,
            RunStatus::Completed => Self::Completed,
            RunStatus::Failed => Self::Failed,
            RunStatus::TimedOut => Self::TimedOut,
            RunStatus::Cancelled => Self::Cancelled,
        }
    }
}

/// Which live actor makes a run go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Activity {
    /// A live runner executes it. The store calls that `supervised_worker`, which this client does not know.
    SupervisedRunner,
    /// A model turn goes on in its origin session.
    OriginTurn,
}

impl Activity {
    /// The one word that a document has room for: a runner is told before a turn.
    pub fn of(activity: &[views::Activity]) -> Option<Self> {
        if activity.contains(&views::Activity::SupervisedWorker) {
            Some(Self::SupervisedRunner)
        } else if activity.contains(&views::Activity::OriginTurn) {
            Some(Self::OriginTurn)
        } else {
            None
        }
    }
}

/// What a person can do with a run now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[expect(
    missing_docs,
    reason = "the words are those of `views::Control`, which explains them"
)]
pub enum Control {
    Pause,
    Resume,
    Cancel,
    Answer,
    Review,
}

impl Control {
    /// The word for a control of the store, where this client has one. `human-answer` is an answer to it; `update`, `submit` and
    /// `restart` would make the whole document unreadable for it.
    pub const fn of(control: views::Control) -> Option<Self> {
        match control {
            views::Control::Pause => Some(Self::Pause),
            views::Control::Resume => Some(Self::Resume),
            views::Control::Cancel => Some(Self::Cancel),
            views::Control::Answer | views::Control::HumanAnswer => Some(Self::Answer),
            views::Control::Review => Some(Self::Review),
            views::Control::Update | views::Control::Submit | views::Control::Restart => None,
        }
    }
}

/// How a step ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[expect(
    missing_docs,
    reason = "the words are those of `NodeOutcome`, which explains them"
)]
pub enum Outcome {
    Ok,
    TimedOut,
    Failed,
    Cancelled,
}

impl From<NodeOutcome> for Outcome {
    fn from(outcome: NodeOutcome) -> Self {
        match outcome {
            NodeOutcome::Ok => Self::Ok,
            NodeOutcome::TimedOut => Self::TimedOut,
            NodeOutcome::Failed => Self::Failed,
            NodeOutcome::Cancelled => Self::Cancelled,
        }
    }
}

/// What an event of the trace is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// The run as a whole.
    Run,
    /// A visit of a node.
    Node,
}

/// An instant, written as RFC 3339 with milliseconds and `Z`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub UnixMillis);

impl From<UnixMillis> for Timestamp {
    fn from(at: UnixMillis) -> Self {
        Self(at)
    }
}

impl std::fmt::Display for Timestamp {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ms = self.0.0.clamp(MIN_MS, MAX_MS);
        let (days, of_day) = (ms.div_euclid(DAY_MS), ms.rem_euclid(DAY_MS));
        let (year, month, day) = civil(days);
        let (hour, minute) = (of_day / 3_600_000, of_day / 60_000 % 60);
        let (second, milli) = (of_day / 1_000 % 60, of_day % 1_000);
        write!(
            formatter,
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z"
        )
    }
}

impl Serialize for Timestamp {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

const DAY_MS: i64 = 86_400_000;
/// The years that RFC 3339 can write: 0000 to 9999.
const MIN_MS: i64 = -719_528 * DAY_MS;
const MAX_MS: i64 = 2_932_897 * DAY_MS - 1;

/// The date of a day since 1970 (<https://howardhinnant.github.io/date_algorithms.html>, `civil_from_days`).
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

/// A text as one line of at most `limit` characters, for errors in envelopes and short reasons.
pub fn one_line(text: &str, limit: usize) -> String {
    let mut words = text.split_whitespace();
    let mut line = words.next().unwrap_or_default().to_owned();
    for word in words {
        line.push(' ');
        line.push_str(word);
    }
    if line.char_indices().nth(limit).is_some() {
        let end = line.char_indices().nth(limit.saturating_sub(1));
        line.truncate(end.map_or(0, |(at, _)| at));
        line.push('…');
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_written_with_milliseconds() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_772_359_205_010, "2026-03-01T10:00:05.010Z"),
            (i64::MAX, "9999-12-31T23:59:59.999Z"),
            (i64::MIN, "0000-01-01T00:00:00.000Z"),
        ] {
            assert_eq!(Timestamp(UnixMillis(ms)).to_string(), text);
        }
    }

    #[test]
    fn lines_are_cut_between_characters() {
        assert_eq!(one_line(" a\n\tb  c ", 9), "a b c");
        assert_eq!(one_line("日本語", 3), "日本語");
        assert_eq!(one_line("日本語x", 3), "日本…");
    }
}
