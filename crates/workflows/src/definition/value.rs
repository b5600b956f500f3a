//! JSON values of runs: inputs, outputs, requests. They must be the same after they were stored.
//!
//! A value enters a run through [`to_value`] or [`normal`], which send it through the canonical form
//! of the ground floor and back. So a run that goes on in memory and one that is read again after a
//! crash see the same value, and what JSON would lose is an error of the node that made it.
//!
//! Not here: the canonical form itself ([`holdpoint_state::json`]).

use holdpoint_state::json::{self, JsonError};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Number, Value};

use super::context::NodeError;

/// The largest magnitude below which each integral float is an integer that nobody reads differently.
const EXACT_INTEGERS: f64 = 9_007_199_254_740_992.0;

/// Makes the JSON value of a Rust value, as it will come back from the database.
///
/// ```
/// use holdpoint_workflows::definition::value::to_value;
///
/// assert_eq!(to_value(&Some(1.0)).unwrap(), serde_json::json!(1));
/// assert_eq!(to_value(&()).unwrap(), serde_json::Value::Null);
/// assert!(to_value(&f64::NAN).is_err());
/// ```
///
/// # Errors
///
/// [`JsonError`] says what JSON would lose, and where in the value.
pub fn to_value<T: Serialize + ?Sized>(value: &T) -> Result<Value, JsonError> {
    json::parse(&json::to_canonical(value)?)
}

/// The value as it comes back from the database: `1.0` is `1`, `-0.0` is `0`.
///
/// # Errors
///
/// [`JsonError`] says what JSON would lose, and where in the value.
pub fn normal(value: &Value) -> Result<Value, JsonError> {
    to_value(value)
}

/// The JSON value of what an author's function made: what JSON would lose is an output that can't be.
pub(crate) fn output<T: Serialize + ?Sized>(value: &T) -> Result<Value, NodeError> {
    to_value(value).map_err(|error| NodeError::named("InvalidOutput", error.to_string()))
}

/// Reads a value as a type. The error names the member that does not fit.
pub(crate) fn read<T: DeserializeOwned>(
    value: Value,
) -> Result<T, serde_path_to_error::Error<serde_json::Error>> {
    // The owned value is the deserializer: `&Value` is one too, but not for types that borrow or own big strings cheaply.
    serde_path_to_error::deserialize(value)
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
    json::canonical(&Value::Number(number.clone()))
        .ok()
        .and_then(|bytes| String::from_utf8(bytes).ok())
        .unwrap_or_else(|| number.to_string())
}
