//! Transitions.

/// Launches a boat.
pub const LAUNCH: Operation = Operation { name: "boat.launch", ..Operation::PLAIN };

/// Sinks a boat.
pub const SINK: Operation = Operation { name: SINK_NAME, ..Operation::PLAIN };
const SINK_NAME: &str = "boat.sink";

// sample: operation_that_nothing_uses
/// Nobody does this.
pub const UNUSED: Operation = Operation { name: "boat.unused", ..Operation::PLAIN };

// sample: operation_that_only_a_list_names
/// Nobody does this either.
pub const LISTED: Operation = Operation { name: "boat.listed", ..Operation::PLAIN };
pub(crate) const ALL: &[&Operation] = &[&LAUNCH, &SINK, &LISTED, &TESTED];

// sample: operation_that_only_a_test_uses
/// Only a test does this.
pub const TESTED: Operation = Operation { name: "boat.tested", ..Operation::PLAIN };

// sample: operation_that_only_a_file_of_tests_uses
/// Only a file of tests does this.
pub const IN_TEST_FILE: Operation = Operation { name: "boat.tested", ..Operation::PLAIN };

// sample: operation_without_a_row_on_the_page
/// Nobody reads of it.
pub const HIDDEN: Operation = Operation { name: "boat.hidden", ..Operation::PLAIN };

// sample: operation_without_documentation
#[rustfmt::skip]
pub const MUTE: Operation = Operation { name: "boat.mute", ..Operation::PLAIN };

macro_rules! operations {
    ($($constant:ident = $name:literal, $summary:literal;)*) => {
        $(#[doc = $summary] pub const $constant: Operation = Operation { name: $name, ..Operation::PLAIN };)*
    };
}

operations! {
    // sample: operation_of_a_macro_that_nothing_uses
    MACRO_UNUSED = "boat.macro_unused", "Nobody does this at all.";
    // sample: operation_of_a_macro_without_a_row
    MACRO_HIDDEN = "boat.macro_hidden", "Nobody reads of it.";
}

#[cfg(test)]
mod tests {
    #[test]
    fn tested() {
        check(&super::TESTED);
    }
}
