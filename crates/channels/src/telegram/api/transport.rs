//! HTTP for the Bot API, and the one thing that a usual client hides: whether a request had begun when it failed.
//!
//! The last connector of the chain runs when name, connection and TLS are done and nothing of the request was written. A failure
//! before that proves that nothing was sent; any later one proves nothing.
//!
//! Not here: what an answer means. No error of the client is kept or shown, because some repeat the URL.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;
use ureq::Agent;
use ureq::config::Config;
use ureq::unversioned::resolver::DefaultResolver;
use ureq::unversioned::transport::{
    ConnectionDetails, Connector, RustlsConnector, TcpConnector, Transport as Wire,
};

use super::Patience;

/// The longest answer that is read, in bytes.
const BODY_BYTES_MAX: u64 = 4 << 20;

/// An answer that was read to its end.
pub(super) struct Answered {
    pub(super) status: u16,
    pub(super) body: Vec<u8>,
}

/// There is no answer.
pub(super) enum Lost {
    /// Not a byte of the request left.
    NotSent,
    /// All of it may have arrived.
    Sent,
}

pub(super) struct Transport {
    /// For requests that must not be doubled: every one has a connection of its own, so that none can be lost on an old one.
    once: Line,
    /// For polls, which are harmless to repeat and far too many for a handshake each.
    polls: Line,
}

struct Line {
    agent: Agent,
    /// The connection for the current request stands.
    is_connected: Arc<AtomicBool>,
}

impl Transport {
    pub(super) fn new(patience: Patience) -> Self {
        let poll = patience.request + Duration::from_secs(patience.poll_s.into());
        Self {
            once: Line::new(patience.connect, patience.request, 0),
            polls: Line::new(patience.connect, poll, 1),
        }
    }

    pub(super) fn once(&self, url: &str, body: &Value) -> Result<Answered, Lost> {
        self.once.post(url, body)
    }

    pub(super) fn poll(&self, url: &str, body: &Value) -> Result<Answered, Lost> {
        self.polls.post(url, body)
    }
}

impl Line {
    fn new(connect: Duration, whole: Duration, idle_connections: usize) -> Self {
        let is_connected = Arc::new(AtomicBool::new(false));
        let config = Config::builder()
            .timeout_resolve(Some(connect))
            .timeout_connect(Some(connect))
            .timeout_global(Some(whole))
            .max_idle_connections(idle_connections)
            .max_idle_connections_per_host(idle_connections)
            // A status is an answer here, and a redirect would carry the token elsewhere.
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            // The environment of the child decides nothing.
            .proxy(None)
            .user_agent("holdpoint")
            .build();
        let connector =
            ().chain(TcpConnector::default())
                .chain(RustlsConnector::default())
                .chain(Connected(Arc::clone(&is_connected)));
        Self {
            agent: Agent::with_parts(config, connector, DefaultResolver::default()),
            is_connected,
        }
    }

    fn post(&self, url: &str, body: &Value) -> Result<Answered, Lost> {
        self.is_connected.store(false, Ordering::SeqCst);
        let body = body.to_string();
        let sent = self
            .agent
            .post(url)
            .header("content-type", "application/json")
            .send(body.as_str());
        let mut response = match sent {
            Ok(response) => response,
            Err(_) if !self.is_connected.load(Ordering::SeqCst) => return Err(Lost::NotSent),
            Err(_) => return Err(Lost::Sent),
        };
        let status = response.status().as_u16();
        let body = response.body_mut().with_config().limit(BODY_BYTES_MAX);
        match body.read_to_vec() {
            Ok(body) => Ok(Answered { status, body }),
            Err(_) => Err(Lost::Sent),
        }
    }
}

/// The last connector: notes that the request is about to be written.
#[derive(Debug)]
struct Connected(Arc<AtomicBool>);

impl<In: Wire> Connector<In> for Connected {
    type Out = In;

    fn connect(
        &self,
        _: &ConnectionDetails<'_>,
        chained: Option<In>,
    ) -> Result<Option<In>, ureq::Error> {
        if chained.is_some() {
            self.0.store(true, Ordering::SeqCst);
        }
        Ok(chained)
    }
}
