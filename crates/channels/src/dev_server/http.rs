//! HTTP/1.1 as far as a Bot API client and curl need it: heads by `httparse`, bodies by length, connections that stay open.
//!
//! Not here: what a path means. A request that is not understood closes the connection.

use std::collections::BTreeMap;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use serde_json::Value;

use super::{Shared, control, methods};

const HEAD_BYTES_MAX: usize = 16 << 10;
const BODY_BYTES_MAX: usize = 1 << 20;
const HEADERS_MAX: usize = 64;

/// How long a connection may be silent.
const SILENCE: Duration = Duration::from_mins(2);

/// The head of a request.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) method: String,
    /// Decoded, without the query.
    pub(super) path: String,
    query: String,
    is_form: bool,
    body_bytes: usize,
    closes: bool,
    /// The client waits for a word before it sends the body.
    waits: bool,
}

/// A whole request.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) head: Head,
    pub(super) body: Vec<u8>,
}

/// What a connection is to do.
#[derive(Debug)]
pub(super) enum Answer {
    /// A whole answer.
    Whole(u16, &'static str, Vec<u8>),
    /// The head of a whole answer and half of its body; then it closes.
    Half(u16, &'static str, Vec<u8>),
    /// It closes without a word.
    Close,
}

impl Answer {
    pub(super) fn json(status: u16, value: &Value) -> Self {
        Self::Whole(status, "application/json", value.to_string().into_bytes())
    }

    pub(super) fn text(status: u16, text: impl Into<String>) -> Self {
        Self::Whole(
            status,
            "text/plain; charset=utf-8",
            text.into().into_bytes(),
        )
    }
}

/// Serves one connection to its end.
pub(super) fn serve(stream: &TcpStream, shared: &Shared) {
    // What can't be set is not needed to serve.
    drop(stream.set_read_timeout(Some(SILENCE)));
    drop(stream.set_nodelay(true));
    let mut reader = BufReader::new(stream);
    while !shared.is_ending() {
        let Ok(Some(head)) = read_head(&mut reader) else {
            break;
        };
        let closes = head.closes;
        let answer = match methods::method_of(&head.path) {
            Some(method) => {
                let fault = shared.world().faults.take(&method.name);
                if fault == Some(super::Fault::CloseBeforeBody) {
                    shared.world().note(&method.name, Value::Null);
                    shared.changed.notify_all();
                    break;
                }
                match read_body(&mut reader, head) {
                    Ok(request) => methods::answer(shared, &method, fault.as_ref(), &request),
                    Err(_) => break,
                }
            }
            None => match read_body(&mut reader, head) {
                Ok(request) => control::answer(shared, &request),
                Err(_) => break,
            },
        };
        match write(stream, answer) {
            Ok(true) if !closes => {}
            _ => break,
        }
    }
    drop(stream.shutdown(Shutdown::Both));
}

fn read_head(reader: &mut BufReader<&TcpStream>) -> io::Result<Option<Head>> {
    let mut bytes = Vec::new();
    loop {
        let before = bytes.len();
        let line = reader
            .by_ref()
            .take((HEAD_BYTES_MAX - before) as u64)
            .read_until(b'\n', &mut bytes)?;
        if line == 0 {
            return Ok(None);
        }
        if bytes.get(before..) == Some(b"\r\n") && 2 < bytes.len() {
            break;
        }
    }
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut parsed = httparse::Request::new(&mut headers);
    let status = parsed.parse(&bytes).map_err(io::Error::other)?;
    let (Some(method), Some(target), httparse::Status::Complete(_)) =
        (parsed.method, parsed.path, status)
    else {
        return Ok(None);
    };
    let header = |name: &str| {
        parsed
            .headers
            .iter()
            .find(|header| header.name.eq_ignore_ascii_case(name))
            .and_then(|header| str::from_utf8(header.value).ok())
    };
    let length = header("content-length").unwrap_or("0");
    let body_bytes: usize = length.trim().parse().map_err(io::Error::other)?;
    if BODY_BYTES_MAX < body_bytes || header("transfer-encoding").is_some() {
        return Ok(None);
    }
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    Ok(Some(Head {
        method: method.to_owned(),
        path: decode(path),
        query: query.to_owned(),
        is_form: header("content-type")
            .is_some_and(|kind| kind.starts_with("application/x-www-form-urlencoded")),
        body_bytes,
        closes: header("connection").is_some_and(|word| word.eq_ignore_ascii_case("close")),
        waits: header("expect").is_some_and(|word| word.eq_ignore_ascii_case("100-continue")),
    }))
}

fn read_body(reader: &mut BufReader<&TcpStream>, head: Head) -> io::Result<Request> {
    if head.waits {
        reader
            .get_mut()
            .write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
    }
    let mut body = vec![0; head.body_bytes];
    reader.read_exact(&mut body)?;
    Ok(Request { head, body })
}

impl Request {
    /// What was asked for by name: the query, and the body of a form.
    pub(super) fn named(&self) -> BTreeMap<String, String> {
        let form = match (self.head.is_form, str::from_utf8(&self.body)) {
            (true, Ok(form)) => form,
            _ => "",
        };
        let pairs = self.head.query.split('&').chain(form.split('&'));
        pairs
            .filter(|pair| !pair.is_empty())
            .map(|pair| {
                let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                (
                    decode(&name.replace('+', " ")),
                    decode(&value.replace('+', " ")),
                )
            })
            .collect()
    }

    /// The parameters of a method: a JSON object, or names whose values are JSON where they can be read so.
    pub(super) fn parameters(&self) -> Option<Value> {
        if self.head.is_form || self.body.is_empty() {
            let value = |text: String| serde_json::from_str(&text).unwrap_or(Value::String(text));
            let fields = self.named().into_iter();
            return Some(Value::Object(
                fields.map(|(name, text)| (name, value(text))).collect(),
            ));
        }
        serde_json::from_slice(&self.body)
            .ok()
            .filter(Value::is_object)
    }
}

/// Writes an answer; false when the connection is to close.
fn write(mut stream: &TcpStream, answer: Answer) -> io::Result<bool> {
    let (status, kind, body, is_whole) = match answer {
        Answer::Whole(status, kind, body) => (status, kind, body, true),
        Answer::Half(status, kind, body) => (status, kind, body, false),
        Answer::Close => return Ok(false),
    };
    let mut bytes = format!(
        "HTTP/1.1 {status} {}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n",
        reason(status),
        body.len()
    )
    .into_bytes();
    let sent = if is_whole { body.len() } else { body.len() / 2 };
    bytes.extend(body.into_iter().take(sent));
    stream.write_all(&bytes)?;
    Ok(is_whole)
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        409 => "Conflict",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        502 => "Bad Gateway",
        _ => "Unknown",
    }
}

/// Reads `%` and two hex digits as the byte; anything else stays.
fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let digits = bytes.get(at + 1..at + 3).filter(|_| *byte == b'%');
        let read = digits
            .and_then(|digits| str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        at += if read.is_some() { 3 } else { 1 };
        decoded.push(read.unwrap_or(*byte));
    }
    String::from_utf8_lossy(&decoded).into_owned()
}
