//! What a candidate answers, and whether the choices allow it. The text is kept byte for byte.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use serde_json::Value;

use super::choice::Choices;
use super::id::ChoiceId;
use super::text::units;
use super::words;

/// An answer that the choices of its decision allow, or will be asked whether they do.
///
/// Its `Debug` does not show the text.
#[derive(Clone, PartialEq, Eq, Serialize)]
pub struct Response {
    choice: ChoiceId,
    #[serde(skip_serializing_if = "Option::is_none")]
    input: Option<BTreeMap<String, String>>,
}

words! {
    /// Why a candidate is refused.
    RejectCode {
        /// The answer is no object with `choice` and perhaps `input`.
        Malformed = "malformed",
        /// There is no such choice.
        UnknownChoice = "unknownChoice",
        /// The choice asks for a text.
        MissingInput = "missingInput",
        /// The choice takes no text.
        UnexpectedInput = "unexpectedInput",
        /// The input has another key than the one that is declared.
        UnknownInput = "unknownInput",
        /// The input is no text.
        InputNotText = "inputNotText",
        /// The text is too short.
        InputTooShort = "inputTooShort",
        /// The text is too long.
        InputTooLong = "inputTooLong",
        /// Another person than the one who asked for the run has to answer.
        Requester = "requester",
        /// Another person has to answer, and the host can't tell who this one is.
        UnknownPerson = "unknownPerson",
        /// The deadline has come.
        Expired = "expired",
        /// The run is paused.
        Paused = "paused",
    }
}

impl Response {
    /// A choice without a text.
    pub fn choose(choice: ChoiceId) -> Self {
        Self {
            choice,
            input: None,
        }
    }

    /// A choice with its text.
    pub fn with_text(choice: ChoiceId, name: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            choice,
            input: Some(BTreeMap::from([(name.into(), text.into())])),
        }
    }

    /// Reads an answer and asks the choices whether it may be given.
    ///
    /// # Errors
    ///
    /// The first thing that is wrong.
    pub fn check(value: &Value, choices: &Choices) -> Result<Self, RejectCode> {
        let object = value.as_object().ok_or(RejectCode::Malformed)?;
        if object.keys().any(|key| key != "choice" && key != "input") {
            return Err(RejectCode::Malformed);
        }
        let id = object
            .get("choice")
            .and_then(Value::as_str)
            .ok_or(RejectCode::Malformed)?;
        let (Some(choice), Ok(id)) = (choices.get(id), ChoiceId::new(id)) else {
            return Err(RejectCode::UnknownChoice);
        };
        let (declared, input) = match (&choice.input, object.get("input")) {
            (None, None) => return Ok(Self::choose(id)),
            (None, Some(_)) => return Err(RejectCode::UnexpectedInput),
            (Some(_), None) => return Err(RejectCode::MissingInput),
            (Some(declared), Some(input)) => {
                (declared, input.as_object().ok_or(RejectCode::Malformed)?)
            }
        };
        if input.keys().any(|key| key != declared.name()) {
            return Err(RejectCode::UnknownInput);
        }
        let text = input.get(declared.name()).ok_or(RejectCode::MissingInput)?;
        let text = text.as_str().ok_or(RejectCode::InputNotText)?;
        let length = units(text);
        if length < declared.min_units() {
            return Err(RejectCode::InputTooShort);
        }
        if declared.max_units() < length {
            return Err(RejectCode::InputTooLong);
        }
        Ok(Self::with_text(id, declared.name(), text))
    }

    /// The choice.
    pub fn choice(&self) -> &ChoiceId {
        &self.choice
    }

    /// The text, if the choice has one.
    pub fn text(&self) -> Option<&str> {
        self.input.as_ref()?.values().next().map(String::as_str)
    }

    /// The answer as a document.
    pub fn document(&self) -> Value {
        let mut document = serde_json::Map::new();
        document.insert("choice".to_owned(), self.choice.as_str().into());
        if let Some(input) = &self.input {
            let input = input
                .iter()
                .map(|(name, text)| (name.clone(), text.as_str().into()))
                .collect();
            document.insert("input".to_owned(), Value::Object(input));
        }
        Value::Object(document)
    }
}

impl fmt::Debug for Response {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Response")
            .field("choice", &self.choice)
            .field("input", &self.input.as_ref().map(|_| "redacted"))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::{Choice, TextInput};

    fn choices() -> Choices {
        let text = TextInput::new("why", "Why?").units(2, 4);
        Choices::new([
            ("go", Choice::new("Go")),
            ("redo", Choice::new("Redo").with_text(text)),
        ])
        .unwrap()
    }

    #[test]
    fn what_may_be_answered() {
        for (answer, code) in [
            (json!({ "choice": "go" }), None),
            (json!({ "choice": "redo", "input": { "why": " \n" } }), None),
            (
                json!({ "choice": "redo", "input": { "why": "😀😀" } }),
                None,
            ),
            (
                json!({ "choice": "redo", "input": { "why": "😀😀a" } }),
                Some(RejectCode::InputTooLong),
            ),
            (
                json!({ "choice": "redo", "input": { "why": "a" } }),
                Some(RejectCode::InputTooShort),
            ),
            (
                json!({ "choice": "redo", "input": { "why": 12 } }),
                Some(RejectCode::InputNotText),
            ),
            (
                json!({ "choice": "redo", "input": { "why": "ab", "x": 1 } }),
                Some(RejectCode::UnknownInput),
            ),
            (
                json!({ "choice": "redo", "input": {} }),
                Some(RejectCode::MissingInput),
            ),
            (
                json!({ "choice": "redo", "input": "ab" }),
                Some(RejectCode::Malformed),
            ),
            (json!({ "choice": "redo" }), Some(RejectCode::MissingInput)),
            (
                json!({ "choice": "go", "input": { "why": "ab" } }),
                Some(RejectCode::UnexpectedInput),
            ),
            (json!({ "choice": "stop" }), Some(RejectCode::UnknownChoice)),
            (json!({ "choice": "" }), Some(RejectCode::UnknownChoice)),
            (json!({ "choice": 1 }), Some(RejectCode::Malformed)),
            (
                json!({ "choice": "go", "by": "me" }),
                Some(RejectCode::Malformed),
            ),
            (json!("go"), Some(RejectCode::Malformed)),
            (json!(null), Some(RejectCode::Malformed)),
        ] {
            match (Response::check(&answer, &choices()), code) {
                (Ok(response), None) => assert_eq!(response.document(), answer),
                (Err(found), Some(code)) => assert_eq!(found, code, "{answer}"),
                (found, _) => panic!("{answer}: {found:?}"),
            }
        }
    }

    #[test]
    fn the_text_is_not_in_debug() {
        let response = Response::with_text(ChoiceId::new("redo").unwrap(), "why", "secret");
        assert!(!format!("{response:?}").contains("secret"));
        assert_eq!(response.text(), Some("secret"));
    }
}
