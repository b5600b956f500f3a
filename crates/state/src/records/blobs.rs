//! Blobs: content addressed by SHA-256 over its bytes, written once and adopted afterwards.
//!
//! A [`Payload`] is prepared outside the transaction: canonical, measured and hashed, so that the writer only copies bytes.

mod read;

use std::borrow::Cow;
use std::io::Read;

use rusqlite::{OptionalExtension, named_params};
use serde::Serialize;

use crate::command::{Change, Sql};
use crate::error::StateError;
use crate::id::Digest;
use crate::json;

pub use read::BlobPart;

/// The media type of canonical JSON.
pub const JSON: &str = "application/json";
/// The media type of plain UTF-8 text.
pub const TEXT: &str = "text/plain";
/// The largest payload of one command or blob, in bytes.
pub const PAYLOAD_LIMIT_BYTES: usize = 64 * 1024 * 1024;
/// The largest event or effect payload, or [`Content`], that lies in its row, in bytes; larger ones are blobs.
pub const INLINE_LIMIT_BYTES: usize = 1_024;
/// The size of one part of a large value, in bytes.
pub const PART_BYTES: usize = 512 * 1024;

/// Content that is ready to be stored: checked, measured and hashed.
///
/// ```
/// use holdpoint_state::{Digest, Payload};
///
/// let payload = Payload::json(&serde_json::json!({ "b": 1.0, "a": [null] }))?;
/// assert_eq!(payload.as_bytes(), br#"{"a":[null],"b":1}"#);
/// assert_eq!(payload.digest(), Digest::of(payload.as_bytes()));
/// # Ok::<(), holdpoint_state::StateError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Payload {
    digest: Digest,
    media_type: Cow<'static, str>,
    bytes: Vec<u8>,
}

impl std::fmt::Debug for Payload {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The content may be private; its digest says enough.
        formatter
            .debug_struct("Payload")
            .field("digest", &self.digest)
            .field("media_type", &self.media_type)
            .field("size_bytes", &self.bytes.len())
            .finish()
    }
}

impl Payload {
    /// Canonical JSON of a value (RFC 8785).
    ///
    /// # Errors
    ///
    /// [`StateError::Json`] when the value has no canonical form, [`StateError::TooLarge`] above [`PAYLOAD_LIMIT_BYTES`].
    pub fn json<T: Serialize + ?Sized>(value: &T) -> Result<Self, StateError> {
        let bytes = json::to_canonical(value).map_err(|source| StateError::Json {
            what: "payload",
            source,
        })?;
        Self::checked(Cow::Borrowed(JSON), bytes)
    }

    /// Plain text.
    ///
    /// # Errors
    ///
    /// [`StateError::TooLarge`] above [`PAYLOAD_LIMIT_BYTES`].
    pub fn text(text: impl Into<String>) -> Result<Self, StateError> {
        Self::checked(Cow::Borrowed(TEXT), text.into().into_bytes())
    }

    /// Bytes of another media type. JSON bytes are canonicalised.
    ///
    /// # Errors
    ///
    /// [`StateError::Input`] for an empty media type or text that is not UTF-8, [`StateError::Json`] for JSON without a
    /// canonical form, [`StateError::TooLarge`] above [`PAYLOAD_LIMIT_BYTES`].
    pub fn bytes(
        media_type: impl Into<Cow<'static, str>>,
        bytes: Vec<u8>,
    ) -> Result<Self, StateError> {
        let media_type = media_type.into();
        if media_type.is_empty() {
            return Err(StateError::Input {
                what: "media type",
                problem: "it is empty; name one such as text/plain".into(),
            });
        }
        check_size(bytes.len())?;
        if media_type == JSON {
            let bytes = json::canonicalize(&bytes).map_err(|source| StateError::Json {
                what: "payload",
                source,
            })?;
            return Self::checked(media_type, bytes);
        }
        if media_type.starts_with("text/") && std::str::from_utf8(&bytes).is_err() {
            return Err(StateError::Input {
                what: "payload",
                problem: format!("{media_type} must be UTF-8"),
            });
        }
        Self::checked(media_type, bytes)
    }

    /// Reads a large value in parts of [`PART_BYTES`] and checks it against what its sender announced.
    ///
    /// # Errors
    ///
    /// [`StateError::TooLarge`] as soon as the announced or real size passes the limit, [`StateError::Input`] when size or digest
    /// differ from the announced ones, [`StateError::Io`] when reading fails.
    pub fn from_reader(
        media_type: impl Into<Cow<'static, str>>,
        mut reader: impl Read,
        announced_bytes: u64,
        announced_digest: Digest,
    ) -> Result<Self, StateError> {
        let size = usize::try_from(announced_bytes).unwrap_or(usize::MAX);
        check_size(size)?;
        let mut bytes = Vec::with_capacity(size);
        loop {
            let before = bytes.len();
            let part = u64::try_from(PART_BYTES).unwrap_or(u64::MAX);
            reader
                .by_ref()
                .take(part)
                .read_to_end(&mut bytes)
                .map_err(|source| StateError::Io {
                    action: "reading a payload".into(),
                    source,
                })?;
            if bytes.len() == before {
                break;
            }
            if size < bytes.len() {
                return Err(StateError::Input {
                    what: "payload",
                    problem: format!("more than the announced {size} bytes arrived"),
                });
            }
        }
        if bytes.len() != size || Digest::of(&bytes) != announced_digest {
            return Err(StateError::Input {
                what: "payload",
                problem: format!(
                    "{} bytes with digest {} arrived, {size} with {announced_digest} were announced",
                    bytes.len(),
                    Digest::of(&bytes)
                ),
            });
        }
        Self::bytes(media_type, bytes)
    }

