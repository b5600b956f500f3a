//! Values inside documents: shown as they are while small, referred to when large, and never taken for what they are not.

use base64::Engine as _;
use holdpoint_state::Digest;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::schema;

/// The largest value that is shown in its document, in bytes of canonical JSON or text; a larger one becomes a reference.
pub const INLINE_BYTES: u64 = 16 * 1024;
/// How many bytes of a content one chunk has at most.
pub const CHUNK_BYTES: usize = 192 * 1024;

const ARTIFACT: &str = "$artifact";
const ESCAPED: &str = "$escaped";

/// What is at a place of user data in a document: the value, escaped, or a reference to it.
///
/// Only this room makes one, so that a document holds neither a value which looks like a reference nor one that is too large.
///
/// ```
/// use holdpoint_viewer::documents::Shown;
/// use serde_json::json;
///
/// let looks_like_one = Shown::value(json!({ "$artifact": 1 }));
/// assert_eq!(serde_json::to_value(looks_like_one)?, json!({ "$escaped": { "$artifact": 1 } }));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Shown(Value);

impl Shown {
    /// Nothing.
    pub const NULL: Self = Self(Value::Null);

    /// A value that is small, escaped.
    pub fn value(value: Value) -> Self {
        Self(escape(value))
    }

    /// A text that is small.
    pub fn text(text: impl Into<String>) -> Self {
        Self(Value::String(text.into()))
    }

    /// A reference to a value.
    pub fn reference(reference: &Reference) -> Self {
        Self(reference.to_json())
    }

    /// As it is in the document.
    pub fn as_json(&self) -> &Value {
        &self.0
    }

    /// A value some of whose parts were replaced already, each escaped on its own.
    pub(crate) fn prepared(value: Value) -> Self {
        Self(value)
    }
}

/// Wraps each object whose only member would make it look like a reference or like a wrapper, at every depth.
pub fn escape(value: Value) -> Value {
    match value {
        Value::Array(items) => Value::Array(items.into_iter().map(escape).collect()),
        Value::Object(members) => {
            let members: Map<String, Value> = members
                .into_iter()
                .map(|(name, value)| (name, escape(value)))
                .collect();
            let looks_special = is_special(&members);
            let object = Value::Object(members);
            if looks_special {
                Value::Object(Map::from_iter([(ESCAPED.to_owned(), object)]))
            } else {
                object
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value,
    }
}

/// Takes away what [`escape`] wrapped, as the client does: the members of an object that was wrapped are ordinary.
pub fn unescape(value: Value) -> Value {
    match value {
        Value::Array(items) => Value::Array(items.into_iter().map(unescape).collect()),
        Value::Object(mut members) => {
            if members.len() == 1
                && let Some(Value::Object(inner)) = members.get_mut(ESCAPED)
            {
                members = std::mem::take(inner);
            }
            let members = members.into_iter();
            Value::Object(
                members
                    .map(|(name, value)| (name, unescape(value)))
                    .collect(),
            )
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value,
    }
}

fn is_special(members: &Map<String, Value>) -> bool {
    members.len() == 1 && (members.contains_key(ARTIFACT) || members.contains_key(ESCAPED))
}

/// Where a content is found: by its digest and whether it is JSON or text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContentPath {
    /// SHA-256 of the content.
    pub digest: Digest,
    /// Whether it is JSON; otherwise it is text.
    pub is_json: bool,
}

impl ContentPath {
    /// Reads `artifacts/sha256/<hex>.json` or `….txt`; nothing else is a path.
    pub fn parse(path: &str) -> Option<Self> {
        let name = path.strip_prefix("artifacts/sha256/")?;
        let (hex, is_json) = match name.strip_suffix(".json") {
            Some(hex) => (hex, true),
            None => (name.strip_suffix(".txt")?, false),
        };
        let digest = Digest::from_hex(hex)?;
        // One form of a path only.
        (digest.to_hex() == hex).then_some(Self { digest, is_json })
    }

    /// `application/json` or `text/plain`.
    pub const fn media_type(self) -> &'static str {
        if self.is_json {
            "application/json"
        } else {
            "text/plain"
        }
    }
}

impl std::fmt::Display for ContentPath {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = if self.is_json { "json" } else { "txt" };
        write!(
            formatter,
            "artifacts/sha256/{}.{kind}",
            self.digest.to_hex()
        )
    }
}

