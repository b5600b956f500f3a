-- Closed sets are chains of equalities: see docs/STATE.md, Layout.
-- Rows refer to decisions, runs and attempts by integer keys; public ids are unique columns beside them.

-- What is asked, one row for each request. Nothing of it ever changes. Its key is that of its resource.
CREATE TABLE human_decisions (
    resource_key INTEGER PRIMARY KEY REFERENCES resources (resource_key),
    decision_id TEXT NOT NULL UNIQUE CHECK (decision_id <> ''),
    run_key INTEGER NOT NULL REFERENCES runs (resource_key),
    attempt_key INTEGER NOT NULL UNIQUE REFERENCES node_attempts (attempt_key),
    audience TEXT NOT NULL CHECK (audience <> ''),
    title TEXT NOT NULL CHECK (title <> ''),
    subject_hash BLOB NOT NULL REFERENCES blobs (blob_hash),
    presentation_hash BLOB NOT NULL REFERENCES blobs (blob_hash),
    choices_hash BLOB NOT NULL REFERENCES blobs (blob_hash),
    request_digest BLOB NOT NULL UNIQUE CHECK (length(request_digest) = 32),
    presentation_revision INTEGER NOT NULL CHECK (presentation_revision > 0),
    deadline_at INTEGER,
    default_response_hash BLOB REFERENCES blobs (blob_hash),
    request_hash BLOB NOT NULL REFERENCES blobs (blob_hash),
    created_at INTEGER NOT NULL,
    CHECK (default_response_hash IS NULL OR deadline_at IS NOT NULL),
    CHECK (deadline_at IS NULL OR deadline_at > created_at)
) STRICT;
-- For store::decisions::open_of_run and retention: the decisions of a run.
CREATE INDEX human_decisions_by_run ON human_decisions (run_key, created_at);

-- The one resolution of a decision. The primary key is the arbiter between processes.
CREATE TABLE human_decision_resolutions (
    decision_key INTEGER PRIMARY KEY REFERENCES human_decisions (resource_key),
    outcome TEXT NOT NULL CHECK (outcome = 'accepted' OR outcome = 'cancelled'),
    provenance TEXT NOT NULL CHECK (provenance = 'human' OR provenance = 'timeout_policy' OR provenance = 'explicit_cancel'
        OR provenance = 'expired_no_default'),
    -- The private record of an accepted answer.
    response_hash BLOB REFERENCES blobs (blob_hash),
    reason TEXT,
    channel TEXT,
    actor_id TEXT,
    external_event_id TEXT,
    idempotency_key TEXT,
    resolution_digest BLOB NOT NULL UNIQUE CHECK (length(resolution_digest) = 32),
    resolved_at INTEGER NOT NULL,
    CHECK ((outcome = 'accepted') = (provenance = 'human' OR provenance = 'timeout_policy')),
    CHECK ((outcome = 'accepted') = (response_hash IS NOT NULL)),
    CHECK ((outcome = 'accepted') = (reason IS NULL)),
    CHECK ((provenance = 'human') = (channel IS NOT NULL)),
    CHECK ((provenance = 'human') = (external_event_id IS NOT NULL)),
    CHECK ((provenance = 'human') = (idempotency_key IS NOT NULL)),
    CHECK (provenance <> 'human' OR actor_id IS NOT NULL)
) STRICT;

-- Each candidate and what became of it. A row is final when it is written, and grants nothing.
CREATE TABLE human_decision_submissions (
    submission_key INTEGER PRIMARY KEY,
    submission_id TEXT NOT NULL UNIQUE CHECK (submission_id <> ''),
    decision_key INTEGER NOT NULL REFERENCES human_decisions (resource_key),
    source TEXT NOT NULL CHECK (source = 'human' OR source = 'policy' OR source = 'channel' OR source = 'control'),
    -- What the sender saw.
    request_digest BLOB NOT NULL CHECK (length(request_digest) = 32),
    channel TEXT,
    actor_id TEXT,
    external_event_id TEXT,
    idempotency_key TEXT NOT NULL CHECK (idempotency_key <> ''),
    response_hash BLOB REFERENCES blobs (blob_hash),
    result TEXT NOT NULL CHECK (result = 'won' OR result = 'adopted' OR result = 'already_resolved' OR result = 'stale'
        OR result = 'rejected'),
    reject_code TEXT,
    winner_digest BLOB CHECK (winner_digest IS NULL OR length(winner_digest) = 32),
    submitted_at INTEGER NOT NULL,
    CHECK ((source = 'human' OR source = 'channel') = (channel IS NOT NULL)),
    CHECK ((result = 'already_resolved') = (winner_digest IS NOT NULL)),
    CHECK ((result = 'rejected') = (reject_code IS NOT NULL))
) STRICT;
-- For store::submissions: a key names one candidate of its channel, whatever decision it is for.
CREATE UNIQUE INDEX human_decision_submissions_by_key ON human_decision_submissions (channel, idempotency_key)
    WHERE channel IS NOT NULL;
-- For views::submissions, verify and retention: the candidates of a decision.
CREATE INDEX human_decision_submissions_by_decision ON human_decision_submissions (decision_key, submission_key);
-- For store::submissions: repeats of the policy and of control.
CREATE UNIQUE INDEX human_decision_submissions_by_rule ON human_decision_submissions (decision_key, source, idempotency_key)
    WHERE channel IS NULL;

-- The deadlines of open decisions, in the order in which they are swept. The row goes when its decision is resolved, so that a sweep
-- reads what is due and nothing that is over.
CREATE TABLE human_decision_deadlines (
    deadline_at INTEGER NOT NULL,
    decision_id TEXT NOT NULL,
    decision_key INTEGER NOT NULL UNIQUE REFERENCES human_decisions (resource_key),
    PRIMARY KEY (deadline_at, decision_id)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER human_decisions_never_change BEFORE UPDATE ON human_decisions
BEGIN
    SELECT raise(ABORT, 'a decision never changes');
END;
CREATE TRIGGER human_decision_resolutions_never_change BEFORE UPDATE ON human_decision_resolutions
BEGIN
    SELECT raise(ABORT, 'a resolution never changes');
END;
CREATE TRIGGER human_decision_submissions_never_change BEFORE UPDATE ON human_decision_submissions
BEGIN
    SELECT raise(ABORT, 'a submission never changes');
END;
