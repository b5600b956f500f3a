//! What documents refer to instead of holding it, in chunks.

use holdpoint_state::records::blobs::{JSON, PART_BYTES, TEXT};
use holdpoint_state::sql::{OptionalExtension as _, named_params};
use holdpoint_state::{Digest, Snapshot, StateError};
use holdpoint_workflows::views::pages;
use serde_json::Value;

use super::rows::unsigned;
use crate::documents::{CHUNK_BYTES, ContentChunk, ContentPath};
use crate::error::ViewerError;

/// The part of a content of a run that begins at `offset`: at most [`CHUNK_BYTES`], and at least one byte. Only what the documents of
/// the run refer to can be read through it.
///
/// # Errors
///
/// [`ViewerError::NoRun`]; [`ViewerError::NoContent`] for a path that the run does not refer to, and an offset past the end.
pub fn content(
    snapshot: &Snapshot<'_>,
    run: &str,
    path: &str,
    offset: u64,
) -> Result<ContentChunk, ViewerError> {
    let missing = || ViewerError::NoContent {
        run: run.to_owned(),
        path: path.to_owned(),
        offset,
    };
    let Some(key) = pages::key_of(snapshot, run)? else {
        return Err(ViewerError::NoRun {
            run: run.to_owned(),
        });
    };
    let wanted = ContentPath::parse(path).ok_or_else(missing)?;
    let found: Option<(u64, Digest, Option<String>)> = snapshot
        .sql()
        .prepare_cached(
            "SELECT byte_length, source_hash, pointer FROM run_view_content
             WHERE run_key = :run AND content_hash = :hash AND media_type = :media",
        )?
        .query_row(
            named_params! { ":run": key, ":hash": wanted.digest, ":media": wanted.media_type() },
            |row| Ok((unsigned(row, 0)?, row.get(1)?, row.get(2)?)),
        )
        .optional()
        .map_err(StateError::from)?;
    let (size, source, pointer) = found.ok_or_else(missing)?;
    if size <= offset {
        return Err(missing());
    }
    let part = match pointer {
        None => part_of_blob(snapshot, wanted, offset)?,
        Some(pointer) => {
            let value: Value = snapshot.blob_json(source)?;
            let text = value.pointer(&pointer).and_then(Value::as_str);
            let from = usize::try_from(offset).unwrap_or(usize::MAX);
            let rest = text.and_then(|text| text.as_bytes().get(from..));
            rest.ok_or_else(missing)?
                .iter()
                .copied()
                .take(CHUNK_BYTES)
                .collect()
        }
    };
    if part.is_empty() {
        return Err(missing());
    }
    Ok(ContentChunk::new(run, wanted, (offset, size), &part))
}

/// A blob is read in the store's own parts; what a part has from the offset on is the chunk.
fn part_of_blob(
    snapshot: &Snapshot<'_>,
    wanted: ContentPath,
    offset: u64,
) -> Result<Vec<u8>, StateError> {
    let part_bytes = u64::try_from(PART_BYTES).unwrap_or(u64::MAX);
    let media = if wanted.is_json { JSON } else { TEXT };
    let part = snapshot.blob_part(wanted.digest, media, offset / part_bytes)?;
    let from = usize::try_from(offset % part_bytes).unwrap_or(usize::MAX);
    let rest = part.bytes.get(from..).unwrap_or_default();
    Ok(rest.iter().copied().take(CHUNK_BYTES).collect())
}
