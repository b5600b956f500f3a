//! What this process knows of origin sessions: who speaks for each, and since when their clocks run.
//!
//! Both are gone with the process, on purpose: after a restart every session attaches anew, and a clock that nobody measures is
//! closed at its last observation. Not here: rows (`store`), and when a clock runs (`commands::intervals`).

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use holdpoint_state::clock::MonotonicMillis;

use crate::id::RunId;

/// The sessions of a process.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    coordinators: BTreeMap<String, Coordinator>,
    /// By the key of the attempt.
    anchors: BTreeMap<i64, Anchor>,
    sampled: Option<MonotonicMillis>,
}

#[derive(Debug, Default)]
struct Coordinator {
    epoch: u64,
    attached: bool,
}

/// Where an open interval is measured from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Anchor {
    pub(crate) run: RunId,
    pub(crate) session: String,
    pub(crate) attempt: i64,
    pub(crate) number: i64,
    pub(crate) since: MonotonicMillis,
}

impl Anchor {
    /// How long it is by now.
    pub(crate) fn elapsed_ms(&self, now: MonotonicMillis) -> f64 {
        // Exact up to 2^53 ms, which is 285 thousand years.
        #[expect(clippy::cast_precision_loss, reason = "exact for every real duration")]
        let elapsed = now.since(self.since) as f64;
        elapsed
    }
}

impl Sessions {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection speaks for the session from now on; the one before it is fenced.
    pub(crate) fn attach(&self, session: &str) -> u64 {
        let mut state = self.lock();
        let coordinator = state.coordinators.entry(session.to_owned()).or_default();
        coordinator.epoch += 1;
        coordinator.attached = true;
        coordinator.epoch
    }

    /// The connection of this epoch is gone. Returns false when another one speaks already.
    pub(crate) fn detach(&self, session: &str, epoch: u64) -> bool {
        let mut state = self.lock();
        match state.coordinators.get_mut(session) {
            Some(coordinator) if coordinator.epoch == epoch && coordinator.attached => {
                coordinator.attached = false;
                true
            }
            _ => false,
        }
    }

    /// Whether the connection of this epoch speaks for the session.
    pub(crate) fn is_current(&self, session: &str, epoch: u64) -> bool {
        self.lock()
            .coordinators
            .get(session)
            .is_some_and(|coordinator| coordinator.epoch == epoch && coordinator.attached)
    }

    /// Whether anybody here speaks for the session.
    pub(crate) fn is_attached(&self, session: &str) -> bool {
        self.lock()
            .coordinators
            .get(session)
            .is_some_and(|coordinator| coordinator.attached)
    }

    /// The sessions that somebody here speaks for.
    pub(crate) fn attached(&self) -> Vec<String> {
        let state = self.lock();
        let attached = state
            .coordinators
            .iter()
            .filter(|(_, coordinator)| coordinator.attached);
        attached.map(|(session, _)| session.clone()).collect()
    }

    /// Where the open interval of an attempt is measured from, when that is this process.
    pub(crate) fn anchor(&self, attempt: i64) -> Option<Anchor> {
        self.lock().anchors.get(&attempt).cloned()
    }

    /// Keeps an anchor. Only once its interval is committed: a transaction that is rolled back leaves none.
    pub(crate) fn keep(&self, anchor: Anchor) {
        self.lock().anchors.insert(anchor.attempt, anchor);
    }

    /// Drops an anchor. Only once the end of its interval is committed: until then it still measures.
    pub(crate) fn drop_anchor(&self, attempt: i64, number: i64) {
        let mut state = self.lock();
        if state
            .anchors
            .get(&attempt)
            .is_some_and(|anchor| anchor.number == number)
        {
            state.anchors.remove(&attempt);
        }
    }

    /// All anchors, or those of one session.
    pub(crate) fn anchors(&self, session: Option<&str>) -> Vec<Anchor> {
        let state = self.lock();
        let wanted = state
            .anchors
            .values()
            .filter(|anchor| session.is_none_or(|session| anchor.session == session));
        wanted.cloned().collect()
    }

    /// Whether clocks were last looked at so long ago; the next look then begins now.
    pub(crate) fn is_time_to_look(&self, now: MonotonicMillis, interval_ms: u64) -> bool {
        let mut state = self.lock();
        if state
            .sampled
            .is_some_and(|sampled| now.since(sampled) < interval_ms)
        {
            return false;
        }
        state.sampled = Some(now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newer_connection_fences_the_older_one() {
        let sessions = Sessions::default();
        let first = sessions.attach("s");
        assert!(sessions.is_current("s", first));
        let second = sessions.attach("s");
        assert!(first < second);
        assert!(!sessions.is_current("s", first));
        // The older one can't end the newer one either.
        assert!(!sessions.detach("s", first));
        assert!(sessions.is_current("s", second));
        assert!(sessions.detach("s", second));
        assert!(!sessions.is_current("s", second));
        assert_eq!(sessions.attached(), Vec::<String>::new());
        assert!(second < sessions.attach("s"));
    }

    #[test]
    fn an_anchor_of_another_interval_is_not_dropped() {
        let sessions = Sessions::default();
        let anchor = Anchor {
            run: RunId::new("run-1").unwrap(),
            session: "s".to_owned(),
            attempt: 1,
            number: 2,
            since: MonotonicMillis(5),
        };
        sessions.keep(anchor.clone());
        sessions.drop_anchor(1, 1);
        assert_eq!(sessions.anchor(1), Some(anchor));
        sessions.drop_anchor(1, 2);
        assert_eq!(sessions.anchor(1), None);
    }
}
