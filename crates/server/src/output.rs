//! The only way to the terminal.
//!
//! In text mode every character that is written has passed [`text::block`], whoever wrote it, so that nothing from outside can drive
//! the terminal. In JSON mode one document goes to standard output, with the same characters as `\u` escapes. Not here: what is
//! said.

pub(crate) mod json;
pub(crate) mod log;
pub(crate) mod progress;
mod stdout;
pub(crate) mod text;

use std::fmt::Display;
use std::io::{self, IsTerminal as _, Write as _};

use serde::Serialize;

use crate::error::{CommandError, ExitStatus};

/// Where a command writes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    json: bool,
    terminal: bool,
    dumb: bool,
}

impl Output {
    pub(crate) fn new(json: bool) -> Self {
        Self {
            json,
            terminal: io::stdout().is_terminal(),
            dumb: std::env::var_os("TERM").is_some_and(|terminal| terminal == "dumb"),
        }
    }

    /// Whether a document is wanted.
    pub(crate) fn is_json(self) -> bool {
        self.json
    }

    /// Whether a person can be asked and shown something that moves.
    pub(crate) fn is_interactive(self) -> bool {
        !self.json && self.terminal && io::stdin().is_terminal()
    }

    /// Whether lines may be rewritten. A terminal that calls itself dumb takes no sequences.
    pub(crate) fn is_live(self) -> bool {
        !self.json && self.terminal && !self.dumb
    }

    /// Writes text and a line break; nothing in JSON mode.
    pub(crate) fn line(self, text: impl Display) {
        if !self.json {
            stdout::write(&format!("{}\n", text::block(&text.to_string())));
        }
    }

    /// Writes the one document of JSON mode; nothing in text mode.
    pub(crate) fn document<T: Serialize + ?Sized>(self, document: &T) -> Result<(), CommandError> {
        if self.json {
            let text =
                serde_json::to_string_pretty(document).map_err(|error| CommandError::Io {
                    action: "writing the document".to_owned(),
                    source: error.into(),
                })?;
            stdout::document(&format!("{}\n", text::escape_in_json(&text)));
        }
        Ok(())
    }

    /// Writes a document that is the command's whole output in both modes, such as a schema.
    pub(crate) fn file(text: &str) {
        stdout::write(&text::block(text));
    }

    /// Writes what a line of the terminal is asked for with; the cursor stays behind it.
    pub(crate) fn prompt(sign: &'static str) {
        stdout::write(sign);
    }

    /// Writes an error: a document in JSON mode, otherwise lines on standard error.
    pub(crate) fn error(self, error: &CommandError) {
        if self.json {
            stdout::document(&error_document(error));
        } else {
            error_lines(error);
        }
    }

    /// Says that the process stops at once: in JSON mode the document of `error`, unless there was one; on a terminal the line
    /// ends. Nothing is written after it, whoever wants to.
    pub(crate) fn last_word(self, error: &CommandError) {
        if self.json {
            stdout::last_document(&error_document(error));
        } else {
            stdout::last_text(if self.terminal { "\n" } else { "" });
        }
    }

    /// Writes a warning, as lines of the libraries are written: on standard error in both modes.
    pub(crate) fn warning(text: &str) {
        let text = text::line(text);
        drop(writeln!(io::stderr().lock(), "warning: {text}"));
    }

    /// Writes a note about the command itself, such as what Ctrl-C does now; nothing in JSON mode.
    pub(crate) fn note(self, text: impl Display) {
        if !self.json {
            let text = text::block(&text.to_string()).into_owned();
            drop(writeln!(io::stderr().lock(), "{text}"));
        }
    }
}

/// The exit status of a command that ends with `status`, once it is known what of its output could be written.
///
/// A status that already tells of something else than success stays. While another thread stops the process at once, this waits
/// for that.
pub(crate) fn finish(status: ExitStatus) -> ExitStatus {
    while stdout::is_over() {
        std::thread::park();
    }
    let Some(source) = stdout::take_failure() else {
        return status;
    };
    error_lines(&CommandError::Io {
        action: "writing to standard output".to_owned(),
        source,
    });
    if status == ExitStatus::Done {
        ExitStatus::Failed
    } else {
        status
    }
}

fn error_document(error: &CommandError) -> String {
    let document = json::error(error);
    format!("{}\n", text::escape_in_json(&format!("{document:#}")))
}

fn error_lines(error: &CommandError) {
    let mut said = String::new();
    for (index, line) in error.chain().iter().enumerate() {
        let begin = if index == 0 {
            "error: "
        } else {
            "  caused by: "
        };
        said.push_str(begin);
        // What comes from outside begins no line of its own, which could be read as another error.
        said.push_str(&text::block(line).replace('\n', "\n    "));
        said.push('\n');
    }
    // Nobody can be told that standard error is gone.
    drop(io::stderr().lock().write_all(said.as_bytes()));
}
