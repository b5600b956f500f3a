//! A verifier that repairs.

fn repair() {
    // sample: repair_in_verify
    let _ = "DELETE FROM queue WHERE run_id NOT IN (SELECT id FROM runs)";
    // sample: savepoint_in_verify
    let _ = "SAVEPOINT repair";
}
