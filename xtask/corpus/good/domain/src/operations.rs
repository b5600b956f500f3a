//! Transitions.

// sample: operation_with_attributes
/// Launches a ship.
#[rustfmt::skip]
pub(crate) const LAUNCH: Operation = Operation { name: "ship.launch", ..Operation::PLAIN };

// sample: operation_in_a_macro
macro_rules! operations {
    ($($(#[$meta:meta])* $constant:ident = $name:literal, $summary:literal;)*) => {
        $($(#[$meta])* #[doc = $summary] pub const $constant: holdpoint_state::Operation =
            holdpoint_state::Operation { name: $name, ..PLAIN };)*
        pub(crate) const ALL: &[&Operation] = &[$(&$constant),*];
    };
}

operations! {
    /// More of it.
    SINK = "ship.sink", "Sinks a ship.";
    PAINT = "ship.paint", "Paints a ship.";
    RENAME = "ship.rename", "Renames a ship.";
}

// sample: something_else_of_that_name
pub enum Kind {
    Operation { name: &'static str },
    EffectType { name: &'static str },
}

fn other(kind: Kind) -> &'static str {
    match kind {
        Kind::Operation { name } | Kind::EffectType { name } => name,
    }
}
