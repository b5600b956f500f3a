//! A server on this machine that plays the Bot API strictly, for tests and for trying a channel by hand.
//!
//! It refuses what the provider refuses, with the provider's words, and can be told to fail in every way in which the provider or
//! the network may: [`Fault`]. People are played through [`DevServer`] or, from another terminal, through the paths under `/dev/`.
//! Where it differs: every chat exists until a test says otherwise, and a parameter that it does not know is refused, because a
//! misspelt one would otherwise pass unseen.
//!
//! Rooms: `http` reads requests and writes answers, `world` holds what was said and done, `methods` are the Bot API, `markup`
//! checks keyboards and entities, `fault` says how to fail, `control` plays people over HTTP.
//!
//! Not here: a database, a file, the adapter. It listens on loopback only and forgets everything when it ends.

mod control;
mod fault;
mod http;
mod markup;
mod methods;
mod world;

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::telegram::{ApiBase, BotToken};

pub use fault::Fault;
pub use world::{Shown, Toast, WorldError};

use world::World;

/// The token that a server started by hand expects.
pub const TOKEN: &str = "1000:dev-server";

/// A running server. It ends when this is dropped.
pub struct DevServer {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl fmt::Debug for DevServer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("DevServer")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

/// What the threads of all connections share.
struct Shared {
    /// Where it listens, as text.
    url: String,
    token: BotToken,
    world: Mutex<World>,
    /// Something happened: an update, a call, the end.
    changed: Condvar,
    is_ending: AtomicBool,
    connections: AtomicUsize,
}

impl Shared {
    fn world(&self) -> MutexGuard<'_, World> {
        // A thread that panicked is a failed test; the others may still say what they saw.
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_ending(&self) -> bool {
        self.is_ending.load(Ordering::SeqCst)
    }

    /// Waits until `holds`, for at most `limit`, or until the end. True if it holds.
    fn wait(&self, limit: Duration, mut holds: impl FnMut(&mut World) -> bool) -> bool {
        let (mut world, _) = self
            .changed
            .wait_timeout_while(self.world(), limit, |world| {
                !holds(world) && !self.is_ending()
            })
            .unwrap_or_else(PoisonError::into_inner);
        holds(&mut world)
    }
}

impl DevServer {
    /// Starts a server for the bot with this token, on a free port of 127.0.0.1.
    ///
    /// # Errors
    ///
    /// Those of the socket.
    pub fn start(token: &BotToken) -> io::Result<Self> {
        Self::start_on(0, token)
    }

