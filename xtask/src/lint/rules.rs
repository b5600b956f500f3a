//! The rules by name. What each is for stands in `docs/LINT.md`; a test holds the two lists equal.

use std::fmt;

macro_rules! rules {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal,)+) => {
        /// A rule of the lint.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Rule {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl Rule {
            /// What the rule finds, in a sentence.
            pub fn about(self) -> &'static str {
                match self {
                    $(Self::$variant => concat!($($doc),+).trim(),)+
                }
            }

            /// Every rule, in the order of the documentation.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The name that findings, exceptions and the documentation use.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }
        }
    };
}

rules! {
    /// A workspace crate has no floor in `lint.toml`, or `lint.toml` names a crate that is gone.
    FloorUnknown = "floor-unknown",
    /// A crate depends on one of the same or a higher floor.
    FloorOrder = "floor-order",
    /// A dependency that only some crates may have.
    FloorOnly = "floor-only",
    /// A dependency that only high floors may have, direct or through another crate.
    FloorAbove = "floor-above",
    /// The crate graph differs from the golden file.
    CrateGraph = "crate-graph",
    /// A domain crate lacks one of its rooms, its `DOMAIN` or its operations.
    RoomMissing = "room-missing",
    /// An `Operation` that no function of its crate uses.
    OperationUnused = "operation-unused",
    /// An `Operation` without documentation, or without a row on the operations page.
    OperationUndocumented = "operation-undocumented",
    /// A local effect type whose work nothing does.
    EffectUnhandled = "effect-unhandled",
    /// An invariant that the domain's docs page does not name.
    InvariantUndocumented = "invariant-undocumented",
    /// A table of a crate that is no domain.
    TableWithoutDomain = "table-without-domain",
    /// INSERT, UPDATE, DELETE or REPLACE outside a store room.
    SqlOutsideStore = "sql-outside-store",
    /// A statement on a table of another domain, or of none.
    SqlOtherDomain = "sql-other-domain",
    /// DDL outside the schema files.
    SqlDdl = "sql-ddl",
    /// Transaction control, ATTACH, a mutating PRAGMA, VACUUM, REINDEX or ANALYZE outside an engine room.
    SqlEngine = "sql-engine",
    /// Anything but a SELECT in a room that only reads.
    SqlReadRoom = "sql-read-room",
    /// Raw mutating SQL in a test, benchmark, example or doc-test without a stated reason.
    SqlInTest = "sql-in-test",
    /// SQL that is put together while the program runs, so that nobody can say what it changes.
    SqlUnreadable = "sql-unreadable",
    /// Two schema files define one table.
    SqlTableTwice = "sql-table-twice",
    /// A `.sql` file that the grammar of `SQLite` does not accept.
    SqlSyntax = "sql-syntax",
    /// A Rust file that does not parse, so that nothing can be said of it.
    RustSyntax = "rust-syntax",
    /// An exception without a rule of this list or without a reason.
    ExceptionReason = "exception-reason",
    /// An exception that nothing needs any more.
    ExceptionUnused = "exception-unused",
}

impl Rule {
    /// The rule of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|rule| rule.name() == name)
    }
}

impl serde::Serialize for Rule {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}
