//! The product, driven by the same steps.

use holdpoint_controllers::commands::{
    self, Apply, Claiming, Finished, PassClaim, PassEnd, SpecChange, children,
};
use holdpoint_controllers::model::{
    ChildRequest, ChildState, Completion, FinalizerName, RequestKey, StatusPatch,
};
use holdpoint_controllers::{ControllerError, DOMAIN, views};
use holdpoint_state::{Disposition, Owner, OwnerKind, StateError};
use proptest_state_machine::StateMachineTest;
use serde_json::json;

use super::model::{Model, NOBODY, Step};
use crate::support::{World, ann, finalizer, target};

/// The real thing.
pub(super) struct Product {
    world: World,
    begun: i64,
    hosts: [Owner; 2],
    passes: [Option<PassClaim>; 2],
}

fn names(finalizers: &[u8]) -> Vec<FinalizerName> {
    finalizers
        .iter()
        .map(|name| finalizer(&name.to_string()))
        .collect()
}

fn child_request() -> ChildRequest {
    ChildRequest {
        request_key: RequestKey::new("child").unwrap(),
        workflow: "job".to_owned(),
        input: json!(1),
    }
}

/// Errors that the model knows, in its words.
fn refused(error: &ControllerError) -> String {
    match error {
        ControllerError::NotFound { .. } => NOBODY,
        ControllerError::Deleting { .. } => "deleting",
        ControllerError::DeletedMeanwhile { .. } => "deleted meanwhile",
        ControllerError::NotForced { .. } => "not forced",
        ControllerError::Completion { .. } => "refused",
        ControllerError::Invalid(_) => "invalid",
        ControllerError::State(StateError::ClaimLost { .. }) => "lost",
        other => panic!("{other}"),
    }
    .to_owned()
}

impl Product {
    fn at(&self, at: holdpoint_state::clock::UnixMillis) -> i64 {
        at.0 - self.begun
    }

    fn step(&mut self, step: &Step) -> std::result::Result<String, ControllerError> {
        let db = self.world.db();
        let adopted = |disposition| disposition == Disposition::Adopted;
        Ok(match step {
            Step::Apply(spec) => {
                match commands::apply(db, &Apply::new(&target(), json!(spec)).by(ann()))?
                    .value
                    .change
                {
                    SpecChange::Created => "created",
                    SpecChange::Updated => "updated",
                    SpecChange::Unchanged => "unchanged",
                }
                .to_owned()
            }
            Step::Hint(after) => {
                let hinted = commands::enqueue(db, &target(), Some(self.world.now().plus(*after)))?;
                format!(
                    "hinted {} {}",
                    self.at(hinted.available_at),
                    hinted.queue_version
                )
            }
            Step::Delete => {
                let receipt = commands::request_deletion(db, &target(), ann())?;
                let word = if adopted(receipt.disposition) {
                    "adopted"
                } else {
                    "requested"
                };
                format!("{word} {}", self.at(receipt.value.deletion_timestamp))
            }
            Step::Add(name) | Step::Remove(name) => {
                let name = finalizer(&name.to_string());
                let receipt = match step {
                    Step::Add(_) => commands::add_finalizer(db, &target(), &name, ann())?,
                    _ => commands::remove_finalizer(db, &target(), &name, ann())?,
                };
                if adopted(receipt.disposition) {
                    "adopted"
                } else {
                    "changed"
                }
                .to_owned()
            }
            Step::ForceFinalizer(name) => {
                let receipt = commands::force_finalizer(
                    db,
                    &target(),
                    &finalizer(&name.to_string()),
                    "why",
                    ann(),
                )?;
                match (adopted(receipt.disposition), receipt.value.is_deleted) {
                    (true, _) => "adopted",
                    (false, true) => "forced, deleted",
                    (false, false) => "forced",
                }
                .to_owned()
            }
            Step::ForceDeletion => {
                commands::force_deletion(db, &target(), "why", ann())?;
                "forced".to_owned()
            }
            Step::Clock(ms) => {
                self.world.advance(*ms);
                String::new()
            }
            Step::Claim(host) => {
                let Some(uid) = views::uid(&db.snapshot()?, &target())? else {
                    return Ok(NOBODY.to_owned());
                };
                match commands::claim(db, &Claiming::new(&uid, &self.hosts[*host]))? {
                    None => "not due".to_owned(),
                    Some(claim) => {
                        let told = format!(
                            "claimed {} errors {}",
                            claim.lease().generation(),
                            claim.consecutive_errors()
                        );
                        self.passes[*host] = Some(claim);
                        told
                    }
                }
            }
            Step::Tell(state) => self.tell(*state)?,
            Step::Renew(host)
            | Step::Finish { host, .. }
            | Step::Fail(host)
            | Step::HandBack(host)
            | Step::Reserve(host) => match &self.passes[*host] {
                None => "no pass".to_owned(),
                Some(claim) => self.in_pass(step, claim)?,
            },
        })
    }

