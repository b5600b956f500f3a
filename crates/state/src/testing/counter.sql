CREATE TABLE counters (
    resource_key INTEGER PRIMARY KEY REFERENCES resources (resource_key),
    value INTEGER NOT NULL CHECK (0 <= value)
) STRICT;
