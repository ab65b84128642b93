//! The waiters of one lock, in FIFO order. The shell maps their tickets to clients.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::rc::Rc;

use smallvec::SmallVec;

use super::inbox_id::InboxId;
use super::limit::Limit;
use super::request::{Acquire, Timeout};
use super::small_set::SmallSet;
use super::ticket::Ticket;
use super::time::Instant;

/// An owner, shared by all that refer to it.
pub(super) type Owner = Rc<[u8]>;

/// A request id, shared by all that refer to it.
pub(super) type RequestId = Rc<[u8]>;

/// An ACQUIRE that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiter {
    pub(super) owner: Owner,
    pub(super) limit: Limit,
    pub(super) lease_ms: u64,
    pub(super) request_id: Option<RequestId>,
    pub(super) min_fence: Option<u64>,
    /// When the request arrived.
    pub(super) since: Instant,
    pub(super) timeout: Timeout,
    /// Where its answer goes.
    pub(super) inbox: InboxId,
}

/// The queue of one lock.
#[derive(Clone, Debug, Default)]
pub struct Queue {
    waiters: BTreeMap<Ticket, Waiter>,
    /// An owner may have several requests here. All are granted together.
    by_owner: BTreeMap<Owner, Tickets>,
    deadlines: BTreeSet<(Instant, Ticket)>,
    /// Owners that stopped waiting here, until the wait table takes note of it.
    pub(super) removed_owners: SmallVec<[Owner; 1]>,
    /// When the waiters arrived that have left, until the wait table takes note of it.
    pub(super) left: SmallVec<[Instant; 1]>,
    /// Waiting owners may hold the lock: its value has been replaced, or they were queued during a grace period. Finding
    /// out takes a look at every holder.
    pub(super) may_have_holders: bool,
    /// Of the wait table, when this was found out.
    pub(super) values_version: u64,
    /// The last transition answered as many waiters as [one may](super::effects::MaxAnswers), and there may be more to
    /// answer: the queue is due.
    pub(super) is_cut: bool,
}

/// The requests of one owner, in order of arrival: at least one, and nearly always no more.
pub(super) type Tickets = SmallSet<Ticket>;

impl Waiter {
    pub(super) fn new(request: &Acquire<'_>, timeout: Timeout, inbox: InboxId, now: Instant) -> Self {
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
    pub(super) fn deadline(&self) -> Option<Instant> {
        match self.timeout {
            Timeout::Infinite => None,
            Timeout::Ms(ms) => Some(self.since.after_ms(ms)),
        }
    }
}

impl Queue {
    pub(super) fn new(values_version: u64) -> Self {
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
    pub(super) fn get(&self, ticket: Ticket) -> Option<&Waiter> {
        self.waiters.get(&ticket)
    }

    pub(super) fn first(&self) -> Option<(Ticket, &Waiter)> {
        self.iter().next()
    }

    /// When the first waiter times out.
    pub(super) fn first_deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// The first waiter whose timeout has passed.
    pub(super) fn first_timed_out(&self, now: Instant) -> Option<Ticket> {
        let (deadline, ticket) = *self.deadlines.first()?;
        (deadline <= now).then_some(ticket)
    }

    /// How many wait before this one, at most `max`.
    pub(super) fn ahead_of(&self, ticket: Ticket, max: usize) -> usize {
        match self.waiters.last_key_value() {
            Some((last, _)) if *last == ticket => self.len().saturating_sub(1).min(max),
            _ => self.waiters.range(..ticket).take(max).count(),
        }
    }

    /// Whether this owner waits here.
    pub(super) fn has(&self, owner: &[u8]) -> bool {
        self.by_owner.contains_key(owner)
    }

    /// How many requests of this owner wait here.
    pub(super) fn requests_of(&self, owner: &[u8]) -> usize {
        self.by_owner.get(owner).map_or(0, |tickets| tickets.len())
    }

    /// The first request of this owner.
    pub(super) fn first_ticket_of(&self, owner: &[u8]) -> Option<Ticket> {
        self.by_owner.get(owner)?.first().copied()
    }

    /// The waiters after the first ticket, or from the start, up to and including the second.
    pub(super) fn between(
        &self,
        after: Option<Ticket>,
        up_to: Ticket,
    ) -> impl Iterator<Item = (Ticket, &Waiter)> {
        let after = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.waiters
            .range((after, Bound::Included(up_to)))
            .map(|(ticket, waiter)| (*ticket, waiter))
    }

    /// The request of that owner with that id. It has few here: see [`Error::TooManyWaiting`](super::error::Error).
    pub(super) fn find(&self, owner: &[u8], request_id: &[u8]) -> Option<(Ticket, &Waiter)> {
        self.by_owner.get(owner)?.iter().find_map(|ticket| {
            let waiter = self.waiters.get(ticket)?;
            (waiter.request_id.as_deref() == Some(request_id)).then_some((*ticket, waiter))
        })
    }

    /// Inserts a waiter at the end, or with the ticket of a request that it replaces.
    pub(super) fn insert(&mut self, ticket: Ticket, waiter: Waiter) {
        if let Some(deadline) = waiter.deadline() {
            self.deadlines.insert((deadline, ticket));
        }
        let tickets = self.by_owner.entry(Rc::clone(&waiter.owner)).or_default();
        tickets.insert(ticket);
        self.waiters.insert(ticket, waiter);
    }

    /// Removes an owner from the index. The caller removes each of its tickets with [`Queue::remove_only`].
    pub(super) fn remove_owner(&mut self, owner: &[u8]) -> Option<Tickets> {
        let (owner, tickets) = self.by_owner.remove_entry(owner)?;
        self.removed_owners.push(owner);
        Some(tickets)
    }

    /// Removes a waiter, but not its entry in the index of owners.
    pub(super) fn remove_only(&mut self, ticket: Ticket) -> Option<Waiter> {
        let waiter = self.waiters.remove(&ticket)?;
        self.left.push(waiter.since);
        if let Some(deadline) = waiter.deadline() {
            self.deadlines.remove(&(deadline, ticket));
        }
        Some(waiter)
    }

    /// Removes a waiter.
    pub(super) fn remove(&mut self, ticket: Ticket) -> Option<Waiter> {
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
