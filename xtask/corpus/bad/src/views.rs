//! A reading room that writes.

fn read() {
    // sample: write_in_a_view
    let _ = "UPDATE runs SET status = 'seen' WHERE id = ?1 RETURNING id";
}
