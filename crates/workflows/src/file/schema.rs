//! JSON Schema for the outputs that agents submit and exits take out: the part of it that says shapes.
//!
//! A keyword that is not known here is refused when the file is read, so that none is silently without effect. Patterns are not
//! known: an expression has `test`.
//!
//! Not here: where schemas stand (`compile`, and `document` for files of other kinds).

use serde_json::{Map, Value};

use super::error::did_you_mean;
use crate::definition::value::number_text;

/// Keywords that say something about values, and those that only people read.
const KEYWORDS: [&str; 18] = [
    "additionalProperties",
    "allOf",
    "anyOf",
    "const",
    "enum",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "items",
    "maxItems",
    "maxLength",
    "maximum",
    "minItems",
    "minLength",
    "minimum",
    "not",
    "oneOf",
    "properties",
    "required",
];
const ANNOTATIONS: [&str; 7] = [
    "$comment",
    "$schema",
    "default",
    "description",
    "examples",
    "title",
    "type",
];
const TYPES: [&str; 7] = [
    "array", "boolean", "integer", "null", "number", "object", "string",
];

/// A mistake in a schema: the path to it, and what is wrong.
pub(super) type Mistake = (Vec<String>, String);

/// A schema that has been checked.
#[derive(Debug, Clone)]
pub(super) struct JsonSchema(Value);

impl JsonSchema {
    /// Checks a schema.
    pub(super) fn compile(schema: &Value) -> Result<Self, Mistake> {
        let mut path = Vec::new();
        check(schema, &mut path).map_err(|message| (path, message))?;
        Ok(Self(schema.clone()))
    }

    /// The first thing that is wrong with a value, with its place in it.
    pub(super) fn problem(&self, value: &Value) -> Option<String> {
        problem(&self.0, value, "").map(|(at, problem)| {
            if at.is_empty() {
                format!("the value {problem}")
            } else {
                format!("{at} {problem}")
            }
        })
    }

    /// The schema as text, for whoever has to submit such a value.
    pub(super) fn text(&self) -> String {
        self.0.to_string()
    }
}

fn check(schema: &Value, path: &mut Vec<String>) -> Result<(), String> {
    let members = match schema {
        Value::Bool(_) => return Ok(()),
        Value::Object(members) => members,
        other => return Err(format!("a schema is an object or a boolean, not {other}")),
    };
    for (keyword, value) in members {
        path.push(keyword.clone());
        check_keyword(keyword, value, path)?;
        path.pop();
    }
    Ok(())
}

fn check_keyword(keyword: &str, value: &Value, path: &mut Vec<String>) -> Result<(), String> {
    match keyword {
        "type" => {
            let is_type = |value: &Value| value.as_str().is_some_and(|name| TYPES.contains(&name));
            let fits = match value {
                Value::Array(types) => !types.is_empty() && types.iter().all(is_type),
                one => is_type(one),
            };
            fits.then_some(())
                .ok_or_else(|| format!("type is one or several of {}", TYPES.join(", ")))
        }
        "properties" => match value {
            Value::Object(members) => {
                for (name, schema) in members {
                    path.push(name.clone());
                    check(schema, path)?;
                    path.pop();
                }
                Ok(())
            }
            _ => Err("properties is an object of schemas".to_owned()),
        },
        "allOf" | "anyOf" | "oneOf" => match value {
            Value::Array(schemas) if !schemas.is_empty() => {
                for (index, schema) in schemas.iter().enumerate() {
                    path.push(index.to_string());
                    check(schema, path)?;
                    path.pop();
                }
                Ok(())
            }
            _ => Err(format!("{keyword} is a list of schemas")),
        },
        "additionalProperties" | "items" | "not" => check(value, path),
        "required" => match value {
            Value::Array(names) if names.iter().all(Value::is_string) => Ok(()),
            _ => Err("required is a list of names".to_owned()),
        },
        "enum" if !value.is_array() => Err("enum is a list of values".to_owned()),
        "minItems" | "maxItems" | "minLength" | "maxLength" if value.as_u64().is_none() => {
            Err(format!("{keyword} is a whole number from 0"))
        }
        "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" if !value.is_number() => {
            Err(format!("{keyword} is a number"))
        }
        known if KEYWORDS.contains(&known) || ANNOTATIONS.contains(&known) => Ok(()),
        unknown => Err(format!(
            "keyword {unknown:?} is not known here; known are type, {}",
            KEYWORDS.join(", ")
        )),
    }
}

