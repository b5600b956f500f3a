//! K1: somebody says what is wanted.

use holdpoint_state::{Actor, Command, Database, Outcome, Payload, Receipt};
use serde_json::{Value, json};

use super::{LOOKS_MAX, facts};
use crate::error::ControllerError;
use crate::model::{DOCUMENT_BYTES_MAX, StatusView, Target, Uid, limited};
use crate::views::stored;
use crate::{operations, store};

/// A wish for a resource with a spec.
#[derive(Debug, Clone)]
pub struct Apply {
    target: Target,
    spec: Value,
    initial_status: Value,
    actor: Actor,
    expected: Option<Expected>,
}

/// What a caller knows of the resource.
#[derive(Debug, Clone)]
enum Expected {
    Version(u64),
    /// Which resource it is and the generation of its spec; none when there was no resource.
    Spec(Option<(Uid, u64)>),
}

impl Apply {
    /// A wish by explicit control.
    pub fn new(target: &Target, spec: Value) -> Self {
        Self {
            target: target.clone(),
            spec,
            initial_status: Value::Null,
            actor: Actor::control("program"),
            expected: None,
        }
    }

    /// Says what the controller's part of the status is before the first pass. It is used when the resource is made, and ignored later.
    #[must_use]
    pub fn initial_status(mut self, status: Value) -> Self {
        self.initial_status = status;
        self
    }

    /// Says who wishes it.
    #[must_use]
    pub fn by(mut self, actor: Actor) -> Self {
        self.actor = actor;
        self
    }

    /// Says which resource version the caller read, 0 for none. At another one nothing is changed; an equal spec is adopted at any.
    #[must_use]
    pub fn expecting(mut self, resource_version: u64) -> Self {
        self.expected = Some(Expected::Version(resource_version));
        self
    }

    /// Says which spec the caller read: whose it is, and its generation; none when there was no resource. At another one nothing is changed;
    /// an equal spec is adopted at any. Passes and hints, which move the version all the time, do not disturb it.
    #[must_use]
    pub fn expecting_spec(mut self, spec: Option<(Uid, u64)>) -> Self {
        self.expected = Some(Expected::Spec(spec));
        self
    }

    fn changed(&self) -> ControllerError {
        ControllerError::SpecChanged {
            target: self.target.to_string(),
        }
    }
}

/// What an applied wish did to the spec.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub enum SpecChange {
    /// The resource was made.
    Created,
    /// The spec is another one, and so is the generation.
    Updated,
    /// The resource has this very spec.
    Unchanged,
}

/// The receipt of an applied wish.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Applied {
    /// The resource.
    pub uid: Uid,
    /// The generation that its spec has.
    pub generation: u64,
    /// What was done.
    pub change: SpecChange,
}

/// Makes the resource, or changes its spec, and queues it. An equal spec is adopted: canonical bytes are compared, so that the order of keys
/// does not matter.
///
/// # Errors
///
/// [`crate::model::Invalid::TooLarge`]; [`ControllerError::Deleting`] for another spec while the deletion is requested;
/// [`holdpoint_state::StateError::StaleRevision`] with the present version unless it is the expected one;
/// [`ControllerError::SpecChanged`] unless the spec is the expected one.
pub fn apply(db: &Database, apply: &Apply) -> Result<Receipt<Applied>, ControllerError> {
    let spec = limited("spec", &apply.spec, DOCUMENT_BYTES_MAX)?;
    let status = StatusView::initial(apply.initial_status.clone()).payload()?;
    for _ in 0..LOOKS_MAX {
        let found = stored::find(&db.snapshot()?.sql(), &apply.target)?;
        let receipt = match found {
            Some(uid) => update(db, apply, &uid, &spec)?,
            None => create(db, apply, &spec, &status)?,
        };
        let Receipt {
            disposition,
            revision,
            event_seq,
            value,
        } = receipt;
        if let Some(value) = value {
            return Ok(Receipt {
                disposition,
                revision,
                event_seq,
                value,
            });
        }
    }
    Err(ControllerError::Unsteady {
        target: apply.target.to_string(),
    })
}

/// None: somebody else was faster.
fn create(
    db: &Database,
    apply: &Apply,
    spec: &Payload,
    status: &Payload,
) -> Result<Receipt<Option<Applied>>, ControllerError> {
    let uid = Uid::random();
    let command = Command::new(&operations::CREATE, uid.resource())
        .by(apply.actor.clone())
        .creating();
    let (target, expected) = (apply.target.clone(), apply.expected.clone());
    let wish = apply.clone();
    let (spec, status) = (spec.clone(), status.clone());
    db.commit::<_, ControllerError>(command, move |change| {
        if store::resources::find(change, &target)?.is_some() {
            return Ok(Outcome::Refused(None));
        }
        match &expected {
            Some(Expected::Version(expected)) => change.expect_revision(*expected)?,
            Some(Expected::Spec(Some(_))) => return Err(wish.changed()),
            Some(Expected::Spec(None)) | None => {}
        }
        store::resources::insert(change, &target, &spec, &status)?;
        store::queue::enqueue(change, change.now())?;
        change.record(facts(&json!({ "generation": 1 }))?);
        Ok(Outcome::Accepted(Some(Applied {
            uid: uid.clone(),
            generation: 1,
            change: SpecChange::Created,
        })))
    })
}

/// None: it is gone.
fn update(
    db: &Database,
    apply: &Apply,
    uid: &Uid,
    spec: &Payload,
) -> Result<Receipt<Option<Applied>>, ControllerError> {
    let command = Command::new(&operations::APPLY, uid.resource()).by(apply.actor.clone());
    let (uid, spec, expected) = (uid.clone(), spec.clone(), apply.expected.clone());
    let wish = apply.clone();
    let target = apply.target.to_string();
    db.commit::<_, ControllerError>(command, move |change| {
        let Some(head) = store::resources::head(change)? else {
            return Ok(Outcome::Refused(None));
        };
        let applied = |generation, change| {
            Some(Applied {
                uid: uid.clone(),
                generation,
                change,
            })
        };
        if head.spec == spec.digest() {
            return Ok(Outcome::Adopted(applied(
                head.generation,
                SpecChange::Unchanged,
            )));
        }
        if head.deletion_requested_at.is_some() {
            return Err(ControllerError::Deleting {
                target: target.clone(),
            });
        }
        match &expected {
            Some(Expected::Version(expected)) => change.expect_revision(*expected)?,
            Some(Expected::Spec(read)) if *read != Some((uid.clone(), head.generation)) => {
                return Err(wish.changed());
            }
            Some(Expected::Spec(_)) | None => {}
        }
        store::resources::set_spec(change, head.generation, &spec)?;
        store::queue::enqueue(change, change.now())?;
        let generation = head.generation + 1;
        change.record(facts(&json!({ "generation": generation }))?);
        Ok(Outcome::Accepted(applied(generation, SpecChange::Updated)))
    })
}
