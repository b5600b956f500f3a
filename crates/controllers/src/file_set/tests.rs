//! File sets under a scheduler, on a real directory.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use holdpoint_state::testing::TestStore;
use holdpoint_workflows::{Scheduler, SchedulerOptions, Workflows};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::reconcile::{FileSet, FileSetWish};
use crate::model::{Condition, EffectOutcome, Key};
use crate::{Controllers, ManagedBy, views};

/// How long a test waits for what must come.
const LIMIT: Duration = Duration::from_secs(10);

const PAGE: &str = r#"
name: page
input:
  fields:
    title: { type: string }
startAt: render
nodes:
  render:
    compute: { jq: '"<h1>\($input.title)</h1>\n"' }
"#;

const BROKEN: &str = r"
name: broken
startAt: fail
nodes:
  fail:
    compute: { jq: error }
";

/// A project with its store and a scheduler.
struct Site {
    project: TempDir,
    controllers: Controllers,
    workflows: Workflows,
    scheduler: Option<Scheduler>,
    store: TestStore,
}

impl Site {
    fn new() -> Self {
        let store = TestStore::new([holdpoint_workflows::DOMAIN, crate::DOMAIN]).unwrap();
        let project = TempDir::new().unwrap();
        let root = project.path().canonicalize().unwrap();
        fs::write(root.join("page.workflow.yaml"), PAGE).unwrap();
        fs::write(root.join("broken.workflow.yaml"), BROKEN).unwrap();
        let workflows = Workflows::new(store.db().clone());
        workflows.registry().search(vec![root.clone()]);
        let controllers = Controllers::new(&workflows, &root).unwrap();
        let files = FileSet::new(&workflows, controllers.project());
        let controllers = controllers.register(files).unwrap();
        let workflows = controllers.attach(workflows);
        let scheduler = workflows.scheduler(SchedulerOptions::default()).unwrap();
        Self {
            project,
            controllers,
            workflows,
            scheduler: Some(scheduler),
            store,
        }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.project.path().join(path)
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap_or_else(|_| "(none)".to_owned())
    }

    fn apply(&self, key: &str, spec: &Value) {
        let wish: FileSetWish = serde_json::from_value(spec.clone()).unwrap();
        self.controllers.apply::<FileSet>(key, &wish).unwrap();
    }

    /// Waits until `Ready` has this reason for the present generation, and nothing goes on.
    fn wait_for(&self, key: &str, reason: &str) -> Condition {
        let is = |resource: &ManagedBy<FileSet>| {
            resource
                .resource
                .current_condition("Ready")
                .is_some_and(|ready| ready.reason == reason)
        };
        let found = self
            .controllers
            .wait_until::<FileSet>(key, LIMIT, |found| found.is_some_and(is))
            .unwrap();
        let Some(found) = found.filter(is) else {
            let is = self.controllers.get::<FileSet>(key).unwrap().unwrap();
            panic!("{key} is not {reason}: {:#?}", is.resource.status);
        };
        found.resource.current_condition("Ready").unwrap().clone()
    }

    fn look_again(&self, key: &str) {
        self.controllers.hint::<FileSet>(key, None).unwrap();
    }

    /// Lets time pass, and the scheduler know.
    fn later(&self) {
        self.store.clock().advance(1_000);
        self.workflows.wake_work();
    }

    fn delete(&self, key: &str) {
        self.controllers.delete::<FileSet>(key).unwrap();
        assert!(
            self.controllers
                .wait_until_gone::<FileSet>(key, LIMIT)
                .unwrap(),
            "{key} is still there"
        );
    }

    /// The kinds and outcomes of all acts of a resource.
    fn acts(&self, key: &str) -> Vec<String> {
        let found = self.controllers.get::<FileSet>(key).unwrap().unwrap();
        let snapshot = self.controllers.database().snapshot().unwrap();
        let effects = views::effects(&snapshot, &found.resource.metadata.uid).unwrap();
        effects
            .iter()
            .map(|effect| {
                assert_eq!(effect.state, EffectOutcome::Applied, "{effect:?}");
                effect.kind.trim_start_matches("file-set.").to_owned()
            })
            .collect()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if let Some(scheduler) = self.scheduler.take() {
            scheduler.stop(Duration::from_secs(5));
        }
    }
}

fn text(path: &str, content: &str) -> Value {
    json!({ "path": path, "content": content })
}

fn page(path: &str, title: &str) -> Value {
    json!({ "path": path, "from": { "workflow": "page", "input": { "title": title } } })
}

