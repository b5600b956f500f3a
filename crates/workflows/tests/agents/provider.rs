//! A provider of a model, played by the test: chat completions as `OpenAI` streams them, on a loopback address.
//!
//! Each request takes the next scripted turn. What was asked is kept, so that a test can see what reached the model.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

/// What the model does when it is asked.
#[derive(Debug, Clone)]
pub(crate) enum Turn {
    /// It says these parts, then stops for this reason.
    Say(Vec<String>, &'static str),
    /// It calls a tool.
    Call(&'static str, Value),
    /// It answers with an HTTP status and a message.
    Fail(u16, &'static str),
    /// It begins to speak and never goes on.
    Hang(&'static str),
}

impl Turn {
    pub(crate) fn say(text: &str) -> Self {
        Self::Say(vec![text.to_owned()], "stop")
    }
}

/// The provider. Its thread ends with the process.
pub(crate) struct Provider {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    turns: Mutex<VecDeque<Turn>>,
    asked: Mutex<Vec<Value>>,
}

impl Provider {
    pub(crate) fn start(turns: impl IntoIterator<Item = Turn>) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            turns: Mutex::new(turns.into_iter().collect()),
            asked: Mutex::default(),
        });
        let serving = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&serving);
                std::thread::spawn(move || {
                    // A client that goes away in the middle is one that was stopped.
                    let _gone = shared.serve(stream);
                });
            }
        });
        Self { address, shared }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// What the model was asked until now, one body for each request.
    pub(crate) fn asked(&self) -> Vec<Value> {
        self.shared.asked.lock().unwrap().clone()
    }

    /// How many turns of the script are left.
    pub(crate) fn left(&self) -> usize {
        self.shared.turns.lock().unwrap().len()
    }
}

impl Shared {
    fn serve(&self, stream: TcpStream) -> std::io::Result<()> {
        let mut reader = BufReader::new(stream.try_clone()?);
        let mut stream = stream;
        let mut length = 0;
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().unwrap();
            }
            if line.trim().is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        self.asked
            .lock()
            .unwrap()
            .push(serde_json::from_slice(&body).unwrap());
        let turn = self.turns.lock().unwrap().pop_front();
        match turn {
            None => fail(&mut stream, 400, "the script has no more turns"),
            Some(Turn::Fail(status, message)) => fail(&mut stream, status, message),
            Some(Turn::Hang(text)) => {
                begin(&mut stream)?;
                say(&mut stream, &json!({ "content": text }), None)?;
                // Until the other side closes.
                reader.read_to_end(&mut Vec::new())?;
                Ok(())
            }
            Some(Turn::Say(parts, reason)) => {
                begin(&mut stream)?;
                for part in parts {
                    say(&mut stream, &json!({ "content": part }), None)?;
                }
                end(&mut stream, reason)
            }
            Some(Turn::Call(name, arguments)) => {
                begin(&mut stream)?;
                let call = json!({ "tool_calls": [{
                    "index": 0,
                    "id": "call_1",
                    "type": "function",
                    "function": { "name": name, "arguments": arguments.to_string() },
                }] });
                say(&mut stream, &call, None)?;
                end(&mut stream, "tool_calls")
            }
        }
    }
}

fn begin(stream: &mut TcpStream) -> std::io::Result<()> {
    stream.write_all(
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n",
    )
}

fn say(stream: &mut TcpStream, delta: &Value, reason: Option<&str>) -> std::io::Result<()> {
    let chunk = json!({
        "id": "answer-1",
        "object": "chat.completion.chunk",
        "model": "scripted",
        "choices": [{ "index": 0, "delta": delta, "finish_reason": reason }],
    });
    stream.write_all(format!("data: {chunk}\n\n").as_bytes())?;
    stream.flush()
}

fn end(stream: &mut TcpStream, reason: &str) -> std::io::Result<()> {
    say(stream, &json!({}), Some(reason))?;
    let usage = json!({
        "id": "answer-1",
        "object": "chat.completion.chunk",
        "model": "scripted",
        "choices": [],
        "usage": { "prompt_tokens": 100, "completion_tokens": 7, "total_tokens": 107 },
    });
    stream.write_all(format!("data: {usage}\n\ndata: [DONE]\n\n").as_bytes())
}

fn fail(stream: &mut TcpStream, status: u16, message: &str) -> std::io::Result<()> {
    let body = json!({ "error": { "message": message, "type": "scripted" } }).to_string();
    let length = body.len();
    stream.write_all(
        format!(
            "HTTP/1.1 {status} Scripted\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
        )
        .as_bytes(),
    )
}
