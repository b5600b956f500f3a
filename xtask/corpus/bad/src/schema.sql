-- sample: tables_of_a_crate_that_is_no_domain
CREATE TABLE runs (id TEXT PRIMARY KEY, status TEXT NOT NULL) STRICT;
CREATE TABLE "queue" (run_id TEXT PRIMARY KEY REFERENCES runs (id)) STRICT;
-- sample: table_of_another_domain
CREATE TABLE ledger (id TEXT PRIMARY KEY) STRICT;
-- sample: index_on_a_foreign_table
CREATE INDEX accounts_by_total ON accounts (total);
-- sample: trigger_on_a_foreign_table
CREATE TRIGGER accounts_touched AFTER UPDATE ON accounts BEGIN SELECT 1; END;
-- sample: trigger_body_writes_a_foreign_table
CREATE TRIGGER runs_counted AFTER INSERT ON runs BEGIN
    INSERT INTO queue (run_id) VALUES (new.id);
    UPDATE accounts SET total = total + 1;
END;
-- sample: pragma_in_a_schema_file
PRAGMA foreign_keys = OFF;
-- sample: transaction_in_a_schema_file
BEGIN IMMEDIATE;
-- sample: grammar_refuses
CREATE TABEL typo (id TEXT);
