//! All queues of a server: which requests wait for which lock, and when each queue needs attention.

mod arrivals;
mod graph;
mod owners;
mod queue;
mod schedule;
mod sweep;
#[cfg(test)]
mod tests;
mod wakeups;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry as Place;
use std::rc::Rc;

use smallvec::SmallVec;

use crate::collections::Shrink;
use crate::lock::{Holder, Lock, MAX_REQUEST_IDS};
use crate::names::{InboxId, Limit, LockName, LockNameRef, Owner, Ticket};
use crate::time::{Instant, LeaseClock};
use crate::wire::{Error, Full};
use arrivals::Arrivals;
use owners::OwnerIndex;
pub use queue::{Queue, Waiter};
use sweep::Sweep;
use wakeups::Wakeups;

/// The queues of one database.
type Database = BTreeMap<Rc<[u8]>, Entry>;

/// The queues of all locks that are waited for, by database and key. A queue belongs to a name, whatever value is
/// stored there.
#[derive(Clone, Debug, Default)]
pub struct WaitTable {
    databases: BTreeMap<i32, Database>,
    /// The number of queues.
    locks: usize,
    wakeups: Wakeups,
    owners: OwnerIndex,
    arrivals: Arrivals,
    sweep: Sweep,
    /// Changes when all values of a database may have been replaced: see [`Queue::may_have_holders`].
    values_version: u64,
    last_ticket: u64,
}

/// How many requests may wait.
#[derive(Clone, Copy)]
pub(crate) struct Room {
    /// The waiters of one lock.
    pub(crate) per_lock: usize,
    /// The waiters of all locks, with the answers.
    pub(crate) max: usize,
    /// The answers that are not acknowledged.
    pub(crate) answers: usize,
}

/// A waiter that was put into a queue.
pub(super) struct Inserted {
    pub(super) name: LockName,
    pub(super) ticket: Ticket,
    /// The request with the same id whose position it took over.
    pub(super) replaced: Option<Waiter>,
}

/// A lock with more holders is not searched for deadlocks: every change of the lock would update the copies of them all.
const MAX_HOLDERS: usize = 64;

/// A queue with at least one waiter, and its lock's holders as they were after the last transition.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) name: LockName,
    pub(super) queue: Queue,
    /// The holders, as they are in the index of owners: nearly always one. None if they are too many.
    pub(super) holders: SmallVec<[HolderSnapshot; 1]>,
    /// The holders are more than [`MAX_HOLDERS`].
    has_too_many_holders: bool,
    pub(super) next_wakeup: Option<Instant>,
}

/// A holder, as far as deadlocks are concerned.
#[derive(Clone, Debug)]
pub(super) struct HolderSnapshot {
    owner: Owner,
    pub(super) limit: Limit,
    lease_end: Instant,
}

impl WaitTable {
    /// Whether no request waits.
    pub fn is_empty(&self) -> bool {
        self.locks == 0
    }

    /// The number of locks that are waited for.
    pub fn locks(&self) -> usize {
        self.locks
    }

    /// The number of waiters.
    pub fn waiters(&self) -> usize {
        self.arrivals.waiters()
    }

    /// When the oldest waiter was queued, to the millisecond.
    pub fn longest_since(&self) -> Option<Instant> {
        self.arrivals.first()
    }

    /// The queue of a lock, if any request waits there.
    pub fn queue(&self, name: LockNameRef<'_>) -> Option<&Queue> {
        self.entry(name).map(|entry| &entry.queue)
    }

    /// Whether this owner waits anywhere, or holds what others wait for. Locks with too many holders do
    /// not count.
    pub fn involves(&self, owner: &[u8]) -> bool {
        self.owners.contains(owner)
    }

    /// When the next queue is due.
    pub fn next_wakeup(&self) -> Option<Instant> {
        if self.sweep.is_pending() && !self.is_empty() {
            return Some(Instant::DISTANT_PAST);
        }
        self.wakeups.first().map(|(at, _)| at)
    }

