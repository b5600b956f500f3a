//! The life of one profile: claim, adapter, its end, the next one.
//!
//! One thread does it all: it hears the adapter, renews the claim between two lines, and watches the clock. The claim is held while
//! this host is in charge of the profile, also between two adapters.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use holdpoint_state::clock::{Clock as _, MonotonicMillis, SystemClock};
use holdpoint_state::id::random_id;
use holdpoint_state::{Claim, Database, Owner, StateError};

use super::bot::{Bot, Held};
use super::child::Adapter;
use super::talk::{Talk, Then};
use super::{HostOptions, ProfileState, States};
use crate::commands;
use crate::config::Config;
use crate::error::ChannelError;
use crate::identity::ChannelId;
use crate::protocol::{ErrorCode, Launch};

/// What a supervisor hears.
pub(super) enum Event {
    /// The adapter said something.
    Line(Vec<u8>),
    /// It said more than a line may hold.
    Flood,
    /// It says nothing more.
    Ended,
    /// The host stops.
    Stop,
}

/// One profile and all that its supervision needs.
pub(super) struct Supervisor {
    pub(super) db: Database,
    pub(super) channel: ChannelId,
    pub(super) config: Arc<Config>,
    pub(super) options: HostOptions,
    pub(super) owner: Owner,
    pub(super) states: Arc<States>,
}

/// Ends a supervision.
pub(super) struct Stopper {
    flag: Arc<AtomicBool>,
    events: SyncSender<Event>,
    thread: std::thread::Thread,
}

impl Stopper {
    pub(super) fn stop(&self) {
        self.flag.store(true, Ordering::SeqCst);
        // When there is no room the supervisor is about to look anyway.
        let _full = self.events.try_send(Event::Stop);
        self.thread.unpark();
    }
}

/// Why an adapter is no more.
enum End {
    /// The host stops.
    Stopped,
    /// Another host has the profile now.
    LostClaim,
    /// The provider refuses the token.
    Refused(ErrorCode),
    /// Another profile has the bot.
    BotElsewhere,
    /// Anything else. It says whether the adapter was ever ready.
    Ended(bool),
}

impl Supervisor {
    pub(super) fn start(self) -> Result<(Stopper, JoinHandle<()>), ChannelError> {
        let flag = Arc::new(AtomicBool::new(false));
        // An adapter that says more than is answered waits in its pipe.
        let (sender, events) = sync_channel(4);
        let (stopping, feeding) = (Arc::clone(&flag), sender.clone());
        let thread = std::thread::Builder::new()
            .name(format!("holdpoint-channel-{}", self.profile_name()))
            .spawn(move || self.run(&stopping, &feeding, &events))
            .map_err(|source| StateError::Io {
                action: "starting a thread".into(),
                source,
            })?;
        Ok((
            Stopper {
                flag,
                events: sender,
                thread: thread.thread().clone(),
            },
            thread,
        ))
    }

    fn profile_name(&self) -> &str {
        self.channel.profile().unwrap_or_default()
    }

    fn set(&self, state: ProfileState) {
        self.states.set(self.profile_name(), state);
    }

    fn run(&self, stopping: &AtomicBool, sender: &SyncSender<Event>, events: &Receiver<Event>) {
        let mut wait_ms = self.options.restart_ms;
        let mut bot = Bot::default();
        while !stopping.load(Ordering::SeqCst) {
            // A bot that somebody else had is asked for first: nothing is written for the profile while it is waited for.
            match bot.hold_wanted(self) {
                Ok(Held::Here) => {}
                Ok(Held::Elsewhere) => {
                    self.set(ProfileState::BotElsewhere);
                    self.rest(stopping, self.options.restart_ms, None);
                    continue;
                }
                Err(error) => {
                    tracing::warn!(channel = %self.channel, error = %error, "a bot could not be taken; it is tried again");
                    self.set(ProfileState::Restarting);
                    self.rest(stopping, wait_ms, None);
                    continue;
                }
            }
            let claimed =
                commands::start_host(&self.db, &self.channel, &self.owner, self.options.lease_ms);
            let claim = match claimed {
                Ok(claim) => claim,
                Err(error) => {
                    // Whoever has the profile needs its bot.
                    bot.give_back(self);
                    if matches!(error, ChannelError::State(StateError::LeaseHeld { .. })) {
                        self.set(ProfileState::HostedElsewhere);
                    } else {
                        tracing::warn!(channel = %self.channel, error = %error, "a profile could not be taken; it is tried again");
                        self.set(ProfileState::Restarting);
                    }
                    self.rest(stopping, wait_ms, None);
                    continue;
                }
            };
            let is_over = self.host(&claim, &mut bot, stopping, sender, events, &mut wait_ms);
            bot.give_back(self);
            if let Err(error) = commands::stop_host(&self.db, &claim) {
                tracing::debug!(channel = %self.channel, error = %error, "the claim was gone already");
            }
            if is_over {
                return;
            }
        }
        self.set(ProfileState::Stopped);
    }

