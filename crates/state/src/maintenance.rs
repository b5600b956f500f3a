//! Looking after a store: verify, backup, restore, status and doctor; and retention, which deletes what is dead.
//!
//! None but retention changes a row, and all but it and a restore leave every byte of the store as it is. Only SQLite opens the files
//! of a live store: closing another descriptor would drop the locks that this process holds on it.

mod backup;
mod doctor;
mod files;
mod restore;
pub mod retention;
mod status;
mod verify;

pub use backup::{BackupProgress, BackupReport};
pub use doctor::{DoctorCheck, DoctorReport, Level};
pub use restore::{RestoreReport, restore};
pub use status::{
    ActiveLease, Engine, Leases, Pages, Readers, SchemaIdentity, Sizes, Status, UnsettledEffects,
    WriteAheadLog,
};
pub use verify::{Check, CheckRun, Finding, VerifyReport, verify_file};
