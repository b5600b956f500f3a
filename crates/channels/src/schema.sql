-- One row for each channel; its revision is that of its resource.
CREATE TABLE channels (
    resource_key INTEGER PRIMARY KEY REFERENCES resources (resource_key),
    name TEXT NOT NULL UNIQUE CHECK (0 < length(name)),
    created_at INTEGER NOT NULL
) STRICT;