/// The first thing in a value that a schema does not allow: a JSON Pointer to it, and what is wrong there. Keywords that are not known
/// here say nothing.
pub(super) fn first_problem(schema: &Value, value: &Value) -> Option<(String, String)> {
    problem(schema, value, "")
}

type Found = (String, String);

fn problem(schema: &Value, value: &Value, at: &str) -> Option<Found> {
    let found = |problem: String| Some((at.to_owned(), problem));
    let members = match schema {
        Value::Bool(false) => return found("must not be there".to_owned()),
        Value::Object(members) => members,
        _ => return None,
    };
    if let Some(types) = members.get("type")
        && !is_of_type(types, value)
    {
        let wanted = types
            .as_str()
            .map_or_else(|| types.to_string(), str::to_owned);
        return found(format!("must be of type {wanted}, not {}", short(value)));
    }
    if let Some(wanted) = members.get("const")
        && !is_equal(wanted, value)
    {
        return found(format!("must be {wanted}, not {}", short(value)));
    }
    if let Some(Value::Array(allowed)) = members.get("enum")
        && !allowed.iter().any(|wanted| is_equal(wanted, value))
    {
        let allowed: Vec<String> = allowed.iter().map(Value::to_string).collect();
        return found(format!(
            "must be one of {}, not {}",
            allowed.join(", "),
            short(value)
        ));
    }
    let inside = match value {
        Value::Object(fields) => of_object(members, fields, at),
        Value::Array(items) => of_array(members, items, at),
        Value::String(text) => within(members, ("minLength", "maxLength"), text.chars().count())
            .and_then(|problem| found(format!("{problem} characters"))),
        Value::Number(number) => number
            .as_f64()
            .and_then(|number| of_number(members, number, at)),
        Value::Null | Value::Bool(_) => None,
    };
    inside.or_else(|| combined(members, value, at))
}

fn of_object(schema: &Map<String, Value>, fields: &Map<String, Value>, at: &str) -> Option<Found> {
    let properties = schema.get("properties").and_then(Value::as_object);
    let required = schema.get("required").and_then(Value::as_array);
    // A member that is not known is told before one that is missing: it may be that one, misspelt.
    if schema.get("additionalProperties") == Some(&Value::Bool(false)) {
        let known: Vec<String> = properties
            .into_iter()
            .flat_map(|properties| properties.keys().cloned())
            .collect();
        if let Some(name) = fields.keys().find(|name| !known.contains(name)) {
            let meant = did_you_mean(name, &known)
                .map_or_else(String::new, |meant| format!("; did you mean {meant:?}?"));
            return Some((member(at, name), format!("must not be there{meant}")));
        }
    }
    for name in required.into_iter().flatten().filter_map(Value::as_str) {
        if !fields.contains_key(name) {
            return Some((at.to_owned(), format!("lacks the member {name:?}")));
        }
    }
    for (name, field) in fields {
        let at = member(at, name);
        let own = properties.and_then(|properties| properties.get(name));
        let schema = own.or_else(|| schema.get("additionalProperties"));
        if let Some(found) = schema.and_then(|schema| problem(schema, field, &at)) {
            return Some(found);
        }
    }
    None
}

/// The JSON Pointer of a member.
fn member(at: &str, name: &str) -> String {
    format!("{at}/{}", name.replace('~', "~0").replace('/', "~1"))
}

