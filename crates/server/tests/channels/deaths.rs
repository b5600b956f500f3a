//! A real host is killed at every commit of its life, with a real adapter and a provider that lives on. What the next host finds is a row
//! of the channels reference, section 10, and what it does then is what that row says.

use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Stdio;

use holdpoint_channels::dev_server::{DevServer, Fault};
use holdpoint_state::testing::crash::{Point, VARIABLE};

use crate::store::Store;
use crate::support::{CHAT, Home, USER, until};

/// Where a dead host stood, by what is stored and by what the provider saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Row {
    NothingBegun,
    CommandNotSent,
    ReportLost,
    EndLost,
    ResponseToDeliveryLost,
    AnswerNotCommitted,
    ResponseToAnswerLost,
    SettlementNotSent,
    SettlementReportLost,
    ResponseToSettlementLost,
}

impl Row {
    /// What a person says of the attempt that is in doubt, if one is. Whoever saw the message confirms it.
    fn doubt(self) -> Option<&'static str> {
        match self {
            Self::CommandNotSent
            | Self::EndLost
            | Self::SettlementNotSent
            | Self::SettlementReportLost => Some("retry"),
            Self::ReportLost => Some("confirm"),
            Self::NothingBegun
            | Self::ResponseToDeliveryLost
            | Self::AnswerNotCommitted
            | Self::ResponseToAnswerLost
            | Self::ResponseToSettlementLost => None,
        }
    }
}

/// One store and one provider for all lives.
struct Lives {
    home: Home,
    server: DevServer,
    store: Store,
    /// How many lives are over: as many of everything there is.
    over: i64,
}

impl Lives {
    fn new() -> Self {
        let (home, server) = Home::with_ops();
        home.ask();
        home.work_until_idle();
        let store = Store::open(&home.path("home"));
        Self {
            home,
            server,
            store,
            over: 0,
        }
    }

    /// What there is of this life, when there are so many in all.
    fn mine(&self, sql: &'static str) -> bool {
        match self.store.one(sql) - self.over {
            0 => false,
            1 => true,
            other => panic!("{other} too many: {sql}"),
        }
    }

    fn called(&self, method: &str) -> usize {
        self.server.calls(method)
    }

    fn is_shown(&self) -> bool {
        usize::try_from(self.over).unwrap() < self.server.chat(CHAT).len()
    }

    fn press(&self) {
        let message = self.server.chat(CHAT).last().unwrap().message;
        self.server.press(USER, CHAT, message, "Ship it").unwrap();
    }

    fn is_resolved(&self) -> bool {
        self.mine("SELECT count(*) FROM human_decision_resolutions")
    }

    fn is_delivered(&self) -> bool {
        self.mine(
            "SELECT count(*) FROM effects WHERE effect_type = 'channel.delivery' AND status = 'applied'",
        )
    }

    fn is_settled(&self) -> bool {
        self.mine(
            "SELECT count(*) FROM effects WHERE effect_type = 'channel.settlement' AND status = 'applied'",
        )
    }

    /// A host that dies at this point. Whether it did before the life was over, and whether somebody had pressed then.
    fn die(&self, at: &str) -> (bool, bool) {
        let url = self.server.url();
        let polls = self.called("getUpdates");
        let mut host = self
            .home
            .command(&["channels", "run", "--no-work", "--api-base", &url])
            .env(VARIABLE, at)
            // It renews nothing, so that its transactions are those of the channel.
            .env("HOLDPOINT_LEASE_MS", "600000")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (mut has_died, mut has_pressed) = (false, false);
        until(&format!("the end of a host that dies at {at}"), || {
            if let Some(status) = host.try_wait().unwrap() {
                assert_eq!(status.signal(), Some(9), "{at}: {status}");
                has_died = true;
            } else if polls < self.called("getUpdates") && !has_pressed {
                // Its adapter shows first and reads then: it has heard that its delivery is noted.
                self.press();
                has_pressed = true;
            }
            has_died || self.is_settled()
        });
        if !has_died {
            host.kill().unwrap();
            host.wait().unwrap();
        }
        (has_died, has_pressed)
    }

    /// What an attempt that a person confirmed has none of.
    fn parts(&self) -> i64 {
        self.store.one("SELECT count(*) FROM channel_message_parts")
    }

    fn row(&self, has_pressed: bool, (edits, parts): (usize, i64)) -> Row {
        let shown = self.is_shown();
        let is_edited = edits < self.called("editMessageReplyMarkup");
        let has_part = parts < self.parts();
        let delivery =
            self.mine("SELECT count(*) FROM effects WHERE effect_type = 'channel.delivery'");
        let is_delivered = self.is_delivered();
        let settlement =
            self.mine("SELECT count(*) FROM effects WHERE effect_type = 'channel.settlement'");
        match (delivery, is_delivered, settlement) {
            (false, ..) => Row::NothingBegun,
            (true, false, _) if !shown => Row::CommandNotSent,
            (true, false, _) if !has_part => Row::ReportLost,
            (true, false, _) => Row::EndLost,
            (true, true, false) if self.is_resolved() => Row::ResponseToAnswerLost,
            (true, true, false) if has_pressed => Row::AnswerNotCommitted,
            (true, true, false) => Row::ResponseToDeliveryLost,
            (true, true, true) if self.is_settled() => Row::ResponseToSettlementLost,
            (true, true, true) if is_edited => Row::SettlementReportLost,
            (true, true, true) => Row::SettlementNotSent,
        }
    }

