// sample: room_that_became_a_folder
fn write() { let _ = "INSERT INTO steps SELECT id, 1 FROM jobs"; }
