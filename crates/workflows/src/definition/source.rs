//! Where a definition came from: the identity that a run stores and that a resume compares.
//!
//! Not here: reading files, storing rows.

use std::path::Path;

/// The identity of the source of one workflow.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SourceIdentity {
    /// A workflow that comes with the program.
    Builtin {
        /// Its id.
        id: String,
        /// Its revision.
        revision: String,
    },
    /// A file: absolute path, and SHA-256 of its bytes in hex.
    File {
        /// The path.
        path: String,
        /// 64 lower case hex digits.
        sha256: String,
    },
    /// A definition that the embedding program built. Stored as a file source with the reference
    /// `inline:<name>` and hidden from public source views.
    Inline {
        /// The name of the workflow.
        name: String,
        /// The digest of the definition, 64 lower case hex digits.
        digest: String,
    },
}

/// A stored or given identity that has no valid form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// The type is neither `file` nor `builtin`.
    #[error("source type {given:?} is neither \"file\" nor \"builtin\"")]
    UnknownType {
        /// The type.
        given: String,
    },
    /// The path of a file source is not absolute.
    #[error("source path {path:?} is not absolute")]
    RelativePath {
        /// The path.
        path: String,
    },
    /// The revision of a file source is not a SHA-256 in hex.
    #[error("source revision {revision:?} is not 64 lower case hex digits")]
    Revision {
        /// The revision.
        revision: String,
    },
    /// The id or revision of a built-in source is blank.
    #[error("a built-in source needs an id and a revision")]
    BlankBuiltin,
}

const INLINE: &str = "inline:";

impl SourceIdentity {
    /// The identity of a definition that a program built.
    pub fn inline(definition: &super::Definition) -> Self {
        let digest = definition.digest_text();
        Self::Inline {
            name: definition.name().to_owned(),
            digest: digest.trim_start_matches("sha256:").to_owned(),
        }
    }

    /// The type, as rows hold it: `file` or `builtin`.
    pub fn source_type(&self) -> &'static str {
        match self {
            Self::Builtin { .. } => "builtin",
            Self::File { .. } | Self::Inline { .. } => "file",
        }
    }

    /// The reference, as rows hold it: id, path, or `inline:<name>`.
    pub fn reference(&self) -> String {
        match self {
            Self::Builtin { id, .. } => id.clone(),
            Self::File { path, .. } => path.clone(),
            Self::Inline { name, .. } => format!("{INLINE}{name}"),
        }
    }

    /// The revision, as rows hold it.
    pub fn revision(&self) -> &str {
        match self {
            Self::Builtin { revision, .. } => revision,
            Self::File { sha256, .. } => sha256,
            Self::Inline { digest, .. } => digest,
        }
    }

    /// Whether public views may name it.
    pub fn is_public(&self) -> bool {
        match self {
            Self::Builtin { .. } | Self::File { .. } => true,
            Self::Inline { .. } => false,
        }
    }

    /// Checks the form of an identity before anything is inserted, or after it was read.
    ///
    /// # Errors
    ///
    /// [`SourceError`] names the part that has no valid form.
    pub fn from_parts(
        source_type: &str,
        reference: &str,
        revision: &str,
    ) -> Result<Self, SourceError> {
        match source_type {
            "builtin" if reference.trim().is_empty() || revision.trim().is_empty() => {
                Err(SourceError::BlankBuiltin)
            }
            "builtin" => Ok(Self::Builtin {
                id: reference.to_owned(),
                revision: revision.to_owned(),
            }),
            "file" => {
                let inline = reference.strip_prefix(INLINE);
                if inline.is_none() && !Path::new(reference).is_absolute() {
                    return Err(SourceError::RelativePath {
                        path: reference.to_owned(),
                    });
                }
                if revision.len() != 64
                    || !revision
                        .bytes()
                        .all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
                {
                    return Err(SourceError::Revision {
                        revision: revision.to_owned(),
                    });
                }
                let revision = revision.to_owned();
                Ok(match inline {
                    Some(name) => Self::Inline {
                        name: name.to_owned(),
                        digest: revision,
                    },
                    None => Self::File {
                        path: reference.to_owned(),
                        sha256: revision,
                    },
                })
            }
            given => Err(SourceError::UnknownType {
                given: given.to_owned(),
            }),
        }
    }
}
