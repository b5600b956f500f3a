//! Takes up one run and executes it until it waits, ends, or belongs to somebody else.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use holdpoint_state::id::random_id;
use holdpoint_state::{Database, Owner, Receipt, StateError};

use super::Deadlines;
use super::active::{ActiveRun, ActiveRuns};
use super::drive::{Current, Drive, begun};
use super::executor::Executor;
use super::facts::Facts;
use super::host::{Direct, conflict_error, has_effect, is_effect_conflict, without_effect};
use super::plan::Planner;
use crate::agents::AgentExecutor;
use crate::commands::{self, Claimed, Claiming, Launching, Move, Plan};
use crate::definition::{Definition, NodeError, NodeKind};
use crate::error::WorkflowError;
use crate::id::RunId;
use crate::model::ExecutionMode;
use crate::registry::{SourceResolver, Unresolved, compare_mounts, differences};
use crate::views::{self, LoadedRun};
use crate::worker::{Supervision, WorkerLauncher};

/// What became of taking up a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Executed {
    /// It was executed, and waits, ended, or was given back.
    Released,
    /// Somebody else was faster, or it needs nothing now.
    Raced,
    /// It was executed and then belonged to somebody else.
    Lost,
    /// This program does not have its workflow.
    Unknown,
    /// Its worker process ended on the way; the run was given back.
    Crashed,
}

/// Executes runs for one scheduler.
pub(crate) struct Runner {
    pub(crate) db: Database,
    pub(crate) resolver: Arc<dyn SourceResolver>,
    /// Who executes the agents of headless runs; without it such runs are left to other programs.
    pub(crate) agents: Option<Arc<dyn AgentExecutor>>,
    pub(crate) owner: Owner,
    pub(crate) lease_ms: i64,
    pub(crate) deadlines: Deadlines,
    pub(crate) active: Arc<ActiveRuns>,
    /// How worker processes are launched; without it runs are executed on the thread that takes them up.
    pub(crate) launcher: Option<WorkerLauncher>,
    /// Whether runs are to be given back at their next boundary.
    pub(crate) draining: AtomicBool,
}

impl std::fmt::Debug for Runner {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Runner")
            .field("owner", &self.owner)
            .finish_non_exhaustive()
    }
}

impl Runner {
    /// Takes up a run.
    pub(crate) fn execute(
        &self,
        run: &RunId,
        executor: &mut Executor,
    ) -> Result<Executed, WorkflowError> {
        let loaded = {
            let snapshot = self.db.snapshot()?;
            views::load(&snapshot, run)?
        };
        let Some(loaded) = loaded.filter(|loaded| !loaded.status.is_terminal()) else {
            return Ok(Executed::Raced);
        };
        let executed = self.take_up(&loaded, executor);
        self.tell_end(run, loaded.mode);
        executed
    }

    /// Tells the session how its run ended, if it did. The end is committed: whatever goes wrong with telling it, the search for work
    /// tells it later.
    pub(super) fn tell_end(&self, run: &RunId, mode: ExecutionMode) {
        if mode == ExecutionMode::Interactive
            && let Err(error) = commands::tell_end(&self.db, run)
        {
            tracing::warn!(run = %run, error = %error, "the end of a run could not be told yet");
        }
    }

