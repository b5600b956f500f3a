//! Strict reading of documents: every field is asked for by name, and one that nobody asked for is an error.

use std::collections::BTreeMap;

use serde_json::Value;

use super::invalid::Invalid;

/// The fields of one object that nobody asked for yet.
pub(super) struct Fields<'a> {
    at: String,
    rest: BTreeMap<&'a str, &'a Value>,
}

impl<'a> Fields<'a> {
    pub(super) fn of(at: impl Into<String>, value: &'a Value) -> Result<Self, Invalid> {
        let at = at.into();
        match value.as_object() {
            Some(object) => Ok(Self {
                at,
                rest: object
                    .iter()
                    .map(|(name, value)| (name.as_str(), value))
                    .collect(),
            }),
            None => Err(Invalid::Shape {
                at,
                problem: "an object is expected",
            }),
        }
    }

    pub(super) fn optional(&mut self, name: &str) -> Option<&'a Value> {
        self.rest.remove(name)
    }

    pub(super) fn value(&mut self, name: &str) -> Result<&'a Value, Invalid> {
        self.optional(name)
            .ok_or_else(|| self.shape(name, "the field is missing"))
    }

    pub(super) fn text(&mut self, name: &str) -> Result<&'a str, Invalid> {
        let value = self.value(name)?;
        value
            .as_str()
            .ok_or_else(|| self.shape(name, "a text is expected"))
    }

    pub(super) fn list(&mut self, name: &str) -> Result<&'a [Value], Invalid> {
        let value = self.value(name)?;
        match value.as_array() {
            Some(list) => Ok(list),
            None => Err(self.shape(name, "a list is expected")),
        }
    }

    /// A field that has the one text that it may have.
    pub(super) fn exactly(
        &mut self,
        name: &str,
        text: &str,
        problem: &'static str,
    ) -> Result<(), Invalid> {
        if self.text(name)? == text {
            Ok(())
        } else {
            Err(self.shape(name, problem))
        }
    }

    pub(super) fn shape(&self, name: &str, problem: &'static str) -> Invalid {
        Invalid::Shape {
            at: format!("{}.{name}", self.at),
            problem,
        }
    }

    pub(super) fn finish(self) -> Result<(), Invalid> {
        match self.rest.keys().next() {
            None => Ok(()),
            Some(field) => Err(Invalid::UnknownField {
                at: self.at,
                field: field.chars().take(100).collect(),
            }),
        }
    }
}