    /// One adapter after the other, under one claim. Returns whether the profile is over for this host.
    fn host(
        &self,
        claim: &Claim,
        bot: &mut Bot,
        stopping: &AtomicBool,
        sender: &SyncSender<Event>,
        events: &Receiver<Event>,
        wait_ms: &mut u64,
    ) -> bool {
        while !stopping.load(Ordering::SeqCst) {
            self.set(ProfileState::Starting);
            let end = self.adapter(claim, bot, stopping, sender, events);
            let doubted = commands::doubt(&self.db, &self.channel, claim, ErrorCode::AdapterExited);
            match doubted {
                Ok(0) => {}
                Ok(count) => {
                    tracing::warn!(channel = %self.channel, count, "an adapter ended with an attempt in flight");
                }
                // The next claim finds it.
                Err(error) => {
                    tracing::warn!(channel = %self.channel, error = %error, "what was in flight could not be noted yet");
                    return false;
                }
            }
            match end {
                End::Stopped | End::LostClaim | End::BotElsewhere => return false,
                End::Refused(code) => {
                    self.set(ProfileState::Refused(code));
                    return true;
                }
                End::Ended(was_ready) => {
                    *wait_ms = if was_ready {
                        self.options.restart_ms
                    } else {
                        wait_ms.saturating_mul(2).min(self.options.restart_max_ms)
                    };
                    self.set(ProfileState::Restarting);
                    if !self.rest(stopping, *wait_ms, Some((claim, bot))) {
                        return false;
                    }
                }
            }
        }
        false
    }

    /// Waits, and keeps the claims meanwhile. Returns whether they are still there.
    fn rest(&self, stopping: &AtomicBool, wait_ms: u64, claims: Option<(&Claim, &Bot)>) -> bool {
        let begun = SystemClock.monotonic();
        let mut renewed = begun;
        loop {
            let now = SystemClock.monotonic();
            let left = wait_ms.saturating_sub(now.since(begun));
            if left == 0 || stopping.load(Ordering::SeqCst) {
                return true;
            }
            if let Some((claim, bot)) = claims
                && !self.keep(claim, bot, &mut renewed)
            {
                return false;
            }
            std::thread::park_timeout(Duration::from_millis(left.min(self.renew_ms())));
        }
    }

    fn renew_ms(&self) -> u64 {
        self.options.lease_ms.unsigned_abs() / 3
    }

    /// Renews the claims on the profile and its bot when a third of their time has passed. Returns whether they are still there.
    fn keep(&self, claim: &Claim, bot: &Bot, renewed: &mut MonotonicMillis) -> bool {
        let now = SystemClock.monotonic();
        if now.since(*renewed) < self.renew_ms() {
            return true;
        }
        let mut is_renewed = true;
        for claim in [Some(claim), bot.claim()].into_iter().flatten() {
            if !self.keep_one(claim, &mut is_renewed) {
                return false;
            }
        }
        if is_renewed {
            *renewed = now;
        }
        true
    }

    fn keep_one(&self, claim: &Claim, is_renewed: &mut bool) -> bool {
        match self.db.renew(claim) {
            Ok(()) => true,
            Err(StateError::ClaimLost { .. }) => {
                tracing::warn!(channel = %self.channel, "another host has the profile or its bot now");
                false
            }
            Err(error) => {
                tracing::warn!(channel = %self.channel, error = %error, "a claim could not be renewed; it is tried again");
                *is_renewed = false;
                !claim.is_expired(self.db.clock().as_ref())
            }
        }
    }

