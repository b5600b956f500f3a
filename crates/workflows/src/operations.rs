//! Every transition of the domain, as data. Printed by `docs/operations.md`, and each has its test.
//!
//! States are those of `runs.status`. Where the reference writes several events between which no crash can fall here, one event
//! stands for them, and its payload says what else it did:
//!
//! | event | stands for |
//! |---|---|
//! | `run_initialized` | `run.queue_running`, `run_initialized`, `run_started` |
//! | `node_started` | `node_started`, `node_timeout_set` when the budget is known at the start |
//! | `checkpoint_requested` | `checkpoint_requested`, `run.queue_parked` |
//! | `run_completed`, `run_failed`, `run_timed_out`, `run_cancelled` | itself and `run.queue_done`, `run.queue_failed`, `run.queue_cancelled` |
//!
//! The queue row and the lease are settled in the transaction of the fact that settles them, so that the domain needs no
//! `run.park_queue` and `run.settle_queue` effects to bridge a gap.
//!
//! Not here: what a transition does to rows (`store`), and what else must hold (`commands`).

use holdpoint_state::{ActorKind, LeaseRule, Operation};

use ActorKind::{Channel, Control, Controller, Host, Human, Policy, Session, System};
use LeaseRule::{NotRequired, Required, RequiredUnrenewed};

/// Whoever may ask for a run.
const STARTERS: &[ActorKind] = &[Session, Host, Controller, Channel, Human, Control, System];
/// Whoever may steer a run from outside.
const STEERERS: &[ActorKind] = &[Session, Human, Channel, Control, System];
/// The runner, under its claim.
const RUNNERS: &[ActorKind] = &[Host, System];
/// The states of a run that is not over.
const OPEN: &[&str] = &["queued", "running", "waiting"];