/// Stands in a document for a value that is too large for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reference {
    /// Where the value is found.
    pub path: ContentPath,
    /// Its size.
    pub size_bytes: u64,
}

impl Reference {
    /// The form in a document: an object with one member.
    pub fn to_json(&self) -> Value {
        json!({ ARTIFACT: {
            "bytes": self.size_bytes,
            "mediaType": self.path.media_type(),
            "opaque": true,
            "path": self.path.to_string(),
            "sha256": self.path.digest.to_hex(),
        } })
    }
}

/// A part of a content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ContentChunk {
    schema: &'static str,
    /// The run that refers to it.
    pub run_id: String,
    /// Its path, as it was asked for.
    pub path: String,
    /// Its media type.
    pub media_type: &'static str,
    /// Where the part begins.
    pub offset: u64,
    /// Where the next one begins.
    pub next_offset: u64,
    /// The size of the whole.
    pub bytes: u64,
    /// The digest of the whole.
    pub sha256: String,
    /// Whether nothing follows.
    pub complete: bool,
    /// The part in base64 with padding.
    pub data: String,
}

impl ContentChunk {
    /// The part of a content of `size` bytes that begins at `offset`.
    pub fn new(run_id: &str, path: ContentPath, (offset, size): (u64, u64), part: &[u8]) -> Self {
        let next_offset = offset.saturating_add(u64::try_from(part.len()).unwrap_or(u64::MAX));
        Self {
            schema: schema::CONTENT_CHUNK,
            run_id: run_id.to_owned(),
            path: path.to_string(),
            media_type: path.media_type(),
            offset,
            next_offset,
            bytes: size,
            sha256: path.digest.to_hex(),
            complete: size <= next_offset,
            data: base64::engine::general_purpose::STANDARD.encode(part),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_looks_like_a_reference_is_wrapped() {
        for (value, escaped) in [
            (
                json!({ "$artifact": { "path": "x" } }),
                json!({ "$escaped": { "$artifact": { "path": "x" } } }),
            ),
            (
                json!({ "$escaped": 1 }),
                json!({ "$escaped": { "$escaped": 1 } }),
            ),
            (
                json!({ "$artifact": 1, "b": 2 }),
                json!({ "$artifact": 1, "b": 2 }),
            ),
            (
                json!([{ "$escaped": { "$artifact": null } }]),
                json!([{ "$escaped": { "$escaped": { "$escaped": { "$artifact": null } } } }]),
            ),
        ] {
            assert_eq!(escape(value.clone()), escaped);
            assert_eq!(unescape(escaped), value);
        }
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "[a-z$]{0,6}".prop_map(Value::from),
        ];
        let name = prop::sample::select(vec![ARTIFACT, ESCAPED, "a", "b"]);
        leaf.prop_recursive(5, 40, 4, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(name.clone().prop_map(str::to_owned), inner, 0..3)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn unescaping_gives_back_what_was_escaped(value in value()) {
            prop_assert_eq!(unescape(escape(value.clone())), value);
        }

        #[test]
        fn nothing_escaped_looks_like_a_reference(value in value()) {
            fn has_reference(value: &Value) -> bool {
                match value {
                    Value::Array(items) => items.iter().any(has_reference),
                    Value::Object(members) => match members.get(ESCAPED) {
                        Some(Value::Object(inner)) if members.len() == 1 => inner.values().any(has_reference),
                        _ => is_special(members) || members.values().any(has_reference),
                    },
                    _ => false,
                }
            }
            prop_assert!(!has_reference(&escape(value)));
        }
    }

    #[test]
    fn a_path_has_one_form() {
        let path = ContentPath {
            digest: Digest::of(b"x"),
            is_json: true,
        };
        assert_eq!(ContentPath::parse(&path.to_string()), Some(path));
        let hex = path.digest.to_hex();
        for wrong in [
            format!("artifacts/sha256/{}.json", hex.to_uppercase()),
            format!("artifacts/sha256/../{hex}.json"),
            format!("artifacts/sha256/{hex}"),
            format!("/artifacts/sha256/{hex}.txt"),
            String::new(),
        ] {
            assert_eq!(ContentPath::parse(&wrong), None, "{wrong}");
        }
    }
}