#[test]
fn a_directory_becomes_what_is_declared_and_goes_with_its_resource() {
    let site = Site::new();
    site.apply(
        "site",
        &json!({ "directory": "out", "files": [text("a.txt", "a"), page("sub/p.html", "Hello")] }),
    );
    site.wait_for("site", "Equal");
    assert_eq!(
        (
            site.read("out/a.txt").as_str(),
            site.read("out/sub/p.html").as_str()
        ),
        ("a", "<h1>Hello</h1>\n")
    );
    assert_eq!(site.acts("site"), ["claim", "write", "write"]);

    // Another spec: one file changes, one goes, one comes, one is made anew.
    site.apply(
        "site",
        &json!({ "directory": "out", "files": [text("a.txt", "b"), page("q.html", "Bye")] }),
    );
    site.wait_for("site", "Equal");
    assert_eq!(
        (
            site.read("out/a.txt").as_str(),
            site.read("out/q.html").as_str()
        ),
        ("b", "<h1>Bye</h1>\n")
    );
    assert!(!site.path("out/sub").exists());

    // Drift: changed and removed by hand.
    fs::write(site.path("out/a.txt"), "by hand").unwrap();
    fs::remove_file(site.path("out/q.html")).unwrap();
    site.look_again("site");
    let is_back = |_: Option<&ManagedBy<FileSet>>| {
        site.read("out/a.txt") == "b" && site.path("out/q.html").exists()
    };
    site.controllers
        .wait_until::<FileSet>("site", LIMIT, is_back)
        .unwrap();
    assert_eq!(
        (
            site.read("out/a.txt").as_str(),
            site.read("out/q.html").as_str()
        ),
        ("b", "<h1>Bye</h1>\n")
    );

    // Another directory: the old one is left clean.
    site.apply(
        "site",
        &json!({ "directory": "other/place", "files": [text("a.txt", "b")] }),
    );
    site.wait_for("site", "Equal");
    assert!(!site.path("out").exists());
    assert_eq!(site.read("other/place/a.txt"), "b");
    fs::write(site.path("other/place/mine"), "mine").unwrap();
    site.delete("site");
    assert_eq!(site.read("other/place/mine"), "mine");
    assert!(!site.path("other/place/a.txt").exists());
    let left: Vec<_> = fs::read_dir(site.path("other/place")).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
}

/// Each change comes in the middle of some pass: between an act and its announcement, and between an act and its end.
#[test]
fn many_changes_end_with_the_last_one() {
    let site = Site::new();
    for round in 0..40 {
        let files: Vec<Value> = (0..4)
            .map(|file| text(&format!("f{}", (round + file) % 7), &format!("{round}")))
            .collect();
        site.apply(
            "site",
            &json!({ "directory": if round % 5 == 4 { "other" } else { "out" }, "files": files }),
        );
        if round % 3 == 0 {
            std::thread::yield_now();
        }
    }
    site.wait_for("site", "Equal");
    assert_eq!(site.read("other/f4"), "39");
    assert!(!site.path("out").exists());
    assert_eq!(fs::read_dir(site.path("other")).unwrap().count(), 5);
    site.delete("site");
    assert!(!site.path("other").exists());
}

#[test]
fn what_somebody_else_wrote_stays_unless_the_spec_says_so() {
    let site = Site::new();
    fs::create_dir(site.path("out")).unwrap();
    fs::write(site.path("out/theirs"), "theirs").unwrap();
    fs::write(site.path("out/same"), "same").unwrap();
    let files = json!([
        text("theirs", "ours"),
        text("same", "same"),
        text("new", "new")
    ]);
    site.apply("site", &json!({ "directory": "out", "files": files }));
    let ready = site.wait_for("site", "Occupied");
    assert_eq!(
        ready.message.as_deref(),
        Some("theirs: a file of somebody else is there")
    );
    assert_eq!(
        (
            site.read("out/theirs").as_str(),
            site.read("out/new").as_str()
        ),
        ("theirs", "new")
    );
    // Not declared any more: what was theirs stays.
    site.apply(
        "site",
        &json!({ "directory": "out", "files": [text("new", "new")] }),
    );
    site.wait_for("site", "Equal");
    assert_eq!(
        (
            site.read("out/theirs").as_str(),
            site.read("out/same").as_str()
        ),
        ("theirs", "same")
    );
    // Now it is said.
    site.apply(
        "site",
        &json!({ "directory": "out", "existing": "replace", "files": files }),
    );
    site.wait_for("site", "Equal");
    assert_eq!(site.read("out/theirs"), "ours");
    site.delete("site");
    assert_eq!(fs::read_dir(site.path("out")).unwrap().count(), 0);
}