    fn tell(&self, state: ChildState) -> std::result::Result<String, ControllerError> {
        let db = self.world.db();
        let Some(uid) = views::uid(&db.snapshot()?, &target())? else {
            return Ok(NOBODY.to_owned());
        };
        let Some(child) = views::children(&db.snapshot()?, &uid)?.pop() else {
            return Ok("no child".to_owned());
        };
        let completion = Completion {
            request_id: child.request_id,
            run_id: child.reserved_run_id.unwrap(),
            state,
            error: None,
        };
        let receipt = commands::child_completed(db, &completion)?.unwrap();
        let word = if receipt.disposition == Disposition::Adopted {
            "adopted"
        } else {
            "told"
        };
        Ok(word.to_owned())
    }

    fn in_pass(
        &self,
        step: &Step,
        claim: &PassClaim,
    ) -> std::result::Result<String, ControllerError> {
        let db = self.world.db();
        Ok(match step {
            Step::Renew(_) => {
                commands::renew(db, claim)?;
                "renewed".to_owned()
            }
            Step::Fail(_) => match commands::fail(db, claim, "it broke", PassEnd::default())? {
                Some(at) => format!("failed until {}", self.at(at)),
                None => "lost".to_owned(),
            },
            Step::HandBack(_) => if commands::hand_back(db, claim)? {
                "handed back"
            } else {
                "lost"
            }
            .to_owned(),
            Step::Reserve(_) => {
                let child = children::reserve(db, claim, &child_request())?;
                format!("child {} {}", child.state, child.attempt)
            }
            Step::Finish {
                status,
                finalizers,
                next,
                ..
            } => {
                let patch = StatusPatch {
                    controller_status: status.map(|status| json!(status)),
                    finalizers: finalizers.as_deref().map(names),
                    ..StatusPatch::default()
                };
                match commands::finish(db, claim, &patch, *next, PassEnd::default())? {
                    Finished::Settled => "settled".to_owned(),
                    Finished::SettledAgain { at } => format!("again at {}", self.at(at)),
                    Finished::Requeued { at } => format!("requeued at {}", self.at(at)),
                    Finished::Deleted => "deleted".to_owned(),
                    Finished::Conflict => "conflict".to_owned(),
                    Finished::Failed { retry_at, .. } => {
                        format!("failed until {}", self.at(retry_at))
                    }
                    blocked @ Finished::Blocked { .. } => panic!("{blocked:?}"),
                }
            }
            other => panic!("{other:?}"),
        })
    }

    fn rows(&self) -> String {
        let snapshot = self.world.db().snapshot().unwrap();
        let Some(resource) = views::resource(&snapshot, &target()).unwrap() else {
            return NOBODY.to_owned();
        };
        let metadata = &resource.metadata;
        let queue = views::queue(&snapshot, &metadata.uid).unwrap();
        let queue = queue.map(|queue| {
            (
                self.at(queue.available_at),
                queue.queue_version,
                queue.consecutive_errors,
            )
        });
        let lease = snapshot
            .resource(&metadata.uid.resource())
            .unwrap()
            .unwrap()
            .lease;
        let child = views::children(&snapshot, &metadata.uid).unwrap().pop();
        let finalizers: Vec<u8> = metadata
            .finalizers
            .iter()
            .map(|name| name.as_str().parse().unwrap())
            .collect();
        format!(
            "revision {} generation {} spec {} observed {} status {:?} deletion {:?} finalizers {finalizers:?} queue {queue:?} lease {} {:?} child {:?}",
            metadata.resource_version,
            metadata.generation,
            resource.spec,
            resource.status.observed_generation,
            resource.status.controller_status.as_u64(),
            metadata.deletion_timestamp.map(|at| self.at(at)),
            lease.generation,
            lease.expires_at.map(|at| self.at(at)),
            child.map(|child| (child.attempt, child.state)),
        )
    }
}

impl StateMachineTest for Product {
    type SystemUnderTest = Self;
    type Reference = Model;

    fn init_test(_: &Model) -> Self {
        let world = World::new().unwrap();
        let begun = world.now().0;
        let hosts = ["one", "two"].map(|host| Owner::new(OwnerKind::Host, host));
        Self {
            world,
            begun,
            hosts,
            passes: [None, None],
        }
    }

    fn apply(mut product: Self, model: &Model, step: Step) -> Self {
        let told = product.step(&step).unwrap_or_else(|error| refused(&error));
        assert_eq!(told, model.told, "{step:?}");
        assert_eq!(product.rows(), model.rows(), "{step:?}");
        product
    }

    fn check_invariants(product: &Self, _: &Model) {
        let snapshot = product.world.db().snapshot().unwrap();
        for invariant in DOMAIN.invariants {
            let sql = snapshot.sql();
            let mut statement = sql.prepare_cached(invariant.violations).unwrap();
            assert!(!statement.exists([]).unwrap(), "{}", invariant.name);
        }
    }
}
