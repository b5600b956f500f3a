//! Prose that looks like SQL, and SQL that is not run.
//!
//! sample: sql_of_another_database_in_documentation
//!
//! ```sql
//! DELETE FROM pg_stat_statements WHERE calls = 0;
//! ```
//!
//! ```text
//! UPDATE jobs SET status = 'x'
//! ```

fn prose(name: &str, count: u32) {
    // sample: update_in_a_sentence
    let _ = "update the run before the lease ends";
    // sample: update_available
    log!("Update available: {name} {count}");
    // sample: set_in_a_sentence
    let _ = "update settings, set the value to 1";
    // sample: insert_in_a_sentence
    let _ = "insert into the slot until it clicks";
    // sample: insert_with_brackets
    let _ = "Insert into folder (optional) the file";
    // sample: delete_in_a_sentence
    let _ = "delete from the list what you don't need";
    // sample: delete_button
    let _ = "Delete from disk";
    // sample: http_verbs
    let _ = ["GET", "POST", "PUT", "PATCH", "DELETE"];
    // sample: http_request
    let _ = format!("DELETE {url} HTTP/1.1");
    // sample: http_route
    route!("DELETE /runs/{id}", delete_run);
    // sample: create_in_a_sentence
    let _ = "create a table of contents; drop the rest";
    // sample: create_table_in_a_sentence
    let _ = "Create table of contents";
    // sample: drop_in_a_sentence
    let _ = "drop table reservations";
    // sample: replace_in_a_sentence
    let _ = "replace {a} by {b}";
    // sample: transaction_words
    let _ = ["begin", "commit", "end", "rollback", "release"];
    // sample: words_in_capitals
    const MARKS: [&str; 4] = ["BEGIN", "END", "COMMIT", "VACUUM"];
    // sample: two_words_that_the_grammar_accepts
    let _ = "release notes";
    // sample: savepoint_in_a_sentence
    let _ = "savepoint failed";
    // sample: message_in_capitals
    let _ = "VACUUM failed";
    // sample: reindex_message
    let _ = "REINDEX skipped";
    // sample: analyze_this
    let _ = "analyze this";
    // sample: attach_in_a_sentence
    let _ = "attach report as pdf";
    // sample: explain_in_a_sentence
    let _ = "explain why the run waits";
    // sample: with_in_a_sentence
    let _ = "with great care (and time) update everything";
    // sample: apostrophe
    let _ = "can't update runs: the claim is lost";
    // sample: semicolons_in_prose
    let _ = "commit first; then push the branch";
    // sample: error_text_with_a_table
    let _ = format!("update of runs failed: {name}");
    // sample: operation_names
    let _ = ["decision.update", "run.delete", "insert_before", "drop"];
    // sample: command_line
    let _ = "git commit -m 'update jobs' && git push";
    // sample: placeholder_verbs
    let _ = format!("{name} from {count} into {name}");
    // sample: joined_prose
    let _ = "delete ".to_owned() + name + " from the queue";
    // sample: compile_time_prose
    let _ = concat!("update ", "available");
    // sample: json_text
    let _ = r#"{"sql": "DELETE FROM jobs WHERE id = 1"}"#;
    // sample: quoted_in_a_message
    let _ = "do not run `DELETE FROM jobs`; use retention";
    // sample: macro_with_a_verb
    update! { jobs };
    // sample: allowed_line
    let _ = "DELETE FROM jobs WHERE id = 1"; // lint:allow(sql-outside-store): sample of a comment on the line
    // sample: path_of_a_file
    let _ = include_str!("schema.sql");
}

// sample: allowed_item
// lint:allow(sql-outside-store): sample of a comment that covers an item
/// Documented.
#[inline]
fn allowed() {
    let _ = "DELETE FROM jobs WHERE id = 1";
    let _ = "UPDATE jobs SET status = 'x'";
}

// sample: doc_test_that_is_not_run
/// ```compile_fail
/// db.execute("DELETE FROM jobs", []);
/// ```
///
/// ```ignore
/// db.execute("DELETE FROM jobs", []);
/// ```
fn documented() {}

#[cfg(test)]
mod tests {
    // sample: test_with_a_reason
    // lint:allow(sql-in-test): a broken file can't be made through the commands
    #[test]
    fn breaks_the_file() {
        db.execute("DELETE FROM jobs WHERE id = 1", []);
    }

    // sample: test_that_reads
    #[test]
    fn reads() {
        db.query_row("SELECT count(*) FROM jobs", [], |row| row.get(0));
    }
}

// sample: a_domain_in_one_file
pub const DOMAIN: Domain = Domain::named("good");

/// Opens a job.
pub const OPEN: Operation = Operation { name: "job.open", ..Operation::PLAIN };

fn open(db: &Database) {
    db.commit(Command::new(&OPEN))
}
