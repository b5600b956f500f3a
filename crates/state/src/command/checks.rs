//! The checks of a command, in the order that is contract: operation, actor, resource, revision, lease.
//!
//! They only read, so that a command which fails here leaves no trace and needs no savepoint.

use super::change::Transaction;
use super::sql::Sql;
use super::{ActorKind, Command, Expectation, LeaseRule, Operation, Place};
use crate::clock::UnixMillis;
use crate::database::guard::KERNEL;
use crate::error::{ClaimLostReason, StateError};
use crate::records::leases::Evidence;
use crate::records::{leases, resources};

/// What the checks found.
pub(super) struct Permit {
    /// The domain that owns the operation.
    pub(super) domain: usize,
    /// The resource's row; none when the command makes it.
    pub(super) row: Option<resources::ResourceRow>,
}

/// `under_owner`: the command is part of one that holds a lease.
pub(super) fn check(
    transaction: &Transaction<'_>,
    sql: &Sql<'_>,
    command: &Command,
    under_owner: bool,
    now: UnixMillis,
) -> Result<Permit, StateError> {
    let operation = command.operation;
    let domain = transaction
        .guard
        .operation_owner(operation)
        .ok_or_else(|| StateError::Misuse {
            operation: operation.name,
            problem: "no composed domain declares this operation".into(),
        })?;
    if domain == KERNEL && !command.is_kernels {
        return Err(StateError::Misuse {
            operation: operation.name,
            problem: "leases and effects change by their own functions, such as `Change::claim` and `Change::reserve_effect`"
                .into(),
        });
    }
    if !transaction
        .schema
        .may_change(operation, domain, command.resource.kind())
    {
        return Err(StateError::Misuse {
            operation: operation.name,
            problem: match operation.resource {
                Operation::ANY_RESOURCE => {
                    format!(
                        "it changes what its own domain has, not {}",
                        command.resource
                    )
                }
                kind => format!("it changes a {kind}, not {}", command.resource),
            },
        });
    }
    if !operation.actors.contains(&command.actor.kind()) {
        return Err(StateError::ActorDenied {
            operation: operation.name,
            actor: command.actor.kind(),
        });
    }

    let row = match command.place {
        Place::ByName => resources::fetch(sql, &command.resource)?,
        Place::At(key) => resources::fetch_at(sql, &command.resource, key)?,
        Place::Absent => None,
    };
    match (command.expectation, row) {
        (Expectation::Exists | Expectation::Revision(_), None) => {
            return Err(StateError::NotFound {
                resource: command.resource.clone(),
            });
        }
        (Expectation::Revision(expected), Some(found)) => {
            expect_revision(command, expected, found.revision)?;
        }
        (Expectation::Exists, Some(_)) | (Expectation::Creates, _) => {}
    }
    check_lease(sql, command, row, under_owner, now)?;
    Ok(Permit { domain, row })
}

pub(super) fn expect_revision(
    command: &Command,
    expected: u64,
    actual: u64,
) -> Result<(), StateError> {
    if expected == actual {
        Ok(())
    } else {
        Err(StateError::StaleRevision {
            resource: command.resource.clone(),
            expected,
            actual,
        })
    }
}

fn check_lease(
    sql: &Sql<'_>,
    command: &Command,
    row: Option<resources::ResourceRow>,
    under_owner: bool,
    now: UnixMillis,
) -> Result<(), StateError> {
    let lost = |reason| StateError::ClaimLost {
        resource: command.resource.clone(),
        reason,
    };
    match (&command.evidence, command.operation.lease) {
        // A declared automatic rule acts only for the owner of what it changes (state reference, section 7).
        (None, LeaseRule::NotRequired)
            if command.actor.kind() == ActorKind::Policy && !under_owner =>
        {
            Err(lost(ClaimLostReason::MissingAuthority))
        }
        (None, LeaseRule::NotRequired) => Ok(()),
        (None, LeaseRule::Required | LeaseRule::RequiredUnrenewed) => {
            Err(lost(ClaimLostReason::MissingAuthority))
        }
        (Some(evidence), _) => {
            let Some(row) = row.filter(|_| evidence.resource == command.resource) else {
                return Err(lost(ClaimLostReason::MissingAuthority));
            };
            leases::check(sql, row.key, evidence, now)?.map_err(lost)
        }
    }?;
    match &command.authority {
        Some(evidence) => check_authority(sql, evidence, now),
        None => Ok(()),
    }
}

/// The lease of the resource in whose name the command acts.
fn check_authority(sql: &Sql<'_>, evidence: &Evidence, now: UnixMillis) -> Result<(), StateError> {
    let lost = |reason| StateError::ClaimLost {
        resource: evidence.resource.clone(),
        reason,
    };
    let Some(row) = resources::fetch(sql, &evidence.resource)? else {
        return Err(lost(ClaimLostReason::MissingAuthority));
    };
    leases::check(sql, row.key, evidence, now)?.map_err(lost)
}
