//! The right to write: a [`Change`] exists only inside a transaction, after the checks of its command.
//!
//! Not here: queueing and committing (`database::writer`).

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use rusqlite::Connection;

use super::checks::{self, Permit};
use super::sql::Sql;
use super::{Actor, Command, Disposition, LeaseRule, Operation, Outcome, Receipt};
use crate::clock::{Clock, MonotonicMillis, UnixMillis};
use crate::database::guard::{KERNEL, NOBODY, StatementGuard};
use crate::database::owners::Owners;
use crate::error::{ClaimLostReason, StateError};
use crate::id::Resource;
use crate::records::blobs::Payload;
use crate::records::events::{self, NewEvent};
use crate::records::leases::{self, LeaseTimer};
use crate::records::resources::{self, ResourceKey, ResourceRow};
use crate::schema::Schema;

/// What the commands of one transaction share.
pub(crate) struct Transaction<'a> {
    pub(crate) connection: &'a Connection,
    pub(crate) guard: &'a StatementGuard,
    pub(crate) schema: &'a Schema,
    pub(crate) clock: &'a dyn Clock,
    pub(crate) owners: &'a Owners,
    /// A nested command failed after it wrote: what is open must not be committed, whatever the outer body says.
    poisoned: Cell<bool>,
    /// Claims that were renewed, to be told after the commit.
    renewals: RefCell<Vec<(Arc<LeaseTimer>, UnixMillis, MonotonicMillis)>>,
}

impl<'a> Transaction<'a> {
    pub(crate) fn new(
        connection: &'a Connection,
        guard: &'a StatementGuard,
        schema: &'a Schema,
        clock: &'a dyn Clock,
        owners: &'a Owners,
    ) -> Self {
        Self {
            connection,
            guard,
            schema,
            clock,
            owners,
            poisoned: Cell::new(false),
            renewals: RefCell::new(Vec::new()),
        }
    }

    /// Tells the claims that were renewed, once their renewal is durable.
    pub(crate) fn committed(&self) {
        for (timer, expires_at, granted) in self.renewals.borrow_mut().drain(..) {
            timer.renewed(expires_at, granted);
        }
    }
}

/// A part of a command that has begun and may have written. Unless it finishes, the whole command must be undone, whether the part
/// returned an error or panicked, and whatever its caller makes of that.
struct Part<'a> {
    transaction: &'a Transaction<'a>,
    changes_before: u64,
    finished: bool,
}

impl<'a> Part<'a> {
    fn begin(transaction: &'a Transaction<'a>) -> Self {
        Self {
            transaction,
            changes_before: transaction.connection.total_changes(),
            finished: false,
        }
    }

    fn finish(mut self) {
        self.finished = true;
    }
}

impl Drop for Part<'_> {
    fn drop(&mut self) {
        if !self.finished && self.transaction.connection.total_changes() != self.changes_before {
            self.transaction.poisoned.set(true);
        }
    }
}

/// The commands around a nested one.
#[derive(Clone, Copy)]
struct Around<'a> {
    resource: &'a Resource,
    /// Whether it, or one around it, holds a lease.
    owns: bool,
    further: Option<&'a Around<'a>>,
}

impl Around<'_> {
    fn touches(&self, resource: &Resource) -> bool {
        self.resource == resource
            || self
                .further
                .is_some_and(|further| further.touches(resource))
    }
}

/// The right to make one change. A store function takes `&mut Change`, and only the kernel makes one.
///
/// It stands for one command: its resource, its operation, its actor and the instant at which it happens. The revision grows and
/// the event is written when the body accepts.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own about the command so far"
)]
pub struct Change<'a> {
    transaction: &'a Transaction<'a>,
    command: &'a Command,
    /// The command's operation, unless the body found that it is another one of the same domain.
    operation: &'static Operation,
    domain: usize,
    row: Option<ResourceRow>,
    /// The revision that the resource's row has: several touches move it once, when the last one is made.
    stored_revision: Option<u64>,
    is_new: bool,
    creates: bool,
    now: UnixMillis,
    monotonic: MonotonicMillis,
    payload: Option<Payload>,
    /// Whether the event carries the command's own payload unless the body sets another.
    takes_command_payload: bool,
    generation: Option<u64>,
    holds_lease: bool,
    /// The transition that the body named: the operation's own words for both states.
    made: Option<(&'static str, &'static str)>,
    must_be_accepted: bool,
    around: Option<&'a Around<'a>>,
}

