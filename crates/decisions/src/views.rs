//! What readers see. Every view reads a snapshot, makes the digests of a stored request again, and never writes.
//!
//! What is in these types may be shown to models, runs and viewers, but for [`submissions`], which is for the private operator. Not
//! here: the order in which a request is shown (`document`).
#![warn(clippy::wildcard_enum_match_arm)]

mod channels;
mod next;
mod private;
pub(crate) mod stored;

use holdpoint_state::Snapshot;
use holdpoint_state::clock::UnixMillis;
use holdpoint_state::sql::{OptionalExtension as _, named_params};
use holdpoint_workflows::RunId;
use serde::Serialize;

pub use channels::{OpenAfter, OpenPage, ResolvedDecision, open_for_channel, resolved};
pub use next::Next;
pub use private::{SubmissionView, submissions};

use crate::error::DecisionError;
use crate::model::{ChannelRequest, DecisionId, DecisionReceipt, Outcome, Request, Resolution};
use stored::Stored;

/// Where a decision stands, for people. A projection: never stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum DisplayStatus {
    /// It waits for an answer.
    Open,
    /// It is open and past its deadline: what happens by itself has not happened yet.
    Overdue,
    /// It is answered, and its run waits for a runner.
    AcceptedWaiting,
    /// It is answered, and a runner takes its run up.
    AcceptedResuming,
    /// It is answered.
    Accepted,
    /// It ended without an answer.
    Cancelled,
}

impl DisplayStatus {
    /// Every status.
    pub const ALL: &'static [Self] = &[
        Self::Open,
        Self::Overdue,
        Self::AcceptedWaiting,
        Self::AcceptedResuming,
        Self::Accepted,
        Self::Cancelled,
    ];

    /// The words for people.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Overdue => "overdue",
            Self::AcceptedWaiting => "accepted, waiting for capacity",
            Self::AcceptedResuming => "accepted, resuming",
            Self::Accepted => "accepted",
            Self::Cancelled => "cancelled",
        }
    }
}