    /// Starts a server on a port of 127.0.0.1; 0 takes a free one.
    ///
    /// # Errors
    ///
    /// Those of the socket.
    pub fn start_on(port: u16, token: &BotToken) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            url: format!("http://{address}"),
            token: token.clone(),
            world: Mutex::new(World::new(token)),
            changed: Condvar::new(),
            is_ending: AtomicBool::new(false),
            connections: AtomicUsize::new(0),
        });
        let accepting = Arc::clone(&shared);
        thread::Builder::new()
            .name("dev-server".to_owned())
            .spawn(move || accept(&listener, &accepting))?;
        Ok(Self { address, shared })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where it listens, as the address of a Bot API.
    ///
    /// # Panics
    ///
    /// Never: the address is on this machine.
    pub fn base(&self) -> ApiBase {
        ApiBase::new(&self.url()).unwrap_or_else(|_| unreachable!("BUG: loopback is no address"))
    }

    /// Where it listens, as text.
    pub fn url(&self) -> String {
        self.shared.url.clone()
    }

    /// Where it is and how to play a person from another terminal, as lines that a shell takes.
    pub fn help(&self) -> String {
        control::help(&self.shared.url)
    }

    /// What a person sees in a chat, oldest first.
    pub fn chat(&self, chat: i64) -> Vec<Shown> {
        self.shared.world().chat(chat)
    }

    /// A person presses a button that is shown, named by its text or by what it carries. Gives the id of the press.
    ///
    /// # Errors
    ///
    /// [`WorldError`] when there is no such message or button.
    pub fn press(
        &self,
        user: i64,
        chat: i64,
        message: u64,
        button: &str,
    ) -> Result<String, WorldError> {
        let pressed = self.shared.world().press(user, chat, message, button);
        self.shared.changed.notify_all();
        pressed
    }

    /// A client that nobody should trust presses a button that carries `data`, whether or not there is one.
    ///
    /// # Errors
    ///
    /// [`WorldError`] when there is no such message.
    pub fn press_data(
        &self,
        user: i64,
        chat: i64,
        message: u64,
        data: &str,
    ) -> Result<String, WorldError> {
        let pressed = self.shared.world().press_data(user, chat, message, data);
        self.shared.changed.notify_all();
        pressed
    }

    /// A person replies to a message. Gives the id of the new message.
    ///
    /// # Errors
    ///
    /// [`WorldError`] when there is no such message.
    pub fn reply(&self, user: i64, chat: i64, to: u64, text: &str) -> Result<u64, WorldError> {
        let written = self.shared.world().write(user, chat, text, Some(to));
        self.shared.changed.notify_all();
        written
    }

    /// A person writes a message. Gives its id.
    pub fn say(&self, user: i64, chat: i64, text: &str) -> u64 {
        let written = self.shared.world().write(user, chat, text, None);
        self.shared.changed.notify_all();
        written.unwrap_or_default()
    }

    /// Any update at all: its number is set unless it has one.
    pub fn inject(&self, update: Value) -> u64 {
        let id = self.shared.world().inject(update);
        self.shared.changed.notify_all();
        id
    }

    /// The text that a person saw on pressing, for each press that was acknowledged, in the order of the acknowledgements.
    pub fn toasts(&self) -> Vec<Toast> {
        self.shared.world().toasts().to_vec()
    }

    /// How often a method was called, whatever came of it.
    pub fn calls(&self, method: &str) -> usize {
        self.shared.world().calls(method)
    }

    /// How many connections were made so far.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// The parameters of every call of a method, in order.
    pub fn parameters(&self, method: &str) -> Vec<Value> {
        self.shared.world().parameters(method)
    }

    /// The next call of a method fails in this way; several are used up in order.
    pub fn fail(&self, method: &str, fault: Fault) {
        self.shared.world().faults.push(method, fault);
    }

    /// The method works from now on, whatever was asked of it before.
    pub fn heal(&self, method: &str) {
        self.shared.world().faults.clear(method);
        self.shared.changed.notify_all();
    }

    /// A chat that the bot can't write to.
    pub fn close_chat(&self, chat: i64) {
        self.shared.world().close_chat(chat);
    }

    /// A chat that the bot may write to again.
    pub fn open_chat(&self, chat: i64) {
        self.shared.world().open_chat(chat);
    }

    /// Somebody deletes a message.
    pub fn delete(&self, chat: i64, message: u64) {
        self.shared.world().delete(chat, message);
    }

    /// Waits until a method was called `count` times; false if that does not happen within `limit`.
    pub fn wait_for_calls(&self, method: &str, count: usize, limit: Duration) -> bool {
        self.shared
            .wait(limit, |world| count <= world.calls(method))
    }

    /// Waits until a chat looks as it should; false if that does not happen within `limit`.
    pub fn wait_for_chat(
        &self,
        chat: i64,
        limit: Duration,
        looks_right: impl Fn(&[Shown]) -> bool,
    ) -> bool {
        self.shared
            .wait(limit, |world| looks_right(&world.chat(chat)))
    }
}

impl Drop for DevServer {
    fn drop(&mut self) {
        self.shared.is_ending.store(true, Ordering::SeqCst);
        // Under the lock, so that nobody who just looked goes to sleep on it.
        drop(self.shared.world());
        self.shared.changed.notify_all();
        // The acceptor looks at the flag when somebody comes.
        drop(TcpStream::connect(self.address));
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for stream in listener.incoming() {
        if shared.is_ending() {
            return;
        }
        let Ok(stream) = stream else { continue };
        shared.connections.fetch_add(1, Ordering::SeqCst);
        let shared = Arc::clone(shared);
        let served = thread::Builder::new()
            .name("dev-server connection".to_owned())
            .spawn(move || http::serve(&stream, &shared));
        // Without a thread the connection closes, as that of any busy server.
        drop(served);
    }
}
