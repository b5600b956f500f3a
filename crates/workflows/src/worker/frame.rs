//! Frames of the channel between a host and its worker process: lengths, a header that is checked first, and a body.
//!
//! `u32` length of the header, `u32` length of the body (both big-endian), then both as canonical JSON (RFC 8785). A frame that is
//! longer than agreed is refused by its lengths alone, and memory grows with the bytes that arrived, not with those announced. Not
//! here: what frames mean (`message`).

use std::io::{self, Read, Write};

use holdpoint_state::json;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::id::RunId;

/// The longest header, in bytes.
const HEADER_BYTES_MAX: usize = 1_024;
/// How much is read at once, in bytes.
const PART_BYTES: usize = 64 * 1024;

/// Whose frame it is, and of what kind. It is checked before the body is parsed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Header {
    /// The worker: one process for one generation of one run.
    pub(crate) epoch: String,
    /// From a worker: the run's revision that it was last told. From a host: the revision after the frame.
    pub(crate) expected: u64,
    /// The generation of the run's lease.
    pub(crate) generation: u64,
    /// The number of a message, from 1; a reply has that of its message. 0 for frames that want no reply.
    pub(crate) id: u64,
    /// What the body is.
    pub(crate) kind: String,
    /// The run.
    pub(crate) run: RunId,
}

/// A frame as it arrived; its body is not looked at yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) header: Header,
    pub(crate) body: Vec<u8>,
}

/// Why no frame could be read or written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FrameError {
    /// The other side closed the channel between two frames.
    #[error("the channel was closed")]
    Closed,
    /// The channel broke, or was closed in the middle of a frame.
    #[error("the channel broke: {0}")]
    Io(#[source] io::Error),
    /// A length is above what was agreed.
    #[error("a {what} of {bytes} bytes; at most {limit} are allowed")]
    TooLong {
        what: &'static str,
        bytes: usize,
        limit: usize,
    },
    /// It is no canonical JSON of its kind.
    #[error("{what}: {problem}")]
    Malformed { what: &'static str, problem: String },
}

impl FrameError {
    fn malformed(what: &'static str, problem: &impl ToString) -> Self {
        Self::Malformed {
            what,
            problem: problem.to_string(),
        }
    }
}

impl Frame {
    /// A frame with this body.
    pub(crate) fn new<T: Serialize>(header: Header, body: &T) -> Result<Self, FrameError> {
        let body =
            json::to_canonical(body).map_err(|error| FrameError::malformed("body", &error))?;
        Ok(Self { header, body })
    }

    /// Reads the next frame.
    pub(crate) fn read(from: &mut impl Read, body_bytes_max: usize) -> Result<Self, FrameError> {
        let mut first = [0_u8; 4];
        match from.read(&mut first) {
            Ok(0) => return Err(FrameError::Closed),
            Ok(read) => from
                .read_exact(first.get_mut(read..).unwrap_or_default())
                .map_err(FrameError::Io)?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                from.read_exact(&mut first).map_err(FrameError::Io)?;
            }
            Err(error) => return Err(FrameError::Io(error)),
        }
        let mut second = [0_u8; 4];
        from.read_exact(&mut second).map_err(FrameError::Io)?;
        let header = length("header", first, HEADER_BYTES_MAX)?;
        let body = length("body", second, body_bytes_max)?;
        let header = strict("header", &part(from, header)?)?;
        let body = part(from, body)?;
        Ok(Self { header, body })
    }

    /// Writes the frame with one call.
    pub(crate) fn write(
        &self,
        to: &mut impl Write,
        body_bytes_max: usize,
    ) -> Result<(), FrameError> {
        let header = json::to_canonical(&self.header)
            .map_err(|error| FrameError::malformed("header", &error))?;
        let mut bytes = Vec::with_capacity(8 + header.len() + self.body.len());
        for (what, length, limit) in [
            ("header", header.len(), HEADER_BYTES_MAX),
            ("body", self.body.len(), body_bytes_max),
        ] {
            let short = u32::try_from(length).ok().filter(|_| length <= limit);
            let short = short.ok_or(FrameError::TooLong {
                what,
                bytes: length,
                limit,
            })?;
            bytes.extend_from_slice(&short.to_be_bytes());
        }
        bytes.extend_from_slice(&header);
        bytes.extend_from_slice(&self.body);
        to.write_all(&bytes)
            .and_then(|()| to.flush())
            .map_err(FrameError::Io)
    }

    /// The body, which must be exactly what writing it again gives: no unknown member, no second spelling.
    pub(crate) fn parse<T: DeserializeOwned + Serialize>(&self) -> Result<T, FrameError> {
        strict("body", &self.body)
    }
}

fn length(what: &'static str, bytes: [u8; 4], limit: usize) -> Result<usize, FrameError> {
    let length = usize::try_from(u32::from_be_bytes(bytes)).unwrap_or(usize::MAX);
    if limit < length {
        return Err(FrameError::TooLong {
            what,
            bytes: length,
            limit,
        });
    }
    Ok(length)
}

/// Reads so many bytes, as they come.
fn part(from: &mut impl Read, length: usize) -> Result<Vec<u8>, FrameError> {
    let mut bytes = Vec::with_capacity(length.min(PART_BYTES));
    let mut limited = from.take(u64::try_from(length).unwrap_or(u64::MAX));
    let read = limited.read_to_end(&mut bytes).map_err(FrameError::Io)?;
    if read < length {
        return Err(FrameError::Io(io::ErrorKind::UnexpectedEof.into()));
    }
    Ok(bytes)
}

