//! A statement is a text of the program: what varies is a parameter.
use holdpoint_state::{Change, StateError};

fn assemble(change: &mut Change<'_>, table: &str) -> Result<(), StateError> {
    let sql = change.sql();
    let assembled = format!("SELECT count(*) FROM {table}");
    sql.prepare_cached(&assembled)?; //~ E0597
    Ok(())
}

fn main() {
    let _: fn(&mut Change<'_>, &str) -> Result<(), StateError> = assemble;
}
