//! Inboxes: where the answers to waiting requests go, and stay until a client has them.
//!
//! ```text
//! queue  ->  deliver  ->  inbox  ->  reply  ->  acknowledged, gone
//! ```
//!
//! An inbox with a name collects the answers to all requests that a process has queued (QUEUE). Its reader receives them
//! by DLOCK.GRANTS, any number at a time, and its next call acknowledges them. The inbox of a request that blocks its
//! client (BLOCK) has no name: it is for one answer, that client is its reader, and it ends with the reply.
//!
//! A call of a reader is in one state at a time:
//!
//! ```text
//! blocked  -> replying   there is an answer, or the time of the call is over
//!          -> absent     its connection was lost, or another call took over
//! replying -> absent     the reply was written: only now its answers count as carried by a reply
//! absent   -> ended      nobody has called for a whole ttl
//! ```

mod answers;
mod delivery;
mod ended;
mod in_flight;
mod named;
mod outcome;
mod pauses;
mod reading;
mod rollback;

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::rc::Rc;

use crate::collections::{IdMap, Shrink};
use crate::names::{Call, InboxId, LockName, Ticket};
use crate::time::Instant;
use crate::wire::{Caller, Error};
pub use answers::Answered;
use answers::Answers;
use in_flight::InFlight;
pub use in_flight::Undelivered;
use named::{Named, Reader, Waiters};
pub use outcome::{GrantsReply, InboxStep, Received, Reply};
use pauses::Pauses;

/// All inboxes of a server.
#[derive(Clone, Debug, Default)]
pub struct Inboxes {
    by_id: IdMap<InboxId, Inbox>,
    by_name: BTreeMap<Rc<[u8]>, InboxId>,
    /// The calls of GRANTS that wait, or whose replies are about to be written.
    calls: BTreeMap<Call, InboxId>,
    /// When the calls that wait are over.
    call_ends: BTreeSet<(Instant, InboxId)>,
    /// When the inboxes without a reader end, by the clock of `pauses`.
    absence_ends: BTreeSet<(Instant, InboxId)>,
    ended: BTreeMap<InboxId, Ended>,
    in_flight: InFlight,
    pauses: Pauses,
    /// The last number that was given to an inbox or a call.
    last_id: usize,
    /// The last number that was given to an answer.
    last_cursor: u64,
    /// Whether cursors are above those of this server's earlier processes.
    is_seeded: bool,
    /// The waiters whose answers go to inboxes with names.
    waiters: usize,
    /// The answers that are not acknowledged.
    answers: usize,
    /// The inboxes with names that have ended.
    ended_total: u64,
}

/// An inbox that has ended, until its waiters have left and its grants are given up: a slice at a time.
#[derive(Clone, Debug)]
struct Ended {
    waiters: Waiters,
    answers: Answers,
}

#[derive(Clone, Debug)]
enum Inbox {
    /// That of a BLOCK whose request waits.
    Waiting(Ticket, LockName),
    /// That of a BLOCK with its answer.
    Answered(Answered),
    Named(Box<Named>),
}

impl Inboxes {
    /// The number of inboxes with names.
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Whether there is no inbox with a name.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// The number of waiters whose answers go to inboxes with names.
    pub fn waiters(&self) -> usize {
        self.waiters
    }

    /// The number of answers that are not acknowledged.
    pub fn answers(&self) -> usize {
        self.answers
    }

    /// How many inboxes with names have ended.
    pub fn ended_total(&self) -> u64 {
        self.ended_total
    }

    /// The inbox with this name.
    pub fn find(&self, name: &[u8]) -> Option<InboxId> {
        self.by_name.get(name).copied()
    }

    /// Whether an inbox has a name, and has not ended.
    pub fn has_name(&self, inbox: InboxId) -> bool {
        matches!(self.by_id.get(&inbox), Some(Inbox::Named(_)))
    }

