//! What the schema costs.

use holdpoint_state::testing::{TestStore, dear_tables};

#[test]
fn no_row_needs_a_table_of_its_own_to_be_checked() {
    let store = TestStore::counters().unwrap();
    assert_eq!(dear_tables(store.schema()).unwrap(), Vec::<String>::new());
}
