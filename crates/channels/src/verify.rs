//! What must hold for the rows of this domain at every commit: each rule a SELECT of what breaks it. Names and rules are those of the
//! channels reference, section 15.
//!
//! C5, C6 and C16 are rules of the kernel about every effect and resource (`X2`, `X3`, `eventsGapFree`) and hold for these too.

use holdpoint_state::schema::Invariant;

macro_rules! invariants {
    ($($name:literal, $summary:literal, $violations:literal;)*) => {
        /// All invariants of the domain; its docs page names each.
        pub(crate) const INVARIANTS: &[Invariant] = &[$(Invariant { name: $name, summary: $summary, violations: $violations }),*];
    };
}

invariants! {
    "C1", "Each channel is a resource of the type channel with the same name, and each such resource has its row.",
    "SELECT r.aggregate_key FROM resources r LEFT JOIN channels c ON c.resource_key = r.resource_key
     WHERE (r.resource_type = 'channel') <> (c.resource_key IS NOT NULL) OR (c.channel_id IS NOT NULL AND c.channel_id <> r.aggregate_key)";
    "C2", "A channel has one spelling.",
    "SELECT channel_id FROM channels WHERE (adapter_type = 'telegram' AND channel_id <> 'telegram:' || profile_key)
         OR (adapter_type = 'pi' AND channel_id <> 'pi')";
    "C3", "A cursor is a decimal number.",
    "SELECT c.channel_id FROM channel_cursors k JOIN channels c ON c.resource_key = k.channel_key
     WHERE k.cursor_key = 'telegram_update' AND k.cursor_value GLOB '*[^0-9]*'";
    "C4", "An effect of a channel comes from a channel, has a known type, and is its own key.",
    "SELECT hex(q.aggregate_key) FROM effects e JOIN resources r ON r.resource_key = e.source_key
     JOIN resources q ON q.resource_key = e.resource_key
     WHERE e.owner_scope = 'channel' AND (r.resource_type <> 'channel'
         OR (e.effect_type <> 'channel.delivery' AND e.effect_type <> 'channel.settlement')
         OR e.idempotency_key <> 'effect-' || lower(hex(q.aggregate_key)))";
    "C7", "What an older host left in flight was found when the next one started, and no attempt names a host that never was.",
    "SELECT c.channel_id FROM effects e JOIN channels c ON c.resource_key = e.source_key
     JOIN effect_attempts a ON a.resource_key = e.resource_key AND a.attempt_number = e.attempt_count
     LEFT JOIN resources h ON h.resource_type = 'channel_host' AND h.aggregate_key = c.channel_id
     LEFT JOIN leases l ON l.resource_key = h.resource_key
     WHERE e.owner_scope = 'channel' AND (coalesce(l.generation, 0) < a.lease_generation
         OR (e.status = 'applying' AND a.lease_generation < l.generation))";
    "C8", "What was done has its confirmed record.",
    "SELECT e.idempotency_key FROM effects e WHERE e.owner_scope = 'channel' AND e.status = 'applied'
         AND NOT EXISTS (SELECT 1 FROM channel_messages m WHERE m.effect_key = e.resource_key AND m.status = 'confirmed')";
    "C9", "What has a confirmed record was done.",
    "SELECT m.message_id FROM channel_messages m JOIN effects e ON e.resource_key = m.effect_key
     WHERE m.status = 'confirmed' AND e.status <> 'applied'";
    "C10", "Nothing is settled before its decision has ended.",
    "SELECT m.message_id FROM channel_messages m WHERE m.purpose = 'settlement' AND NOT EXISTS (
         SELECT 1 FROM human_decisions d JOIN human_decision_resolutions r ON r.decision_key = d.resource_key
         WHERE d.decision_id = m.decision_id)";
    "C11", "Nothing is settled that is not confirmed to be shown.",
    "SELECT m.message_id FROM channel_messages m WHERE m.purpose = 'settlement' AND NOT EXISTS (
         SELECT 1 FROM channel_messages d WHERE d.channel_key = m.channel_key AND d.decision_id = m.decision_id
             AND d.purpose = 'delivery' AND d.status = 'confirmed')";
    "C12", "A decision is settled once in a channel.",
    "SELECT decision_id FROM channel_messages WHERE purpose = 'settlement' AND status = 'confirmed'
     GROUP BY channel_key, decision_id HAVING count(*) > 1";
    "C13", "An answer that came through a channel came through one that there is.",
    "SELECT s.submission_id FROM human_decision_submissions s LEFT JOIN channels c ON c.channel_id = s.channel
     WHERE s.source = 'channel' AND c.channel_id IS NULL";
    "C14", "Records, parts, reports and what is shown name decisions that there are.",
    "SELECT n.decision_id FROM (SELECT decision_id FROM channel_messages UNION SELECT decision_id FROM channel_message_parts
         UNION SELECT decision_id FROM channel_inbox UNION SELECT decision_id FROM channel_shown) n
     LEFT JOIN human_decisions d ON d.decision_id = n.decision_id WHERE d.decision_id IS NULL";
    "C15", "Only adapters, hosts, people and the system touch a channel.",
    "SELECT v.event_seq FROM events v JOIN resources r ON r.resource_key = v.resource_key
     WHERE r.resource_type = 'channel' AND v.actor_type <> 'channel' AND v.actor_type <> 'human' AND v.actor_type <> 'host'
         AND v.actor_type <> 'system'";
    "C17", "Nobody holds the lease of a channel: a host acts under its own.",
    "SELECT c.channel_id FROM channels c JOIN leases l ON l.resource_key = c.resource_key WHERE l.owner_id IS NOT NULL";
    "channelRecords", "An attempt has one record of its beginning, and one of its end once it has ended.",
    "SELECT e.idempotency_key FROM effects e WHERE e.owner_scope = 'channel' AND (
         e.attempt_count <> (SELECT count(*) FROM channel_messages m WHERE m.effect_key = e.resource_key AND m.status = 'pending')
         OR (SELECT count(*) FROM effect_attempts a WHERE a.resource_key = e.resource_key AND a.finished_at IS NOT NULL)
             <> (SELECT count(DISTINCT m.attempt_id) FROM channel_messages m WHERE m.effect_key = e.resource_key AND m.status <> 'pending'))";
    "channelShown", "What is shown was confirmed, and is not settled.",
    "SELECT s.decision_id FROM channel_shown s WHERE NOT EXISTS (
         SELECT 1 FROM channel_messages m WHERE m.channel_key = s.channel_key AND m.decision_id = s.decision_id
             AND m.purpose = 'delivery' AND m.status = 'confirmed')
         OR EXISTS (SELECT 1 FROM channel_messages m WHERE m.channel_key = s.channel_key AND m.decision_id = s.decision_id
             AND m.purpose = 'settlement' AND m.status = 'confirmed')";
}