/// A touch of a resource that was accepted, as projectors see it.
#[derive(Debug)]
pub struct Touched {
    /// The resource.
    pub resource: Resource,
    /// The operation that touched it.
    pub operation: &'static Operation,
    /// The resource's revision from now on.
    pub revision: u64,
    /// The sequence number of the event.
    pub event_seq: i64,
    /// The instant of the change.
    pub now: UnixMillis,
}

impl<'a> Change<'a> {
    /// The one instant of this command, read inside the transaction.
    pub fn now(&self) -> UnixMillis {
        self.now
    }

    /// The monotonic clock at the start of this command.
    pub fn monotonic(&self) -> MonotonicMillis {
        self.monotonic
    }

    /// The resource that this command changes.
    pub fn resource(&self) -> &Resource {
        &self.command.resource
    }

    /// Who acts.
    pub fn actor(&self) -> &Actor {
        &self.command.actor
    }

    /// Whether the command makes its resource, so that nothing about it is stored yet.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// The resource's present revision, 0 when it is new.
    pub fn revision(&self) -> u64 {
        if self.is_new {
            0
        } else {
            self.row.map_or(0, |row| row.revision)
        }
    }

    /// The revision that the resource has once this command is accepted.
    pub fn next_revision(&self) -> u64 {
        self.revision() + 1
    }

    /// The generation of the lease that this command used or took.
    pub fn lease_generation(&self) -> Option<u64> {
        self.generation
    }

    /// Compares the revision that the caller read, for commands that look for their earlier self first.
    ///
    /// # Errors
    ///
    /// [`StateError::StaleRevision`].
    pub fn expect_revision(&self, expected: u64) -> Result<(), StateError> {
        checks::expect_revision(self.command, expected, self.revision())
    }

    /// The key by which domain rows refer to the resource. A new resource gets its row here.
    ///
    /// # Errors
    ///
    /// Those of the database.
    pub fn resource_key(&mut self) -> Result<ResourceKey, StateError> {
        if let Some(row) = self.row {
            return Ok(row.key);
        }
        let key = resources::insert(&self.kernel_sql(), &self.command.resource, self.now)?;
        self.row = Some(ResourceRow { key, revision: 1 });
        self.stored_revision = Some(1);
        self.must_be_accepted = true;
        Ok(key)
    }

    /// Sets the event's payload, in place of the command's.
    pub fn record(&mut self, payload: Payload) {
        self.payload = Some(payload);
    }

