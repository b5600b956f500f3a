//! `docs/operations.md`: every transition, effect type and invariant, by domain.

use std::fmt::Write as _;

use holdpoint_state::Domain;
use holdpoint_state::command::{LeaseRule, Operation};
use holdpoint_state::schema::Reach;

use super::{GENERATED, cell, code};

/// The whole page.
pub(super) fn page(domains: &[Domain]) -> String {
    let mut text = String::from(GENERATED);
    text.push_str(
        "\n# Operations\n\n\
         Every write is a command that names one of these operations. *Who may* lists the kinds of actors. *Lease* says \
         whether the command must hold the resource's lease. *From* and *to* are states of the resource; an operation \
         without them makes or changes a resource that has no states.\n",
    );
    for domain in domains {
        domain_part(&mut text, domain);
    }
    text
}

fn domain_part(text: &mut String, domain: &Domain) {
    let _ = writeln!(text, "\n## {}", domain.name);
    if !domain.resource_types.is_empty() {
        let types: Vec<String> = domain
            .resource_types
            .iter()
            .map(|name| code(name))
            .collect();
        let _ = writeln!(text, "\nResource types: {}.", types.join(", "));
    }
    if domain.operations.is_empty() {
        text.push_str("\nNo operations.\n");
    } else {
        text.push_str(
            "\n| operation | event | resource | who may | lease | from → to | what it does |\n",
        );
        text.push_str("|---|---|---|---|---|---|---|\n");
    }
    for operation in domain.operations {
        operation_row(text, operation);
    }
    if !domain.effect_types.is_empty() {
        text.push_str("\n| effect type | reach | what it does |\n|---|---|---|\n");
    }
    for effect in domain.effect_types {
        let reach = match effect.reach {
            Reach::Local => "local: settled in the transaction that does the work",
            Reach::External => "external: at most once without proof",
        };
        let _ = writeln!(
            text,
            "| {} | {reach} | {} |",
            code(effect.name),
            cell(effect.summary)
        );
    }
    if !domain.invariants.is_empty() {
        text.push_str("\n| invariant | what holds for all rows at every commit |\n|---|---|\n");
    }
    for invariant in domain.invariants {
        let _ = writeln!(
            text,
            "| {} | {} |",
            code(invariant.name),
            cell(invariant.summary)
        );
    }
}

fn operation_row(text: &mut String, operation: &Operation) {
    let actors: Vec<&str> = operation.actors.iter().map(|kind| kind.as_str()).collect();
    let lease = match operation.lease {
        LeaseRule::NotRequired => "not required",
        LeaseRule::Required => "required, renewed",
        LeaseRule::RequiredUnrenewed => "required, keeps its expiry",
    };
    let states = |names: &[&str]| {
        names
            .iter()
            .map(|name| code(name))
            .collect::<Vec<_>>()
            .join(", ")
    };
    let transition = match (operation.from, operation.to) {
        ([], []) => String::new(),
        ([], to) => format!("→ {}", states(to)),
        (from, to) => format!("{} → {}", states(from), states(to)),
    };
    let resource = if operation.resource == Operation::ANY_RESOURCE {
        "any".to_owned()
    } else {
        code(operation.resource)
    };
    let _ = writeln!(
        text,
        "| {} | {} | {resource} | {} | {lease} | {transition} | {} |",
        code(operation.name),
        code(operation.event),
        actors.join(", "),
        cell(operation.summary),
    );
}

#[cfg(test)]
mod tests {
    use holdpoint_state::command::ActorKind;
    use holdpoint_state::schema::{EffectType, Invariant};

    use super::*;

    #[test]
    fn a_domain_is_printed_whole() {
        const START: Operation = Operation {
            name: "job.start",
            event: "job.started",
            resource: "job",
            summary: "A host takes the job | once.",
            actors: &[ActorKind::Host, ActorKind::System],
            lease: LeaseRule::Required,
            from: &["open", "paused"],
            to: &["running"],
        };
        const NOTE: Operation = Operation {
            name: "any.note",
            event: "noted",
            resource: Operation::ANY_RESOURCE,
            summary: "Leaves a note.",
            actors: &[ActorKind::Human],
            lease: LeaseRule::NotRequired,
            from: &[],
            to: &[],
        };
        let domain = Domain {
            resource_types: &["job"],
            operations: &[&START, &NOTE],
            effect_types: &[EffectType {
                name: "job.mail",
                summary: "Sends mail.",
                reach: Reach::External,
            }],
            invariants: &[Invariant {
                name: "J1",
                summary: "A job has a host.",
                violations: "SELECT 1 WHERE 0",
            }],
            ..Domain::named("jobs")
        };
        let mut text = String::new();
        domain_part(&mut text, &domain);
        insta::assert_snapshot!(text, @r"
        ## jobs

        Resource types: `job`.

        | operation | event | resource | who may | lease | from → to | what it does |
        |---|---|---|---|---|---|---|
        | `job.start` | `job.started` | `job` | host, system | required, renewed | `open`, `paused` → `running` | A host takes the job \| once. |
        | `any.note` | `noted` | any | human | not required |  | Leaves a note. |

        | effect type | reach | what it does |
        |---|---|---|
        | `job.mail` | external: at most once without proof | Sends mail. |

        | invariant | what holds for all rows at every commit |
        |---|---|
        | `J1` | A job has a host. |
        ");
    }
}