    /// The next host comes, and the life goes on to its end.
    fn go_on(&self, run: &str, row: Row, mut has_pressed: bool, at: &str) {
        let sent = self.called("sendMessage");
        // Whatever the bot was done with is told once more.
        self.server.fail("getUpdates", Fault::Again);
        let url = self.server.url();
        let polls = self.called("getUpdates");
        let host = self
            .home
            .host_with(&["channels", "run", "--no-work", "--api-base", &url]);
        host.wait_to_say("telegram:ops: running", 1);
        let doubts = self.home.status()["ambiguous"].clone();
        let doubts = doubts.as_array().unwrap();
        assert_eq!(
            doubts.len(),
            usize::from(row.doubt().is_some()),
            "{at}, {row:?}"
        );
        if let Some(action) = row.doubt() {
            assert_eq!(
                doubts[0]["errorCode"], "host_restarted_without_receipt",
                "{at}, {row:?}"
            );
            // The new adapter reads, and does not send.
            until("a poll", || polls < self.called("getUpdates"));
            assert_eq!(self.called("sendMessage"), sent, "{at}, {row:?}");
            let attempt = doubts[0]["attemptId"].as_str().unwrap();
            let said = self.home.run(&["channels", "recover", attempt, action]);
            assert_eq!(said.0, 0, "{at}, {row:?}: {said:?}");
            if !self.is_resolved() {
                // Buttons of a message that is not known to be shown answer nothing: the person presses when it is, and at once.
                until("the delivery", || self.is_delivered());
                has_pressed = false;
            }
        }
        until(&format!("{at}, {row:?}: the settlement"), || {
            if self.is_shown() && !has_pressed {
                self.press();
                has_pressed = true;
            }
            self.is_settled()
        });
        host.kill();
        self.home.work_until_idle();
        assert_eq!(self.home.json(&["show", run])["displayStatus"], "completed");
    }

    /// There is one more of each.
    fn end(&mut self, at: &str, row: Row) {
        self.over += 1;
        for sql in [
            "SELECT count(*) FROM human_decision_resolutions",
            "SELECT count(*) FROM human_decision_submissions",
            "SELECT count(*) FROM channel_inbox WHERE external_event_id IS NOT NULL",
            "SELECT count(*) FROM effects WHERE effect_type = 'channel.delivery' AND status = 'applied'",
            "SELECT count(*) FROM effects WHERE effect_type = 'channel.settlement' AND status = 'applied'",
        ] {
            assert_eq!(self.store.one(sql), self.over, "{at}, {row:?}: {sql}");
        }
        let over = usize::try_from(self.over).unwrap();
        assert_eq!(self.called("sendMessage"), over, "{at}, {row:?}");
        assert_eq!(self.server.chat(CHAT).len(), over, "{at}, {row:?}");
    }
}

/// Kills a host at this point of its first commit, then of its second, until one lives on.
fn killed_at(point: Point, expected: &[Row]) {
    let mut lives = Lives::new();
    let mut rows = BTreeSet::new();
    for time in 1.. {
        let at = format!("{}:{time}", point.as_str());
        let run = if time == 1 {
            lives.home.json(&["list"])["runs"][0]["runId"]
                .as_str()
                .unwrap()
                .to_owned()
        } else {
            let run = lives.home.ask();
            lives.home.work_until_idle();
            run
        };
        let before = (lives.called("editMessageReplyMarkup"), lives.parts());
        let (has_died, has_pressed) = lives.die(&at);
        if !has_died {
            break;
        }
        let row = lives.row(has_pressed, before);
        rows.insert(row);
        lives.go_on(&run, row, has_pressed, &at);
        lives.end(&at, row);
    }
    assert_eq!(rows, expected.iter().copied().collect());
    assert_eq!(lives.home.run(&["state", "verify"]).0, 0);
}

#[test]
fn a_host_that_dies_before_a_commit_did_nothing_or_leaves_a_doubt() {
    killed_at(
        Point::BeforeCommit,
        &[
            Row::NothingBegun,
            Row::ReportLost,
            Row::EndLost,
            Row::AnswerNotCommitted,
            Row::ResponseToAnswerLost,
            Row::SettlementReportLost,
        ],
    );
}

#[test]
fn a_host_that_dies_after_a_commit_did_it_or_leaves_a_doubt() {
    killed_at(
        Point::AfterCommit,
        &[
            Row::NothingBegun,
            Row::CommandNotSent,
            Row::EndLost,
            Row::ResponseToDeliveryLost,
            Row::ResponseToAnswerLost,
            Row::SettlementNotSent,
            Row::ResponseToSettlementLost,
        ],
    );
}

/// The configuration changes while a message is under way: its adapter is ended, and nobody knows.
#[test]
fn what_is_under_way_when_the_configuration_is_read_again_is_in_doubt() {
    let (home, server) = Home::with_ops();
    server.fail("sendMessage", Fault::Hold);
    let host = home.host(&server.url());
    let run = home.ask();
    until("the message to be under way", || {
        server.calls("sendMessage") == 1
    });
    let polls = server.calls("getUpdates");
    home.set_up("ops", "token", &server.url());
    until("the doubt", || {
        home.status()["ambiguous"].as_array().unwrap().len() == 1
    });
    server.heal("sendMessage");
    host.wait_to_say("telegram:ops: running", 2);
    until("a poll of the next one", || {
        polls < server.calls("getUpdates")
    });
    assert_eq!(server.calls("sendMessage"), 1);
    assert_eq!(home.run(&["answer", &run, "go"]).0, 0);
    home.wait_for(&run, "completed");
}
