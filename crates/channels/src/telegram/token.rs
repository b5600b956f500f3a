//! The bot's token, and the tokens that a button and a prompt carry.
//!
//! A button's token proves that this bot made the button for this request and choice: without the bot's token it can't be
//! guessed, and with another bot's token every old button is dead. It grants nothing by itself; the host judges the answer.
//!
//! Not here: any text of a token in `Debug`, an error or a log.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

/// What every callback token begins with.
pub const CALLBACK_PREFIX: &str = "pw:";

/// How many characters of the code a token keeps: 192 bits.
const CODE_CHARS: usize = 32;

/// How long a bot's token may be, in bytes.
pub const BOT_TOKEN_BYTES_MAX: usize = 256;

/// The token of a bot. Whoever has it is the bot.
///
/// `Debug` does not show it, and the memory is wiped when it is dropped.
#[derive(Clone)]
pub struct BotToken(Zeroizing<String>);

/// The text can't be a bot's token. The error does not repeat it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a bot token has 1 to {BOT_TOKEN_BYTES_MAX} letters, digits, ':', '_' or '-'")]
pub struct BotTokenError;

impl BotToken {
    /// Checks a token: it becomes a part of a URL, so that nothing but letters, digits, `:`, `_` and `-` may be in it.
    ///
    /// # Errors
    ///
    /// [`BotTokenError`], without the text.
    pub fn new(text: &str) -> Result<Self, BotTokenError> {
        let may_stand = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b':' | b'_' | b'-');
        if text.is_empty() || BOT_TOKEN_BYTES_MAX < text.len() || !text.bytes().all(may_stand) {
            return Err(BotTokenError);
        }
        Ok(Self(Zeroizing::new(text.to_owned())))
    }

    /// The text, for the URL of a request and the launch line of the child. Keep it out of everything else.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// What the button for `choice` of the request carries: 35 bytes.
    pub fn callback(&self, profile: &str, request_digest: &str, choice: &str) -> String {
        let code = self.code(&["callback", profile, request_digest, choice]);
        format!("{CALLBACK_PREFIX}{code}")
    }

    /// What a prompt for the text of `choice` carries, so that a reply to it can be told from other replies.
    pub fn reply(&self, profile: &str, request_digest: &str, choice: &str) -> String {
        self.code(&["reply", profile, request_digest, choice])
    }

    fn code(&self, words: &[&str]) -> String {
        let mut mac = match Hmac::<Sha256>::new_from_slice(self.0.as_bytes()) {
            Ok(mac) => mac,
            // HMAC takes keys of every length.
            Err(hmac::digest::InvalidLength) => unreachable!("BUG: HMAC refused a key"),
        };
        mac.update(words.join("\0").as_bytes());
        let mut code = URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes());
        code.truncate(CODE_CHARS);
        code
    }
}

impl fmt::Debug for BotToken {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("BotToken(…)")
    }
}

/// Whether two tokens are the same, in a time that does not depend on where they differ.
pub fn is_same(expected: &str, given: &str) -> bool {
    expected.as_bytes().ct_eq(given.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: &str = "sha256:eca52995d29f0509833d368a76130002c2e02d9c1fd27e903203a68f1e90c35c";

    #[test]
    fn the_vectors_of_the_reference() {
        let bot = BotToken::new("test-token").unwrap();
        let made = [
            bot.callback("ops", DIGEST, "go"),
            bot.callback("ops", DIGEST, "redo"),
            bot.reply("ops", DIGEST, "redo"),
        ];
        assert_eq!(
            made,
            [
                "pw:F52j_y8iOMtOuIsE821HN8I-90LWlELf",
                "pw:05uZhUXTNmRaRpL0mFGNrf2rBse5OPXp",
                "0TKf_dd4y1nGxSDjRGMqc0CC1GyyBqby",
            ]
        );
        assert_eq!(made[0].len(), 35);
    }

    #[test]
    fn every_input_changes_the_token() {
        let bot = BotToken::new("test-token").unwrap();
        let first = bot.callback("ops", DIGEST, "go");
        for other in [
            BotToken::new("other")
                .unwrap()
                .callback("ops", DIGEST, "go"),
            bot.callback("dev", DIGEST, "go"),
            bot.callback("ops", "sha256:0", "go"),
            bot.callback("ops", DIGEST, "stop"),
            format!("pw:{}", bot.reply("ops", DIGEST, "go")),
        ] {
            assert!(!is_same(&first, &other));
        }
        assert!(is_same(&first, &first.clone()) && !is_same(&first, &first[..34]));
    }

    #[test]
    fn a_token_fits_a_url_and_is_never_shown() {
        let secret = "12345:AAE-x_y";
        assert_eq!(
            format!("{:?}", BotToken::new(secret).unwrap()),
            "BotToken(…)"
        );
        let long = "x".repeat(BOT_TOKEN_BYTES_MAX + 1);
        for wrong in [
            "",
            " ",
            "a/b",
            "a?b",
            "a\nb",
            "ä",
            "a@b",
            "a b",
            long.as_str(),
        ] {
            assert_eq!(BotToken::new(wrong).unwrap_err(), BotTokenError);
        }
    }
}
