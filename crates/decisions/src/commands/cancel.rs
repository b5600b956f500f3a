//! T5 and T6: somebody with control ends a decision, or its run ends.

use holdpoint_state::{Actor, Change, Command, Database, Outcome, Receipt};

use super::answer::or_not_found;
use super::blind;
use super::resolve::{Bid, RunSide, resolve};
use crate::effects;
use crate::error::DecisionError;
use crate::model::{Candidate, DecisionId, Judged, check_reason};
use crate::operations;
use crate::store::decisions;

/// A wish to end a decision without an answer.
#[derive(Debug, Clone)]
pub struct Cancel {
    decision: DecisionId,
    actor: Actor,
    reason: Option<String>,
    leaves_the_run: bool,
}

impl Cancel {
    /// By explicit control from outside.
    pub fn of(decision: &DecisionId) -> Self {
        Self {
            decision: decision.clone(),
            actor: Actor::control("program"),
            reason: None,
            leaves_the_run: false,
        }
    }

    /// Says who asks. Only control may.
    #[must_use]
    pub fn by(mut self, actor: Actor) -> Self {
        self.actor = actor;
        self
    }

    /// Gives a reason in words for people, at most [`REASON_UNITS_MAX`](crate::model::REASON_UNITS_MAX) long. Everybody who sees the
    /// decision sees it.
    #[must_use]
    pub fn because(mut self, reason: impl Into<String>) -> Self {
        self.reason = Some(reason.into());
        self
    }

    /// Leaves the run to whoever works on the store, which is what a process that dies here leaves. By default its cancellation is applied
    /// at once.
    #[must_use]
    pub fn leaving_the_run(mut self) -> Self {
        self.leaves_the_run = true;
        self
    }
}

/// Ends an open decision without an answer. Its run is cancelled by the effect `decision.cancel_parent`, which is reserved in the same
/// transaction and applied right after it; if that is not possible now, whoever works on the store applies it. Repeating it adopts the
/// first.
///
/// # Errors
///
/// [`DecisionError::Invalid`] for a reason that is blank, too long or holds a control character;
/// [`holdpoint_state::StateError::ActorDenied`] unless control asks; [`DecisionError::Corrupt`] and [`DecisionError::Incompatible`].
pub fn cancel(db: &Database, cancel: &Cancel) -> Result<Receipt<Judged>, DecisionError> {
    if let Some(reason) = &cancel.reason {
        check_reason(reason)?;
    }
    let cancel = cancel.clone();
    let leaves_the_run = cancel.leaves_the_run;
    let command =
        Command::new(&operations::CANCEL, cancel.decision.resource()).by(cancel.actor.clone());
    let judged = db.commit(command, move |change| {
        let Some(stored) = decisions::load(change)? else {
            return Ok(Outcome::Refused(Judged::NotFound));
        };
        let bid = Bid {
            candidate: Candidate::Cancel,
            from: None,
            key: &format!("cancel-{}", cancel.decision),
            answer: None,
            seen: stored.request.request_digest(),
            reason: cancel.reason.as_deref(),
            run: RunSide::Nested,
        };
        resolve(change, &stored, &bid)
    });
    let judged = or_not_found(judged)?;
    // A repeat as well: the first may have died before this.
    if judged.value.has_won() && !leaves_the_run {
        follow(db);
    }
    Ok(judged)
}

/// Lets the runs of ended decisions follow. The decision is ended durably, so that nothing that goes wrong here is an error of its
/// command: the effect is still due, and its worker says what keeps it.
fn follow(db: &Database) {
    if let Err(error) = effects::cancel_parents(db) {
        tracing::warn!(%error, "the run of a cancelled decision is left to whoever works on the store");
    }
}

/// Ends the open decisions of the run of this change, which is ending: in the same transaction, by the one function that resolves. The
/// run itself settles request, attempt and messages. Returns how many there were.
///
/// A decision that is damaged or was stored by another version keeps no run from ending: it is ended by its row, and its documents stay as
/// they are, so that every read and `verify` still tell the damage. The reason of its cancellation says so too.
///
/// # Errors
///
/// Those of the database, and the run does not end.
pub fn cancel_in(change: &mut Change<'_>) -> Result<usize, DecisionError> {
    let open = decisions::open_of_run(change)?;
    for decision in &open {
        let command = Command::new(&operations::CANCEL_WITH_RUN, decision.resource())
            .by(change.actor().clone());
        change.also(&command, |change| {
            let stored = match decisions::load(change) {
                Ok(Some(stored)) => stored,
                Ok(None) => return Ok(Outcome::Refused(Judged::NotFound)),
                Err(
                    damage @ (DecisionError::Corrupt { .. } | DecisionError::Incompatible { .. }),
                ) => return blind::end(change, decision, &damage),
                Err(error) => return Err(error),
            };
            let bid = Bid {
                candidate: Candidate::Cancel,
                from: None,
                key: &format!("cancel-{decision}"),
                answer: None,
                seen: stored.request.request_digest(),
                reason: Some("the run ended"),
                run: RunSide::Ending,
            };
            resolve(change, &stored, &bid)
        })?;
    }
    Ok(open.len())
}
