//! Joined, filled and hidden texts.

const VERB: &str = "DELETE";
const TABLE: &str = "runs";
// sample: transaction_constant_that_is_run
const BEGIN: &str = "begin";

fn joined(db: &Db, id: &str) {
    // sample: concat
    let _ = concat!("DEL", "ETE FROM ", "runs WHERE id = 1");
    // sample: concat_with_something_unknown
    let _ = concat!("DELETE FROM ", env!("TABLE"), " WHERE id = 1");
    // sample: plus
    let _ = String::from("DELETE ") + "FROM runs WHERE id = 1";
    // sample: plus_with_something_unknown
    let _ = "UPDATE ".to_owned() + &id + " SET status = 1";
    // sample: list_concat
    let _ = ["INSERT INTO ", "runs VALUES (1, 2)"].concat();
    // sample: list_join
    let _ = ["DELETE", "FROM", "runs", "WHERE", "id = 1"].join(" ");
    // sample: stringify
    let _ = stringify!(DELETE FROM runs WHERE id = 1);
    // sample: format_with_a_table
    let _ = format!("DELETE FROM {id} WHERE id = 1");
    // sample: format_with_columns
    let _ = format!("INSERT INTO runs ({}) VALUES ({})", "id", "?1");
    // sample: format_with_a_clause
    let _ = format!("UPDATE runs SET status = 'x' {clause}");
    // sample: format_with_a_known_verb
    let _ = format!("{VERB} FROM {TABLE} WHERE id = 1");
    // sample: format_with_a_literal_verb
    let _ = format!("{} FROM runs WHERE id = 1", "DELETE");
    // sample: format_with_a_named_verb
    let _ = format!("{verb} FROM runs WHERE id = 1", verb = "DELETE");
    // sample: write_macro
    write!(sql, "INSERT INTO runs SELECT {columns} FROM queue");
    // sample: macro_of_our_own
    sql!("DELETE FROM runs WHERE id = 1");
    // sample: bare_tokens_in_a_macro
    sql! { DELETE FROM runs WHERE id = 1 };
    // sample: half_a_statement
    let mut half = String::from("INSERT INTO runs (");
    // sample: half_a_statement_in_capitals
    let mut half = String::from("UPDATE runs SET ");
    // sample: leading_placeholder
    let _ = format!("{prefix} DELETE FROM runs WHERE id = 1");
    // sample: end_of_a_common_table
    let _ = ") DELETE FROM runs WHERE id = 1";
    // sample: transaction_word_that_is_run
    db.execute_batch("commit");
    db.execute_batch(BEGIN);
    db.execute_batch(crate::END_IT);
    // sample: short_delete_that_is_run
    db.execute("Delete from somewhere", []);
    // sample: prepared_through_a_macro
    db.prepare(&format!("release {name}"));
    // sample: pragma_by_method
    db.pragma_update(None, "synchronous", "OFF");
    // sample: attribute
    #[query(sql = "DELETE FROM runs WHERE id = 1")]
    // sample: included_text
    let _ = include_str!("hidden.txt");
    // sample: included_through_the_manifest_folder
    let _ = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/hidden.txt"));
    // sample: included_code
    include!("hidden.inc");
    // sample: parameter_that_is_run
    db.execute_batch(id);
    // sample: field_that_is_prepared
    db.prepare_cached(&self.text);
    // sample: result_of_a_call_that_is_prepared
    connection.prepare(&build(id));
    // sample: template_that_begins_with_a_placeholder
    change.sql().prepare(&format!("{id} FROM runs"));
    // sample: words_of_a_list_that_is_run
    for word in ["begin", "commit"] {
        db.execute_batch(word);
    }
    // sample: pushed_parts
    let mut pushed = String::new();
    pushed.push_str("delete from ");
    pushed.push_str("somewhere");
    db.execute(&pushed, []);
    // sample: added_parts
    let mut added = String::new();
    added += "delete from ";
    added += "somewhere";
    db.execute(&added, []);
    // sample: written_parts
    let mut written = String::new();
    write!(written, "delete from {}", id);
    db.execute(&written, []);
    // sample: result_of_a_call_that_is_executed
    db.execute(&build(id), []);
    // sample: bytes_that_are_run
    db.execute_batch(std::str::from_utf8(&[68, 69, 76])?);
    // sample: refused_by_the_grammar_in_lower_case
    let _ = "delete from runs where id = 1 order by by";
    // sample: verb_by_a_path
    let _ = format!("{} FROM runs WHERE id = 1", self::VERB);
    // sample: macro_rules_body
    macro_rules! wipe {
        ($db:expr) => {
            $db.execute("DELETE FROM runs WHERE id = 1", [])
        };
    }
    // sample: nested_closure_in_a_macro
    assert!(db.with(|c| c.execute("DELETE FROM runs WHERE id = 1", [])).is_ok());
}

// sample: doc_test_of_a_function
/// Does it.
///
/// ```rust,no_run
/// # let db = open();
/// db.execute("UPDATE runs SET status = 'x'", []);
/// ```
fn documented() {}

// sample: block_doc_comment
/** Does it.

```
db.execute("UPDATE runs SET status = 'x'", []);
```
*/
fn documented_in_a_block() {}

// sample: cfg_test_module
#[cfg(test)]
mod tests {
    #[test]
    fn writes() {
        db.execute("DELETE FROM runs WHERE id = 1", []);
    }
}

// sample: module_in_a_file_of_another_kind
#[path = "hidden.inc"]
mod hidden;

#[cfg(test)]
mod checks;
