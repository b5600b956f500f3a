//! The closed set of error words. No description of a provider and no address is ever stored or shown.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Why something did not succeed: the only words about a provider that are stored or shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorCode {
    /// The provider refused with this HTTP status: provably not done.
    TelegramHttp(u16),
    /// The provider answered `ok: false` without a telling status: provably not done.
    TelegramRejected,
    /// Nothing was sent: no name, no connection, no TLS. Provably not done.
    TelegramUnreachable,
    /// The answer is lost: it may have been done.
    TelegramResponseUnknown,
    /// A confirmed part differs from the rendering: never sent over.
    TelegramPartEvidenceMismatch,
    /// The provider does not know the token (401 or 404): the profile stops.
    TelegramTokenRefused,
    /// Another consumer reads this bot's updates (409).
    TelegramConflict,
    /// The document can't be shown within the limits of the provider.
    PresentationTooLong,
    /// The adapter ended with this attempt in flight.
    AdapterExited,
    /// The host ended with this attempt in flight.
    HostRestarted,
}

impl ErrorCode {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("telegram_rejected", Self::TelegramRejected),
        ("telegram_unreachable", Self::TelegramUnreachable),
        ("telegram_response_unknown", Self::TelegramResponseUnknown),
        (
            "telegram_part_evidence_mismatch",
            Self::TelegramPartEvidenceMismatch,
        ),
        ("telegram_token_refused", Self::TelegramTokenRefused),
        ("telegram_conflict", Self::TelegramConflict),
        ("presentation_too_long", Self::PresentationTooLong),
        ("adapter_exited_without_receipt", Self::AdapterExited),
        ("host_restarted_without_receipt", Self::HostRestarted),
    ];

    /// Reads the word.
    pub fn from_text(text: &str) -> Option<Self> {
        if let Some(status) = text.strip_prefix("telegram_http_") {
            let code = Self::TelegramHttp(status.parse().ok()?);
            return (code.to_string() == text && code.is_in_range()).then_some(code);
        }
        Self::WORDS
            .iter()
            .find(|(word, _)| *word == text)
            .map(|(_, code)| *code)
    }

    fn is_in_range(self) -> bool {
        !matches!(self, Self::TelegramHttp(status) if !(100..600).contains(&status))
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::TelegramHttp(status) = self {
            return write!(formatter, "telegram_http_{status}");
        }
        let word = Self::WORDS
            .iter()
            .find(|(_, code)| code == self)
            .map_or("", |(word, _)| *word);
        formatter.write_str(word)
    }
}

impl Serialize for ErrorCode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ErrorCode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::from_text(&text)
            .ok_or_else(|| serde::de::Error::custom("an error code is a word of a closed set"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_read_as_it_is_written() {
        for (word, code) in ErrorCode::WORDS {
            assert_eq!(code.to_string(), *word);
            assert_eq!(ErrorCode::from_text(word), Some(*code));
        }
        assert_eq!(
            ErrorCode::from_text("telegram_http_429"),
            Some(ErrorCode::TelegramHttp(429))
        );
        for wrong in [
            "",
            "telegram_http_",
            "telegram_http_+42",
            "telegram_http_99",
            "telegram_http_600",
            "Bad Request: chat not found",
        ] {
            assert_eq!(ErrorCode::from_text(wrong), None, "{wrong}");
        }
    }
}
