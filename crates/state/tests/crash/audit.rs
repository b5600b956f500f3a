//! What must be true of a store whose writers were killed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use holdpoint_state::effects::{self, EffectView};
use holdpoint_state::testing::counter;
use holdpoint_state::{Database, EffectState, Event, NewEffect, OwnerScope, Payload};
use serde_json::Value;

use super::child::{COUNTERS, OWNED, TOTAL};

/// The lines of the log that are whole. The last one may have been cut off by the kill.
pub(crate) fn read_log(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let whole = text.rfind('\n').map_or(0, |end| end + 1);
    text[..whole].lines().map(str::to_owned).collect()
}

/// One counter's history: the payload of each revision, from 1.
struct History {
    events: Vec<(Event, Value)>,
    value: i64,
}

impl History {
    fn read(db: &Database, name: &str) -> Self {
        let snapshot = db.snapshot().unwrap();
        let resource = counter::resource(name);
        let mut events: Vec<Event> = Vec::new();
        loop {
            let after = events.last().map_or(0, |event| event.revision);
            let more = snapshot.events_of(&resource, after, 1_000).unwrap();
            if more.is_empty() {
                break;
            }
            events.extend(more);
        }
        let revision = snapshot.resource(&resource).unwrap().unwrap().revision;
        assert_eq!(u64::try_from(events.len()).unwrap(), revision, "{name}");
        for (event, expected) in events.iter().zip(1..) {
            assert_eq!(event.revision, expected, "{name}: a gap");
        }
        assert!(events.windows(2).all(|pair| pair[0].seq < pair[1].seq));
        let value = counter::value(&snapshot, name).unwrap().unwrap();
        let parse = |event: Event| {
            let payload = event.payload.as_deref().unwrap_or(b"null");
            let payload = serde_json::from_slice(payload).unwrap();
            (event, payload)
        };
        Self {
            events: events.into_iter().map(parse).collect(),
            value,
        }
    }

    fn sum_to(&self, revision: u64) -> i64 {
        self.events
            .iter()
            .take(usize::try_from(revision).unwrap())
            .filter_map(|(_, payload)| payload["amount"].as_i64())
            .sum()
    }

    fn at(&self, revision: u64) -> &(Event, Value) {
        &self.events[usize::try_from(revision).unwrap() - 1]
    }

    fn tokens(&self, flag: &str) -> BTreeSet<&str> {
        self.events
            .iter()
            .filter(|(_, payload)| payload[flag] == Value::Bool(true))
            .filter_map(|(_, payload)| payload["token"].as_str())
            .collect()
    }
}

/// Checks the store against everything that was acknowledged. Returns how many additions are in it.
pub(crate) fn audit(db: &Database, log: &[String]) -> usize {
    let histories: BTreeMap<&str, History> = COUNTERS
        .into_iter()
        .chain([TOTAL, OWNED])
        .map(|name| (name, History::read(db, name)))
        .collect();

    // Domain row and events agree: nothing is half there.
    for (name, history) in &histories {
        assert_eq!(history.value, history.sum_to(u64::MAX >> 1), "{name}");
    }
    // A command on two resources is on both or on none.
    let with_total: BTreeSet<&str> = COUNTERS
        .iter()
        .flat_map(|name| histories[name].tokens("total"))
        .collect();
    let in_total: BTreeSet<&str> = histories[TOTAL]
        .events
        .iter()
        .filter_map(|(_, payload)| payload["token"].as_str())
        .collect();
    assert_eq!(with_total, in_total);

    audit_effects(db, &histories);
    for line in log {
        acknowledged(db, &histories, line);
    }
    histories.values().map(|history| history.events.len()).sum()
}

/// Every follow-up is there with its source, and nothing was done that may have been done already.
fn audit_effects(db: &Database, histories: &BTreeMap<&str, History>) {
    let snapshot = db.snapshot().unwrap();
    for name in COUNTERS {
        let effects = effects::of_source(&snapshot, &counter::resource(name)).unwrap();
        assert_eq!(
            effects.len(),
            histories[name].tokens("announce").len(),
            "{name}"
        );
        for effect in effects {
            assert_eq!(effect.state, EffectState::Pending);
        }
    }
    for effect in effects::of_source(&snapshot, &counter::resource(OWNED)).unwrap() {
        assert!(effect.attempts <= 1, "{effect:?}");
        assert!(
            matches!(
                effect.state,
                EffectState::Applying | EffectState::Applied | EffectState::Ambiguous
            ),
            "{effect:?}"
        );
    }
}

fn act(db: &Database, token: &str) -> EffectView {
    let effect = NewEffect::new(
        "child.act",
        token,
        OwnerScope::Run,
        Payload::text("").unwrap(),
    );
    let id = effect.id(&counter::resource(OWNED));
    let found = effects::fetch(&db.snapshot().unwrap(), &id).unwrap();
    found.unwrap_or_else(|| panic!("the effect of {token} is lost"))
}

/// One line of the log is true.
fn acknowledged(db: &Database, histories: &BTreeMap<&str, History>, line: &str) {
    let words: Vec<&str> = line.split(' ').collect();
    let number = |index: usize| words[index].parse::<u64>().unwrap();
    match words[0] {
        "add" => {
            let history = &histories[words[2]];
            let revision = number(4);
            let (_, payload) = history.at(revision);
            assert_eq!(payload["token"], words[1], "{line}");
            assert_eq!(payload["amount"].to_string(), words[3], "{line}");
            assert_eq!(history.sum_to(revision).to_string(), words[5], "{line}");
        }
        "claim" | "release" => {
            let event = format!(
                "lease.{}d",
                if words[0] == "claim" {
                    "claime"
                } else {
                    "release"
                }
            );
            let generation = Some(number(1));
            let found = histories[OWNED].events.iter().any(|(found, _)| {
                found.event_type == event && found.lease_generation == generation
            });
            assert!(found, "{line}");
        }
        "act" => {
            act(db, words[1]);
        }
        "applied" => assert_eq!(act(db, words[1]).state, EffectState::Applied, "{line}"),
        "end" => {}
        other => panic!("{other}"),
    }
}
