//! What the schema costs.

use holdpoint_state::testing::dear_tables;
use holdpoint_state::{Identity, Schema};

#[test]
fn no_row_needs_a_table_of_its_own_to_be_checked() {
    let domains = [holdpoint_state::DOMAIN, holdpoint_workflows::DOMAIN];
    let schema = Schema::compose(Identity::PI_WORKFLOWS, domains).unwrap();
    assert_eq!(dear_tables(&schema).unwrap(), Vec::<String>::new());
}
