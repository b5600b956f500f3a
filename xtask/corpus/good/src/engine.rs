//! The room that owns the connection.

fn run(db: &Db) {
    // sample: transaction_in_an_engine_room
    db.execute_batch("BEGIN IMMEDIATE");
    // sample: pragma_in_an_engine_room
    db.pragma_update(None, "synchronous", "FULL");
    // sample: vacuum_in_an_engine_room
    db.execute_batch("VACUUM");
    // sample: savepoint_template_in_an_engine_room
    db.execute_batch(&format!("SAVEPOINT {name}"));
    // sample: run_time_text_in_an_engine_room
    db.execute_batch(text);
}
