//! Checks of content: length, digest and form of blobs and payloads, in bounded memory.

use std::io::Read as _;

use rusqlite::MAIN_DB;
use rusqlite::types::ValueRef;
use sha2::{Digest as _, Sha256};

use super::examination::{Examination, Rule, text_of};
use super::report::Check;
use crate::id::Digest;
use crate::json;
use crate::records::blobs::{JSON, PART_BYTES, PAYLOAD_LIMIT_BYTES};

const BLOB_LENGTH: Rule<'static> = Rule::on(
    Check::Blobs,
    "blobLength",
    "The announced length is the length of the content.",
    "blobs",
);
const BLOB_DIGEST: Rule<'static> = Rule::on(
    Check::Blobs,
    "blobDigest",
    "The hash is SHA-256 over the content.",
    "blobs",
);
const BLOB_FORM: Rule<'static> = Rule::on(
    Check::Blobs,
    "blobForm",
    "JSON is canonical (RFC 8785) and text is UTF-8.",
    "blobs",
);
const BLOB_UNREADABLE: Rule<'static> = Rule::on(
    Check::Blobs,
    "blobUnreadable",
    "Content can be read.",
    "blobs",
);

impl Examination<'_> {
    pub(super) fn blobs(&mut self) -> rusqlite::Result<u64> {
        let mut statement = self
            .connection
            .prepare("SELECT blob_key, blob_hash, media_type, byte_length FROM blobs")?;
        let mut rows = statement.query([])?;
        let mut part = vec![0; PART_BYTES];
        let mut examined = 0;
        while let Some(row) = rows.next()? {
            examined += 1;
            let key: i64 = row.get(0)?;
            let hash: Vec<u8> = row.get(1)?;
            let media_type: String = row.get(2)?;
            let byte_length: i64 = row.get(3)?;
            let id = text_of(ValueRef::Blob(&hash));
            if let Err(problem) = self.blob(key, &hash, &media_type, byte_length, &mut part) {
                self.add(&BLOB_UNREADABLE, Some(id), Some(problem));
            }
        }
        Ok(examined)
    }

    fn blob(
        &mut self,
        key: i64,
        hash: &[u8],
        media_type: &str,
        byte_length: i64,
        part: &mut [u8],
    ) -> Result<(), String> {
        let id = || Some(text_of(ValueRef::Blob(hash)));
        let mut content = self
            .connection
            .blob_open(MAIN_DB, "blobs", "content", key, true)
            .map_err(|error| error.to_string())?;
        if i64::try_from(content.len()) != Ok(byte_length) {
            let detail = format!("{} bytes instead of {byte_length}", content.len());
            self.add(&BLOB_LENGTH, id(), Some(detail));
        }
        // A form can only be judged whole. Blobs of other types are never in memory for more than one part.
        let judges_form = (media_type == JSON || media_type.starts_with("text/"))
            && content.len() <= PAYLOAD_LIMIT_BYTES;
        let mut whole = Vec::new();
        let mut hasher = Sha256::new();
        loop {
            let count = content.read(part).map_err(|error| error.to_string())?;
            let Some(bytes) = part.get(..count).filter(|bytes| !bytes.is_empty()) else {
                break;
            };
            hasher.update(bytes);
            if judges_form {
                whole.extend_from_slice(bytes);
            }
        }
        if hasher.finalize().as_slice() != hash {
            self.add(&BLOB_DIGEST, id(), None);
        }
        let has_form = match media_type {
            JSON => json::is_canonical(&whole),
            _ => std::str::from_utf8(&whole).is_ok(),
        };
        if judges_form && !has_form {
            self.add(&BLOB_FORM, id(), None);
        }
        Ok(())
    }

    pub(super) fn payloads(&mut self) -> rusqlite::Result<u64> {
        let mut examined = 0;
        for (table, key, column) in self.beside_digests()? {
            let sql = format!(
                r#"SELECT "{key}", "{column}_digest", "{column}" FROM "{table}" WHERE "{column}" IS NOT NULL"#
            );
            examined += self.payloads_of(&table, &sql)?;
        }
        let effects = self.payloads_of(
            "effects",
            "SELECT r.aggregate_key, NULL, e.payload
             FROM effects e JOIN resources r ON r.resource_key = e.resource_key
             WHERE e.payload IS NOT NULL",
        )?;
        Ok(examined + effects)
    }

    /// The columns of all domains that lie beside their digest, by their names: table, its first column, and the column.
    fn beside_digests(&self) -> rusqlite::Result<Vec<(String, String, String)>> {
        let mut statement = self.connection.prepare(
            "SELECT m.name, first.name, c.name
             FROM sqlite_schema m
             JOIN pragma_table_info(m.name) first ON first.cid = 0
             JOIN pragma_table_info(m.name) c
             JOIN pragma_table_info(m.name) d ON d.name = c.name || '_digest'
             WHERE m.type = 'table' ORDER BY m.name, c.cid",
        )?;
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        rows.collect()
    }

    fn payloads_of(&mut self, table: &str, sql: &str) -> rusqlite::Result<u64> {
        let digest_rule = Rule::on(
            Check::Payloads,
            "payloadDigest",
            "The digest is SHA-256 over the payload.",
            table,
        );
        let form_rule = Rule::on(
            Check::Payloads,
            "payloadForm",
            "A payload beside its digest is canonical JSON (RFC 8785).",
            table,
        );
        let mut statement = self.connection.prepare(sql)?;
        let mut rows = statement.query([])?;
        let mut examined = 0;
        while let Some(row) = rows.next()? {
            examined += 1;
            let payload = row.get_ref(2)?.as_bytes()?;
            let digest = row.get_ref(1)?.as_bytes_or_null()?;
            if digest.is_some_and(|digest| digest != Digest::of(payload).0) {
                self.add(&digest_rule, Some(text_of(row.get_ref(0)?)), None);
            }
            if !json::is_canonical(payload) {
                self.add(&form_rule, Some(text_of(row.get_ref(0)?)), None);
            }
        }
        Ok(examined)
    }
}
