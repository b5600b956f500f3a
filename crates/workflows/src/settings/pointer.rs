//! JSON Pointers (RFC 6901): a place in a document.
//!
//! Not here: looking a place up (`patch`), permissions (`rules`).

use std::fmt;

/// The longest pointer, in bytes.
pub const POINTER_BYTES_MAX: usize = 1024;

/// Why a text is not a pointer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PointerError {
    /// It does not begin with `/`, and is not the empty text of the root.
    #[error("a pointer is empty or begins with /, but this is {text:?}")]
    NoSlash {
        /// The text.
        text: String,
    },
    /// A `~` that is neither `~0` nor `~1`.
    #[error("pointer {text:?} has a ~ that is followed by neither 0 nor 1")]
    Escape {
        /// The text.
        text: String,
    },
    /// It is longer than [`POINTER_BYTES_MAX`].
    #[error("a pointer has at most {POINTER_BYTES_MAX} bytes, and this one has {bytes}")]
    TooLong {
        /// How long it is.
        bytes: usize,
    },
}

/// A place in a document, as RFC 6901 writes it. The root is the empty text.
///
/// Each place has exactly one text, so that equal pointers are equal texts.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Pointer {
    /// The names and indexes from the root down, with their escapes undone.
    tokens: Vec<String>,
}

impl Pointer {
    /// Reads a pointer.
    ///
    /// # Errors
    ///
    /// [`PointerError`].
    pub fn parse(text: &str) -> Result<Self, PointerError> {
        if text.len() > POINTER_BYTES_MAX {
            return Err(PointerError::TooLong { bytes: text.len() });
        }
        if text.is_empty() {
            return Ok(Self::default());
        }
        let Some(rest) = text.strip_prefix('/') else {
            return Err(PointerError::NoSlash {
                text: text.to_owned(),
            });
        };
        let tokens = rest.split('/').map(unescape).collect::<Option<_>>();
        match tokens {
            Some(tokens) => Ok(Self { tokens }),
            None => Err(PointerError::Escape {
                text: text.to_owned(),
            }),
        }
    }

    /// Whether it is the whole document.
    pub fn is_root(&self) -> bool {
        self.tokens.is_empty()
    }

    /// The names and indexes from the root down.
    pub fn tokens(&self) -> &[String] {
        &self.tokens
    }

    /// Whether the place is `prefix` or lies beneath it. `/ab` does not lie beneath `/a`.
    pub fn starts_with(&self, prefix: &Self) -> bool {
        self.tokens.starts_with(&prefix.tokens)
    }

    /// The same place with another last part; the root stays what it is.
    pub(super) fn with_last(&self, last: String) -> Self {
        let mut tokens = self.tokens.clone();
        if let Some(token) = tokens.last_mut() {
            *token = last;
        }
        Self { tokens }
    }
}

/// Undoes the escapes of one part. `~01` is `~1`, not `/`: one pass, from the left.
fn unescape(token: &str) -> Option<String> {
    let mut plain = String::with_capacity(token.len());
    let mut rest = token.chars();
    while let Some(character) = rest.next() {
        plain.push(match character {
            '~' => match rest.next() {
                Some('0') => '~',
                Some('1') => '/',
                Some(_) | None => return None,
            },
            other => other,
        });
    }
    Some(plain)
}

impl fmt::Display for Pointer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for token in &self.tokens {
            write!(
                formatter,
                "/{}",
                token.replace('~', "~0").replace('/', "~1")
            )?;
        }
        Ok(())
    }
}

impl fmt::Debug for Pointer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?}", self.to_string())
    }
}
