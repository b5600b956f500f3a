//! Whether silence would mean yes: an automatic answer that permits something deserves a second look of its author.
//!
//! A definition does not say which of its choices permits, so that words are all there is to go by. That is enough for a warning, which
//! the author answers by saying that it is meant, and never enough to refuse anything.

use super::Deadline;
use crate::model::{Choice, Choices};

/// Words of an id or a label that permit something, in lower case.
const PERMITTING: &[&str] = &[
    "accept",
    "agree",
    "allow",
    "apply",
    "approve",
    "approved",
    "authorize",
    "confirm",
    "consent",
    "continue",
    "delete",
    "deploy",
    "execute",
    "go",
    "grant",
    "merge",
    "ok",
    "okay",
    "pay",
    "permit",
    "proceed",
    "publish",
    "release",
    "run",
    "send",
    "ship",
    "yes",
];

/// Words that turn it round: "do not ship", "no release".
const REFUSING: &[&str] = &[
    "cancel", "deny", "don", "dont", "no", "not", "reject", "stop", "without",
];

/// The warning about the automatic answer of a decision, if it deserves one. With one choice there is nothing that silence could choose.
pub(super) fn warning(deadline: &Deadline, choices: &Choices) -> Option<String> {
    let Deadline::OnTimeout(policy) = deadline else {
        return None;
    };
    let id = policy.response.get("choice")?.as_str()?;
    let choice = choices.get(id)?;
    (1 < choices.iter().len() && permits(id, choice)).then(|| {
        format!(
            "silence means yes: when nobody answers in time, the choice {id:?} ({:?}) is given, which seems to permit something; give another \
             one, or say `silenceIsConsent` if it is meant",
            choice.label
        )
    })
}

fn permits(id: &str, choice: &Choice) -> bool {
    let words: Vec<String> = [id, choice.label.as_str()]
        .into_iter()
        .flat_map(words)
        .collect();
    let has = |set: &[&str]| words.iter().any(|word| set.contains(&word.as_str()));
    has(PERMITTING) && !has(REFUSING)
}

/// The words of a text, in lower case. `shipIt` and `ship-it` are two words each.
fn words(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before_is_lower = false;
    for c in text.chars() {
        if !c.is_alphanumeric() || (before_is_lower && c.is_uppercase()) {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| c.is_alphanumeric()) {
            word.extend(c.to_lowercase());
        }
        before_is_lower = c.is_lowercase();
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_permits_is_told_from_what_does_not() {
        for (id, label, expected) in [
            ("ship", "Ship", true),
            ("a", "Yes, pay it", true),
            ("goOn", "On we go", true),
            ("go-on", "Weiter", true),
            ("keep", "Keep it as it is", false),
            ("stop", "Do not ship", false),
            ("dont", "Don't deploy", false),
            ("later", "Ask me again", false),
            ("shipping", "Cargo", false),
        ] {
            assert_eq!(permits(id, &Choice::new(label)), expected, "{id}: {label}");
        }
    }
}
