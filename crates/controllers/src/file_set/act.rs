//! One act on a directory as an effect of a pass: done once, and found out about by looking when its receipt is lost.
//!
//! Not here: which act comes next (`plan`), how it is done safely (`place`).

use serde_json::{Value, json};

use super::place::{Place, PlaceError};
use super::plan::{Seen, Step};
use crate::{Acted, EffectCall, ExternalEffect, Observed, PassError};

/// One act on the directory, as an effect.
pub(super) struct FileAct<'a> {
    pub(super) key: String,
    pub(super) place: Place,
    pub(super) step: &'a Step,
    /// The content that is written; without it nothing is.
    pub(super) bytes: Option<&'a [u8]>,
}

impl ExternalEffect for FileAct<'_> {
    fn kind(&self) -> &str {
        match self.step {
            Step::Claim => "file-set.claim",
            Step::Write { .. } => "file-set.write",
            Step::Remove { .. } => "file-set.remove",
            Step::Release => "file-set.release",
        }
    }

    fn key(&self) -> String {
        self.key.clone()
    }

    fn request(&self) -> Value {
        json!({ "directory": self.place.directory, "act": self.step })
    }

    fn observe(&self, _call: &EffectCall<'_>) -> Result<Observed, PassError> {
        let is_done = match self.step {
            Step::Claim => match self.place.is_claimed() {
                Err(PlaceError::Taken { .. } | PlaceError::Way { .. }) => false,
                other => other?,
            },
            Step::Release => match self.place.is_claimed() {
                Err(PlaceError::Taken { .. } | PlaceError::Way { .. }) => true,
                other => !other?,
            },
            Step::Write { path, sha256, .. } => self.look(path)? == Seen::File(sha256.clone()),
            Step::Remove { path, .. } => self.look(path)? == Seen::Absent,
        };
        // An attempt that is over changes nothing any more: the process that made it held the claim, and is gone.
        Ok(if is_done {
            Observed::applied()
        } else {
            Observed::NotApplied
        })
    }

    fn apply(&self, call: &EffectCall<'_>) -> Result<Acted, PassError> {
        if call.cancellation.is_cancelled() {
            return Ok(Acted::rejected("the pass was over before it began"));
        }
        let done = match (self.step, self.bytes) {
            (Step::Claim, _) => self.place.claim(),
            (Step::Release, _) => self.place.release(),
            (Step::Write { path, before, .. }, Some(bytes)) => {
                self.place.write(path, bytes, before.as_deref())
            }
            (Step::Write { .. }, None) => {
                return Ok(Acted::rejected("the file is no longer wanted"));
            }
            (Step::Remove { path, sha256 }, _) => self.place.remove(path, sha256),
        };
        match done {
            Ok(()) => Ok(Acted::applied()),
            // What the system says may be about what comes after the act, such as making it durable.
            Err(error @ PlaceError::Io { .. }) => Err(error.into()),
            Err(error) => Ok(Acted::rejected(error.to_string())),
        }
    }
}

impl FileAct<'_> {
    fn look(&self, path: &str) -> Result<Seen, PassError> {
        match self.place.look(path) {
            // The directory is not the resource's any more: what is in it is none of its files.
            Err(PlaceError::Taken { .. }) => Ok(Seen::Other),
            other => Ok(other?),
        }
    }
}
