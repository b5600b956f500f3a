//! JSON values to values of the interpreter and back.

use std::str;

use jaq_json::{Num, Val};
use serde_json::{Map, Number, Value};

use super::EvaluationError;

pub(super) fn from_json(value: &Value) -> Val {
    match value {
        Value::Null => Val::Null,
        Value::Bool(flag) => Val::Bool(*flag),
        Value::Number(number) => Val::Num(match number.as_i64().map(isize::try_from) {
            Some(Ok(integer)) => Num::Int(integer),
            Some(Err(_)) | None => Num::Float(number.as_f64().unwrap_or(f64::NAN)),
        }),
        Value::String(text) => Val::from(text.clone()),
        Value::Array(items) => items.iter().map(from_json).collect(),
        Value::Object(fields) => Val::obj(
            fields
                .iter()
                .map(|(key, field)| (Val::from(key.clone()), from_json(field)))
                .collect(),
        ),
    }
}

/// The value was measured before, so this descends at most [`super::DEPTH_MAX`] levels.
pub(super) fn to_json(value: &Val) -> Result<Value, EvaluationError> {
    let not_json = |message: &str| EvaluationError::NotJson {
        message: message.to_owned(),
    };
    Ok(match value {
        Val::Null => Value::Null,
        Val::Bool(flag) => Value::Bool(*flag),
        Val::Num(number) => Value::Number(to_number(number)?),
        Val::TStr(text) => Value::String(to_text(text)?),
        Val::BStr(_) => return Err(not_json("bytes are no text")),
        Val::Arr(items) => items.iter().map(to_json).collect::<Result<Value, _>>()?,
        Val::Obj(fields) => {
            let mut object = Map::new();
            for (key, field) in fields.iter() {
                let Val::TStr(key) = key else {
                    return Err(not_json("a key of an object is no text"));
                };
                object.insert(to_text(key)?, to_json(field)?);
            }
            Value::Object(object)
        }
    })
}

fn to_text(bytes: &[u8]) -> Result<String, EvaluationError> {
    str::from_utf8(bytes)
        .map(str::to_owned)
        .map_err(|error| EvaluationError::NotJson {
            message: format!("a text is not UTF-8: {error}"),
        })
}

fn to_number(number: &Num) -> Result<Number, EvaluationError> {
    let text = match number {
        Num::Int(integer) => return Ok(Number::from(*integer)),
        Num::Float(float) => {
            return Number::from_f64(*float).ok_or_else(|| EvaluationError::NotJson {
                message: format!("the number {float} is not finite"),
            });
        }
        Num::BigInt(integer) => integer.to_string(),
        Num::Dec(decimal) => decimal.to_string(),
    };
    serde_json::from_str(&text)
        .ok()
        .ok_or_else(|| EvaluationError::NotJson {
            message: format!(
                "the number {} does not survive",
                text.chars().take(40).collect::<String>()
            ),
        })
}
