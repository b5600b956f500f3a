-- One row for each decision; its revision is that of its resource.
CREATE TABLE decisions (
    resource_key INTEGER PRIMARY KEY REFERENCES resources (resource_key),
    name TEXT NOT NULL UNIQUE CHECK (0 < length(name)),
    created_at INTEGER NOT NULL
) STRICT;