    /// Whether inboxes have ended whose waiters, or grants, are still there.
    pub(super) fn is_clearing(&self) -> bool {
        !self.ended.is_empty() || self.undelivered() > 0
    }

    /// The inbox for the answer of a request: one with this name, or a new one for the client of a BLOCK.
    pub(super) fn of(&mut self, name: Option<&[u8]>, caller: Caller<'_>) -> Result<InboxId, Error> {
        let Some(name) = name else {
            return Ok(self.of_client());
        };
        let id = self.find(name).ok_or(Error::NoInbox)?;
        let named = self.named(id).ok_or(Error::NoInbox)?;
        named.check(caller)?;
        Ok(id)
    }

    /// A new inbox for the client of a request.
    pub(super) fn of_client(&mut self) -> InboxId {
        InboxId::new(self.next_id())
    }

    /// An answer to this waiter will come. Returns the call to be blocked for it, if the inbox has no name.
    pub(super) fn expect(&mut self, id: InboxId, ticket: Ticket, lock: LockName) -> Option<Call> {
        let Some(Inbox::Named(named)) = self.by_id.get_mut(&id) else {
            self.by_id.insert(id, Inbox::Waiting(ticket, lock));
            return Some(id.call_of_block());
        };
        if named.waiters.insert(ticket, lock).is_none() {
            self.waiters = self.waiters.saturating_add(1);
        }
        None
    }

    /// This waiter leaves its queue without an answer.
    pub(super) fn expect_no_more(&mut self, id: InboxId, ticket: Ticket) {
        if let Some(named) = self.named(id)
            && named.waiters.remove(&ticket).is_some()
        {
            self.waiters = self.waiters.saturating_sub(1);
        }
    }

    fn named(&mut self, id: InboxId) -> Option<&mut Named> {
        match self.by_id.get_mut(&id) {
            Some(Inbox::Named(named)) => Some(named),
            Some(Inbox::Waiting(..) | Inbox::Answered(_)) | None => None,
        }
    }

    fn remove(&mut self, id: InboxId) -> Option<Inbox> {
        let inbox = self.by_id.remove(&id);
        self.by_id.shrink_if_sparse();
        inbox
    }

    fn next_id(&mut self) -> NonZeroUsize {
        self.last_id = self.last_id.wrapping_add(1);
        NonZeroUsize::new(self.last_id).unwrap_or(NonZeroUsize::MIN)
    }

    fn next_cursor(&mut self) -> u64 {
        self.last_cursor = self.last_cursor.saturating_add(1);
        self.last_cursor
    }

    /// What the reader of an inbox does from now on.
    fn set_reader(&mut self, id: InboxId, reader: Reader) {
        let Some(Inbox::Named(named)) = self.by_id.get_mut(&id) else {
            return;
        };
        let former = std::mem::replace(&mut named.reader, reader);
        self.forget_reader(id, former);
        match reader {
            Reader::Blocked { call, until, .. } => {
                self.calls.insert(call, id);
                self.call_ends.insert((until, id));
            }
            Reader::Replying { call, .. } => {
                self.calls.insert(call, id);
            }
            Reader::Absent { until, .. } => {
                self.absence_ends.insert((until, id));
            }
        }
    }

    fn forget_reader(&mut self, id: InboxId, reader: Reader) {
        match reader {
            Reader::Blocked { call, until, .. } => {
                self.calls.remove(&call);
                self.call_ends.remove(&(until, id));
            }
            Reader::Replying { call, .. } => {
                self.calls.remove(&call);
            }
            Reader::Absent { until, .. } => {
                self.absence_ends.remove(&(until, id));
            }
        }
    }

    /// The call that waits for answers in this inbox gets its reply now, if one waits.
    fn wake_reader(&mut self, id: InboxId) -> Option<Call> {
        let Reader::Blocked { call, since, .. } = self.named(id)?.reader else {
            return None;
        };
        self.set_reader(id, Reader::Replying { call, since });
        Some(call)
    }
}