    /// Names the transition that this change makes. The operation must declare both states.
    ///
    /// # Errors
    ///
    /// [`StateError::InvalidTransition`].
    pub fn transition(&mut self, from: &str, to: &str) -> Result<(), StateError> {
        let operation = self.operation;
        let word = |words: &'static [&'static str], state| {
            words.iter().copied().find(|word| *word == state)
        };
        if let (Some(from), Some(to)) = (word(operation.from, from), word(operation.to, to)) {
            self.made = Some((from, to));
            return Ok(());
        }
        Err(StateError::InvalidTransition {
            operation: operation.name,
            from: from.to_owned(),
            to: to.to_owned(),
        })
    }

    /// Statements on the tables of the operation's domain. For store rooms only.
    pub fn sql(&self) -> Sql<'a> {
        // Foreign code that meets a change of the kernel, such as a handler of an effect, must not get the kernel's own statements.
        let domain = match self.domain {
            KERNEL => NOBODY,
            domain => domain,
        };
        Sql::writing(self.transaction.connection, self.transaction.guard, domain)
    }

    /// Touches another resource in the same transaction, by an operation of its own domain: its own checks, its own revision and its
    /// own event. A lower domain's transition is called in this way, never written again.
    ///
    /// When the body fails after it wrote, the whole command fails, even if the caller goes on.
    ///
    /// # Errors
    ///
    /// Those of the checks, and the body's own. [`StateError::Misuse`] for a resource that this command, or one around it, touches
    /// already: [`Change::advance`] is for that.
    pub fn also<T, E: From<StateError>>(
        &mut self,
        command: &Command,
        body: impl FnOnce(&mut Change<'_>) -> Result<Outcome<T>, E>,
    ) -> Result<Receipt<T>, E> {
        let here = Around {
            resource: &self.command.resource,
            owns: self.generation.is_some() || self.around.is_some_and(|around| around.owns),
            further: self.around,
        };
        if here.touches(&command.resource) {
            return Err(self
                .misuse(&format!(
                    "{} touches {} a second time; `advance` does that",
                    command.operation.name, command.resource
                ))
                .into());
        }
        let part = Part::begin(self.transaction);
        // What the other command sees of this resource is what was made of it so far.
        if !self.is_new {
            self.store_revision(self.revision())?;
        }
        let receipt = run_at(
            self.transaction,
            command,
            Some(&here),
            (self.now, self.monotonic),
            body,
        )?;
        part.finish();
        Ok(receipt)
    }

    /// Makes one more accepted touch of this command's own resource, by `operation`, ahead of the command's own: it gets its own
    /// checks, its own revision and its own event. For commands that make several transitions which no crash may separate.
    ///
    /// After it the body must accept. The lease is renewed once, by the command's own touch.
    ///
    /// # Errors
    ///
    /// [`StateError::ActorDenied`], [`StateError::ClaimLost`], [`StateError::InvalidTransition`] as for a command of that
    /// operation; [`StateError::Misuse`] for an operation of another domain, which [`Change::also`] is for.
    pub fn advance(
        &mut self,
        operation: &'static Operation,
        transition: Option<(&str, &str)>,
        payload: Option<Payload>,
    ) -> Result<(), StateError> {
        let own = (
            self.operation,
            self.made.take(),
            self.payload.take(),
            self.takes_command_payload,
        );
        self.takes_command_payload = false;
        let part = Part::begin(self.transaction);
        let advanced = self.advance_by(operation, transition, payload);
        // Also after an error: what the body does about it is done in the command's own name again.
        (
            self.operation,
            self.made,
            self.payload,
            self.takes_command_payload,
        ) = own;
        advanced?;
        part.finish();
        self.must_be_accepted = true;
        Ok(())
    }

    fn advance_by(
        &mut self,
        operation: &'static Operation,
        transition: Option<(&str, &str)>,
        payload: Option<Payload>,
    ) -> Result<(), StateError> {
        self.instead(operation)?;
        self.payload = payload;
        if let Some((from, to)) = transition {
            self.transition(from, to)?;
        }
        self.write_touch()?;
        let revision = self.next_revision();
        self.is_new = false;
        if let Some(row) = &mut self.row {
            row.revision = revision;
        }
        Ok(())
    }

    /// Says that the command turned out to be `operation`: what it found in the transaction decides which transition it makes.
    ///
    /// # Errors
    ///
    /// As [`Change::advance`].
    pub fn instead(&mut self, operation: &'static Operation) -> Result<(), StateError> {
        let command = self.command;
        let schema = self.transaction.schema;
        if self.transaction.guard.operation_owner(operation) != Some(self.domain)
            || !schema.may_change(operation, self.domain, command.resource.kind())
        {
            return Err(self.misuse(&format!(
                "{} is not an operation of the same domain on {}",
                operation.name, command.resource
            )));
        }
        if !operation.actors.contains(&command.actor.kind()) {
            return Err(StateError::ActorDenied {
                operation: operation.name,
                actor: command.actor.kind(),
            });
        }
        if operation.lease != LeaseRule::NotRequired && self.generation.is_none() {
            return Err(StateError::ClaimLost {
                resource: command.resource.clone(),
                reason: ClaimLostReason::MissingAuthority,
            });
        }
        self.operation = operation;
        Ok(())
    }

    /// Statements on the shared records, for the records rooms.
    pub(crate) fn kernel_sql(&self) -> Sql<'a> {
        Sql::writing(self.transaction.connection, self.transaction.guard, KERNEL)
    }

    /// Statements that only read, for code that may not write here: the authorizer refuses everything else.
    pub(crate) fn reading_sql(&self) -> Sql<'a> {
        Sql::reading(self.transaction.connection)
    }

    /// Runs a handler of an effect with the statements of the domain that declares the effect's type.
    pub(crate) fn lend_to_effect<T>(
        &mut self,
        effect_type: &str,
        body: impl FnOnce(&mut Self) -> Result<T, StateError>,
    ) -> Result<T, StateError> {
        let own_domain = self.domain;
        if let Some(domain) = self.transaction.schema.effect_owner(effect_type) {
            self.domain = domain;
        }
        let result = body(self);
        self.domain = own_domain;
        result
    }

    pub(crate) fn schema(&self) -> &'a Schema {
        self.transaction.schema
    }

    /// Whether an owner said that it lives, and does no more.
    pub(crate) fn is_dead(&self, owner: &str) -> bool {
        self.transaction.owners.is_dead(owner)
    }

    pub(crate) fn existing_key(&self) -> Option<ResourceKey> {
        self.row.map(|row| row.key)
    }

    /// Owner and generation of the lease of another resource, in whose name the command acts.
    pub(crate) fn authority(&self) -> Option<(&str, u64)> {
        let evidence = self.command.authority.as_ref()?;
        Some((evidence.owner.id(), evidence.generation))
    }

    pub(crate) fn use_generation(&mut self, generation: u64) {
        self.generation = Some(generation);
    }

    /// The lease was given back by this command: it must not be renewed at the end.
    pub(crate) fn forget_evidence(&mut self) {
        self.holds_lease = false;
    }

    /// Rows now refer to the next revision: the body must accept.
    pub(crate) fn require_acceptance(&mut self) {
        self.must_be_accepted = true;
    }

    /// Moves the expiry of the claim that the command shows.
    pub(crate) fn renew_evidence(&mut self) -> Result<(), StateError> {
        if let (Some(evidence), Some(row)) = (&self.command.evidence, self.row) {
            let expires_at = leases::renew(&self.kernel_sql(), row.key, evidence, self.now)?;
            self.transaction.renewals.borrow_mut().push((
                Arc::clone(&evidence.timer),
                expires_at,
                self.monotonic,
            ));
        }
        Ok(())
    }

    fn misuse(&self, problem: &str) -> StateError {
        StateError::Misuse {
            operation: self.operation.name,
            problem: problem.to_owned(),
        }
    }

    /// What an accepted body leads to: revision, event, lease renewal, projections.
    fn accept(&mut self) -> Result<i64, StateError> {
        let command = self.command;
        if command.expectation == super::Expectation::Creates && !self.creates {
            return Err(StateError::Conflict {
                resource: command.resource.clone(),
                winner: "it exists already; a repeat must adopt it".into(),
            });
        }
        let event_seq = self.write_touch()?;
        self.store_revision(self.next_revision())?;
        if self.holds_lease && self.operation.lease == LeaseRule::Required {
            self.renew_evidence()?;
        }
        Ok(event_seq)
    }

    /// Moves the row of the resource to the revision that its touches led to.
    fn store_revision(&mut self, revision: u64) -> Result<(), StateError> {
        if let (Some(row), Some(stored)) = (self.row, self.stored_revision)
            && stored != revision
        {
            let row = ResourceRow {
                revision: stored,
                ..row
            };
            let resource = &self.command.resource;
            resources::move_on(&self.kernel_sql(), resource, row, revision, self.now)?;
            self.stored_revision = Some(revision);
        }
        Ok(())
    }

    /// Event and projections of one touch by the present operation.
    fn write_touch(&mut self) -> Result<i64, StateError> {
        let command = self.command;
        // Asked again, because the operation may have changed since the body named it.
        let named = self.made.is_some_and(|(from, to)| {
            self.operation.from.contains(&from) && self.operation.to.contains(&to)
        });
        if !self.operation.from.is_empty() && !named {
            return Err(self.misuse("the body accepted without naming its transition"));
        }
        let key = self.resource_key()?;
        let sql = self.kernel_sql();
        let revision = self.next_revision();
        let event = NewEvent {
            resource: &command.resource,
            key,
            revision,
            event_type: self.operation.event,
            actor: &command.actor,
            lease_generation: self.generation,
            payload: self.payload.as_ref().or(command
                .payload
                .as_ref()
                .filter(|_| self.takes_command_payload)),
        };
        let event_seq = events::insert(&sql, &event, self.now)?;
        self.run_projectors(revision, event_seq)?;
        Ok(event_seq)
    }

    fn run_projectors(&mut self, revision: u64, event_seq: i64) -> Result<(), StateError> {
        let schema = self.transaction.schema;
        let own_domain = self.domain;
        for (index, domain) in schema.domains().iter().enumerate() {
            for projector in domain.projectors {
                let touched = Touched {
                    resource: self.command.resource.clone(),
                    operation: self.operation,
                    revision,
                    event_seq,
                    now: self.now,
                };
                self.domain = index;
                let projected = (projector.project)(self, &touched);
                self.domain = own_domain;
                projected?;
            }
        }
        Ok(())
    }
}

