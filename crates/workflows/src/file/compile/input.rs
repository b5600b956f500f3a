//! The input of a workflow file: its fields and its normaliser.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::{Compiler, Result};
use crate::definition::{InputNormalizer, NodeError};
use crate::file::error::did_you_mean;
use crate::file::expression::Environment;
use crate::file::format::{FieldDocument, FieldType, InputDocument, Ordered};

impl Compiler<'_> {
    /// What of `input` decides behaviour.
    pub(super) fn declared_input(&self) -> Value {
        let index = self
            .tree
            .root()
            .and_then(|root| self.tree.child(root, "input"));
        let mut declared = index.map_or(Value::Null, |index| self.tree.value(index));
        remove_descriptions(&mut declared);
        declared
    }

    /// Whether the default of each field is one of its own type.
    pub(super) fn check_defaults(
        &self,
        member: &'static str,
        code: &'static str,
        fields: &Ordered<FieldDocument>,
    ) -> Result<()> {
        for (name, field) in &fields.0 {
            if let Some(default) = &field.default
                && !fits(field.field_type, default)
            {
                let message = format!(
                    "default of {member} {name:?} must be {}",
                    type_words(field.field_type)
                );
                return self.refuse(&[member, "fields", name, "default"], code, message);
            }
        }
        Ok(())
    }

    pub(super) fn input(&self, document: InputDocument) -> Result<Option<InputNormalizer>> {
        if let Some(fields) = &document.fields {
            self.check_defaults("input", "V6", fields)?;
        }
        let normalize = document
            .normalize
            .map(|template| self.prepare(template))
            .transpose()?;
        let fields = document.fields;
        if fields.is_none() && normalize.is_none() {
            return Ok(None);
        }
        Ok(Some(Arc::new(move |given| {
            let checked = match &fields {
                None => given,
                Some(fields) => check_fields(("the input", "input", "InputError"), fields, given)?,
            };
            match &normalize {
                None => Ok(checked),
                Some(normalize) => normalize.value(&|| Environment {
                    dot: checked.clone(),
                    input: checked.clone(),
                    ..Environment::default()
                }),
            }
        })))
    }
}

/// Takes the description of each field out of a declaration: it is display only.
pub(super) fn remove_descriptions(declared: &mut Value) {
    if let Some(fields) = declared.get_mut("fields").and_then(Value::as_object_mut) {
        for field in fields.values_mut().filter_map(Value::as_object_mut) {
            field.remove("description");
        }
    }
}

/// The object with its defaults filled in; `whole`, `one` and `error` are the words for it, a member of it and a mistake.
pub(super) fn check_fields(
    (whole, one, error): (&str, &str, &str),
    fields: &Ordered<FieldDocument>,
    given: Value,
) -> std::result::Result<Value, NodeError> {
    let refuse = |message: String| Err(NodeError::named(error, message));
    let mut given = match given {
        Value::Null => Map::new(),
        Value::Object(given) => given,
        other => return refuse(format!("{whole} must be an object, not {other}")),
    };
    let names: Vec<String> = fields.0.iter().map(|(name, _)| name.clone()).collect();
    if let Some(unknown) = given.keys().find(|name| !names.contains(name)) {
        let meant = did_you_mean(unknown, &names)
            .map_or_else(String::new, |name| format!(", did you mean {name:?}?"));
        return refuse(format!(
            "unknown {one} {unknown:?}{meant}; allowed are {}",
            names.join(", ")
        ));
    }
    let mut checked = Map::new();
    for (name, field) in &fields.0 {
        match given.remove(name).or_else(|| field.default.clone()) {
            Some(value) if fits(field.field_type, &value) => {
                drop(checked.insert(name.clone(), value));
            }
            Some(value) => {
                return refuse(format!(
                    "{one} {name:?} must be {}, not {value}",
                    type_words(field.field_type)
                ));
            }
            None if field.optional => {}
            None => {
                return refuse(format!(
                    "{one} {name:?} is missing; it is {}",
                    type_words(field.field_type)
                ));
            }
        }
    }
    Ok(Value::Object(checked))
}

fn fits(field_type: FieldType, value: &Value) -> bool {
    match field_type {
        FieldType::String => value.is_string(),
        FieldType::Number => value.is_number(),
        FieldType::Integer => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        FieldType::Boolean => value.is_boolean(),
        FieldType::Array => value.is_array(),
        FieldType::Object => value.is_object(),
        FieldType::Any => true,
    }
}

fn type_words(field_type: FieldType) -> &'static str {
    match field_type {
        FieldType::String => "a string",
        FieldType::Number => "a number",
        FieldType::Integer => "an integer",
        FieldType::Boolean => "a boolean",
        FieldType::Array => "an array",
        FieldType::Object => "an object",
        FieldType::Any => "any value",
    }
}
