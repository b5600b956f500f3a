//! Places that are kept for runs which are being started, so that a start and its claim are one transaction.

use std::sync::Arc;

use super::Hub;
use crate::engine::{Early, Runner};

impl Hub {
    /// A place for a run that is about to be started, if one is free and nobody waits for it.
    pub(crate) fn reserve(&self) -> Option<Place<'_>> {
        let mut state = self.lock();
        if state.draining || !state.ready.is_empty() || state.others_wait() || state.free() == 0 {
            return None;
        }
        let runner = Arc::clone(&state.places.as_ref()?.0);
        state.reserved += 1;
        Some(Place {
            hub: self,
            runner,
            is_used: false,
        })
    }
}

/// A place for one run that is being started.
pub(crate) struct Place<'a> {
    hub: &'a Hub,
    runner: Arc<Runner>,
    is_used: bool,
}

impl Place<'_> {
    pub(crate) fn runner(&self) -> &Runner {
        &self.runner
    }

    /// Fills the place.
    pub(crate) fn begin(mut self, early: Early) {
        self.is_used = true;
        let mut state = self.hub.lock();
        state.reserved -= 1;
        state.active.insert(early.run().clone());
        state.early.push_back(Box::new(early));
        self.hub.tell(state);
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if self.is_used {
            return;
        }
        let mut state = self.hub.lock();
        state.reserved -= 1;
        self.hub.tell(state);
    }
}