    fn take_up(
        &self,
        loaded: &LoadedRun,
        executor: &mut Executor,
    ) -> Result<Executed, WorkflowError> {
        let run = &loaded.run_id;
        let resolved = self
            .resolver
            .resolve(&loaded.source, loaded.definition_digest);
        let definition = match compare_mounts(resolved, &loaded.mounted) {
            Ok(definition) => definition,
            Err(Unresolved::Unknown { .. }) => return Ok(Executed::Unknown),
            Err(unresolved) => return self.put_aside(loaded, &unresolved),
        };
        if self.lacks_agents(loaded, &definition) {
            tracing::warn!(run = %loaded.run_id, "a run has agent steps, which nobody here executes; it is left to others");
            return Ok(Executed::Unknown);
        }
        if let Some(asked) = &loaded.asked {
            match &asked.candidate {
                // Where there are worker processes, one of them looks, and goes on with what follows.
                Some((id, value)) if self.launcher.is_none() => {
                    return self.validate(loaded, &definition, (id, value), executor);
                }
                Some(_) => {}
                None if asked.is_expired => {}
                // It waits, and nothing came.
                None => return Ok(Executed::Raced),
            }
        }
        if let Some(launcher) = &self.launcher {
            return self.execute_apart(loaded, &definition, launcher);
        }
        let mut facts = Arc::new(Facts::of(loaded, &definition));
        let now = self.db.clock().now().0;
        let (plan, failure) = self
            .planner(&definition, executor)
            .first(loaded, &mut facts, now)?;
        if self.is_draining() {
            // The plan may have taken its time. Nothing is begun that would have to be stopped at once.
            return Ok(Executed::Raced);
        }
        self.active.claiming(run, loaded.revision);
        let (next, claimed, failure) = match self.claim(loaded, &definition, plan, failure) {
            Ok(claimed) => claimed,
            Err(error) => {
                self.active.remove(run);
                return self.not_taken(loaded, error);
            }
        };
        let Claimed::Owned { claim, advanced } = claimed else {
            self.active.remove(run);
            return Ok(Executed::Released);
        };
        let active = Arc::new(ActiveRun::new(claim, loaded.revision));
        self.active.insert(run, &active);
        let current = begun(next, advanced, failure);
        let executed = self.go_on(&active, &definition, facts, current, executor);
        let executed = self.settled(&active, executed);
        self.active.remove(run);
        executed
    }

    /// Executes a run that is owned, from an attempt that was begun.
    pub(super) fn go_on(
        &self,
        active: &Arc<ActiveRun>,
        definition: &Definition,
        facts: Arc<Facts>,
        current: Option<Current>,
        executor: &mut Executor,
    ) -> Result<Executed, WorkflowError> {
        match current {
            Some(current) => Drive {
                host: &Direct {
                    db: &self.db,
                    active,
                    draining: &self.draining,
                },
                definition,
                agents: self.agents.as_ref(),
                deadlines: &self.deadlines,
            }
            .run(facts, current, executor),
            None => Ok(Executed::Released),
        }
    }

