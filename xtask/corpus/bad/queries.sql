-- sample: mutation_in_a_loose_sql_file
SELECT 1; DELETE FROM runs WHERE status = 'done';
-- sample: ddl_in_a_loose_sql_file
ALTER TABLE runs ADD COLUMN note TEXT;
-- sample: short_statement_in_a_loose_sql_file
vacuum
