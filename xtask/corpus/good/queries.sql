-- sample: loose_sql_that_reads
WITH open AS (SELECT id FROM jobs WHERE status = 'open') SELECT * FROM open;
PRAGMA table_info(jobs);
EXPLAIN QUERY PLAN SELECT 1;
