//! The ordinary use of a finalizer: nothing is made in the world before the resource has it, and it goes when all of that is gone.
//!
//! Not here: rows and rules of finalizers (`commands`, `model`).

use crate::controller::{Action, PassError};
use crate::model::FinalizerName;
use crate::pass::Pass;

/// What the pass is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The resource is wanted: make the world match it.
    Apply,
    /// The resource goes: undo what was made for it.
    Cleanup,
}

/// Runs a pass under a finalizer.
///
/// - A resource that is wanted and has no finalizer gets it, and nothing else happens in this pass: whatever a later pass makes is then
///   sure to be cleaned up. The next pass follows at once.
/// - A resource that is wanted and has it: `body` with [`Event::Apply`].
/// - A resource that goes and has it: `body` with [`Event::Cleanup`]. Once that settles, the finalizer is removed and with the last one
///   the resource is gone. A cleanup in several steps returns [`Action::requeue`] until the last.
/// - A resource that goes and has it no more: nothing is left to do here.
///
/// ```
/// use holdpoint_controllers::{Action, Controller, Pass, PassError, finalizer};
///
/// struct Rooms;
///
/// impl Controller for Rooms {
///     type Spec = u32;
///     type Status = u32;
///
///     fn name(&self) -> &str {
///         "rooms"
///     }
///
///     fn initial_status(&self, _spec: &u32) -> u32 {
///         0
///     }
///
///     fn reconcile(&self, pass: &mut Pass<'_, u32, u32>) -> Result<Action, PassError> {
///         finalizer::with(pass, "example.com/rooms", |pass, event| match event {
///             finalizer::Event::Apply => {
///                 let wanted = *pass.spec();
///                 pass.set_status(wanted);
///                 Ok(Action::settled())
///             }
///             finalizer::Event::Cleanup => Ok(Action::settled()),
///         })
///     }
/// }
/// ```
///
/// # Errors
///
/// Those of `body`, and a name that is none.
pub fn with<'a, S, T>(
    pass: &mut Pass<'a, S, T>,
    name: &str,
    body: impl FnOnce(&mut Pass<'a, S, T>, Event) -> Result<Action, PassError>,
) -> Result<Action, PassError> {
    let name = FinalizerName::new(name)?;
    match (pass.is_deleting(), pass.has_finalizer(&name)) {
        (false, false) => {
            pass.add_finalizer(&name)?;
            Ok(Action::requeue())
        }
        (false, true) => body(pass, Event::Apply),
        (true, true) => {
            let action = body(pass, Event::Cleanup)?;
            if action.is_settled() {
                pass.remove_finalizer(&name);
            }
            Ok(action)
        }
        (true, false) => Ok(Action::settled()),
    }
}
