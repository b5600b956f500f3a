//! What a domain above this one hangs into the transactions of runs.
//!
//! A domain reacts to what happens to a run with a [`Projector`](holdpoint_state::schema::Projector) of its
//! [`Domain`](holdpoint_state::Domain): the kernel calls it inside the transaction, in every process whose schema has the domain,
//! whether or not it knows the workflow. [`RunEnd::of`] tells it that a run is over. Not here: any table or word of such a domain.

use holdpoint_state::Touched;

use crate::id::RunId;
use crate::model::TerminalStatus;
use crate::operations;

/// The end of a run, as the projector of another domain sees it in the same transaction.
///
/// However a run ends (completion, failure, time limit, cancellation, by whatever command), it ends in one fan-out, and this is
/// the one touch of it. The rows of the workflows domain are settled by then: a domain that parked an attempt settles its own, so that
/// nothing stays open under a run that is over.
///
/// ```
/// use holdpoint_state::schema::Projector;
/// use holdpoint_state::{Change, Domain, StateError, Touched};
/// use holdpoint_workflows::hooks::RunEnd;
///
/// fn close_gates(change: &mut Change<'_>, touched: &Touched) -> Result<(), StateError> {
///     let Some(end) = RunEnd::of(touched) else { return Ok(()) };
///     // Here the domain finds what of it waits under `end.run`, and settles it by its own command: `change.also(…)`.
///     Ok(())
/// }
///
/// const GATES: Domain = Domain {
///     projectors: &[Projector { name: "gates of runs that ended", project: close_gates }],
///     ..Domain::named("gates")
/// };
/// # assert_eq!(GATES.projectors.len(), 1);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunEnd {
    /// The run. The resource of the change is this run's.
    pub run: RunId,
    /// How it ended.
    pub status: TerminalStatus,
}

impl RunEnd {
    /// The end of a run, if this touch is one.
    pub fn of(touched: &Touched) -> Option<Self> {
        let ends = [
            (&operations::COMPLETE, TerminalStatus::Completed),
            (&operations::FAIL, TerminalStatus::Failed),
            (&operations::TIME_OUT, TerminalStatus::TimedOut),
            (&operations::CANCEL, TerminalStatus::Cancelled),
        ];
        // By name: an operation of a composed schema is the same one.
        let (_, status) = ends
            .into_iter()
            .find(|(operation, _)| operation.name == touched.operation.name)?;
        Some(Self {
            run: RunId::new(touched.resource.key()).ok()?,
            status,
        })
    }
}

/// A run that was parked and goes on only when somebody does something: answers, resolves, looks, resumes. A run that its runner merely
/// gave back is none: the next runner takes it up.
///
/// Where a command makes several touches, this is one of them, as [`RunEnd`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunParked {
    /// The run. The resource of the change is this run's.
    pub run: RunId,
}

impl RunParked {
    /// The parking of a run, if this touch is one.
    pub fn of(touched: &Touched) -> Option<Self> {
        let parks = [
            &operations::WAIT,
            &operations::PARK_AMBIGUOUS,
            &operations::PARK_SOURCE_CHANGED,
            &operations::PARK_SETTINGS_BROKEN,
            &operations::PARK_NO_PROGRESS,
            &operations::PAUSE_ACTIVE,
        ];
        parks
            .into_iter()
            .find(|operation| operation.name == touched.operation.name)?;
        Some(Self {
            run: RunId::new(touched.resource.key()).ok()?,
        })
    }
}
