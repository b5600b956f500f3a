//! Choices as a type: a closed set that the compiler knows.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use crate::model::Choice;

/// A closed set of choices: what a person chooses from, and what the routes of a decision are a `match` of. [`choices!`](crate::choices)
/// makes one.
pub trait ChoiceSet: Copy + Send + Sync + 'static {
    /// Every choice.
    const ALL: &'static [Self];

    /// Its id: what is stored, and the case of the switch.
    fn id(self) -> &'static str;

    /// What a person sees of it.
    fn choice(self) -> Choice;
}

/// The choices of a decision whose choices are known only when the program runs. There is no value of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnyChoice {}

impl ChoiceSet for AnyChoice {
    const ALL: &'static [Self] = &[];

    fn id(self) -> &'static str {
        match self {}
    }

    fn choice(self) -> Choice {
        match self {}
    }
}

/// The output of a decision between the choices of a closed set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Given<C> {
    /// What was chosen.
    pub choice: C,
    /// The text that belongs to it, exactly as it was written.
    pub text: Option<String>,
}

impl<'de, C: ChoiceSet> Deserialize<'de> for Given<C> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Output {
            choice: String,
            #[serde(default)]
            input: std::collections::BTreeMap<String, String>,
        }
        let output = Output::deserialize(deserializer)?;
        let choice = C::ALL
            .iter()
            .copied()
            .find(|choice| choice.id() == output.choice);
        Ok(Self {
            choice: choice.ok_or_else(|| {
                D::Error::custom(format!("{:?} is none of the choices", output.choice))
            })?,
            text: output.input.into_values().next(),
        })
    }
}

/// Makes an enum a closed set of choices. Each variant has the id that is stored, and what a person sees.
///
/// ```
/// use holdpoint_decisions::choices;
/// use holdpoint_decisions::model::{Choice, TextInput};
/// use holdpoint_decisions::node::ChoiceSet;
///
/// choices! {
///     /// What a reviewer may say.
///     pub enum Review {
///         /// It goes out.
///         Ship = "ship" => Choice::new("Ship"),
///         /// It is done again.
///         Redo = "redo" => Choice::new("Redo").with_text(TextInput::new("why", "What is missing?")),
///     }
/// }
/// assert_eq!(Review::ALL, [Review::Ship, Review::Redo]);
/// assert_eq!(Review::Redo.id(), "redo");
/// ```
#[macro_export]
macro_rules! choices {
    ($(#[$meta:meta])* $vis:vis enum $name:ident {
        $($(#[$doc:meta])* $variant:ident = $id:literal => $choice:expr),+ $(,)?
    }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        $vis enum $name {
            $($(#[$doc])* $variant),+
        }

        impl $crate::node::ChoiceSet for $name {
            const ALL: &'static [Self] = &[$(Self::$variant),+];

            fn id(self) -> &'static str {
                match self {
                    $(Self::$variant => $id),+
                }
            }

            fn choice(self) -> $crate::model::Choice {
                match self {
                    $(Self::$variant => $choice),+
                }
            }
        }
    };
}