fn of_array(schema: &Map<String, Value>, items: &[Value], at: &str) -> Option<Found> {
    if let Some(problem) = within(schema, ("minItems", "maxItems"), items.len()) {
        return Some((at.to_owned(), format!("{problem} items")));
    }
    let each = schema.get("items")?;
    items
        .iter()
        .enumerate()
        .find_map(|(index, item)| problem(each, item, &format!("{at}/{index}")))
}

fn within(
    schema: &Map<String, Value>,
    (least, most): (&str, &str),
    count: usize,
) -> Option<String> {
    let bound = |keyword| schema.get(keyword).and_then(Value::as_u64);
    let count = count as u64;
    match (bound(least), bound(most)) {
        (Some(least), _) if count < least => Some(format!("must have at least {least}")),
        (_, Some(most)) if most < count => Some(format!("must have at most {most}")),
        _ => None,
    }
}

fn of_number(schema: &Map<String, Value>, number: f64, at: &str) -> Option<Found> {
    let bound = |keyword| schema.get(keyword).and_then(Value::as_f64);
    let outside = [
        (
            "minimum",
            "at least",
            bound("minimum").is_some_and(|least| number < least),
        ),
        (
            "maximum",
            "at most",
            bound("maximum").is_some_and(|most| most < number),
        ),
        (
            "exclusiveMinimum",
            "more than",
            bound("exclusiveMinimum").is_some_and(|least| number <= least),
        ),
        (
            "exclusiveMaximum",
            "less than",
            bound("exclusiveMaximum").is_some_and(|most| most <= number),
        ),
    ];
    let (keyword, words, _) = outside.into_iter().find(|(_, _, outside)| *outside)?;
    let limit = schema
        .get(keyword)
        .map(Value::to_string)
        .unwrap_or_default();
    Some((at.to_owned(), format!("must be {words} {limit}")))
}

fn combined(schema: &Map<String, Value>, value: &Value, at: &str) -> Option<Found> {
    let list = |keyword| schema.get(keyword).and_then(Value::as_array);
    let found = |problem: &str| Some((at.to_owned(), problem.to_owned()));
    for schema in list("allOf").into_iter().flatten() {
        if let Some(found) = problem(schema, value, at) {
            return Some(found);
        }
    }
    if let Some(schemas) = list("anyOf")
        && schemas
            .iter()
            .all(|schema| problem(schema, value, at).is_some())
    {
        return found("fits none of anyOf");
    }
    if let Some(schemas) = list("oneOf") {
        let fitting = schemas
            .iter()
            .filter(|schema| problem(schema, value, at).is_none())
            .count();
        let words: Vec<String> = schemas
            .iter()
            .filter_map(|schema| Some(schema.get("const")?.to_string()))
            .collect();
        if fitting == 0 && words.len() == schemas.len() {
            let words = words.join(", ");
            return found(&format!("must be one of {words}, not {}", short(value)));
        }
        if fitting != 1 {
            return found("must fit exactly one of oneOf");
        }
    }
    match schema.get("not") {
        Some(schema) if problem(schema, value, at).is_none() => found("fits what not excludes"),
        _ => None,
    }
}

fn is_of_type(types: &Value, value: &Value) -> bool {
    let fits = |name: &Value| match name.as_str() {
        Some("array") => value.is_array(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        Some("null") => value.is_null(),
        Some("number") => value.is_number(),
        Some("object") => value.is_object(),
        Some("string") => value.is_string(),
        _ => false,
    };
    match types {
        Value::Array(types) => types.iter().any(fits),
        one => fits(one),
    }
}

/// Equal as JSON: `1.0` is `1`.
fn is_equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => number_text(a) == number_text(b),
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_equal(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len()
                && a.iter()
                    .all(|(name, a)| b.get(name).is_some_and(|b| is_equal(a, b)))
        }
        (a, b) => a == b,
    }
}

/// A value, cut where a person has seen enough.
fn short(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(60) {
        None => text,
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
    }
}
