//! A reading room.

fn read() {
    // sample: select
    let _ = "SELECT id, status AS \"update\" FROM jobs WHERE status <> 'delete from jobs' ORDER BY id";
    // sample: select_with_replace_function
    let _ = "SELECT replace(status, 'a', 'b') FROM jobs";
    // sample: values
    let _ = "VALUES ('INSERT INTO jobs VALUES (1)')";
    // sample: pragma_that_reports
    let _ = "PRAGMA foreign_key_check(jobs)";
    // sample: pragma_value
    let _ = "PRAGMA user_version";
    // sample: reading_pragma_by_method
    db.pragma_query_value(None, "journal_mode", |row| row.get(0));
    // sample: texts_of_a_list
    for query in ["SELECT 1", "SELECT 2"] {
        db.prepare_cached(query);
    }
    // sample: statement_that_gets_parameters
    db.prepare_cached("SELECT ?1")?.query_row(params(), |row| row.get(0));
    // sample: pushed_clause
    let mut sql = String::from("SELECT id FROM jobs");
    sql.push_str(" WHERE status = ?1");
    db.query_row(&sql, [], |row| row.get(0));
    // sample: texts_of_a_named_list
    for text in LIST.iter() {
        db.prepare_cached(text);
    }
}

const LIST: [&str; 2] = ["SELECT id FROM jobs", "SELECT job_id FROM steps"];
