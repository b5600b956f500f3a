//! One connection: a thread that reads requests and one that answers them in order and publishes in between.
//!
//! What a slow reader costs is the one frame that is being written to it, a few small requests, and these threads: the next document is
//! made when the one before it was taken. Not here: what is answered (`subscriptions`).

use std::io::{BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use super::frame;
use super::host::Shared;
use super::protocol::{self, Answer, Ask, Outcome, Request};
use super::subscriptions::Subscriptions;

/// How long a peer may take over its first request. The published client sends it with its connection.
const FIRST_REQUEST: Duration = Duration::from_secs(30);
/// How long a peer may take nothing of what is written to it.
const WRITE_PATIENCE: Duration = Duration::from_secs(10);
/// How many requests are read ahead. More stay in the socket.
const READ_AHEAD: usize = 16;
/// How much is read at once, in bytes.
const READ_BYTES: usize = 16 * 1024;

/// Serves a peer until it goes away, breaks the protocol, or the server ends. Blocks.
pub(super) fn serve(stream: &UnixStream, id: u64, shared: &Arc<Shared>) -> std::io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(WRITE_PATIENCE))?;
    stream.set_read_timeout(Some(FIRST_REQUEST))?;
    let (sender, requests) = sync_channel(READ_AHEAD);
    let incoming = stream.try_clone()?;
    let reader = std::thread::Builder::new()
        .name(format!("holdpoint-read-{id}"))
        .spawn(move || listen(&incoming, &sender))?;
    let ended = answer(stream, id, shared, &requests);
    // Whatever the reader waits for: more bytes, or room for a request.
    drop(requests);
    let _closed = stream.shutdown(std::net::Shutdown::Both);
    let _joined = reader.join();
    ended
}

fn listen(stream: &UnixStream, requests: &SyncSender<Request>) {
    let mut reader = BufReader::with_capacity(READ_BYTES, stream);
    let mut line = Vec::new();
    let mut is_first = true;
    loop {
        let request = match frame::read(&mut reader, &mut line) {
            Ok(Some(value)) => protocol::request(value),
            // A probe that goes away at once is nothing to tell of.
            Ok(None) | Err(frame::FrameError::Io(_)) => return,
            Err(error) => {
                tracing::debug!(error = %error, "a peer broke the protocol");
                return;
            }
        };
        let Some(request) = request else {
            tracing::debug!("a peer sent what is no request");
            return;
        };
        if std::mem::take(&mut is_first) && stream.set_read_timeout(None).is_err() {
            return;
        }
        if requests.send(request).is_err() {
            return;
        }
    }
}

fn answer(
    mut stream: &UnixStream,
    id: u64,
    shared: &Arc<Shared>,
    requests: &Receiver<Request>,
) -> std::io::Result<()> {
    let mut send = |frame: &[u8]| stream.write_all(frame);
    if let Some(hello) = frame::write(&protocol::hello(&format!("connection-{id}"))) {
        send(&hello)?;
    }
    let mut subscriptions = Subscriptions::new(shared.db(), shared.shown());
    loop {
        match requests.recv_timeout(subscriptions.rest()) {
            Ok(request) => {
                let stops = request.asks == Ok(Ask::Stop);
                if stops {
                    // The peer sees the end of the server by the end of this connection.
                    shared.keep_to_the_end(id);
                }
                let answer = match request.asks {
                    Ok(Ask::Status) => Answer::accepted(shared.status()),
                    Ok(Ask::Stop) => Answer::accepted(serde_json::json!({ "stopping": true })),
                    Ok(ask) => subscriptions.answer(ask),
                    Err(why) => Answer::refused(Outcome::Rejected, why),
                };
                let frame = frame::write(&answer.to(&request.id)).or_else(|| {
                    let answer = Answer::refused(
                        Outcome::Unavailable,
                        "the answer is too large for a frame",
                    );
                    frame::write(&answer.to(&request.id))
                });
                if let Some(frame) = frame {
                    send(&frame)?;
                }
                if stops {
                    shared.ask_to_stop();
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
        // Also between two requests: the first document of a watch goes before the answers to what was asked after it.
        subscriptions.publish(&mut send)?;
    }
}