/// JSON that is the canonical form of what it means. Serde ignores members that a type does not know; writing the value again
/// shows them.
fn strict<T: DeserializeOwned + Serialize>(
    what: &'static str,
    bytes: &[u8],
) -> Result<T, FrameError> {
    // First the strict parser of the store: duplicate members and depths are its business.
    if !json::is_canonical(bytes) {
        return Err(FrameError::malformed(what, &"it is no canonical JSON"));
    }
    let value: T =
        serde_json::from_slice(bytes).map_err(|error| FrameError::malformed(what, &error))?;
    let again = json::to_canonical(&value).map_err(|error| FrameError::malformed(what, &error))?;
    if again != bytes {
        return Err(FrameError::malformed(
            what,
            &"it has members that are not known",
        ));
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    const LIMIT: usize = 256;

    fn header() -> Header {
        Header {
            epoch: "worker-1".to_owned(),
            expected: 7,
            generation: 2,
            id: 3,
            kind: "advance".to_owned(),
            run: RunId::new("run-1").unwrap(),
        }
    }

    fn written(frame: &Frame) -> Vec<u8> {
        let mut bytes = Vec::new();
        frame.write(&mut bytes, LIMIT).unwrap();
        bytes
    }

    fn framed(header: &str, body: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        for part in [header, body] {
            bytes.extend_from_slice(&u32::try_from(part.len()).unwrap().to_be_bytes());
        }
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend_from_slice(body.as_bytes());
        bytes
    }

    #[test]
    fn a_frame_arrives_as_it_was_sent() {
        let frame = Frame::new(header(), &json!({ "b": 1, "a": [null, 1.5] })).unwrap();
        let mut bytes = written(&frame);
        bytes.extend(written(&frame));
        let mut from = bytes.as_slice();
        for _ in 0..2 {
            let read = Frame::read(&mut from, LIMIT).unwrap();
            assert_eq!(read, frame);
            assert_eq!(read.parse::<Value>().unwrap()["b"], 1);
        }
        assert!(matches!(
            Frame::read(&mut from, LIMIT),
            Err(FrameError::Closed)
        ));
    }

    #[test]
    fn what_is_not_exactly_a_frame_is_refused() {
        let good = r#"{"epoch":"e","expected":1,"generation":1,"id":1,"kind":"k","run":"run-1"}"#;
        let cases = [
            // Another order, a space, an unknown member, a missing one, a wrong type.
            framed(
                &good
                    .replace(r#""epoch":"e","#, "")
                    .replace('}', r#","epoch":"e"}"#),
                "{}",
            ),
            framed(&good.replace(',', ", "), "{}"),
            framed(&good.replace(r#""run""#, r#""more":1,"run""#), "{}"),
            framed(&good.replace(r#""id":1,"#, ""), "{}"),
            framed(&good.replace(r#""id":1"#, r#""id":-1"#), "{}"),
            framed(&good.replace("run-1", ""), "{}"),
        ];
        for bytes in cases {
            let read = Frame::read(&mut bytes.as_slice(), LIMIT);
            assert!(
                matches!(read, Err(FrameError::Malformed { .. })),
                "{read:?}"
            );
        }
        assert!(Frame::read(&mut framed(good, "{}").as_slice(), LIMIT).is_ok());
    }

    #[test]
    fn lengths_are_judged_before_anything_is_read() {
        for (header, body) in [(u32::MAX, 0), (16, u32::MAX), (1_025, 1), (16, 257)] {
            let mut bytes = header.to_be_bytes().to_vec();
            bytes.extend_from_slice(&body.to_be_bytes());
            let read = Frame::read(&mut bytes.as_slice(), LIMIT);
            assert!(matches!(read, Err(FrameError::TooLong { .. })), "{read:?}");
        }
        let long = Frame::new(header(), &"x".repeat(LIMIT)).unwrap();
        assert!(matches!(
            long.write(&mut Vec::new(), LIMIT),
            Err(FrameError::TooLong { what: "body", .. })
        ));
    }

    #[test]
    fn unknown_members_of_a_body_are_seen_at_any_depth() {
        #[derive(Debug, Serialize, Deserialize)]
        struct Inner {
            a: u32,
        }
        #[derive(Debug, Serialize, Deserialize)]
        struct Outer {
            inner: Inner,
        }
        let parse = |body: &str| {
            Frame {
                header: header(),
                body: body.as_bytes().to_vec(),
            }
            .parse::<Outer>()
        };
        assert_eq!(parse(r#"{"inner":{"a":1}}"#).unwrap().inner.a, 1);
        for body in [
            r#"{"inner":{"a":1,"b":2}}"#,
            r#"{"inner":{"a":1.0}}"#,
            r#"{"inner":{"a":1}} "#,
            "",
            "[]",
        ] {
            assert!(parse(body).is_err(), "{body}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_an_error_or_the_frame_that_they_are(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
            if let Ok(frame) = Frame::read(&mut bytes.as_slice(), LIMIT) {
                let again = written(&frame);
                prop_assert_eq!(&again[..], &bytes[..again.len()]);
            }
        }

        #[test]
        fn a_damaged_frame_is_an_error_or_another_frame(at in 0_usize..150, byte in any::<u8>(), cut in 0_usize..150) {
            let frame = Frame::new(header(), &json!({ "output": [1, "two", { "three": null }] })).unwrap();
            let mut bytes = written(&frame);
            let length = bytes.len();
            bytes[at % length] = byte;
            bytes.truncate(length - cut % length);
            if let Ok(read) = Frame::read(&mut bytes.as_slice(), LIMIT) {
                let again = written(&read);
                prop_assert_eq!(&again[..], &bytes[..again.len()]);
                if let Ok(value) = read.parse::<Value>() {
                    prop_assert_eq!(json::to_canonical(&value).unwrap(), read.body);
                }
            }
        }
    }
}
