//! The answers in an inbox, and how far its reader has them.

use std::collections::VecDeque;

use crate::collections::Shrink;
use crate::effects::Answer;
use crate::names::{LockName, Owner, RequestId};
use crate::time::Instant;
use crate::wire::{Error, Granted};

/// An answer, and the request that it is for.
#[derive(Clone, Debug)]
pub struct Answered {
    /// The lock.
    pub name: LockName,
    /// Who waited.
    pub owner: Owner,
    /// The request id.
    pub request_id: Option<RequestId>,
    /// The answer. The lease of a grant is what remains when it is replied.
    pub answer: Answer,
    /// Acknowledges this answer and all before it.
    pub(super) cursor: u64,
    /// When it was given.
    pub(super) at: Instant,
    /// A reply ended with this answer.
    ends_reply: bool,
}

impl Answered {
    pub(super) fn new(
        name: LockName,
        (owner, request_id): (Owner, Option<RequestId>),
        answer: Answer,
        cursor: u64,
        at: Instant,
    ) -> Self {
        Self {
            name,
            owner,
            request_id,
            answer,
            cursor,
            at,
            ends_reply: false,
        }
    }

    pub(super) fn granted(&self) -> Option<&Granted> {
        match &self.answer {
            Answer::Granted(granted) => Some(granted),
            _ => None,
        }
    }

    /// Its length in a reply, about: what is not as short as numbers are.
    fn bytes(&self) -> usize {
        let id = self.request_id.as_ref().map_or(0, |id| id.len());
        let names = [id, self.name.key.len(), self.owner.len()];
        names.into_iter().fold(NUMBERS_BYTES, usize::saturating_add)
    }

    /// The answer as it is told at `now`: less of the lease remains than when it was granted.
    fn told_at(&self, now: Instant) -> Self {
        let mut told = self.clone();
        if let Answer::Granted(granted) = &mut told.answer {
            granted.lease_ms = now.ms_until(self.at.after_ms(granted.lease_ms));
        }
        told
    }
}

/// What an answer has in a reply besides names: its kind, the numbers of a grant or the text of an error, lengths.
const NUMBERS_BYTES: usize = 100;

/// The answers that are not acknowledged, oldest first.
#[derive(Clone, Debug)]
pub(super) struct Answers {
    kept: VecDeque<Answered>,
    /// The last cursor that was acknowledged, at first the one that the reader began with.
    acknowledged: u64,
    /// The last cursor that a reply gave out: it carried all answers up to that one.
    carried: u64,
}

/// The most answers that a reply carries.
const MAX_REPLIED: usize = 1_000;

/// A reply ends with the answer that brings it to so many bytes: keys have any length, and each answer repeats its own.
/// About what a thousand answers have with names of 50 bytes.
const MAX_REPLIED_BYTES: usize = 256 << 10;

impl Answers {
    /// None yet. `first`: the cursor of the first reply.
    pub(super) fn after(first: u64) -> Self {
        Self {
            kept: VecDeque::new(),
            acknowledged: first,
            carried: first,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    pub(super) fn push(&mut self, answered: Answered) {
        self.kept.push_back(answered);
    }

    /// Forgets what the reply with this cursor carried. Returns how many answers that was. Rejected if no reply gave this
    /// cursor out, or if a later one is acknowledged.
    pub(super) fn acknowledge(&mut self, cursor: u64) -> Result<usize, Error> {
        if cursor == self.acknowledged {
            return Ok(0);
        }
        let place = self
            .kept
            .binary_search_by_key(&cursor, |answered| answered.cursor);
        let place = place.map_err(|_| Error::NoInbox)?;
        if !self.kept.get(place).is_some_and(|answered| answered.ends_reply) {
            return Err(Error::NoInbox);
        }
        let acknowledged = place.saturating_add(1);
        self.kept.drain(..acknowledged);
        self.kept.shrink_if_sparse();
        self.acknowledged = cursor;
        Ok(acknowledged)
    }

    /// The next answers for a reply at `now`, and its cursor. From now on a reply has carried them.
    pub(super) fn reply(&mut self, now: Instant) -> (u64, Vec<Answered>) {
        let mut bytes = 0_usize;
        let fits = |answered: &&Answered| {
            let has_room = bytes < MAX_REPLIED_BYTES;
            bytes = bytes.saturating_add(answered.bytes());
            has_room
        };
        let replied = self.kept.iter().take(MAX_REPLIED).take_while(fits);
        let told: Vec<_> = replied.map(|answered| answered.told_at(now)).collect();
        let Some(last) = told.len().checked_sub(1).and_then(|last| self.kept.get_mut(last)) else {
            return (self.acknowledged, told);
        };
        last.ends_reply = true;
        self.carried = self.carried.max(last.cursor);
        (last.cursor, told)
    }

    /// The cursor of a reply that carries nothing.
    pub(super) fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// Whether a reply has carried this answer.
    pub(super) fn is_carried(&self, answered: &Answered) -> bool {
        answered.cursor <= self.carried
    }

    pub(super) fn pop(&mut self) -> Option<Answered> {
        let first = self.kept.pop_front();
        self.kept.shrink_if_sparse();
        first
    }
}
