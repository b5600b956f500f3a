//! Leases: who may work on a resource now. The generation only grows; the token is stored hashed.
//!
//! Safety rests on the generation, which every protected write compares; clocks only decide how soon somebody else may take over.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::{OptionalExtension, named_params};
use zeroize::Zeroizing;

use super::resources::{ResourceKey, expect_one, sql_integer};
use crate::clock::{Clock, MonotonicMillis, UnixMillis};
use crate::command::{ActorKind, Change, LeaseRule, Operation, Sql};
use crate::error::{ClaimLostReason, StateError};
use crate::id::{Digest, Resource, random_id};

/// Somebody takes a free or expired lease.
pub const CLAIM: Operation = Operation {
    name: "lease.claim",
    event: "lease.claimed",
    resource: Operation::ANY_RESOURCE,
    summary: "Takes the free or expired lease of a resource; the generation grows by one.",
    actors: ActorKind::ALL,
    lease: LeaseRule::NotRequired,
    from: &[],
    to: &[],
};

/// The owner gives its lease back.
pub const RELEASE: Operation = Operation {
    name: "lease.release",
    event: "lease.released",
    resource: Operation::ANY_RESOURCE,
    summary: "Gives a lease back; the generation stays.",
    actors: ActorKind::ALL,
    lease: LeaseRule::RequiredUnrenewed,
    from: &[],
    to: &[],
};

/// The owner moves its expiry on.
pub const RENEW: Operation = Operation {
    name: "lease.renew",
    event: "lease.renewed",
    resource: Operation::ANY_RESOURCE,
    summary: "Moves heartbeat and expiry of a live claim on. It changes no revision and writes no event.",
    actors: ActorKind::ALL,
    lease: LeaseRule::RequiredUnrenewed,
    from: &[],
    to: &[],
};

/// What kind of owner holds a lease: a closed set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OwnerKind {
    /// An agent session.
    Session,
    /// A host process.
    Host,
    /// A controller.
    Controller,
    /// A channel.
    Channel,
    /// The system's own recovery.
    System,
}

impl OwnerKind {
    /// The word that is stored.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Host => "host",
            Self::Controller => "controller",
            Self::Channel => "channel",
            Self::System => "system",
        }
    }
}

/// An owner of leases: its kind and a private id with a random part, so that a restarted process is never its own predecessor.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Owner {
    kind: OwnerKind,
    id: String,
}

impl Owner {
    /// A new owner. `label` is for people; the random part that is added makes the id unique.
    pub fn new(kind: OwnerKind, label: &str) -> Self {
        Self {
            kind,
            id: random_id(label),
        }
    }

    /// What kind of owner it is.
    pub fn kind(&self) -> OwnerKind {
        self.kind
    }

    /// The private id.
    pub fn id(&self) -> &str {
        &self.id
    }
}

/// The right to work on one resource, until its time is up. It can't be cloned, and its token is wiped on drop.
///
/// A claim knows on its own clock when its time is up, without the database: [`Claim::is_expired`]. That is a help to stop early,
/// not a right to go on: every protected write compares owner, token, generation and expiry again.
///
/// ```
/// use holdpoint_state::testing::{TestStore, counter};
/// use holdpoint_state::{Actor, Owner, OwnerKind, StateError};
///
/// let store = TestStore::counters()?;
/// counter::create(store.db(), "orders")?;
/// let (orders, worker) = (counter::resource("orders"), Owner::new(OwnerKind::Host, "worker"));
/// let claim = store.db().claim(orders.clone(), Actor::host("worker"), &worker, 30_000)?;
/// // Nobody else has it now, and its time goes on by renewing it.
/// let other = Owner::new(OwnerKind::Host, "other");
/// let refused = store.db().claim(orders, Actor::host("other"), &other, 30_000);
/// assert!(matches!(refused, Err(StateError::LeaseHeld { .. })));
/// store.clock().advance(20_000);
/// store.db().renew(&claim)?;
/// assert_eq!(claim.remaining_ms(store.clock()), 30_000);
/// // When the time is up, the claim says so without the database, and gives no right any more.
/// store.clock().advance(30_000);
/// assert!(claim.is_expired(store.clock()));
/// assert!(matches!(store.db().renew(&claim), Err(StateError::ClaimLost { .. })));
/// # Ok::<(), StateError>(())
/// ```
pub struct Claim {
    resource: Resource,
    key: ResourceKey,
    owner: Owner,
    token: Zeroizing<[u8; 32]>,
    generation: u64,
    timer: Arc<LeaseTimer>,
}

