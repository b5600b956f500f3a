//! How a decision looks in a chat: plain text in document order, cut into parts, and the buttons below the last of them. Pure.
//!
//! The text is that of the decisions domain, which counted its parts before the request became pending. Every child gets the same bytes:
//! a part that was confirmed is known by the digest of its text.
//!
//! Not here: who sees it, and sending it.

use holdpoint_decisions::document::parts;
use holdpoint_state::Digest;
use serde_json::Value;

use super::api::Button;
use super::split::{self, Part, TooManyParts};
use super::token::BotToken;
use crate::protocol::{ChannelRequest, OpenRequest};

/// The messages that show a request, the same for every recipient.
///
/// # Errors
///
/// [`TooManyParts`]: nothing of it may be sent, and nothing may wait for its answer.
pub fn render(request: &ChannelRequest) -> Result<Vec<Part>, TooManyParts> {
    parts::parts(request)
}

/// The buttons of a request, one for each choice.
pub(crate) fn buttons(request: &OpenRequest, profile: &str, bot: &BotToken) -> Vec<Button> {
    let button = |(id, choice): (&String, &crate::protocol::Choice)| Button {
        text: split::without_controls(&choice.label),
        data: bot.callback(profile, &request.request_digest, id),
    };
    request.choices.iter().map(button).collect()
}

/// What stands before the token in a prompt.
pub(crate) const REPLY_TOKEN: &str = "Reply token: ";

/// The message that asks for a text: the prompt, as much of it as fits, and the token by which a reply is known.
pub(crate) fn prompt(prompt: &str, token: &str) -> String {
    let room = split::MESSAGE_UNITS_MAX - 1 - REPLY_TOKEN.len() - token.len();
    let mut text = String::new();
    let mut used = 0;
    for letter in split::without_controls(prompt).chars() {
        used += letter.len_utf16();
        if room < used {
            break;
        }
        text.push(letter);
    }
    text.push('\n');
    text.push_str(REPLY_TOKEN);
    text.push_str(token);
    text
}

/// The digest of a part's text, as the contracts write it.
pub fn content_digest(text: &str) -> String {
    let canonical = holdpoint_state::json::canonical(&Value::from(text));
    // A Rust string has no lone surrogate, which is all that a canonical string may refuse.
    let mut bytes = canonical.unwrap_or_default();
    bytes.push(b'\n');
    format!("sha256:{}", Digest::of(&bytes).to_hex())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telegram::split::{MESSAGE_UNITS_MAX, units};

    #[test]
    fn a_prompt_fits_a_message_with_its_whole_token() {
        let token = "0TKf_dd4y1nGxSDjRGMqc0CC1GyyBqby";
        let end = format!("\nReply token: {token}");
        assert_eq!(prompt("Why?", token), format!("Why?{end}"));
        for long in [
            "x".repeat(5_000),
            "🚦".repeat(5_000),
            format!("x{}", "🚦".repeat(5_000)),
        ] {
            let text = prompt(&long, token);
            assert!(text.ends_with(&end));
            assert!((MESSAGE_UNITS_MAX - 1..=MESSAGE_UNITS_MAX).contains(&units(&text)));
            assert!(long.starts_with(text.strip_suffix(&end).unwrap()));
        }
        assert_eq!(
            prompt("a\u{1b}[2J\r\n", token),
            format!("a\u{fffd}[2J\u{fffd}\n{end}")
        );
    }

    /// Every character that turns the direction of writing, hides, or drives a screen.
    const OBEYED: &str = "\u{202e}\u{202a}\u{2066}\u{2069}\u{200e}\u{200f}\u{61c}\u{200b}\u{2028}\u{feff}\u{e0041}\u{9b}\u{1b}\u{0}";

    #[test]
    fn a_label_and_a_prompt_order_nothing_of_a_screen() {
        let bot = BotToken::new("1:x").unwrap();
        let request = OpenRequest {
            decision_id: "decision-1".to_owned(),
            request_digest: "sha256:0".to_owned(),
            choices: [(
                "go".to_owned(),
                crate::protocol::Choice {
                    label: format!("Don't{OBEYED} ship"),
                    input: None,
                },
            )]
            .into(),
        };
        let inert = "\u{fffd}".repeat(OBEYED.chars().count());
        let shown = buttons(&request, "ops", &bot);
        assert_eq!(shown[0].text, format!("Don't{inert} ship"));
        let asked = prompt(&format!("Why{OBEYED}?"), "token");
        assert_eq!(asked, format!("Why{inert}?\nReply token: token"));
        // What joins letters and pictures is text.
        let joined = "👩\u{200d}👩\u{200d}👧 می\u{200c}خواهم ❤\u{fe0f}";
        assert!(prompt(joined, "token").starts_with(joined));
    }

    #[test]
    fn the_digest_of_a_text_is_that_of_the_contracts() {
        // As `printf '"Ship it?"\n' | sha256sum` has it.
        assert_eq!(
            content_digest("Ship it?"),
            "sha256:5109cc3341c896353a1614ab4a2d146bbcc9abb603751305ff6f7c47dab8a85c"
        );
    }
}
