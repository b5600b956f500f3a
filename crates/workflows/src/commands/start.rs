//! `run.start`: a run is reserved with everything that it needs.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use holdpoint_state::clock::Clock;
use holdpoint_state::id::{derived_id, random_id};
use holdpoint_state::{
    Actor, Change, Command, Database, Digest, Outcome, Payload, Receipt, StateError, Tickets,
};
use serde_json::{Value, json};

use super::claim::{self, Claimed, Claiming};
use crate::definition::{Definition, SourceIdentity};
use crate::error::WorkflowError;
use crate::id::RunId;
use crate::model::{ExecutionMode, LOCAL_SESSION, resource};
use crate::operations;
use crate::store;

/// A wish to start a run: headless, with an id of its own, unless something else is said.
///
/// The same wish twice, with the same id or key, starts one run.
#[derive(Debug, Clone)]
pub struct Start {
    definition: Definition,
    source: SourceIdentity,
    input: Value,
    workflow_ref: Option<String>,
    options: Value,
    run_id: Option<RunId>,
    key: Option<String>,
    session: Option<String>,
    actor: Actor,
}

impl Start {
    /// A run of a definition that this program brings.
    pub fn new(definition: &Definition, input: Value) -> Self {
        Self::from_source(definition, SourceIdentity::inline(definition), input)
    }

    /// A run of a definition that came from a file or is built in.
    pub fn from_source(definition: &Definition, source: SourceIdentity, input: Value) -> Self {
        Self {
            definition: definition.clone(),
            source,
            input,
            workflow_ref: None,
            options: json!({}),
            run_id: None,
            key: None,
            session: None,
            actor: Actor::control("program"),
        }
    }

    /// Names the run. The same id with the same facts meets the run that is there.
    #[must_use]
    pub fn run_id(mut self, run_id: RunId) -> Self {
        self.run_id = Some(run_id);
        self
    }

    /// Makes the run's id from the workflow's name and this key, so that a repeat meets the earlier run.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Makes the run interactive: it belongs to this session and reserves it until it is over.
    #[must_use]
    pub fn in_session(mut self, session: impl Into<String>) -> Self {
        self.session = Some(session.into());
        self
    }

    /// Keeps the reference by which the caller found the workflow; otherwise its name is kept.
    #[must_use]
    pub fn workflow_ref(mut self, reference: impl Into<String>) -> Self {
        self.workflow_ref = Some(reference.into());
        self
    }

    /// Keeps options of the launch. They are a part of what makes two starts the same.
    #[must_use]
    pub fn options(mut self, options: Value) -> Self {
        self.options = options;
        self
    }

    /// Says who starts it.
    #[must_use]
    pub fn by(mut self, actor: Actor) -> Self {
        self.actor = actor;
        self
    }

    /// The definition.
    pub fn definition(&self) -> &Definition {
        &self.definition
    }

    /// Where the definition came from.
    pub fn source(&self) -> &SourceIdentity {
        &self.source
    }

    /// Checks the input and makes everything that is stored, before any transaction.
    pub(crate) fn prepare(&self, clock: &dyn Clock) -> Result<Prepared, WorkflowError> {
        // Form first, before any code of the author runs.
        let sources = source_rows(&self.definition, &self.source)?;
        let session = match &self.session {
            Some(session) if session.trim().is_empty() => {
                return Err(WorkflowError::Input {
                    what: "session",
                    problem: "it is blank; name the session or leave it out".to_owned(),
                });
            }
            Some(session) => session.clone(),
            None => LOCAL_SESSION.to_owned(),
        };
        let name = self.definition.name();
        let run_id = match (&self.run_id, &self.key) {
            (Some(run_id), _) => run_id.clone(),
            (None, Some(key)) => {
                let id = derived_id("run", &[name, key]);
                RunId::new(&id).map_err(|error| input("key", &error))?
            }
            (None, None) => RunId::generate(clock.now().0, name, random_tail()),
        };
        let normalize = || self.definition.normalize_input(self.input.clone());
        let normalized = catch_unwind(AssertUnwindSafe(normalize))
            .map_err(|panic| WorkflowError::Input {
                what: "input",
                problem: format!(
                    "the normaliser panicked: {}",
                    crate::engine::panic_text(&*panic)
                ),
            })?
            .map_err(|error| input("input", &error))?;
        let facts = Facts {
            run_id,
            digest: Digest(self.definition.digest()),
            name: name.to_owned(),
            workflow_ref: self.workflow_ref.clone().unwrap_or_else(|| name.to_owned()),
            definition: self.definition.clone(),
            input: Payload::json(&normalized)?,
            options: Payload::json(&self.options)?,
            sources,
            session,
            mode: match self.session {
                Some(_) => ExecutionMode::Interactive,
                None => ExecutionMode::Headless,
            },
        };
        Ok(Prepared {
            facts,
            input: normalized,
            source: self.source.clone(),
            actor: self.actor.clone(),
            is_named: self.run_id.is_some() || self.key.is_some(),
        })
    }
}

