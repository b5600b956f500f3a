//! Looking after a store: verify, backup, restore, status. Nothing here changes a row.
