-- Closed sets are chains of equalities: see docs/STATE.md, Layout.
-- Tables of the workflows domain. Rows refer to runs and attempts by integer keys; public ids are unique columns beside them.

-- Immutable descriptions of compiled graphs, one for each digest. The snapshot itself is a blob.
CREATE TABLE workflow_definitions (
    definition_digest BLOB NOT NULL PRIMARY KEY CHECK (length(definition_digest) = 32),
    workflow_name TEXT NOT NULL CHECK (workflow_name <> ''),
    definition_hash BLOB NOT NULL REFERENCES blobs (blob_hash),
    created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- One row for each execution. Its key is the key of its resource, so that rows lie in the order in which runs were made. When a
-- run last changed is `resources.updated_at`, which every accepted command moves already.
CREATE TABLE runs (
    resource_key INTEGER PRIMARY KEY REFERENCES resources (resource_key),
    run_id TEXT NOT NULL UNIQUE,
    parent_key INTEGER REFERENCES runs (resource_key),
    root_key INTEGER NOT NULL REFERENCES runs (resource_key),
    lineage_kind TEXT CHECK (lineage_kind = 'restart'),
    restart_number INTEGER NOT NULL DEFAULT 0 CHECK (restart_number >= 0),
    parent_run_revision INTEGER CHECK (parent_run_revision >= 0),
    definition_digest BLOB NOT NULL REFERENCES workflow_definitions (definition_digest),
    workflow_ref TEXT NOT NULL CHECK (workflow_ref <> ''),
    -- Here and below: small content beside its digest, larger content as a blob (see docs/STATE.md, Layout).
    launch_options_digest BLOB CHECK (length(launch_options_digest) = 32),
    launch_options BLOB,
    launch_options_hash BLOB REFERENCES blobs (blob_hash),
    title TEXT,
    status TEXT NOT NULL CHECK (status = 'queued' OR status = 'running' OR status = 'waiting'
        OR status = 'completed' OR status = 'failed' OR status = 'timed_out' OR status = 'cancelled'),
    paused INTEGER NOT NULL DEFAULT 0 CHECK (paused IN (0, 1)),
    status_detail TEXT,
    input_digest BLOB CHECK (length(input_digest) = 32),
    input BLOB,
    input_hash BLOB REFERENCES blobs (blob_hash),
    final_output_digest BLOB CHECK (length(final_output_digest) = 32),
    final_output BLOB,
    final_output_hash BLOB REFERENCES blobs (blob_hash),
    error_hash BLOB REFERENCES blobs (blob_hash),
    created_at INTEGER NOT NULL,
    finished_at INTEGER,
    CHECK ((parent_key IS NULL) = (lineage_kind IS NULL)),
    CHECK ((parent_key IS NULL) = (parent_run_revision IS NULL)),
    CHECK ((parent_key IS NULL) = (restart_number = 0)),
    CHECK (parent_key IS NOT NULL OR root_key = resource_key),
    CHECK ((finished_at IS NOT NULL) = (status = 'completed' OR status = 'failed' OR status = 'timed_out'
        OR status = 'cancelled')),
    CHECK (paused = 0 OR finished_at IS NULL),
    CHECK ((launch_options IS NULL) = (launch_options_digest IS NULL)),
    CHECK ((launch_options IS NULL) <> (launch_options_hash IS NULL)),
    CHECK ((input IS NULL) = (input_digest IS NULL)),
    CHECK ((input IS NULL) <> (input_hash IS NULL)),
    CHECK ((final_output IS NULL) = (final_output_digest IS NULL)),
    CHECK (final_output IS NULL OR final_output_hash IS NULL)
) STRICT;
-- For views::list with a status filter.
CREATE INDEX runs_by_status ON runs (status, resource_key);
-- For views::due: runs whose runner was lost. Queued, waiting, paused and finished runs, of which there may be many, are not in it.
CREATE INDEX runs_going_on ON runs (resource_key) WHERE status = 'running' AND paused = 0;
-- For commands::restart: one restart child for each run.
CREATE UNIQUE INDEX runs_one_restart ON runs (parent_key) WHERE lineage_kind = 'restart';

CREATE TABLE run_sources (
    run_key INTEGER NOT NULL REFERENCES runs (resource_key),
    mount_path TEXT NOT NULL,
    source_type TEXT NOT NULL CHECK (source_type IN ('builtin', 'file')),
    source_ref TEXT NOT NULL CHECK (source_ref <> ''),
    source_revision TEXT NOT NULL CHECK (source_revision <> ''),
    PRIMARY KEY (run_key, mount_path)
) STRICT, WITHOUT ROWID;

CREATE TABLE run_bindings (
    run_key INTEGER PRIMARY KEY REFERENCES runs (resource_key),
    origin_session_id TEXT NOT NULL CHECK (origin_session_id <> ''),
    execution_mode TEXT NOT NULL CHECK (execution_mode IN ('interactive', 'headless')),
    -- The run is over and its origin session was not told yet.
    owes_terminal_message INTEGER NOT NULL DEFAULT 0 CHECK (owes_terminal_message IN (0, 1)),
    created_at INTEGER NOT NULL
) STRICT;
-- For views::owing: ends that no message tells yet.
CREATE INDEX run_bindings_owing ON run_bindings (run_key) WHERE owes_terminal_message = 1;

CREATE TABLE run_queue (
    run_key INTEGER PRIMARY KEY REFERENCES runs (resource_key),
    status TEXT NOT NULL CHECK (status = 'queued' OR status = 'starting' OR status = 'running' OR status = 'parked'
        OR status = 'done' OR status = 'failed' OR status = 'cancelled'),
    available_at INTEGER NOT NULL,
    origin_session_id TEXT,
    consecutive_errors INTEGER NOT NULL DEFAULT 0 CHECK (consecutive_errors >= 0),
    error_code TEXT,
    error_hash BLOB REFERENCES blobs (blob_hash),
    created_at INTEGER NOT NULL,
    started_at INTEGER,
    finished_at INTEGER,
    CHECK ((finished_at IS NOT NULL) = (status = 'done' OR status = 'failed' OR status = 'cancelled'))
) STRICT;
-- For views::due: new and resumable work in its order.
CREATE INDEX run_queue_due ON run_queue (available_at, run_key)
    WHERE (status = 'queued' OR status = 'starting' OR status = 'running');
-- For views::due: runs that were parked before they began.
CREATE INDEX run_queue_not_begun ON run_queue (run_key) WHERE status = 'parked' AND started_at IS NULL AND error_code IS NULL;
-- For commands::start: one live interactive run for each session.
CREATE UNIQUE INDEX run_queue_one_reservation ON run_queue (origin_session_id)
    WHERE origin_session_id IS NOT NULL AND (status = 'queued' OR status = 'starting' OR status = 'running'
        OR status = 'parked');

-- One execution of one visit of a node.
CREATE TABLE node_attempts (
    attempt_key INTEGER PRIMARY KEY,
    attempt_id TEXT NOT NULL UNIQUE CHECK (attempt_id <> ''),
    run_key INTEGER NOT NULL REFERENCES runs (resource_key),
    node_id TEXT NOT NULL CHECK (node_id <> ''),
    attempt_number INTEGER NOT NULL CHECK (attempt_number > 0),
    node_type TEXT NOT NULL CHECK (node_type <> ''),
    status TEXT NOT NULL CHECK (status = 'pending' OR status = 'running' OR status = 'waiting'
        OR status = 'interrupted' OR status = 'completed' OR status = 'failed' OR status = 'timed_out' OR status = 'cancelled'),
    prompt_hash BLOB REFERENCES blobs (blob_hash),
    output_digest BLOB CHECK (length(output_digest) = 32),
    output BLOB,
    output_hash BLOB REFERENCES blobs (blob_hash),
    receipt_hash BLOB REFERENCES blobs (blob_hash),
    error_hash BLOB REFERENCES blobs (blob_hash),
    -- The settings that it began with, and keeps reading.
    settings_scope_key INTEGER REFERENCES workflow_settings (resource_key),
    settings_change_number INTEGER CHECK (settings_change_number >= 0),
    settings_hash BLOB REFERENCES blobs (blob_hash),
    started_at INTEGER NOT NULL,
    -- Null: not configured yet; 0: explicitly unlimited; else the budget in milliseconds.
    timeout_ms REAL CHECK (timeout_ms >= 0),
    finished_at INTEGER,
    UNIQUE (run_key, node_id, attempt_number),
    CHECK ((output IS NULL) = (output_digest IS NULL)),
    CHECK (output IS NULL OR output_hash IS NULL),
    CHECK ((settings_scope_key IS NULL) = (settings_change_number IS NULL)),
    CHECK ((settings_scope_key IS NULL) = (settings_hash IS NULL)),
    CHECK ((finished_at IS NOT NULL) = (status = 'completed' OR status = 'failed' OR status = 'timed_out'
        OR status = 'cancelled'))
) STRICT;
-- For store::attempts::active: at most one attempt of a run goes on.
CREATE UNIQUE INDEX node_attempts_one_active ON node_attempts (run_key)
    WHERE (status = 'pending' OR status = 'running' OR status = 'waiting');

-- The accepted history of a run: contiguous from 0, only appended.
CREATE TABLE run_steps (
    run_key INTEGER NOT NULL REFERENCES runs (resource_key),
    step_index INTEGER NOT NULL CHECK (step_index >= 0),
    attempt_key INTEGER NOT NULL UNIQUE REFERENCES node_attempts (attempt_key),
    PRIMARY KEY (run_key, step_index)
) STRICT, WITHOUT ROWID;

-- What somebody must answer so that an attempt can go on.
CREATE TABLE interactive_requests (
    request_key INTEGER PRIMARY KEY,
    request_id TEXT NOT NULL UNIQUE CHECK (request_id <> ''),
    run_key INTEGER NOT NULL REFERENCES runs (resource_key),
    attempt_key INTEGER NOT NULL UNIQUE REFERENCES node_attempts (attempt_key),
    target_session_id TEXT NOT NULL CHECK (target_session_id <> ''),
    -- `external` is for node kinds of other crates: only their own commands answer them.
    kind TEXT NOT NULL CHECK (kind = 'agent' OR kind = 'assistant' OR kind = 'checkpoint' OR kind = 'decision'
        OR kind = 'external'),
    contract_hash BLOB NOT NULL REFERENCES blobs (blob_hash),
    revision INTEGER NOT NULL DEFAULT 1 CHECK (revision >= 1),
    status TEXT NOT NULL CHECK (status = 'pending' OR status = 'settled' OR status = 'cancelled'),
    accepted_submission_id TEXT,
    created_at INTEGER NOT NULL,
    settled_at INTEGER,
    consumed_at INTEGER,
    CHECK ((status = 'settled') = (accepted_submission_id IS NOT NULL)),
    CHECK ((status = 'settled') = (settled_at IS NOT NULL)),
    CHECK (consumed_at IS NULL OR status = 'settled')
) STRICT;
-- For store::requests::pending: at most one pending request for each run.
CREATE UNIQUE INDEX interactive_requests_one_pending ON interactive_requests (run_key) WHERE status = 'pending';
-- For commands::answer and views: what one run asked.
CREATE INDEX interactive_requests_by_run ON interactive_requests (run_key, request_key);
-- For views::due: accepted answers that no runner has taken up yet.
CREATE INDEX interactive_requests_ready ON interactive_requests (settled_at, run_key)
    WHERE status = 'settled' AND consumed_at IS NULL;
-- For views::due and views::requests: requests whose time a session spends.
CREATE INDEX interactive_requests_of_agents ON interactive_requests (request_key)
    WHERE status = 'pending' AND (kind = 'agent' OR kind = 'assistant');

CREATE TABLE interactive_submissions (
    submission_id TEXT NOT NULL PRIMARY KEY,
    request_key INTEGER NOT NULL REFERENCES interactive_requests (request_key),
    idempotency_key TEXT NOT NULL CHECK (length(idempotency_key) BETWEEN 1 AND 512),
    request_revision INTEGER NOT NULL CHECK (request_revision > 0),
    payload_hash BLOB NOT NULL REFERENCES blobs (blob_hash),
    outcome TEXT NOT NULL CHECK (outcome = 'validating' OR outcome = 'accepted' OR outcome = 'rejected' OR outcome = 'adopted'),
    receipt_hash BLOB REFERENCES blobs (blob_hash),
    submitted_at INTEGER NOT NULL,
    UNIQUE (request_key, idempotency_key)
) STRICT, WITHOUT ROWID;
-- For views::due: candidates that a runner has to look at.
CREATE INDEX interactive_submissions_validating ON interactive_submissions (submitted_at, request_key) WHERE outcome = 'validating';

-- Measured stretches of active execution of an attempt. Times of the wall clock are labels; `elapsed_ms` is of the monotonic clock.
CREATE TABLE attempt_active_intervals (
    attempt_key INTEGER NOT NULL REFERENCES node_attempts (attempt_key),
    interval_number INTEGER NOT NULL CHECK (interval_number > 0),
    started_at INTEGER NOT NULL,
    observed_at INTEGER NOT NULL,
    ended_at INTEGER,
    elapsed_ms REAL NOT NULL DEFAULT 0 CHECK (elapsed_ms >= 0),
    PRIMARY KEY (attempt_key, interval_number)
) STRICT, WITHOUT ROWID;
-- For store::intervals: at most one stretch of an attempt is open.
CREATE UNIQUE INDEX attempt_active_intervals_one_open ON attempt_active_intervals (attempt_key) WHERE ended_at IS NULL;

-- One worker process, for one generation of a run. Its host writes what it knows of it.
CREATE TABLE run_workers (
    worker_key INTEGER PRIMARY KEY,
    worker_epoch TEXT NOT NULL UNIQUE CHECK (worker_epoch <> ''),
    run_key INTEGER NOT NULL REFERENCES runs (resource_key),
    generation INTEGER NOT NULL CHECK (generation > 0),
    host_id TEXT NOT NULL CHECK (host_id <> ''),
    launch_envelope_hash BLOB NOT NULL REFERENCES blobs (blob_hash),
    pid INTEGER CHECK (pid > 0),
    process_start_identity TEXT,
    status TEXT NOT NULL CHECK (status = 'starting' OR status = 'ready' OR status = 'running' OR status = 'exited'
        OR status = 'cancelled' OR status = 'timedOut' OR status = 'crashed' OR status = 'claimLost' OR status = 'orphaned'),
    started_at INTEGER NOT NULL,
    ready_at INTEGER,
    finished_at INTEGER,
    exit_code INTEGER,
    signal TEXT,
    diagnostic_hash BLOB REFERENCES blobs (blob_hash),
    -- For views::workers and retention too: the workers of a run.
    UNIQUE (run_key, generation),
    CHECK ((pid IS NULL) = (process_start_identity IS NULL)),
    CHECK ((pid IS NULL) = (ready_at IS NULL)),
    CHECK (pid IS NOT NULL OR (status <> 'ready' AND status <> 'running')),
    CHECK (pid IS NULL OR status <> 'starting'),
    CHECK ((finished_at IS NULL) = (status = 'starting' OR status = 'ready' OR status = 'running'))
) STRICT;
-- For store::workers::orphan: at most one worker of a run is alive.
CREATE UNIQUE INDEX run_workers_one_live ON run_workers (run_key) WHERE (status = 'starting' OR status = 'ready' OR status = 'running');

-- The messages of a worker process that were judged, so that a repeat gets the same answer.
CREATE TABLE worker_messages (
    worker_key INTEGER NOT NULL REFERENCES run_workers (worker_key),
    message_number INTEGER NOT NULL CHECK (message_number > 0),
    request_fingerprint BLOB NOT NULL CHECK (length(request_fingerprint) = 32),
    outcome TEXT NOT NULL CHECK (outcome = 'accepted' OR outcome = 'rejected' OR outcome = 'claimLost'),
    accepted_revision INTEGER,
    result_hash BLOB REFERENCES blobs (blob_hash),
    error_hash BLOB REFERENCES blobs (blob_hash),
    completed_at INTEGER NOT NULL,
    PRIMARY KEY (worker_key, message_number),
    CHECK ((accepted_revision IS NOT NULL) = (outcome = 'accepted')),
    CHECK ((result_hash IS NOT NULL) = (outcome = 'accepted')),
    CHECK ((error_hash IS NULL) = (outcome = 'accepted'))
) STRICT, WITHOUT ROWID;

-- Keyed, replaceable progress that an attempt published. The current value of (type, key) is the one with the highest sequence. What
-- limits an attempt is in its last row, so that no update has to count those before it.
CREATE TABLE workflow_updates (
    attempt_key INTEGER NOT NULL REFERENCES node_attempts (attempt_key),
    update_seq INTEGER NOT NULL CHECK (update_seq > 0),
    update_id TEXT NOT NULL UNIQUE CHECK (update_id <> ''),
    -- The caller's own key, so that a repeat meets its earlier self.
    request_id TEXT,
    run_revision INTEGER NOT NULL CHECK (run_revision > 0),
    update_type TEXT NOT NULL CHECK (update_type <> ''),
    update_key TEXT NOT NULL CHECK (update_key <> ''),
    data_hash BLOB NOT NULL REFERENCES blobs (blob_hash),
    recorded_at INTEGER NOT NULL,
    -- How many pairs of type and key have a value, from this update on.
    pair_count INTEGER NOT NULL CHECK (pair_count BETWEEN 1 AND 1024),
    -- When the attempt may publish a whole burst again.
    rested_at INTEGER NOT NULL,
    PRIMARY KEY (attempt_key, update_seq)
) STRICT, WITHOUT ROWID;
-- For views::updates and the limit of current pairs.
CREATE INDEX workflow_updates_current ON workflow_updates (attempt_key, update_type, update_key, update_seq);
-- For commands::update: repeats of one call.
CREATE UNIQUE INDEX workflow_updates_request ON workflow_updates (attempt_key, request_id) WHERE request_id IS NOT NULL;

-- The live settings of one invocation of a workflow. The change number is the count of its rows in workflow_setting_changes.
CREATE TABLE workflow_settings (
    resource_key INTEGER PRIMARY KEY REFERENCES resources (resource_key),
    scope_id TEXT NOT NULL UNIQUE CHECK (scope_id <> ''),
    origin_run_key INTEGER NOT NULL REFERENCES runs (resource_key),
    active_run_key INTEGER NOT NULL REFERENCES runs (resource_key),
    mount_path TEXT NOT NULL,
    invocation INTEGER NOT NULL CHECK (invocation > 0),
    change_number INTEGER NOT NULL DEFAULT 0 CHECK (change_number >= 0),
    initial_hash BLOB NOT NULL REFERENCES blobs (blob_hash),
    current_hash BLOB NOT NULL REFERENCES blobs (blob_hash),
    created_at INTEGER NOT NULL,
    UNIQUE (origin_run_key, mount_path, invocation)
) STRICT;
-- For store::settings: the scopes of a run.
CREATE INDEX workflow_settings_by_run ON workflow_settings (active_run_key, mount_path, invocation);

CREATE TABLE workflow_setting_changes (
    scope_key INTEGER NOT NULL REFERENCES workflow_settings (resource_key),
    change_number INTEGER NOT NULL CHECK (change_number > 0),
    change_id TEXT NOT NULL UNIQUE CHECK (change_id <> ''),
    request_id TEXT NOT NULL CHECK (request_id <> ''),
    actor_type TEXT NOT NULL CHECK (actor_type <> ''),
    actor_id TEXT,
    source_type TEXT NOT NULL,
    patch_hash BLOB NOT NULL REFERENCES blobs (blob_hash),
    before_hash BLOB NOT NULL REFERENCES blobs (blob_hash),
    after_hash BLOB NOT NULL REFERENCES blobs (blob_hash),
    accepted_at INTEGER NOT NULL,
    PRIMARY KEY (scope_key, change_number),
    UNIQUE (scope_key, request_id)
) STRICT, WITHOUT ROWID;

-- Prompts that the origin session is shown after the run completes.
CREATE TABLE workflow_follow_ups (
    resource_key INTEGER PRIMARY KEY REFERENCES resources (resource_key),
    follow_up_id TEXT NOT NULL UNIQUE CHECK (follow_up_id <> ''),
    run_key INTEGER NOT NULL REFERENCES runs (resource_key),
    request_id TEXT NOT NULL CHECK (request_id <> ''),
    order_number INTEGER NOT NULL CHECK (order_number > 0),
    target_session_id TEXT NOT NULL CHECK (target_session_id <> ''),
    actor_type TEXT NOT NULL CHECK (actor_type <> ''),
    actor_id TEXT,
    source_type TEXT NOT NULL,
    prompt_hash BLOB NOT NULL REFERENCES blobs (blob_hash),
    status TEXT NOT NULL CHECK (status = 'queued' OR status = 'removed' OR status = 'cancelled'),
    reason_hash BLOB REFERENCES blobs (blob_hash),
    created_at INTEGER NOT NULL,
    UNIQUE (run_key, request_id),
    UNIQUE (run_key, order_number),
    CHECK ((reason_hash IS NULL) = (status = 'queued'))
) STRICT;
-- For store::messages: the follow-ups of a session in their order.
CREATE INDEX workflow_follow_ups_by_session ON workflow_follow_ups (target_session_id, run_key, order_number);

-- Text that must appear in an origin session. Only evidence of the session's branch makes it sent.
CREATE TABLE workflow_messages (
    message_key INTEGER PRIMARY KEY,
    workflow_message_id TEXT NOT NULL UNIQUE CHECK (workflow_message_id <> ''),
    run_key INTEGER NOT NULL REFERENCES runs (resource_key),
    target_session_id TEXT NOT NULL CHECK (target_session_id <> ''),
    kind TEXT NOT NULL CHECK (kind = 'step' OR kind = 'decision' OR kind = 'notification' OR kind = 'terminal'
        OR kind = 'followUp'),
    source_id TEXT NOT NULL CHECK (source_id <> ''),
    content_hash BLOB NOT NULL REFERENCES blobs (blob_hash),
    order_number INTEGER NOT NULL CHECK (order_number > 0),
    status TEXT NOT NULL CHECK (status = 'pending' OR status = 'sent' OR status = 'cancelled'),
    pi_session_entry_id TEXT,
    -- Kept when evidence makes it sent after all: such a message is no new prompt.
    cancelled_at INTEGER,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    UNIQUE (target_session_id, order_number),
    CHECK ((pi_session_entry_id IS NOT NULL) = (status = 'sent')),
    CHECK (status <> 'cancelled' OR cancelled_at IS NOT NULL),
    CHECK (status <> 'pending' OR cancelled_at IS NULL)
) STRICT;
-- For store::messages: what a session has still to show, in its order.
CREATE INDEX workflow_messages_pending ON workflow_messages (target_session_id, order_number) WHERE status = 'pending';
-- For views and the terminal fan-out: the messages of a run.
CREATE INDEX workflow_messages_by_run ON workflow_messages (run_key, order_number);
-- For store::messages: the messages of a request, a decision or a run's end.
CREATE INDEX workflow_messages_by_source ON workflow_messages (source_id, kind, order_number);
-- For commands: at most one pending step message of a request.
CREATE UNIQUE INDEX workflow_messages_one_pending_step ON workflow_messages (source_id)
    WHERE kind = 'step' AND status = 'pending';

-- Ownership of one model turn in an origin session.
CREATE TABLE workflow_turns (
    workflow_turn_id TEXT NOT NULL PRIMARY KEY CHECK (workflow_turn_id <> ''),
    message_key INTEGER NOT NULL REFERENCES workflow_messages (message_key),
    run_key INTEGER NOT NULL REFERENCES runs (resource_key),
    target_session_id TEXT NOT NULL CHECK (target_session_id <> ''),
    state TEXT NOT NULL CHECK (state = 'started' OR state = 'ended'),
    stop_reason TEXT CHECK (stop_reason IS NULL OR stop_reason = 'completed' OR stop_reason = 'aborted'
        OR stop_reason = 'error' OR stop_reason = 'lost'),
    response_session_entry_id TEXT,
    started_at INTEGER NOT NULL,
    ended_at INTEGER,
    CHECK ((state = 'started') = (stop_reason IS NULL)),
    CHECK ((state = 'started') = (ended_at IS NULL)),
    CHECK (state = 'ended' OR response_session_entry_id IS NULL)
) STRICT, WITHOUT ROWID;
-- For commands::turns: at most one open turn of a message.
CREATE UNIQUE INDEX workflow_turns_one_open_of_message ON workflow_turns (message_key) WHERE state = 'started';
-- For retention and views::next_message: the turns of a message.
CREATE INDEX workflow_turns_by_message ON workflow_turns (message_key);
-- For commands::turns: at most one open turn of a session.
CREATE UNIQUE INDEX workflow_turns_one_open_of_session ON workflow_turns (target_session_id) WHERE state = 'started';
-- For the terminal fan-out: the turns of a run.
CREATE INDEX workflow_turns_by_run ON workflow_turns (run_key, started_at);

-- Which finished run a person cleared from the view of a session.
CREATE TABLE session_terminal_views (
    target_session_id TEXT NOT NULL PRIMARY KEY CHECK (target_session_id <> ''),
    cleared_run_key INTEGER REFERENCES runs (resource_key),
    cleared_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
-- For retention: the views that name a run.
CREATE INDEX session_terminal_views_by_run ON session_terminal_views (cleared_run_key) WHERE cleared_run_key IS NOT NULL;

-- One recording of a session. Its resource is of type `session`.
CREATE TABLE session_segments (
    resource_key INTEGER PRIMARY KEY REFERENCES resources (resource_key),
    segment_id TEXT NOT NULL UNIQUE CHECK (segment_id <> ''),
    run_key INTEGER NOT NULL REFERENCES runs (resource_key),
    attempt_key INTEGER REFERENCES node_attempts (attempt_key),
    capture_key TEXT NOT NULL,
    session_id TEXT NOT NULL CHECK (session_id <> ''),
    -- The host that records it, so that the next one knows that it is gone.
    recorder_id TEXT NOT NULL CHECK (recorder_id <> ''),
    binding_hash BLOB NOT NULL REFERENCES blobs (blob_hash),
    status TEXT NOT NULL CHECK (status = 'recording' OR status = 'complete' OR status = 'failed'),
    entry_count INTEGER NOT NULL DEFAULT 0 CHECK (entry_count >= 0),
    event_count INTEGER NOT NULL DEFAULT 0 CHECK (event_count >= 0),
    failure_hash BLOB REFERENCES blobs (blob_hash),
    created_at INTEGER NOT NULL,
    finished_at INTEGER,
    UNIQUE (run_key, capture_key),
    CHECK ((finished_at IS NULL) = (status = 'recording')),
    CHECK ((failure_hash IS NOT NULL) = (status = 'failed'))
) STRICT;
-- For recovery: recordings whose recorder may be gone.
CREATE INDEX session_segments_recording ON session_segments (resource_key) WHERE status = 'recording';

-- Settled entries of a session, as they are, each once.
CREATE TABLE session_entries (
    segment_key INTEGER NOT NULL REFERENCES session_segments (resource_key),
    entry_seq INTEGER NOT NULL CHECK (entry_seq > 0),
    run_key INTEGER NOT NULL REFERENCES runs (resource_key),
    run_seq INTEGER NOT NULL CHECK (run_seq > 0),
    entry_id TEXT NOT NULL CHECK (entry_id <> ''),
    entry_hash BLOB NOT NULL REFERENCES blobs (blob_hash),
    recorded_at INTEGER NOT NULL,
    PRIMARY KEY (segment_key, entry_seq),
    UNIQUE (segment_key, entry_id),
    UNIQUE (run_key, run_seq)
) STRICT, WITHOUT ROWID;

-- Which entries are the prompt, the response, the first and the last of an attempt.
CREATE TABLE attempt_entries (
    attempt_key INTEGER NOT NULL REFERENCES node_attempts (attempt_key),
    role TEXT NOT NULL CHECK (role = 'prompt' OR role = 'response' OR role = 'first' OR role = 'last'),
    segment_key INTEGER NOT NULL,
    entry_seq INTEGER NOT NULL,
    PRIMARY KEY (attempt_key, role),
    FOREIGN KEY (segment_key, entry_seq) REFERENCES session_entries (segment_key, entry_seq)
) STRICT, WITHOUT ROWID;
-- For retention: the links to an entry.
CREATE INDEX attempt_entries_by_entry ON attempt_entries (segment_key, entry_seq);

-- Live events of a session: turns, messages and tools, without the deltas of tokens.
CREATE TABLE session_events (
    segment_key INTEGER NOT NULL REFERENCES session_segments (resource_key),
    event_seq INTEGER NOT NULL CHECK (event_seq > 0),
    run_key INTEGER NOT NULL REFERENCES runs (resource_key),
    run_seq INTEGER NOT NULL CHECK (run_seq > 0),
    event_type TEXT NOT NULL CHECK (event_type = 'turn_started' OR event_type = 'turn_finished'
        OR event_type = 'message_started' OR event_type = 'assistant_event' OR event_type = 'message_finished'
        OR event_type = 'tool_execution_started' OR event_type = 'tool_execution_finished'),
    node_id TEXT,
    attempt_id TEXT,
    turn_id TEXT,
    message_id TEXT,
    tool_call_id TEXT,
    payload_hash BLOB NOT NULL REFERENCES blobs (blob_hash),
    recorded_at INTEGER NOT NULL,
    PRIMARY KEY (segment_key, event_seq),
    UNIQUE (run_key, run_seq)
) STRICT, WITHOUT ROWID;
