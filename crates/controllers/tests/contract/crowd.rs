//! A hundred thousand resources of others that are due cost a search nothing.

use std::time::Duration;

use holdpoint_controllers::model::{ControllerName, ProjectPath};
use holdpoint_controllers::views::{self, DueQuery};
use holdpoint_state::Database;
use holdpoint_state::clock::{Clock as _, SystemClock};
use holdpoint_state::testing::plain;
use serde_json::json;

use crate::support::{Result, World};

/// Resources of a controller that nobody here has, made from the one that is there.
const CROWD: &str = "
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000)
    INSERT INTO resources (resource_key, resource_type, aggregate_key, revision, created_at, updated_at)
    SELECT 1000 + i, 'controller', printf('00000000-0000-7000-8000-%012d', i), 1, 0, 0 FROM n;
    INSERT INTO controller_resources (resource_key, project_id, controller_name, resource_name, spec_generation, spec_digest, spec,
        status_digest, status, created_at, updated_at)
    SELECT r.resource_key, c.project_id, 'other', 'key-' || r.resource_key, 1, c.spec_digest, c.spec, c.status_digest, c.status, 0, 0
    FROM resources r JOIN controller_resources c ON c.controller_name = 'tree' WHERE r.resource_key > 1000;
    INSERT INTO controller_queue (resource_key, project_id, controller_name, available_at, queue_version, created_at, updated_at)
    SELECT resource_key, project_id, controller_name, 0, 1, 0, 0 FROM controller_resources WHERE controller_name = 'other';";

#[test]
fn a_crowd_of_others_is_not_looked_at() -> Result {
    let world = World::with(json!(1))?;
    let uid = world.uid()?;
    let path = world.store.directory().join("crowd.sqlite");
    world.db().backup(&path)?;
    plain::open(&path)?.execute_batch(CROWD)?;
    let db = Database::open_with(&path, world.store.schema(), world.store.options())?;
    let (project, controllers) = (
        ProjectPath::new("/srv/app")?,
        [ControllerName::new("tree")?],
    );
    let query = DueQuery {
        project: &project,
        controllers: &controllers,
        now: world.now(),
        limit: 4,
    };
    let clock = SystemClock;
    let begun = clock.monotonic();
    for _ in 0..200 {
        assert_eq!(
            views::due(&db.snapshot()?, &query)?.uids.first(),
            Some(&uid)
        );
    }
    // To read the crowd once takes a tenth of a second and more; to read what is due here, some fifty microseconds.
    let took = Duration::from_millis(clock.monotonic().since(begun));
    assert!(took < Duration::from_secs(4), "{took:?}");
    // Who knows the others finds the first of them, and reads no further.
    let controllers = [ControllerName::new("other")?];
    let query = DueQuery {
        controllers: &controllers,
        ..query
    };
    assert_eq!(views::due(&db.snapshot()?, &query)?.uids.len(), 4);
    Ok(())
}