    /// One adapter process, from its launch to its end.
    fn adapter(
        &self,
        claim: &Claim,
        bot: &mut Bot,
        stopping: &AtomicBool,
        sender: &SyncSender<Event>,
        events: &Receiver<Event>,
    ) -> End {
        // What a process before it still said.
        while events.try_recv().is_ok() {}
        let Some(profile) = self.config.profile(self.profile_name()) else {
            return End::Stopped;
        };
        let adapter_epoch = random_id("adapter");
        let launch = Launch {
            adapter_epoch: adapter_epoch.clone(),
            profile: self.profile_name().to_owned(),
            token: profile.token.clone(),
            allowed_user_ids: profile.allowed_user_ids.clone(),
            allowed_chat_ids: profile.allowed_chat_ids.clone(),
            api_base: self.options.api_base.clone(),
        };
        // Events of this process only: one before it may still be heard for a moment.
        let (own, heard) = sync_channel(4);
        let mut adapter = match Adapter::launch(&self.options, &launch, &own) {
            Ok(adapter) => adapter,
            Err(error) => {
                tracing::warn!(channel = %self.channel, error = %error, "an adapter could not be started");
                return End::Ended(false);
            }
        };
        drop((launch, sender));
        let mut talk = Talk {
            db: &self.db,
            supervisor: self,
            claim,
            profile,
            adapter_epoch,
            sequence: 0,
            bot,
            has_bot: false,
        };
        let end = self.converse(&mut adapter, &mut talk, stopping, &heard);
        let words = adapter.end(match end {
            End::Stopped | End::Refused(_) | End::BotElsewhere => self.options.stop_grace_ms,
            End::LostClaim | End::Ended(_) => 0,
        });
        if !words.is_empty() {
            tracing::info!(channel = %self.channel, words, "an adapter ended");
        }
        end
    }

    fn converse(
        &self,
        adapter: &mut Adapter,
        talk: &mut Talk<'_>,
        stopping: &AtomicBool,
        events: &Receiver<Event>,
    ) -> End {
        let (mut renewed, mut last_heard) = (SystemClock.monotonic(), SystemClock.monotonic());
        let mut stop_at = None;
        let (mut was_ready, mut refused, mut is_elsewhere) = (false, None, false);
        loop {
            if !self.keep(talk.claim, talk.bot, &mut renewed) {
                return End::LostClaim;
            }
            let now = SystemClock.monotonic();
            if stopping.load(Ordering::SeqCst) && stop_at.is_none() {
                stop_at = Some(now);
            }
            let patience = if was_ready {
                self.options.silence_ms
            } else {
                self.options.ready_ms
            };
            let silence_left = patience.saturating_sub(now.since(last_heard));
            let stop_left = stop_at.map_or(u64::MAX, |at: MonotonicMillis| {
                self.options.stop_grace_ms.saturating_sub(now.since(at))
            });
            if stop_left == 0 {
                return if is_elsewhere {
                    End::BotElsewhere
                } else {
                    End::Stopped
                };
            }
            if silence_left == 0 {
                tracing::warn!(channel = %self.channel, "an adapter says nothing and is ended");
                return End::Ended(was_ready);
            }
            // Short, so that a stop is seen soon: nobody else may speak on this channel.
            let wait = silence_left
                .min(stop_left)
                .min(self.renew_ms())
                .clamp(1, LOOK_MS);
            let line = match events.recv_timeout(Duration::from_millis(wait)) {
                Ok(Event::Line(line)) => line,
                Ok(Event::Stop) | Err(RecvTimeoutError::Timeout) => continue,
                Ok(Event::Flood) => {
                    tracing::warn!(channel = %self.channel, "an adapter says more than a line may hold and is ended");
                    return End::Ended(was_ready);
                }
                Ok(Event::Ended) | Err(RecvTimeoutError::Disconnected) => {
                    return match (refused, stop_at) {
                        (Some(code), _) => End::Refused(code),
                        (None, Some(_)) if is_elsewhere => End::BotElsewhere,
                        (None, Some(_)) => End::Stopped,
                        (None, None) => End::Ended(was_ready),
                    };
                }
            };
            last_heard = SystemClock.monotonic();
            let reply = match talk.answer(&line, stop_at.is_some()) {
                Ok(reply) => reply,
                Err(ChannelError::State(StateError::ClaimLost { .. })) => return End::LostClaim,
                Err(error) => {
                    tracing::warn!(channel = %self.channel, error = %error, "a line of an adapter could not be answered; it is ended");
                    return End::Ended(was_ready);
                }
            };
            if adapter.write(&reply.line).is_err() {
                return End::Ended(was_ready);
            }
            match reply.then {
                Then::GoOn { is_ready, impeded } => {
                    if is_ready {
                        was_ready = true;
                        match impeded {
                            Some(code) => self.set(ProfileState::Impeded(code)),
                            None if talk.has_bot => self.set(ProfileState::Running),
                            // It is asked who its bot is.
                            None => {}
                        }
                    }
                }
                Then::BotElsewhere => (stop_at, is_elsewhere) = (Some(now), true),
                Then::Exits(Some(code @ ErrorCode::TelegramTokenRefused)) => refused = Some(code),
                Then::Exits(_) => {}
                Then::End => return End::Ended(was_ready),
            }
        }
    }
}

/// The longest that a supervisor waits for a line before it looks around, in milliseconds.
const LOOK_MS: u64 = 100;
