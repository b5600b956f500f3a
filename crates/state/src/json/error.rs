//! What can be wrong with a JSON document or a value, and where.

/// Why a document or a value has no canonical form. Nothing was written.
///
/// `pointer` is a JSON pointer (RFC 6901) to the offending item; the empty pointer is the whole document.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// The bytes are not UTF-8 (encoded surrogates included). Send UTF-8.
    #[error("the text is not UTF-8 from byte {offset} on; send JSON as UTF-8")]
    NotUtf8 {
        /// How many bytes from the start are valid.
        offset: usize,
    },
    /// The text is not JSON by RFC 8259. Correct it at this place.
    #[error("line {line}, column {column}: not JSON: {problem}")]
    Syntax {
        /// Line, from 1.
        line: usize,
        /// Column in characters, from 1.
        column: usize,
        /// What is wrong there.
        problem: &'static str,
    },
    /// One object has the same key twice, perhaps once in escaped form. Readers would disagree about which one counts.
    #[error(
        "the key at {} is there twice in one object; keep one of the two",
        place(pointer)
    )]
    DuplicateKey {
        /// The key.
        pointer: String,
    },
    /// A string holds half of a surrogate pair, so it is no Unicode text.
    #[error(
        "the text at {} has half of a surrogate pair, `\\u{unit:04x}`; write both halves or U+FFFD",
        place(pointer)
    )]
    LoneSurrogate {
        /// The string, or the object if it is one of its keys.
        pointer: String,
        /// The UTF-16 code unit that stands alone.
        unit: u16,
    },
    /// No IEEE 754 double carries this number through the canonical form unchanged. Send it as a string.
    #[error(
        "the number {literal} at {} does not survive as an IEEE 754 double; send it as a string",
        place(pointer)
    )]
    NumberNotExact {
        /// The number.
        pointer: String,
        /// How it was written, cut to 40 characters.
        literal: String,
    },
    /// NaN and infinities have no JSON form. Send `null` or a string.
    #[error(
        "the number at {} is not finite; send null or a string",
        place(pointer)
    )]
    NumberNotFinite {
        /// The number.
        pointer: String,
    },
    /// Arrays and objects are nested [`DEPTH_LIMIT`](super::DEPTH_LIMIT) deep or deeper. Flatten the document.
    #[error(
        "arrays and objects are nested {} deep or deeper; flatten the document",
        super::DEPTH_LIMIT
    )]
    TooDeep,
    /// The value cannot be written as JSON: its own serialization refused, or a map has keys that are not text.
    #[error("the value cannot be written as JSON: {message}")]
    Unserializable {
        /// What the serialization said.
        message: String,
    },
}

impl JsonError {
    /// The same error as seen from the object around it. Costs nothing until something fails.
    pub(super) fn under_key(mut self, key: &str) -> Self {
        if let Some(pointer) = self.pointer_mut() {
            let segment = key.replace('~', "~0").replace('/', "~1");
            pointer.insert_str(0, &segment);
            pointer.insert(0, '/');
        }
        self
    }

    /// The same error as seen from the array around it.
    pub(super) fn under_index(mut self, index: usize) -> Self {
        if let Some(pointer) = self.pointer_mut() {
            pointer.insert_str(0, &format!("/{index}"));
        }
        self
    }

    fn pointer_mut(&mut self) -> Option<&mut String> {
        match self {
            Self::DuplicateKey { pointer }
            | Self::LoneSurrogate { pointer, .. }
            | Self::NumberNotExact { pointer, .. }
            | Self::NumberNotFinite { pointer } => Some(pointer),
            Self::NotUtf8 { .. }
            | Self::Syntax { .. }
            | Self::TooDeep
            | Self::Unserializable { .. } => None,
        }
    }
}

impl serde::ser::Error for JsonError {
    fn custom<T: std::fmt::Display>(message: T) -> Self {
        Self::Unserializable {
            message: message.to_string(),
        }
    }
}

/// The pointer as a person may read it: quoted, with control characters escaped, since keys are foreign text.
fn place(pointer: &str) -> String {
    if pointer.is_empty() {
        "the top".to_owned()
    } else {
        format!("{pointer:?}")
    }
}
