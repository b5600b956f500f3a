//! What can be wrong with a request before it is stored, and the limits. A limit error names the limit and the observed value.

/// The longest text of a title, a label, a prompt or a presentation, in UTF-16 code units.
pub const STRING_UNITS_MAX: u64 = 16_000;
/// All texts of a presentation together, in UTF-16 code units.
pub const PRESENTATION_UNITS_MAX: u64 = 64_000;
/// The most blocks of a presentation.
pub const BLOCKS_MAX: u64 = 256;
/// The most items of one list of bullets or fields.
pub const ITEMS_MAX: u64 = 256;
/// The most parts that a channel may split one request into, for one recipient.
pub const TRANSPORT_PARTS_MAX: usize = 20;
/// The longest actor id, event id and idempotency key, in bytes.
pub const IDENTITY_BYTES_MAX: u64 = 256;
/// The longest reason of a cancelled decision, in UTF-16 code units.
pub const REASON_UNITS_MAX: u64 = 1_000;
/// How many hex digits of the presentation digest are shown as its fingerprint.
pub const FINGERPRINT_CHARS: usize = 12;

/// A limit, by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Limit {
    /// One text, in code units.
    #[error("{STRING_UNITS_MAX} UTF-16 code units in one text")]
    StringUnits,
    /// All texts of a presentation, in code units.
    #[error("{PRESENTATION_UNITS_MAX} UTF-16 code units in one presentation")]
    PresentationUnits,
    /// Blocks of a presentation.
    #[error("{BLOCKS_MAX} blocks")]
    Blocks,
    /// Items of one list.
    #[error("1 to {ITEMS_MAX} items in one list")]
    Items,
    /// Parts of one transport.
    #[error("{TRANSPORT_PARTS_MAX} parts for one recipient")]
    TransportParts,
    /// Bytes of an actor id, an event id or a key.
    #[error("1 to {IDENTITY_BYTES_MAX} bytes")]
    IdentityBytes,
    /// The reason of a cancellation, in code units.
    #[error("{REASON_UNITS_MAX} UTF-16 code units in a reason")]
    ReasonUnits,
    /// An answer, in code units: the choice's own limits.
    #[error("{least} to {most} UTF-16 code units in the answer")]
    AnswerUnits {
        /// At least.
        least: u64,
        /// At most.
        most: u64,
    },
}

/// What can't be asked, or can't be submitted. Nothing was stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Invalid {
    /// A limit is not kept.
    #[error("{at} has {observed}; the limit is {limit}")]
    Limit {
        /// What is too long, too short or too many.
        at: String,
        /// Which limit.
        limit: Limit,
        /// The observed value.
        observed: u64,
    },
    /// A text has nothing to read.
    #[error("{at} is blank")]
    Blank {
        /// Which text.
        at: String,
    },
    /// A text holds a control character, which a terminal or a phone would obey.
    #[error("{at} holds the control character U+{code:04X}")]
    ControlCharacter {
        /// Which text.
        at: String,
        /// Its code point.
        code: u32,
    },
    /// A name has not the form that it must have.
    #[error("a {what} is {rule}")]
    Name {
        /// What it names.
        what: &'static str,
        /// The form.
        rule: &'static str,
    },
    /// A document has a field that nobody knows.
    #[error("{at} has the unknown field {field:?}")]
    UnknownField {
        /// Which document.
        at: String,
        /// The field, cut to 100 characters.
        field: String,
    },
    /// A document lacks a field, or one has another shape.
    #[error("{at}: {problem}")]
    Shape {
        /// Which document or field.
        at: String,
        /// What is expected.
        problem: &'static str,
    },
    /// There is nothing to choose.
    #[error("a decision has at least one choice")]
    NoChoice,
    /// Two choices can't be told apart.
    #[error("two choices have the same label {label:?}")]
    SameLabel {
        /// The label.
        label: String,
    },
    /// The limits of an answer exclude each other, or everything.
    #[error("{at}: an answer of {least} to {most} UTF-16 code units can't be given")]
    AnswerLimits {
        /// Which choice.
        at: String,
        /// At least.
        least: u64,
        /// At most.
        most: u64,
    },
    /// Two ways to say until when.
    #[error("a decision has `onTimeout` or `expiresAt`, not both")]
    TwoDeadlines,
    /// The time until the deadline is no duration.
    #[error(
        "`afterMs` is a number of milliseconds above 0 that ends at an instant before the year 10000"
    )]
    AfterMs,
    /// The deadline is not after the creation.
    #[error("`expiresAt` is an instant after the creation of the request")]
    Deadline,
    /// The automatic answer could not be given by a person either.
    #[error("the answer on timeout can't be taken: {code}")]
    Default {
        /// Why.
        code: super::RejectCode,
    },
    /// The request revision is no positive integer.
    #[error("the revision of a request is a whole number from 1")]
    Revision,
    /// The machine data has no canonical form.
    #[error("the subject has no canonical JSON: {0}")]
    Subject(holdpoint_state::json::JsonError),
    /// It belongs to another attempt than it says.
    #[error("the request belongs to another attempt: its {field} differs")]
    OtherAttempt {
        /// Which field.
        field: &'static str,
    },
}
