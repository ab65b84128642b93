//! The waiters of one lock, in FIFO order. The shell maps their tickets to clients.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::rc::Rc;

use smallvec::SmallVec;

use crate::collections::SmallSet;
use crate::names::{InboxId, Limit, Owner, RequestId, Ticket};
use crate::time::Instant;
use crate::wire::{Acquire, Timeout};

/// An ACQUIRE that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiter {
    pub(crate) owner: Owner,
    pub(crate) limit: Limit,
    pub(crate) lease_ms: u64,
    pub(crate) request_id: Option<RequestId>,
    pub(crate) min_fence: Option<u64>,
    /// When the request arrived.
    pub(crate) since: Instant,
    pub(crate) timeout: Timeout,
    /// Where its answer goes.
    pub(crate) inbox: InboxId,
}

/// The queue of one lock.
#[derive(Clone, Debug, Default)]
pub struct Queue {
    waiters: BTreeMap<Ticket, Waiter>,
    /// An owner may have several requests here. All are granted together.
    by_owner: BTreeMap<Owner, Tickets>,
    deadlines: BTreeSet<(Instant, Ticket)>,
    /// Owners that stopped waiting here, until the wait table takes note of it.
    pub(crate) removed_owners: SmallVec<[Owner; 1]>,
    /// When the waiters arrived that have left, until the wait table takes note of it.
    pub(crate) left: SmallVec<[Instant; 1]>,
    /// Waiting owners may hold the lock: its value has been replaced, or they were queued during a grace period. Finding
    /// out takes a look at every holder.
    pub(crate) may_have_holders: bool,
    /// Of the wait table, when this was found out.
    pub(crate) values_version: u64,
    /// The last transition answered as many waiters as [one may](crate::effects::MaxAnswers), and there may be more to
    /// answer: the queue is due.
    pub(crate) is_cut: bool,
}

/// The requests of one owner, in order of arrival: at least one, and nearly always no more.
pub(crate) type Tickets = SmallSet<Ticket>;

impl Waiter {
    pub(crate) fn new(request: &Acquire<'_>, timeout: Timeout, inbox: InboxId, now: Instant) -> Self {
        Self {
            owner: request.owner.into(),
            limit: request.limit,
            lease_ms: request.lease_ms,
            request_id: request.request_id.map(Into::into),
            min_fence: request.min_fence,
            since: now,
            timeout,
            inbox,
        }
    }

    /// Who waits.
    pub fn owner(&self) -> &[u8] {
        &self.owner
    }

    /// What names its request.
    pub fn request_id(&self) -> Option<&[u8]> {
        self.request_id.as_deref()
    }

    /// The limit that it requests.
    pub fn limit(&self) -> Limit {
        self.limit
    }

    /// When the request arrived.
    pub fn since(&self) -> Instant {
        self.since
    }

    /// How long it waits.
    pub fn timeout(&self) -> Timeout {
        self.timeout
    }

    /// Where its answer goes.
    pub fn inbox(&self) -> InboxId {
        self.inbox
    }

    /// When it times out.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        match self.timeout {
            Timeout::Infinite => None,
            Timeout::Ms(ms) => Some(self.since.after_ms(ms)),
        }
    }
}

impl Queue {
    pub(crate) fn new(values_version: u64) -> Self {
        Self {
            values_version,
            ..Self::default()
        }
    }

    /// Whether no request waits.
    pub fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// The number of waiters.
    pub fn len(&self) -> usize {
        self.waiters.len()
    }

    /// The waiters in order of arrival.
    pub fn iter(&self) -> impl Iterator<Item = (Ticket, &Waiter)> {
        self.waiters.iter().map(|(ticket, waiter)| (*ticket, waiter))
    }

    /// The waiter in this position.
    pub(crate) fn get(&self, ticket: Ticket) -> Option<&Waiter> {
        self.waiters.get(&ticket)
    }

