-- The records that every domain shares. {{resource_types}} and {{effect_types}} compare the column with the union over the
-- composed domains. Closed sets are chains of equalities: SQLite makes a table of an IN list, anew for each row that it checks.
CREATE TABLE schema_meta (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    schema_name TEXT NOT NULL,
    schema_version INTEGER NOT NULL,
    schema_digest BLOB NOT NULL CHECK (length(schema_digest) = 32),
    app_version TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT;

CREATE TABLE projects (
    project_id TEXT PRIMARY KEY,
    canonical_path TEXT NOT NULL UNIQUE CHECK (canonical_path LIKE '/%'),
    created_at INTEGER NOT NULL
) STRICT;

-- The hash is a unique column beside an integer key: rows then lie in the order they came, which a random key would not give.
CREATE TABLE blobs (
    blob_key INTEGER PRIMARY KEY,
    blob_hash BLOB NOT NULL UNIQUE CHECK (length(blob_hash) = 32),
    media_type TEXT NOT NULL CHECK (media_type <> ''),
    byte_length INTEGER NOT NULL CHECK (byte_length = length(content)),
    content BLOB NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;

-- Domain rows refer to the integer key, which nobody outside sees; the public id is derived from type and natural key. The
-- natural key of an effect is the 20 bytes behind its id.
CREATE TABLE resources (
    resource_key INTEGER PRIMARY KEY,
    resource_type TEXT NOT NULL CHECK ({{resource_types}}),
    aggregate_key ANY NOT NULL CHECK (
        (resource_type <> 'effect' AND typeof(aggregate_key) = 'text' AND aggregate_key <> '')
        OR (resource_type = 'effect' AND typeof(aggregate_key) = 'blob' AND length(aggregate_key) = 20)
    ),
    revision INTEGER NOT NULL DEFAULT 0 CHECK (revision >= 0),
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT;
-- For the checks, which find a resource by its name. An effect is unique by what its id is derived from (see effects), and a
-- second index over digests would cost every command a page of its own.
CREATE UNIQUE INDEX resources_by_name ON resources (aggregate_key, resource_type) WHERE resource_type <> 'effect';

CREATE TABLE leases (
    resource_key INTEGER PRIMARY KEY REFERENCES resources (resource_key),
    generation INTEGER NOT NULL CHECK (generation >= 0),
    owner_type TEXT CHECK (owner_type = 'session' OR owner_type = 'host' OR owner_type = 'controller'
        OR owner_type = 'channel' OR owner_type = 'system'),
    owner_id TEXT,
    token_hash BLOB CHECK (length(token_hash) = 32),
    acquired_at INTEGER,
    heartbeat_at INTEGER,
    expires_at INTEGER,
    CHECK (
        (owner_type IS NULL AND owner_id IS NULL AND token_hash IS NULL
            AND acquired_at IS NULL AND heartbeat_at IS NULL AND expires_at IS NULL)
        OR (owner_type IS NOT NULL AND owner_id IS NOT NULL AND token_hash IS NOT NULL
            AND acquired_at IS NOT NULL AND heartbeat_at IS NOT NULL AND expires_at IS NOT NULL)
    )
) STRICT;
-- For the recovery sweep over expired leases.
CREATE INDEX leases_by_expiry ON leases (expires_at) WHERE expires_at IS NOT NULL;
-- For what one owner holds.
CREATE INDEX leases_by_owner ON leases (owner_id, owner_type) WHERE owner_id IS NOT NULL;

-- A payload lies beside its digest while it is small, and in blobs above the documented bound. The public event id is derived
-- from the resource and the revision, which are unique together.
CREATE TABLE events (
    event_seq INTEGER PRIMARY KEY AUTOINCREMENT,
    resource_key INTEGER NOT NULL REFERENCES resources (resource_key),
    resource_revision INTEGER NOT NULL CHECK (resource_revision > 0),
    event_type TEXT NOT NULL CHECK (event_type <> ''),
    actor_type TEXT NOT NULL CHECK (actor_type = 'session' OR actor_type = 'host' OR actor_type = 'controller'
        OR actor_type = 'channel' OR actor_type = 'human' OR actor_type = 'policy' OR actor_type = 'control'
        OR actor_type = 'system'),
    actor_id TEXT,
    lease_generation INTEGER CHECK (lease_generation > 0),
    recorded_at INTEGER NOT NULL,
    payload_digest BLOB CHECK (length(payload_digest) = 32),
    payload BLOB,
    payload_blob BLOB REFERENCES blobs (blob_hash),
    UNIQUE (resource_key, resource_revision),
    CHECK (payload_blob IS NULL OR payload IS NULL),
    CHECK ((payload IS NULL) = (payload_digest IS NULL))
) STRICT;

-- An effect is a resource too: its key is the key of its resource, whose natural key is the effect id, and whose created_at and
-- updated_at are the effect's. A payload is inline canonical JSON while it is small, and a blob otherwise.
CREATE TABLE effects (
    resource_key INTEGER PRIMARY KEY REFERENCES resources (resource_key),
    source_key INTEGER NOT NULL REFERENCES resources (resource_key),
    source_revision INTEGER NOT NULL CHECK (source_revision >= 1),
    effect_type TEXT NOT NULL CHECK (length(effect_type) BETWEEN 1 AND 256),
    idempotency_key TEXT NOT NULL CHECK (length(idempotency_key) BETWEEN 1 AND 512),
    owner_scope TEXT NOT NULL CHECK (owner_scope = 'run' OR owner_scope = 'controller'
        OR owner_scope = 'channel' OR owner_scope = 'system'),
    status TEXT NOT NULL CHECK (status = 'pending' OR status = 'applying' OR status = 'applied'
        OR status = 'rejected' OR status = 'ambiguous' OR status = 'cancelled'),
    attempt_count INTEGER NOT NULL DEFAULT 0 CHECK (attempt_count >= 0),
    next_attempt_at INTEGER,
    ordering_key TEXT CHECK (ordering_key <> ''),
    payload BLOB,
    payload_blob BLOB REFERENCES blobs (blob_hash),
    result_hash BLOB REFERENCES blobs (blob_hash),
    error_hash BLOB REFERENCES blobs (blob_hash),
    external_ref TEXT,
    settled_at INTEGER,
    UNIQUE (source_key, idempotency_key, effect_type),
    CHECK ((payload IS NULL) <> (payload_blob IS NULL)),
    CHECK ((settled_at IS NOT NULL)
        = (status = 'applied' OR status = 'rejected' OR status = 'ambiguous' OR status = 'cancelled')),
    CHECK (next_attempt_at IS NULL OR (status = 'pending' OR status = 'rejected')),
    CHECK (owner_scope = 'run' OR owner_scope = 'controller' OR {{effect_types}})
) STRICT;
-- For outbox::due, which takes what is open in the order of creation. A rejected effect is open while it has a next attempt.
CREATE INDEX effects_open ON effects (resource_key)
    WHERE status IN ('pending', 'applying') OR next_attempt_at IS NOT NULL;
-- For one ordering key: whether something older still holds it back.
CREATE INDEX effects_in_line ON effects (ordering_key, resource_key)
    WHERE ordering_key IS NOT NULL
        AND (status = 'pending' OR status = 'applying' OR status = 'ambiguous' OR next_attempt_at IS NOT NULL);
-- For what waits for a person.
CREATE INDEX effects_ambiguous ON effects (resource_key) WHERE status = 'ambiguous';

-- The generation is null when the owner's own transaction did a local effect and needed no lease for it.
CREATE TABLE effect_attempts (
    resource_key INTEGER NOT NULL REFERENCES effects (resource_key) ON DELETE CASCADE,
    attempt_number INTEGER NOT NULL CHECK (attempt_number >= 1),
    owner_id TEXT NOT NULL,
    lease_generation INTEGER CHECK (lease_generation >= 1),
    started_at INTEGER NOT NULL,
    finished_at INTEGER,
    outcome TEXT CHECK (outcome = 'applied' OR outcome = 'rejected' OR outcome = 'ambiguous' OR outcome = 'interrupted'),
    result_hash BLOB REFERENCES blobs (blob_hash),
    error_hash BLOB REFERENCES blobs (blob_hash),
    PRIMARY KEY (resource_key, attempt_number),
    CHECK ((finished_at IS NULL) = (outcome IS NULL))
) STRICT, WITHOUT ROWID;

-- When the automatic retention sweep last came to its end: one row, written in the transaction that makes the sweep complete.
CREATE TABLE retention_sweeps (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    completed_at INTEGER NOT NULL,
    cutoff INTEGER NOT NULL
) STRICT;
