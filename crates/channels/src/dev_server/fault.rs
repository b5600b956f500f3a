//! How a call can fail, in the ways of the provider and of the network.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

/// How one call fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// Refused with this status (400 to 499) as the provider does; nothing was done.
    Refused(u16),
    /// Refused with `ok: false` although the status is 200; nothing was done.
    RefusedOk,
    /// 429: nothing was done, come again after so many seconds.
    RetryAfter(u64),
    /// A status from 500 on: JSON with 500 and 503, a page for people with any other. It was done.
    Server(u16),
    /// The connection closes when the head of the request was read. Nothing was done.
    CloseBeforeBody,
    /// The request is read, but neither done nor answered: the connection closes.
    CloseUndone,
    /// It is done, and the connection closes without an answer.
    CloseDone,
    /// It is done, and the answer breaks off half-way.
    HalfBody,
    /// It is done, and the answer is not JSON.
    Unreadable,
    /// It is done, and the answer says `ok: true` without an id.
    WithoutId,
    /// It is done, and the answer comes so late.
    Late(Duration),
    /// It is done, and the answer comes when the method is healed.
    Hold,
    /// `getUpdates`: each update comes twice.
    Doubled,
    /// `getUpdates`: the last comes first.
    Reversed,
    /// `getUpdates`: those that the bot was done with come again.
    Again,
}

impl Fault {
    /// Reads the words of the control path: `refused 400`, `retry-after 7`, `close-done`.
    pub(super) fn from_text(kind: &str, value: Option<u64>) -> Option<Self> {
        let status = |from: u16, to: u16| {
            value
                .and_then(|value| u16::try_from(value).ok())
                .filter(|status| (from..to).contains(status))
        };
        Some(match kind {
            "refused" => Self::Refused(status(400, 500)?),
            "refused-ok" => Self::RefusedOk,
            "retry-after" => Self::RetryAfter(value?),
            "server" => Self::Server(status(500, 600)?),
            "close-before-body" => Self::CloseBeforeBody,
            "close-undone" => Self::CloseUndone,
            "close-done" => Self::CloseDone,
            "half-body" => Self::HalfBody,
            "unreadable" => Self::Unreadable,
            "without-id" => Self::WithoutId,
            "late" => Self::Late(Duration::from_millis(value?)),
            "hold" => Self::Hold,
            "doubled" => Self::Doubled,
            "reversed" => Self::Reversed,
            "again" => Self::Again,
            _ => return None,
        })
    }

    /// Whether the method is carried out all the same.
    pub(super) fn is_done(&self) -> bool {
        match self {
            Self::Refused(_)
            | Self::RefusedOk
            | Self::RetryAfter(_)
            | Self::CloseBeforeBody
            | Self::CloseUndone => false,
            Self::Server(_)
            | Self::CloseDone
            | Self::HalfBody
            | Self::Unreadable
            | Self::WithoutId
            | Self::Late(_)
            | Self::Hold
            | Self::Doubled
            | Self::Reversed
            | Self::Again => true,
        }
    }
}

/// The faults that are still to come, by method.
#[derive(Debug, Default)]
pub(super) struct Faults {
    queues: HashMap<String, VecDeque<Fault>>,
    /// How often each method was healed: who holds an answer back waits for the next time.
    healed: HashMap<String, u64>,
}

impl Faults {
    pub(super) fn push(&mut self, method: &str, fault: Fault) {
        self.queues
            .entry(method.to_owned())
            .or_default()
            .push_back(fault);
    }

    pub(super) fn take(&mut self, method: &str) -> Option<Fault> {
        self.queues.get_mut(method)?.pop_front()
    }

    pub(super) fn clear(&mut self, method: &str) {
        self.queues.remove(method);
        *self.healed.entry(method.to_owned()).or_default() += 1;
    }

    pub(super) fn healed(&self, method: &str) -> u64 {
        self.healed.get(method).copied().unwrap_or_default()
    }
}
