//! Taking the buttons off what was shown, once the decision has ended (channels reference, section 9).
//!
//! An edit that is repeated changes nothing, so every failure is one that may be tried again. What the decision became is told by
//! the buttons being gone; no further message is sent, because a send can end in doubt.
//!
//! Not here: trying again, and the decision, which does not depend on this.

use std::collections::BTreeMap;
use std::io::Write;

use super::super::api::{Failure, Reason};
use super::{Child, Exit};
use crate::protocol::{ChannelRequest, MessageRef, Order, Report, SendState, SettleReport};

impl<O: Write, D: Write> Child<'_, O, D> {
    /// Takes the buttons off in every chat, and reports how that ended.
    pub(super) fn settle(
        &mut self,
        attempt_id: String,
        request: &ChannelRequest,
        messages: &[MessageRef],
    ) -> Result<Option<Order>, Exit> {
        let failure = self.take_buttons_off(messages);
        if let Some(failure) = failure {
            self.diagnostics
                .say(&format!("a settlement failed: {}", failure.code()));
        }
        let report = Report::Settle(SettleReport {
            decision_id: request.decision_id.to_string(),
            request_digest: request.request_digest.to_string(),
            attempt_id: attempt_id.clone(),
            state: match failure {
                None => SendState::Confirmed,
                Some(_) => SendState::Failed,
            },
            error_code: failure.map(Failure::code),
            retry_after: failure.and_then(Failure::retry_after_s),
        });
        Ok(self.talk.ask(&self.launch, attempt_id, report)?.command)
    }

    /// The first failure, if there is one.
    fn take_buttons_off(&self, messages: &[MessageRef]) -> Option<Failure> {
        // The buttons are below the last part. Of a delivery that stopped, the last that is known may have none, and an edit of
        // that one changes nothing.
        let mut last: BTreeMap<&str, &MessageRef> = BTreeMap::new();
        for message in messages {
            let known = last.entry(&message.chat_id).or_insert(message);
            if known.part_index < message.part_index {
                *known = message;
            }
        }
        let mut first = None;
        for message in last.into_values() {
            let failure = match self
                .api
                .remove_buttons(&message.chat_id, message.message_id)
            {
                Ok(()) => continue,
                Err(Failure::Refused(refusal))
                    if matches!(
                        refusal.reason,
                        Reason::NotModified | Reason::MessageNotFound
                    ) =>
                {
                    continue;
                }
                Err(failure) => failure,
            };
            first = first.or(Some(failure));
            // Other chats may still work, unless the provider wants to be left alone or is not there.
            if failure == Failure::NotSent || failure.retry_after_s().is_some() {
                break;
            }
        }
        first
    }
}
