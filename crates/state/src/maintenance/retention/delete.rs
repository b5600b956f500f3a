//! The deletions, inside a transaction of the cleaner: the domains' statements in their own names, and the kernel's.
//!
//! Nothing here decides what is dead.

use std::collections::BTreeMap;

use super::plan::Tree;
use super::select::Orphans;
use crate::database::Cleaning;
use crate::error::StateError;
use crate::records::retention as records;
use crate::schema::Schema;

pub(super) use crate::database::KERNEL;

/// Deletes a tree: the rows of its members, those of higher domains first, then all resources that belong to it.
pub(super) fn tree(
    cleaning: &Cleaning<'_>,
    schema: &Schema,
    tree: &Tree,
) -> Result<(), StateError> {
    for (index, domain) in schema.domains().iter().enumerate().rev() {
        let sql = cleaning.sql(index);
        for deletion in domain.retention.deletions {
            let mut statement = sql.prepare_cached(deletion.sql)?;
            for key in &tree.keys {
                statement.execute([key])?;
            }
        }
    }
    let sql = cleaning.sql(KERNEL);
    for resource in &tree.related {
        records::delete_resource(&sql, *resource)?;
    }
    Ok(())
}

/// Deletes what nothing refers to. Returns how many rows of which table.
pub(super) fn orphans(
    cleaning: &Cleaning<'_>,
    orphans: &Orphans,
) -> Result<BTreeMap<String, u64>, StateError> {
    let mut deleted = BTreeMap::new();
    let mut count = |table: &str, rows: usize| {
        if 0 < rows {
            deleted.insert(table.to_owned(), u64::try_from(rows).unwrap_or(u64::MAX));
        }
    };
    for (index, orphan, keys) in &orphans.of_domains {
        let sql = cleaning.sql(*index);
        let mut statement = sql.prepare_cached(orphan.delete)?;
        for key in keys {
            statement.execute([key])?;
        }
        count(orphan.table, keys.len());
    }
    let sql = cleaning.sql(KERNEL);
    for project in &orphans.projects {
        records::delete_project(&sql, project)?;
    }
    count("projects", orphans.projects.len());
    for hash in &orphans.blobs {
        records::delete_blob(&sql, hash)?;
    }
    count("blobs", orphans.blobs.len());
    Ok(deleted)
}
