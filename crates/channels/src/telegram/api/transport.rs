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
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{
    ConnectProxyConnector, ConnectionDetails, Connector, NextTimeout, RustlsConnector,
    TcpConnector, Transport as Wire,
};
use ureq::{Agent, Proxy, ProxyProtocol};

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

/// Compiled out: at this level the client logs URLs, and with them the token.
const _: () = assert!(!matches!(log::STATIC_MAX_LEVEL, log::LevelFilter::Trace));

impl Transport {
    /// With TLS, a proxy that the environment names is used: it sees where the requests go and nothing of them. Without TLS none
    /// is, since it would see the token.
    pub(super) fn new(patience: Patience, has_tls: bool) -> Self {
        let proxy = if has_tls { Proxy::try_from_env() } else { None };
        Self::through(patience, has_tls, proxy)
    }

    fn through(patience: Patience, has_tls: bool, proxy: Option<Proxy>) -> Self {
        let can_connect =
            |proxy: &Proxy| matches!(proxy.protocol(), ProxyProtocol::Http | ProxyProtocol::Https);
        let proxy = proxy.filter(can_connect);
        let line = |whole: Duration, idle_connections: usize| {
            let config = Config::builder()
                .timeout_resolve(Some(patience.connect))
                .timeout_connect(Some(patience.connect))
                .timeout_global(Some(whole))
                .max_idle_connections(idle_connections)
                .max_idle_connections_per_host(idle_connections)
                // A status is an answer here, and a redirect would carry the token elsewhere.
                .http_status_as_error(false)
                .max_redirects(0)
                .max_redirects_will_error(false)
                .proxy(proxy.clone())
                .user_agent("holdpoint")
                .build();
            Line::new(config, has_tls)
        };
        let poll = patience.request + Duration::from_secs(patience.poll_s.into());
        Self {
            once: line(patience.request, 0),
            polls: line(poll, 1),
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
    fn new(config: Config, has_tls: bool) -> Self {
        let stage = Arc::new(AtomicU8::new(NAMING));
        let reaching = |number, needs_tls| Reaching {
            stage: Arc::clone(&stage),
            number,
            needs_tls,
        };
        let connector =
            ().chain(reaching(CONNECTING, false))
                .chain(ConnectProxyConnector::default())
                .chain(TcpConnector::default())
                .chain(RustlsConnector::default())
                .chain(reaching(CONNECTED, has_tls));
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
        let Ok(mut response) = sent else {
            return Err(self.lost());
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

    /// A proxy finds the name.
    fn empty(&self) -> ResolvedSocketAddrs {
        self.0.store(NAMED, Ordering::SeqCst);
        DefaultResolver::default().empty()
    }
}

/// A link of the chain that notes that it was reached.
#[derive(Debug)]
struct Reaching {
    stage: Arc<AtomicU8>,
    number: u8,
    /// The way to a proxy goes through the same chain, and is not yet the way to the provider.
    needs_tls: bool,
}

impl<In: Wire> Connector<In> for Reaching {
    type Out = In;

    fn connect(
        &self,
        _: &ConnectionDetails<'_>,
        chained: Option<In>,
    ) -> Result<Option<In>, ureq::Error> {
        if !self.needs_tls || chained.as_ref().is_some_and(In::is_tls) {
            self.stage.store(self.number, Ordering::SeqCst);
        }
        Ok(chained)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;
    use std::thread;

    use serde_json::json;

    use super::*;

    /// What is known when a proxy answers a request for a way to the provider in this manner.
    fn through(answer: &'static [u8]) -> (Option<Lost>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = Proxy::new(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
        let proxied = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            // The request may come in pieces.
            let (mut seen, mut piece) = (Vec::new(), [0; 4_096]);
            while !seen.ends_with(b"\r\n\r\n") {
                let read = stream.read(&mut piece).unwrap();
                assert!(0 < read, "it ends before its request does");
                seen.extend_from_slice(&piece[..read]);
            }
            stream.write_all(answer).unwrap();
            String::from_utf8_lossy(&seen).into_owned()
        });
        let patience = Patience {
            connect: Duration::from_secs(5),
            request: Duration::from_secs(5),
            poll_s: 0,
        };
        let transport = Transport::through(patience, true, Some(proxy));
        let url = "https://bots.example.org/bot1:secret/sendMessage";
        let lost = transport.once(url, &json!({})).err();
        (lost, proxied.join().unwrap())
    }

    #[test]
    fn a_proxy_that_opens_no_way_was_sent_nothing() {
        for answer in [
            &b"HTTP/1.1 502 Bad Gateway\r\n\r\n"[..],
            b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n",
            b"",
            // It opens a way, and closes it before TLS is agreed on.
            b"HTTP/1.1 200 OK\r\n\r\n",
        ] {
            let (lost, seen) = through(answer);
            assert!(matches!(lost, Some(Lost::NotSent)), "{seen}");
            assert!(
                seen.starts_with("CONNECT bots.example.org:443 HTTP/1.1\r\n"),
                "{seen}"
            );
            assert!(!seen.contains("secret"), "{seen}");
        }
    }
}