    pub(super) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::SeqCst)
    }

    /// What executing came to. A run that this runner can't go on with is put aside.
    pub(super) fn settled(
        &self,
        active: &ActiveRun,
        executed: Result<Executed, WorkflowError>,
    ) -> Result<Executed, WorkflowError> {
        match executed {
            Err(error) if error.is_claim_lost() => Ok(Executed::Lost),
            Err(error) => {
                self.give_up(active, &error);
                Err(error)
            }
            Ok(executed) => Ok(executed),
        }
    }

    /// Takes up a run for a worker process. No code of its author is called here.
    fn execute_apart(
        &self,
        loaded: &LoadedRun,
        definition: &Definition,
        launcher: &WorkerLauncher,
    ) -> Result<Executed, WorkflowError> {
        if self.draining.load(Ordering::SeqCst) {
            return Ok(Executed::Raced);
        }
        let run = loaded.run_id.clone();
        let epoch = random_id("worker");
        self.active.claiming(&run, loaded.revision);
        let receipt = commands::launch(
            &self.db,
            Launching {
                run: run.clone(),
                revision: loaded.revision,
                owner: self.owner.clone(),
                lease_ms: self.lease_ms,
                definition,
                asked: loaded.asked.as_ref(),
                epoch: epoch.clone(),
            },
        );
        let (claim, revision) = match receipt {
            Ok(Receipt {
                value: Some(claim),
                revision,
                ..
            }) => (claim, revision),
            Ok(_) => {
                self.active.remove(&run);
                return Ok(Executed::Released);
            }
            Err(error) => {
                self.active.remove(&run);
                return self.not_taken(loaded, error);
            }
        };
        let active = Arc::new(ActiveRun::new(claim, loaded.revision));
        self.active.insert(&run, &active);
        let executed = Supervision {
            db: &self.db,
            active: &active,
            draining: &self.draining,
            definition,
            launcher,
            epoch,
            revision,
        }
        .run(loaded);
        if let Err(error) = &executed {
            self.give_up(&active, error);
        }
        self.active.remove(&run);
        executed
    }

    /// Whether the run has steps that this program can't execute: it is left to one that can.
    fn lacks_agents(&self, loaded: &LoadedRun, definition: &Definition) -> bool {
        self.agents.is_none()
            && loaded.mode == ExecutionMode::Headless
            && definition
                .nodes()
                .values()
                .any(|node| matches!(node.kind, NodeKind::Agent(_)))
    }

    pub(super) fn planner<'a>(
        &'a self,
        definition: &'a Definition,
        executor: &'a mut Executor,
    ) -> Planner<'a> {
        Planner {
            definition,
            executor,
            deadlines: &self.deadlines,
            documents: &self.db,
        }
    }

    /// Claims the run with the first move of the plan. An effect that conflicts is left out: its attempt can only fail.
    fn claim(
        &self,
        loaded: &LoadedRun,
        definition: &Definition,
        plan: Plan,
        failure: Option<NodeError>,
    ) -> Result<(Move, Claimed, Option<NodeError>), WorkflowError> {
        let claiming = |plan: Plan| Claiming {
            run: loaded.run_id.clone(),
            revision: loaded.revision,
            owner: self.owner.clone(),
            lease_ms: self.lease_ms,
            definition: definition.clone(),
            plan,
        };
        let next = plan.next().clone();
        match commands::claim(&self.db, claiming(plan.clone())) {
            Ok(receipt) => Ok((next, receipt.value, failure)),
            Err(error) if failure.is_none() && has_effect(&next) && is_effect_conflict(&error) => {
                let plan = without_effect(plan);
                let next = plan.next().clone();
                let receipt = commands::claim(&self.db, claiming(plan))?;
                Ok((next, receipt.value, Some(conflict_error())))
            }
            Err(error) => Err(error),
        }
    }

    /// The claim of a run was refused. One whose settings are damaged is put aside: nothing gets better by trying again.
    fn not_taken(
        &self,
        loaded: &LoadedRun,
        error: WorkflowError,
    ) -> Result<Executed, WorkflowError> {
        if is_race(&error) {
            return Ok(Executed::Raced);
        }
        if !matches!(error, WorkflowError::State(StateError::Corrupt { .. })) {
            return Err(error);
        }
        match commands::park_settings_broken(&self.db, &loaded.run_id, loaded.revision) {
            Ok(_) => {
                tracing::warn!(run = %loaded.run_id, error = %error, "a run is parked: its settings are damaged");
                Ok(Executed::Released)
            }
            // Something else of it is damaged, or somebody was faster.
            Err(_) => Err(error),
        }
    }

    /// The source is gone or changed, or gives no definition any more.
    fn put_aside(
        &self,
        loaded: &LoadedRun,
        unresolved: &Unresolved,
    ) -> Result<Executed, WorkflowError> {
        let (run, revision) = (&loaded.run_id, loaded.revision);
        let put = match unresolved {
            Unresolved::LoadFailed { error } => {
                commands::fail_unclaimed(&self.db, run, revision, error)
            }
            Unresolved::Changed { detail, .. } => {
                let changes = self.differences(loaded)?;
                let detail = format!(
                    "{detail}{}{}",
                    if changes.is_empty() { "" } else { ": " },
                    changes.join("; ")
                );
                commands::park_source_changed(&self.db, run, revision, &detail)
            }
            Unresolved::Unknown { .. } => return Ok(Executed::Unknown),
        };
        match put {
            Ok(_) => Ok(Executed::Released),
            Err(error) if is_race(&error) => Ok(Executed::Raced),
            Err(error) => Err(error),
        }
    }

    fn differences(&self, loaded: &LoadedRun) -> Result<Vec<String>, WorkflowError> {
        let snapshot = self.db.snapshot()?;
        let saved = views::definition_snapshot(&snapshot, loaded.definition_digest)?;
        let present = self.resolver.present(&loaded.source).ok();
        Ok(match (saved, present) {
            (Some(saved), Some((present, _))) => differences(&saved, present.snapshot()),
            _ => Vec::new(),
        })
    }

    /// The runner itself failed: the run is parked with the reason, so that it is not taken up again at once.
    pub(super) fn give_up(&self, active: &ActiveRun, error: &WorkflowError) {
        let given = if error.is_retryable() {
            commands::hand_over(&self.db, &active.claim)
        } else {
            commands::give_up(&self.db, &active.claim, &error.to_string())
        };
        if let Err(second) = given {
            // The lease ends by itself, and the run is then taken up again.
            tracing::warn!(run = %active.claim.resource(), error = %second, "a run could not be given back");
        }
    }
}

/// Somebody else took the run, or changed it, between reading and claiming.
pub(super) fn is_race(error: &WorkflowError) -> bool {
    matches!(
        error,
        WorkflowError::State(StateError::StaleRevision { .. } | StateError::LeaseHeld { .. })
            | WorkflowError::Rejected { .. }
    )
}
