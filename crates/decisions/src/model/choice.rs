//! Choices: a stable id, a label, and at most one text that a person writes.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use super::fields::Fields;
use super::id::{ChoiceId, is_name};
use super::invalid::Invalid;
use super::text::{self, Lines};

/// How long a text may be unless a choice says otherwise, in UTF-16 code units.
const ANSWER_UNITS_MAX: u64 = 4_000;
/// How short, likewise.
const ANSWER_UNITS_MIN: u64 = 1;

/// One choice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Choice {
    /// What a person reads on its button.
    pub label: String,
    /// The text that belongs to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<TextInput>,
}

/// The text that a person writes with a choice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TextInput {
    kind: TextKind,
    name: String,
    prompt: String,
    min_length: u64,
    max_length: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
enum TextKind {
    Text,
}

impl Choice {
    /// A choice without a text.
    pub fn new(label: impl Into<String>) -> Self {
        Self {
            label: label.into(),
            input: None,
        }
    }

    /// The same with a text.
    #[must_use]
    pub fn with_text(mut self, input: TextInput) -> Self {
        self.input = Some(input);
        self
    }

    fn read(at: &str, value: &Value) -> Result<Self, Invalid> {
        let mut fields = Fields::of(at, value)?;
        let label = fields.text("label")?.to_owned();
        let input = fields
            .optional("input")
            .map(|input| TextInput::read(&format!("{at}.input"), input))
            .transpose()?;
        fields.finish()?;
        Ok(Self { label, input })
    }
}

impl TextInput {
    /// A text of 1 to 4,000 UTF-16 code units.
    pub fn new(name: impl Into<String>, prompt: impl Into<String>) -> Self {
        Self {
            kind: TextKind::Text,
            name: name.into(),
            prompt: prompt.into(),
            min_length: ANSWER_UNITS_MIN,
            max_length: ANSWER_UNITS_MAX,
        }
    }

    /// The same with other limits, in UTF-16 code units.
    #[must_use]
    pub fn units(mut self, least: u64, most: u64) -> Self {
        (self.min_length, self.max_length) = (least, most);
        self
    }

    /// The name of the text in the answer.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What a person is asked for.
    pub fn prompt(&self) -> &str {
        &self.prompt
    }

    /// The shortest text, in UTF-16 code units.
    pub fn min_units(&self) -> u64 {
        self.min_length
    }

    /// The longest text, in UTF-16 code units.
    pub fn max_units(&self) -> u64 {
        self.max_length
    }

    fn read(at: &str, value: &Value) -> Result<Self, Invalid> {
        let mut fields = Fields::of(at, value)?;
        fields.exactly("kind", "text", "only a text can be asked for")?;
        let input = Self::new(fields.text("name")?, fields.text("prompt")?);
        let mut units = |name: &str, otherwise: u64| match fields.optional(name) {
            None => Ok(otherwise),
            Some(value) => value
                .as_u64()
                .ok_or_else(|| fields.shape(name, "a whole number from 0 is expected")),
        };
        let (least, most) = (
            units("minLength", ANSWER_UNITS_MIN)?,
            units("maxLength", ANSWER_UNITS_MAX)?,
        );
        fields.finish()?;
        Ok(input.units(least, most))
    }

    fn check(&self, at: &str) -> Result<(), Invalid> {
        if !is_name(&self.name) {
            return Err(Invalid::Name {
                what: "text input",
                rule: "1 to 128 letters, digits, `_` and `-`, the first one a letter or `_`",
            });
        }
        text::check(&|| format!("{at}.input.prompt"), &self.prompt, Lines::One)?;
        if self.max_length < 1 || self.max_length < self.min_length {
            return Err(Invalid::AnswerLimits {
                at: at.to_owned(),
                least: self.min_length,
                most: self.max_length,
            });
        }
        Ok(())
    }
}

/// The choices of a decision, in the order in which they are shown: that of the code units of their ids. The order in which an author
/// wrote them is lost in the canonical form.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Choices(BTreeMap<ChoiceId, Choice>);

