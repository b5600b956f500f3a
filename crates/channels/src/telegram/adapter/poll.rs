//! Handling what people did: updates in order, each with a cursor of its own (channels reference, section 8).
//!
//! An answer is reported before its button is acknowledged, and the cursor behind it goes with the answer. What is no answer only
//! moves the cursor, which the next report carries. A poll stays open while the host is asked again and again for something better to
//! do; what names nothing that is open is looked up once more in a list that the host made after it was read.
//!
//! Not here: whether an answer counts. The host judges it, and checks user and chat again.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;

use holdpoint_state::clock::MonotonicMillis;
use subtle::ConstantTimeEq as _;

use super::super::api::{Callback, Event, Failure, Reply};
use super::super::render;
use super::owed::Owed;
use super::{Child, Exit};
use crate::identity::answer_id;
use crate::protocol::{
    AnswerOutcome, AnswerReport, ErrorCode, OpenRequest, Order, Report, Response, TextInput,
};

/// The first and the longest wait after a poll that failed, in milliseconds.
const BACKOFF_MS: u64 = 1_000;
const BACKOFF_MS_MAX: u64 = 60_000;

/// How long the name of a press may be, in bytes.
const CALLBACK_BYTES_MAX: usize = 256;

/// When the provider may be polled again.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    failures: u32,
    until: Option<(MonotonicMillis, ErrorCode)>,
}

impl Backoff {
    /// What is left of the wait, and why.
    fn left(&self, now: MonotonicMillis) -> Option<(Duration, ErrorCode)> {
        let (until, code) = self.until?;
        let left_ms = until.since(now);
        (0 < left_ms).then(|| (Duration::from_millis(left_ms), code))
    }

    /// One more poll failed: 1 s, doubling to 60 s, and never less than the provider wants.
    fn failed(&mut self, now: MonotonicMillis, code: ErrorCode, retry_after_s: Option<u64>) {
        let doubled = BACKOFF_MS << self.failures.min(16);
        let wanted = retry_after_s.unwrap_or(0).saturating_mul(1_000);
        let wait_ms = doubled.min(BACKOFF_MS_MAX).max(wanted);
        self.failures += 1;
        self.until = Some((MonotonicMillis(now.0.saturating_add(wait_ms)), code));
    }
}

/// Whether the host made its list after an update was read. If it did not, what is missing there may be open all the same: a person may
/// just have confirmed its delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum List {
    Newer,
    PerhapsOlder,
}

/// What became of an update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Handled {
    /// Nothing is left to do about it.
    Done,
    /// It is looked at again with the next list.
    AskAgain,
}

/// What a token stands for.
#[derive(Clone, Copy)]
struct Found<'a> {
    request: &'a OpenRequest,
    choice: &'a str,
    input: Option<&'a TextInput>,
}

