//! `docs/schema.md` and `docs/operations.md`, written from the composed domains.
//!
//! The pages are the code, printed: nothing on them is written by hand, and `--check` fails when they
//! differ. No rule stands here; what a domain is comes from the crates.

mod operations;
mod schema;

use std::io;
use std::path::{Path, PathBuf};

use holdpoint_state::{Domain, Identity, Schema, StateError};

/// The domains of the product, lowest first.
const DOMAINS: &[Domain] = &[
    holdpoint_state::DOMAIN,
    holdpoint_workflows::DOMAIN,
    holdpoint_decisions::DOMAIN,
    holdpoint_channels::DOMAIN,
    holdpoint_controllers::DOMAIN,
    holdpoint_viewer::DOMAIN,
    // new-domain: `cargo xtask new-domain` puts the line of a new domain above this one.
];

/// The pages could not be made or compared.
#[derive(Debug, thiserror::Error)]
pub enum DocsError {
    /// The domains do not compose; the cause names the two that collide.
    #[error("the domains do not compose into one schema")]
    Compose(#[source] Box<StateError>),
    /// A table's SQL is not understood.
    #[error("could not read the SQL of {name}: {message}")]
    Sql {
        /// The table, index or trigger.
        name: String,
        /// What the grammar says.
        message: String,
    },
    /// A page could not be read or written.
    #[error("could not read or write {}", path.display())]
    Page {
        /// The page.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
}

/// A generated page.
#[derive(Debug)]
pub struct Page {
    /// Path from the workspace root.
    pub path: &'static str,
    /// Its whole text.
    pub text: String,
}

/// Makes the pages of the product.
///
/// # Errors
///
/// [`DocsError`] when the domains do not compose or their SQL is not understood.
pub fn pages() -> Result<Vec<Page>, DocsError> {
    let schema = Schema::compose(Identity::PI_WORKFLOWS, DOMAINS.iter().copied())
        .map_err(|source| DocsError::Compose(Box::new(source)))?;
    Ok(vec![
        Page {
            path: "docs/schema.md",
            text: schema::page(&schema)?,
        },
        Page {
            path: "docs/operations.md",
            text: operations::page(schema.domains()),
        },
    ])
}

/// Makes the operations page of other domains, such as those of a project that adds its own.
pub fn operations_of(domains: &[Domain]) -> Page {
    Page {
        path: "docs/operations.md",
        text: operations::page(domains),
    }
}

/// The pages that differ from the files in `root`.
///
/// # Errors
///
/// [`DocsError::Page`] when a page exists and can't be read; a missing page differs.
pub fn outdated(root: &Path, pages: Vec<Page>) -> Result<Vec<Page>, DocsError> {
    let mut outdated = Vec::new();
    for page in pages {
        let path = root.join(page.path);
        match std::fs::read_to_string(&path) {
            Ok(text) if text == page.text => {}
            Ok(_) => outdated.push(page),
            Err(error) if error.kind() == io::ErrorKind::NotFound => outdated.push(page),
            Err(source) => return Err(DocsError::Page { path, source }),
        }
    }
    Ok(outdated)
}

/// Writes a page.
///
/// # Errors
///
/// [`DocsError::Page`] when it can't be written.
pub fn write(root: &Path, page: &Page) -> Result<(), DocsError> {
    let path = root.join(page.path);
    std::fs::write(&path, &page.text).map_err(|source| DocsError::Page { path, source })
}

/// Text for a cell of a table: one line, no bars.
fn cell(text: &str) -> String {
    text.split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .replace('|', "\\|")
}

/// Code for a cell of a table; nothing for nothing.
fn code(text: &str) -> String {
    if text.is_empty() {
        String::new()
    } else {
        format!("`{}`", cell(text))
    }
}

/// A note that the page is generated.
const GENERATED: &str =
    "<!-- Written by `cargo xtask docs` from the composed domains. Do not edit. -->\n";

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
    }

    #[test]
    fn the_pages_are_those_of_the_code() {
        let outdated: Vec<&str> = outdated(&root(), pages().unwrap())
            .unwrap()
            .iter()
            .map(|page| page.path)
            .collect();
        assert!(
            outdated.is_empty(),
            "run `cargo xtask docs` and commit {outdated:?}"
        );
    }

    #[test]
    fn a_changed_or_missing_page_is_outdated() {
        let folder = tempfile::tempdir().unwrap();
        let page = |text: &str| Page {
            path: "page.md",
            text: text.to_owned(),
        };
        assert_eq!(
            outdated(folder.path(), vec![page("one")]).unwrap().len(),
            1,
            "missing"
        );
        write(folder.path(), &page("one")).unwrap();
        assert_eq!(outdated(folder.path(), vec![page("one")]).unwrap().len(), 0);
        assert_eq!(
            outdated(folder.path(), vec![page("two")]).unwrap().len(),
            1,
            "changed"
        );
    }

    #[test]
    fn cells_keep_their_table_whole() {
        assert_eq!(cell("a\n  b || c"), "a b \\|\\| c");
    }
}