/// When a claim's time is up, shared with the commands that renew it.
#[derive(Debug)]
pub(crate) struct LeaseTimer {
    grant: Mutex<Grant>,
    length_ms: i64,
}

/// The last grant or renewal, on both clocks.
#[derive(Debug, Clone, Copy)]
struct Grant {
    expires_at: UnixMillis,
    granted: MonotonicMillis,
}

impl LeaseTimer {
    fn new(expires_at: UnixMillis, granted: MonotonicMillis, length_ms: i64) -> Self {
        Self {
            grant: Mutex::new(Grant {
                expires_at,
                granted,
            }),
            length_ms,
        }
    }

    pub(crate) fn renewed(&self, expires_at: UnixMillis, granted: MonotonicMillis) {
        let mut grant = self.grant.lock().unwrap_or_else(PoisonError::into_inner);
        // Two handles may tell their renewals out of order: the later grant wins. Its expiry may still be the earlier one, when the
        // wall clock was set back, and the guard must not outlive the row.
        if grant.granted <= granted {
            *grant = Grant {
                expires_at,
                granted,
            };
        }
    }

    fn grant(&self) -> Grant {
        *self.grant.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a command shows of a claim: everything but the token itself.
#[derive(Debug, Clone)]
pub(crate) struct Evidence {
    pub(crate) resource: Resource,
    pub(crate) owner: Owner,
    pub(crate) token_hash: TokenHash,
    pub(crate) generation: u64,
    pub(crate) timer: Arc<LeaseTimer>,
}

/// The hash of a claim token. It is never shown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct TokenHash(Digest);

impl fmt::Debug for TokenHash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("TokenHash(redacted)")
    }
}

impl fmt::Debug for Claim {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Claim")
            .field("resource", &self.resource)
            .field("owner", &self.owner)
            .field("token", &"redacted")
            .field("generation", &self.generation)
            .field("expires_at", &self.expires_at())
            .finish_non_exhaustive()
    }
}

impl Claim {
    /// The resource that is owned.
    pub fn resource(&self) -> &Resource {
        &self.resource
    }

    /// Who owns it.
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// The generation of this claim.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// When the lease ends unless it is renewed, as far as this process knows.
    pub fn expires_at(&self) -> UnixMillis {
        self.timer.grant().expires_at
    }

    /// Milliseconds until the time is up, 0 when it is: whatever of the wall clock and the monotonic clock comes first.
    pub fn remaining_ms(&self, clock: &dyn Clock) -> u64 {
        let Grant {
            expires_at,
            granted,
        } = self.timer.grant();
        let length = self.timer.length_ms.unsigned_abs();
        let by_monotonic = length.saturating_sub(clock.monotonic().since(granted));
        let by_wall = u64::try_from(expires_at.since(clock.now())).unwrap_or(0);
        by_monotonic.min(by_wall)
    }

    /// Whether the time is up on this process's own clocks.
    pub fn is_expired(&self, clock: &dyn Clock) -> bool {
        self.remaining_ms(clock) == 0
    }

    /// Where the resource's row is.
    pub(crate) fn key(&self) -> ResourceKey {
        self.key
    }

    pub(crate) fn evidence(&self) -> Evidence {
        Evidence {
            resource: self.resource.clone(),
            owner: self.owner.clone(),
            token_hash: hash_token(&self.token),
            generation: self.generation,
            timer: Arc::clone(&self.timer),
        }
    }
}

/// The lease of a resource as a reader may see it: no token, no hash. Finding it gives no right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseView {
    /// The generation; 0 when the resource was never claimed.
    pub generation: u64,
    /// Owner kind and private id, when there is an owner, live or expired.
    pub owner: Option<(String, String)>,
    /// When the owner's lease ends or ended.
    pub expires_at: Option<UnixMillis>,
}

impl LeaseView {
    /// Whether an owner holds the lease at `now`.
    pub fn is_live(&self, now: UnixMillis) -> bool {
        self.expires_at.is_some_and(|at| now < at)
    }
}

struct LeaseRow {
    generation: u64,
    owner: Option<LeaseOwner>,
}

struct LeaseOwner {
    kind: String,
    id: String,
    token_hash: Digest,
    expires_at: UnixMillis,
}

