//! The live server of a home: what runs do, for the published client, over a local socket.
//!
//! # Rooms
//!
//! - `frame`: lines of canonical JSON, bounded.
//! - `protocol`: envelopes, what can be asked and how it is answered. Pure.
//! - `subscriptions`: what one connection watches, and which documents it has got of it.
//! - `connection`: the two threads of one connection.
//! - `host`: the lease, the socket, the connections of one server.
//! - `peer`: this command as a client of the server.
//!
//! Nothing here changes a run. Readers cost the writer nothing: documents are read from snapshots, a document is made when its reader
//! can take it, and nobody is waited for.

mod connection;
mod frame;
mod host;
mod peer;
mod protocol;
mod subscriptions;

pub(crate) use host::Host;
pub(crate) use peer::{Peer, ServerStatus};
