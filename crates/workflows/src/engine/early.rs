//! A run that this process starts and executes itself: it is claimed in the transaction that makes it.
//!
//! What the first move depends on is known then without a read, and a run of one step costs two commits instead of three. Only where
//! the plan needs no code of the author, and where the caller holds a place for the run, so that nobody's work is begun late. Not here:
//! taking up a run that was found (`runner`).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use holdpoint_state::{Digest, Ticket};

use super::active::ActiveRun;
use super::drive::begun;
use super::executor::Executor;
use super::facts::Facts;
use super::runner::{Executed, Runner, is_race};
use crate::commands::{self, Claimed, Claiming, Move, Prepared};
use crate::definition::{Definition, NodeKind, Timeout, Title};
use crate::error::WorkflowError;
use crate::id::RunId;
use crate::model::RunStatus;
use crate::views::LoadedRun;

/// The revision of a run that was just made.
const FIRST_REVISION: u64 = 1;

/// What a claim that is sent with its start does first.
pub(crate) struct Foreseen {
    claiming: Claiming,
    facts: Arc<Facts>,
}

/// A run whose start and claim are under way.
pub(crate) struct Early {
    run: RunId,
    claimed: Ticket<Claimed, WorkflowError>,
    definition: Definition,
    facts: Arc<Facts>,
    next: Move,
}

impl std::fmt::Debug for Early {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Early")
            .field("run", &self.run)
            .finish_non_exhaustive()
    }
}

impl Early {
    pub(crate) fn run(&self) -> &RunId {
        &self.run
    }
}

impl Runner {
    /// The first move of a run that is about to be made. None when something has to be asked first.
    pub(crate) fn foresee(&self, start: &Prepared) -> Result<Option<Foreseen>, WorkflowError> {
        let definition = start.definition();
        if self.launcher.is_some() || start.is_named || !is_foreseeable(definition) {
            return Ok(None);
        }
        // What a read of the new run would give.
        let loaded = LoadedRun {
            run_id: start.run_id().clone(),
            revision: FIRST_REVISION,
            status: RunStatus::Queued,
            mode: start.mode(),
            title: None,
            workflow_ref: start.workflow_ref().to_owned(),
            source: start.source.clone(),
            mounted: Vec::new(),
            definition_digest: Digest(definition.digest()),
            input: start.input.clone(),
            history: Vec::new(),
            attempt: None,
            answer: None,
            answer_receipt: None,
            asked: None,
        };
        let mut facts = Arc::new(Facts::of(&loaded, definition));
        let now = self.db.clock().now().0;
        // It has no thread, and needs none.
        let mut executor = Executor::new("unused".to_owned());
        let (plan, failure) = self
            .planner(definition, &mut executor)
            .first(&loaded, &mut facts, now)?;
        if failure.is_some() {
            return Ok(None);
        }
        let claiming = Claiming {
            run: loaded.run_id,
            revision: FIRST_REVISION,
            owner: self.owner.clone(),
            lease_ms: self.lease_ms,
            definition: definition.clone(),
            plan,
        };
        Ok(Some(Foreseen { claiming, facts }))
    }

    /// Sends a start with its claim. Gives the ticket of the start, and what a worker executes.
    pub(crate) fn send(
        &self,
        start: Prepared,
        foreseen: Foreseen,
    ) -> Result<(Ticket<RunId, WorkflowError>, Early), WorkflowError> {
        let Foreseen { claiming, facts } = foreseen;
        let (run, definition) = (claiming.run.clone(), claiming.definition.clone());
        let next = claiming.plan.next().clone();
        // From here on a stop of the run is heard.
        self.active.claiming(&run, FIRST_REVISION);
        let (started, claimed) = start
            .submit_with(&self.db, claiming)
            .inspect_err(|_| self.active.remove(&run))?;
        let early = Early {
            run,
            claimed,
            definition,
            facts,
            next,
        };
        Ok((started, early))
    }

    /// Executes a run that was claimed with its start.
    pub(crate) fn execute_early(
        &self,
        early: Early,
        executor: &mut Executor,
    ) -> Result<Executed, WorkflowError> {
        let Early {
            run,
            claimed,
            definition,
            facts,
            next,
        } = early;
        let claimed = match claimed.wait() {
            Ok(receipt) => receipt.value,
            Err(error) => {
                self.active.remove(&run);
                return if is_race(&error) || is_not_made(&error) {
                    Ok(Executed::Raced)
                } else {
                    Err(error)
                };
            }
        };
        let Claimed::Owned { claim, advanced } = claimed else {
            self.active.remove(&run);
            return Ok(Executed::Released);
        };
        let active = Arc::new(ActiveRun::new(claim, FIRST_REVISION));
        self.active.insert(&run, &active);
        let mode = facts.mode;
        let driven = match begun(next, advanced, None) {
            // It was begun before the scheduler said that it stops: whoever takes it up begins the attempt anew.
            Some(_) if self.draining.load(Ordering::SeqCst) => {
                commands::hand_over(&self.db, &active.claim).map(|_| Executed::Released)
            }
            current => self.go_on(&active, &definition, facts, current, executor),
        };
        let executed = self.settled(&active, driven);
        self.active.remove(&run);
        self.tell_end(&run, mode);
        executed
    }
}

/// Whether the first move needs no code of the author: it is the same for a caller's thread as for a worker's.
fn is_foreseeable(definition: &Definition) -> bool {
    let is_composed = !definition.mounts().is_empty() || definition.has_settings();
    if is_composed || matches!(definition.title(), Some(Title::Function(_))) {
        return false;
    }
    let begins = definition.node(definition.start_at()).is_some_and(|node| {
        matches!(node.kind, NodeKind::Compute(_)) && !matches!(node.timeout, Timeout::Function(_))
    });
    begins
        && !definition
            .nodes()
            .values()
            .any(|node| matches!(node.kind, NodeKind::Agent(_)))
}

/// The start was refused or failed, which its caller is told.
fn is_not_made(error: &WorkflowError) -> bool {
    use holdpoint_state::StateError::NotFound;
    matches!(
        error,
        WorkflowError::State(NotFound { .. }) | WorkflowError::NoRun { .. }
    )
}
