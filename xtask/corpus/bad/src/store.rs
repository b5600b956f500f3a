//! A store room that goes too far.

fn allowed() {
    let _ = "DELETE FROM runs WHERE id = ?1";
    // sample: foreign_table_from_a_store_room
    let _ = "UPDATE accounts SET total = 0";
    // sample: unknown_table_from_a_store_room
    let _ = "INSERT INTO nowhere VALUES (1)";
    // sample: sqlite_schema_from_a_store_room
    let _ = "UPDATE sqlite_schema SET sql = ''";
    // sample: table_that_varies_from_a_store_room
    let _ = format!("DELETE FROM {table} WHERE id = ?1");
    // sample: ddl_from_a_store_room
    let _ = "DROP TABLE IF EXISTS runs";
    // sample: transaction_from_a_store_room
    let _ = "BEGIN IMMEDIATE";
    // sample: second_statement_on_a_foreign_table
    let _ = "DELETE FROM runs WHERE id = 1; DELETE FROM accounts WHERE id = 1";
}
