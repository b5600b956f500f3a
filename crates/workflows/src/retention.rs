//! Retention of runs: which runs stand and fall together, what holds them, and the 30 days that the automatic sweep keeps them.
//!
//! The rules are data for the kernel's machinery ([`holdpoint_state::maintenance::retention`]); higher domains add their own to
//! the same lists. The statements that delete are in `store`. Not here: when somebody has time for a sweep.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::Path;

use holdpoint_state::clock::UnixMillis;
use holdpoint_state::maintenance::retention::{PruneReport, RetentionPlan, SweepReport, Taking};
use holdpoint_state::schema::{Blocker, Crossing, Fault, Link, Retention};
use holdpoint_state::{Digest, StateError};

use crate::Workflows;
use crate::store;

/// How long the automatic sweep keeps a tree of runs after its last run ended, in milliseconds: 30 days.
pub const KEEP_MS: i64 = 30 * 24 * 60 * 60 * 1_000;

/// What this domain says of retention.
pub(crate) const RETENTION: Retention = Retention {
    members: Some(
        "SELECT resource_key AS member, run_id AS name, finished_at AS ended_at, root_key = resource_key AS is_root FROM runs",
    ),
    links: &[
        Link {
            pairs: "SELECT resource_key AS member, parent_key AS other FROM runs WHERE lineage_kind = 'restart'",
            grows: true,
        },
        // A run that gets a root gets a parent too, so that the link above is enough to see it come.
        Link {
            pairs: "SELECT resource_key AS member, root_key AS other FROM runs WHERE root_key <> resource_key",
            grows: false,
        },
    ],
    related: &[
        "SELECT run_key AS member, resource_key FROM session_segments",
        "SELECT active_run_key AS member, resource_key FROM workflow_settings",
        "SELECT run_key AS member, resource_key FROM workflow_follow_ups",
    ],
    facts: &[
        "SELECT run_key AS member, 'queue ' || run_key || ' ' || status || ' ' || available_at || ' ' || coalesce(finished_at, '')
         FROM run_queue",
    ],
    blockers: BLOCKERS,
    crossings: CROSSINGS,
    faults: &[
        Fault {
            name: "launchOptions",
            rows: "SELECT r.run_id FROM runs r
             WHERE (r.launch_options IS NOT NULL AND NOT json_valid(CAST(r.launch_options AS TEXT))) OR r.launch_options_hash IN (
                 SELECT o.hash FROM (SELECT DISTINCT launch_options_hash AS hash FROM runs WHERE launch_options_hash IS NOT NULL) o
                 LEFT JOIN blobs b ON b.blob_hash = o.hash
                 WHERE b.blob_hash IS NULL OR b.media_type <> 'application/json' OR NOT json_valid(CAST(b.content AS TEXT)))",
        },
        Fault {
            name: "lineage",
            rows: "SELECT r.run_id FROM runs r LEFT JOIN runs p ON p.resource_key = r.parent_key
                 LEFT JOIN runs t ON t.resource_key = r.root_key
                 WHERE t.resource_key IS NULL OR (r.parent_key IS NOT NULL
                     AND (p.resource_key IS NULL OR p.root_key <> r.root_key OR p.restart_number + 1 <> r.restart_number))",
        },
    ],
    deletions: store::retention::DELETIONS,
    orphans: store::retention::ORPHANS,
};

const BLOCKERS: &[Blocker] = &[
    Blocker {
        name: "queue",
        summary: "The queue has it still.",
        rows: "SELECT run_key AS member, status FROM run_queue
             WHERE status = 'queued' OR status = 'starting' OR status = 'running' OR status = 'parked'",
    },
    Blocker {
        name: "attempt",
        summary: "An attempt is not over.",
        rows: "SELECT run_key AS member, attempt_id || ' (' || status || ')' FROM node_attempts
             WHERE status = 'pending' OR status = 'running' OR status = 'waiting' OR status = 'interrupted'",
    },
    Blocker {
        name: "recording",
        summary: "A session of it is recorded still.",
        rows: "SELECT run_key AS member, segment_id FROM session_segments WHERE status = 'recording'",
    },
    Blocker {
        name: "pendingRequest",
        summary: "It waits for an answer.",
        rows: "SELECT run_key AS member, request_id FROM interactive_requests WHERE status = 'pending'",
    },
    Blocker {
        name: "pendingMessage",
        summary: "A session has not shown a message of it yet.",
        rows: "SELECT run_key AS member, workflow_message_id FROM workflow_messages WHERE status = 'pending'",
    },
    Blocker {
        name: "openTurn",
        summary: "A model turn that it owns goes on.",
        rows: "SELECT run_key AS member, workflow_turn_id FROM workflow_turns WHERE state = 'started'",
    },
    Blocker {
        name: "terminalMessage",
        summary: "Its origin session was never shown how it ended.",
        rows: "SELECT b.run_key AS member, b.origin_session_id FROM run_bindings b
             WHERE b.execution_mode = 'interactive' AND NOT EXISTS (
                 SELECT 1 FROM workflow_messages m WHERE m.run_key = b.run_key AND m.kind = 'terminal' AND m.status = 'sent')",
    },
    Blocker {
        name: "followUp",
        summary: "A follow-up was not delivered, removed or cancelled yet.",
        rows: "SELECT f.run_key AS member, f.follow_up_id FROM workflow_follow_ups f
             WHERE f.status = 'queued' AND NOT EXISTS (
                 SELECT 1 FROM workflow_messages m WHERE m.source_id = f.follow_up_id AND m.kind = 'followUp' AND m.status = 'sent')",
    },
];

