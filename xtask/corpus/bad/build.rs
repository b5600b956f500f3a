// sample: build_script
fn main() { db.execute("INSERT INTO runs VALUES (1, 'new')", []); }
