//! This command as a client of the server: it asks one thing and waits for the answer.

use std::io::{BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::frame;
use super::protocol::SCHEMA;

/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// How a server says that it is.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ServerStatus {
    pub(crate) running: bool,
    pub(crate) pid: u32,
    pub(crate) epoch: u64,
    pub(crate) socket: String,
    pub(crate) started_at: i64,
    pub(crate) connections: u64,
    pub(crate) client_version: String,
}

/// A connection to a server.
pub(crate) struct Peer {
    stream: UnixStream,
}

impl Peer {
    /// Connects. Fails when nobody listens there.
    pub(crate) fn connect(socket: &Path) -> std::io::Result<Self> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { stream })
    }

    /// The receipt of an accepted request without a payload.
    pub(crate) fn ask(&self, operation: &str) -> std::io::Result<Value> {
        let id = format!("holdpoint-{}", std::process::id());
        let request = json!({ "schema": SCHEMA, "type": "request", "requestId": id, "clientId": id, "operation": operation,
            "idempotencyKey": id, "payload": {} });
        let frame = frame::write(&request)
            .ok_or_else(|| std::io::Error::other("the request is too large"))?;
        (&self.stream).write_all(&frame)?;
        let mut reader = BufReader::new(&self.stream);
        let mut line = Vec::new();
        loop {
            let message = match frame::read(&mut reader, &mut line) {
                Ok(Some(message)) => message,
                Ok(None) => return Err(std::io::Error::other("the server ended the connection")),
                Err(error) => return Err(std::io::Error::other(error.to_string())),
            };
            if message.get("type").and_then(Value::as_str) != Some("response") {
                continue;
            }
            let member = |name: &str| message.get(name).and_then(Value::as_str).map(str::to_owned);
            return match (member("outcome").as_deref(), message.get("receipt")) {
                (Some("accepted"), Some(receipt)) => Ok(receipt.clone()),
                _ => Err(std::io::Error::other(member("error").unwrap_or_default())),
            };
        }
    }

    /// How the server is.
    pub(crate) fn status(&self) -> std::io::Result<ServerStatus> {
        serde_json::from_value(self.ask("server.status")?).map_err(std::io::Error::other)
    }

    /// Waits until the server's process ends, but not for longer.
    pub(crate) fn wait_for_its_end(mut self, patience: Duration) -> std::io::Result<()> {
        self.stream.set_read_timeout(Some(patience))?;
        let mut rest = [0_u8; 1_024];
        while 0 < self.stream.read(&mut rest)? {}
        Ok(())
    }
}
