//! What adapters reported about decisions, so that a repeat is known and never applied again.
#![expect(
    clippy::disallowed_methods,
    reason = "store room: may ask Change for SQL"
)]

use holdpoint_state::records::resources::expect_one;
use holdpoint_state::sql::{OptionalExtension as _, named_params};
use holdpoint_state::{Change, Digest, Payload, StateError};

use crate::protocol::AnswerOutcome;

/// What there is of an earlier report with the same name.
pub(crate) struct Earlier {
    pub(crate) payload: Digest,
    pub(crate) answer: Option<AnswerOutcome>,
}

/// A report that is taken.
pub(crate) struct NewReport<'a> {
    pub(crate) stable_message_id: &'a str,
    pub(crate) kind: &'static str,
    pub(crate) decision_id: &'a str,
    pub(crate) external_event_id: Option<&'a str>,
    pub(crate) payload: &'a Payload,
    pub(crate) answer: Option<AnswerOutcome>,
}

/// The earlier report of that name to this change's channel.
pub(crate) fn fetch(
    change: &mut Change<'_>,
    stable_message_id: &str,
) -> Result<Option<Earlier>, StateError> {
    let key = change.resource_key()?;
    let found = change
        .sql()
        .prepare_cached(
            "SELECT payload_hash, result FROM channel_inbox WHERE channel_key = :key AND stable_message_id = :id",
        )?
        .query_row(named_params! { ":key": key, ":id": stable_message_id }, |row| {
            Ok(Earlier { payload: row.get(0)?, answer: row.get::<_, Option<String>>(1)?.and_then(|word| outcome(&word)) })
        })
        .optional()?;
    Ok(found)
}

/// Writes a report of this change's channel. Its name was looked for in this very transaction.
pub(crate) fn insert(change: &mut Change<'_>, report: &NewReport<'_>) -> Result<(), StateError> {
    let key = change.resource_key()?;
    let payload = change.put_blob(report.payload)?;
    let now = change.now();
    let written = change
        .sql()
        .prepare_cached(
            "INSERT INTO channel_inbox (channel_key, stable_message_id, kind, decision_id, external_event_id, payload_hash, result, received_at)
             VALUES (:key, :id, :kind, :decision, :event, :payload, :result, :now)",
        )?
        .execute(named_params! {
            ":key": key, ":id": report.stable_message_id, ":kind": report.kind, ":decision": report.decision_id,
            ":event": report.external_event_id, ":payload": payload, ":result": report.answer.map(word), ":now": now,
        })?;
    expect_one(written, "channel_inbox", report.stable_message_id)
}

const OUTCOMES: [(AnswerOutcome, &str); 7] = [
    (AnswerOutcome::Received, "received"),
    (AnswerOutcome::AlreadyDecided, "alreadyDecided"),
    (AnswerOutcome::Expired, "expired"),
    (AnswerOutcome::Paused, "paused"),
    (AnswerOutcome::Requester, "requester"),
    (AnswerOutcome::UnknownPerson, "unknownPerson"),
    (AnswerOutcome::NotAccepted, "notAccepted"),
];

fn word(answer: AnswerOutcome) -> &'static str {
    OUTCOMES
        .iter()
        .find(|(outcome, _)| *outcome == answer)
        .map_or("", |(_, word)| word)
}

fn outcome(word: &str) -> Option<AnswerOutcome> {
    OUTCOMES
        .iter()
        .find(|(_, text)| *text == word)
        .map(|(outcome, _)| *outcome)
}
