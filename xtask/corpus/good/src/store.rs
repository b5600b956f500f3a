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
}