#[test]
fn everything_else_goes_when_the_spec_says_so() {
    let site = Site::new();
    let outside = TempDir::new().unwrap();
    fs::write(outside.path().join("secret"), "secret").unwrap();
    fs::create_dir_all(site.path("out/a/b")).unwrap();
    fs::write(site.path("out/a/b/old"), "old").unwrap();
    fs::write(site.path("out/older"), "older").unwrap();
    // The directory of another resource is its own, also in this one.
    fs::create_dir(site.path("out/theirs")).unwrap();
    fs::write(site.path("out/theirs").join(super::spec::MARKER), "{}").unwrap();
    fs::write(site.path("out/theirs/file"), "theirs").unwrap();
    let spec = json!({ "directory": "out", "prune": "everything", "files": [text("new", "new")] });
    site.apply("site", &spec);
    site.wait_for("site", "Equal");
    assert!(!site.path("out/a").exists() && !site.path("out/older").exists());
    assert_eq!(
        (
            site.read("out/new").as_str(),
            site.read("out/theirs/file").as_str()
        ),
        ("new", "theirs")
    );
    // A link is nothing that is removed, nor followed.
    std::os::unix::fs::symlink(outside.path(), site.path("out/link")).unwrap();
    site.look_again("site");
    let ready = site.wait_for("site", "NotAFile");
    assert_eq!(
        ready.message.as_deref(),
        Some("link: something that is no ordinary file is there")
    );
    // What is there when the resource goes is not its own.
    fs::write(site.path("out/late"), "late").unwrap();
    site.delete("site");
    assert_eq!(
        (
            site.read("out/late").as_str(),
            site.read("out/new").as_str()
        ),
        ("late", "(none)")
    );
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
}

#[test]
fn drift_can_be_only_reported_and_what_was_changed_is_not_removed() {
    let site = Site::new();
    site.apply("site", &json!({ "directory": "out", "drift": "report", "files": [text("a", "a"), text("b", "b")] }));
    site.wait_for("site", "Equal");
    fs::write(site.path("out/a"), "by hand").unwrap();
    site.look_again("site");
    let ready = site.wait_for("site", "Drifted");
    assert_eq!(ready.message.as_deref(), Some("a: somebody changed it"));
    site.delete("site");
    assert_eq!(
        (site.read("out/a").as_str(), site.read("out/b").as_str()),
        ("by hand", "(none)")
    );
}

#[test]
fn a_directory_has_one_resource() {
    let site = Site::new();
    site.apply(
        "one",
        &json!({ "directory": "out", "files": [text("a", "one")] }),
    );
    site.wait_for("one", "Equal");
    site.apply(
        "two",
        &json!({ "directory": "out", "recheckAfterMs": 100, "files": [text("a", "two")] }),
    );
    site.apply(
        "three",
        &json!({ "directory": "out/sub", "files": [text("a", "three")] }),
    );
    let ready = site.wait_for("two", "DirectoryTaken");
    assert!(
        ready
            .message
            .unwrap()
            .contains("belongs to the resource file-set/one")
    );
    site.wait_for("three", "DirectoryTaken");
    assert_eq!(site.read("out/a"), "one");
    // Once it is free, the one that waits takes it without being told.
    site.delete("one");
    site.later();
    site.wait_for("two", "Equal");
    assert_eq!(site.read("out/a"), "two");
    site.delete("three");
    assert_eq!(site.read("out/a"), "two");
}

#[test]
fn what_can_not_be_is_told_and_can_be_deleted() {
    let site = Site::new();
    for (key, spec, reason) in [
        (
            "outside",
            json!({ "directory": "../out", "files": [] }),
            "InvalidSpec",
        ),
        ("shape", json!({ "directories": ["out"] }), "InvalidSpec"),
        (
            "nowhere",
            json!({ "directory": "nowhere", "files": [{ "path": "a", "from": { "workflow": "nobody" } }, text("b", "b")] }),
            "WorkflowFailed",
        ),
        (
            "wrong",
            json!({ "directory": "wrong", "files": [{ "path": "a", "from": { "workflow": "./page.workflow.yaml", "input": { "title": 1 } } }] }),
            "WorkflowFailed",
        ),
        (
            "failed",
            json!({ "directory": "failed", "files": [{ "path": "a", "from": { "workflow": "broken" } }, text("b", "b")] }),
            "WorkflowFailed",
        ),
    ] {
        site.apply(key, &spec);
        let ready = site.wait_for(key, reason);
        assert!(ready.message.is_some_and(|message| !message.is_empty()));
        if key == "failed" {
            assert_eq!(site.read("failed/b"), "b");
        }
        site.delete(key);
    }
    assert!(!site.path("failed").exists());
    assert!(Key::new("x").is_ok());
}

#[test]
fn a_link_in_the_place_of_the_directory_is_not_followed() {
    let site = Site::new();
    let outside = TempDir::new().unwrap();
    site.apply(
        "site",
        &json!({ "directory": "out", "recheckAfterMs": 100, "files": [text("a", "a")] }),
    );
    site.wait_for("site", "Equal");
    fs::rename(site.path("out"), site.path("moved")).unwrap();
    std::os::unix::fs::symlink(outside.path(), site.path("out")).unwrap();
    site.later();
    site.wait_for("site", "DirectoryUnreachable");
    site.delete("site");
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
}
