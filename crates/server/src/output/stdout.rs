//! Standard output: the one place that writes it.
//!
//! What could not be written is remembered until the command ends, which is then no success. The last word of a process that is
//! stopped at once is the last: what another thread still has to say is no result. Not here: what makes characters inert.

use std::io::{self, Write as _};
use std::sync::{Mutex, MutexGuard, PoisonError};

static STANDING: Mutex<Standing> = Mutex::new(Standing {
    failure: None,
    documented: false,
    over: false,
});

struct Standing {
    /// The first error of the operating system.
    failure: Option<io::Error>,
    /// Whether the one document of JSON mode was written.
    documented: bool,
    /// Whether the last word was spoken.
    over: bool,
}

/// Writes characters that are inert.
pub(super) fn write(inert: &str) {
    standing().write(inert);
}

/// Writes the document of JSON mode.
pub(super) fn document(inert: &str) {
    let mut standing = standing();
    standing.write(inert);
    standing.documented = true;
}

/// Writes the last document, unless there was one, and nothing after it.
pub(super) fn last_document(inert: &str) {
    let mut standing = standing();
    if !standing.documented {
        standing.write(inert);
    }
    standing.over = true;
}

/// Writes the last text, and nothing after it.
pub(super) fn last_text(inert: &str) {
    let mut standing = standing();
    standing.write(inert);
    standing.over = true;
}

/// Whether the last word was spoken, so that another thread ends the process.
pub(super) fn is_over() -> bool {
    standing().over
}

/// Why something was not written, if so. A reader that went away, such as `head`, has seen what it wanted.
pub(super) fn take_failure() -> Option<io::Error> {
    standing()
        .failure
        .take()
        .filter(|error| error.kind() != io::ErrorKind::BrokenPipe)
}

fn standing() -> MutexGuard<'static, Standing> {
    STANDING.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Standing {
    fn write(&mut self, inert: &str) {
        // After a failure nothing more is tried: half of a text without its middle would look whole.
        if self.over || self.failure.is_some() {
            return;
        }
        let mut stdout = io::stdout().lock();
        let written = stdout
            .write_all(inert.as_bytes())
            .and_then(|()| stdout.flush());
        self.failure = written.err();
    }
}
