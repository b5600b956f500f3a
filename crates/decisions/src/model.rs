//! The nouns of the domain and what they may be. Pure: no SQL, no clock, no I/O.

use holdpoint_state::Resource;
use holdpoint_state::clock::UnixMillis;

use crate::error::DecisionError;

/// The resource type of the domain.
pub const RESOURCE_TYPE: &str = "decision";

/// How long a name may be, in characters.
pub const NAME_CHARS_MAX: usize = 200;

/// What a decision is called: its natural key, which never changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name(String);

impl Name {
    /// Checks a name.
    ///
    /// # Errors
    ///
    /// [`DecisionError::Name`] unless it has 1 to [`NAME_CHARS_MAX`] characters, none of them a control character.
    pub fn new(text: impl Into<String>) -> Result<Self, DecisionError> {
        let text = text.into();
        let is_right = !text.is_empty()
            && text.chars().count() <= NAME_CHARS_MAX
            && !text.chars().any(char::is_control);
        if is_right {
            Ok(Self(text))
        } else {
            Err(DecisionError::Name)
        }
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The resource of that name.
    pub fn resource(&self) -> Resource {
        Resource::new(RESOURCE_TYPE, self.as_str())
    }
}

/// One decision as readers see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// Its name.
    pub name: String,
    /// How often it changed, from 1.
    pub revision: u64,
    /// When it was made.
    pub created_at: UnixMillis,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_short_and_printable() {
        let longest = "x".repeat(NAME_CHARS_MAX);
        for right in ["a", "two words", longest.as_str()] {
            assert_eq!(Name::new(right).map(|name| name.0).unwrap(), right);
        }
        let too_long = "x".repeat(NAME_CHARS_MAX + 1);
        for wrong in ["", "a\nb", "\u{1b}[2J", too_long.as_str()] {
            assert!(matches!(Name::new(wrong), Err(DecisionError::Name)));
        }
    }
}
