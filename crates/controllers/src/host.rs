//! Who holds the claim of a pass, from the pass's side: whatever it may commit while it runs.
//!
//! A pass never has the claim itself. On a thread of the host it is presented by [`ClaimHost`]; in a worker process the questions go
//! over the channel to one. Not here: rows and rules (`commands`).

use std::sync::{Arc, Mutex, PoisonError};

use holdpoint_state::effects::Observation;
use holdpoint_state::{Actor, ActorKind, Database, EffectAttempt, Settlement};
use holdpoint_workflows::commands::Start;
use holdpoint_workflows::{RunId, Workflows};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::child::{Child, ChildWorkflow};
use crate::commands::{self, PassClaim, children, effects};
use crate::controller::PassError;
use crate::external::{Acted, Observed};
use crate::model::{ChildRecord, ChildState, EffectRecord, EffectRequest, EffectStep, RequestKey};
use crate::views;

/// What a pass has to do about its effect.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", content = "record", rename_all = "camelCase")]
pub(crate) enum Begun {
    /// Nothing: this is what became of it.
    Known(EffectRecord),
    /// Act, then settle.
    Act(EffectRecord),
    /// Look what became of the latest attempt, whose receipt is lost.
    Observe(EffectRecord),
}

/// What a pass may commit while it runs.
pub(crate) trait Host: Send + Sync {
    /// What older generations began and left open, oldest first.
    fn left_over(&self) -> Result<Vec<EffectRequest>, PassError>;

    /// Reserves the effect and begins its attempt, or says what is known of it.
    fn begin(&self, request: &EffectRequest) -> Result<Begun, PassError>;

    /// Takes in what was seen of an earlier attempt, and begins another one where that is right.
    fn observed(&self, request: &EffectRequest, observed: Observed) -> Result<Begun, PassError>;

    /// Settles the attempt that the last answer asked for.
    fn settle(&self, request: &EffectRequest, acted: Acted) -> Result<EffectRecord, PassError>;

    /// Has a child run.
    fn ensure_workflow(&self, child: &Child) -> Result<ChildRecord, PassError>;

    /// Changes the settings of a child's run, once for each `key`.
    fn change_settings(&self, child: &RequestKey, patch: Value, key: &str)
    -> Result<(), PassError>;

    /// Queues a prompt for the session of a child's run, once for each `key`. Gives its id.
    fn queue_follow_up(
        &self,
        child: &RequestKey,
        prompt: &str,
        key: &str,
    ) -> Result<String, PassError>;

    /// Takes a prompt back that was not shown yet.
    fn remove_follow_up(&self, child: &RequestKey, follow_up: &str) -> Result<(), PassError>;
}

/// Presents the claim of one pass.
pub(crate) struct ClaimHost {
    db: Database,
    claim: Arc<PassClaim>,
    workflows: Workflows,
    /// What the runs of children are launched with.
    options: Value,
    /// The attempt that the pass has to settle.
    attempt: Mutex<Option<EffectAttempt>>,
}

impl ClaimHost {
    pub(crate) fn new(
        db: &Database,
        claim: &Arc<PassClaim>,
        workflows: &Workflows,
        options: &Value,
    ) -> Self {
        Self {
            db: db.clone(),
            claim: Arc::clone(claim),
            workflows: workflows.clone(),
            options: options.clone(),
            attempt: Mutex::default(),
        }
    }

    /// Renews the claim, as each message of a worker does.
    pub(crate) fn renew(&self) -> Result<(), PassError> {
        Ok(commands::renew(&self.db, &self.claim)?)
    }

    fn begun(&self, step: EffectStep) -> Begun {
        match step {
            EffectStep::Act(attempt, record) => {
                *self.attempt() = Some(attempt);
                Begun::Act(record)
            }
            EffectStep::Observe(record) => Begun::Observe(record),
            EffectStep::Known(record) => Begun::Known(record),
        }
    }

