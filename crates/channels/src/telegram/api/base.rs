//! Where the Bot API is: the provider itself, a server of one's own, or one that plays it on this machine.

use std::fmt;
use std::net::IpAddr;

use ureq::http::Uri;
use zeroize::Zeroizing;

use super::super::token::BotToken;

/// The provider's own address.
const TELEGRAM: &str = "https://api.telegram.org";

/// The address that the methods of the Bot API begin with.
///
/// ```
/// use holdpoint_channels::telegram::ApiBase;
///
/// assert_eq!(ApiBase::default().to_string(), "https://api.telegram.org");
/// assert!(ApiBase::new("http://127.0.0.1:8081").is_ok());
/// assert!(ApiBase::new("http://bots.example.org").is_err()); // The token would cross the network in the clear.
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiBase(String);

/// The address can't be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ApiBaseError {
    /// It is not `scheme://host` or `scheme://host:port`.
    #[error("the address of a Bot API is https://HOST[:PORT], without user, path or query")]
    Shape,
    /// It would send the token unprotected to another machine.
    #[error(
        "the address of a Bot API without TLS must be on this machine (127.0.0.1, [::1] or localhost)"
    )]
    Unprotected,
}

impl ApiBase {
    /// Checks an address: `https`, or `http` on this machine.
    ///
    /// # Errors
    ///
    /// [`ApiBaseError`].
    pub fn new(text: &str) -> Result<Self, ApiBaseError> {
        let Ok(uri) = text.parse::<Uri>() else {
            return Err(ApiBaseError::Shape);
        };
        let authority = uri.authority().ok_or(ApiBaseError::Shape)?;
        if authority.as_str().contains('@') || uri.path() != "/" || uri.query().is_some() {
            return Err(ApiBaseError::Shape);
        }
        // The parser takes the scheme in any case of its letters, and gives it back in small ones.
        match uri.scheme_str() {
            Some("https") => {}
            Some("http") if is_this_machine(authority.host()) => {}
            Some("http") => return Err(ApiBaseError::Unprotected),
            _ => return Err(ApiBaseError::Shape),
        }
        Ok(Self(format!(
            "{}://{authority}",
            uri.scheme_str().unwrap_or_default()
        )))
    }

    /// Whether what is sent there is protected on its way.
    pub(super) fn has_tls(&self) -> bool {
        self.0.starts_with("https:")
    }

    /// The address of one method. It holds the token: it goes to the transport and is wiped.
    pub(super) fn method_url(&self, token: &BotToken, method: &str) -> Zeroizing<String> {
        Zeroizing::new(format!("{}/bot{}/{method}", self.0, token.expose()))
    }
}

impl Default for ApiBase {
    fn default() -> Self {
        Self(TELEGRAM.to_owned())
    }
}

impl fmt::Display for ApiBase {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

fn is_this_machine(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    bare == "localhost"
        || bare
            .parse::<IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_never_crosses_the_network_in_the_clear() {
        for right in [
            "https://api.telegram.org",
            "https://bots.example.org:8443/",
            "http://127.0.0.1:1",
            "http://127.3.2.1",
            "http://[::1]:8081",
            "http://localhost:8081",
        ] {
            assert!(ApiBase::new(right).is_ok(), "{right}");
        }
        for remote in [
            "http://api.telegram.org",
            "http://10.0.0.1:80",
            "http://[2001:db8::1]",
            "http://127.0.0.1.example.org",
            "http://localhost.example.org",
        ] {
            assert_eq!(
                ApiBase::new(remote),
                Err(ApiBaseError::Unprotected),
                "{remote}"
            );
        }
        for wrong in [
            "",
            "api.telegram.org",
            "ftp://127.0.0.1",
            "https://user@host",
            "http://127.0.0.1@example.org",
            "https://host/path",
            "https://host?query",
            "file:///etc/passwd",
        ] {
            assert_eq!(ApiBase::new(wrong), Err(ApiBaseError::Shape), "{wrong}");
        }
    }

    #[test]
    fn the_address_of_a_method() {
        let token = BotToken::new("1:x").unwrap();
        let base = ApiBase::new("http://127.0.0.1:8081/").unwrap();
        assert_eq!(
            base.method_url(&token, "getMe").as_str(),
            "http://127.0.0.1:8081/bot1:x/getMe"
        );
    }
}