/// Runs one command inside an open transaction: checks, body, and what follows from its outcome.
pub(crate) fn run_command<T, E: From<StateError>>(
    transaction: &Transaction<'_>,
    command: &Command,
    body: impl FnOnce(&mut Change<'_>) -> Result<Outcome<T>, E>,
) -> Result<Receipt<T>, E> {
    let now = (transaction.clock.now(), transaction.clock.monotonic());
    let result = run_at(transaction, command, None, now, body);
    if result.is_ok() && transaction.poisoned.get() {
        return Err(StateError::Misuse {
            operation: command.operation.name,
            problem: "the body went on after a nested command had failed half-way".into(),
        }
        .into());
    }
    result
}

fn run_at<'a, T, E: From<StateError>>(
    transaction: &'a Transaction<'a>,
    command: &'a Command,
    around: Option<&'a Around<'a>>,
    (now, monotonic): (UnixMillis, MonotonicMillis),
    body: impl FnOnce(&mut Change<'_>) -> Result<Outcome<T>, E>,
) -> Result<Receipt<T>, E> {
    let sql = Sql::writing(transaction.connection, transaction.guard, KERNEL);
    let Permit { domain, row } = checks::check(
        transaction,
        &sql,
        command,
        around.is_some_and(|around| around.owns),
        now,
    )?;
    let mut change = Change {
        transaction,
        command,
        operation: command.operation,
        domain,
        row,
        stored_revision: row.map(|row| row.revision),
        is_new: row.is_none(),
        creates: row.is_none(),
        now,
        monotonic,
        payload: None,
        takes_command_payload: true,
        generation: command
            .evidence
            .as_ref()
            .map(|evidence| evidence.generation),
        holds_lease: command.evidence.is_some(),
        made: None,
        must_be_accepted: false,
        around,
    };
    let before = transaction.connection.total_changes();
    let outcome = body(&mut change)?;
    if transaction.connection.is_autocommit() {
        // As on a full disk. The error said so; a body that goes on hides it.
        return Err(change
            .misuse("a statement failed so that SQLite ended the transaction, and the body went on")
            .into());
    }
    let (disposition, value) = match outcome {
        Outcome::Accepted(value) => {
            let event_seq = change.accept()?;
            return Ok(Receipt {
                disposition: Disposition::Accepted,
                revision: change.next_revision(),
                event_seq: Some(event_seq),
                value,
            });
        }
        Outcome::Adopted(value) => (Disposition::Adopted, value),
        Outcome::Refused(value) => (Disposition::Refused, value),
    };
    if change.must_be_accepted {
        return Err(change
            .misuse("rows refer to a revision that the body did not accept")
            .into());
    }
    if disposition == Disposition::Adopted && transaction.connection.total_changes() != before {
        return Err(change.misuse("the body wrote rows and then adopted").into());
    }
    Ok(Receipt {
        disposition,
        revision: change.revision(),
        event_seq: None,
        value,
    })
}