fn fetch(sql: &Sql<'_>, key: ResourceKey) -> Result<Option<LeaseRow>, StateError> {
    sql.prepare_cached(
        "SELECT generation, owner_type, owner_id, token_hash, expires_at FROM leases WHERE resource_key = ?1",
    )?
    .query_row([key], |row| {
        let kind: Option<String> = row.get(1)?;
        let owner = match kind {
            Some(kind) => Some(LeaseOwner {
                kind,
                id: row.get(2)?,
                token_hash: row.get(3)?,
                expires_at: row.get(4)?,
            }),
            None => None,
        };
        Ok(LeaseRow { generation: row.get::<_, i64>(0)?.unsigned_abs(), owner })
    })
    .optional()
    .map_err(StateError::from)
}

/// The lease of a resource for a reader.
pub(crate) fn view(sql: &Sql<'_>, key: ResourceKey) -> Result<LeaseView, StateError> {
    let row = fetch(sql, key)?;
    Ok(LeaseView {
        generation: row.as_ref().map_or(0, |row| row.generation),
        expires_at: row
            .as_ref()
            .and_then(|row| row.owner.as_ref())
            .map(|owner| owner.expires_at),
        owner: row
            .and_then(|row| row.owner)
            .map(|owner| (owner.kind, owner.id)),
    })
}

/// The owners of leases that have not expired.
pub(crate) fn live_owners(sql: &Sql<'_>, now: UnixMillis) -> Result<Vec<String>, StateError> {
    let mut statement = sql.prepare_cached(
        "SELECT DISTINCT owner_id FROM leases WHERE expires_at IS NOT NULL AND expires_at > ?1",
    )?;
    let rows = statement.query_map([now], |row| row.get(0))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Whether a lease, live or expired, names an owner.
pub(crate) fn names_owner(sql: &Sql<'_>, owner: &str) -> Result<bool, StateError> {
    Ok(sql
        .prepare_cached("SELECT 1 FROM leases WHERE owner_id IS NOT NULL AND owner_id = ?1")?
        .exists([owner])?)
}

/// Whether `evidence` still gives the right to write, in the reference's order of reasons.
pub(crate) fn check(
    sql: &Sql<'_>,
    key: ResourceKey,
    evidence: &Evidence,
    now: UnixMillis,
) -> Result<Result<(), ClaimLostReason>, StateError> {
    let Some(row) = fetch(sql, key)? else {
        return Ok(Err(ClaimLostReason::MissingAuthority));
    };
    Ok(judge(&row, evidence, now))
}

fn judge(row: &LeaseRow, evidence: &Evidence, now: UnixMillis) -> Result<(), ClaimLostReason> {
    // Who, then which claim of theirs: a claim by somebody else has another generation and another token too.
    let same_generation = row.generation == evidence.generation;
    let Some(owner) = &row.owner else {
        return Err(if same_generation {
            ClaimLostReason::MissingAuthority
        } else {
            ClaimLostReason::GenerationChanged
        });
    };
    if owner.kind != evidence.owner.kind.as_str() || owner.id != evidence.owner.id {
        return Err(ClaimLostReason::OwnerChanged);
    }
    if !same_generation {
        return Err(ClaimLostReason::GenerationChanged);
    }
    if owner.token_hash != evidence.token_hash.0 {
        return Err(ClaimLostReason::TokenChanged);
    }
    if owner.expires_at <= now {
        return Err(ClaimLostReason::Expired);
    }
    Ok(())
}

/// Moves heartbeat and expiry of exactly this claim. No event: a renewal changes nothing that anybody decides on.
pub(crate) fn renew(
    sql: &Sql<'_>,
    key: ResourceKey,
    evidence: &Evidence,
    now: UnixMillis,
) -> Result<UnixMillis, StateError> {
    let expires_at = now.plus(evidence.timer.length_ms);
    let written = sql
        .prepare_cached(
            "UPDATE leases SET heartbeat_at = :now, expires_at = :expires_at
             WHERE resource_key = :resource_key AND generation = :generation AND token_hash = :token_hash",
        )?
        .execute(named_params! {
            ":resource_key": key,
            ":generation": sql_integer(evidence.generation),
            ":token_hash": evidence.token_hash.0,
            ":now": now,
            ":expires_at": expires_at,
        })?;
    expect_one(written, "leases", evidence.resource.key())?;
    Ok(expires_at)
}

/// Takes the lease for `owner`: refuses a live owner unless it is known to be dead, and makes generation and token anew.
fn claim(
    change: &Change<'_>,
    key: ResourceKey,
    owner: &Owner,
    length_ms: i64,
) -> Result<Claim, StateError> {
    let (sql, resource) = (&change.kernel_sql(), change.resource());
    let (now, monotonic) = (change.now(), change.monotonic());
    if length_ms <= 0 {
        return Err(StateError::Input {
            what: "lease length",
            problem: format!("{length_ms} ms; it must be positive"),
        });
    }
    let row = fetch(sql, key)?;
    if let Some(held) = row.as_ref().and_then(|row| row.owner.as_ref())
        && now < held.expires_at
        && !change.is_dead(&held.id)
    {
        return Err(StateError::LeaseHeld {
            resource: resource.clone(),
            expires_at: held.expires_at,
        });
    }
    let generation = row.map_or(0, |row| row.generation) + 1;
    let mut token = Zeroizing::new([0_u8; 32]);
    getrandom::fill(token.as_mut_slice()).map_err(|error| StateError::Io {
        action: "asking the operating system for random bytes".into(),
        source: std::io::Error::other(error.to_string()),
    })?;
    let expires_at = now.plus(length_ms);
    let written = sql
        .prepare_cached(
            "INSERT INTO leases (resource_key, generation, owner_type, owner_id, token_hash,
                 acquired_at, heartbeat_at, expires_at)
             VALUES (:resource_key, :generation, :owner_type, :owner_id, :token_hash, :now, :now, :expires_at)
             ON CONFLICT (resource_key) DO UPDATE SET
                 generation = excluded.generation, owner_type = excluded.owner_type,
                 owner_id = excluded.owner_id, token_hash = excluded.token_hash,
                 acquired_at = excluded.acquired_at, heartbeat_at = excluded.heartbeat_at,
                 expires_at = excluded.expires_at
             WHERE leases.generation = excluded.generation - 1",
        )?
        .execute(named_params! {
            ":resource_key": key,
            ":generation": sql_integer(generation),
            ":owner_type": owner.kind.as_str(),
            ":owner_id": owner.id,
            ":token_hash": hash_token(&token).0,
            ":now": now,
            ":expires_at": expires_at,
        })?;
    expect_one(written, "leases", resource.key())?;
    Ok(Claim {
        resource: resource.clone(),
        key,
        owner: owner.clone(),
        token,
        generation,
        timer: Arc::new(LeaseTimer::new(expires_at, monotonic, length_ms)),
    })
}

