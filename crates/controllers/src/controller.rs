//! What a program writes: a controller for resources of one name, and the action that its pass ends with.
//!
//! Not here: what a pass may do (`pass`), who calls it and when (`runtime`).

use std::fmt;
use std::time::Duration;

use holdpoint_workflows::definition::CancellationSignal;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::external::ExternalEffect;
use crate::host::Host;
use crate::model::{EffectRequest, ManagedResource, Next, StatusPatch};
use crate::pass::Pass;

/// How long a pass may take that says nothing else.
pub const TIME_LIMIT: Duration = Duration::from_mins(1);
/// The largest number of milliseconds that JSON carries exactly.
const AFTER_MS_MAX: u64 = 1 << 53;

/// Makes the world match what resources of one name want.
///
/// A pass is level-based: it reads what is wanted and what is, takes one step, and says whether it wants to look again. It is called
/// whenever something may have changed, after a failure, and once more after a crash at any instruction. Two passes of one resource
/// never run at the same time; what a pass that lost its claim still writes is refused.
///
/// The page of [`Controllers`](crate::Controllers) shows one at work.
pub trait Controller: Send + Sync + 'static {
    /// What is wanted. Callers own it.
    type Spec: Serialize + DeserializeOwned;
    /// What was seen and done. The controller owns it.
    type Status: Serialize + DeserializeOwned;

    /// The name of its resources: small letters, digits and hyphens, with a letter first.
    fn name(&self) -> &str;

    /// The status of a resource that no pass has seen yet.
    fn initial_status(&self, spec: &Self::Spec) -> Self::Status;

    /// One pass.
    ///
    /// # Errors
    ///
    /// Anything: nothing of the pass's status is written, and the next pass follows after a back-off. What it has done under
    /// [`Pass::ensure`] and [`Pass::ensure_workflow`] stays done, and is found by the next pass.
    fn reconcile(&self, pass: &mut Pass<'_, Self::Spec, Self::Status>)
    -> Result<Action, PassError>;

    /// The effect of a request that was stored: what this controller, of whatever generation, has [ensured](Pass::ensure).
    ///
    /// It is asked for when a process died in the middle of an act and the spec was changed before the next pass. Nobody would name that act
    /// again, and it would stand against the deletion of the resource. So it is observed at the beginning of the next pass, and never done
    /// again. A controller whose effects have keys of their generation therefore says how they are made.
    fn effect(&self, request: &EffectRequest) -> Option<Box<dyn ExternalEffect>> {
        let _ = request;
        None
    }

    /// How long a pass may take. Then it is told to stop, counts as failed, and the resource is free for the next one.
    fn time_limit(&self) -> Duration {
        TIME_LIMIT
    }

    /// The JSON Schema of a spec, for editors and for `controllers apply`.
    fn spec_schema(&self) -> Option<Value> {
        None
    }
}

/// What a good pass ends with.
///
/// ```
/// use std::time::Duration;
/// use holdpoint_controllers::Action;
///
/// // All is as wanted; wake me when something changes.
/// let _done = Action::settled();
/// // Something was done; look at once what came of it.
/// let _more = Action::requeue();
/// // Nothing to do now; look again later, or earlier when something changes.
/// let _poll = Action::requeue_after(Duration::from_secs(30));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a pass returns it"]
pub struct Action(Wish);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wish {
    Settled,
    Now,
    After(Duration),
}

impl Action {
    /// There is nothing to do until something changes.
    pub const fn settled() -> Self {
        Self(Wish::Settled)
    }

    /// Another pass at once.
    pub const fn requeue() -> Self {
        Self(Wish::Now)
    }

    /// Another pass after this time, or earlier when something changes. A part of a millisecond counts as a whole one. Zero is a
    /// mistake, which fails the pass: [`Action::requeue`] says "at once".
    pub const fn requeue_after(after: Duration) -> Self {
        Self(Wish::After(after))
    }

    /// Whether nothing is to do until something changes.
    pub const fn is_settled(&self) -> bool {
        matches!(self.0, Wish::Settled)
    }