impl<O: Write, D: Write> Child<'_, O, D> {
    /// Sees that a poll is open, unless the provider wants none yet, waits a little for it, and handles what it brought.
    pub(super) fn poll(
        &mut self,
        cursor: u64,
        requests: &[OpenRequest],
        quiet_ms: u64,
    ) -> Result<Option<Order>, Exit> {
        self.cursor = cursor;
        let now = self.settings.clock.monotonic();
        self.debts.keep_quiet(now, quiet_ms);
        self.pay();
        if self.reader.waiting.is_empty() && !self.reader.is_open {
            if let Some((left, code)) = self.backoff.left(now) {
                self.talk.rest(left.min(self.settings.rest))?;
                return self.ready(Some(code));
            }
            if let Err(failure) = self.know_the_bot() {
                return self.poll_failed(failure);
            }
            if !self.reader.open(cursor) {
                return Err(Exit::Unsayable);
            }
        }
        // What was read before this order came is older than its list.
        let mut list = List::Newer;
        let mut polled = self.talk.polled();
        if polled.is_none() && self.reader.waiting.is_empty() {
            self.talk.rest(self.settings.look)?;
            polled = self.talk.polled();
            list = List::PerhapsOlder;
        }
        if let Some(polled) = polled {
            self.reader.is_open = false;
            match polled {
                Ok(updates) => {
                    self.backoff = Backoff::default();
                    self.reader.waiting.extend(updates);
                }
                Err(failure) => return self.poll_failed(failure),
            }
        }
        while let Some(update) = self.reader.waiting.pop_front() {
            // The host keeps the larger one, so that an update that comes late takes nothing back.
            let behind = update.id + 1;
            let handled = match &update.event {
                Event::Callback(pressed) => self.pressed(pressed, behind, requests, list)?,
                Event::Reply(reply) => self.replied(reply, behind, requests, list)?,
                Event::Other => Handled::Done,
            };
            if handled == Handled::AskAgain {
                self.reader.waiting.push_front(update);
                break;
            }
            self.cursor = self.cursor.max(behind);
        }
        self.ready(None)
    }

    /// Asks the provider who the bot is, and tells the host.
    pub(super) fn identify(&mut self) -> Result<Option<Order>, Exit> {
        let now = self.settings.clock.monotonic();
        if let Some((left, code)) = self.backoff.left(now) {
            self.talk.rest(left.min(self.settings.rest))?;
            return self.ready(Some(code));
        }
        let me = self.api.get_me();
        match me.map(|me| (me.id, u64::try_from(me.id).ok().filter(|id| 0 < *id))) {
            Ok((id, Some(bot))) => {
                self.backoff = Backoff::default();
                self.bot_id = Some(id);
                self.ready_as(None, Some(bot))
            }
            Ok((_, None)) => self.poll_failed(Failure::Unknown),
            Err(failure) => self.poll_failed(failure),
        }
    }

    /// Finds out who the bot is, to tell its own messages from those of others. Its token usually says it.
    fn know_the_bot(&mut self) -> Result<(), Failure> {
        if self.bot_id.is_none() {
            let in_token = self.bot.expose().split_once(':');
            self.bot_id = match in_token.and_then(|(number, _)| number.parse().ok()) {
                Some(id) => Some(id),
                None => Some(self.api.get_me()?.id),
            };
        }
        Ok(())
    }

    fn poll_failed(&mut self, failure: Failure) -> Result<Option<Order>, Exit> {
        let code = match failure.status() {
            Some(401 | 404) => {
                self.exiting(Some(ErrorCode::TelegramTokenRefused))?;
                return Err(Exit::TokenRefused);
            }
            // Somebody else reads this bot's updates. Taking over by force would only make two that lose answers.
            Some(409) => ErrorCode::TelegramConflict,
            _ => failure.code(),
        };
        let now = self.settings.clock.monotonic();
        if self.backoff.failures == 0 {
            self.diagnostics
                .say(&format!("updates can't be read at the moment: {code}"));
        }
        self.backoff.failed(now, code, failure.retry_after_s());
        self.note_pause(failure);
        self.ready(Some(code))
    }

    fn pressed(
        &mut self,
        pressed: &Callback,
        behind: u64,
        requests: &[OpenRequest],
        list: List,
    ) -> Result<Handled, Exit> {
        let is_nameable = (1..=CALLBACK_BYTES_MAX).contains(&pressed.id.len())
            && !pressed.id.chars().any(char::is_control)
            && !pressed.id.trim().is_empty();
        if !is_nameable {
            return Ok(Handled::Done);
        }
        if !self.may_answer(&pressed.user, &pressed.chat) {
            self.acknowledge(pressed, "You can't answer here.");
            return Ok(Handled::Done);
        }
        let token =
            |digest: &str, choice: &str| self.bot.callback(&self.launch.profile, digest, choice);
        let Some(found) = find(requests, &pressed.data, token) else {
            if list == List::PerhapsOlder {
                return Ok(Handled::AskAgain);
            }
            self.acknowledge(pressed, NOT_ACTIVE);
            return Ok(Handled::Done);
        };
        if let Some(input) = found.input {
            self.ask_for_text(pressed, &found, input);
            return Ok(Handled::Done);
        }
        let response = Response {
            choice: found.choice.to_owned(),
            input: None,
        };
        let key = format!("telegram:{}:callback:{}", self.launch.profile, pressed.id);
        let outcome = self.answer(AnswerReport {
            decision_id: found.request.decision_id.clone(),
            request_digest: found.request.request_digest.clone(),
            response,
            actor_id: pressed.user.clone(),
            chat_id: pressed.chat.clone(),
            event_id: pressed.id.clone(),
            idempotency_key: key,
            cursor: behind,
        })?;
        // Only now: whoever reads "received" can rely on it.
        self.acknowledge(pressed, words(outcome));
        Ok(Handled::Done)
    }

    fn replied(
        &mut self,
        reply: &Reply,
        behind: u64,
        requests: &[OpenRequest],
        list: List,
    ) -> Result<Handled, Exit> {
        let is_to_this_bot = reply.to.is_bot && Some(reply.to.sender) == self.bot_id;
        if !is_to_this_bot || !self.may_answer(&reply.user, &reply.chat) {
            return Ok(Handled::Done);
        }
        // The last one: a prompt may itself hold these words.
        let Some((_, given)) = reply.to.text.rsplit_once(render::REPLY_TOKEN) else {
            return Ok(Handled::Done);
        };
        let token =
            |digest: &str, choice: &str| self.bot.reply(&self.launch.profile, digest, choice);
        let found = find(requests, given.trim_end(), token);
        let Some((found, input)) = found.and_then(|found| Some((found, found.input?))) else {
            if list == List::PerhapsOlder {
                return Ok(Handled::AskAgain);
            }
            self.say_in_reply(reply, NOT_ACTIVE);
            return Ok(Handled::Done);
        };
        // The text goes as it was written: what its length may be is the host's to judge.
        let response = Response {
            choice: found.choice.to_owned(),
            input: Some(BTreeMap::from([(input.name.clone(), reply.text.clone())])),
        };
        // Message numbers repeat between chats and may equal the name of a press, so that all of it is needed.
        let event_id = format!("{}:{}", reply.chat, reply.message);
        let key = format!("telegram:{}:reply:{event_id}", self.launch.profile);
        let outcome = self.answer(AnswerReport {
            decision_id: found.request.decision_id.clone(),
            request_digest: found.request.request_digest.clone(),
            response,
            actor_id: reply.user.clone(),
            chat_id: reply.chat.clone(),
            event_id,
            idempotency_key: key,
            cursor: behind,
        })?;
        self.say_in_reply(reply, words(outcome));
        Ok(Handled::Done)
    }

    fn answer(&mut self, report: AnswerReport) -> Result<Option<AnswerOutcome>, Exit> {
        let id = answer_id(&self.launch.profile, &report.decision_id, &report.event_id);
        let response = self.talk.tell(&self.launch, id, Report::Answer(report))?;
        Ok(response.answer)
    }

    /// The person's client opens a reply; nothing is answered yet. A second prompt does no harm: it has the same token.
    fn ask_for_text(&mut self, pressed: &Callback, found: &Found<'_>, input: &TextInput) {
        let digest = &found.request.request_digest;
        let token = self.bot.reply(&self.launch.profile, digest, found.choice);
        self.owe(Owed::Prompt {
            callback: pressed.id.clone(),
            chat: pressed.chat.clone(),
            text: render::prompt(&input.prompt, &token),
            since: self.settings.clock.monotonic(),
        });
    }

    fn acknowledge(&mut self, pressed: &Callback, words: &'static str) {
        self.owe(Owed::Press {
            callback: pressed.id.clone(),
            words,
            since: self.settings.clock.monotonic(),
        });
    }

    fn say_in_reply(&mut self, reply: &Reply, words: &'static str) {
        self.owe(Owed::Reply {
            chat: reply.chat.clone(),
            message: reply.message,
            words,
        });
    }

    /// Both must be listed: in a group anybody can press. An empty list is nobody.
    fn may_answer(&self, user: &str, chat: &str) -> bool {
        let lists = |list: &[String], id: &str| list.iter().any(|listed| listed == id);
        lists(&self.launch.allowed_user_ids, user) && lists(&self.launch.allowed_chat_ids, chat)
    }
}

