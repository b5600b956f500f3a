//! Every transition of the domain, as data: who may, with which lease. The operations page prints it.
//!
//! One command writes one event, but for a deletion: the pass that ends with it writes what it found first. Where the reference has
//! several events between which no crash can fall, one stands for them:
//!
//! | event | stands for |
//! |---|---|
//! | `lease.claimed` | itself and `reconcile_started`: its payload has the pass's id |
//! | `reconcile_finished` | `resource.status_updated`, `resource.finalizers_updated`, itself and `lease.released` |
//! | `reconcile_conflict`, `reconcile_failed`, `reconcile_handed_back` | itself and `lease.released` |
//!
//! Not here: what a transition does to rows (`store`), and what else must hold (`commands`).
#![warn(clippy::wildcard_enum_match_arm)]

use holdpoint_state::{ActorKind, LeaseRule, Operation};

use ActorKind::{Control, Controller, Host, Human, Session, System};
use LeaseRule::{NotRequired, Required, RequiredUnrenewed};

use crate::model::RESOURCE_TYPE;

/// Who steers resources from outside.
const STEERERS: &[ActorKind] = &[Session, Human, Control, System];
/// Who takes what a controller would have to do out of its hands.
const PEOPLE: &[ActorKind] = &[Human, Control];
/// The owner of a claim.
const OWNERS: &[ActorKind] = &[Controller];

macro_rules! operations {
    ($($constant:ident = $name:literal, $event:literal, $actors:expr, $lease:expr, $summary:literal;)*) => {
        $(#[doc = $summary] pub(crate) const $constant: Operation = Operation {
            name: $name,
            event: $event,
            resource: RESOURCE_TYPE,
            summary: $summary,
            actors: $actors,
            lease: $lease,
            from: &[],
            to: &[],
        };)*
        /// All of them.
        pub(crate) const ALL: &[&Operation] = &[$(&$constant,)*];
    };
}

operations! {
    CREATE = "controller.create", "resource.created", STEERERS, NotRequired,
        "Makes a managed resource with its first spec and status, and queues it (K1).";
    APPLY = "controller.apply", "resource.spec_updated", STEERERS, NotRequired,
        "Changes the spec of a resource, which is then another generation, and queues it (K1); an equal spec is adopted.";
    ENQUEUE = "controller.enqueue", "resource.enqueued", ActorKind::ALL, NotRequired,
        "Asks for a pass, now or later (K2). A hint is no fact: it changes no revision and its event is never written.";
    REQUEST_DELETION = "controller.request_deletion", "resource.deletion_requested", STEERERS, NotRequired,
        "Asks for the deletion of a resource, which its controller ends when nothing holds it (K3); a repeat is adopted.";
    SET_FINALIZERS = "controller.set_finalizers", "resource.finalizers_updated", STEERERS, NotRequired,
        "Changes the finalizers of a resource from outside (K4); one that is being deleted takes no new ones.";
    FORCE_FINALIZER = "controller.force_finalizer", "resource.finalizer_forced", PEOPLE, NotRequired,
        "A person takes a finalizer away whose controller does not; the reason is kept.";
    FORCE_DELETION = "controller.force_deletion", "resource_deleted", PEOPLE, NotRequired,
        "Takes a resource away that is being deleted, held by nothing and in nobody's hands, whose controller does not come; the reason is kept.";
    CLAIM = "controller.claim", "lease.claimed", &[Host, System], NotRequired,
        "Takes the lease of a due resource for one pass (K5).";
    FINISH = "controller.finish", "reconcile_finished", OWNERS, RequiredUnrenewed,
        "Ends a pass with its result: status, finalizers, queue and lease in one transaction (K7).";
    CONFLICT = "controller.conflict", "reconcile_conflict", OWNERS, RequiredUnrenewed,
        "Ends a pass during which somebody else changed the resource: its result is dropped, and the next pass comes at once (K7).";
    FAIL = "controller.fail", "reconcile_failed", OWNERS, RequiredUnrenewed,
        "Ends a pass that failed; the next one comes after a back-off (K8).";
    HAND_BACK = "controller.hand_back", "reconcile_handed_back", OWNERS, RequiredUnrenewed,
        "Gives a claimed resource back because its host stops; it counts as no failure (K8).";
    DELETE = "controller.delete", "resource_deleted", OWNERS, RequiredUnrenewed,
        "Deletes a resource at the end of a pass, when nothing holds it; its history stays (K9).";
    BEGIN_EFFECT = "controller.begin_effect", "effect_started", OWNERS, Required,
        "Begins an attempt of an act on the outside world, before anything is done (K10).";
    RECOVER_EFFECT = "controller.recover_effect", "effect_recovered", OWNERS, Required,
        "Settles an act that an earlier pass left open and that the provider was seen to have done (K10).";
    DOUBT_EFFECT = "controller.doubt_effect", "effect_indeterminate", OWNERS, Required,
        "Says of an act that an earlier pass left open that nobody here can know (K10).";
    SETTLE_EFFECT = "controller.settle_effect", "effect_settled", OWNERS, Required,
        "Settles the attempt of an act with its receipt (K10).";
    REQUEST_CHILD = "controller.request_child", "workflow_requested", OWNERS, Required,
        "Reserves the id of a child's run, before the run is started (K11).";
    LINK_CHILD = "controller.link_child", "workflow_state_changed", OWNERS, Required,
        "Notes the run of a child and where it is (K11).";
    COMPLETE_CHILD = "controller.child_completed", "workflow_state_changed", &[System], NotRequired,
        "Tells a resource that the run of a child ended or waits, and queues it (K12).";
}
