//! The database: one SQLite file, one writer in this process, and as many readers as are wanted.
//!
//! Not here: what a command means (`command`), and what the rows are (`records`).

mod cleaner;
mod commits;
#[cfg(feature = "testing")]
pub(crate) mod faults;
mod follower;
pub(crate) mod guard;
mod open;
pub(crate) mod owners;
mod presence;
mod queue;
mod reader;
mod ticket;
mod turnstile;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use crate::clock::{Clock, SystemClock};
use crate::command::{Actor, Change, Command, Disposition, Outcome, Receipt};
use crate::error::StateError;
use crate::id::Resource;
use crate::records::leases::{self, Claim, Owner};
use crate::schema::Schema;

pub(crate) use cleaner::{Cleaner, Cleaning, End, MaintenanceRight};
use commits::CommitSignal;
pub use follower::EventFollower;
pub(crate) use guard::KERNEL;
pub use open::{FileSystem, product_path, product_path_in};
pub use owners::OwnerPresence;
use owners::Owners;
pub(crate) use presence::{Presence, RESTORE_NOTE, beside};
use queue::Queue;
use reader::ReaderPool;
pub use reader::Snapshot;
pub use ticket::{Ticket, Tickets};

/// How a database is opened. Every setting has a value that is right for a product.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where time comes from.
    pub clock: Arc<dyn Clock>,
    /// Whether a missing database is created.
    pub create: bool,
    /// How long a command may wait for other processes or for a place in the queue, in milliseconds.
    pub busy_timeout_ms: u64,
    /// How many commands may wait in this process before `commit` and `submit` make their callers wait.
    pub queue_capacity: usize,
    /// How many commands share one transaction at most.
    pub batch_limit: usize,
    /// How many idle reader connections are kept.
    pub idle_readers: usize,
    /// How often a waiting [`EventFollower`] looks for the commits of other processes, in milliseconds. Those of this process
    /// wake it at once.
    pub follow_poll_ms: u64,
    /// Whether opening runs the integrity and foreign-key checks, whose cost grows with the file. Without them, opening
    /// still checks identity, version, digest and exact shape.
    pub check_integrity: bool,
    /// The least time that a commit takes, in milliseconds: for benchmarks that compare on a disk with a slow fsync.
    #[doc(hidden)]
    pub commit_floor_ms: u64,
    /// The kind of file system that opening is to believe the store lies on: for tests of the refusal.
    #[doc(hidden)]
    pub pretend_file_system: Option<&'static str>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            clock: Arc::new(SystemClock),
            create: true,
            busy_timeout_ms: 5_000,
            queue_capacity: 1_024,
            batch_limit: 256,
            idle_readers: 8,
            follow_poll_ms: 20,
            check_integrity: true,
            commit_floor_ms: 0,
            pretend_file_system: None,
        }
    }
}

/// A handle on an open database. Clones share it; the last one to go closes it after all queued commands have run.
///
/// A handle belongs to the process that opened it. After a `fork`, the child's copy refuses to work and its drop touches nothing.
///
/// ```
/// use holdpoint_state::testing::{TestStore, counter};
/// use holdpoint_state::{Command, Outcome, StateError};
///
/// let store = TestStore::counters()?;
/// counter::create(store.db(), "orders")?;
/// // Several commands share one transaction when none waits for the one before it.
/// let add = || Command::new(&counter::ADD, counter::resource("orders"));
/// let tickets = [1, 2, 3].map(|amount| {
///     store.db().submit(add(), move |change| {
///         Ok::<_, StateError>(Outcome::Accepted(counter::increase(change, amount)?))
///     })
/// });
/// let values: Vec<i64> = tickets.into_iter().map(|ticket| Ok(ticket?.wait()?.value)).collect::<Result<_, StateError>>()?;
/// assert_eq!(values, [1, 3, 6]);
/// assert_eq!(counter::value(&store.db().snapshot()?, "orders")?, Some(6));
/// # Ok::<(), StateError>(())
/// ```
#[derive(Clone)]
pub struct Database {
    handle: Arc<Handle>,
}

struct Handle {
    shared: Arc<Shared>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

/// What the handle, the writer and the readers share.
pub(crate) struct Shared {
    pub(crate) path: PathBuf,
    pub(crate) schema: Schema,
    pub(crate) options: Options,
    pub(crate) queue: Queue,
    pub(crate) readers: ReaderPool,
    pub(crate) commits: CommitSignal,
    pub(crate) owners: Owners,
    pub(crate) opened_by: u32,
    /// The last to be dropped: until then the readers are open.
    _presence: Presence,
    _here: open::OpenHere,
}

impl std::fmt::Debug for Database {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Database")
            .field("path", &self.path())
            .finish_non_exhaustive()
    }
}