    /// A queue that is due at `now`. It stays due until a transition of its lock, or [`WaitTable::defer`].
    pub fn next_due(&mut self, now: Instant) -> Option<LockName> {
        loop {
            if let Some((at, name)) = self.wakeups.first()
                && at <= now
            {
                return Some(name.clone());
            }
            if !self.sweep(now) {
                return None;
            }
        }
    }

    /// Makes a queue due at `at`.
    pub fn schedule(&mut self, name: LockNameRef<'_>, at: Instant) {
        if let Some(entry) = entry_mut(&mut self.databases, name) {
            self.wakeups
                .replace(&entry.name, &mut entry.next_wakeup, Some(at));
        }
    }

    /// The lock may be another one now, by RENAME or RESTORE: its next transition looks for waiting owners among its
    /// holders.
    pub fn recheck_holders(&mut self, name: LockNameRef<'_>) {
        if let Some(queue) = self.queue_mut(name) {
            queue.may_have_holders = true;
        }
    }

    /// Makes a queue due at `until` that cannot be served now, or when the first waiter times out before.
    pub fn defer(&mut self, name: LockNameRef<'_>, until: Instant) {
        let deadline = self.queue(name).and_then(Queue::first_deadline);
        self.schedule(name, deadline.map_or(until, |deadline| deadline.min(until)));
    }

    /// Makes a queue due when its first waiter times out, and not before.
    pub fn suspend(&mut self, name: LockNameRef<'_>) {
        if let Some(entry) = entry_mut(&mut self.databases, name) {
            let deadline = entry.queue.first_deadline();
            self.wakeups
                .replace(&entry.name, &mut entry.next_wakeup, deadline);
        }
    }

    /// Removes a waiter that nobody waits for any more. If it was the first, the queue becomes due: the next one may fit.
    pub(super) fn remove_waiter(&mut self, name: LockNameRef<'_>, ticket: Ticket) {
        let first = self.queue(name).and_then(Queue::first);
        let was_first = first.is_some_and(|(first, _)| first == ticket);
        self.withdraw(name, ticket);
        self.remove_if_empty(name);
        if was_first {
            self.schedule(name, Instant::DISTANT_PAST);
        }
    }

    /// Removes the first waiters of a lock, in order. If there are more, the queue is due at `now`.
    pub(super) fn remove_first(
        &mut self,
        name: LockNameRef<'_>,
        max: usize,
        now: Instant,
    ) -> Vec<(Ticket, Waiter)> {
        let Some(queue) = self.queue_mut(name) else {
            return Vec::new();
        };
        let tickets: Vec<Ticket> = queue.iter().map(|(ticket, _)| ticket).take(max).collect();
        let remove = |ticket| Some((ticket, queue.remove(ticket)?));
        let removed = tickets.into_iter().filter_map(remove).collect();
        self.remove_if_empty(name);
        self.schedule(name, now);
        removed
    }

    /// The queue that a transition of the lock works on, if any request waits there. The caller calls [`WaitTable::sync`]
    /// afterwards.
    #[inline]
    pub(super) fn queue_mut(&mut self, name: LockNameRef<'_>) -> Option<&mut Queue> {
        if self.is_empty() {
            return None;
        }
        let queue = &mut entry_mut(&mut self.databases, name)?.queue;
        queue.may_have_holders |= queue.values_version != self.values_version;
        queue.values_version = self.values_version;
        Some(queue)
    }

    /// Takes note of the effects of a transition on a queue and its lock.
    pub(super) fn sync(&mut self, name: LockNameRef<'_>, lock: &Lock, clock: LeaseClock) {
        let Some(entry) = entry_mut(&mut self.databases, name) else {
            return;
        };
        entry.forget_leavers(&mut self.owners, &mut self.arrivals);
        if entry.queue.is_empty() {
            self.remove_entry(name);
            return;
        }
        entry.has_too_many_holders = lock.holders().len() > MAX_HOLDERS;
        let holders = if entry.has_too_many_holders {
            &[]
        } else {
            lock.holders()
        };
        sync_holders(&mut entry.holders, holders, clock, &mut self.owners);
        let next = next_change(&entry.queue, lock, clock);
        self.wakeups.replace(&entry.name, &mut entry.next_wakeup, next);
    }

