//! JSON text in its one canonical form, RFC 8785, for everything that is stored, digested or compared.
//!
//! Every way in ends in the same writer, so that text, typed values and [`serde_json::Value`] of equal content give
//! equal bytes. What could be read in two ways is refused and never repaired: repeated keys, lone surrogates, bytes
//! that are not UTF-8, a byte order mark, text after the document, numbers that a double cannot carry.
//!
//! # Numbers
//!
//! RFC 8785 writes a number as ECMAScript prints the nearest IEEE 754 double. One rule keeps that from losing
//! anything unseen: **an integer is accepted only if its canonical form denotes that very integer.** All integers up
//! to 2^53 are; above, `9007199254740994` is, while `9007199254740993` (no double) and `9223372036854775808` (a double,
//! but printed `9223372036854776000`) are refused with [`JsonError::NumberNotExact`]. The way out is to send such a
//! number as a string. A literal with a fraction or an exponent is a measurement: it becomes the nearest double, and
//! is refused where it would become infinite, or zero without being zero. `-0` is `0`, and `1.0` is `1`.
//!
//! # Depth
//!
//! Arrays and objects nested [`DEPTH_LIMIT`] deep or deeper are refused, as `serde_json` refuses them when it reads, so
//! that whatever is accepted here can be read again by every reader.
//!
//! Not here: digests (the blob records), size limits (whoever accepts the text), JSON Schema.

mod error;
mod number;
mod parser;
mod serializer;
mod writer;

#[cfg(test)]
mod tests;

use serde::Serialize;
use serde_json::Value;

pub use self::error::JsonError;
use self::parser::Parser;
use self::writer::Writer;

/// The nesting of arrays and objects that is too deep: 127 levels are accepted, 128 are not.
pub const DEPTH_LIMIT: usize = 128;

/// Writes `value` in canonical form.
///
/// ```
/// use holdpoint_state::json;
///
/// let value = serde_json::json!({"b": 1.0, "a": ["€", null]});
/// assert_eq!(json::canonical(&value)?, r#"{"a":["€",null],"b":1}"#.as_bytes());
/// # Ok::<(), json::JsonError>(())
/// ```
///
/// # Errors
///
/// [`JsonError::NumberNotExact`] for an integer that no double carries; [`JsonError::TooDeep`].
pub fn canonical(value: &Value) -> Result<Vec<u8>, JsonError> {
    to_canonical(value)
}

/// Writes any serializable value in canonical form, without a [`Value`] between.
///
/// The bytes are those of [`canonical`] over `serde_json::to_value(value)`, except where that would lose something:
/// NaN, infinities and members written twice are refused. A `RawValue` is read as strictly as [`canonicalize`] reads.
///
/// # Errors
///
/// As [`canonical`]; [`JsonError::NumberNotFinite`], [`JsonError::DuplicateKey`], and [`JsonError::Unserializable`] for
/// a map key that is no string, integer, boolean or character, or when `value` itself refuses.
pub fn to_canonical<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, JsonError> {
    let mut writer = Writer::with_capacity(512);
    value.serialize(&mut writer)?;
    Ok(writer.into_bytes())
}

/// Reads one JSON document strictly and writes it in canonical form.
///
/// ```
/// use holdpoint_state::json::{self, JsonError};
///
/// assert_eq!(json::canonicalize(br#" { "b" : 1e0, "a" : -0 } "#)?, br#"{"a":0,"b":1}"#);
/// // The same key twice is refused, however it is written.
/// let twice = json::canonicalize(br#"{"rows":[{"a":1,"\u0061":2}]}"#);
/// assert_eq!(twice, Err(JsonError::DuplicateKey { pointer: "/rows/0/a".to_owned() }));
/// # Ok::<(), JsonError>(())
/// ```
///
/// # Errors
///
/// [`JsonError::NotUtf8`], [`JsonError::Syntax`], [`JsonError::DuplicateKey`], [`JsonError::LoneSurrogate`],
/// [`JsonError::NumberNotExact`] or [`JsonError::TooDeep`]: the first offence met.
pub fn canonicalize(text: &[u8]) -> Result<Vec<u8>, JsonError> {
    let text = std::str::from_utf8(text).map_err(|error| JsonError::NotUtf8 {
        offset: error.valid_up_to(),
    })?;
    let mut writer = Writer::with_capacity(text.len());
    Parser::new(text, &mut writer).document()?;
    Ok(writer.into_bytes())
}

/// Reads one JSON document as strictly as [`canonicalize`].
///
/// Numbers come back as their canonical form reads (`1.0` as the integer 1), so two documents give equal values exactly
/// if they have the same canonical form.
///
/// # Errors
///
/// Those of [`canonicalize`].
pub fn parse(text: &[u8]) -> Result<Value, JsonError> {
    let canonical = canonicalize(text)?;
    serde_json::from_slice(&canonical).map_err(|error| {
        debug_assert!(
            false,
            "BUG: canonical JSON that serde_json cannot read: {error}"
        );
        JsonError::Unserializable {
            message: error.to_string(),
        }
    })
}

/// Whether `text` is a JSON document already in canonical form, byte for byte.
pub fn is_canonical(text: &[u8]) -> bool {
    canonicalize(text).is_ok_and(|canonical| canonical == text)
}