    /// SHA-256 over the stored bytes.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// The media type.
    pub fn media_type(&self) -> &str {
        &self.media_type
    }

    /// The stored bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn checked(media_type: Cow<'static, str>, bytes: Vec<u8>) -> Result<Self, StateError> {
        check_size(bytes.len())?;
        Ok(Self {
            digest: Digest::of(&bytes),
            media_type,
            bytes,
        })
    }

    /// Whether the payload lies in the row that it belongs to.
    pub(crate) fn is_inline(&self) -> bool {
        self.bytes.len() <= INLINE_LIMIT_BYTES && self.media_type == JSON
    }
}

/// Where a row has its content: small JSON lies in the row beside its digest, everything else is a blob.
///
/// A blob is found by its digest, in an index whose order is chance: in a large file each new one costs a page of its own in the log and at the
/// next checkpoint. Small content that is rarely the same twice is cheaper in the row that it belongs to.
///
/// A table has three columns for it: `name_digest` and `name` for what lies in the row, and `name_hash`, which refers to `blobs`. The
/// examination compares each `name` with its `name_digest`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// In the row, as canonical JSON of at most [`INLINE_LIMIT_BYTES`].
    Inline(Payload),
    /// A blob with this digest.
    Blob(Digest),
}

impl Content {
    /// The digest of the content, wherever it lies.
    pub fn digest(&self) -> Digest {
        match self {
            Self::Inline(payload) => payload.digest,
            Self::Blob(digest) => *digest,
        }
    }

    /// The values of the three columns, in their order: digest and content in the row, or the blob.
    pub fn columns(&self) -> (Option<Digest>, Option<&[u8]>, Option<Digest>) {
        match self {
            Self::Inline(payload) => (Some(payload.digest), Some(&payload.bytes), None),
            Self::Blob(digest) => (None, None, Some(*digest)),
        }
    }

    /// Reads the three columns, of which `index` is the first; none when all are null.
    ///
    /// # Errors
    ///
    /// Those of the conversion; a content that is not that of its digest is one.
    pub fn from_row(row: &rusqlite::Row<'_>, index: usize) -> rusqlite::Result<Option<Self>> {
        let inline: Option<Vec<u8>> = row.get(index + 1)?;
        let Some(bytes) = inline else {
            return Ok(row.get::<_, Option<Digest>>(index + 2)?.map(Self::Blob));
        };
        let digest: Digest = row.get(index)?;
        if Digest::of(&bytes) != digest {
            return Err(rusqlite::Error::FromSqlConversionFailure(
                index + 1,
                rusqlite::types::Type::Blob,
                Box::new(StateError::Corrupt {
                    what: format!("content {digest}"),
                    problem: "the stored bytes have another digest".into(),
                }),
            ));
        }
        Ok(Some(Self::Inline(Payload {
            digest,
            media_type: Cow::Borrowed(JSON),
            bytes,
        })))
    }
}

fn check_size(size: usize) -> Result<(), StateError> {
    if PAYLOAD_LIMIT_BYTES < size {
        return Err(StateError::TooLarge {
            what: "payload",
            size_bytes: u64::try_from(size).unwrap_or(u64::MAX),
            limit_bytes: u64::try_from(PAYLOAD_LIMIT_BYTES).unwrap_or(u64::MAX),
        });
    }
    Ok(())
}

impl Change<'_> {
    /// Stores content, or adopts the equal content that is stored already.
    ///
    /// # Errors
    ///
    /// [`StateError::Conflict`] when the same hash is stored with another media type or other bytes.
    pub fn put_blob(&mut self, payload: &Payload) -> Result<Digest, StateError> {
        let now = self.now();
        insert(&self.kernel_sql(), payload, now)?;
        Ok(payload.digest)
    }

    /// Says how a row of a domain is to keep content, and stores the blob when it is to be one.
    ///
    /// # Errors
    ///
    /// As [`Change::put_blob`].
    pub fn keep(&mut self, payload: &Payload) -> Result<Content, StateError> {
        if payload.is_inline() {
            Ok(Content::Inline(payload.clone()))
        } else {
            self.put_blob(payload).map(Content::Blob)
        }
    }
}

/// Inserts or adopts.
pub(crate) fn insert(
    sql: &Sql<'_>,
    payload: &Payload,
    now: crate::clock::UnixMillis,
) -> Result<(), StateError> {
    let stored: Option<(String, bool)> = sql
        .prepare_cached("SELECT media_type, content = :content FROM blobs WHERE blob_hash = :hash")?
        .query_row(
            named_params! { ":hash": payload.digest, ":content": payload.bytes },
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
        .optional()?;
    match stored {
        Some((media_type, true)) if media_type == payload.media_type => Ok(()),
        Some((media_type, same_bytes)) => Err(StateError::Conflict {
            resource: crate::id::Resource::new("blob", payload.digest.to_hex()),
            winner: if same_bytes {
                format!(
                    "the same bytes as {media_type}, not as {}",
                    payload.media_type
                )
            } else {
                "other bytes under the same hash".to_owned()
            },
        }),
        None => {
            sql.prepare_cached(
                "INSERT INTO blobs (blob_hash, media_type, byte_length, content, created_at)
                 VALUES (:hash, :media_type, :byte_length, :content, :now)",
            )?
            .execute(named_params! {
                ":hash": payload.digest,
                ":media_type": payload.media_type.as_ref(),
                ":byte_length": i64::try_from(payload.bytes.len()).unwrap_or(i64::MAX),
                ":content": payload.bytes,
                ":now": now,
            })?;
            Ok(())
        }
    }
}