    /// What the store is told.
    pub(crate) fn next(self) -> Result<Next, PassError> {
        let after = match self.0 {
            Wish::Settled => return Ok(Next::Settled),
            Wish::Now => return Ok(Next::Requeue { after_ms: None }),
            Wish::After(after) => after,
        };
        let after_ms = u64::try_from(after.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
        if after_ms == 0 || AFTER_MS_MAX <= after_ms {
            return Err(PassError::new(format!(
                "a pass can't be followed by another one after {after:?}; give 1 ms to 2^53 ms"
            )));
        }
        Ok(Next::Requeue {
            after_ms: Some(after_ms),
        })
    }
}

/// Why a pass failed. Every error becomes one by `?`.
///
/// Its text is stored as the resource's last error, with the texts of its causes: nothing private may be in it.
pub struct PassError(Box<dyn std::error::Error + Send + Sync>);

impl PassError {
    /// An error that is only a text.
    pub fn new(problem: impl Into<String>) -> Self {
        Self(problem.into().into())
    }

    /// The error that it was made of, if it is of this type.
    pub fn downcast_ref<E: std::error::Error + 'static>(&self) -> Option<&E> {
        self.0.downcast_ref()
    }
}

impl<E: std::error::Error + Send + Sync + 'static> From<E> for PassError {
    fn from(error: E) -> Self {
        Self(Box::new(error))
    }
}

impl fmt::Display for PassError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.0)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            write!(formatter, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

impl fmt::Debug for PassError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, formatter)
    }
}

/// What a good pass proposes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Proposal {
    pub(crate) patch: StatusPatch,
    pub(crate) next: Next,
}

/// A controller without its types: what the runtime calls.
pub(crate) trait AnyController: Send + Sync {
    fn time_limit(&self) -> Duration;
    fn spec_schema(&self) -> Option<Value>;
    fn initial_status(&self, spec: &Value) -> Result<Value, PassError>;
    fn reconcile(
        &self,
        resource: &ManagedResource,
        host: &dyn Host,
        cancellation: CancellationSignal,
    ) -> Result<Proposal, PassError>;
}

/// A controller of a program, as the runtime has it.
pub(crate) struct Typed<C>(pub(crate) C);

impl<C: Controller> AnyController for Typed<C> {
    fn time_limit(&self) -> Duration {
        self.0.time_limit()
    }

    fn spec_schema(&self) -> Option<Value> {
        self.0.spec_schema()
    }

    fn initial_status(&self, spec: &Value) -> Result<Value, PassError> {
        let spec = serde_json::from_value(spec.clone())?;
        Ok(serde_json::to_value(self.0.initial_status(&spec))?)
    }

    fn reconcile(
        &self,
        resource: &ManagedResource,
        host: &dyn Host,
        cancellation: CancellationSignal,
    ) -> Result<Proposal, PassError> {
        let mut pass = Pass::new(resource, host, cancellation)?;
        for request in host.left_over()? {
            if let Some(effect) = self.0.effect(&request) {
                pass.look_at(&*effect)?;
            }
        }
        let action = self.0.reconcile(&mut pass)?;
        Ok(Proposal {
            patch: pass.into_patch()?,
            next: action.next()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_that_no_pass_can_follow_after_are_mistakes() {
        let after = |after: Duration| Action::requeue_after(after).next().ok();
        let cases = [
            (Duration::ZERO, None),
            (Duration::from_nanos(1), Some(1)),
            (Duration::from_millis(1), Some(1)),
            (Duration::from_micros(1_500), Some(2)),
            (
                Duration::from_millis(AFTER_MS_MAX - 1),
                Some(AFTER_MS_MAX - 1),
            ),
            (Duration::from_millis(AFTER_MS_MAX), None),
            (Duration::MAX, None),
        ];
        for (asked, given) in cases {
            let wanted = given.map(|after_ms| Next::Requeue {
                after_ms: Some(after_ms),
            });
            assert_eq!(after(asked), wanted, "{asked:?}");
        }
        assert_eq!(Action::settled().next().ok(), Some(Next::Settled));
        assert_eq!(
            Action::requeue().next().ok(),
            Some(Next::Requeue { after_ms: None })
        );
    }

    #[test]
    fn an_error_tells_its_causes() {
        #[derive(Debug, thiserror::Error)]
        #[error("the file could not be written")]
        struct Outer(#[source] std::io::Error);
        let error = PassError::from(Outer(std::io::Error::other("the disk is full")));
        assert_eq!(
            error.to_string(),
            "the file could not be written: the disk is full"
        );
        assert!(error.downcast_ref::<Outer>().is_some());
        assert_eq!(PassError::new("no").to_string(), "no");
    }
}
