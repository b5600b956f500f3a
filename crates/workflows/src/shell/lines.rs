//! Takes the output of a command apart into lines, while it runs.

use std::sync::Arc;

use crate::definition::NodeError;

/// The most bytes that a line has, without its end.
pub const LINE_LIMIT_BYTES: usize = 64 * 1024;

/// An output stream of a command.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Which streams are read line by line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Streams {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// Both.
    Both,
}

impl Streams {
    /// Whether a stream is one of them.
    pub const fn contains(self, stream: Stream) -> bool {
        match self {
            Self::Both => true,
            Self::Stdout => matches!(stream, Stream::Stdout),
            Self::Stderr => matches!(stream, Stream::Stderr),
        }
    }
}

/// Takes a line without its end. An error stops the command.
pub type TakeLine = Arc<dyn Fn(Stream, &str) -> Result<(), NodeError> + Send + Sync>;

/// Which lines are taken, and by whom.
pub(super) struct Lines {
    pub(super) streams: Streams,
    pub(super) take: TakeLine,
}

impl Lines {
    /// The reader of a stream, if it is read.
    pub(super) fn reader(&self, stream: Stream) -> Option<LineReader> {
        self.streams.contains(stream).then(|| LineReader {
            stream,
            take: Arc::clone(&self.take),
            rest: Vec::new(),
        })
    }
}

/// One stream on its way to be lines.
pub(super) struct LineReader {
    stream: Stream,
    take: TakeLine,
    /// The line that is not complete yet.
    rest: Vec<u8>,
}

impl LineReader {
    /// Takes the next bytes, and each line that they complete.
    pub(super) fn push(&mut self, mut bytes: &[u8]) -> Result<(), NodeError> {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            let (line, after) = bytes.split_at(end);
            bytes = after.get(1..).unwrap_or_default();
            self.extend(line)?;
            self.line()?;
        }
        self.extend(bytes)
    }

    /// What is left at the end of the stream counts as a line.
    pub(super) fn finish(mut self) -> Result<(), NodeError> {
        if self.rest.is_empty() {
            return Ok(());
        }
        self.line()
    }

    fn extend(&mut self, bytes: &[u8]) -> Result<(), NodeError> {
        if LINE_LIMIT_BYTES < self.rest.len() + bytes.len() {
            return Err(NodeError::named(
                "LineTooLong",
                format!("a line of its output has more than {LINE_LIMIT_BYTES} bytes"),
            ));
        }
        self.rest.extend_from_slice(bytes);
        Ok(())
    }

    fn line(&mut self) -> Result<(), NodeError> {
        let line = std::mem::take(&mut self.rest);
        let line = line.strip_suffix(b"\r").unwrap_or(&line);
        let text = std::str::from_utf8(line).map_err(|error| {
            NodeError::named(
                "LineNotUtf8",
                format!("a line of its output is not UTF-8: {error}"),
            )
        })?;
        (self.take)(self.stream, text)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    fn read(chunks: &[&[u8]]) -> (Vec<String>, Result<(), String>) {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&seen);
        let take: TakeLine = Arc::new(move |_, line| {
            sink.lock().unwrap().push(line.to_owned());
            if line == "no" {
                Err(NodeError::named("Refused", "no"))
            } else {
                Ok(())
            }
        });
        let lines = Lines {
            streams: Streams::Stdout,
            take,
        };
        assert!(lines.reader(Stream::Stderr).is_none());
        let mut reader = lines.reader(Stream::Stdout).unwrap();
        let pushed = chunks.iter().try_for_each(|chunk| reader.push(chunk));
        let result = pushed
            .and_then(|()| reader.finish())
            .map_err(|error| error.name().to_owned());
        (seen.lock().unwrap().clone(), result)
    }

    fn lines(chunks: &[&[u8]]) -> Vec<String> {
        let (lines, result) = read(chunks);
        assert_eq!(result, Ok(()));
        lines
    }

    #[test]
    fn lines_are_what_stands_between_line_feeds_however_they_come() {
        assert_eq!(lines(&[]), [""; 0]);
        assert_eq!(lines(&[b"a\nb\n"]), ["a", "b"]);
        assert_eq!(lines(&[b"a", b"\n", b"\nb"]), ["a", "", "b"]);
        assert_eq!(lines(&[b"a\r\nb\rc\r"]), ["a", "b\rc"]);
        assert_eq!(
            lines(&[
                "ä".as_bytes().get(..1).unwrap(),
                "ä\n".as_bytes().get(1..).unwrap()
            ]),
            ["ä"]
        );
    }

    #[test]
    fn edge_031_a_line_that_is_too_long_or_no_text_is_refused() {
        let line = |bytes: usize| "x".repeat(bytes).into_bytes();
        assert_eq!(lines(&[&line(LINE_LIMIT_BYTES), b"\n"]).len(), 1);
        assert_eq!(
            read(&[&line(LINE_LIMIT_BYTES + 1)]).1,
            Err("LineTooLong".to_owned())
        );
        assert_eq!(
            read(&[&line(LINE_LIMIT_BYTES), b"x"]).1,
            Err("LineTooLong".to_owned())
        );
        assert_eq!(
            read(&[b"good\n\xff\ngood"]),
            (vec!["good".to_owned()], Err("LineNotUtf8".to_owned()))
        );
        // The rest of a cut character at the end of the stream is none.
        assert_eq!(read(&[b"a\xc3"]).1, Err("LineNotUtf8".to_owned()));
        assert_eq!(
            read(&[b"yes\nno\nyes\n"]),
            (
                vec!["yes".to_owned(), "no".to_owned()],
                Err("Refused".to_owned())
            )
        );
    }
}
