// sample: test_file_with_an_entry
fn set_up() { db.execute("UPDATE jobs SET status = 'done'", []); }
