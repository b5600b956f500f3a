//! The command: what a caller must name to change something, and what it gets back.
//!
//! Finding state never grants the right to change it. A command names a resource, an operation, an actor, the revision it expects
//! and the lease it holds; the kernel checks all of them again inside the transaction. Not here: how commands share a
//! transaction (`database::writer`), and what the rows are (`records`).

mod change;
mod checks;
mod sql;

use std::fmt;

use crate::id::Resource;
use crate::records::blobs::Payload;
use crate::records::leases::{Claim, Evidence};
use crate::records::resources::ResourceKey;

pub use change::{Change, Touched};
pub(crate) use change::{Transaction, run_command};
pub use sql::{Reads, Sql};

/// One named transition of a domain: data, so that it can be printed, tested and checked in one place.
#[derive(Debug, PartialEq, Eq)]
pub struct Operation {
    /// The name, `resource.verb`; unique in a schema.
    pub name: &'static str,
    /// The event that an accepted command of this operation writes.
    pub event: &'static str,
    /// The type of resource that it changes, or [`Operation::ANY_RESOURCE`].
    pub resource: &'static str,
    /// What it does, in one sentence.
    pub summary: &'static str,
    /// Who may.
    pub actors: &'static [ActorKind],
    /// Whether it needs the resource's lease.
    pub lease: LeaseRule,
    /// The states it leads from; empty when the resource has none. A command of an operation with states must name the
    /// transition it makes, through [`Change::transition`].
    pub from: &'static [&'static str],
    /// The states it leads to.
    pub to: &'static [&'static str],
}

impl Operation {
    /// For operations on every type of resource that their domain declares. Those of the kernel, such as claiming a lease, exist on
    /// the resources of all domains.
    pub const ANY_RESOURCE: &'static str = "*";
}

/// Who acts. The kind decides what is allowed; the id is for the audit trail and stays private.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Actor {
    kind: ActorKind,
    id: Option<String>,
}

impl Actor {
    /// An actor of a kind with a private id.
    pub fn new(kind: ActorKind, id: impl Into<String>) -> Self {
        Self {
            kind,
            id: Some(id.into()),
        }
    }

    /// A host process.
    pub fn host(id: impl Into<String>) -> Self {
        Self::new(ActorKind::Host, id)
    }

    /// A person, verified by the caller.
    pub fn human(id: impl Into<String>) -> Self {
        Self::new(ActorKind::Human, id)
    }

    /// Explicit control, such as a command line that cancels.
    pub fn control(id: impl Into<String>) -> Self {
        Self::new(ActorKind::Control, id)
    }

    /// The system itself.
    pub fn system() -> Self {
        Self {
            kind: ActorKind::System,
            id: None,
        }
    }

    /// What kind of actor it is.
    pub fn kind(&self) -> ActorKind {
        self.kind
    }

    /// The private id.
    pub fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }
}

/// The kinds of actor: a closed set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ActorKind {
    /// An agent session.
    Session,
    /// A host process that executes work.
    Host,
    /// A controller that reconciles a resource.
    Controller,
    /// A channel to people.
    Channel,
    /// A verified person.
    Human,
    /// A declared automatic rule; only with the owner's lease.
    Policy,
    /// Explicit control from outside, such as cancel.
    Control,
    /// The system's own recovery and cleaning.
    System,
}

impl ActorKind {
    /// Every kind.
    pub const ALL: &'static [Self] = &[
        Self::Session,
        Self::Host,
        Self::Controller,
        Self::Channel,
        Self::Human,
        Self::Policy,
        Self::Control,
        Self::System,
    ];

    /// The word that is stored.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Host => "host",
            Self::Controller => "controller",
            Self::Channel => "channel",
            Self::Human => "human",
            Self::Policy => "policy",
            Self::Control => "control",
            Self::System => "system",
        }
    }

    /// Reads the stored word.
    pub fn from_text(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.as_str() == text)
    }
}

impl fmt::Display for ActorKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// Whether an operation needs the lease of its resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseRule {
    /// It does not. Evidence that is given all the same is checked.
    NotRequired,
    /// It does, and the write renews the lease for its whole length.
    Required,
    /// It does, and the lease keeps its expiry.
    RequiredUnrenewed,
}

/// A wish to change one resource by one operation. It types the call; it is not the right: the transaction reads the rows again.
#[derive(Debug)]
pub struct Command {
    pub(crate) operation: &'static Operation,
    pub(crate) resource: Resource,
    pub(crate) actor: Actor,
    pub(crate) expectation: Expectation,
    pub(crate) evidence: Option<Evidence>,
    /// The lease of another resource, in whose name this one is changed.
    pub(crate) authority: Option<Evidence>,
    pub(crate) payload: Option<Payload>,
    pub(crate) place: Place,
    /// Whether the records rooms made it.
    pub(crate) is_kernels: bool,
}

