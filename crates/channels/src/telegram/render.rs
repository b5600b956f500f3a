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

    #[test]
    fn the_digest_of_a_text_is_that_of_the_contracts() {
        // As `printf '"Ship it?"\n' | sha256sum` has it.
        assert_eq!(
            content_digest("Ship it?"),
            "sha256:5109cc3341c896353a1614ab4a2d146bbcc9abb603751305ff6f7c47dab8a85c"
        );
    }
}