impl Database {
    /// Opens the database at `path`, or creates it, with the product's settings.
    ///
    /// # Errors
    ///
    /// [`StateError::Refused`] when the file is not exactly what `schema` says; its bytes are untouched then.
    pub fn open(path: impl AsRef<Path>, schema: &Schema) -> Result<Self, StateError> {
        Self::open_with(path, schema, Options::default())
    }

    /// Opens the database at `path` with other settings.
    ///
    /// # Errors
    ///
    /// As [`Database::open`].
    pub fn open_with(
        path: impl AsRef<Path>,
        schema: &Schema,
        options: Options,
    ) -> Result<Self, StateError> {
        // All names of one file must meet at one lock.
        let path = open::real_path(path.as_ref())?;
        let (presence, (opened, here)) =
            Presence::around(&path, || open::open(&path, schema, &options))?;
        let shared = Arc::new(Shared {
            readers: ReaderPool::new(
                Arc::clone(&opened.stamp),
                options.busy_timeout_ms,
                options.idle_readers,
            ),
            path: opened.stamp.path.clone(),
            schema: schema.clone(),
            queue: Queue::new(options.queue_capacity),
            options,
            commits: CommitSignal::new(),
            owners: Owners::new(&path),
            opened_by: std::process::id(),
            _presence: presence,
            _here: here,
        });
        let writer = writer::spawn(Arc::clone(&shared), opened)?;
        Ok(Self {
            handle: Arc::new(Handle {
                shared,
                writer: Mutex::new(Some(writer)),
            }),
        })
    }

    /// The database file.
    pub fn path(&self) -> &Path {
        &self.handle.shared.path
    }

    /// The schema that the file was opened with.
    pub fn schema(&self) -> &Schema {
        &self.handle.shared.schema
    }

