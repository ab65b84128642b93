//! An inbox with a name: who may use it, and its reader.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::answers::Answers;
use crate::names::{Call, LockName, Ticket};
use crate::time::Instant;
use crate::wire::{Caller, Error};

/// How long an inbox outlives its last reader, unless that says otherwise.
const DEFAULT_TTL_MS: u64 = 5_000;

/// How often the server has a pass of its loop for requests that have arrived when the time of an inbox is over: one to
/// accept a connection, one to read it, and some in which other clients keep it.
pub(super) const LAST_PASSES: u8 = 4;

/// The waiters of an inbox.
pub(super) type Waiters = BTreeMap<Ticket, LockName>;

#[derive(Clone, Debug)]
pub(super) struct Named {
    pub(super) name: Rc<[u8]>,
    db: i32,
    user: Box<[u8]>,
    pub(super) answers: Answers,
    pub(super) waiters: Waiters,
    /// Somebody has received from it: an answer was acknowledged, or could have been.
    pub(super) is_read: bool,
    pub(super) reader: Reader,
    pub(super) ttl_ms: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Reader {
    /// A call waits for answers.
    Blocked {
        call: Call,
        since: Instant,
        until: Instant,
    },
    /// The reply to a call that waited is about to be written.
    Replying { call: Call, since: Instant },
    /// No call.
    Absent {
        /// By the clock that stands still while clients are paused.
        until: Instant,
        /// When the time is over, the server has so many more passes of its loop for requests that have arrived.
        passes_left: u8,
    },
}

impl Named {
    /// An inbox that is about to be read for the first time. `first`: its first cursor.
    pub(super) fn new(name: Rc<[u8]>, owner: Caller<'_>, first: u64, reader: Reader) -> Self {
        Self {
            name,
            db: owner.db,
            user: owner.user.into(),
            answers: Answers::after(first),
            waiters: Waiters::new(),
            is_read: false,
            reader,
            ttl_ms: DEFAULT_TTL_MS,
        }
    }

    /// How long the current call has waited, rounded down.
    pub(super) fn waited_ms(&self, now: Instant) -> u64 {
        match self.reader {
            Reader::Blocked { since, .. } | Reader::Replying { since, .. } => since.ms_until(now),
            Reader::Absent { .. } => 0,
        }
    }

    /// Whether the inbox is that of this caller.
    pub(super) fn check(&self, caller: Caller<'_>) -> Result<(), Error> {
        if self.db == caller.db && *self.user == *caller.user {
            Ok(())
        } else {
            Err(Error::ForeignInbox)
        }
    }
}
