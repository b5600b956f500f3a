//! A store room.

fn write(table: &str) {
    // sample: own_insert
    let _ = "INSERT INTO jobs (id, status) VALUES (:id, :status) ON CONFLICT (id) DO NOTHING";
    // sample: own_update
    let _ = "UPDATE jobs SET status = 'done' WHERE id = :id AND status = 'open' RETURNING id";
    // sample: own_delete_in_odd_case
    let _ = "dElEtE FROM \"Jobs\" WHERE id = ?1";
    // sample: own_batch
    let _ = "DELETE FROM steps WHERE job_id = ?1; DELETE FROM jobs WHERE id = ?1;";
    // sample: own_template_of_columns
    let _ = format!("INSERT INTO steps ({columns}) VALUES ({values})");
    // sample: own_template_of_a_list
    let _ = format!("DELETE FROM steps WHERE job_id IN ({})", "?,?,?");
    // sample: constant_that_is_prepared
    db.prepare_cached(FIND);
    // sample: variable_with_a_text
    let text = format!("SELECT id FROM jobs WHERE status = '{table}'");
    db.prepare(&text);
    // sample: included_sql_that_is_run
    const SCHEMA: &str = include_str!("schema.sql");
    db.execute_batch(SCHEMA);
    // sample: prepare_that_is_not_of_sql
    plan.prepare(&table);
    // sample: batch_by_include
    db.execute_batch(include_str!("schema.sql"));
}

const FIND: &str = "SELECT id FROM jobs WHERE id = ?1";