/// What a person reads about a token that names nothing which is open.
const NOT_ACTIVE: &str = "This is no longer active.";

/// What a person reads about an answer.
fn words(outcome: Option<AnswerOutcome>) -> &'static str {
    match outcome {
        Some(AnswerOutcome::Received) => "Received.",
        Some(AnswerOutcome::AlreadyDecided) => "Already decided.",
        Some(AnswerOutcome::Expired) => "The time for an answer has passed.",
        Some(AnswerOutcome::Paused) => {
            "Not accepted: the run is paused. Answer again when it goes on."
        }
        Some(AnswerOutcome::Requester) => {
            "Not accepted: another person than the one who started the run has to answer."
        }
        Some(AnswerOutcome::UnknownPerson) => {
            "Not accepted: another person has to answer, and it is not known here who you are."
        }
        Some(AnswerOutcome::NotAccepted) | None => "Not accepted.",
    }
}

/// The request and choice whose token was given. Every one is compared, each in constant time, so that the time tells nothing.
fn find<'a>(
    requests: &'a [OpenRequest],
    given: &str,
    token: impl Fn(&str, &str) -> String,
) -> Option<Found<'a>> {
    let mut found = None;
    for request in requests {
        for (id, choice) in &request.choices {
            let expected = token(&request.request_digest, id);
            if expected.as_bytes().ct_eq(given.as_bytes()).into() {
                found = Some(Found {
                    request,
                    choice: id,
                    input: choice.input.as_ref(),
                });
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_doubles_to_a_minute_and_is_never_shorter_than_wanted() {
        let mut backoff = Backoff::default();
        let now = MonotonicMillis(5);
        let mut waits = Vec::new();
        for retry_after in [
            None,
            None,
            Some(1),
            Some(7),
            None,
            None,
            None,
            None,
            Some(90),
        ] {
            backoff.failed(now, ErrorCode::TelegramConflict, retry_after);
            waits.push(backoff.left(now).map(|(left, _)| left.as_millis()).unwrap());
        }
        assert_eq!(
            waits,
            [
                1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000, 90_000
            ]
        );
        assert!(backoff.left(MonotonicMillis(90_005)).is_none());
        backoff.failed(now, ErrorCode::TelegramConflict, Some(u64::MAX));
        assert!(backoff.left(MonotonicMillis(u64::MAX - 1)).is_some());
    }
}
