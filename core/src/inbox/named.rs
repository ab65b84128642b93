//! An inbox with a name: who may use it, and its reader.

use std::rc::Rc;

use super::answers::Answers;
use super::pauses::Elapsed;
use super::{Call, InboxId, Waiters};
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
    Blocked { number: u64, since: Instant },
    /// The reply to a call that waited is about to be written.
    Replying { number: u64, since: Instant },
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
    /// The call that is waiting for answers, if one does.
    pub(super) fn blocked(self, inbox: InboxId) -> Option<Call> {
        match self {
            Self::Blocked { number, .. } => Some(Call { inbox, number }),
            Self::Replying { .. } | Self::Absent(_) => None,
        }
    }

    /// Since when the call with this number waits, if it is the current one.
    pub(super) fn since(self, call: Call) -> Option<Instant> {
        match self {
            Self::Blocked { number, since } | Self::Replying { number, since } => {
                (number == call.number).then_some(since)
            }
            Self::Absent(_) => None,
        }
    }

    /// A call that waited gets its reply now.
    pub(super) fn wake(&mut self, inbox: InboxId) -> Option<Call> {
        let Self::Blocked { number, since } = *self else {
            return None;
        };
        *self = Self::Replying { number, since };
        Some(Call { inbox, number })
    }
}