/// Clears the owner and keeps the generation, whoever the owner is. The caller has checked the right.
pub(crate) fn clear(sql: &Sql<'_>, key: ResourceKey) -> Result<bool, StateError> {
    let written = sql
        .prepare_cached(
            "UPDATE leases SET owner_type = NULL, owner_id = NULL, token_hash = NULL,
                 acquired_at = NULL, heartbeat_at = NULL, expires_at = NULL
             WHERE resource_key = :resource_key AND owner_id IS NOT NULL",
        )?
        .execute(named_params! { ":resource_key": key })?;
    Ok(written == 1)
}

impl Change<'_> {
    /// Takes the lease of this command's resource for `owner`. The event is the operation's own. The claim is good once the
    /// command has committed; its time counts from now, not from when the caller began to wait.
    ///
    /// # Errors
    ///
    /// [`StateError::LeaseHeld`] while another claim is live, also one of the same owner. The claims of an owner that said that it
    /// lives ([`Database::announce_owner`](crate::Database::announce_owner)) end with it.
    pub fn claim(&mut self, owner: &Owner, length_ms: i64) -> Result<Claim, StateError> {
        let key = self.resource_key()?;
        let claim = claim(self, key, owner, length_ms)?;
        self.use_generation(claim.generation);
        self.require_acceptance();
        Ok(claim)
    }

    /// Clears the lease of this command's resource, whoever holds it, and keeps the generation. Returns whether there was an
    /// owner. An operation that may do this without holding the lease says so in its own rules.
    ///
    /// # Errors
    ///
    /// Those of the database.
    pub fn release(&mut self) -> Result<bool, StateError> {
        let key = self.resource_key()?;
        self.forget_evidence();
        let cleared = clear(&self.kernel_sql(), key)?;
        if cleared {
            self.require_acceptance();
        }
        Ok(cleared)
    }

    /// Moves the expiry of the claim that the command holds to its whole length from now.
    pub(crate) fn renew(&mut self) -> Result<(), StateError> {
        self.renew_evidence()
    }

    /// The lease of this command's resource. One whose owner is known to be dead counts as ended now.
    ///
    /// # Errors
    ///
    /// Those of the database.
    pub fn lease(&mut self) -> Result<LeaseView, StateError> {
        match self.existing_key() {
            Some(key) => {
                let mut lease = view(&self.kernel_sql(), key)?;
                let now = self.now();
                if let Some((_, owner)) = &lease.owner
                    && lease.is_live(now)
                    && self.is_dead(owner)
                {
                    lease.expires_at = Some(now);
                }
                Ok(lease)
            }
            None => Ok(LeaseView {
                generation: 0,
                owner: None,
                expires_at: None,
            }),
        }
    }
}