impl std::fmt::Display for DisplayStatus {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// One decision as everybody may see it.
#[derive(Debug, Clone, PartialEq)]
pub struct DecisionView {
    /// What a person sees of what is asked.
    pub request: ChannelRequest,
    /// The run that asks.
    pub run_id: RunId,
    /// The session of the run.
    pub session: String,
    /// Where it stands.
    pub status: DisplayStatus,
    /// Whether its run is paused, so that no person may answer.
    pub is_paused: bool,
    /// Whether its run is over.
    pub is_over: bool,
    /// How it ended.
    pub resolution: Option<Resolution>,
    /// Why it ended without an answer, in words for people: text from outside.
    pub reason: Option<String>,
}

/// A decision of a list. One that can't be read is in it as that, and hides no other.
#[derive(Debug)]
pub enum Listed {
    /// It can be read.
    Readable(Box<DecisionView>),
    /// It can't.
    Unreadable(Unreadable),
}

/// A decision that is damaged, or was stored by another version.
#[derive(Debug)]
pub struct Unreadable {
    /// The decision.
    pub decision_id: DecisionId,
    /// The run that asks.
    pub run_id: RunId,
    /// What is wrong with it.
    pub error: DecisionError,
}

impl Listed {
    /// The decision, for whoever needs this one.
    ///
    /// # Errors
    ///
    /// Why it can't be read.
    pub fn readable(self) -> Result<DecisionView, DecisionError> {
        match self {
            Self::Readable(view) => Ok(*view),
            Self::Unreadable(unreadable) => Err(unreadable.error),
        }
    }
}

/// Where a decision stands: a total function of committed facts and an instant. Terminal facts win.
pub(crate) fn display(stored: &Stored, now: UnixMillis) -> DisplayStatus {
    match stored
        .winner
        .as_ref()
        .map(|winner| winner.resolution.outcome())
    {
        Some(Outcome::Cancelled) => DisplayStatus::Cancelled,
        Some(Outcome::Accepted) if stored.is_consumed || stored.is_over => DisplayStatus::Accepted,
        Some(Outcome::Accepted) if stored.is_taken_up => DisplayStatus::AcceptedResuming,
        Some(Outcome::Accepted) => DisplayStatus::AcceptedWaiting,
        None if stored.request.expires_at().is_some_and(|at| at <= now) => DisplayStatus::Overdue,
        None => DisplayStatus::Open,
    }
}

fn view(stored: Stored, now: UnixMillis) -> DecisionView {
    DecisionView {
        status: display(&stored, now),
        request: stored.request.for_channels(),
        run_id: stored.run,
        session: stored.session,
        is_paused: stored.is_paused,
        is_over: stored.is_over,
        reason: stored
            .winner
            .as_ref()
            .and_then(|winner| winner.reason.clone()),
        resolution: stored.winner.map(|winner| winner.resolution),
    }
}

/// One decision.
///
/// # Errors
///
/// [`DecisionError::Corrupt`] and [`DecisionError::Incompatible`] for a request that can't be used; those of the database.
pub fn fetch(
    snapshot: &Snapshot<'_>,
    decision: &DecisionId,
    now: UnixMillis,
) -> Result<Option<DecisionView>, DecisionError> {
    Ok(stored::load(&snapshot.sql(), decision.as_str())?.map(|stored| view(stored, now)))
}

/// The whole request of a decision, with its subject: machine data of the run's owner, to be shown apart from what is decided.
///
/// # Errors
///
/// As [`fetch`].
pub fn request(
    snapshot: &Snapshot<'_>,
    decision: &DecisionId,
) -> Result<Option<Request>, DecisionError> {
    Ok(stored::load(&snapshot.sql(), decision.as_str())?.map(|stored| stored.request))
}

/// What everybody may see of the accepted answer of a decision.
///
/// # Errors
///
/// As [`fetch`].
pub fn receipt(
    snapshot: &Snapshot<'_>,
    decision: &DecisionId,
) -> Result<Option<DecisionReceipt>, DecisionError> {
    let stored = stored::load(&snapshot.sql(), decision.as_str())?;
    Ok(
        match stored
            .and_then(|stored| stored.winner)
            .map(|winner| winner.resolution)
        {
            Some(Resolution::Accepted { receipt }) => Some(*receipt),
            Some(Resolution::Cancelled { .. }) | None => None,
        },
    )
}

/// At most `limit` open decisions, oldest first, with those that can't be read.
///
/// # Errors
///
/// Those of the database.
pub fn open(
    snapshot: &Snapshot<'_>,
    now: UnixMillis,
    limit: u32,
) -> Result<Vec<Listed>, DecisionError> {
    let sql = snapshot.sql();
    let ids: Vec<(DecisionId, RunId)> = {
        let mut statement = sql.prepare_cached(
            "SELECT d.decision_id, r.run_id FROM interactive_requests q JOIN human_decisions d ON d.decision_id = q.request_id
             JOIN runs r ON r.resource_key = d.run_key
             WHERE q.status = 'pending' AND q.kind = 'decision'
             ORDER BY d.created_at, d.decision_id LIMIT :limit",
        )?;
        let rows = statement
            .query_map(named_params! { ":limit": limit }, |row| {
                Ok((row.get(0)?, row.get(1)?))
            })
            .map_err(holdpoint_state::StateError::from)?;
        rows.collect::<Result<_, _>>()
            .map_err(holdpoint_state::StateError::from)?
    };
    loaded(&sql, ids, now)
}

/// The decisions of a run, oldest first, with those that can't be read.
///
/// # Errors
///
/// Those of the database.
pub fn of_run(
    snapshot: &Snapshot<'_>,
    run: &RunId,
    now: UnixMillis,
) -> Result<Vec<Listed>, DecisionError> {
    let sql = snapshot.sql();
    let ids: Vec<(DecisionId, RunId)> = {
        let mut statement = sql.prepare_cached(
            "SELECT d.decision_id, r.run_id FROM human_decisions d JOIN runs r ON r.resource_key = d.run_key
             WHERE r.run_id = :run ORDER BY d.created_at, d.resource_key",
        )?;
        let rows = statement
            .query_map(named_params! { ":run": run }, |row| {
                Ok((row.get(0)?, row.get(1)?))
            })
            .map_err(holdpoint_state::StateError::from)?;
        rows.collect::<Result<_, _>>()
            .map_err(holdpoint_state::StateError::from)?
    };
    loaded(&sql, ids, now)
}

fn loaded(
    sql: &holdpoint_state::command::Sql<'_>,
    ids: Vec<(DecisionId, RunId)>,
    now: UnixMillis,
) -> Result<Vec<Listed>, DecisionError> {
    let mut listed = Vec::with_capacity(ids.len());
    for (decision_id, run_id) in ids {
        match stored::load(sql, decision_id.as_str()) {
            Ok(Some(stored)) => listed.push(Listed::Readable(Box::new(view(stored, now)))),
            Ok(None) => {}
            Err(error) if error.is_of_one_decision() => {
                listed.push(Listed::Unreadable(Unreadable {
                    decision_id,
                    run_id,
                    error,
                }));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(listed)
}

/// The run of a decision.
pub(crate) fn run_of(
    snapshot: &Snapshot<'_>,
    decision: &DecisionId,
) -> Result<Option<RunId>, holdpoint_state::StateError> {
    Ok(snapshot
        .sql()
        .prepare_cached(
            "SELECT r.run_id FROM human_decisions d JOIN runs r ON r.resource_key = d.run_key WHERE d.decision_id = :decision",
        )?
        .query_row(named_params! { ":decision": decision }, |row| row.get(0))
        .optional()?)
}

/// An open decision whose deadline has come.
pub(crate) struct Due {
    pub(crate) deadline_at: UnixMillis,
    pub(crate) decision: DecisionId,
    pub(crate) run: RunId,
    pub(crate) has_default: bool,
}

/// The open decisions whose deadline has come, by deadline and id, after `after`.
pub(crate) fn due(
    snapshot: &Snapshot<'_>,
    now: UnixMillis,
    after: Option<&(UnixMillis, DecisionId)>,
    limit: u32,
) -> Result<Vec<Due>, holdpoint_state::StateError> {
    let sql = snapshot.sql();
    let mut statement = sql.prepare_cached(
        "SELECT t.deadline_at, t.decision_id, r.run_id, d.default_response_hash IS NOT NULL FROM human_decision_deadlines t
         JOIN human_decisions d ON d.resource_key = t.decision_key JOIN runs r ON r.resource_key = d.run_key
         WHERE t.deadline_at <= :now AND (t.deadline_at, t.decision_id) > (:deadline, :decision)
         ORDER BY t.deadline_at, t.decision_id LIMIT :limit",
    )?;
    let rows = statement.query_map(
        named_params! {
            ":now": now, ":limit": limit,
            ":deadline": after.map_or(UnixMillis(i64::MIN), |(deadline, _)| *deadline),
            ":decision": after.map_or("", |(_, decision)| decision.as_str()),
        },
        |row| {
            Ok(Due {
                deadline_at: row.get(0)?,
                decision: row.get(1)?,
                run: row.get(2)?,
                has_default: row.get(3)?,
            })
        },
    )?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// The earliest deadline of an open decision that has not come.
pub(crate) fn next_deadline(
    snapshot: &Snapshot<'_>,
    now: UnixMillis,
) -> Result<Option<UnixMillis>, holdpoint_state::StateError> {
    Ok(snapshot
        .sql()
        .prepare_cached(
            "SELECT min(deadline_at) FROM human_decision_deadlines WHERE deadline_at > :now",
        )?
        .query_row(named_params! { ":now": now }, |row| row.get(0))?)
}
