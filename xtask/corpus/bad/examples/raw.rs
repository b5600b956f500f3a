// sample: example
fn main() { db.execute_batch("CREATE TABLE mine (id INTEGER)"); }
