//! The open poll: a thread of its own asks the provider, so that the conversation with the host goes on meanwhile.
//!
//! It is asked for one poll at a time and tells what came of it as an event beside the lines of the host. It handles nothing: what an
//! update means is decided where the host's latest list is known (`poll`). Nobody has to wait for it: it ends with the process, and an
//! update that it had read and nobody handled comes again, since only a later poll tells the provider that it is done with.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use super::super::api::{Client, Failure, Update};
use super::talk::Event;

/// What came of a poll.
pub(super) type Polled = Result<Vec<Update>, Failure>;

pub(super) struct Reader {
    cursors: SyncSender<u64>,
    /// A poll is open, or its result waits to be taken.
    pub(super) is_open: bool,
    /// Updates that were read and are not handled, in their order. No poll is opened before they are.
    pub(super) waiting: VecDeque<Update>,
}

impl Reader {
    pub(super) fn start(api: Arc<Client>, events: SyncSender<Event>) -> io::Result<Self> {
        let (cursors, asked) = sync_channel(1);
        thread::Builder::new()
            .name("poll".to_owned())
            .spawn(move || {
                for cursor in asked {
                    let polled = api.get_updates(cursor);
                    if events.send(Event::Polled(polled)).is_err() {
                        return;
                    }
                }
            })?;
        Ok(Self {
            cursors,
            is_open: false,
            waiting: VecDeque::new(),
        })
    }

    /// Opens a poll. False when the thread is gone, which only a defect brings about.
    pub(super) fn open(&mut self, cursor: u64) -> bool {
        self.is_open = self.cursors.try_send(cursor).is_ok();
        self.is_open
    }
}