    pub(crate) fn first(&self) -> Option<(Ticket, &Waiter)> {
        self.iter().next()
    }

    /// When the first waiter times out.
    pub(crate) fn first_deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// The first waiter whose timeout has passed.
    pub(crate) fn first_timed_out(&self, now: Instant) -> Option<Ticket> {
        let (deadline, ticket) = *self.deadlines.first()?;
        (deadline <= now).then_some(ticket)
    }

    /// How many wait before this one, at most `max`.
    pub(crate) fn ahead_of(&self, ticket: Ticket, max: usize) -> usize {
        match self.waiters.last_key_value() {
            Some((last, _)) if *last == ticket => self.len().saturating_sub(1).min(max),
            _ => self.waiters.range(..ticket).take(max).count(),
        }
    }

    /// Whether this owner waits here.
    pub(crate) fn has(&self, owner: &[u8]) -> bool {
        self.by_owner.contains_key(owner)
    }

    /// How many requests of this owner wait here.
    pub(crate) fn requests_of(&self, owner: &[u8]) -> usize {
        self.by_owner.get(owner).map_or(0, |tickets| tickets.len())
    }

    /// The first request of this owner.
    pub(crate) fn first_ticket_of(&self, owner: &[u8]) -> Option<Ticket> {
        self.by_owner.get(owner)?.first().copied()
    }

    /// The waiters after the first ticket, or from the start, up to and including the second.
    pub(crate) fn between(
        &self,
        after: Option<Ticket>,
        up_to: Ticket,
    ) -> impl Iterator<Item = (Ticket, &Waiter)> {
        let after = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.waiters
            .range((after, Bound::Included(up_to)))
            .map(|(ticket, waiter)| (*ticket, waiter))
    }

    /// The request of that owner with that id. It has few here: see [`Error::TooManyWaiting`](crate::wire::Error).
    pub(crate) fn find(&self, owner: &[u8], request_id: &[u8]) -> Option<(Ticket, &Waiter)> {
        self.by_owner.get(owner)?.iter().find_map(|ticket| {
            let waiter = self.waiters.get(ticket)?;
            (waiter.request_id.as_deref() == Some(request_id)).then_some((*ticket, waiter))
        })
    }

    /// Inserts a waiter at the end, or with the ticket of a request that it replaces.
    pub(crate) fn insert(&mut self, ticket: Ticket, waiter: Waiter) {
        if let Some(deadline) = waiter.deadline() {
            self.deadlines.insert((deadline, ticket));
        }
        let tickets = self.by_owner.entry(Rc::clone(&waiter.owner)).or_default();
        tickets.insert(ticket);
        self.waiters.insert(ticket, waiter);
    }

    /// Removes an owner from the index. The caller removes each of its tickets with [`Queue::remove_only`].
    pub(crate) fn remove_owner(&mut self, owner: &[u8]) -> Option<Tickets> {
        let (owner, tickets) = self.by_owner.remove_entry(owner)?;
        self.removed_owners.push(owner);
        Some(tickets)
    }

    /// Removes a waiter, but not its entry in the index of owners.
    pub(crate) fn remove_only(&mut self, ticket: Ticket) -> Option<Waiter> {
        let waiter = self.waiters.remove(&ticket)?;
        self.left.push(waiter.since);
        if let Some(deadline) = waiter.deadline() {
            self.deadlines.remove(&(deadline, ticket));
        }
        Some(waiter)
    }

    /// Removes a waiter.
    pub(crate) fn remove(&mut self, ticket: Ticket) -> Option<Waiter> {
        let waiter = self.remove_only(ticket)?;
        let others_wait = self.by_owner.get_mut(&waiter.owner).is_some_and(|tickets| {
            tickets.remove(&ticket);
            !tickets.is_empty()
        });
        if !others_wait {
            self.remove_owner(&waiter.owner);
        }
        Some(waiter)
    }
}
