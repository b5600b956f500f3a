//! A reader's statements are not a writer's, and nobody else can make the latter.
use holdpoint_state::command::Sql;
use holdpoint_state::testing::TestStore;
use holdpoint_state::StateError;

fn main() -> Result<(), StateError> {
    let store = TestStore::counters()?;
    let snapshot = store.db().snapshot()?;
    let sql = snapshot.sql();
    Sql::writing(&sql.connection, 0); //~ E0616 E0624 E0061
    store.db().connection(); //~ E0599
    drop(sql);
    Ok(())
}
