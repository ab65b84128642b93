//! An inbox with a name: who may use it, and its reader.

use std::rc::Rc;

use super::answers::Answers;
use super::pauses::Elapsed;
use super::{Call, Waiters};
use crate::error::Error;
use crate::request::Caller;
use crate::time::Instant;

/// How long an inbox outlives its last reader, unless that says otherwise.
const DEFAULT_TTL_MS: u64 = 5_000;

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
    /// As the index of deadlines has it.
    pub(super) deadline: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Reader {
    /// A call waits for answers.
    Blocked { call: Call, since: Instant },
    /// The reply to a call that waited is about to be written.
    Replying { call: Call, since: Instant },
    /// No call.
    Absent(Absence),
}

/// That of a reader.
#[derive(Clone, Copy, Debug)]
pub(super) struct Absence {
    pub(super) since: Instant,
    /// How long clients had been paused until then.
    pub(super) paused: Elapsed,
    /// The time is over: the server has one more pass of its loop for requests that have arrived.
    pub(super) is_last_pass: bool,
}

impl Named {
    /// An inbox that is about to be read for the first time. `first`: its first cursor.
    pub(super) fn new(name: Rc<[u8]>, owner: Caller<'_>, first: u64, absence: Absence) -> Self {
        Self {
            name,
            db: owner.db,
            user: owner.user.into(),
            answers: Answers::after(first),
            waiters: Waiters::new(),
            is_read: false,
            reader: Reader::Absent(absence),
            ttl_ms: DEFAULT_TTL_MS,
            deadline: None,
        }
    }

    /// How long the current call has waited, rounded down.
    pub(super) fn waited_ms(&self, now: Instant) -> u64 {
        match self.reader {
            Reader::Blocked { since, .. } | Reader::Replying { since, .. } => since.ms_until(now),
            Reader::Absent(_) => 0,
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

impl Reader {
    /// The call that waits for answers, or that is about to be replied to.
    pub(super) fn call(self) -> Option<Call> {
        match self {
            Self::Blocked { call, .. } | Self::Replying { call, .. } => Some(call),
            Self::Absent(_) => None,
        }
    }

    /// The call that waits for answers, if one does.
    pub(super) fn blocked(self) -> Option<Call> {
        match self {
            Self::Blocked { call, .. } => Some(call),
            Self::Replying { .. } | Self::Absent(_) => None,
        }
    }

    /// A call that waited gets its reply now.
    pub(super) fn wake(&mut self) -> Option<Call> {
        let Self::Blocked { call, since } = *self else {
            return None;
        };
        *self = Self::Replying { call, since };
        Some(call)
    }
}
