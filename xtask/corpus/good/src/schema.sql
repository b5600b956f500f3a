-- sample: own_schema
CREATE TABLE jobs (id TEXT PRIMARY KEY, status TEXT NOT NULL CHECK (status IN ('open', 'done'))) STRICT;
CREATE TABLE steps (job_id TEXT NOT NULL REFERENCES jobs (id), n INTEGER NOT NULL, PRIMARY KEY (job_id, n)) STRICT;
-- sample: own_index
CREATE INDEX jobs_by_status ON jobs (status);
-- sample: own_trigger_on_own_tables
CREATE TRIGGER jobs_kept BEFORE DELETE ON jobs BEGIN
    UPDATE steps SET n = CASE WHEN n > 0 THEN 0 ELSE n END;
    SELECT RAISE(ABORT, 'jobs are kept');
END;
-- sample: seed_row
INSERT INTO jobs (id, status) VALUES ('first', 'open');
