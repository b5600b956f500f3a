//! Cuts what pi writes into records: one JSON value to a line.
//!
//! A record ends at a line feed and nowhere else: U+2028 and U+2029 are ordinary characters of a JSON string, and a carriage
//! return before the line feed is dropped (the package's `docs/rpc.md`, "Framing"). Not here: what a record says.

/// How long a record may be. A longer one is passed on as its beginning and its length.
pub(super) const RECORD_BYTES_MAX: usize = 8 << 20;

/// How much of a record that is too long is kept: enough to tell which one it is.
const HEAD_BYTES: usize = 256;

/// How records begin that say nothing which a later one does not say. Each repeats the whole message so far, so that a long
/// answer makes a hundred times its own size of them: they are dropped while they are read.
const DROPPED: [&[u8]; 4] = [
    b"{\"type\":\"message_update\"",
    b"{\"type\":\"message_start\"",
    b"{\"type\":\"tool_execution_update\"",
    b"{\"type\":\"turn_end\"",
];

/// One record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Record {
    /// All of it, without the line end.
    Whole(Vec<u8>),
    /// It has more than [`RECORD_BYTES_MAX`].
    Long {
        /// Its first bytes.
        head: Vec<u8>,
        /// How many it has.
        bytes: u64,
    },
}

impl Record {
    /// How many bytes it holds in memory.
    pub(super) fn held(&self) -> usize {
        match self {
            Self::Whole(bytes) | Self::Long { head: bytes, .. } => bytes.len(),
        }
    }
}

/// Collects the bytes of a stream until records are whole. It holds one record at most.
#[derive(Debug)]
pub(super) struct Framing {
    limit: usize,
    line: Vec<u8>,
    state: State,
}

#[derive(Debug, Clone, Copy)]
enum State {
    /// All of the record is in `line`.
    Collecting,
    /// The record is one of [`DROPPED`]; `line` is empty.
    Dropping,
    /// The record is too long; `line` is its head.
    Counting { bytes: u64 },
}

impl Framing {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            line: Vec::new(),
            state: State::Collecting,
        }
    }

    /// Takes the next bytes of the stream and gives each record that they complete.
    pub(super) fn feed(&mut self, mut bytes: &[u8], mut give: impl FnMut(Record)) {
        while let Some(at) = bytes.iter().position(|&byte| byte == b'\n') {
            let (part, rest) = bytes.split_at(at);
            self.collect(part);
            self.finish(&mut give);
            bytes = rest.get(1..).unwrap_or_default();
        }
        self.collect(bytes);
    }

    /// Ends the record that is being collected: at a line feed, or at the end of the stream.
    pub(super) fn finish(&mut self, mut give: impl FnMut(Record)) {
        let mut line = std::mem::take(&mut self.line);
        match std::mem::replace(&mut self.state, State::Collecting) {
            State::Dropping => {}
            State::Counting { bytes } => give(Record::Long { head: line, bytes }),
            State::Collecting => {
                if line.last() == Some(&b'\r') {
                    line.pop();
                }
                if !line.is_empty() && !is_dropped(&line) {
                    give(Record::Whole(line));
                }
            }
        }
    }

    fn collect(&mut self, part: &[u8]) {
        match &mut self.state {
            State::Dropping => {}
            State::Counting { bytes } => {
                *bytes += part.len() as u64;
                let room = HEAD_BYTES.saturating_sub(self.line.len());
                self.line.extend(part.iter().take(room));
            }
            State::Collecting => {
                let length = self.line.len().saturating_add(part.len());
                if self.limit < length {
                    let room = HEAD_BYTES.saturating_sub(self.line.len());
                    self.line.extend(part.iter().take(room));
                    self.line.truncate(HEAD_BYTES);
                    self.line.shrink_to_fit();
                    self.state = State::Counting {
                        bytes: length as u64,
                    };
                } else {
                    self.line.extend_from_slice(part);
                }
                if is_dropped(&self.line) {
                    self.line = Vec::new();
                    self.state = State::Dropping;
                }
            }
        }
    }
}

fn is_dropped(line: &[u8]) -> bool {
    DROPPED.iter().any(|start| line.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cut(limit: usize, parts: &[&[u8]]) -> Vec<Record> {
        let mut framing = Framing::new(limit);
        let mut records = Vec::new();
        for part in parts {
            framing.feed(part, |record| records.push(record));
        }
        framing.finish(|record| records.push(record));
        records
    }

    fn whole(text: &str) -> Record {
        Record::Whole(text.as_bytes().to_vec())
    }

    #[test]
    fn only_a_line_feed_ends_a_record() {
        let text = "{\"a\":\"x\u{2028}y\u{2029}z\u{85}\"}";
        assert_eq!(
            cut(1000, &[format!("{text}\r\n\n\r\n{{}}\n1").as_bytes()]),
            [whole(text), whole("{}"), whole("1")]
        );
    }

    #[test]
    fn records_that_repeat_others_are_dropped_at_any_length() {
        let update = format!(
            "{{\"type\":\"message_update\",\"x\":\"{}\"}}\n",
            "a".repeat(500)
        );
        assert_eq!(
            cut(
                100,
                &[
                    update.as_bytes(),
                    b"{\"type\":\"turn_end\"}\n{\"type\":\"turn_start\"}\n"
                ]
            ),
            [whole("{\"type\":\"turn_start\"}")]
        );
    }

    #[test]
    fn a_long_record_keeps_its_beginning_and_its_length() {
        let long = "x".repeat(5000);
        let records = cut(1000, &[long.as_bytes(), long.as_bytes(), b"\n{}\n"]);
        let head = b"x".repeat(HEAD_BYTES);
        assert_eq!(
            records,
            [
                Record::Long {
                    head,
                    bytes: 10_000
                },
                whole("{}")
            ]
        );
        assert_eq!(cut(5000, &[long.as_bytes()]), [whole(&long)]);
    }

    proptest! {
        #[test]
        fn it_does_not_matter_how_the_stream_is_cut(
            stream in "(\\{\"type\":\"message_update\"|[a-z{}\" \\r]{0,40}|\n){0,20}",
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        ) {
            let bytes = stream.as_bytes();
            let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            at.extend([0, bytes.len()]);
            at.sort_unstable();
            let parts: Vec<&[u8]> = at.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            prop_assert_eq!(cut(30, &parts), cut(30, &[bytes]));
        }
    }
}
