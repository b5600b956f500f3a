//! Rows of channels: a request that is shown, and one whose answer came from there.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use holdpoint_channels::ChannelId;
use holdpoint_channels::commands::{self, Session};
use holdpoint_channels::config::{Config, Setup};
use holdpoint_channels::identity::{answer_id, part_id, signal_id};
use holdpoint_channels::model::Relayed;
use holdpoint_channels::protocol::{
    AnswerReport, FromAdapter, MessageRef, Order, PresentReport, Report, Response, SendState,
};
use holdpoint_state::{Database, Owner, OwnerKind};

use super::LEASE_MS;

const EPOCH: &str = "epoch-1";

/// After the rows of decisions, one of which is open and addressed to `operator`.
pub(super) fn fill(db: &Database, directory: &Path) {
    let config = config(&directory.join("channels"));
    let channel = ChannelId::telegram("ops").unwrap();
    let owner = Owner::new(OwnerKind::Host, "host");
    let claim = commands::start_host(db, &channel, &owner, LEASE_MS).unwrap();
    let mut session = Session {
        db,
        claim: &claim,
        channel: &channel,
        profile: config.profile("ops").unwrap(),
        adapter_epoch: EPOCH,
        sequence: 0,
    };
    let id = signal_id(EPOCH, "ready", 1, 1);
    let mut revision = say(
        &mut session,
        0,
        &id,
        Report::Ready {
            cursor: 1,
            error_code: None,
            bot_id: None,
            retry_after: None,
        },
    );
    let next = commands::next(&session, &config).unwrap();
    let Order::Present {
        attempt_id,
        request,
        ..
    } = next.order
    else {
        // Nothing is filled then, and the guard that asks for rows says so.
        return;
    };
    revision = revision.max(next.revision);
    let (decision_id, request_digest) = (
        request.decision_id.to_string(),
        request.request_digest.to_string(),
    );
    let message = MessageRef {
        chat_id: "200".to_owned(),
        message_id: 1,
        recipient_index: 0,
        part_index: 0,
        content_digest: request_digest.clone(),
    };
    let part = Report::Part {
        decision_id: decision_id.clone(),
        request_digest: request_digest.clone(),
        attempt_id: attempt_id.clone(),
        message: message.clone(),
    };
    revision = say(&mut session, revision, &part_id(&attempt_id, 0, 0), part);
    let report = PresentReport {
        decision_id: decision_id.clone(),
        request_digest: request_digest.clone(),
        attempt_id: attempt_id.clone(),
        state: SendState::Confirmed,
        messages: vec![message],
        error_code: None,
        retry_after: None,
    };
    revision = say(&mut session, revision, &attempt_id, Report::Present(report));
    // An answer that may not be given: it is recorded, and the decision stays open.
    let answer = AnswerReport {
        response: Response {
            choice: "neither".to_owned(),
            input: None,
        },
        actor_id: "100".to_owned(),
        chat_id: "200".to_owned(),
        event_id: "press-1".to_owned(),
        idempotency_key: "telegram:ops:callback:press-1".to_owned(),
        cursor: 2,
        decision_id: decision_id.clone(),
        request_digest,
    };
    say(
        &mut session,
        revision,
        &answer_id("ops", &decision_id, "press-1"),
        Report::Answer(answer),
    );
    commands::stop_host(db, &claim).unwrap();
}

fn say(session: &mut Session<'_>, expected_revision: u64, name: &str, report: Report) -> u64 {
    let message = FromAdapter {
        adapter_epoch: EPOCH.to_owned(),
        profile: "ops".to_owned(),
        sequence: session.sequence + 1,
        expected_revision,
        stable_message_id: name.to_owned(),
        report,
    };
    let (relayed, revision) = commands::relay(session, &message).unwrap();
    assert!(matches!(relayed, Relayed::Taken { .. }), "{relayed:?}");
    revision
}

fn config(directory: &Path) -> Config {
    std::fs::create_dir_all(directory).unwrap();
    let token_file = directory.join("token");
    std::fs::write(&token_file, "1:token").unwrap();
    std::fs::set_permissions(&token_file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let setup = Setup {
        profile: "ops".to_owned(),
        credential: "ops".to_owned(),
        token_file,
        allowed_user_ids: vec!["100".to_owned()],
        allowed_chat_ids: vec!["200".to_owned()],
        audience: "operator".to_owned(),
        replace: false,
    };
    let place = directory.join("config");
    setup.write(&place).unwrap();
    Config::load(&place).unwrap()
}
