//! What a value of this domain may not be, with the limit that it breaks.

/// The most bytes that a spec or a status has, as canonical JSON.
pub const DOCUMENT_BYTES_MAX: usize = 1_048_576;
/// The most bytes that the payload of an event has, as canonical JSON.
pub const EVENT_BYTES_MAX: usize = 65_536;
/// The most characters that a name, a key or a finalizer has.
pub const NAME_CHARS_MAX: usize = 512;
/// How many characters of an error are stored; what is cut off shows as an ellipsis.
pub const ERROR_CHARS_MAX: usize = 8_192;
/// The largest number of milliseconds after which a pass may ask to run again: what JSON can say exactly.
pub const REQUEUE_MS_MAX: u64 = (1 << 53) - 1;

/// A value that can't be taken. Nothing was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Invalid {
    /// A name has not the form that it must have.
    #[error("a {what} is {rule}")]
    Name {
        /// What it would be.
        what: &'static str,
        /// The form.
        rule: &'static str,
    },
    /// A document is too large.
    #[error("the {what} has {bytes} bytes; {bytes_max} are allowed")]
    TooLarge {
        /// Which.
        what: &'static str,
        /// Its size as canonical JSON.
        bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
    /// A document has no stored form, such as one that is nested too deep.
    #[error("the {what} can't be stored: {problem}")]
    NotStorable {
        /// Which.
        what: &'static str,
        /// Why.
        problem: String,
    },
    /// One finalizer is named twice.
    #[error("the finalizer {0:?} is named twice")]
    DuplicateFinalizer(String),
    /// A patch has one condition type twice.
    #[error("the condition {0:?} is given twice in one patch")]
    DuplicateCondition(String),
    /// Type or reason of a condition is blank.
    #[error("the {0} of a condition must not be blank")]
    BlankCondition(&'static str),
    /// A resource that is being deleted takes no new finalizer.
    #[error(
        "the resource is being deleted and takes no new finalizer {0:?}; only removals are possible"
    )]
    FinalizerWhileDeleting(String),
    /// The result of a pass has not the form of one.
    #[error("not a result of a pass: {0}")]
    Result(String),
    /// A stored status can't be read: it was written by another program.
    #[error("the stored status can't be read: {0}")]
    Status(String),
}