/// References between runs that no command makes. One that leads out of a tree would be left without its end.
const CROSSINGS: &[Crossing] = &[
    Crossing {
        name: "step",
        summary: "A step is an attempt of a run outside of the tree.",
        pairs: "SELECT s.run_key AS member, a.run_key AS other, a.attempt_id
             FROM run_steps s JOIN node_attempts a ON a.attempt_key = s.attempt_key WHERE a.run_key <> s.run_key",
    },
    Crossing {
        name: "settings",
        summary: "A settings scope began in a run outside of the tree.",
        pairs: "SELECT active_run_key AS member, origin_run_key AS other, scope_id
             FROM workflow_settings WHERE origin_run_key <> active_run_key",
    },
    Crossing {
        name: "attemptSettings",
        summary: "An attempt reads the settings of a run outside of the tree.",
        pairs: "SELECT a.run_key AS member, s.active_run_key AS other, s.scope_id
             FROM node_attempts a JOIN workflow_settings s ON s.resource_key = a.settings_scope_key
             WHERE s.active_run_key <> a.run_key",
    },
    Crossing {
        name: "requestAttempt",
        summary: "A request belongs to an attempt outside of the tree.",
        pairs: "SELECT q.run_key AS member, a.run_key AS other, q.request_id
             FROM interactive_requests q JOIN node_attempts a ON a.attempt_key = q.attempt_key WHERE a.run_key <> q.run_key",
    },
    Crossing {
        name: "turnMessage",
        summary: "A turn shows a message of a run outside of the tree.",
        pairs: "SELECT t.run_key AS member, m.run_key AS other, t.workflow_turn_id
             FROM workflow_turns t JOIN workflow_messages m ON m.message_key = t.message_key WHERE m.run_key <> t.run_key",
    },
    Crossing {
        name: "segmentAttempt",
        summary: "A recording belongs to an attempt outside of the tree.",
        pairs: "SELECT s.run_key AS member, a.run_key AS other, s.segment_id
             FROM session_segments s JOIN node_attempts a ON a.attempt_key = s.attempt_key WHERE a.run_key <> s.run_key",
    },
    Crossing {
        name: "entrySegment",
        summary: "An entry lies in the recording of a run outside of the tree.",
        pairs: "SELECT e.run_key AS member, s.run_key AS other, e.entry_id
             FROM session_entries e JOIN session_segments s ON s.resource_key = e.segment_key WHERE s.run_key <> e.run_key",
    },
    Crossing {
        name: "eventSegment",
        summary: "An event lies in the recording of a run outside of the tree.",
        pairs: "SELECT e.run_key AS member, s.run_key AS other, e.event_seq
             FROM session_events e JOIN session_segments s ON s.resource_key = e.segment_key WHERE s.run_key <> e.run_key",
    },
    Crossing {
        name: "attemptEntry",
        summary: "An attempt names an entry of a run outside of the tree.",
        pairs: "SELECT a.run_key AS member, s.run_key AS other, a.attempt_id
             FROM node_attempts a JOIN attempt_entries e ON e.attempt_key = a.attempt_key
             JOIN session_segments s ON s.resource_key = e.segment_key WHERE s.run_key <> a.run_key",
    },
];

impl Workflows {
    /// What retention would take of the runs that ended before `cutoff`, and what holds the others: the dry run.
    ///
    /// # Errors
    ///
    /// [`StateError::Corrupt`] when launch options or lineage of a run can't be read: then nothing is selected.
    pub fn retention_plan(&self, cutoff: UnixMillis) -> Result<RetentionPlan, StateError> {
        self.database().retention_plan(cutoff)
    }

    /// The automatic sweep: deletes the trees of runs whose every run ended more than [`KEEP_MS`] ago and that nothing holds.
    ///
    /// A program asks for it when it starts and when runs end, and calls it when it has nothing else to do; it does nothing within
    /// a day after a completed one. `held` are the digests of content that workers or transfers of this program hold and that
    /// no row refers to yet. `may_continue` is asked before each tree.
    ///
    /// # Errors
    ///
    /// Those of [`Database::sweep`](holdpoint_state::Database::sweep).
    pub fn sweep(
        &self,
        held: BTreeSet<Digest>,
        may_continue: impl FnMut(u64) -> ControlFlow<()>,
    ) -> Result<SweepReport, StateError> {
        let cutoff = self.database().clock().now().plus(-KEEP_MS);
        self.database()
            .sweep(&Taking { cutoff, held }, may_continue)
    }

    /// The manual prune: a backup at the new, absolute path `backup`, then everything that the plan selects in one transaction.
    ///
    /// # Errors
    ///
    /// Those of [`Database::prune`](holdpoint_state::Database::prune).
    pub fn prune(
        &self,
        cutoff: UnixMillis,
        backup: impl AsRef<Path>,
    ) -> Result<PruneReport, StateError> {
        self.database().prune(&Taking::before(cutoff), backup)
    }
}
