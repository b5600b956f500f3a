//! The conversation with the host: one message, one response, in step.
//!
//! Not here: what is said.

use std::io::{BufReader, Read, Write};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::thread;
use std::time::Duration;

use super::Exit;
use super::reader::Polled;
use crate::identity::signal_id;
use crate::protocol::{FromAdapter, Launch, ProtocolError, Report, ToAdapter, Verdict, read_line};

/// How much a child writes for people in its life, in bytes.
const DIAGNOSTICS_BYTES_MAX: usize = 64 << 10;

type Line = Result<Option<Vec<u8>>, ProtocolError>;

/// What happens outside: the host says something, or a poll is over.
pub(super) enum Event {
    Line(Line),
    Polled(Polled),
}

pub(super) struct Talk<O> {
    events: Receiver<Event>,
    /// For whoever has something to tell.
    sender: SyncSender<Event>,
    /// A poll that was over while a line was waited for. There is one poll at a time.
    polled: Option<Polled>,
    output: O,
    sequence: u64,
    revision: u64,
}

impl<O: Write> Talk<O> {
    /// Reads the launch line, and everything after it on a thread of its own: a wait ends at once when the host goes away, and
    /// `host_gone` is called also while nobody waits.
    pub(super) fn open(
        mut input: BufReader<impl Read + Send + 'static>,
        output: O,
        host_gone: fn(),
    ) -> Result<(Self, Launch), Exit> {
        // The thread waits with each line until it is wanted, so that a host out of step can't fill the memory.
        let (sender, events) = mpsc::sync_channel(0);
        let lines = sender.clone();
        let reader = move || {
            loop {
                let line = read_line(&mut input);
                let is_last = !matches!(line, Ok(Some(_)));
                if matches!(line, Ok(None) | Err(ProtocolError::Io(_))) {
                    host_gone();
                }
                if lines.send(Event::Line(line)).is_err() || is_last {
                    return;
                }
            }
        };
        thread::Builder::new()
            .name("host".to_owned())
            .spawn(reader)
            .or(Err(Exit::HostGone))?;
        let mut talk = Self {
            events,
            sender,
            polled: None,
            output,
            sequence: 0,
            revision: 0,
        };
        let line = zeroize::Zeroizing::new(talk.line()?);
        let launch = Launch::from_line(&line).or(Err(Exit::Launch))?;
        Ok((talk, launch))
    }

    fn line(&mut self) -> Result<Vec<u8>, Exit> {
        loop {
            match self.events.recv().or(Err(Exit::HostGone))? {
                Event::Line(line) => return taken(line),
                Event::Polled(polled) => self.polled = Some(polled),
            }
        }
    }

    /// Waits until a poll is over, and no longer than this. The host has nothing to say unless it is asked.
    pub(super) fn rest(&mut self, time: Duration) -> Result<(), Exit> {
        if self.polled.is_some() {
            return Ok(());
        }
        match self.events.recv_timeout(time) {
            Err(RecvTimeoutError::Timeout) => Ok(()),
            Err(RecvTimeoutError::Disconnected) => Err(Exit::HostGone),
            Ok(Event::Line(line)) => taken(line).and(Err(Exit::Malformed)),
            Ok(Event::Polled(polled)) => {
                self.polled = Some(polled);
                Ok(())
            }
        }
    }

    /// What came of the open poll, once it is over.
    pub(super) fn polled(&mut self) -> Option<Polled> {
        self.polled.take()
    }

    /// Where an event is told.
    pub(super) fn events(&self) -> SyncSender<Event> {
        self.sender.clone()
    }

    /// The name of the next `ready` or `exiting`.
    pub(super) fn signal_id(&self, launch: &Launch, kind: &str, cursor: u64) -> String {
        signal_id(&launch.adapter_epoch, kind, self.sequence + 1, cursor)
    }

    /// Says something, and gives the response to it.
    pub(super) fn ask(
        &mut self,
        launch: &Launch,
        stable_message_id: String,
        report: Report,
    ) -> Result<ToAdapter, Exit> {
        self.sequence += 1;
        let message = FromAdapter {
            adapter_epoch: launch.adapter_epoch.clone(),
            profile: launch.profile.clone(),
            sequence: self.sequence,
            expected_revision: self.revision,
            stable_message_id,
            report,
        };
        let line = message.to_line().or(Err(Exit::Unsayable))?;
        self.output
            .write_all(&line)
            .and_then(|()| self.output.flush())
            .or(Err(Exit::HostGone))?;
        let response = self.line()?;
        let response = ToAdapter::from_line(&response).or(Err(Exit::Malformed))?;
        if response.sequence != self.sequence {
            return Err(Exit::Malformed);
        }
        if response.outcome == Verdict::Rejected {
            return Err(Exit::Rejected);
        }
        self.revision = response.revision;
        Ok(response)
    }

    /// Says something that no order follows.
    pub(super) fn tell(
        &mut self,
        launch: &Launch,
        stable_message_id: String,
        report: Report,
    ) -> Result<ToAdapter, Exit> {
        let response = self.ask(launch, stable_message_id, report)?;
        match response.command {
            None => Ok(response),
            Some(_) => Err(Exit::Malformed),
        }
    }
}

fn taken(line: Line) -> Result<Vec<u8>, Exit> {
    match line {
        Ok(Some(line)) => Ok(line),
        Ok(None) => Err(Exit::HostGone),
        Err(_) => Err(Exit::Malformed),
    }
}

/// A few words for a person, and never more than the host would keep. They are fixed words of this crate.
pub(super) struct Diagnostics<D> {
    output: D,
    left: usize,
}

impl<D: Write> Diagnostics<D> {
    pub(super) fn new(output: D) -> Self {
        Self {
            output,
            left: DIAGNOSTICS_BYTES_MAX,
        }
    }

    pub(super) fn say(&mut self, words: &str) {
        let line = format!("telegram adapter: {words}\n");
        if line.len() <= self.left {
            self.left -= line.len();
            // Nobody may be listening, and nothing depends on it.
            drop(self.output.write_all(line.as_bytes()));
        }
    }
}