    /// Puts a waiter into a queue: in the position of a request with the same id, whose minimum it takes over, else at
    /// the end. `keeps_answers`: whether an inbox keeps the answer to a waiter. A request that is rejected changes
    /// nothing. The caller calls [`WaitTable::sync`] afterwards.
    pub(super) fn insert(
        &mut self,
        name: LockNameRef<'_>,
        mut waiter: Waiter,
        room: Room,
        keeps_answers: impl Fn(InboxId) -> bool,
    ) -> Result<Inserted, Error> {
        let entry = self.entry(name);
        let queue = entry.map(|entry| &entry.queue);
        let (ticket, is_known) = self.position(queue, &waiter, room, keeps_answers)?;
        let name = entry.map_or_else(|| name.to_name(), |entry| entry.name.clone());
        self.last_ticket = self.last_ticket.max(ticket.0);
        let database = self.databases.entry(name.db).or_default();
        let entry = match database.entry(Rc::clone(&name.key)) {
            Place::Occupied(entry) => entry.into_mut(),
            Place::Vacant(place) => {
                self.locks = self.locks.saturating_add(1);
                place.insert(Entry::new(name.clone(), self.values_version))
            }
        };
        let replaced = is_known.then(|| entry.queue.remove(ticket)).flatten();
        if let Some(replaced) = &replaced {
            waiter.min_fence = waiter.min_fence.max(replaced.min_fence);
        }
        self.arrivals.add(waiter.since);
        self.owners.add_wait(Rc::clone(&waiter.owner), &name);
        entry.queue.insert(ticket, waiter);
        Ok(Inserted {
            name,
            ticket,
            replaced,
        })
    }

    /// A ticket for an answer to a request that does not wait in a queue.
    pub(super) fn next_ticket(&mut self) -> Ticket {
        self.last_ticket = self.last_ticket.saturating_add(1);
        Ticket(self.last_ticket)
    }

    /// The ticket that a waiter gets, and whether it is that of a request with the same id.
    fn position(
        &self,
        queue: Option<&Queue>,
        waiter: &Waiter,
        room: Room,
        keeps_answers: impl Fn(InboxId) -> bool,
    ) -> Result<(Ticket, bool), Error> {
        let id = waiter.request_id.as_deref();
        let same = id.and_then(|id| queue?.find(&waiter.owner, id));
        let Room {
            per_lock,
            max,
            answers,
        } = room;
        let is_full = || self.waiters().saturating_add(answers) >= max;
        match same {
            Some((_, same)) if same.limit != waiter.limit => Err(Error::OtherLimit),
            // Its former inbox keeps an answer.
            Some((_, same)) if same.inbox != waiter.inbox && keeps_answers(same.inbox) && is_full() => {
                Err(Error::QueueFull(Full::Server(max)))
            }
            Some((ticket, _)) => Ok((ticket, true)),
            None if queue.is_some_and(|queue| queue.requests_of(&waiter.owner) >= MAX_REQUEST_IDS) => {
                Err(Error::TooManyWaiting(MAX_REQUEST_IDS))
            }
            None if queue.map_or(0, Queue::len) >= per_lock => Err(Error::QueueFull(Full::Lock(per_lock))),
            None if is_full() => Err(Error::QueueFull(Full::Server(max))),
            None => Ok((Ticket(self.last_ticket.saturating_add(1)), false)),
        }
    }

    /// Takes a waiter out of its queue. The caller calls [`WaitTable::sync`] afterwards.
    pub(super) fn withdraw(&mut self, name: LockNameRef<'_>, ticket: Ticket) {
        if let Some(queue) = self.queue_mut(name) {
            queue.remove(ticket);
        }
    }

