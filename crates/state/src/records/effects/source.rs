//! What the owner of a source does with its effects, inside its own changes.
//!
//! Each transition is a nested touch of the effect's own resource, by the actor of the outer command. The effect's lease is not
//! needed and stays free: the source's is the authority. Not here: the outbox worker (`outbox`) and operators (`resolution`).

use super::model::{
    Cancelled, EffectAttempt, EffectStart, EffectState, NewEffect, Observation, OwnerScope,
    Recovered, Reserved, Settlement, error_payload, resource,
};
use super::store::{self, AttemptOwner, EffectRow, Settled};
use super::views::{self, EffectView};
use super::{
    APPLY, BEGIN, CANCEL, CHANNEL_ATTEMPTS_MAX, DOUBT, GIVE_UP, RECOVER, REJECT, RESERVE, RETRY,
    RETURN,
};
use crate::clock::UnixMillis;
use crate::command::{Change, Command, Operation, Outcome, Place};
use crate::effects::back_off::BackOff;
use crate::error::{ClaimLostReason, StateError};
use crate::id::EffectId;
use crate::records::blobs::{JSON, Payload};
use crate::records::resources::ResourceKey;
use crate::schema::Reach;

/// The state of an effect that does not exist yet, as operations name it.
const NONE: &str = "none";

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
    /// [`StateError::ClaimLost`] without the lease; otherwise as [`Change::reserve_effect`]. Nothing was written.
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
        self.settle_effect_not_before(attempt, settlement, None)
    }

    /// As [`Change::settle_effect`], with the instant before which the provider wants no further attempt. It matters for
    /// rejected effects of the channel scope, which are tried again, and for interrupted ones.
    ///
    /// # Errors
    ///
    /// As [`Change::settle_effect`].
    pub fn settle_effect_not_before(
        &mut self,
        attempt: &EffectAttempt,
        settlement: Settlement,
        not_before: Option<UnixMillis>,
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
            (EffectState::Rejected, OwnerScope::Channel) if row.attempts < CHANNEL_ATTEMPTS_MAX => {
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
                    self.interrupt(&row, EffectState::Ambiguous, None)?;
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

/// Steps that the rooms of effects share.
impl Change<'_> {
    fn effect_row(&self, effect_id: &EffectId) -> Result<EffectRow, StateError> {
        store::find(&self.kernel_sql(), self.existing_key(), effect_id)?.ok_or_else(|| {
            StateError::NotFound {
                resource: resource(effect_id),
            }
        })
    }

    fn same_effect(&self, effect: &NewEffect) -> Result<Option<EffectRow>, StateError> {
        match self.existing_key() {
            Some(source) => store::find_same(&self.kernel_sql(), source, effect),
            None => Ok(None),
        }
    }

    /// The effect that is this change's own resource.
    pub(super) fn own_effect_row(&mut self) -> Result<EffectRow, StateError> {
        let key = self.resource_key()?;
        store::fetch(&self.kernel_sql(), key)?.ok_or_else(|| StateError::Corrupt {
            what: self.resource().to_string(),
            problem: "it has a resource row and no effect row".into(),
        })
    }

    /// Whether the request declares that trying again is safe.
    pub(super) fn is_idempotent(&self, key: ResourceKey) -> Result<bool, StateError> {
        Ok(
            request_member(&store::payload(&self.kernel_sql(), key)?, "recovery")
                .is_some_and(|policy| policy == "idempotent"),
        )
    }

    /// Touches the effect's own resource: one transition, one revision, one event with `facts`.
    pub(super) fn touch_effect<T>(
        &mut self,
        operation: &'static Operation,
        (effect_id, key): (&EffectId, Option<ResourceKey>),
        (from, to): (&str, &str),
        facts: Option<Payload>,
        body: impl FnOnce(&mut Change<'_>, ResourceKey) -> Result<T, StateError>,
    ) -> Result<T, StateError> {
        let generation = self.lease_generation();
        let mut command = Command::new(operation, resource(effect_id)).by(self.actor().clone());
        command = match key {
            Some(key) => command.at(Place::At(key)),
            None => command.creating().at(Place::Absent),
        };
        if let Some(facts) = facts {
            command = command.recording(facts);
        }
        let receipt = self.also(&command, |change| {
            if let Some(generation) = generation {
                change.use_generation(generation);
            }
            change.transition(from, to)?;
            let key = change.resource_key()?;
            Ok::<_, StateError>(Outcome::Accepted(body(change, key)?))
        })?;
        Ok(receipt.value)
    }

    pub(super) fn settle_row(
        &mut self,
        row: &EffectRow,
        settlement: &Settlement,
        next_attempt_at: Option<UnixMillis>,
    ) -> Result<(), StateError> {
        let (operation, to) = target(settlement);
        self.touch_effect(
            operation,
            (&row.effect_id, Some(row.key)),
            (row.state.as_str(), to.as_str()),
            Some(attempt_facts(row.attempts)?),
            |change, _| write_settlement(change, row, settlement, next_attempt_at),
        )
    }

    pub(super) fn observe_row(
        &mut self,
        row: &EffectRow,
        observation: &Observation,
        owner: &AttemptOwner,
    ) -> Result<EffectState, StateError> {
        use EffectState::{Ambiguous, Applied, Applying, Pending};
        match (row.state, observation) {
            (
                Applying | Ambiguous | Pending,
                Observation::Applied {
                    result,
                    external_ref,
                },
            ) => {
                let operation = if row.state == Ambiguous {
                    &RECOVER
                } else {
                    &APPLY
                };
                let settled = Settled {
                    result: result.as_ref(),
                    external_ref: external_ref.as_deref(),
                    ..Settled::plain(row.state, Applied)
                };
                let number = row.attempts.max(1);
                self.touch_effect(
                    operation,
                    (&row.effect_id, Some(row.key)),
                    (row.state.as_str(), Applied.as_str()),
                    Some(attempt_facts(number)?),
                    |change, _| {
                        let (sql, now) = (change.kernel_sql(), change.now());
                        if row.attempts == 0 {
                            return store::apply_at_once(&sql, row, owner, &settled, now);
                        }
                        store::settle(&sql, row, &settled, "applied", now)
                    },
                )?;
                Ok(Applied)
            }
            (Applying | Ambiguous, Observation::NotApplied) => {
                self.interrupt(row, Pending, None)?;
                Ok(Pending)
            }
            (Applying, Observation::Indeterminate | Observation::Unsupported) => {
                self.settle_row(row, &Settlement::Ambiguous { error: None }, None)?;
                Ok(Ambiguous)
            }
            (state, _) => Ok(state),
        }
    }

    /// Closes an open attempt as interrupted, or takes an ambiguous effect up again, and frees the effect's own lease.
    pub(super) fn interrupt(
        &mut self,
        row: &EffectRow,
        to: EffectState,
        reason: Option<&str>,
    ) -> Result<(), StateError> {
        let operation = if to == EffectState::Pending {
            &RETURN
        } else {
            &DOUBT
        };
        let error = reason.map(error_payload).transpose()?;
        self.touch_effect(
            operation,
            (&row.effect_id, Some(row.key)),
            (row.state.as_str(), to.as_str()),
            Some(attempt_facts(row.attempts)?),
            |change, _| {
                let settled = Settled {
                    error,
                    ..Settled::plain(row.state, to)
                };
                store::settle(
                    &change.kernel_sql(),
                    row,
                    &settled,
                    "interrupted",
                    change.now(),
                )?;
                change.release().map(drop)
            },
        )
    }

    pub(super) fn cancel_row(&mut self, row: &EffectRow, reason: &str) -> Result<(), StateError> {
        let error = Some(error_payload(reason)?);
        self.touch_effect(
            &CANCEL,
            (&row.effect_id, Some(row.key)),
            (row.state.as_str(), EffectState::Cancelled.as_str()),
            Some(attempt_facts(row.attempts)?),
            |change, _| {
                let settled = Settled {
                    error,
                    ..Settled::plain(row.state, EffectState::Cancelled)
                };
                store::settle(&change.kernel_sql(), row, &settled, "", change.now())
            },
        )
    }

    /// Takes the next attempt of a rejected effect away; its error stays.
    pub(super) fn give_up(&mut self, row: &EffectRow) -> Result<(), StateError> {
        let state = EffectState::Rejected.as_str();
        self.touch_effect(
            &GIVE_UP,
            (&row.effect_id, Some(row.key)),
            (row.state.as_str(), state),
            Some(attempt_facts(row.attempts)?),
            |change, key| store::give_up(&change.kernel_sql(), key, &row.effect_id),
        )
    }

    fn begin_attempt(
        &mut self,
        operation: &'static Operation,
        row: &EffectRow,
        owner: &AttemptOwner,
    ) -> Result<EffectAttempt, StateError> {
        let number = row.attempts + 1;
        self.touch_effect(
            operation,
            (&row.effect_id, Some(row.key)),
            (row.state.as_str(), EffectState::Applying.as_str()),
            Some(attempt_facts(number)?),
            |change, key| {
                store::begin(
                    &change.kernel_sql(),
                    key,
                    row.state,
                    number,
                    owner,
                    change.now(),
                )
            },
        )?;
        Ok(EffectAttempt {
            effect_id: row.effect_id.clone(),
            number,
            key: row.key,
        })
    }

    fn insert_effect(
        &mut self,
        effect_id: &EffectId,
        effect: &NewEffect,
        begun_by: Option<&AttemptOwner>,
    ) -> Result<ResourceKey, StateError> {
        let source = (self.resource_key()?, self.next_revision());
        self.require_acceptance();
        let (to, facts) = match begun_by {
            Some(_) => (EffectState::Applying, Some(attempt_facts(1)?)),
            None => (EffectState::Pending, None),
        };
        self.touch_effect(
            &RESERVE,
            (effect_id, None),
            (NONE, to.as_str()),
            facts,
            |change, key| {
                let (sql, now) = (change.kernel_sql(), change.now());
                store::insert(&sql, key, source, effect, now)?;
                if let Some(owner) = begun_by {
                    store::begin(&sql, key, EffectState::Pending, 1, owner, now)?;
                }
                Ok(key)
            },
        )
    }

    fn apply_local_row(&mut self, row: &EffectRow) -> Result<bool, StateError> {
        let declared = self.schema().effect_type(&row.effect_type);
        if declared.is_none_or(|kind| kind.reach != Reach::Local) {
            return Err(StateError::Input {
                what: "effect type",
                problem: format!("{} is not a local effect", row.effect_type),
            });
        }
        if row.state != EffectState::Pending {
            return Ok(false);
        }
        let owner = AttemptOwner {
            owner_id: self
                .actor()
                .id()
                .unwrap_or(self.actor().kind().as_str())
                .to_owned(),
            // Another resource's generation would say nothing about this effect.
            generation: self
                .lease_generation()
                .filter(|_| self.existing_key() == Some(row.source)),
        };
        let settled = Settled::plain(EffectState::Pending, EffectState::Applied);
        self.touch_effect(
            &APPLY,
            (&row.effect_id, Some(row.key)),
            (row.state.as_str(), EffectState::Applied.as_str()),
            Some(attempt_facts(row.attempts + 1)?),
            |change, _| {
                store::apply_at_once(&change.kernel_sql(), row, &owner, &settled, change.now())
            },
        )?;
        Ok(true)
    }

    fn unsettled_effects(&self) -> Result<Vec<EffectRow>, StateError> {
        match self.existing_key() {
            Some(source) => store::unsettled_of_source(&self.kernel_sql(), source),
            None => Ok(Vec::new()),
        }
    }

    /// The owner of this change's resource, whose lease the command showed or took.
    fn source_owner(&mut self) -> Result<AttemptOwner, StateError> {
        let lost = StateError::ClaimLost {
            resource: self.resource().clone(),
            reason: ClaimLostReason::MissingAuthority,
        };
        let Some(generation) = self.lease_generation() else {
            return Err(lost);
        };
        match self.lease()?.owner {
            Some((_, owner_id)) => Ok(AttemptOwner {
                owner_id,
                generation: Some(generation),
            }),
            None => Err(lost),
        }
    }

    fn check_new_effect(&self, effect: &NewEffect) -> Result<(), StateError> {
        effect.validate()?;
        let free = matches!(effect.scope, OwnerScope::Run | OwnerScope::Controller);
        if !free && self.schema().effect_type(&effect.effect_type).is_none() {
            return Err(StateError::Input {
                what: "effect type",
                problem: format!("no composed domain declares {:?}", effect.effect_type),
            });
        }
        Ok(())
    }

    fn check_same(&self, row: &EffectRow, effect: &NewEffect) -> Result<(), StateError> {
        let winner = if row.effect_type != effect.effect_type {
            format!("the effect type {}", row.effect_type)
        } else if row.scope != effect.scope {
            format!("the scope {}", row.scope.as_str())
        } else if !store::has_payload(&self.kernel_sql(), row.key, &effect.payload)? {
            "another payload".to_owned()
        } else {
            return Ok(());
        };
        Err(StateError::Conflict {
            resource: resource(&row.effect_id),
            winner,
        })
    }

    fn check_source(&self, row: &EffectRow) -> Result<(), StateError> {
        if self.existing_key() == Some(row.source) {
            return Ok(());
        }
        Err(StateError::Conflict {
            resource: resource(&row.effect_id),
            winner: "it is an effect of another source".into(),
        })
    }
}

/// Writes a settlement of the open attempt.
pub(super) fn write_settlement(
    change: &Change<'_>,
    row: &EffectRow,
    settlement: &Settlement,
    next_attempt_at: Option<UnixMillis>,
) -> Result<(), StateError> {
    let mut settled = Settled {
        next_attempt_at,
        ..Settled::plain(row.state, target(settlement).1)
    };
    let outcome = match settlement {
        Settlement::Applied {
            result,
            external_ref,
        } => {
            settled.result = result.as_ref();
            settled.external_ref = external_ref.as_deref();
            "applied"
        }
        Settlement::Rejected { error } => {
            settled.error = Some(error_payload(error)?);
            "rejected"
        }
        Settlement::Ambiguous { error } => {
            settled.error = error.as_deref().map(error_payload).transpose()?;
            "ambiguous"
        }
        Settlement::Interrupted => "interrupted",
    };
    store::settle(&change.kernel_sql(), row, &settled, outcome, change.now())
}

/// The operation of a settlement, and the state it leads to.
pub(super) fn target(settlement: &Settlement) -> (&'static Operation, EffectState) {
    match settlement {
        Settlement::Applied { .. } => (&APPLY, EffectState::Applied),
        Settlement::Rejected { .. } => (&REJECT, EffectState::Rejected),
        Settlement::Ambiguous { .. } => (&DOUBT, EffectState::Ambiguous),
        Settlement::Interrupted => (&RETURN, EffectState::Pending),
    }
}

/// Refuses a settlement of what is not applying, or of another attempt.
pub(super) fn check_attempt(
    row: &EffectRow,
    number: u32,
    operation: &Operation,
    to: EffectState,
) -> Result<(), StateError> {
    if row.attempts != number {
        return Err(StateError::Conflict {
            resource: resource(&row.effect_id),
            winner: format!("attempt {} is current, {}", row.attempts, row.state),
        });
    }
    if row.state != EffectState::Applying {
        return Err(StateError::InvalidTransition {
            operation: operation.name,
            from: row.state.as_str().into(),
            to: to.as_str().into(),
        });
    }
    Ok(())
}

/// The facts that an event of an effect holds: never a payload, a result, an error or a reference.
pub(super) fn attempt_facts(number: u32) -> Result<Payload, StateError> {
    Payload::json(&serde_json::json!({ "attempt": number }))
}

/// A member of the request, when the request is a JSON object that has it.
pub(super) fn request_member(
    (media_type, bytes): &(String, Vec<u8>),
    name: &str,
) -> Option<serde_json::Value> {
    if media_type != JSON {
        return None;
    }
    let mut request: serde_json::Map<String, serde_json::Value> =
        serde_json::from_slice(bytes).ok()?;
    request.remove(name)
}