macro_rules! operations {
    ($(@$resource:literal $($(#[$meta:meta])* $constant:ident = $name:literal, $event:literal, $actors:expr, $lease:expr, $from:expr => $to:expr, $summary:literal;)*)*) => {
        $($($(#[$meta])* #[doc = $summary] pub(crate) const $constant: Operation = Operation {
            name: $name,
            event: $event,
            resource: $resource,
            summary: $summary,
            actors: $actors,
            lease: $lease,
            from: $from,
            to: $to,
        };)*)*
        /// All of them.
        pub(crate) const ALL: &[&Operation] = &[$($(&$constant,)*)*];
    };
}

operations! {
    @"run"
    START = "run.start", "run.queued", STARTERS, NotRequired, &["none"] => &["queued"],
        "Reserves a run: everything that it needs is durable before anybody hears of it.";
    RESTART = "run.restart", "run.queued", STEERERS, NotRequired, &["none"] => &["queued"],
        "Makes the one restart child of a finished run, with its definition, input and options.";
    CLAIM = "run.claim", "lease.claimed", RUNNERS, NotRequired, &[] => &[],
        "Takes the run's lease for a runner; the generation grows by one and a stored queue error is cleared.";
    INITIALIZE = "run.initialize", "run_initialized", RUNNERS, RequiredUnrenewed, &["queued"] => &["running"],
        "Begins the execution of a run that was never executed.";
    PREPARE_RESUME = "run.prepare_resume", "run_resume_prepared", RUNNERS, RequiredUnrenewed, &["running"] => &["running"],
        "Takes up a run whose runner is gone: an attempt that went on is ended, accepted steps stay.";
    ACCEPT_INTERACTION = "run.accept_interaction", "interaction_accepted", RUNNERS, RequiredUnrenewed, &["waiting"] => &["running"],
        "Takes up the attempt that waited for an answer which was accepted.";
    START_ATTEMPT = "run.start_attempt", "node_started", RUNNERS, Required, &["running"] => &["running"],
        "Begins an attempt at the node that the accepted route leads to.";
    SET_TIMEOUT = "run.set_timeout", "node_timeout_set", RUNNERS, Required, &["running"] => &["running"],
        "Sets the time budget of the present attempt, once.";
    FINISH_ATTEMPT = "run.finish_attempt", "node_finished", RUNNERS, Required, &["running"] => &["running"],
        "Ends the present attempt with its output and appends it to the history.";
    FAIL_ATTEMPT = "run.fail_attempt", "node_failed", RUNNERS, Required, &["running"] => &["running"],
        "Ends the present attempt without an output and appends it to the history.";
    ENTER_INCLUDE = "run.enter_include", "include_entered", RUNNERS, Required, &["running"] => &["running"],
        "An included workflow is entered: recorded with the step that made its input.";
    EXIT_INCLUDE = "run.exit_include", "include_exited", RUNNERS, Required, &["running"] => &["running"],
        "An included workflow is left by one of its exits: recorded with the step that made its output.";
    WAIT = "run.wait", "checkpoint_requested", RUNNERS, RequiredUnrenewed, &["running"] => &["waiting"],
        "Parks the run at a checkpoint: request, attempt, run, queue and lease in one transaction.";
    HAND_OVER = "run.hand_over", "run.queue_parked", RUNNERS, RequiredUnrenewed, OPEN => OPEN,
        "A runner that stops gives the run back at a durable boundary; whoever comes next goes on.";
    PARK_AMBIGUOUS = "run.park_ambiguous", "run.effect_ambiguous", RUNNERS, RequiredUnrenewed, &["queued", "running", "waiting"] => &["waiting"],
        "Parks the run because the outcome of one of its effects can't be known; a person must look.";
    PARK_SOURCE_CHANGED = "run.park_source_changed", "run.source_changed", RUNNERS, NotRequired, OPEN => OPEN,
        "Parks the run because its source is no longer the one that it was started with.";
    PARK_SETTINGS_BROKEN = "run.park_settings_broken", "run.settings_broken", RUNNERS, NotRequired, OPEN => OPEN,
        "Parks the run because the history of its live settings does not add up, so that no node may read them.";
    PARK_NO_PROGRESS = "run.park_no_progress", "run.worker_no_progress", RUNNERS, RequiredUnrenewed, OPEN => OPEN,
        "Parks the run because its runner ended without advancing it.";
    WORKER_READY = "run.worker_ready", "run.worker_ready", RUNNERS, RequiredUnrenewed, &[] => &[],
        "Notes the process of a worker that has its run and is about to propose. It changes nothing of the run: its event is never written.";
    WORKER_GONE = "run.worker_gone", "run.worker_gone", RUNNERS, NotRequired, &[] => &[],
        "Notes how a worker process ended that has no say in its run any more. It changes nothing of the run: its event is never written.";
    COMPLETE = "run.complete", "run_completed", RUNNERS, RequiredUnrenewed, &["running"] => &["completed"],
        "Ends the run with the output of its last step.";
    FAIL = "run.fail", "run_failed", RUNNERS, RequiredUnrenewed, OPEN => &["failed"],
        "Ends the run with an error.";
    TIME_OUT = "run.time_out", "run_timed_out", RUNNERS, RequiredUnrenewed, &["running"] => &["timed_out"],
        "Ends the run because its last attempt spent its time budget and no route catches that.";
    CANCEL = "run.cancel", "run_cancelled", &[Session, Host, Human, Channel, Control, System, Controller], NotRequired, OPEN => &["cancelled"],
        "Ends the run because somebody asked for it; wins over every proposal that has not committed.";
    PAUSE_ACTIVE = "run.pause_active", "run_paused", STEERERS, NotRequired, OPEN => OPEN,
        "Pauses a run that a runner executes: it is parked and its claim released in one transaction.";
    PAUSE_PARKED = "run.pause", "run.paused", STEERERS, NotRequired, OPEN => OPEN,
        "Pauses a parked run that waits for an answer.";
    RESUME_REQUEST = "run.resume", "run.resumed", STEERERS, NotRequired, &["running", "waiting"] => &["running", "waiting"],
        "Lets a paused run wait for its answer again.";
    RESUME = "run.request_resume", "run.resume_requested", STEERERS, NotRequired, OPEN => OPEN,
        "Makes a paused or parked run eligible again; blocks of the scheduler are cleared.";
    RETRY_SETTINGS_ROUTE = "run.retry_settings_route", "settings_route_retried", RUNNERS, Required, &["running"] => &["running"],
        "Lets a settings route decide again, in the same attempt, because the settings changed after it read them.";
    ANSWER = "run.answer", "interaction_submitted", &[Session, Human, Channel, Control, Policy], NotRequired, &["running", "waiting"] => &["running", "waiting"],
        "Accepts the answer of a checkpoint; the run becomes eligible, nothing is launched by it.";
    SETTLE = "run.settle_request", "interaction_submitted", &[Session, Host, Controller, Channel, Human, Policy, Control, System], NotRequired, &["running", "waiting"] => &["running", "waiting"],
        "Accepts the answer that the domain of a node's kind gives to the attempt that it parked, inside that domain's own command.";
    WITHDRAW = "run.withdraw_request", "interaction_withdrawn", &[Host, Controller, Channel, Human, Policy, Control, System], NotRequired, &["running", "waiting"] => &["running", "waiting"],
        "Takes back the request of an attempt that the domain of a node's kind parked: there will be no answer.";
    PUBLISH = "run.publish_update", "update_published", RUNNERS, RequiredUnrenewed, &["running"] => &["running"],
        "Keeps an update of the attempt that the runner executes.";
    PUBLISH_FROM_SESSION = "run.update_interaction", "update_published", &[Session, Human, Control], NotRequired, &["waiting"] => &["waiting"],
        "Keeps an update of the attempt that waits for its origin session; the attempt stays open.";
    SUBMIT = "run.submit", "interaction_candidate", &[Session, Human, Channel, Control], NotRequired, &["waiting"] => &["waiting"],
        "Stores a candidate for the output of an agent; a runner looks at it.";
    VALIDATE = "run.validate", "interaction_validation_started", RUNNERS, RequiredUnrenewed, &["waiting"] => &["waiting"],
        "A runner looks at a candidate under a claim of its own; the run goes on waiting.";
    REJECT_CANDIDATE = "run.reject_candidate", "interaction_rejected", RUNNERS, RequiredUnrenewed, &["waiting"] => &["waiting"],
        "Refuses a candidate; the request stays as it is, for another one.";
    ACCEPT_TEXT = "run.accept_text", "interaction_submitted", &[Session, Control], NotRequired, &["waiting"] => &["waiting"],
        "Accepts the visible text of a model as the output of its agent; the run becomes eligible.";
    EXPIRE = "run.expire_request", "run.interaction_timeout_started", RUNNERS, RequiredUnrenewed, &["waiting"] => &["running"],
        "Takes up the attempt of an agent whose model spent the time of the request.";
    REPORT_BRANCH = "run.report_branch", "workflow_branch_reported", &[Session, Control], NotRequired, &[] => &[],
        "Notes which messages are on a session's branch, which turn is lost, and what must be shown again. It changes no revision and writes no event.";
    REPORT_TURN = "run.report_turn", "workflow_turn_reported", &[Session, Control], NotRequired, &[] => &[],
        "Notes that a model turn began or ended, with its clock. It changes no revision and writes no event; a turn that was aborted is a pause, which does.";
    OBSERVE_CLOCK = "run.observe_clock", "active_clock_observed", &[Session, Host, Control, System], NotRequired, &[] => &[],
        "Measures, closes or opens the clock of an agent's turn. It changes no revision and writes no event.";
    TELL_END = "run.tell_end", "workflow_end_told", RUNNERS, NotRequired, &[] => &[],
        "Makes the message that tells the origin session how the run ended. It changes no revision and writes no event.";
    CLEAR_END = "run.clear_end", "workflow_end_cleared", &[Session, Human, Control], NotRequired, &[] => &[],
        "Takes the end of a run off the view of its session. It changes no revision and writes no event.";
    ACCEPT_DEFINITION = "run.accept_definition", "run.definition_accepted", &[Human, Control], NotRequired, OPEN => OPEN,
        "Pins a parked run to a changed definition, because a person looked at the difference.";
    @"settings"
    CREATE_SETTINGS = "settings.create", "settings.created", RUNNERS, NotRequired, &[] => &[],
        "Makes a settings scope, in the transaction in which its run begins or enters the include.";
    CHANGE_SETTINGS = "settings.change", "settings.changed", ActorKind::ALL, NotRequired, &[] => &[],
        "Changes live settings by a patch; who may change what is a matter of the workflow's path rules.";
    @"follow_up"
    QUEUE_FOLLOW_UP = "follow-up.queue", "follow-up.queued", &[Session, Controller, Human, Channel, Control], NotRequired, &["none"] => &["queued"],
        "Queues a prompt for the origin session of a run that goes on.";
    REMOVE_FOLLOW_UP = "follow-up.remove", "follow-up.removed", &[Session, Controller, Human, Channel, Control], NotRequired, &["queued"] => &["removed"],
        "Takes a prompt back before its session shows it.";
    CANCEL_FOLLOW_UP = "follow-up.cancel", "follow-up.cancelled", &[Session, Host, Controller, Channel, Human, Policy, Control, System], NotRequired, &["queued"] => &["cancelled"],
        "Gives a prompt up because its run is over without having completed; inside the command that ends the run.";
    @"session"
    BIND_SESSION = "session.bind", "session_bound", RUNNERS, NotRequired, &["none"] => &["recording"],
        "Begins to record a session that works for a run.";
    APPEND_ENTRIES = "session.append_entries", "session_entries_recorded", RUNNERS, NotRequired, &["recording"] => &["recording"],
        "Keeps settled entries of a session.";
    APPEND_EVENTS = "session.append_events", "session_events_recorded", RUNNERS, NotRequired, &["recording"] => &["recording"],
        "Keeps live events of a session.";
    LINK_ENTRY = "session.link_entry", "session_entry_linked", RUNNERS, NotRequired, &["recording", "complete", "failed"] => &["recording", "complete", "failed"],
        "Says which entry is the prompt, the response, the first or the last of an attempt.";
    COMPLETE_SESSION = "session.complete", "session_completed", RUNNERS, NotRequired, &["recording"] => &["complete"],
        "Ends a recording that has everything.";
    FAIL_SESSION = "session.fail", "session_failed", RUNNERS, NotRequired, &["recording"] => &["failed"],
        "Ends a recording that lacks something; its run does not notice.";
    @"workflow_host"
    CREATE_HOST = "workflow_host.create", "workflow_host.created", &[Host], NotRequired, &[] => &[],
        "Makes the resource whose lease the servers of a store hold, one after the other; a repeat adopts it.";
    START_HOST = "workflow_host.start", "workflow_host.started", &[Host], NotRequired, &[] => &[],
        "A server becomes the one of its store; the generation of its lease is its epoch.";
    STOP_HOST = "workflow_host.stop", "workflow_host.stopped", &[Host], RequiredUnrenewed, &[] => &[],
        "A server gives its place back.";
}
