-- Closed sets are chains of equalities: see docs/STATE.md, Layout.
-- Decisions are named by their public id: their rows go with their run, and rows here that name them go with it too.

-- One row for each place where a decision may be shown. Its key is that of its resource.
CREATE TABLE channels (
    resource_key INTEGER PRIMARY KEY REFERENCES resources (resource_key),
    channel_id TEXT NOT NULL UNIQUE CHECK (channel_id <> ''),
    adapter_type TEXT NOT NULL CHECK (adapter_type = 'telegram' OR adapter_type = 'pi'),
    profile_key TEXT NOT NULL CHECK (profile_key <> ''),
    created_at INTEGER NOT NULL,
    -- The provider wants nothing shown or settled here before this instant. It only grows.
    quiet_until INTEGER,
    UNIQUE (adapter_type, profile_key)
) STRICT;

-- The next update of a provider that is to be read. It only grows.
CREATE TABLE channel_cursors (
    channel_key INTEGER NOT NULL REFERENCES channels (resource_key),
    cursor_key TEXT NOT NULL CHECK (cursor_key <> ''),
    cursor_value TEXT NOT NULL CHECK (cursor_value <> ''),
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (channel_key, cursor_key)
) STRICT, WITHOUT ROWID;

-- What an adapter reported about a decision, written in the transaction that acted on it, so that a repeat is known.
CREATE TABLE channel_inbox (
    channel_key INTEGER NOT NULL REFERENCES channels (resource_key),
    stable_message_id TEXT NOT NULL CHECK (stable_message_id <> ''),
    kind TEXT NOT NULL CHECK (kind = 'channel.part' OR kind = 'channel.present' OR kind = 'channel.answer' OR kind = 'channel.settle'),
    decision_id TEXT NOT NULL CHECK (decision_id <> ''),
    -- The provider's name of the event, for an answer.
    external_event_id TEXT,
    -- What was reported, without what differs between a report and its repeat.
    payload_hash BLOB NOT NULL REFERENCES blobs (blob_hash),
    -- What became of an answer.
    result TEXT CHECK (result = 'received' OR result = 'alreadyDecided' OR result = 'expired' OR result = 'paused'
        OR result = 'requester' OR result = 'unknownPerson' OR result = 'notAccepted'),
    received_at INTEGER NOT NULL,
    PRIMARY KEY (channel_key, stable_message_id),
    CHECK ((kind = 'channel.answer') = (external_event_id IS NOT NULL)),
    CHECK ((kind = 'channel.answer') = (result IS NOT NULL))
) STRICT;
-- For retention: what was reported about the decisions of a run.
CREATE INDEX channel_inbox_by_decision ON channel_inbox (decision_id);

-- The records of what was meant to be shown or settled, and what became of it. Append only.
CREATE TABLE channel_messages (
    message_key INTEGER PRIMARY KEY,
    message_id TEXT NOT NULL UNIQUE CHECK (message_id <> ''),
    channel_key INTEGER NOT NULL REFERENCES channels (resource_key),
    decision_id TEXT NOT NULL CHECK (decision_id <> ''),
    purpose TEXT NOT NULL CHECK (purpose = 'delivery' OR purpose = 'settlement'),
    effect_key INTEGER NOT NULL REFERENCES effects (resource_key),
    -- Names the attempt; an operator says this name.
    attempt_id TEXT NOT NULL CHECK (attempt_id <> ''),
    content_hash BLOB NOT NULL REFERENCES blobs (blob_hash),
    status TEXT NOT NULL CHECK (status = 'pending' OR status = 'confirmed' OR status = 'failed' OR status = 'ambiguous'),
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT;
-- For retention and verify: the records of a decision.
CREATE INDEX channel_messages_by_decision ON channel_messages (decision_id, purpose, created_at);
-- For store::messages::by_attempt: what an operator names, and what a lost adapter left.
CREATE INDEX channel_messages_by_attempt ON channel_messages (attempt_id);

-- Each part that a provider confirmed, written as it is confirmed. It is never sent again, and settlement finds it here.
CREATE TABLE channel_message_parts (
    channel_key INTEGER NOT NULL REFERENCES channels (resource_key),
    decision_id TEXT NOT NULL CHECK (decision_id <> ''),
    chat_id TEXT NOT NULL CHECK (chat_id <> ''),
    part_index INTEGER NOT NULL CHECK (0 <= part_index AND part_index < 20),
    recipient_index INTEGER NOT NULL CHECK (0 <= recipient_index),
    provider_message_id INTEGER NOT NULL CHECK (0 <= provider_message_id),
    content_digest TEXT NOT NULL CHECK (content_digest <> ''),
    confirmed_at INTEGER NOT NULL,
    -- For views::parts: where a decision is shown.
    PRIMARY KEY (channel_key, decision_id, chat_id, part_index)
) STRICT, WITHOUT ROWID;
-- For retention: the parts of a decision, whatever the channel.
CREATE INDEX channel_message_parts_by_decision ON channel_message_parts (decision_id);

-- What is shown and not settled. A row comes with the confirmation of a delivery and goes with the end of its settlement, so that a
-- scan reads what is open and nothing that is over.
CREATE TABLE channel_shown (
    channel_key INTEGER NOT NULL REFERENCES channels (resource_key),
    decision_id TEXT NOT NULL CHECK (decision_id <> ''),
    shown_at INTEGER NOT NULL,
    PRIMARY KEY (channel_key, decision_id)
) STRICT, WITHOUT ROWID;
-- For retention: whether a decision is shown anywhere.
CREATE INDEX channel_shown_by_decision ON channel_shown (decision_id);
