// sample: test_file
fn set_up() { db.execute("INSERT INTO runs VALUES (1, 'new')", []); }
