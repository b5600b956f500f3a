// sample: benchmark
fn set_up() { db.execute("INSERT INTO runs VALUES (1, 'new')", []); }
