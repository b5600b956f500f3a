//! Names of things: the resource that a command changes, digests, and the text newtypes of public ids.
//!
//! Every id newtype of every domain is made by [`text_id!`](crate::text_id), so that they all behave the same. Not here: the
//! database keys behind the names; those never leave the `records` rooms.

use std::fmt;

use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSql, ToSqlOutput, ValueRef};
#[doc(hidden)]
pub use serde;
use sha2::{Digest as _, Sha256};

/// Makes a text newtype for a public id, with `Display`, serde, and SQL conversions.
///
/// The value is opaque text. A domain that restricts the form of its ids checks it in its own constructor.
///
/// ```
/// holdpoint_state::text_id! {
///     /// Names one order.
///     pub struct OrderId;
/// }
/// assert_eq!(OrderId::from("order-1").as_str(), "order-1");
/// ```
#[macro_export]
macro_rules! text_id {
    ($(#[$meta:meta])* $visibility:vis struct $name:ident;) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        $visibility struct $name(String);
        $crate::text_id!(@impls $name);
    };
    (@impls $name:ident) => {
        impl $name {
            /// The id as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.to_owned())
            }
        }
        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text)
            }
        }
        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }
        impl std::fmt::Display for $name {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str(&self.0)
            }
        }
        impl $crate::id::serde::Serialize for $name {
            fn serialize<S: $crate::id::serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }
        impl<'de> $crate::id::serde::Deserialize<'de> for $name {
            fn deserialize<D: $crate::id::serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                <String as $crate::id::serde::Deserialize>::deserialize(deserializer).map(Self)
            }
        }
        impl $crate::sql::ToSql for $name {
            fn to_sql(&self) -> Result<$crate::sql::ToSqlOutput<'_>, $crate::sql::SqlError> {
                Ok($crate::sql::ToSqlOutput::from(self.0.as_str()))
            }
        }
        impl $crate::sql::FromSql for $name {
            fn column_result(value: $crate::sql::ValueRef<'_>) -> $crate::sql::FromSqlResult<Self> {
                value.as_str().map(Self::from)
            }
        }
    };
}

text_id! {
    /// Names one resource: its type, a dash, and 40 hex digits of a digest over type and key.
    ///
    /// It is derived, so that a retry meets its earlier self; [`Resource::id`] gives it.
    pub struct ResourceId;
}

text_id! {
    /// Names one effect: `effect-` and 40 hex digits of a digest over its natural key. Stable over all attempts, and what a
    /// provider gets as its idempotency token.
    pub struct EffectId;
}

text_id! {
    /// Names one event for ever: `event-` and a UUID.
    pub struct EventId;
}

impl EffectId {
    /// The 20 bytes behind the prefix; none when the text is not an effect id.
    pub(crate) fn bytes_of(text: &str) -> Option<[u8; 20]> {
        let digits = text.strip_prefix("effect-")?;
        if digits.len() != 40
            || !digits
                .bytes()
                .all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
        {
            return None;
        }
        let mut bytes = [0; 20];
        for (byte, pair) in bytes.iter_mut().zip(digits.as_bytes().chunks_exact(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
        }
        Some(bytes)
    }

    /// The id whose bytes these are.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        let mut text = String::with_capacity(47);
        text.push_str("effect-");
        push_hex(&mut text, bytes.iter());
        Self(text)
    }
}

/// One mutable thing: its type, which never changes, and its natural key, which is unique within the type.
///
/// A resource is only a name. Having one gives no right to change what it names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resource {
    kind: &'static str,
    key: String,
}

impl Resource {
    /// Names the resource of type `kind` with the natural key `key`.
    ///
    /// `kind` must be a resource type of a composed domain; a command on another one is refused.
    pub fn new(kind: &'static str, key: impl Into<String>) -> Self {
        Self {
            kind,
            key: key.into(),
        }
    }