/// A start that can be sent.
pub(crate) struct Prepared {
    facts: Facts,
    pub(crate) input: Value,
    pub(crate) source: SourceIdentity,
    actor: Actor,
    /// Whether the caller gave the id or what it is made from, so that the run may exist.
    pub(crate) is_named: bool,
}

impl Prepared {
    pub(crate) fn run_id(&self) -> &RunId {
        &self.facts.run_id
    }

    pub(crate) fn mode(&self) -> ExecutionMode {
        self.facts.mode
    }

    pub(crate) fn workflow_ref(&self) -> &str {
        &self.facts.workflow_ref
    }

    pub(crate) fn definition(&self) -> &Definition {
        &self.facts.definition
    }

    fn command(&self) -> Result<Command, WorkflowError> {
        let facts = &self.facts;
        let payload = Payload::json(&json!({
            "workflow": facts.name,
            "definition": facts.digest,
            "executionMode": facts.mode,
            "inputStored": true,
        }))?;
        Ok(Command::new(&operations::START, resource(&facts.run_id))
            .by(self.actor.clone())
            .recording(payload)
            .creating())
    }

    pub(crate) fn commit(self, db: &Database) -> Result<Receipt<RunId>, WorkflowError> {
        let command = self.command()?;
        let facts = self.facts;
        db.commit(command, move |change| make(change, &facts))
    }

    /// Sends the start and, behind it, the claim of the run that it makes. Nobody else can be between them, and one fsync serves
    /// both. The claim is refused unless this very start made the run.
    pub(crate) fn submit_with(
        self,
        db: &Database,
        claiming: Claiming,
    ) -> Result<Tickets<RunId, Claimed, WorkflowError>, WorkflowError> {
        let command = self.command()?;
        let facts = self.facts;
        let made = Arc::new(AtomicBool::new(false));
        let is_made = Arc::clone(&made);
        let claim_command = claim::command(&claiming);
        let start = move |change: &mut Change<'_>| {
            // It may run a second time.
            made.store(false, Ordering::Relaxed);
            let outcome = make(change, &facts)?;
            made.store(matches!(outcome, Outcome::Accepted(_)), Ordering::Relaxed);
            Ok(outcome)
        };
        let claim = move |change: &mut Change<'_>| {
            if is_made.load(Ordering::Relaxed) {
                return claim::take(change, &claiming);
            }
            Err(WorkflowError::State(StateError::StaleRevision {
                resource: change.resource().clone(),
                expected: 0,
                actual: change.revision(),
            }))
        };
        Ok(db.submit_both((command, start), (claim_command, claim))?)
    }
}

/// The body of a start.
fn make(change: &mut Change<'_>, facts: &Facts) -> Result<Outcome<RunId>, WorkflowError> {
    if !change.is_new() {
        compare(change, facts)?;
        return Ok(Outcome::Adopted(facts.run_id.clone()));
    }
    reserve(change, facts)?;
    Ok(Outcome::Accepted(facts.run_id.clone()))
}

/// Everything that makes two starts the same.
struct Facts {
    run_id: RunId,
    digest: Digest,
    name: String,
    workflow_ref: String,
    definition: Definition,
    input: Payload,
    options: Payload,
    /// By mount path; the root has the empty one.
    sources: Vec<store::runs::SourceRow>,
    session: String,
    mode: ExecutionMode,
}

/// The sources of a run, sorted by mount path: its own and that of each workflow that it includes. Their form is checked.
pub(super) fn source_rows(
    definition: &Definition,
    source: &SourceIdentity,
) -> Result<Vec<store::runs::SourceRow>, WorkflowError> {
    let mounts = definition
        .mounts()
        .iter()
        .map(|(path, mount)| (path.as_str(), &mount.source));
    std::iter::once(("", source))
        .chain(mounts)
        .map(|(path, source)| {
            let (kind, reference) = (source.source_type(), source.reference());
            SourceIdentity::from_parts(kind, &reference, source.revision())?;
            Ok((
                path.to_owned(),
                kind.to_owned(),
                reference,
                source.revision().to_owned(),
            ))
        })
        .collect()
}

