//! What people are still to be told, and the pause that the provider wants: prompts, and words on what became of a press or a reply.
//!
//! All of it may fail, come late or come twice; nothing depends on it. Within a pause nothing is sent, so that it waits here, in the
//! memory of this process and no longer than it can be of use. Not here: deliveries and settlements, which the host begins, and which it
//! does not begin within a pause.

use std::collections::VecDeque;
use std::io::Write;

use holdpoint_state::clock::MonotonicMillis;

use super::super::api::{Failure, Markup};
use super::Child;

/// How much may be owed at once. The oldest is dropped: whoever waits for it has pressed again by then.
const OWED_MAX: usize = 64;
/// How long a word on a press is of use, in milliseconds. The provider refuses later ones.
const PRESS_MS: u64 = 15_000;

/// One thing that somebody is to be told.
#[derive(Debug)]
pub(super) enum Owed {
    /// A word on a press.
    Press {
        callback: String,
        words: &'static str,
        since: MonotonicMillis,
    },
    /// A word on a reply.
    Reply {
        chat: String,
        message: u64,
        words: &'static str,
    },
    /// The message that asks for a text, and then a word on the press that wanted it.
    Prompt {
        callback: String,
        chat: String,
        text: String,
        since: MonotonicMillis,
    },
}

/// Until when nothing is sent, what is owed then, and a pause that the host does not know of yet.
#[derive(Debug, Default)]
pub(super) struct Debts {
    quiet_until: Option<MonotonicMillis>,
    owed: VecDeque<Owed>,
    /// Seconds; told with the next `ready`.
    pub(super) untold_pause: Option<u64>,
}

impl Debts {
    /// The provider wants nothing sent for so long. The later of two ends counts.
    pub(super) fn keep_quiet(&mut self, now: MonotonicMillis, wait_ms: u64) {
        let until = MonotonicMillis(now.0.saturating_add(wait_ms));
        if 0 < wait_ms && self.quiet_until.is_none_or(|known| known < until) {
            self.quiet_until = Some(until);
        }
    }

    fn is_quiet(&self, now: MonotonicMillis) -> bool {
        self.quiet_until.is_some_and(|until| now < until)
    }
}

impl<O: Write, D: Write> Child<'_, O, D> {
    /// Tells somebody something: now, or when the provider wants to be told something again.
    pub(super) fn owe(&mut self, owed: Owed) {
        if OWED_MAX <= self.debts.owed.len() {
            self.debts.owed.pop_front();
        }
        self.debts.owed.push_back(owed);
        self.pay();
    }

    /// Pays what is owed, in its order, until the provider wants a pause.
    pub(super) fn pay(&mut self) {
        while !self.debts.is_quiet(self.settings.clock.monotonic()) {
            let Some(owed) = self.debts.owed.pop_front() else {
                return;
            };
            if let Some(unpaid) = self.try_to_pay(owed) {
                self.debts.owed.push_front(unpaid);
            }
        }
    }

    /// One thing. What comes back was refused with a pause, and is owed still.
    fn try_to_pay(&mut self, owed: Owed) -> Option<Owed> {
        let now = self.settings.clock.monotonic();
        let (what, failure, owed) = match owed {
            Owed::Press { since, .. } if PRESS_MS < now.since(since) => return None,
            Owed::Press {
                ref callback,
                words,
                ..
            } => {
                let told = self.api.answer_callback(callback, words);
                ("an acknowledgement", told.err()?, owed)
            }
            Owed::Reply {
                ref chat,
                message,
                words,
            } => {
                let told = self.api.send_reply(chat, message, words);
                ("an acknowledgement", told.err()?, owed)
            }
            Owed::Prompt {
                callback,
                chat,
                text,
                since,
            } => {
                let sent = self.api.send_message(&chat, &text, &Markup::ForceReply);
                let words = match sent {
                    Ok(_) => "Reply to the message below.",
                    Err(failure) => {
                        let owed = Owed::Prompt {
                            callback: callback.clone(),
                            chat,
                            text,
                            since,
                        };
                        if let Some(unpaid) = self.unpaid("a prompt", failure, owed) {
                            return Some(unpaid);
                        }
                        "That did not work. Press again."
                    }
                };
                // It is next in turn, before what is owed to others.
                self.debts.owed.push_front(Owed::Press {
                    callback,
                    words,
                    since,
                });
                return None;
            }
        };
        self.unpaid(what, failure, owed)
    }

    /// A failure ends a debt, unless the provider says that it was not done and when it may be.
    fn unpaid(&mut self, what: &str, failure: Failure, owed: Owed) -> Option<Owed> {
        self.diagnostics
            .say(&format!("{what} failed: {}", failure.code()));
        self.note_pause(failure).then_some(owed)
    }

    /// Whether a failure asks for a pause. If so nothing is sent until it is over, and the host hears of it with the next `ready`.
    pub(super) fn note_pause(&mut self, failure: Failure) -> bool {
        let Some(seconds) = failure.retry_after_s().filter(|seconds| 0 < *seconds) else {
            return false;
        };
        let now = self.settings.clock.monotonic();
        self.debts.keep_quiet(now, seconds.saturating_mul(1_000));
        let untold = self.debts.untold_pause.unwrap_or(0);
        self.debts.untold_pause = Some(seconds.max(untold));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_later_end_of_two_pauses_counts() {
        let mut debts = Debts::default();
        assert!(!debts.is_quiet(MonotonicMillis(0)));
        debts.keep_quiet(MonotonicMillis(5), 0);
        assert!(!debts.is_quiet(MonotonicMillis(0)));
        debts.keep_quiet(MonotonicMillis(5), 100);
        debts.keep_quiet(MonotonicMillis(5), 50);
        assert!(debts.is_quiet(MonotonicMillis(104)));
        assert!(!debts.is_quiet(MonotonicMillis(105)));
        debts.keep_quiet(MonotonicMillis(5), u64::MAX);
        assert!(debts.is_quiet(MonotonicMillis(u64::MAX - 1)));
    }
}
