//! A controller that works on this machine alone: it keeps a directory of files equal to what a resource declares.
//!
//! Each pass does one thing: it takes the directory, writes one file, removes one, or gives the directory back. What it does is an effect, so
//! that a crash between the act and its receipt is found out by looking, and never acted on blindly. Files that the resource did not write
//! are neither overwritten nor removed, unless the spec says so.
//!
//! docs/CONTROLLERS.md has its rules. Not here: rows; it is a controller as any program's own.

mod act;
mod contents;
mod place;
mod plan;
mod reconcile;
pub mod spec;

pub use reconcile::{FileSet, FileSetStatus, FileSetWish};
pub use spec::FileSetSpec;

use crate::manifest::KnownController;
use crate::model::{ControllerName, Invalid};

/// The controller's name.
pub const NAME: &str = "file-set";
/// Holds the deletion of a resource until its files are gone.
pub const FINALIZER: &str = "file-set/files";

/// What `controllers apply` knows of file sets.
///
/// # Errors
///
/// None: the name has its form.
pub fn known() -> Result<KnownController, Invalid> {
    Ok(KnownController {
        name: ControllerName::new(NAME)?,
        schema: spec::schema(),
        check: Some(
            |value| match serde_json::from_value::<spec::FileSetSpec>(value.clone()) {
                Ok(spec) => spec.check(),
                Err(error) => Err((String::new(), error.to_string())),
            },
        ),
    })
}

#[cfg(test)]
mod tests;
