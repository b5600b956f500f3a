//! One bounded pass, from the side of the controller: what it reads, and what it proposes.
//!
//! A pass reads the resource as it was claimed. What it wants written is collected here and written in one transaction when it ends well,
//! unless somebody changed the resource meanwhile. Effects and children are committed at once, under the claim. Not here: who holds the
//! claim (`host`), deadlines (`runtime`), SQL.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use holdpoint_state::EffectId;
use holdpoint_workflows::RunId;
use holdpoint_workflows::definition::CancellationSignal;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::child::Child;
use crate::controller::PassError;
use crate::external::{Acted, EffectCall, ExternalEffect};
use crate::host::{Begun, Host};
use crate::model::{
    ChildRecord, Condition, ConditionInput, EffectKey, EffectRecord, EffectRequest, FinalizerName,
    ManagedResource, Metadata, RequestKey, StatusPatch,
};

/// One pass of a controller. See [`Controller::reconcile`](crate::Controller::reconcile).
pub struct Pass<'a, S, T> {
    resource: &'a ManagedResource,
    host: &'a dyn Host,
    cancellation: CancellationSignal,
    spec: S,
    status: T,
    draft: Draft,
}

/// What a pass wants written when it ends.
#[derive(Debug, Default)]
struct Draft {
    status: Option<Value>,
    conditions: Vec<ConditionInput>,
    #[expect(
        clippy::option_option,
        reason = "absent keeps it, none takes it away, as in the patch that it becomes"
    )]
    workflow_run: Option<Option<RunId>>,
    finalizers: Option<Vec<FinalizerName>>,
    /// It had its one effect.
    has_acted: bool,
    /// It removed a finalizer from a resource that goes: its work is done.
    has_let_go: bool,
    /// What makes the pass fail, whatever it returns.
    broken: Option<String>,
}

impl<'a, S: DeserializeOwned, T: DeserializeOwned> Pass<'a, S, T> {
    pub(crate) fn new(
        resource: &'a ManagedResource,
        host: &'a dyn Host,
        cancellation: CancellationSignal,
    ) -> Result<Self, PassError> {
        let read = |what: &str, error: &serde_json::Error| {
            PassError::new(format!(
                "the {what} does not have the shape that the controller reads: {error}"
            ))
        };
        let spec = S::deserialize(&resource.spec).map_err(|error| read("spec", &error))?;
        let status = T::deserialize(&resource.status.controller_status)
            .map_err(|error| read("status", &error))?;
        Ok(Self {
            resource,
            host,
            cancellation,
            spec,
            status,
            draft: Draft::default(),
        })
    }
}

