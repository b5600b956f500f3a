//! Rows of managed resources: one that failed, held by a finalizer, with a child that was asked for.

use std::path::Path;

use holdpoint_controllers::commands::{self, Apply, Claiming, PassEnd, children};
use holdpoint_controllers::model::{ChildRequest, FinalizerName, RequestKey, Target};
use holdpoint_state::{Actor, Database, Owner, OwnerKind};
use serde_json::json;

/// The controller of the resource, which no program has, and its key.
pub(crate) const NAMES: [&str; 2] = ["guarded", "one"];

/// A resource of the project in `directory`.
pub(super) fn fill(db: &Database, directory: &Path) {
    let project = directory.canonicalize().unwrap();
    let [controller, key] = NAMES;
    let target = Target::parse(project.to_str().unwrap(), controller, key).unwrap();
    let uid = commands::apply(db, &Apply::new(&target, json!({ "files": 2 })))
        .unwrap()
        .value
        .uid;
    let finalizer = FinalizerName::new("guarded/files").unwrap();
    commands::add_finalizer(db, &target, &finalizer, Actor::control("test")).unwrap();
    let owner = Owner::new(OwnerKind::Host, "host");
    let claim = commands::claim(db, &Claiming::new(&uid, &owner))
        .unwrap()
        .unwrap();
    let child = ChildRequest {
        request_key: RequestKey::new("build").unwrap(),
        workflow: "build".to_owned(),
        input: json!(1),
    };
    children::reserve(db, &claim, &child).unwrap();
    commands::fail(db, &claim, "the disk is full", PassEnd::default()).unwrap();
}
