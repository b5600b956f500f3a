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

/// The answers of a decision as a type: each variant has the text that belongs to its choice. [`answers!`](crate::answers) makes one, and
/// reads it from the output of its decision.
pub trait AnswerSet: Sized {
    /// Its choices: what a person chooses from, and what the routes are a `match` of.
    type Choice: ChoiceSet;

    /// The answer of a choice and its text. `None` when the choice asks for a text and there is none.
    fn of(choice: Self::Choice, text: Option<String>) -> Option<Self>;
}

/// Reads an answer from the output of its decision.
///
/// # Errors
///
/// The output is none of a decision between these choices.
pub fn read_answer<'de, A: AnswerSet, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<A, D::Error> {
    let given = Given::<A::Choice>::deserialize(deserializer)?;
    let choice = given.choice;
    A::of(choice, given.text)
        .ok_or_else(|| D::Error::custom(format!("{:?} is there without its text", choice.id())))
}

/// Makes an enum of the answers of a decision, and the closed set of its choices beside it. A choice that asks for a text says as what it
/// arrives, a type that is made of any `String`: an answer that was accepted can always be read.
///
/// ```
/// use holdpoint_decisions::answers;
/// use holdpoint_decisions::model::TextInput;
/// use holdpoint_decisions::node::{AskPeople as _, HumanDecision};
/// use holdpoint_workflows::definition::Workflow;
///
/// /// What is missing.
/// #[derive(Debug, Clone, PartialEq)]
/// pub struct Missing(String);
///
/// impl From<String> for Missing {
///     fn from(text: String) -> Self {
///         Self(text)
///     }
/// }
///
/// answers! {
///     /// What a reviewer says.
///     pub enum Review of ReviewChoice {
///         /// It goes out.
///         Ship = "ship" => "Ship",
///         /// It is done again.
///         Redo(Missing: TextInput::new("why", "What is missing?")) = "redo" => "Redo",
///     }
/// }
///
/// let release = Workflow::new("release")
///     .start_at("review")
///     .ask_people("review", HumanDecision::answered_as::<Review>("Ship 1.2?"), |choice| match choice {
///         ReviewChoice::Ship => "publish",
///         ReviewChoice::Redo => "again",
///     })
///     .compute("publish", |_| Ok("published"))
///     .compute("again", |ctx| match ctx.output::<Review>("review")? {
///         Review::Redo(Missing(what)) => Ok(what),
///         Review::Ship => Ok(String::new()),
///     })
///     .build()?;
/// let output = serde_json::json!({ "choice": "redo", "input": { "why": "tests" } });
/// assert_eq!(serde_json::from_value::<Review>(output)?, Review::Redo(Missing("tests".to_owned())));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A type that not every text has a value of does not compile, because a person would be told that the answer was taken, and the run could
/// not read it:
///
/// ```compile_fail,E0277
/// # use holdpoint_decisions::answers;
/// # use holdpoint_decisions::model::TextInput;
/// answers! {
///     /// How long to wait.
///     pub enum Answer of AnswerChoice {
///         /// So many days.
///         Wait(u32: TextInput::new("days", "How many days?")) = "wait" => "Wait",
///     }
/// }
/// ```
///
/// Neither does a use of the answer that forgets a choice:
///
/// ```compile_fail,E0004
/// # use holdpoint_decisions::answers;
/// # use holdpoint_decisions::model::TextInput;
/// answers! {
///     /// What a reviewer says.
///     pub enum Review of ReviewChoice {
///         /// It goes out.
///         Ship = "ship" => "Ship",
///         /// It is done again.
///         Redo(String: TextInput::new("why", "What is missing?")) = "redo" => "Redo",
///     }
/// }
/// fn text(review: Review) -> String {
///     match review {
///         Review::Redo(why) => why,
///     }
/// }
/// ```
#[macro_export]
macro_rules! answers {
    ($(#[$meta:meta])* $vis:vis enum $name:ident of $choice:ident {
        $($(#[$doc:meta])* $variant:ident $(($text:ty: $input:expr))? = $id:literal => $label:expr),+ $(,)?
    }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq)]
        $vis enum $name {
            $($(#[$doc])* $variant $(($text))?),+
        }

        $crate::choices! {
            $(#[$meta])*
            $vis enum $choice {
                $($(#[$doc])* $variant = $id => $crate::model::Choice::new($label)$(.with_text($input))?),+
            }
        }

        impl $crate::node::AnswerSet for $name {
            type Choice = $choice;

            fn of(choice: $choice, text: ::core::option::Option<::std::string::String>) -> ::core::option::Option<Self> {
                let _ = &text;
                ::core::option::Option::Some(match choice {
                    $($choice::$variant => Self::$variant $((<$text as ::core::convert::From<::std::string::String>>::from(text?)))?),+
                })
            }
        }

        impl<'de> $crate::__serde::Deserialize<'de> for $name {
            fn deserialize<D: $crate::__serde::Deserializer<'de>>(deserializer: D) -> ::core::result::Result<Self, D::Error> {
                $crate::node::read_answer(deserializer)
            }
        }
    };
}
