//! Reading content: whole, as JSON, or in parts. The reader says which media type it expects; another one is an error, not a guess.

use std::io::{Read as _, Seek as _, SeekFrom};

use rusqlite::{MAIN_DB, OptionalExtension};
use serde::de::DeserializeOwned;

use super::{JSON, PART_BYTES};
use crate::command::{Change, Sql};
use crate::database::Snapshot;
use crate::error::StateError;
use crate::id::{Digest, Resource};

/// One part of a large value.
#[derive(Clone, PartialEq, Eq)]
pub struct BlobPart {
    /// The bytes: [`PART_BYTES`] of them, fewer in the last part.
    pub bytes: Vec<u8>,
    /// The position of this part, from 0.
    pub part_index: u64,
    /// How many parts the value has; at least one.
    pub parts: u64,
    /// The size of the whole value in bytes.
    pub total_bytes: u64,
}

impl std::fmt::Debug for BlobPart {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The content may be private.
        formatter
            .debug_struct("BlobPart")
            .field("part_index", &self.part_index)
            .field("parts", &self.parts)
            .field("size_bytes", &self.bytes.len())
            .field("total_bytes", &self.total_bytes)
            .finish()
    }
}

impl Snapshot<'_> {
    /// The content with this digest, checked against length and digest.
    ///
    /// # Errors
    ///
    /// [`StateError::NotFound`] when it is not stored, [`StateError::MediaType`] when it is stored as something else,
    /// [`StateError::Corrupt`] when the bytes are not those of the digest.
    pub fn blob(&self, digest: Digest, expected_media_type: &str) -> Result<Vec<u8>, StateError> {
        fetch(&self.sql(), digest, expected_media_type)
    }

    /// The JSON content with this digest, read into `T`.
    ///
    /// # Errors
    ///
    /// As [`Snapshot::blob`]; [`StateError::Input`] when the JSON is no `T`.
    pub fn blob_json<T: DeserializeOwned>(&self, digest: Digest) -> Result<T, StateError> {
        fetch_json(&self.sql(), digest)
    }

    /// One part of the content with this digest: [`PART_BYTES`] bytes from `part_index` times that on.
    ///
    /// The parts of one snapshot belong together. The digest is over the whole value, so that the receiver of all parts checks
    /// it ([`Payload::from_reader`](super::Payload::from_reader) does); each part is checked for its length here.
    ///
    /// # Errors
    ///
    /// As [`Snapshot::blob`]; [`StateError::Input`] for a part past the end.
    pub fn blob_part(
        &self,
        digest: Digest,
        expected_media_type: &str,
        part_index: u64,
    ) -> Result<BlobPart, StateError> {
        let (key, total_bytes) = locate(&self.sql(), digest, expected_media_type)?;
        let part_bytes = u64::try_from(PART_BYTES).unwrap_or(u64::MAX);
        let parts = total_bytes.div_ceil(part_bytes).max(1);
        if parts <= part_index {
            return Err(StateError::Input {
                what: "part index",
                problem: format!("{part_index}; the value has {parts} parts, counted from 0"),
            });
        }
        let from = part_index * part_bytes;
        let length = usize::try_from(part_bytes.min(total_bytes - from)).unwrap_or(PART_BYTES);
        // Incremental reading touches the pages of this part only; `substr` would read the whole value for each.
        let mut content = self
            .connection()
            .blob_open(MAIN_DB, "blobs", "content", key, true)?;
        let mut bytes = vec![0; length];
        let real_bytes = u64::try_from(content.len()).unwrap_or(u64::MAX);
        if real_bytes != total_bytes {
            return Err(wrong_length(digest, total_bytes, real_bytes));
        }
        content
            .seek(SeekFrom::Start(from))
            .and_then(|_| content.read_exact(&mut bytes))
            .map_err(|source| StateError::Io {
                action: format!("reading part {part_index} of blob {digest}"),
                source,
            })?;
        Ok(BlobPart {
            bytes,
            part_index,
            parts,
            total_bytes,
        })
    }
}

impl Change<'_> {
    /// The content with this digest, as [`Snapshot::blob`] reads it, but inside the transaction.
    ///
    /// # Errors
    ///
    /// As [`Snapshot::blob`].
    pub fn blob(&self, digest: Digest, expected_media_type: &str) -> Result<Vec<u8>, StateError> {
        fetch(&self.kernel_sql(), digest, expected_media_type)
    }

    /// The JSON content with this digest, as [`Snapshot::blob_json`] reads it, but inside the transaction.
    ///
    /// # Errors
    ///
    /// As [`Snapshot::blob_json`].
    pub fn blob_json<T: DeserializeOwned>(&self, digest: Digest) -> Result<T, StateError> {
        fetch_json(&self.kernel_sql(), digest)
    }
}

fn fetch(sql: &Sql<'_>, digest: Digest, expected_media_type: &str) -> Result<Vec<u8>, StateError> {
    let (key, total_bytes) = locate(sql, digest, expected_media_type)?;
    let bytes: Vec<u8> = sql
        .prepare_cached("SELECT content FROM blobs WHERE blob_key = ?1")?
        .query_row([key], |row| row.get(0))?;
    let real_bytes = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    if real_bytes != total_bytes {
        return Err(wrong_length(digest, total_bytes, real_bytes));
    }
    if Digest::of(&bytes) != digest {
        return Err(StateError::Corrupt {
            what: format!("blob {digest}"),
            problem: "the stored bytes have another digest".into(),
        });
    }
    Ok(bytes)
}

fn fetch_json<T: DeserializeOwned>(sql: &Sql<'_>, digest: Digest) -> Result<T, StateError> {
    let bytes = fetch(sql, digest, JSON)?;
    serde_json::from_slice(&bytes).map_err(|error| StateError::Input {
        what: "stored JSON",
        problem: format!("blob {digest} does not have the expected form: {error}"),
    })
}

/// The row's key and announced length, once the media type is the expected one.
fn locate(
    sql: &Sql<'_>,
    digest: Digest,
    expected_media_type: &str,
) -> Result<(i64, u64), StateError> {
    let row: Option<(i64, String, i64)> = sql
        .prepare_cached("SELECT blob_key, media_type, byte_length FROM blobs WHERE blob_hash = ?1")?
        .query_row([digest], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .optional()?;
    match row {
        None => Err(StateError::NotFound {
            resource: Resource::new("blob", digest.to_hex()),
        }),
        Some((_, actual, _)) if actual != expected_media_type => Err(StateError::MediaType {
            digest,
            expected: expected_media_type.to_owned(),
            actual,
        }),
        Some((key, _, byte_length)) => Ok((key, byte_length.unsigned_abs())),
    }
}

fn wrong_length(digest: Digest, announced: u64, real: u64) -> StateError {
    StateError::Corrupt {
        what: format!("blob {digest}"),
        problem: format!("{real} bytes are stored where {announced} are announced"),
    }
}
