//! JSON values of runs: inputs, outputs, requests. They must be the same after they were stored.
//!
//! Not here: the canonical form itself, which is the ground floor's.

use serde::Serialize;
use serde_json::{Number, Value};

/// How deep a value may nest. JSON readers stop at 128.
pub const DEPTH_MAX: usize = 120;

/// The largest magnitude below which each integral float is an integer that nobody reads differently.
const EXACT_INTEGERS: f64 = 9_007_199_254_740_992.0;

/// A value that would not be the same after it was stored as JSON.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ValueError {
    /// JSON has no such value: NaN, an infinity, bytes that are no text, a key that is no text.
    #[error("JSON can't hold {what}")]
    NotJson {
        /// What was found.
        what: String,
    },
    /// The value nests deeper than [`DEPTH_MAX`].
    #[error("the value nests deeper than {DEPTH_MAX} levels")]
    TooDeep,
}

/// Makes the JSON value of a Rust value.
///
/// # Errors
///
/// [`ValueError`] says what JSON would lose.
pub fn to_value<T: Serialize + ?Sized>(value: &T) -> Result<Value, ValueError> {
    let value = serde_json::to_value(value).map_err(|error| ValueError::NotJson {
        what: error.to_string(),
    })?;
    normal(value)
}

/// The value as it comes back from the database: `1.0` is `1`, `-0.0` is `0`.
///
/// A run that goes on in memory and one that is read again after a crash then see the same.
///
/// # Errors
///
/// [`ValueError::TooDeep`].
pub fn normal(mut value: Value) -> Result<Value, ValueError> {
    normalize(&mut value, 0)?;
    Ok(value)
}

fn normalize(value: &mut Value, depth: usize) -> Result<(), ValueError> {
    if DEPTH_MAX < depth {
        return Err(ValueError::TooDeep);
    }
    match value {
        Value::Null | Value::Bool(_) | Value::String(_) => Ok(()),
        Value::Number(number) => {
            if number.is_f64()
                && let Some(float) = number.as_f64()
            {
                *value = self::number(float);
            }
            Ok(())
        }
        Value::Array(items) => items
            .iter_mut()
            .try_for_each(|item| normalize(item, depth + 1)),
        Value::Object(fields) => fields
            .values_mut()
            .try_for_each(|field| normalize(field, depth + 1)),
    }
}

/// The JSON number of a float; an integral one becomes an integer, as JSON prints it.
pub(crate) fn number(float: f64) -> Value {
    if float.fract() == 0.0 && float.abs() < EXACT_INTEGERS {
        #[expect(clippy::cast_possible_truncation, reason = "integral and below 2^53")]
        return Value::from(float as i64);
    }
    Number::from_f64(float).map_or(Value::Null, Value::Number)
}

/// A number as JSON prints it (ECMAScript's shortest form): `1.0` is `1`.
pub(crate) fn number_text(number: &Number) -> String {
    match number.as_f64() {
        Some(float) if number.is_f64() => ryu_js::Buffer::new().format(float).to_owned(),
        Some(_) | None => number.to_string(),
    }
}

/// The canonical JSON of a value.
pub(crate) fn canonical(value: &Value) -> Result<Vec<u8>, ValueError> {
    serde_json::to_vec(value).map_err(|error| ValueError::NotJson {
        what: error.to_string(),
    })
}
