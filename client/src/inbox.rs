//! The inbox of this process: where the servers put the answers to requests that wait.
//!
//! ```text
//!            NOINBOX                created on all servers
//!   Closed ----------> Opening ------------------------------> Open
//!      ^                  |  ^                                   |
//!      | nobody waits     v  | a new name                        | NOINBOX
//!      +------------- Unreachable <------------------------------+
//! ```
//!
//! Each change takes a new name. A request that is under way with an old one finds no inbox, and so is never queued
//! before an older one that is to be sent again.

use std::time::Duration;

use crate::clock::BootInstant;
use crate::owner::random_name;

/// An inbox for which nobody has waited for this long is closed.
const IDLE: Duration = Duration::from_secs(10);

/// An inbox, as the requests of this process know it.
pub(crate) struct Inbox {
    name: [u8; 32],
    /// How many names there were before this one.
    epoch: u64,
    state: State,
    /// When somebody waited last.
    used_at: Option<BootInstant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nobody waits, as far as known.
    Closed,
    /// Somebody waits: readers are to be started.
    Wanted,
    /// Readers create it. Nothing is queued meanwhile, so that those who wait are queued in order.
    Opening,
    /// Readers cannot create it, and go on trying. Locks that are free can be acquired meanwhile.
    Unreachable,
    Open,
}

impl Inbox {
    pub fn new() -> Self {
        Self {
            name: random_name(),
            epoch: 0,
            state: State::Closed,
            used_at: None,
        }
    }

    pub fn name(&self) -> &[u8; 32] {
        &self.name
    }

    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    pub fn is_open(&self) -> bool {
        self.state == State::Open
    }

    /// Whether a request that has to wait would find none.
    pub fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    /// Whether requests that could be queued are held back.
    pub fn is_opening(&self) -> bool {
        matches!(self.state, State::Wanted | State::Opening)
    }

    /// Whether readers fail to create it.
    pub fn is_unreachable(&self) -> bool {
        self.state == State::Unreachable
    }

    /// A request has to wait.
    pub fn want(&mut self) {
        if self.state == State::Closed {
            self.renew(State::Wanted);
        }
    }

    /// Whether readers are to be started now.
    pub fn take_wanted(&mut self) -> bool {
        let is_wanted = self.state == State::Wanted;
        if is_wanted {
            self.state = State::Opening;
        }
        is_wanted
    }

    /// All readers have created it.
    pub fn opened(&mut self, now: BootInstant) {
        self.state = State::Open;
        self.used_at = Some(now);
    }

    /// A reader could not create it.
    pub fn failed(&mut self) {
        if self.is_opening() {
            self.state = State::Unreachable;
        }
    }

    /// It is gone, or taken. Another is needed if somebody waits.
    pub fn ended(&mut self, is_wanted: bool) {
        self.renew(match is_wanted {
            true => State::Wanted,
            false => State::Closed,
        });
    }

    /// Somebody waits, or nobody does. After some time without anybody the inbox is closed: `true`.
    pub fn use_or_close(&mut self, is_used: bool, now: BootInstant) -> bool {
        if is_used {
            self.used_at = Some(now);
        }
        let is_idle = self.used_at.is_none_or(|used_at| now - used_at > IDLE);
        if is_idle {
            self.renew(State::Closed);
        }
        is_idle
    }

    fn renew(&mut self, state: State) {
        *self = Self {
            epoch: self.epoch + 1,
            state,
            ..Self::new()
        };
    }
}
