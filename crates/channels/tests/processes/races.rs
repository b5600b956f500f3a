//! An answer from a channel beside everything else that may resolve a decision: two processes at once, many rounds, one resolution, its
//! true provenance, and a loser that is told.

use std::collections::BTreeMap;

use holdpoint_decisions::model::{Draft, Provenance};
use holdpoint_decisions::{DecisionId, views};
use holdpoint_workflows::RunId;
use holdpoint_workflows::definition::Waiting;

use crate::child::{Child, Part};
use crate::support::{draft, timed};
use crate::world::{AFTER_MS, Home, START, World};

/// How many rounds each race has; `HOLDPOINT_RACE_ROUNDS` says otherwise. The reference's 200 take ten seconds each, and more beside others.
const ROUNDS: usize = 50;

fn rounds() -> usize {
    let told = std::env::var("HOLDPOINT_RACE_ROUNDS")
        .ok()
        .and_then(|text| text.parse().ok());
    told.unwrap_or(ROUNDS)
}

/// From so many rounds on each of the two has to have won at least once.
const MANY: usize = 100;

/// How many decisions are open at once: a host reads all of them for each of its orders.
const BATCH: usize = 10;

/// The profile whose button is in every race.
const OPS: &str = "ops";

/// One way in which a round may end.
struct End {
    /// What the two processes are told.
    told: [&'static str; 2],
    /// Who won, and with which choice.
    won: (Provenance, Option<&'static str>),
    /// What the rows of the candidates say, in alphabetical order.
    rows: &'static [&'static str],
}

/// Somebody races against the button `go` of the profile `ops`.
struct Race {
    asks: fn(&Waiting<'_>) -> Draft,
    /// When it is for the host of the button, after the creation.
    pressed_at: i64,
    other: Part,
    other_at: i64,
    does: fn(usize, &RunId, &DecisionId) -> String,
    ends: &'static [End],
}

fn created(world: &World, decision: &DecisionId) -> i64 {
    let snapshot = world.db().snapshot().unwrap();
    let request = views::request(&snapshot, decision).unwrap().unwrap();
    request.created_at().0 - START
}

/// Shows everything that is asked, and settles everything that is over.
fn show(host: &mut Child) {
    assert_eq!(host.does("at 0").as_deref(), Some("set"));
    assert_eq!(host.does("work").as_deref(), Some("done"));
}

impl Race {
    fn run(&self) {
        let home = Home::new();
        let world = World::open(home.path());
        let mut button = Child::start(home.path(), Part::Host(OPS), None);
        let mut other = Child::start(home.path(), self.other, None);
        let has_channel = matches!(self.other, Part::Host(_));
        let mut seen: BTreeMap<(String, String), usize> = BTreeMap::new();
        let mut asked = Vec::new();
        for round in 0..rounds() {
            if asked.is_empty() {
                asked = world.ask(self.asks, BATCH.min(rounds() - round));
                show(&mut button);
                if has_channel {
                    show(&mut other);
                }
            }
            let (run, decision) = &asked.pop().unwrap();
            let begun = created(&world, decision);
            let cursor = 5 + round as u64;
            button.does(&format!("at {}", begun + self.pressed_at));
            other.does(&format!("at {}", begun + self.other_at));
            button.tell(&format!("press {decision} cb-{round} {cursor}"));
            other.tell(&(self.does)(round, run, decision));
            assert_eq!(button.hear(), "ready");
            assert_eq!(other.hear(), "ready");
            // Who hears the word first changes from round to round.
            if round % 2 == 0 {
                button.tell("go");
                other.tell("go");
            } else {
                other.tell("go");
                button.tell("go");
            }
            let pair = (button.hear(), other.hear());
            let end = self
                .ends
                .iter()
                .find(|end| end.told == [pair.0.as_str(), pair.1.as_str()])
                .unwrap_or_else(|| panic!("round {round}: {pair:?}"));
            let (provenance, choice) = world.winner(decision).unwrap();
            assert_eq!(
                (provenance, choice.as_deref()),
                end.won,
                "round {round}: {pair:?}"
            );
            let snapshot = world.db().snapshot().unwrap();
            let mut rows: Vec<String> = views::submissions(&snapshot, decision)
                .unwrap()
                .iter()
                .map(|row| format!("{} {}", row.source.as_str(), row.result.as_str()))
                .collect();
            rows.sort();
            assert_eq!(rows, end.rows, "round {round}: {pair:?}");
            // Won or lost, the press is read: its cursor is in the same transaction.
            assert_eq!(world.cursor(OPS), cursor, "round {round}: {pair:?}");
            *seen.entry(pair).or_default() += 1;
        }
        println!("{seen:?}");
        // In many rounds nobody is always first: otherwise the two would not race.
        if MANY <= rounds() {
            for end in self.ends {
                let [button, other] = end.told.map(str::to_owned);
                assert!(
                    seen.contains_key(&(button, other)),
                    "{:?} never won: {seen:?}",
                    end.told
                );
            }
        }
        // Each is settled once, in each channel that showed it.
        show(&mut button);
        if has_channel {
            show(&mut other);
        }
        let shown = if has_channel { 2 } else { 1 } * rounds();
        assert_eq!(
            world.one(
                "SELECT count(*) FROM channel_messages WHERE purpose = 'settlement' AND status = 'confirmed'"
            ),
            i64::try_from(shown).unwrap()
        );
        world.settle();
        world.verify();
    }
}

#[test]
fn a_button_and_the_terminal() {
    Race {
        asks: draft,
        pressed_at: 0,
        other: Part::Local,
        other_at: 0,
        does: |round, _, decision| format!("answer {decision} key-{round} redo"),
        ends: &[
            End {
                told: ["received", "lost to human"],
                won: (Provenance::Human, Some("go")),
                rows: &["channel won", "human already_resolved"],
            },
            End {
                told: ["already decided", "won human"],
                won: (Provenance::Human, Some("redo")),
                rows: &["channel already_resolved", "human won"],
            },
        ],
    }
    .run();
}

/// Both press the same, which makes no difference: only one is the answer.
#[test]
fn buttons_of_two_channels() {
    Race {
        asks: draft,
        pressed_at: 0,
        other: Part::Host("dev"),
        other_at: 0,
        does: |round, _, decision| format!("press {decision} cb-{round} {}", 5 + round),
        ends: &[
            End {
                told: ["received", "already decided"],
                won: (Provenance::Human, Some("go")),
                rows: &["channel already_resolved", "channel won"],
            },
            End {
                told: ["already decided", "received"],
                won: (Provenance::Human, Some("go")),
                rows: &["channel already_resolved", "channel won"],
            },
        ],
    }
    .run();
}

#[test]
fn a_button_and_the_policy() {
    Race {
        asks: timed,
        // Their clocks are on both sides of the deadline.
        pressed_at: AFTER_MS - 1,
        other: Part::Local,
        other_at: AFTER_MS,
        does: |_, _, decision| format!("timeout {decision}"),
        ends: &[
            End {
                told: ["received", "lost to human"],
                won: (Provenance::Human, Some("go")),
                rows: &["channel won", "policy already_resolved"],
            },
            End {
                told: ["already decided", "won timeout_policy"],
                won: (Provenance::TimeoutPolicy, Some("go")),
                rows: &["channel already_resolved", "policy won"],
            },
        ],
    }
    .run();
}

#[test]
fn a_button_and_control() {
    Race {
        asks: draft,
        pressed_at: 0,
        other: Part::Local,
        other_at: 0,
        does: |_, _, decision| format!("cancel {decision}"),
        ends: &[
            End {
                told: ["received", "lost to human"],
                won: (Provenance::Human, Some("go")),
                rows: &["channel won", "control already_resolved"],
            },
            End {
                told: ["already decided", "won explicit_cancel"],
                won: (Provenance::ExplicitCancel, None),
                rows: &["channel already_resolved", "control won"],
            },
        ],
    }
    .run();
}

#[test]
fn a_button_and_the_end_of_the_run() {
    Race {
        asks: draft,
        pressed_at: 0,
        other: Part::Local,
        other_at: 0,
        does: |_, run, _| format!("cancel-run {run}"),
        ends: &[
            End {
                told: ["received", "run cancelled"],
                won: (Provenance::Human, Some("go")),
                rows: &["channel won"],
            },
            End {
                told: ["already decided", "run cancelled"],
                won: (Provenance::ExplicitCancel, None),
                rows: &["channel already_resolved", "control won"],
            },
        ],
    }
    .run();
}
