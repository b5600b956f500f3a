//! HTTP for the Bot API, and the one thing that a usual client hides: whether a request had begun when it failed.
//!
//! The last connector of the chain runs when name, connection and TLS are done and nothing of the request was written. A failure
//! before that proves that nothing was sent; any later one, and any on a connection that was there before, proves nothing.
//!
//! Not here: what an answer means. No error of the client is kept or shown, because some repeat the URL.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use serde_json::Value;
use ureq::Agent;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{
    ConnectionDetails, Connector, NextTimeout, RustlsConnector, TcpConnector, Transport as Wire,
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
    /// How far the connection for the current request is.
    stage: Arc<AtomicU8>,
}

/// The name is not found yet.
const NAMING: u8 = 0;
/// The name is found. If it ends here, an older connection served, and the request went over it.
const NAMED: u8 = 1;
/// A new connection was asked for.
const CONNECTING: u8 = 2;
/// It stands, TLS included; the next thing is the request.
const CONNECTED: u8 = 3;

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
        let stage = Arc::new(AtomicU8::new(NAMING));
        let reaching = |number| Reaching(Arc::clone(&stage), number);
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
            ().chain(reaching(CONNECTING))
                .chain(TcpConnector::default())
                .chain(RustlsConnector::default())
                .chain(reaching(CONNECTED));
        Self {
            agent: Agent::with_parts(config, connector, Naming(Arc::clone(&stage))),
            stage,
        }
    }

    fn post(&self, url: &str, body: &Value) -> Result<Answered, Lost> {
        self.stage.store(NAMING, Ordering::SeqCst);
        let body = body.to_string();
        let sent = self
            .agent
            .post(url)
            .header("content-type", "application/json")
            .send(body.as_str());
        let mut response = match sent {
            Ok(response) => response,
            Err(_) => return Err(self.lost()),
        };
        let status = response.status().as_u16();
        let body = response.body_mut().with_config().limit(BODY_BYTES_MAX);
        match body.read_to_vec() {
            Ok(body) => Ok(Answered { status, body }),
            Err(_) => Err(Lost::Sent),
        }
    }

    fn lost(&self) -> Lost {
        match self.stage.load(Ordering::SeqCst) {
            NAMING | CONNECTING => Lost::NotSent,
            _ => Lost::Sent,
        }
    }
}

/// Finds names, and notes when one is found.
#[derive(Debug)]
struct Naming(Arc<AtomicU8>);

impl Resolver for Naming {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let found = DefaultResolver::default().resolve(uri, config, timeout)?;
        self.0.store(NAMED, Ordering::SeqCst);
        Ok(found)
    }
}

/// A link of the chain that notes that it was reached.
#[derive(Debug)]
struct Reaching(Arc<AtomicU8>, u8);

impl<In: Wire> Connector<In> for Reaching {
    type Out = In;

    fn connect(
        &self,
        _: &ConnectionDetails<'_>,
        chained: Option<In>,
    ) -> Result<Option<In>, ureq::Error> {
        self.0.store(self.1, Ordering::SeqCst);
        Ok(chained)
    }
}