impl Choices {
    /// Checks choices.
    ///
    /// # Errors
    ///
    /// [`Invalid`]: none at all, an id or label that can't be taken, two labels that are the same.
    pub fn new<I: Into<String>>(
        choices: impl IntoIterator<Item = (I, Choice)>,
    ) -> Result<Self, Invalid> {
        let mut all = BTreeMap::new();
        for (id, choice) in choices {
            let id = ChoiceId::new(id)?;
            let at = format!("choices.{id}");
            text::check(&|| format!("{at}.label"), &choice.label, Lines::One)?;
            if let Some(input) = &choice.input {
                input.check(&at)?;
            }
            if all
                .values()
                .any(|other: &Choice| other.label == choice.label)
            {
                return Err(Invalid::SameLabel {
                    label: choice.label,
                });
            }
            all.insert(id, choice);
        }
        if all.is_empty() {
            return Err(Invalid::NoChoice);
        }
        Ok(Self(all))
    }

    /// Reads the object whose keys are the ids.
    ///
    /// # Errors
    ///
    /// [`Invalid`].
    pub fn read(value: &Value) -> Result<Self, Invalid> {
        let Some(object) = value.as_object() else {
            return Err(Invalid::Shape {
                at: "choices".to_owned(),
                problem: "an object is expected",
            });
        };
        let mut choices = Vec::with_capacity(object.len());
        for (id, choice) in object {
            choices.push((id.as_str(), Choice::read(&format!("choices.{id}"), choice)?));
        }
        Self::new(choices)
    }

    /// One choice.
    pub fn get(&self, id: &str) -> Option<&Choice> {
        self.0.get(id)
    }

    /// All of them, in the order in which they are shown.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&ChoiceId, &Choice)> {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn choices_are_shown_in_the_order_of_their_ids() {
        let choices = Choices::new([("b", Choice::new("B")), ("a", Choice::new("A"))]).unwrap();
        let ids: Vec<_> = choices.iter().map(|(id, _)| id.as_str()).collect();
        assert_eq!(ids, ["a", "b"]);
        let again = Choices::read(&serde_json::to_value(&choices).unwrap());
        assert_eq!(again, Ok(choices));
    }

    #[test]
    fn each_mistake_has_its_error() {
        let mut said = Vec::new();
        for choices in [
            json!({}),
            json!([]),
            json!({ "2": { "label": "x" } }),
            json!({ "a": { "label": " " } }),
            json!({ "a": { "label": "x\ny" } }),
            json!({ "a": { "label": "x" }, "b": { "label": "x" } }),
            json!({ "a": { "label": "x", "style": 1 } }),
            json!({ "a": { "label": "x", "input": { "kind": "number", "name": "n", "prompt": "p" } } }),
            json!({ "a": { "label": "x", "input": { "kind": "text", "name": "", "prompt": "p" } } }),
            json!({ "a": { "label": "x", "input": { "kind": "text", "name": "n", "prompt": "" } } }),
            json!({ "a": { "label": "x", "input": { "kind": "text", "name": "n", "prompt": "p", "minLength": -1 } } }),
            json!({ "a": { "label": "x", "input": { "kind": "text", "name": "n", "prompt": "p", "maxLength": 0, "minLength": 0 } } }),
            json!({ "a": { "label": "x", "input": { "kind": "text", "name": "n", "prompt": "p", "minLength": 5, "maxLength": 4 } } }),
        ] {
            said.push(Choices::read(&choices).unwrap_err().to_string());
        }
        insta::assert_snapshot!(said.join("\n"), @r#"
        a decision has at least one choice
        choices: an object is expected
        a choice id is 1 to 128 letters, digits, `_` and `-`, the first one a letter or `_`
        choices.a.label is blank
        choices.a.label holds the control character U+000A
        two choices have the same label "x"
        choices.a has the unknown field "style"
        choices.a.input.kind: only a text can be asked for
        a text input is 1 to 128 letters, digits, `_` and `-`, the first one a letter or `_`
        choices.a.input.prompt is blank
        choices.a.input.minLength: a whole number from 0 is expected
        choices.a: an answer of 0 to 0 UTF-16 code units can't be given
        choices.a: an answer of 5 to 4 UTF-16 code units can't be given
        "#);
        let defaults = json!({ "a": { "label": "x", "input": { "kind": "text", "name": "n", "prompt": "p" } } });
        let input = Choices::read(&defaults)
            .unwrap()
            .get("a")
            .unwrap()
            .input
            .clone()
            .unwrap();
        assert_eq!((input.min_units(), input.max_units()), (1, 4_000));
    }
}