    /// The resource type, such as `run`.
    pub fn kind(&self) -> &'static str {
        self.kind
    }

    /// The natural key within the type.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The public id: the type, a dash, and 40 hex digits of SHA-256 over type, NUL, key.
    pub fn id(&self) -> ResourceId {
        derived_id(self.kind, &[self.kind, &self.key]).into()
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.kind, self.key)
    }
}

/// A deterministic id: `prefix`, a dash, and the first 40 hex digits of SHA-256 over the parts joined by NUL.
///
/// Used wherever a retry must meet its earlier self.
pub fn derived_id(prefix: &str, parts: &[&str]) -> String {
    let mut hasher = Sha256::new();
    for (index, part) in parts.iter().enumerate() {
        if index > 0 {
            hasher.update([0]);
        }
        hasher.update(part.as_bytes());
    }
    let digest: [u8; 32] = hasher.finalize().into();
    let mut id = String::with_capacity(prefix.len() + 41);
    id.push_str(prefix);
    id.push('-');
    push_hex(&mut id, digest.iter().take(20));
    id
}

/// A new random id: `prefix`, a dash, and a UUIDv7, so that ids sort by the time they were made.
pub fn random_id(prefix: &str) -> String {
    format!("{prefix}-{}", uuid::Uuid::now_v7())
}

/// A SHA-256 digest: 32 bytes. Shown and serialised as 64 hex digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// The digest of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// 64 lower-case hex digits.
    pub fn to_hex(self) -> String {
        let mut text = String::with_capacity(64);
        push_hex(&mut text, self.0.iter());
        text
    }

    /// Reads 64 hex digits, with or without a leading `sha256:`.
    pub fn from_hex(text: &str) -> Option<Self> {
        let text = text.strip_prefix("sha256:").unwrap_or(text);
        // Asked here, because `from_str_radix` takes a sign for a digit.
        if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            let pair = std::str::from_utf8(pair).ok()?;
            *byte = u8::from_str_radix(pair, 16).ok()?;
        }
        Some(Self(bytes))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.to_hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Digest({self})")
    }
}

impl serde::Serialize for Digest {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Digest {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <String as serde::Deserialize>::deserialize(deserializer)?;
        Self::from_hex(&text)
            .ok_or_else(|| serde::de::Error::custom("a SHA-256 digest is 64 hex digits"))
    }
}

impl ToSql for Digest {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(ValueRef::Blob(&self.0)))
    }
}

impl FromSql for Digest {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let bytes = value.as_blob()?;
        match bytes.try_into() {
            Ok(digest) => Ok(Self(digest)),
            Err(_) => Err(FromSqlError::InvalidBlobSize {
                expected_size: 32,
                blob_size: bytes.len(),
            }),
        }
    }
}

fn push_hex<'a>(text: &mut String, bytes: impl Iterator<Item = &'a u8>) {
    const DIGITS: [char; 16] = [
        '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f',
    ];
    for byte in bytes {
        for nibble in [byte >> 4, byte & 15] {
            text.extend(DIGITS.get(usize::from(nibble)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resource_ids_follow_the_effects_reference() {
        let run = Resource::new("run", "run-1");
        assert_eq!(
            run.id().as_str(),
            "run-66e4f52214380b24dd04f707af100e5afe8d5297"
        );
        let key = "node-2acb586bb4bdb96c94001dfb398fc50e2bc34e0a";
        assert_eq!(
            derived_id("effect", &[run.id().as_str(), "preview.deploy", key]),
            "effect-0888134611ece2d2f7c744d542691757348b0ab6"
        );
    }

    #[test]
    fn digests_read_what_they_show() {
        let digest = Digest::of(b"holdpoint");
        assert_eq!(Digest::from_hex(&digest.to_hex()), Some(digest));
        assert_eq!(Digest::from_hex(&format!("sha256:{digest}")), Some(digest));
        assert_eq!(Digest::from_hex("12"), None);
        assert_eq!(Digest::from_hex(&"zz".repeat(32)), None);
        assert_eq!(Digest::from_hex(&"+1".repeat(32)), None);
    }
}