/// Reserves a run. Repeating it with the same id and the same facts meets the same run and changes nothing.
///
/// The input is normalised before anything is written. The run is durable when this returns; it begins when a scheduler has a
/// place for it.
///
/// # Errors
///
/// [`WorkflowError::Input`] when the input is not what the workflow takes, [`WorkflowError::Source`] for an identity without a
/// valid form, [`WorkflowError::Conflict`] when the id is taken by a run with other facts or the session by another run.
pub fn start(db: &Database, start: &Start) -> Result<Receipt<RunId>, WorkflowError> {
    start.prepare(&**db.clock())?.commit(db)
}

/// Whether the stored run is the one that is asked for.
fn compare(change: &mut Change<'_>, facts: &Facts) -> Result<(), WorkflowError> {
    let stored = store::runs::run(change)?;
    let key = change.resource_key()?;
    let mut differences = Vec::new();
    let mut differs = |what: &'static str, same: bool| {
        if !same {
            differences.push(what);
        }
    };
    differs("workflow name", stored.workflow_name == facts.name);
    differs(
        "workflow reference",
        stored.workflow_ref == facts.workflow_ref,
    );
    differs("definition", stored.definition_digest == facts.digest);
    differs("input", stored.input == facts.input.digest());
    differs(
        "launch options",
        stored.launch_options == facts.options.digest(),
    );
    differs("session", stored.session == facts.session);
    differs("execution mode", stored.mode == facts.mode);
    differs("lineage", stored.parent_run_revision.is_none());
    differs(
        "sources",
        store::runs::sources(change, key)? == facts.sources,
    );
    if differences.is_empty() {
        return Ok(());
    }
    Err(WorkflowError::Conflict {
        what: format!("run {}", facts.run_id),
        problem: format!("it exists with another {}", differences.join(", ")),
    })
}

fn reserve(change: &mut Change<'_>, facts: &Facts) -> Result<(), WorkflowError> {
    if facts.mode == ExecutionMode::Interactive {
        check_reservation(change, &facts.session, &facts.run_id)?;
    }
    let (input, launch_options) = (change.keep(&facts.input)?, change.keep(&facts.options)?);
    if !store::runs::has_definition(change, facts.digest)? {
        // Made here, since nearly every start meets a definition that is stored.
        let snapshot = Payload::json(facts.definition.snapshot())?;
        let snapshot = change.put_blob(&snapshot)?;
        store::runs::insert_definition(change, facts.digest, &facts.name, snapshot)?;
    }
    change.transition("none", "queued")?;
    store::runs::insert_run(
        change,
        &store::runs::NewRun {
            run_id: &facts.run_id,
            parent: None,
            definition: facts.digest,
            workflow_ref: &facts.workflow_ref,
            launch_options: &launch_options,
            input: &input,
        },
    )?;
    for (mount, kind, reference, revision) in &facts.sources {
        store::runs::insert_source(change, (mount, kind, reference, revision))?;
    }
    store::runs::insert_binding(change, &facts.session, facts.mode)?;
    store::queue::insert(change, &facts.session, facts.mode)?;
    Ok(())
}

/// One live interactive run for each session. The index holds it too; this check gives the controlled error.
pub(super) fn check_reservation(
    change: &mut Change<'_>,
    session: &str,
    run: &RunId,
) -> Result<(), WorkflowError> {
    match store::runs::reservation(change, session)? {
        None => Ok(()),
        Some(holder) => Err(WorkflowError::Conflict {
            what: format!("run {run}"),
            problem: format!("session {session:?} is reserved by run {holder} until that is over"),
        }),
    }
}

fn input(what: &'static str, problem: &impl std::fmt::Display) -> WorkflowError {
    WorkflowError::Input {
        what,
        problem: problem.to_string(),
    }
}

/// Four random bytes, from the random end of a UUIDv7.
fn random_tail() -> [u8; 4] {
    let id = random_id("run");
    let tail = id.get(id.len().saturating_sub(8)..).unwrap_or_default();
    u32::from_str_radix(tail, 16)
        .unwrap_or_default()
        .to_be_bytes()
}
