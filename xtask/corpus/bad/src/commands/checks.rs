// sample: test_module_in_its_own_file
fn helper() { db.execute("DELETE FROM runs WHERE id = 1", []); }