/// What the caller knows of where the resource's row is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// Nothing: it is looked for by its name.
    ByName,
    /// It has this key.
    At(ResourceKey),
    /// There is none: what the name is derived from was looked for in this very transaction.
    Absent,
}

/// What the caller says about the resource's present revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expectation {
    /// Any, but the resource exists.
    Exists,
    /// Exactly this one.
    Revision(u64),
    /// The command makes the resource, or finds it and adopts.
    Creates,
}

impl Command {
    /// A command by the system actor on an existing resource at any revision; narrow it with the other methods.
    ///
    /// The operations of the shared records have functions of their own, such as [`Change::claim`] and
    /// [`Change::reserve_effect`]; a command of this kind by one of them is refused.
    pub fn new(operation: &'static Operation, resource: Resource) -> Self {
        Self {
            operation,
            resource,
            actor: Actor::system(),
            expectation: Expectation::Exists,
            evidence: None,
            authority: None,
            payload: None,
            place: Place::ByName,
            is_kernels: false,
        }
    }

    /// A command by an operation of the shared records. Only their rooms make one: its body is theirs, so that the event and the row
    /// of a lease or an effect can't come apart.
    pub(crate) fn of_kernel(operation: &'static Operation, resource: Resource) -> Self {
        Self {
            is_kernels: true,
            ..Self::new(operation, resource)
        }
    }

    /// Says who acts.
    #[must_use]
    pub fn by(mut self, actor: Actor) -> Self {
        self.actor = actor;
        self
    }

    /// Says which revision the caller read. A command whose repeat must be adopted looks for its earlier self first and calls
    /// [`Change::expect_revision`] afterwards instead.
    #[must_use]
    pub fn expecting(mut self, revision: u64) -> Self {
        self.expectation = Expectation::Revision(revision);
        self
    }

    /// Says that the command makes the resource. When the resource exists already ([`Change::is_new`] is false), the command may
    /// only adopt or refuse.
    #[must_use]
    pub fn creating(mut self) -> Self {
        self.expectation = Expectation::Creates;
        self
    }

    /// Shows the lease that the caller holds.
    #[must_use]
    pub fn holding(mut self, claim: &Claim) -> Self {
        self.evidence = Some(claim.evidence());
        if claim.resource() == &self.resource {
            self.place = Place::At(claim.key());
        }
        self
    }

    /// Shows the lease of another resource, in whose name this one is changed: that of a host, which holds one lease for many things
    /// that have none. It is checked as the resource's own would be and not renewed. It lets the change begin and settle effects of
    /// its resource; an operation that needs the resource's own lease it does not allow.
    #[must_use]
    pub fn under(mut self, claim: &Claim) -> Self {
        self.authority = Some(claim.evidence());
        self
    }

    /// Says where the resource's row is, so that it need not be looked for.
    #[must_use]
    pub(crate) fn at(mut self, place: Place) -> Self {
        self.place = place;
        self
    }

    /// Sets the event's payload. [`Change::record`] can do it later, from what the transaction finds.
    #[must_use]
    pub fn recording(mut self, payload: Payload) -> Self {
        self.payload = Some(payload);
        self
    }
}

/// What a command's body decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome<T> {
    /// The change is made: the revision grows by one and the event is written.
    Accepted(T),
    /// An identical earlier command did it: nothing is written, and the value is the stored receipt.
    Adopted(T),
    /// The wish was refused, and the refusal is a fact: the rows that the body wrote stay, revision and events do not change.
    Refused(T),
}

/// Whether a committed command changed something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Disposition {
    /// The change was made by this command.
    Accepted,
    /// An identical earlier command had made it.
    Adopted,
    /// The wish was refused, and that was recorded.
    Refused,
}

/// What a committed command gives back. It is durable when the caller sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt<T> {
    /// Whether this command changed something.
    pub disposition: Disposition,
    /// The resource's revision after the command; 0 when there is no such resource.
    pub revision: u64,
    /// The sequence number of the event, when one was written.
    pub event_seq: Option<i64>,
    /// What the body returned.
    pub value: T,
}

impl<T> Receipt<T> {
    /// The same receipt about another value.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Receipt<U> {
        Receipt {
            disposition: self.disposition,
            revision: self.revision,
            event_seq: self.event_seq,
            value: change(self.value),
        }
    }
}