    /// The clock that this database reads.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.handle.shared.options.clock
    }

    /// Runs one command and waits until it is durable.
    ///
    /// The body runs on the writer's thread, inside the transaction, and may run a second time when a neighbour in the same
    /// transaction fails; it does nothing but read and write rows through the [`Change`]. An `Err` leaves no trace.
    ///
    /// # Errors
    ///
    /// Those of the checks ([`StateError`]), and the body's own. [`StateError::Busy`] when another process held the write lock
    /// for too long. [`StateError::Misuse`] inside the body of another command of this database, which would wait for itself;
    /// [`Change::also`] is for that.
    pub fn commit<T, E>(
        &self,
        command: Command,
        body: impl FnMut(&mut Change<'_>) -> Result<Outcome<T>, E> + Send + 'static,
    ) -> Result<Receipt<T>, E>
    where
        T: Send + 'static,
        E: From<StateError> + Send + 'static,
    {
        self.submit(command, body)?.wait()
    }

    /// Queues one command and returns a ticket that can be waited on or awaited. Waits for a place while the queue is full.
    ///
    /// # Errors
    ///
    /// [`StateError::Busy`] when the queue stayed full for the busy timeout, [`StateError::Closed`], [`StateError::Forked`],
    /// [`StateError::Misuse`] inside the body of another command of this database.
    pub fn submit<T, E>(
        &self,
        command: Command,
        body: impl FnMut(&mut Change<'_>) -> Result<Outcome<T>, E> + Send + 'static,
    ) -> Result<Ticket<T, E>, StateError>
    where
        T: Send + 'static,
        E: From<StateError> + Send + 'static,
    {
        self.check_process()?;
        let queue = &self.handle.shared.queue;
        let (mut ticket, job) = ticket::pair(queue.id(), command, body);
        ticket.is_alone = queue.push(job, self.handle.shared.options.busy_timeout_ms)?;
        Ok(ticket)
    }

    /// Queues two commands of which the second follows from the first: they share a transaction, unless something fails in it, and so an
    /// fsync. Each keeps its own checks and its own result. The body of the second one has to find out whether the first was accepted.
    ///
    /// # Errors
    ///
    /// As [`Database::submit`]; then neither is queued.
    pub fn submit_both<T, U, E>(
        &self,
        first: (
            Command,
            impl FnMut(&mut Change<'_>) -> Result<Outcome<T>, E> + Send + 'static,
        ),
        second: (
            Command,
            impl FnMut(&mut Change<'_>) -> Result<Outcome<U>, E> + Send + 'static,
        ),
    ) -> Result<Tickets<T, U, E>, StateError>
    where
        T: Send + 'static,
        U: Send + 'static,
        E: From<StateError> + Send + 'static,
    {
        self.check_process()?;
        let queue = &self.handle.shared.queue;
        let (mut one, job) = ticket::pair(queue.id(), first.0, first.1);
        let (mut other, other_job) = ticket::pair(queue.id(), second.0, second.1);
        let timeout_ms = self.handle.shared.options.busy_timeout_ms;
        one.is_alone = queue.push_with(job, Some(other_job), timeout_ms)?;
        other.is_alone = one.is_alone;
        Ok((one, other))
    }

    /// Opens a snapshot: everything that is read through it is of one instant, and nothing can be written.
    ///
    /// # Errors
    ///
    /// [`StateError::Io`] or [`StateError::Refused`] when no reader can be opened.
    pub fn snapshot(&self) -> Result<Snapshot<'_>, StateError> {
        self.check_process()?;
        self.handle.shared.readers.snapshot(&self.handle.shared)
    }

    /// Follows the events after the sequence number `after_seq`: those that are stored, then new ones of any process.
    ///
    /// # Errors
    ///
    /// As [`Database::snapshot`].
    pub fn follow_events(&self, after_seq: i64) -> Result<EventFollower, StateError> {
        self.check_process()?;
        EventFollower::new(Arc::clone(self.shared()), after_seq)
    }

    /// Takes the lease of a resource.
    ///
    /// # Errors
    ///
    /// [`StateError::LeaseHeld`] while another claim is live, also one of the same owner.
    pub fn claim(
        &self,
        resource: Resource,
        actor: Actor,
        owner: &Owner,
        length_ms: i64,
    ) -> Result<Claim, StateError> {
        let owner = owner.clone();
        let command = Command::of_kernel(&leases::CLAIM, resource).by(actor);
        let receipt = self.commit(command, move |change| {
            Ok::<_, StateError>(Outcome::Accepted(change.claim(&owner, length_ms)?))
        })?;
        Ok(receipt.value)
    }

    /// Moves the expiry of a claim to its whole length from now. It writes no event.
    ///
    /// # Errors
    ///
    /// [`StateError::ClaimLost`]; an expired claim can't renew itself.
    pub fn renew(&self, claim: &Claim) -> Result<(), StateError> {
        let command = Command::of_kernel(&leases::RENEW, claim.resource().clone()).holding(claim);
        self.commit(command, move |change| {
            change.renew()?;
            Ok::<_, StateError>(Outcome::Refused(()))
        })?;
        Ok(())
    }

    /// Gives a lease back. Dropping a claim does not: the lease then ends by its expiry.
    ///
    /// # Errors
    ///
    /// [`StateError::ClaimLost`] when it is lost already.
    pub fn release(&self, claim: Claim, actor: Actor) -> Result<(), StateError> {
        let command = Self::releasing(&claim, actor);
        drop(claim);
        self.release_by(command)?;
        Ok(())
    }

    pub(crate) fn releasing(claim: &Claim, actor: Actor) -> Command {
        Command::of_kernel(&leases::RELEASE, claim.resource().clone())
            .by(actor)
            .holding(claim)
    }

    pub(crate) fn release_by(&self, command: Command) -> Result<Receipt<()>, StateError> {
        self.commit(command, move |change| {
            change.release()?;
            Ok::<_, StateError>(Outcome::Accepted(()))
        })
    }

    /// Closes the database, for all its clones, and returns when every queued command has run. Commands that come later get
    /// [`StateError::Closed`].
    pub fn close(self) {
        self.handle.close(queue::Closing::Drain);
    }

    /// Closes the database at once: the running transaction commits, queued commands get [`StateError::Closed`].
    pub fn close_now(self) {
        self.handle.close(queue::Closing::Refuse);
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.handle.shared
    }

    fn check_process(&self) -> Result<(), StateError> {
        self.handle.shared.check_process()
    }
}

impl Shared {
    pub(crate) fn check_process(&self) -> Result<(), StateError> {
        // `getpid` is a system call of some tens of nanoseconds; a cached value would be the forked parent's.
        if std::process::id() == self.opened_by {
            Ok(())
        } else {
            Err(StateError::Forked {
                opened_by: self.opened_by,
            })
        }
    }
}

impl Handle {
    /// Ends the writer and waits for it. In a forked child there is none, and nothing may be touched.
    fn close(&self, how: queue::Closing) {
        if self.shared.check_process().is_ok() {
            self.shared.queue.close(how);
            self.join();
        }
    }

    fn join(&self) {
        // The writer can't wait for its own end.
        if self.shared.queue.id().is_served_here() {
            return;
        }
        // Held while it waits: whoever closes at the same time returns when the writer has ended too, not before.
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(writer) = writer.take() {
            // The writer catches the panics of commands; if it died all the same, its queue is closed and says so.
            drop(writer.join());
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.shared.check_process().is_ok() {
            self.close(queue::Closing::Drain);
            return;
        }
        // A forked child: the writer's thread does not exist here, and closing a connection would touch the parent's files.
        std::mem::forget(Arc::clone(&self.shared));
        if let Ok(writer) = self.writer.get_mut() {
            std::mem::forget(writer.take());
        }
    }
}

/// What a committed command did, without its value: for tests and logs.
impl<T> Receipt<T> {
    /// Whether this very command made the change.
    pub fn is_accepted(&self) -> bool {
        self.disposition == Disposition::Accepted
    }
}
