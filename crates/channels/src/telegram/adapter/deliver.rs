//! Showing a request: every part to every allowed chat, and nothing twice (channels reference, section 7).
//!
//! Not here: trying again. A delivery stops at the first part that is not confirmed, and its report says how far it came.

use std::collections::BTreeMap;
use std::io::Write;

use super::super::api::{Failure, Markup};
use super::super::render;
use super::{Child, Exit};
use crate::identity::part_id;
use crate::protocol::{
    ChannelRequest, ErrorCode, MessageRef, OpenRequest, Order, PresentReport, Report, SendState,
};

/// Why a delivery stopped.
struct Stopped {
    state: SendState,
    code: ErrorCode,
    retry_after: Option<u64>,
}

impl Stopped {
    fn failed(code: ErrorCode) -> Self {
        Self {
            state: SendState::Failed,
            code,
            retry_after: None,
        }
    }
}

impl From<Failure> for Stopped {
    fn from(failure: Failure) -> Self {
        let state = match failure {
            Failure::NotSent | Failure::Refused(_) => SendState::Failed,
            Failure::Unknown => SendState::Unknown,
        };
        Self {
            state,
            code: failure.code(),
            retry_after: failure.retry_after_s(),
        }
    }
}

impl<O: Write, D: Write> Child<'_, O, D> {
    /// Sends what is missing of a request, and reports how that ended.
    pub(super) fn present(
        &mut self,
        attempt_id: String,
        request: &ChannelRequest,
        mut messages: Vec<MessageRef>,
    ) -> Result<Option<Order>, Exit> {
        let stopped = self.send(&attempt_id, request, &mut messages)?;
        let (state, error_code, retry_after) = match stopped {
            None => (SendState::Confirmed, None, None),
            Some(stopped) => {
                self.diagnostics
                    .say(&format!("a delivery stopped: {}", stopped.code));
                (stopped.state, Some(stopped.code), stopped.retry_after)
            }
        };
        let report = Report::Present(PresentReport {
            decision_id: request.decision_id.to_string(),
            request_digest: request.request_digest.to_string(),
            attempt_id: attempt_id.clone(),
            state,
            messages,
            error_code,
            retry_after,
        });
        Ok(self.talk.ask(&self.launch, attempt_id, report)?.command)
    }

    /// Sends part after part; `messages` grows with each that is confirmed.
    fn send(
        &mut self,
        attempt_id: &str,
        request: &ChannelRequest,
        messages: &mut Vec<MessageRef>,
    ) -> Result<Option<Stopped>, Exit> {
        let Ok(parts) = render::render(request) else {
            return Ok(Some(Stopped::failed(ErrorCode::PresentationTooLong)));
        };
        let mut chats = self.launch.allowed_chat_ids.clone();
        chats.sort_unstable();
        if chats.is_empty() {
            // Nobody would see it, so it must not count as shown.
            return Ok(Some(Stopped::failed(ErrorCode::TelegramRejected)));
        }
        let digests: Vec<_> = parts
            .iter()
            .map(|part| render::content_digest(&part.text))
            .collect();
        let known: BTreeMap<_, _> = messages
            .iter()
            .map(|message| {
                (
                    (message.chat_id.clone(), message.part_index),
                    message.content_digest.clone(),
                )
            })
            .collect();
        // All evidence before the first send: what was shown must be what is shown now.
        let differs = known.iter().any(|((_, part), digest)| {
            usize::try_from(*part)
                .ok()
                .and_then(|part| digests.get(part))
                != Some(digest)
        });
        if differs {
            return Ok(Some(Stopped {
                state: SendState::Unknown,
                code: ErrorCode::TelegramPartEvidenceMismatch,
                retry_after: None,
            }));
        }
        let buttons = render::buttons(&OpenRequest::of(request), &self.launch.profile, &self.bot);
        for (recipient, chat) in (0..).zip(&chats) {
            for (number, (part, digest)) in (0_u32..).zip(parts.iter().zip(&digests)) {
                if known.contains_key(&(chat.clone(), number)) {
                    continue;
                }
                let is_last = usize::try_from(number).is_ok_and(|number| number + 1 == parts.len());
                let markup = if is_last {
                    Markup::Buttons(buttons.clone())
                } else {
                    Markup::None
                };
                let message_id = match self.api.send_message(chat, &part.text, &markup) {
                    Ok(message_id) => message_id,
                    Err(failure) => return Ok(Some(failure.into())),
                };
                let message = MessageRef {
                    chat_id: chat.clone(),
                    message_id,
                    recipient_index: recipient,
                    part_index: number,
                    content_digest: digest.clone(),
                };
                messages.push(message.clone());
                // The host knows of this part before the next one leaves: a crash in between is no doubt about it.
                let report = Report::Part {
                    decision_id: request.decision_id.to_string(),
                    request_digest: request.request_digest.to_string(),
                    attempt_id: attempt_id.to_owned(),
                    message,
                };
                let id = part_id(attempt_id, recipient, number);
                self.talk.tell(&self.launch, id, report)?;
            }
        }
        Ok(None)
    }
}