    pub(super) fn entry(&self, name: LockNameRef<'_>) -> Option<&Entry> {
        self.databases.get(&name.db)?.get(name.key)
    }

    fn remove_entry(&mut self, name: LockNameRef<'_>) -> Option<Entry> {
        let mut entry = self.databases.get_mut(&name.db)?.remove(name.key)?;
        self.locks = self.locks.saturating_sub(1);
        self.wakeups.replace(&entry.name, &mut entry.next_wakeup, None);
        for holder in &entry.holders {
            self.owners.remove_hold(&holder.owner);
        }
        Some(entry)
    }

    /// Takes note of the waiters that have left, and forgets the queue after the last.
    pub(super) fn remove_if_empty(&mut self, name: LockNameRef<'_>) {
        if let Some(entry) = entry_mut(&mut self.databases, name) {
            entry.forget_leavers(&mut self.owners, &mut self.arrivals);
            if entry.queue.is_empty() {
                self.remove_entry(name);
            }
        }
    }
}

impl Entry {
    fn new(name: LockName, values_version: u64) -> Self {
        Self {
            name,
            queue: Queue::new(values_version),
            holders: SmallVec::new(),
            has_too_many_holders: false,
            next_wakeup: None,
        }
    }

    /// Takes note of the waiters that have left.
    fn forget_leavers(&mut self, owners: &mut OwnerIndex, arrivals: &mut Arrivals) {
        for since in self.queue.left.drain(..) {
            arrivals.remove(since);
        }
        while let Some(owner) = self.queue.removed_owners.pop() {
            // A request that replaced another one left, and is back.
            if !self.queue.has(&owner) {
                owners.remove_wait(&owner, &self.name);
            }
        }
        self.queue.left.shrink_if_sparse();
        self.queue.removed_owners.shrink_if_sparse();
    }

    /// `None` if they are too many.
    fn live_holders(&self, clock: LeaseClock) -> Option<impl Iterator<Item = (&[u8], Limit)>> {
        let live = self
            .holders
            .iter()
            .filter(move |holder| holder.lease_end > clock.now);
        (!self.has_too_many_holders).then(|| live.map(|holder| (&*holder.owner, holder.limit)))
    }
}

fn entry_mut<'a>(databases: &'a mut BTreeMap<i32, Database>, name: LockNameRef<'_>) -> Option<&'a mut Entry> {
    databases.get_mut(&name.db)?.get_mut(name.key)
}

/// Makes the snapshots those of these holders, which leave from anywhere; new ones are appended.
fn sync_holders(
    snapshots: &mut SmallVec<[HolderSnapshot; 1]>,
    holders: &[Holder],
    clock: LeaseClock,
    owners: &mut OwnerIndex,
) {
    let live = |holder: &&Holder| holder.is_live(clock);
    let mut present = holders.iter().filter(live).peekable();
    snapshots.retain_mut(|snapshot| {
        let Some(holder) = present.next_if(|holder| holder.owner() == &*snapshot.owner) else {
            owners.remove_hold(&snapshot.owner);
            return false;
        };
        // It may have left, and come back with another limit.
        snapshot.limit = holder.limit();
        snapshot.lease_end = holder.lease_end(clock);
        true
    });
    for holder in present {
        let owner: Owner = holder.owner().into();
        owners.add_hold(&owner);
        snapshots.push(HolderSnapshot {
            owner,
            limit: holder.limit(),
            lease_end: holder.lease_end(clock),
        });
    }
}

/// When a queue changes without a request: a waiter times out, a lease expires, or the grace period ends.
fn next_change(queue: &Queue, lock: &Lock, clock: LeaseClock) -> Option<Instant> {
    if queue.is_cut {
        return Some(clock.now);
    }
    let grace_end = Some(clock.grace_end).filter(|end| *end > clock.now);
    [queue.first_deadline(), lock.first_lease_end(clock), grace_end]
        .into_iter()
        .flatten()
        .min()
}