fn hash_token(token: &[u8; 32]) -> TokenHash {
    TokenHash(Digest::of(token))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;

    fn evidence() -> (LeaseRow, Evidence) {
        let owner = Owner::new(OwnerKind::Host, "host");
        let timer = Arc::new(LeaseTimer::new(UnixMillis(100), MonotonicMillis(0), 100));
        let row = LeaseRow {
            generation: 3,
            owner: Some(LeaseOwner {
                kind: "host".into(),
                id: owner.id.clone(),
                token_hash: Digest::of(b"token"),
                expires_at: UnixMillis(100),
            }),
        };
        let evidence = Evidence {
            resource: Resource::new("run", "run-1"),
            owner,
            token_hash: TokenHash(Digest::of(b"token")),
            generation: 3,
            timer,
        };
        (row, evidence)
    }

    #[test]
    fn each_difference_has_its_reason() {
        let now = UnixMillis(99);
        let (row, evidence) = evidence();
        assert_eq!(judge(&row, &evidence, now), Ok(()));
        assert_eq!(
            judge(&row, &evidence, UnixMillis(100)),
            Err(ClaimLostReason::Expired)
        );
        let older = Evidence {
            generation: 2,
            ..evidence.clone()
        };
        assert_eq!(
            judge(&row, &older, now),
            Err(ClaimLostReason::GenerationChanged)
        );
        let other = Evidence {
            owner: Owner::new(OwnerKind::Host, "host"),
            ..evidence.clone()
        };
        assert_eq!(judge(&row, &other, now), Err(ClaimLostReason::OwnerChanged));
        let taken_over = Evidence {
            generation: 2,
            ..other
        };
        assert_eq!(
            judge(&row, &taken_over, now),
            Err(ClaimLostReason::OwnerChanged)
        );
        let forged = Evidence {
            token_hash: TokenHash(Digest::of(b"other")),
            ..evidence.clone()
        };
        assert_eq!(
            judge(&row, &forged, now),
            Err(ClaimLostReason::TokenChanged)
        );
        let free = LeaseRow {
            generation: 3,
            owner: None,
        };
        assert_eq!(
            judge(&free, &evidence, now),
            Err(ClaimLostReason::MissingAuthority)
        );
        assert_eq!(
            judge(&free, &older, now),
            Err(ClaimLostReason::GenerationChanged)
        );
    }

    #[test]
    fn a_claim_knows_that_its_time_is_up_by_either_clock() {
        let clock = ManualClock::at(0);
        let (_, evidence) = evidence();
        let claim = Claim {
            key: ResourceKey::NOWHERE,
            resource: evidence.resource,
            owner: evidence.owner,
            token: Zeroizing::new([7; 32]),
            generation: 3,
            timer: evidence.timer,
        };
        assert_eq!(claim.remaining_ms(&clock), 100);
        clock.advance(99);
        assert!(!claim.is_expired(&clock));
        clock.advance(1);
        assert!(claim.is_expired(&clock));
        // The wall clock goes back an hour: the monotonic clock still says that the time is up.
        clock.set_wall(-3_600_000);
        assert!(claim.is_expired(&clock));
    }

    #[test]
    fn debug_output_shows_neither_token_nor_hash() {
        let (_, evidence) = evidence();
        let shown = format!("{evidence:?}");
        assert!(!shown.contains(&Digest::of(b"token").to_hex()), "{shown}");
    }
}
