//! The only way to the terminal.
//!
//! In text mode every character that is written has passed [`text::block`], whoever wrote it, so that nothing from outside can drive
//! the terminal. In JSON mode one document goes to standard output, with the same characters as `\u` escapes. Not here: what is
//! said.

pub(crate) mod json;
pub(crate) mod log;
pub(crate) mod progress;
pub(crate) mod text;

use std::fmt::Display;
use std::io::{self, IsTerminal as _, Write as _};

use serde::Serialize;

use crate::error::CommandError;

/// Where a command writes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    json: bool,
    terminal: bool,
}

impl Output {
    pub(crate) fn new(json: bool) -> Self {
        Self {
            json,
            terminal: io::stdout().is_terminal(),
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

    /// Whether lines may be rewritten.
    pub(crate) fn is_live(self) -> bool {
        !self.json && self.terminal
    }

    /// Writes text and a line break; nothing in JSON mode.
    pub(crate) fn line(self, text: impl Display) {
        if !self.json {
            write_out(&format!("{}\n", text::block(&text.to_string())));
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
            write_out(&format!("{}\n", text::escape_in_json(&text)));
        }
        Ok(())
    }

    /// Writes a document that is the command's whole output in both modes, such as a schema.
    pub(crate) fn file(text: &str) {
        write_out(&text::block(text));
    }

    /// Writes an error: a document in JSON mode, otherwise lines on standard error.
    pub(crate) fn error(self, error: &CommandError) {
        if self.json {
            let document = json::error(error);
            write_out(&format!(
                "{}\n",
                text::escape_in_json(&format!("{document:#}"))
            ));
            return;
        }
        let mut said = String::new();
        for (index, line) in error.chain().iter().enumerate() {
            let begin = if index == 0 {
                "error: "
            } else {
                "  caused by: "
            };
            said.push_str(begin);
            said.push_str(&text::block(line));
            said.push('\n');
        }
        // Nobody can be told that standard error is gone.
        drop(io::stderr().lock().write_all(said.as_bytes()));
    }

    /// Writes a note about the command itself, such as what Ctrl-C does now; nothing in JSON mode.
    pub(crate) fn note(self, text: impl Display) {
        if !self.json {
            let text = text::block(&text.to_string()).into_owned();
            drop(writeln!(io::stderr().lock(), "{text}"));
        }
    }
}

/// Writes characters that this room made or has made inert.
fn write_out(inert: &str) {
    let mut stdout = io::stdout().lock();
    // A reader that went away, such as `head`, has seen what it wanted.
    drop(stdout.write_all(inert.as_bytes()));
    drop(stdout.flush());
}
