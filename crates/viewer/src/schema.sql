-- Tables of the viewer domain: what is kept of each run so that looking at it costs a page. All of it follows from other rows; the
-- projector writes it in the transaction that changes those.

-- One row for each run. Windows are the ends of histories that fit into a document: where they begin and how many bytes they have.
CREATE TABLE viewer_runs (
    run_key INTEGER PRIMARY KEY REFERENCES runs (resource_key),
    -- Grows by one with each transaction's touch that changes anything which the view shows.
    presentation_revision INTEGER NOT NULL CHECK (presentation_revision >= 1),
    retained_from_revision INTEGER NOT NULL CHECK (retained_from_revision BETWEEN 1 AND presentation_revision),
    -- The small members of the document that change, by their pointers: what the next ones are compared with.
    summary BLOB NOT NULL,
    step_start INTEGER NOT NULL CHECK (step_start >= 0),
    step_total INTEGER NOT NULL CHECK (step_total >= step_start),
    step_bytes INTEGER NOT NULL,
    trace_start INTEGER NOT NULL CHECK (trace_start >= 0),
    trace_total INTEGER NOT NULL CHECK (trace_total >= trace_start),
    trace_bytes INTEGER NOT NULL,
    entry_start INTEGER NOT NULL CHECK (entry_start >= 0),
    entry_total INTEGER NOT NULL CHECK (entry_total >= entry_start),
    entry_bytes INTEGER NOT NULL,
    event_start INTEGER NOT NULL CHECK (event_start >= 0),
    event_total INTEGER NOT NULL CHECK (event_total >= event_start),
    event_bytes INTEGER NOT NULL,
    -- The event with which the attempt that goes on began.
    visit_seq INTEGER NOT NULL DEFAULT 0,
    -- The attempt whose updates are shown, and how many there are.
    update_attempt INTEGER,
    update_total INTEGER NOT NULL DEFAULT 0,
    -- The first recording of a session, how many go on, and one that failed.
    first_segment INTEGER REFERENCES session_segments (resource_key),
    open_segments INTEGER NOT NULL DEFAULT 0 CHECK (open_segments >= 0),
    failed_segment INTEGER REFERENCES session_segments (resource_key),
    updated_at INTEGER NOT NULL
) STRICT;

-- How often the list of runs changed, apart from runs that went: one row.
CREATE TABLE viewer_list (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    revision INTEGER NOT NULL CHECK (revision >= 1)
) STRICT;

-- The visits of a run, by node: the newest of each node up to any step is one look.
CREATE TABLE viewer_visits (
    run_key INTEGER NOT NULL REFERENCES runs (resource_key),
    node_id TEXT NOT NULL CHECK (node_id <> ''),
    step_index INTEGER NOT NULL CHECK (step_index >= 0),
    -- The how-manieth visit of its node it is.
    visit INTEGER NOT NULL CHECK (visit >= 1),
    -- The event with which it began.
    trace_seq INTEGER NOT NULL CHECK (trace_seq >= 0),
    PRIMARY KEY (run_key, node_id, step_index)
) STRICT, WITHOUT ROWID;
-- For views::graph and pages around a step: the visits by their place.
CREATE UNIQUE INDEX viewer_visits_by_step ON viewer_visits (run_key, step_index);

-- The edges that a run took, each with the step that took it first.
CREATE TABLE viewer_edges (
    run_key INTEGER NOT NULL REFERENCES runs (resource_key),
    from_node TEXT NOT NULL,
    to_node TEXT NOT NULL,
    first_step INTEGER NOT NULL CHECK (first_step >= 1),
    PRIMARY KEY (run_key, from_node, to_node)
) STRICT, WITHOUT ROWID;

-- What changed with each of the last revisions.
CREATE TABLE viewer_deltas (
    run_key INTEGER NOT NULL REFERENCES runs (resource_key),
    presentation_revision INTEGER NOT NULL CHECK (presentation_revision >= 1),
    delta_index INTEGER NOT NULL CHECK (delta_index >= 0),
    target_type TEXT NOT NULL CHECK (target_type = 'summary' OR target_type = 'graph' OR target_type = 'replay'
        OR target_type = 'timeline' OR target_type = 'conversation' OR target_type = 'inspector'),
    target_key TEXT NOT NULL,
    -- Its own copy, so that it goes when it is no longer retained.
    patch BLOB NOT NULL,
    recorded_at INTEGER NOT NULL,
    PRIMARY KEY (run_key, presentation_revision, delta_index)
) STRICT, WITHOUT ROWID;

-- The state of the conversation of a run at every 256th event, so that a replay reads no more than that many.
CREATE TABLE viewer_session_checkpoints (
    run_key INTEGER NOT NULL REFERENCES runs (resource_key),
    event_seq INTEGER NOT NULL CHECK (event_seq > 0),
    state BLOB NOT NULL,
    recorded_at INTEGER NOT NULL,
    PRIMARY KEY (run_key, event_seq)
) STRICT, WITHOUT ROWID;

-- What the documents of a run refer to instead of holding it: only that may be read through the run. The content lies once: it is a
-- blob, or the text at a pointer in one.
CREATE TABLE run_view_content (
    run_key INTEGER NOT NULL REFERENCES runs (resource_key),
    content_hash BLOB NOT NULL CHECK (length(content_hash) = 32),
    media_type TEXT NOT NULL CHECK (media_type IN ('application/json', 'text/plain')),
    byte_length INTEGER NOT NULL CHECK (byte_length > 0),
    source_hash BLOB NOT NULL REFERENCES blobs (blob_hash),
    pointer TEXT,
    PRIMARY KEY (run_key, content_hash, media_type)
) STRICT, WITHOUT ROWID;
