//! What the owner of a source does with its effects, inside its own changes.
//!
//! Each transition is a nested touch of the effect's own resource, by the actor of the outer command. The effect's lease is not
//! needed and stays free: the source's is the authority. Not here: the outbox worker (`outbox`) and operators (`resolution`).

use super::model::{
    Cancelled, EffectAttempt, EffectStart, EffectState, NewEffect, Observation, OwnerScope,
    Recovered, Reserved, Settlement, resource,
};
use super::steps::{check_attempt, target};
use super::store::{self};
use super::views::{self, EffectView};
use super::{BEGIN, CHANNEL_ATTEMPTS_MAX, RETRY};
use crate::clock::UnixMillis;
use crate::command::Change;
use crate::effects::back_off::BackOff;
use crate::error::{ClaimLostReason, StateError};
use crate::id::EffectId;
use crate::schema::Reach;

impl Change<'_> {
    /// Records the intent of a follow-up of this change (F1): the effect is pending until its owner or an outbox worker begins it.
    ///
    /// The change must be accepted. The same payload under the same identity adopts the earlier effect, whatever became of it.
    ///
    /// # Errors
    ///
    /// [`StateError::Input`] for a name of the wrong length or a type that no domain declares, [`StateError::Conflict`] when
    /// the identity is taken by another payload, for ever. Nothing was written.
    pub fn reserve_effect(&mut self, effect: &NewEffect) -> Result<Reserved, StateError> {
        self.check_new_effect(effect)?;
        let effect_id = effect.id(self.resource());
        if let Some(row) = self.same_effect(effect)? {
            self.check_same(&row, effect)?;
            return Ok(Reserved {
                effect_id,
                adopted: true,
            });
        }
        self.insert_effect(&effect_id, effect, None)?;
        Ok(Reserved {
            effect_id,
            adopted: false,
        })
    }

    /// Begins an effect of this change's resource, or says why not (F2, F3, and F10 for channels; effects reference, section 8).
    ///
    /// The change must hold the lease of its resource. Only [`EffectStart::Execute`] writes; act after the commit, then settle.
    ///
    /// # Errors
    ///
    /// [`StateError::ClaimLost`] without the lease, [`StateError::NotDue`] before the instant that the effect or its last
    /// settlement set; otherwise as [`Change::reserve_effect`]. Nothing was written.
    pub fn begin_effect(&mut self, effect: &NewEffect) -> Result<EffectStart, StateError> {
        self.check_new_effect(effect)?;
        if effect.ordering_key.is_some() {
            return Err(StateError::Input {
                what: "ordering key",
                problem: "only an outbox worker keeps the order; reserve the effect instead".into(),
            });
        }
        let declared = self.schema().effect_type(&effect.effect_type).is_some();
        if declared && matches!(effect.scope, OwnerScope::Run | OwnerScope::Controller) {
            return Err(StateError::Input {
                what: "effect type",
                problem: format!(
                    "{} is applied by the outbox; reserve it instead",
                    effect.effect_type
                ),
            });
        }
        let owner = self.source_owner()?;
        let effect_id = effect.id(self.resource());
        let Some(row) = self.same_effect(effect)? else {
            self.check_due(&effect_id, effect.due_at)?;
            let key = self.insert_effect(&effect_id, effect, Some(&owner))?;
            return Ok(EffectStart::Execute(EffectAttempt {
                effect_id,
                number: 1,
                key,
            }));
        };
        self.check_same(&row, effect)?;
        let due_again = row.next_attempt_at.is_some_and(|at| at <= self.now());
        Ok(match row.state {
            EffectState::Pending => {
                self.check_due(&effect_id, row.next_attempt_at)?;
                let operation = match row.scope {
                    OwnerScope::Run | OwnerScope::Controller => &RETRY,
                    OwnerScope::Channel | OwnerScope::System => &BEGIN,
                };
                EffectStart::Execute(self.begin_attempt(operation, &row, &owner)?)
            }
            EffectState::Rejected if due_again => {
                EffectStart::Execute(self.begin_attempt(&BEGIN, &row, &owner)?)
            }
            EffectState::Applied => {
                let receipt = store::receipt(&self.kernel_sql(), row.key)?;
                EffectStart::Adopted {
                    effect_id,
                    result: receipt.result,
                    external_ref: receipt.external_ref,
                }
            }
            EffectState::Rejected => EffectStart::Rejected {
                effect_id,
                error: store::receipt(&self.kernel_sql(), row.key)?
                    .error
                    .unwrap_or_default(),
            },
            EffectState::Applying | EffectState::Ambiguous => EffectStart::Ambiguous { effect_id },
            EffectState::Cancelled => EffectStart::Cancelled { effect_id },
        })
    }

    /// Settles the attempt that this owner began (F4 to F7).
    ///
    /// # Errors
    ///
    /// [`StateError::ClaimLost`] when the attempt was not begun under the lease that the change holds,
    /// [`StateError::InvalidTransition`] when the effect is not applying any more or may not go back,
    /// [`StateError::Conflict`] when another attempt is current. The stored receipt is unchanged.
    pub fn settle_effect(
        &mut self,
        attempt: &EffectAttempt,
        settlement: Settlement,
    ) -> Result<(), StateError> {
        self.settle_effect_not_before(attempt, settlement, None, 0)
    }

    /// As [`Change::settle_effect`], with the instant before which the provider wants no further attempt. It matters for
    /// rejected effects of the channel scope, which are tried again, and for interrupted ones. `uncounted` of the attempts, this one with
    /// them, do not count against the limit of those: what only had to wait was not refused.
    ///
    /// # Errors
    ///
    /// As [`Change::settle_effect`].
    #[expect(
        clippy::needless_pass_by_value,
        reason = "a settlement is used up: an attempt settles once"
    )]
    pub fn settle_effect_not_before(
        &mut self,
        attempt: &EffectAttempt,
        settlement: Settlement,
        not_before: Option<UnixMillis>,
        uncounted: u32,
    ) -> Result<(), StateError> {
        let owner = self.source_owner()?;
        let row = store::fetch(&self.kernel_sql(), attempt.key)?
            .filter(|row| row.effect_id == attempt.effect_id)
            .ok_or_else(|| StateError::NotFound {
                resource: resource(&attempt.effect_id),
            })?;
        self.check_source(&row)?;
        let (operation, to) = target(&settlement);
        check_attempt(&row, attempt.number, operation, to)?;
        let opened_by = store::open_attempt(&self.kernel_sql(), row.key, attempt.number)?;
        let reason = if opened_by.generation != owner.generation {
            Some(ClaimLostReason::GenerationChanged)
        } else if opened_by.owner_id != owner.owner_id {
            Some(ClaimLostReason::OwnerChanged)
        } else {
            None
        };
        if let Some(reason) = reason {
            return Err(StateError::ClaimLost {
                resource: self.resource().clone(),
                reason,
            });
        }
        if to == EffectState::Pending && !self.is_idempotent(row.key)? {
            return Err(StateError::InvalidTransition {
                operation: operation.name,
                from: row.state.as_str().into(),
                to: to.as_str().into(),
            });
        }
        let retry_at = match (to, row.scope) {
            (EffectState::Rejected, OwnerScope::Channel)
                if row.attempts.saturating_sub(uncounted) < CHANNEL_ATTEMPTS_MAX =>
            {
                Some(BackOff::default().next_attempt_at(self.now(), row.attempts, not_before))
            }
            (EffectState::Pending, _) => not_before,
            _ => None,
        };
        self.settle_row(&row, &settlement, retry_at)
    }

    /// Records what the provider says about an effect of this resource that an earlier owner left open, or that is ambiguous
    /// (F4, F6, F7, F11, F12). After [`Observation::NotApplied`] the effect is pending and [`Change::begin_effect`] begins it
    /// anew. Returns the state that the effect then has.
    ///
    /// # Errors
    ///
    /// [`StateError::ClaimLost`] without the lease of the source, [`StateError::NotFound`], [`StateError::Conflict`] for an effect
    /// of another source or one that an outbox worker has in flight.
    pub fn record_observation(
        &mut self,
        effect_id: &EffectId,
        observation: &Observation,
    ) -> Result<EffectState, StateError> {
        let owner = self.source_owner()?;
        let row = self.effect_row(effect_id)?;
        self.check_source(&row)?;
        if store::is_in_outbox(&self.kernel_sql(), row.key)? {
            return Err(StateError::Conflict {
                resource: resource(effect_id),
                winner: "an outbox worker has it in flight".into(),
            });
        }
        self.observe_row(&row, observation, &owner)
    }

    /// Settles what former owners of this change's resource left open (effects reference, section 8, Recovery). Call it under a
    /// new claim before anything else runs, and when a worker has died.
    ///
    /// Effects that an outbox worker has in flight are not touched: the next worker observes them.
    ///
    /// # Errors
    ///
    /// [`StateError::ClaimLost`] without the lease of the source.
    pub fn recover_effects(&mut self) -> Result<Recovered, StateError> {
        self.recover_effects_with(None)
    }

    /// As [`Change::recover_effects`]; `reason` is stored with what becomes ambiguous.
    ///
    /// # Errors
    ///
    /// As [`Change::recover_effects`].
    pub fn recover_effects_with(&mut self, reason: Option<&str>) -> Result<Recovered, StateError> {
        self.source_owner()?;
        let mut recovered = Recovered::default();
        for row in self.unsettled_effects()? {
            match row.state {
                EffectState::Applying if store::is_in_outbox(&self.kernel_sql(), row.key)? => {}
                EffectState::Applying if self.is_idempotent(row.key)? => {
                    self.interrupt(&row, EffectState::Pending, None)?;
                    recovered.returned.push(row.effect_id);
                }
                EffectState::Applying => {
                    self.interrupt(&row, EffectState::Ambiguous, reason)?;
                    recovered.ambiguous.push(row.effect_id);
                }
                EffectState::Ambiguous => recovered.ambiguous.push(row.effect_id),
                EffectState::Pending
                | EffectState::Applied
                | EffectState::Rejected
                | EffectState::Cancelled => {}
            }
        }
        Ok(recovered)
    }

    /// Cancels the effects of this change's resource (F8 and F6): what is pending is given up, what somebody may be doing is
    /// ambiguous, and no rejected effect is tried again. `reason` is stored with each.
    ///
    /// Local effects stay: they are about this database, where the work of a cancellation is still to be done.
    ///
    /// # Errors
    ///
    /// Those of the database.
    pub fn cancel_effects(&mut self, reason: &str) -> Result<Cancelled, StateError> {
        let mut done = Cancelled::default();
        for row in self.unsettled_effects()? {
            let declared = self.schema().effect_type(&row.effect_type);
            if declared.is_some_and(|kind| kind.reach == Reach::Local) {
                continue;
            }
            match row.state {
                EffectState::Pending => {
                    self.cancel_row(&row, reason)?;
                    done.cancelled.push(row.effect_id);
                }
                EffectState::Applying => {
                    self.interrupt(&row, EffectState::Ambiguous, Some(reason))?;
                    done.ambiguous.push(row.effect_id);
                }
                EffectState::Rejected => self.give_up(&row)?,
                EffectState::Applied | EffectState::Ambiguous | EffectState::Cancelled => {}
            }
        }
        Ok(done)
    }

    /// Says that this transaction does the work of a local effect (F9), whatever its source. Returns whether it was still pending.
    ///
    /// # Errors
    ///
    /// [`StateError::NotFound`], and [`StateError::Input`] for an effect that is not local.
    pub fn apply_local_effect(&mut self, effect_id: &EffectId) -> Result<bool, StateError> {
        let row = self.effect_row(effect_id)?;
        self.apply_local_row(&row)
    }

    /// Says that this transaction does the work of every pending local effect of this type that this change's resource has (F9).
    /// Returns how many there were.
    ///
    /// # Errors
    ///
    /// [`StateError::Input`] when the type is not local.
    pub fn apply_local_effects(&mut self, effect_type: &str) -> Result<usize, StateError> {
        let mut applied = 0;
        for row in self.unsettled_effects()? {
            if row.effect_type == effect_type && self.apply_local_row(&row)? {
                applied += 1;
            }
        }
        Ok(applied)
    }

    /// The attempt of an effect of this change's resource that is in flight, by its name: settling it compares it with the rows.
    ///
    /// # Errors
    ///
    /// [`StateError::NotFound`], [`StateError::Conflict`] for an effect of another source.
    pub fn attempt_in_flight(
        &self,
        effect_id: &EffectId,
    ) -> Result<Option<EffectAttempt>, StateError> {
        let row = self.effect_row(effect_id)?;
        self.check_source(&row)?;
        Ok((row.state == EffectState::Applying).then(|| EffectAttempt {
            effect_id: row.effect_id.clone(),
            number: row.attempts,
            key: row.key,
        }))
    }

    /// An effect as readers see it, inside this transaction.
    ///
    /// # Errors
    ///
    /// Those of the database.
    pub fn effect(&self, effect_id: &EffectId) -> Result<Option<EffectView>, StateError> {
        views::fetch(&self.kernel_sql(), effect_id)
    }

    /// The effects of this change's resource, in the order of their creation.
    ///
    /// # Errors
    ///
    /// Those of the database.
    pub fn effects(&self) -> Result<Vec<EffectView>, StateError> {
        views::of_source(&self.kernel_sql(), self.resource())
    }
}
