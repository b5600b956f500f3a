//! Steps that the rooms of effects share: each transition as one nested touch of the effect's own resource.
//!
//! Not here: who may make a transition, and when (`source`, `outbox`, `resolution`).

use super::model::{
    EffectAttempt, EffectState, NewEffect, Observation, OwnerScope, Settlement, error_payload,
    resource,
};
use super::store::{self, AttemptOwner, EffectRow, Settled};
use super::{APPLY, CANCEL, DOUBT, GIVE_UP, RECOVER, REJECT, RESERVE, RETURN};
use crate::clock::UnixMillis;
use crate::command::{Change, Command, Operation, Outcome, Place};
use crate::error::{ClaimLostReason, StateError};
use crate::id::EffectId;
use crate::records::blobs::{JSON, Payload};
use crate::records::resources::ResourceKey;
use crate::schema::Reach;

/// The state of an effect that does not exist yet, as operations name it.
const NONE: &str = "none";

/// Steps that the rooms of effects share.
impl Change<'_> {
    pub(super) fn effect_row(&self, effect_id: &EffectId) -> Result<EffectRow, StateError> {
        store::find(&self.kernel_sql(), self.existing_key(), effect_id)?.ok_or_else(|| {
            StateError::NotFound {
                resource: resource(effect_id),
            }
        })
    }

    pub(super) fn same_effect(&self, effect: &NewEffect) -> Result<Option<EffectRow>, StateError> {
        match self.existing_key() {
            Some(source) => store::find_same(&self.kernel_sql(), source, self.resource(), effect),
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
        let generation = self
            .lease_generation()
            .or(self.authority().map(|(_, generation)| generation));
        let mut command =
            Command::of_kernel(operation, resource(effect_id)).by(self.actor().clone());
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

    pub(super) fn begin_attempt(
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

    pub(super) fn insert_effect(
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

    pub(super) fn apply_local_row(&mut self, row: &EffectRow) -> Result<bool, StateError> {
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

    pub(super) fn unsettled_effects(&self) -> Result<Vec<EffectRow>, StateError> {
        match self.existing_key() {
            Some(source) => store::unsettled_of_source(&self.kernel_sql(), source),
            None => Ok(Vec::new()),
        }
    }

    /// The owner of this change's resource, whose lease the command showed or took, or of the resource in whose name it acts.
    pub(super) fn source_owner(&mut self) -> Result<AttemptOwner, StateError> {
        let lost = StateError::ClaimLost {
            resource: self.resource().clone(),
            reason: ClaimLostReason::MissingAuthority,
        };
        let Some(generation) = self.lease_generation() else {
            let (owner_id, generation) = self.authority().ok_or(lost)?;
            return Ok(AttemptOwner {
                owner_id: owner_id.to_owned(),
                generation: Some(generation),
            });
        };
        match self.lease()?.owner {
            Some((_, owner_id)) => Ok(AttemptOwner {
                owner_id,
                generation: Some(generation),
            }),
            None => Err(lost),
        }
    }

    pub(super) fn check_new_effect(&self, effect: &NewEffect) -> Result<(), StateError> {
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

    pub(super) fn check_same(&self, row: &EffectRow, effect: &NewEffect) -> Result<(), StateError> {
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

    /// Nobody begins an attempt within the back-off of the one before, whoever made that (effects reference, section 11).
    pub(super) fn check_due(
        &self,
        effect_id: &EffectId,
        due_at: Option<UnixMillis>,
    ) -> Result<(), StateError> {
        match due_at {
            Some(due_at) if self.now() < due_at => Err(StateError::NotDue {
                resource: resource(effect_id),
                due_at,
            }),
            _ => Ok(()),
        }
    }

    pub(super) fn check_source(&self, row: &EffectRow) -> Result<(), StateError> {
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
