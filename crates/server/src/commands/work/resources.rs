//! What `work` tells of managed resources: what their controllers say of them, when that changes, and passes that fail.

use std::collections::BTreeMap;

use holdpoint_controllers::model::{ConditionStatus, ManagedResource, ProjectPath};
use holdpoint_controllers::views::{self, Filter, QueueState};
use holdpoint_controllers::{Target, Uid};
use holdpoint_state::{Database, Event};
use serde_json::{Value, json};

use crate::commands::Context;
use crate::error::CommandError;
use crate::home;
use crate::output::text;

/// How many resources are asked for at once.
const PAGE: u32 = 1_000;
/// The kernel's type of managed resources.
const TYPE: &str = "controller";

/// The resources of this directory that were worked on.
pub(super) struct Resources<'a> {
    context: &'a Context,
    store: &'a Database,
    project: ProjectPath,
    /// By uid; those that are of other directories have no name.
    touched: BTreeMap<String, Touched>,
}

#[derive(Default)]
struct Touched {
    target: Option<Target>,
    told: String,
}

impl<'a> Resources<'a> {
    pub(super) fn new(context: &'a Context, store: &'a Database) -> Result<Self, CommandError> {
        let project = home::project(None)?;
        Ok(Self {
            context,
            store,
            project,
            touched: BTreeMap::new(),
        })
    }

    /// Tells what events say.
    pub(super) fn show(&mut self, batch: &[Event]) -> Result<(), CommandError> {
        for event in batch.iter().filter(|event| event.resource_type == TYPE) {
            let uid = &event.resource_key;
            let known = self
                .touched
                .get(uid)
                .and_then(|touched| touched.target.clone());
            let target = match known {
                Some(target) => target,
                None => match self.named(uid)? {
                    Some(target) => target,
                    None => continue,
                },
            };
            let name = text::line(&target.to_string()).into_owned();
            let touched = self.touched.entry(uid.clone()).or_default();
            touched.target = Some(target.clone());
            let payload: Value =
                serde_json::from_slice(event.payload.as_deref().unwrap_or_default())
                    .unwrap_or_default();
            match event.event_type.as_str() {
                "reconcile_finished" => {
                    let resource = views::resource(&self.store.snapshot()?, &target)?;
                    let told = resource.as_ref().map(ready).unwrap_or_default();
                    if !told.is_empty() && told != touched.told {
                        self.context
                            .output
                            .line(format!("{name} {}", text::line(&told)));
                        touched.told = told;
                    }
                }
                "reconcile_failed" => {
                    let error = payload
                        .get("error")
                        .and_then(Value::as_str)
                        .unwrap_or("the pass failed");
                    self.context
                        .output
                        .line(format!("{name} failed: {}", text::line(error)));
                    touched.told.clear();
                }
                "resource_deleted" => self.context.output.line(format!("{name} is gone")),
                _ => {}
            }
        }
        Ok(())
    }

    /// The name of a resource of this directory; none when it is of another one, or gone.
    fn named(&self, uid: &str) -> Result<Option<Target>, CommandError> {
        let Ok(uid) = Uid::new(uid) else {
            return Ok(None);
        };
        let snapshot = self.store.snapshot()?;
        let Some(resource) = views::resource_of(&snapshot, &uid)? else {
            return Ok(None);
        };
        let target = Target::new(
            self.project.clone(),
            resource.metadata.controller,
            resource.metadata.key,
        );
        // The same name in another directory is another resource.
        let own = views::uid(&snapshot, &target)?;
        Ok(Some(target).filter(|_| own.as_ref() == Some(&uid)))
    }

    /// Whether some process has a pass of a resource of this directory.
    pub(super) fn is_any_looked_at(&self) -> Result<bool, CommandError> {
        let mut filter = Filter::of(&self.project);
        filter.limit = PAGE;
        loop {
            let page = views::list(&self.store.snapshot()?, &filter, self.store.clock().now())?;
            if page
                .iter()
                .any(|resource| resource.queue == QueueState::Reconciling)
            {
                return Ok(true);
            }
            match page.last() {
                Some(last) if page.len() >= PAGE as usize => {
                    filter.after = Some((last.controller.clone(), last.key.clone()));
                }
                _ => return Ok(false),
            }
        }
    }

    /// The resources that were worked on, as they are now.
    pub(super) fn end(self) -> Result<Vec<Value>, CommandError> {
        let snapshot = self.store.snapshot()?;
        let mut documents = Vec::new();
        for (uid, touched) in &self.touched {
            let Some(target) = &touched.target else {
                continue;
            };
            let resource = views::resource(&snapshot, target)?
                .filter(|resource| resource.metadata.uid == uid.as_str());
            documents.push(json!({
                "uid": uid,
                "resourceManager": target.controller,
                "key": target.key,
                "generation": resource.as_ref().map(|resource| resource.metadata.generation),
                "conditions": resource.as_ref().map(|resource| &resource.status.conditions),
                "isDeleted": resource.is_none(),
            }));
        }
        Ok(documents)
    }
}

/// What its controller says of a resource, in one line.
fn ready(resource: &ManagedResource) -> String {
    let Some(ready) = resource.current_condition("Ready") else {
        return String::new();
    };
    let word = match ready.status {
        ConditionStatus::True => "is ready",
        ConditionStatus::False => "is not ready",
        ConditionStatus::Unknown => "may be ready",
    };
    let message = ready
        .message
        .as_deref()
        .map(|message| format!(": {message}"))
        .unwrap_or_default();
    format!("{word} ({}){message}", ready.reason)
}
