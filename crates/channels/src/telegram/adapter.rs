//! The adapter child: one profile, one conversation with the host, one provider.
//!
//! The child does what the host orders and tells what came of it; it decides nothing and remembers nothing that matters. Every
//! message is answered before the next one, so that the host always knows what may be in flight. A line that breaks a rule, a
//! message that the host rejects, or the end of the stream ends the child: the next one starts from what is stored.
//!
//! Rooms: `talk` is the conversation, `deliver` sends, `settle` takes buttons off, `reader` keeps a poll open beside all that, `poll`
//! handles what people did, `owed` tells them what came of it.
//!
//! Not here: the database, who may answer in the end, and trying again, which the host does.

mod deliver;
mod owed;
mod poll;
mod reader;
mod settle;
mod talk;

use std::fmt;
use std::io::{BufReader, Read, Write};
use std::sync::Arc;
use std::time::Duration;

use holdpoint_state::clock::{Clock, SystemClock};

use super::api::{ApiBase, Client, Patience};
use super::token::BotToken;
use crate::protocol::{ErrorCode, Launch, Order, Report};

use owed::Debts;
use poll::Backoff;
use reader::Reader;
use talk::{Diagnostics, Talk};

/// How the child waits.
#[derive(Debug, Clone)]
pub struct Settings {
    /// How long it waits when there is no order, before it asks again.
    pub idle: Duration,
    /// The longest that it waits at a time while the provider wants no poll, so that an order is never far.
    pub rest: Duration,
    /// The longest that it waits for an open poll, before it asks the host again. The poll stays open.
    pub look: Duration,
    /// How long a request may take.
    pub patience: Patience,
    /// Measures the back-off and the pauses that the provider wants.
    pub clock: Arc<dyn Clock>,
    /// Called when the stream from the host has ended, whatever the child is at: a process ends itself here, since nobody would know
    /// what it still sends.
    pub host_gone: fn(),
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            idle: Duration::from_millis(100),
            rest: Duration::from_millis(250),
            look: Duration::from_millis(250),
            patience: Patience::default(),
            clock: Arc::new(SystemClock),
            host_gone: || {},
        }
    }
}

/// Why the child ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// It was told to stop, and the host knows.
    Stopped,
    /// The provider does not know the token, and the host knows.
    TokenRefused,
    /// The host is gone.
    HostGone,
    /// The host rejected a message.
    Rejected,
    /// A line of the host broke a rule.
    Malformed,
    /// What the child had to say breaks a rule: it would not be taken.
    Unsayable,
    /// The launch line can't be used.
    Launch,
}

impl Exit {
    /// The exit code of the process: zero only if it was told to stop.
    pub fn code(self) -> u8 {
        match self {
            Self::Stopped => 0,
            Self::TokenRefused => 3,
            Self::HostGone => 4,
            Self::Rejected => 5,
            Self::Malformed => 6,
            Self::Unsayable => 7,
            Self::Launch => 8,
        }
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Stopped => "stopped",
            Self::TokenRefused => "the provider does not know the token",
            Self::HostGone => "the host is gone",
            Self::Rejected => "the host rejected a message",
            Self::Malformed => "a line of the host breaks a rule of the protocol",
            Self::Unsayable => "a message would break a rule of the protocol",
            Self::Launch => "the launch line can't be used",
        })
    }
}

/// Runs the child to its end: launch line and responses from `input`, messages to `output`, and to `diagnostics` a few fixed words
/// for a person.
///
/// It reads `input` on a thread of its own, which ends with the stream.
pub fn run(
    input: impl Read + Send + 'static,
    output: impl Write,
    diagnostics: impl Write,
    settings: &Settings,
) -> Exit {
    let mut diagnostics = Diagnostics::new(diagnostics);
    let ended = start(BufReader::new(input), output, &mut diagnostics, settings);
    let exit = match ended {
        Ok(never) => match never {},
        Err(exit) => exit,
    };
    if exit != Exit::Stopped {
        diagnostics.say(&exit.to_string());
    }
    exit
}

/// There is no way to go on but the next order; every end is an [`Exit`].
enum Never {}

fn start<O: Write, D: Write>(
    input: BufReader<impl Read + Send + 'static>,
    output: O,
    diagnostics: &mut Diagnostics<D>,
    settings: &Settings,
) -> Result<Never, Exit> {
    let (talk, launch) = Talk::open(input, output, settings.host_gone)?;
    let bot = BotToken::new(launch.token.expose()).or(Err(Exit::Launch))?;
    let base = match &launch.api_base {
        Some(base) => ApiBase::new(base).or(Err(Exit::Launch))?,
        None => ApiBase::default(),
    };
    let api = Arc::new(Client::new(base, bot.clone(), settings.patience));
    // Without a thread there is no child; the next one may get one.
    let reader = Reader::start(Arc::clone(&api), talk.events()).or(Err(Exit::Unsayable))?;
    let mut child = Child {
        api,
        bot,
        bot_id: None,
        reader,
        debts: Debts::default(),
        backoff: Backoff::default(),
        cursor: 0,
        talk,
        launch,
        diagnostics,
        settings,
    };
    child.serve()
}

/// What the child has: the two it talks to, and how far it has read.
struct Child<'a, O: Write, D: Write> {
    talk: Talk<O>,
    launch: Launch,
    api: Arc<Client>,
    bot: BotToken,
    /// Who the bot is, once that is known.
    bot_id: Option<i64>,
    reader: Reader,
    debts: Debts,
    backoff: Backoff,
    cursor: u64,
    diagnostics: &'a mut Diagnostics<D>,
    settings: &'a Settings,
}

impl<O: Write, D: Write> Child<'_, O, D> {
    fn serve(&mut self) -> Result<Never, Exit> {
        let mut next = self.ready(None)?;
        loop {
            next = match next {
                None => {
                    self.talk.rest(self.settings.idle)?;
                    self.ready(None)?
                }
                Some(Order::Present {
                    attempt_id,
                    request,
                    messages,
                    ..
                }) => self.present(attempt_id, &request, messages)?,
                Some(Order::Settle {
                    attempt_id,
                    request,
                    messages,
                    ..
                }) => self.settle(attempt_id, &request, &messages)?,
                Some(Order::Identify) => self.identify()?,
                Some(Order::Poll {
                    cursor,
                    requests,
                    quiet_ms,
                }) => self.poll(cursor, &requests, quiet_ms)?,
                Some(Order::Stop) => {
                    self.exiting(None)?;
                    return Err(Exit::Stopped);
                }
            };
        }
    }

    /// Tells how far it has read, and gives the next order.
    fn ready(&mut self, error_code: Option<ErrorCode>) -> Result<Option<Order>, Exit> {
        self.ready_as(error_code, None)
    }

    /// The same, and who the bot is.
    fn ready_as(
        &mut self,
        error_code: Option<ErrorCode>,
        bot_id: Option<u64>,
    ) -> Result<Option<Order>, Exit> {
        let cursor = self.cursor;
        let id = self.talk.signal_id(&self.launch, "ready", cursor);
        let report = Report::Ready {
            cursor,
            error_code,
            bot_id,
            retry_after: self.debts.untold_pause.take(),
        };
        Ok(self.talk.ask(&self.launch, id, report)?.command)
    }

    /// Tells that it ends.
    fn exiting(&mut self, error_code: Option<ErrorCode>) -> Result<(), Exit> {
        let cursor = self.cursor;
        let id = self.talk.signal_id(&self.launch, "exiting", cursor);
        let report = Report::Exiting { cursor, error_code };
        self.talk.tell(&self.launch, id, report).map(drop)
    }
}