impl<S, T> Pass<'_, S, T> {
    /// What is wanted.
    pub const fn spec(&self) -> &S {
        &self.spec
    }

    /// The status: as the last pass wrote it, or as this one has set it.
    pub const fn status(&self) -> &T {
        &self.status
    }

    /// Whose resource it is: names, counters, finalizers.
    pub const fn metadata(&self) -> &Metadata {
        &self.resource.metadata
    }

    /// The whole resource as it was when the pass began.
    pub const fn resource(&self) -> &ManagedResource {
        self.resource
    }

    /// A condition as the last pass left it. One of an older generation says nothing of what is wanted now.
    pub fn condition(&self, condition_type: &str) -> Option<&Condition> {
        self.resource.status.condition(condition_type)
    }

    /// Whether somebody asked for the end of the resource.
    pub const fn is_deleting(&self) -> bool {
        self.resource.metadata.deletion_timestamp.is_some()
    }

    /// How often the spec has changed, from 1: the generation that this pass works for.
    pub const fn generation(&self) -> u64 {
        self.resource.metadata.generation
    }

    /// Says that the pass should end: its time is over, its claim is lost, or the process stops. What is done afterwards is refused.
    pub fn cancellation(&self) -> CancellationSignal {
        self.cancellation.clone()
    }

    /// Proposes a condition; each type once in a pass. The time of its last transition moves only when its status does.
    pub fn set_condition(&mut self, condition: ConditionInput) {
        self.draft.conditions.push(condition);
    }

    /// Proposes which run the resource shows as its present one, or none.
    pub fn set_workflow_run(&mut self, run: Option<RunId>) {
        self.draft.workflow_run = Some(run);
    }

    /// Whether the resource has a finalizer, as this pass sees it.
    pub fn has_finalizer(&self, name: &FinalizerName) -> bool {
        self.finalizers().contains(name)
    }

    /// Proposes a finalizer: a hold on the resource's deletion. It counts once the pass has ended; before it does, make nothing that
    /// would have to be cleaned up ([`finalizer::with`](crate::finalizer::with()) does it in this order).
    ///
    /// # Errors
    ///
    /// The resource goes: it takes no new finalizer.
    pub fn add_finalizer(&mut self, name: &FinalizerName) -> Result<(), PassError> {
        if self.has_finalizer(name) {
            return Ok(());
        }
        if self.is_deleting() {
            return Err(PassError::new(format!(
                "the resource is being deleted and takes no new finalizer ({name})"
            )));
        }
        let mut finalizers = self.finalizers().to_vec();
        finalizers.push(name.clone());
        self.draft.finalizers = Some(finalizers);
        Ok(())
    }

    /// Proposes to remove a finalizer. On a resource that goes this is the last thing that a pass does: effects and children are
    /// refused afterwards.
    pub fn remove_finalizer(&mut self, name: &FinalizerName) {
        if !self.has_finalizer(name) {
            return;
        }
        let mut finalizers = self.finalizers().to_vec();
        finalizers.retain(|other| other != name);
        self.draft.finalizers = Some(finalizers);
        self.draft.has_let_go |= self.is_deleting();
    }

    fn finalizers(&self) -> &[FinalizerName] {
        let proposed = self.draft.finalizers.as_deref();
        proposed.unwrap_or(&self.resource.metadata.finalizers)
    }

    /// Has an effect done on another system, once: see [`ExternalEffect`]. It returns the record of the effect, whatever became of it:
    /// also when an earlier pass had it done, and when nobody can know.
    ///
    /// One for each pass. After one that changed the world, return [`Action::requeue`](crate::Action::requeue) and look again.
    ///
    /// # Errors
    ///
    /// A second effect in a pass, which also fails the pass; a key that has another kind, request or generation (nothing is done); an
    /// `observe` that failed, which also fails the pass; a claim that is lost.
    pub fn ensure<E: ExternalEffect + ?Sized>(
        &mut self,
        effect: &E,
    ) -> Result<EffectRecord, PassError> {
        if self.draft.has_acted {
            return Err(self.broke(format!(
                "a pass has one effect; {} has to wait for the next",
                effect.kind()
            )));
        }
        self.check_may_act()?;
        self.draft.has_acted = true;
        let request = EffectRequest {
            key: EffectKey::new(effect.key())?,
            kind: effect.kind().to_owned(),
            request: effect.request(),
        };
        let mut begun = self.host.begin(&request)?;
        if let Begun::Observe(record) = &begun {
            let observed = match effect.observe(&self.call(&record.effect_id)) {
                Ok(observed) => observed,
                Err(error) => {
                    return Err(self.broke(format!(
                        "what became of {} could not be seen: {error}",
                        request.kind
                    )));
                }
            };
            begun = self.host.observed(&request, observed)?;
        }
        let record = match begun {
            Begun::Known(record) => return Ok(record),
            Begun::Act(record) => record,
            Begun::Observe(_) => {
                return Err(PassError::new("BUG: an observed effect is to be observed"));
            }
        };
        let call = self.call(&record.effect_id);
        // Its panic says as little about the world as an error does.
        let (acted, panic) = match catch_unwind(AssertUnwindSafe(|| effect.apply(&call))) {
            Ok(Ok(acted)) => (acted, None),
            Ok(Err(error)) => (indeterminate(error.to_string()), None),
            Err(panic) => (indeterminate("it panicked".to_owned()), Some(panic)),
        };
        let settled = self.host.settle(&request, acted);
        match panic {
            Some(panic) => resume_unwind(panic),
            None => settled,
        }
    }

    /// Looks what became of an act that an older generation left open. That is no act, and leaves the pass its own one.
    pub(crate) fn look_at(&mut self, effect: &dyn ExternalEffect) -> Result<(), PassError> {
        self.ensure(effect)?;
        self.draft.has_acted = false;
        Ok(())
    }

    /// Has a child workflow run for the resource, once for each key, and says how far it is. When its state changes, the resource gets
    /// another pass; nobody has to wait for it here.
    ///
    /// # Errors
    ///
    /// A key that has another workflow or input, a workflow that can't be found, a claim that is lost.
    pub fn ensure_workflow(&mut self, child: &Child) -> Result<ChildRecord, PassError> {
        self.check_may_act()?;
        self.host.ensure_workflow(child)
    }

    /// Changes the live settings of a child's run by an RFC 6902 patch, once for each `key`: a repeat, also by a later pass, changes nothing.
    ///
    /// # Errors
    ///
    /// The resource has no such child with a run, the patch is refused, a claim that is lost.
    pub fn change_child_settings(
        &mut self,
        request_key: &str,
        patch: Value,
        key: &str,
    ) -> Result<(), PassError> {
        self.check_may_act()?;
        let child = RequestKey::new(request_key)?;
        self.host.change_settings(&child, patch, key)
    }

    /// Queues a prompt for the session that a child's run belongs to, once for each `key`. Returns its id.
    ///
    /// # Errors
    ///
    /// The resource has no such child with a run, the run belongs to no session, a claim that is lost.
    pub fn queue_child_follow_up(
        &mut self,
        request_key: &str,
        prompt: &str,
        key: &str,
    ) -> Result<String, PassError> {
        self.check_may_act()?;
        let child = RequestKey::new(request_key)?;
        self.host.queue_follow_up(&child, prompt, key)
    }

    /// Takes a prompt back that this resource queued and that the session was not shown yet.
    ///
    /// # Errors
    ///
    /// As [`Pass::queue_child_follow_up`]; it was shown already.
    pub fn remove_child_follow_up(
        &mut self,
        request_key: &str,
        follow_up: &str,
    ) -> Result<(), PassError> {
        self.check_may_act()?;
        let child = RequestKey::new(request_key)?;
        self.host.remove_follow_up(&child, follow_up)
    }

    fn check_may_act(&self) -> Result<(), PassError> {
        if self.draft.has_let_go {
            return Err(PassError::new(
                "the pass has removed its finalizer from a resource that is being deleted: it may only end",
            ));
        }
        Ok(())
    }

    fn call<'c>(&'c self, effect_id: &'c EffectId) -> EffectCall<'c> {
        EffectCall {
            effect_id,
            cancellation: &self.cancellation,
        }
    }

    /// Makes the pass fail, also when its controller goes on.
    fn broke(&mut self, problem: String) -> PassError {
        let error = PassError::new(problem.clone());
        self.draft.broken.get_or_insert(problem);
        error
    }

    pub(crate) fn into_patch(self) -> Result<StatusPatch, PassError> {
        let Draft {
            status,
            conditions,
            workflow_run,
            finalizers,
            broken,
            ..
        } = self.draft;
        if let Some(problem) = broken {
            return Err(PassError::new(problem));
        }
        Ok(StatusPatch {
            controller_status: status,
            conditions,
            workflow_run,
            finalizers,
        })
    }
}

impl<S, T: Serialize> Pass<'_, S, T> {
    /// Proposes the status.
    ///
    /// One that can't be written as JSON fails the pass.
    pub fn set_status(&mut self, status: T) {
        match serde_json::to_value(&status) {
            Ok(value) => self.draft.status = Some(value),
            Err(error) => drop(self.broke(format!("the status has no JSON form: {error}"))),
        }
        self.status = status;
    }
}

impl<S: std::fmt::Debug, T: std::fmt::Debug> std::fmt::Debug for Pass<'_, S, T> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Pass")
            .field("resource", self.resource)
            .field("draft", &self.draft)
            .finish_non_exhaustive()
    }
}

fn indeterminate(error: String) -> Acted {
    Acted::Indeterminate { error: Some(error) }
}
