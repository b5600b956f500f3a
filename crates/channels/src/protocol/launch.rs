//! The first line on the child's standard input: the one place where a token leaves the host's memory.

use std::fmt;

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::checks::{self, is_name, is_numeric, require};
use super::{LAUNCH_SCHEMA, ProtocolError};

/// A provider's token. It is wiped on drop, and neither `Debug` nor an error shows it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(Zeroizing<String>);

impl Token {
    /// Takes a token over; none when it is empty, or has a blank or a control character, which no token has.
    pub fn new(text: Zeroizing<String>) -> Option<Self> {
        let fits = !text.is_empty()
            && !text
                .chars()
                .any(|letter| letter.is_whitespace() || letter.is_control());
        fits.then_some(Self(text))
    }

    /// The secret itself, for the provider's client and for nobody else.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Token(redacted)")
    }
}

/// What a child needs to speak for one profile, and nothing of any other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    /// Names this one process; fences all its messages.
    pub adapter_epoch: String,
    /// The profile.
    pub profile: String,
    /// The provider's token.
    pub token: Token,
    /// Who may answer; an empty list means nobody.
    pub allowed_user_ids: Vec<String>,
    /// Where it is shown, in the order in which it is sent.
    pub allowed_chat_ids: Vec<String>,
    /// Another address of the provider's API, for a server that plays it.
    pub api_base: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Wire {
    #[serde(skip_serializing_if = "Option::is_none")]
    schema: Option<String>,
    adapter_epoch: String,
    profile: String,
    token: String,
    allowed_user_ids: Vec<String>,
    allowed_chat_ids: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    api_base: Option<String>,
}

impl Launch {
    /// The line, wiped on drop.
    ///
    /// # Errors
    ///
    /// [`ProtocolError`] for a field that the child would refuse.
    pub fn to_line(&self) -> Result<Zeroizing<Vec<u8>>, ProtocolError> {
        self.check()?;
        let mut wire = Wire {
            schema: Some(LAUNCH_SCHEMA.to_owned()),
            adapter_epoch: self.adapter_epoch.clone(),
            profile: self.profile.clone(),
            token: self.token.expose().to_owned(),
            allowed_user_ids: self.allowed_user_ids.clone(),
            allowed_chat_ids: self.allowed_chat_ids.clone(),
            api_base: self.api_base.clone(),
        };
        let line = super::write(&wire).map(Zeroizing::new);
        zeroize::Zeroize::zeroize(&mut wire.token);
        line
    }

    /// Reads the line.
    ///
    /// # Errors
    ///
    /// [`ProtocolError`]; it never repeats the line.
    pub fn from_line(line: &[u8]) -> Result<Self, ProtocolError> {
        let wire: Wire = super::read(line, LAUNCH_SCHEMA)?.rest("the launch line")?;
        let launch = Self {
            adapter_epoch: wire.adapter_epoch,
            profile: wire.profile,
            token: Token::new(Zeroizing::new(wire.token))
                .ok_or(ProtocolError::Field { what: "token" })?,
            allowed_user_ids: wire.allowed_user_ids,
            allowed_chat_ids: wire.allowed_chat_ids,
            api_base: wire.api_base,
        };
        launch.check()?;
        Ok(launch)
    }

    fn check(&self) -> Result<(), ProtocolError> {
        checks::id("adapterEpoch", &self.adapter_epoch)?;
        require("profile", is_name(&self.profile))?;
        require(
            "allowedUserIds",
            self.allowed_user_ids.iter().all(|id| is_numeric(id)),
        )?;
        require(
            "allowedChatIds",
            self.allowed_chat_ids.iter().all(|id| is_numeric(id)),
        )?;
        let is_http = |base: &str| base.starts_with("http://") || base.starts_with("https://");
        require("apiBase", self.api_base.as_deref().is_none_or(is_http))
    }
}
