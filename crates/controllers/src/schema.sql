-- Closed sets are chains of equalities: see docs/STATE.md, Layout.
-- Content lies in three columns, `name_digest`, `name` and `name_hash`: small JSON in the row, larger as a blob (docs/STATE.md, Layout).

-- One row for each managed resource that exists. Its key is that of its resource, whose name is the uid; its version is that resource's
-- revision. The row goes when the resource is deleted, and `resources`, `leases`, `events` and `effects` keep the history.
CREATE TABLE controller_resources (
    resource_key INTEGER PRIMARY KEY REFERENCES resources (resource_key),
    project_id TEXT NOT NULL REFERENCES projects (project_id),
    controller_name TEXT NOT NULL CHECK (controller_name <> ''),
    -- The key that people give, within project and controller.
    resource_name TEXT NOT NULL CHECK (resource_name <> ''),
    spec_generation INTEGER NOT NULL CHECK (spec_generation >= 1),
    spec_digest BLOB CHECK (length(spec_digest) = 32),
    spec BLOB,
    spec_hash BLOB REFERENCES blobs (blob_hash),
    status_digest BLOB CHECK (length(status_digest) = 32),
    status BLOB,
    status_hash BLOB REFERENCES blobs (blob_hash),
    deletion_requested_at INTEGER,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    UNIQUE (project_id, controller_name, resource_name),
    CHECK ((spec IS NULL) = (spec_digest IS NULL)),
    CHECK ((spec IS NULL) <> (spec_hash IS NULL)),
    CHECK ((status IS NULL) = (status_digest IS NULL)),
    CHECK ((status IS NULL) <> (status_hash IS NULL))
) STRICT;

-- Named holds on the deletion of a resource, in the order in which they were declared.
CREATE TABLE controller_finalizers (
    resource_key INTEGER NOT NULL REFERENCES controller_resources (resource_key),
    position INTEGER NOT NULL CHECK (position >= 0),
    finalizer TEXT NOT NULL CHECK (finalizer <> ''),
    PRIMARY KEY (resource_key, position),
    UNIQUE (resource_key, finalizer)
) STRICT, WITHOUT ROWID;

-- "Look at this again", one row for each resource at most. Ownership is in the lease, never here. Project and controller stand here too, so
-- that what is due for the controllers of one program is found without looking at what is due for others.
CREATE TABLE controller_queue (
    resource_key INTEGER PRIMARY KEY REFERENCES controller_resources (resource_key),
    project_id TEXT NOT NULL REFERENCES projects (project_id),
    controller_name TEXT NOT NULL CHECK (controller_name <> ''),
    available_at INTEGER NOT NULL,
    queue_version INTEGER NOT NULL CHECK (queue_version >= 1),
    consecutive_errors INTEGER NOT NULL DEFAULT 0 CHECK (consecutive_errors >= 0),
    last_error_digest BLOB CHECK (length(last_error_digest) = 32),
    last_error BLOB,
    last_error_hash BLOB REFERENCES blobs (blob_hash),
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    CHECK ((last_error IS NULL) = (last_error_digest IS NULL)),
    CHECK (last_error IS NULL OR last_error_hash IS NULL),
    CHECK ((consecutive_errors > 0) = (last_error IS NOT NULL OR last_error_hash IS NOT NULL))
) STRICT;
-- For views::due: an index range for each controller that a program knows.
CREATE INDEX controller_queue_due ON controller_queue (project_id, controller_name, available_at, resource_key);

-- Finite runs that a resource asked for, one row for each request key.
CREATE TABLE controller_workflows (
    child_key INTEGER PRIMARY KEY,
    request_id TEXT NOT NULL UNIQUE CHECK (request_id <> ''),
    resource_key INTEGER NOT NULL REFERENCES controller_resources (resource_key),
    request_key TEXT NOT NULL CHECK (request_key <> ''),
    workflow_name TEXT NOT NULL CHECK (workflow_name <> ''),
    input_fingerprint BLOB NOT NULL CHECK (length(input_fingerprint) = 32),
    -- The id that the run of the present attempt has or will have: it is durable before anything starts.
    reserved_run_id TEXT,
    -- That run, once it is known to exist.
    run_key INTEGER REFERENCES runs (resource_key),
    status TEXT NOT NULL CHECK (status = 'pending' OR status = 'running' OR status = 'waiting' OR status = 'succeeded'
        OR status = 'failed' OR status = 'interrupted'),
    attempt_count INTEGER NOT NULL DEFAULT 0 CHECK (attempt_count >= 0),
    error_digest BLOB CHECK (length(error_digest) = 32),
    error BLOB,
    error_hash BLOB REFERENCES blobs (blob_hash),
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    UNIQUE (resource_key, request_key),
    CHECK ((attempt_count > 0) = (reserved_run_id IS NOT NULL)),
    CHECK (run_key IS NULL OR reserved_run_id IS NOT NULL),
    CHECK ((error IS NULL) = (error_digest IS NULL)),
    CHECK (error IS NULL OR error_hash IS NULL)
) STRICT;
-- For hooks: the request of a run that ends. One run is reserved by one request.
CREATE UNIQUE INDEX controller_workflows_by_run ON controller_workflows (reserved_run_id) WHERE reserved_run_id IS NOT NULL;
-- For retention: the requests that a run belongs to.
CREATE INDEX controller_workflows_by_run_key ON controller_workflows (run_key) WHERE run_key IS NOT NULL;
-- For the duty that looks for runs whose end no request was told of.
CREATE INDEX controller_workflows_open ON controller_workflows (reserved_run_id)
    WHERE reserved_run_id IS NOT NULL AND (status = 'pending' OR status = 'running' OR status = 'waiting');
