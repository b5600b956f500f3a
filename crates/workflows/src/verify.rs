//! What must hold for the rows of this domain at every commit: the checks of the workflows reference, section 11, and those of
//! the effects reference that concern runs. Each is one SELECT that names the rows that break it.
//!
//! The reference excuses a terminal run whose queue a pending `run.settle_queue` effect will settle. Here both are one
//! transaction, so that there is nothing to excuse. A run parked for an ambiguous effect waits without a request; that is the
//! one exception of `waitingRequest`, and `X17a` sees that such an effect exists or was resolved.

use holdpoint_state::schema::Invariant;

/// All invariants of the domain.
pub(crate) const INVARIANTS: &[Invariant] = &[
    Invariant {
        name: "queueState",
        summary: "A run is over exactly when its queue row is settled, and in the way that its status says.",
        violations: "SELECT r.run_id FROM runs r LEFT JOIN run_queue q ON q.run_key = r.resource_key
             WHERE (r.finished_at IS NOT NULL OR q.status IN ('done', 'failed', 'cancelled'))
                 AND (r.status, q.status) NOT IN (VALUES ('completed', 'done'), ('failed', 'failed'),
                     ('timed_out', 'failed'), ('cancelled', 'cancelled'))",
    },
    Invariant {
        name: "waitingRequest",
        summary: "A waiting run has a pending request or an accepted answer that is not used yet, unless it waits for the review \
                  of an effect, or for what the domain does next that took its request back.",
        violations: "SELECT r.run_id FROM runs r JOIN run_queue k ON k.run_key = r.resource_key
             WHERE r.status = 'waiting' AND k.error_code IS NOT 'effectAmbiguous' AND NOT EXISTS (
                 SELECT 1 FROM interactive_requests q WHERE q.run_key = r.resource_key
                     AND (q.status = 'pending' OR (q.status = 'settled' AND q.consumed_at IS NULL)
                         OR (q.status = 'cancelled' AND (q.kind = 'decision' OR q.kind = 'external') AND q.attempt_key IN (
                             SELECT a.attempt_key FROM node_attempts a
                             WHERE a.run_key = r.resource_key AND a.status = 'waiting'))))",
    },
    Invariant {
        name: "waker",
        summary: "An open run has a queue row, which a scheduler reads, and if a code holds it back it is one that a resume lifts.",
        violations: "SELECT r.run_id FROM runs r LEFT JOIN run_queue q ON q.run_key = r.resource_key
             WHERE r.finished_at IS NULL AND (q.run_key IS NULL OR (q.error_code IS NOT NULL
                 AND q.error_code NOT IN ('workflowSourceChanged', 'runnerNoProgress', 'effectAmbiguous', 'settingsHistoryBroken')))",
    },
    Invariant {
        name: "pendingRequest",
        summary: "A pending request belongs to an open attempt of its own run, and the run goes on.",
        violations: "SELECT r.run_id FROM interactive_requests q
             JOIN runs r ON r.resource_key = q.run_key
             JOIN node_attempts a ON a.attempt_key = q.attempt_key
             WHERE q.status = 'pending' AND (a.run_key <> q.run_key
                 OR a.status NOT IN ('pending', 'running', 'waiting', 'interrupted')
                 OR r.status NOT IN ('running', 'waiting'))",
    },
    Invariant {
        name: "acceptedRequest",
        summary: "A settled request names an accepted submission of its own.",
        violations: "SELECT r.run_id FROM interactive_requests q JOIN runs r ON r.resource_key = q.run_key
             WHERE q.status = 'settled' AND NOT EXISTS (
                 SELECT 1 FROM interactive_submissions s WHERE s.submission_id = q.accepted_submission_id
                     AND s.request_key = q.request_key AND s.outcome = 'accepted')",
    },
    Invariant {
        name: "activeClock",
        summary: "A clock runs only for an open attempt with a budget, of a run that goes on and is not paused.",
        violations: "SELECT r.run_id FROM attempt_active_intervals i
             JOIN node_attempts a ON a.attempt_key = i.attempt_key
             JOIN runs r ON r.resource_key = a.run_key
             WHERE i.ended_at IS NULL AND (r.paused = 1 OR r.status NOT IN ('running', 'waiting')
                 OR a.status NOT IN ('pending', 'running', 'waiting') OR a.timeout_ms IS NULL)",
    },
    Invariant {
        name: "sessionTurns",
        summary: "A session has one model turn at most that goes on.",
        violations: "SELECT r.run_id FROM workflow_turns t JOIN runs r ON r.resource_key = t.run_key
             WHERE t.state = 'started' AND 1 < (SELECT count(*) FROM workflow_turns o
                 WHERE o.target_session_id = t.target_session_id AND o.state = 'started')",
    },
    Invariant {
        name: "validatingRequest",
        summary: "A candidate is looked at for a pending request only, one at a time, and nothing holds the look back but a pause.",
        violations: "SELECT r.run_id FROM interactive_submissions s
             JOIN interactive_requests q ON q.request_key = s.request_key
             JOIN runs r ON r.resource_key = q.run_key
             JOIN run_queue k ON k.run_key = q.run_key
             WHERE s.outcome = 'validating' AND (q.status <> 'pending' OR k.error_code IS NOT NULL
                 OR 1 < (SELECT count(*) FROM interactive_submissions o
                     WHERE o.request_key = s.request_key AND o.outcome = 'validating'))",
    },
    Invariant {
        name: "sessionMessages",
        summary: "A request that waits in a session has a message there, and one that waits no more has none to be shown; the end of \
                  a run is told or owed.",
        violations: "SELECT r.run_id FROM interactive_requests q
             JOIN runs r ON r.resource_key = q.run_key
             JOIN run_bindings b ON b.run_key = q.run_key
             WHERE b.execution_mode = 'interactive' AND q.kind <> 'external' AND CASE q.status
                 WHEN 'pending' THEN NOT EXISTS (SELECT 1 FROM workflow_messages m
                     WHERE m.source_id = q.request_id AND m.kind IN ('step', 'decision'))
                 ELSE EXISTS (SELECT 1 FROM workflow_messages m
                     WHERE m.source_id = q.request_id AND m.kind IN ('step', 'decision') AND m.status = 'pending') END
             UNION ALL
             SELECT r.run_id FROM runs r JOIN run_bindings b ON b.run_key = r.resource_key
             WHERE b.owes_terminal_message <> (r.finished_at IS NOT NULL AND b.execution_mode = 'interactive'
                 AND NOT EXISTS (SELECT 1 FROM workflow_messages m WHERE m.run_key = r.resource_key AND m.kind = 'terminal'))",
    },
    Invariant {
        name: "nothingOpen",
        summary: "Nothing stays open under a run that is over: attempts, requests, candidate answers, turns, messages that ask, its \
                  lease.",
        violations: "SELECT r.run_id FROM runs r WHERE r.finished_at IS NOT NULL AND (
                 EXISTS (SELECT 1 FROM node_attempts a WHERE a.run_key = r.resource_key AND a.finished_at IS NULL)
                 OR EXISTS (SELECT 1 FROM interactive_requests q WHERE q.run_key = r.resource_key
                     AND (q.status = 'pending' OR (q.status = 'settled' AND q.consumed_at IS NULL)))
                 OR EXISTS (SELECT 1 FROM interactive_requests q JOIN interactive_submissions s ON s.request_key = q.request_key
                     WHERE q.run_key = r.resource_key AND s.outcome = 'validating')
                 OR EXISTS (SELECT 1 FROM workflow_turns t WHERE t.run_key = r.resource_key AND t.state = 'started'
                     AND t.message_key IN (SELECT m.message_key FROM workflow_messages m
                         WHERE m.run_key = r.resource_key AND m.kind <> 'followUp'))
                 OR EXISTS (SELECT 1 FROM workflow_messages m WHERE m.run_key = r.resource_key AND m.status = 'pending'
                     AND (m.kind IN ('step', 'decision') OR (m.kind = 'followUp' AND r.status <> 'completed')))
                 OR EXISTS (SELECT 1 FROM leases l WHERE l.resource_key = r.resource_key AND l.owner_id IS NOT NULL))",
    },
    Invariant {
        name: "contiguousSteps",
        summary: "The steps of a run are numbered from 0 without a gap, and each is a finished attempt of that run.",
        violations: "SELECT r.run_id FROM runs r WHERE EXISTS (
                 SELECT 1 FROM run_steps s WHERE s.run_key = r.resource_key
                 GROUP BY s.run_key HAVING count(*) <> max(s.step_index) + 1)
             OR EXISTS (SELECT 1 FROM run_steps s JOIN node_attempts a ON a.attempt_key = s.attempt_key
                 WHERE s.run_key = r.resource_key AND (a.run_key <> s.run_key OR a.finished_at IS NULL))",
    },
    Invariant {
        name: "updateCounts",
        summary: "The updates of an attempt are numbered from 1 without a gap, and each says how many pairs of type and key had a \
                  value with it.",
        violations: "SELECT r.run_id FROM workflow_updates u JOIN node_attempts a ON a.attempt_key = u.attempt_key
             JOIN runs r ON r.resource_key = a.run_key
             GROUP BY u.attempt_key
             HAVING count(*) <> max(u.update_seq) OR max(u.pair_count) <> count(DISTINCT u.update_type || ' ' || u.update_key)
                 OR min(u.run_revision) < 1 OR count(DISTINCT u.run_revision) <> count(*)",
    },
    Invariant {
        name: "followUps",
        summary: "A follow-up is queued only for a run that goes on or completed; each has the one message of its session, which is \
                  not to be shown any more once it is removed or cancelled.",
        violations: "SELECT r.run_id FROM workflow_follow_ups f JOIN runs r ON r.resource_key = f.run_key
             WHERE (f.status = 'queued' AND r.finished_at IS NOT NULL AND r.status <> 'completed')
                 OR 1 <> (SELECT count(*) FROM workflow_messages m WHERE m.source_id = f.follow_up_id AND m.kind = 'followUp'
                     AND m.run_key = f.run_key AND m.target_session_id = f.target_session_id)
                 OR (f.status <> 'queued' AND EXISTS (SELECT 1 FROM workflow_messages m
                     WHERE m.source_id = f.follow_up_id AND m.kind = 'followUp' AND m.status = 'pending'))",
    },
    Invariant {
        name: "captureCounts",
        summary: "A recording counts its entries and its events, which are numbered from 1 without a gap, and its links are of attempts \
                  of its run.",
        violations: "SELECT r.run_id FROM session_segments s JOIN runs r ON r.resource_key = s.run_key WHERE
                 (s.entry_count, s.entry_count) IS NOT (SELECT count(*), coalesce(max(e.entry_seq), 0) FROM session_entries e
                     WHERE e.segment_key = s.resource_key AND e.run_key = s.run_key)
                 OR (s.event_count, s.event_count) IS NOT (SELECT count(*), coalesce(max(e.event_seq), 0) FROM session_events e
                     WHERE e.segment_key = s.resource_key AND e.run_key = s.run_key)
                 OR EXISTS (SELECT 1 FROM attempt_entries l JOIN node_attempts a ON a.attempt_key = l.attempt_key
                     WHERE l.segment_key = s.resource_key AND a.run_key <> s.run_key)",
    },
    Invariant {
        name: "captureSequence",
        summary: "The entries of all recordings of a run are numbered from 1 without a gap, and so are the events.",
        violations: "SELECT r.run_id FROM session_entries e JOIN runs r ON r.resource_key = e.run_key
             GROUP BY e.run_key HAVING count(*) <> max(e.run_seq)
             UNION ALL
             SELECT r.run_id FROM session_events e JOIN runs r ON r.resource_key = e.run_key
             GROUP BY e.run_key HAVING count(*) <> max(e.run_seq)",
    },
    Invariant {
        name: "pausedIsParked",
        summary: "Nobody holds a paused run: it is parked and its lease is free or expired.",
        violations: "SELECT r.run_id FROM runs r JOIN run_queue q ON q.run_key = r.resource_key
             LEFT JOIN leases l ON l.resource_key = r.resource_key
             WHERE r.paused = 1 AND (q.status <> 'parked' OR l.owner_id IS NOT NULL)",
    },
    Invariant {
        name: "settingsHistory",
        summary: "The changes of a settings scope are numbered from 1 without a gap; the first began with the initial document, each \
                  later one with what the one before it left, and the last left the present document.",
        violations: "SELECT s.scope_id FROM workflow_settings s WHERE
                 s.change_number <> (SELECT count(*) FROM workflow_setting_changes c WHERE c.scope_key = s.resource_key)
                 OR s.change_number <> (SELECT coalesce(max(c.change_number), 0) FROM workflow_setting_changes c
                     WHERE c.scope_key = s.resource_key)
                 OR s.current_hash IS NOT coalesce((SELECT c.after_hash FROM workflow_setting_changes c
                     WHERE c.scope_key = s.resource_key AND c.change_number = s.change_number), s.initial_hash)
                 OR EXISTS (SELECT 1 FROM workflow_setting_changes c WHERE c.scope_key = s.resource_key
                     AND c.before_hash IS NOT coalesce((SELECT p.after_hash FROM workflow_setting_changes p
                         WHERE p.scope_key = c.scope_key AND p.change_number = c.change_number - 1), s.initial_hash))",
    },
    Invariant {
        name: "settingsRevision",
        summary: "The revision of a settings scope is its change number and one for its making.",
        violations: "SELECT s.scope_id FROM workflow_settings s JOIN resources r ON r.resource_key = s.resource_key
             WHERE r.revision <> s.change_number + 1",
    },
    Invariant {
        name: "settingsBinding",
        summary: "An attempt is bound to a document that a scope of its own run had at that change number.",
        violations: "SELECT a.attempt_id FROM node_attempts a
             JOIN workflow_settings s ON s.resource_key = a.settings_scope_key
             WHERE s.active_run_key <> a.run_key OR a.settings_change_number > s.change_number
                 OR a.settings_hash IS NOT coalesce((SELECT c.after_hash FROM workflow_setting_changes c
                     WHERE c.scope_key = s.resource_key AND c.change_number = a.settings_change_number), s.initial_hash)",
    },
    Invariant {
        name: "workerGeneration",
        summary: "No worker process is of a later generation than the lease of its run.",
        violations: "SELECT r.run_id FROM run_workers w JOIN runs r ON r.resource_key = w.run_key
             LEFT JOIN leases l ON l.resource_key = w.run_key
             WHERE l.generation IS NULL OR l.generation < w.generation",
    },
    Invariant {
        name: "workerMessages",
        summary: "An accepted message of a worker process made a revision that its run has, and a worker that had one accepted began.",
        violations: "SELECT r.run_id FROM worker_messages m JOIN run_workers w ON w.worker_key = m.worker_key
             JOIN runs r ON r.resource_key = w.run_key JOIN resources s ON s.resource_key = w.run_key
             WHERE m.outcome = 'accepted' AND (s.revision < m.accepted_revision OR w.pid IS NULL)",
    },
    Invariant {
        name: "X14",
        summary: "A run that is over has no effect still to do.",
        violations: "SELECT r.run_id FROM effects e JOIN runs r ON r.resource_key = e.source_key
             WHERE r.finished_at IS NOT NULL AND e.status IN ('pending', 'applying')",
    },
    Invariant {
        name: "X16",
        summary: "An open run is not scheduled while one of its effects is ambiguous.",
        violations: "SELECT r.run_id FROM runs r JOIN run_queue q ON q.run_key = r.resource_key
             JOIN effects e ON e.source_key = r.resource_key
             WHERE e.status = 'ambiguous' AND q.status IN ('queued', 'starting', 'running') AND r.finished_at IS NULL",
    },
    Invariant {
        name: "X17a",
        summary: "A run that is parked for an ambiguous effect has, or had, an effect.",
        violations: "SELECT r.run_id FROM runs r JOIN run_queue q ON q.run_key = r.resource_key
             WHERE q.error_code = 'effectAmbiguous' AND q.status = 'parked'
                 AND NOT EXISTS (SELECT 1 FROM effects e WHERE e.source_key = r.resource_key)",
    },
];
