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
    launch_options_hash BLOB NOT NULL REFERENCES blobs (blob_hash),
    title TEXT,
    status TEXT NOT NULL CHECK (status = 'queued' OR status = 'running' OR status = 'waiting'
        OR status = 'completed' OR status = 'failed' OR status = 'timed_out' OR status = 'cancelled'),
    paused INTEGER NOT NULL DEFAULT 0 CHECK (paused IN (0, 1)),
    status_detail TEXT,
    input_hash BLOB NOT NULL REFERENCES blobs (blob_hash),
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
    CHECK (paused = 0 OR finished_at IS NULL)
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
    created_at INTEGER NOT NULL
) STRICT;

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
    output_hash BLOB REFERENCES blobs (blob_hash),
    receipt_hash BLOB REFERENCES blobs (blob_hash),
    error_hash BLOB REFERENCES blobs (blob_hash),
    started_at INTEGER NOT NULL,
    -- Null: not configured yet; 0: explicitly unlimited; else the budget in milliseconds.
    timeout_ms REAL CHECK (timeout_ms >= 0),
    finished_at INTEGER,
    UNIQUE (run_key, node_id, attempt_number),
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
    kind TEXT NOT NULL CHECK (kind = 'agent' OR kind = 'assistant' OR kind = 'checkpoint' OR kind = 'decision'),
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