    fn attempt(&self) -> std::sync::MutexGuard<'_, Option<EffectAttempt>> {
        self.attempt.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the run of a child under the id that was reserved for it.
    fn start(&self, child: &Child, reference: &str, run: RunId) -> Result<(), PassError> {
        let (definition, source) = match &child.workflow {
            ChildWorkflow::Defined(defined) => (**defined).clone(),
            ChildWorkflow::Named(reference) => self.workflows.registry().find(reference)?,
        };
        let uid = self.claim.uid();
        let start = Start::from_source(&definition, source, child.input.clone())
            .run_id(run)
            .workflow_ref(reference)
            .options(self.options.clone())
            .by(Actor::new(
                ActorKind::Controller,
                format!("resource-manager-{uid}"),
            ));
        self.workflows.start(&start)?;
        Ok(())
    }
}

impl Host for ClaimHost {
    fn left_over(&self) -> Result<Vec<EffectRequest>, PassError> {
        let generation = self.claim.generation();
        // Nothing is older than the first.
        if generation == 1 {
            return Ok(Vec::new());
        }
        let snapshot = self.db.snapshot()?;
        Ok(views::effects::left_over(
            &snapshot,
            self.claim.uid(),
            generation,
        )?)
    }

    fn begin(&self, request: &EffectRequest) -> Result<Begun, PassError> {
        Ok(self.begun(effects::begin(&self.db, &self.claim, request)?))
    }

    fn observed(&self, request: &EffectRequest, observed: Observed) -> Result<Begun, PassError> {
        let observation = match observed {
            Observed::Applied { external_ref } => Observation::Applied {
                result: None,
                external_ref,
            },
            Observed::NotApplied => Observation::NotApplied,
            Observed::Indeterminate => Observation::Indeterminate,
        };
        let step = effects::observed(&self.db, &self.claim, request, &observation)?;
        Ok(self.begun(step))
    }

    fn settle(&self, request: &EffectRequest, acted: Acted) -> Result<EffectRecord, PassError> {
        let attempt = self.attempt().take();
        let attempt = attempt.ok_or_else(|| PassError::new("no attempt of an effect was begun"))?;
        let settlement = match acted {
            Acted::Applied { external_ref } => Settlement::Applied {
                result: None,
                external_ref,
            },
            Acted::Rejected { error } => Settlement::Rejected { error },
            Acted::Indeterminate { error } => Settlement::Ambiguous { error },
        };
        let (db, claim) = (&self.db, &self.claim);
        Ok(effects::settle(
            db,
            claim,
            &request.key,
            &attempt,
            settlement,
        )?)
    }

    fn ensure_workflow(&self, child: &Child) -> Result<ChildRecord, PassError> {
        let request = child.request();
        let (db, claim, key) = (&self.db, &self.claim, &request.request_key);
        let record = children::reserve(db, claim, &request)?;
        if !matches!(record.state, ChildState::Pending | ChildState::Running) {
            return Ok(record);
        }
        // A run that an earlier pass started before it died is there under the reserved id.
        let record = children::link(db, claim, key)?;
        let Some(run) = record.reserved_run_id.clone() else {
            return Ok(record);
        };
        if !record.is_to_be_started() {
            return Ok(record);
        }
        self.start(child, &request.workflow, run)?;
        Ok(children::link(db, claim, key)?)
    }

    fn change_settings(
        &self,
        child: &RequestKey,
        patch: Value,
        key: &str,
    ) -> Result<(), PassError> {
        let (db, claim) = (&self.db, &self.claim);
        let run = children::run_of(db, claim, child)?;
        let definition = self.workflows.definition_of(&run)?;
        children::change_settings(db, claim, child, &definition, patch, key)?;
        Ok(())
    }

    fn queue_follow_up(
        &self,
        child: &RequestKey,
        prompt: &str,
        key: &str,
    ) -> Result<String, PassError> {
        let queued = children::queue_follow_up(&self.db, &self.claim, child, prompt, key)?;
        Ok(queued.value.follow_up_id)
    }

    fn remove_follow_up(&self, child: &RequestKey, follow_up: &str) -> Result<(), PassError> {
        children::remove_follow_up(&self.db, &self.claim, child, follow_up)?;
        Ok(())
    }
}
