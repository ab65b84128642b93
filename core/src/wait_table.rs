//! All queues: who waits where, who holds what is waited for, and when somebody has to look.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::deadlock;
use super::effects::Effects;
use super::error::Error;
use super::limit::Limit;
use super::lock::{Holder, Lock};
use super::queue::{Owner, Queue, Ticket, Waiter};
use super::request::{Acquire, Timeout};
use super::time::Instant;
use super::transition::{TransitionContext, time_out_waiters};

/// The name of a lock: database and key. A queue belongs to a name, whatever is under it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockName {
    pub db: i32,
    pub key: Rc<[u8]>,
}

impl LockName {
    pub fn new(db: i32, key: &[u8]) -> Self {
        Self { db, key: key.into() }
    }
}

/// What a name is looked up by, without making one.
trait Name {
    fn parts(&self) -> (i32, &[u8]);
}

impl Name for LockName {
    fn parts(&self) -> (i32, &[u8]) {
        (self.db, &self.key)
    }
}

impl Name for (i32, &[u8]) {
    fn parts(&self) -> (i32, &[u8]) {
        *self
    }
}

impl<'a> Borrow<dyn Name + 'a> for LockName {
    fn borrow(&self) -> &(dyn Name + 'a) {
        self
    }
}

// As `LockName` is ordered: by its parts.
impl Ord for dyn Name + '_ {
    fn cmp(&self, other: &Self) -> Ordering {
        self.parts().cmp(&other.parts())
    }
}

impl PartialOrd for dyn Name + '_ {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for dyn Name + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.parts() == other.parts()
    }
}

impl Eq for dyn Name + '_ {}

/// A queue, with its lock's holders as they were after the last step.
#[derive(Debug)]
pub(super) struct Entry {
    name: LockName,
    pub(super) queue: Queue,
    pub(super) holders: Vec<HolderSnapshot>,
    pub(super) next_wakeup: Option<Instant>,
}

/// A holder, as far as deadlocks are concerned.
#[derive(Debug)]
pub(super) struct HolderSnapshot {
    pub(super) owner: Owner,
    pub(super) limit: Limit,
    pub(super) lease_end: Instant,
}

/// What a new waiter must respect.
#[derive(Clone, Copy, Debug)]
pub struct WaitPolicy {
    pub max_waiters: usize,
    pub detect_deadlocks: bool,
}

/// A request that waits now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enqueued {
    pub ticket: Ticket,
    /// It took the place of a request with the same id, whose client must be told.
    pub replaced: bool,
}

#[derive(Debug, Default)]
pub struct WaitTable {
    pub(super) entries: BTreeMap<LockName, Entry>,
    index: Index,
    last_ticket: u64,
    /// The queue of a lock that nobody waits for. Always empty.
    empty: Queue,
}

/// What is known across the queues.
#[derive(Debug, Default)]
struct Index {
    wakeups: Wakeups,
    owners: OwnerIndex,
    /// Owners that stopped waiting somewhere, and queues that became empty: both are cleared away later. The
    /// one who was let in should not have to wait for that.
    departed_owners: Vec<(Owner, LockName)>,
    emptied: Vec<LockName>,
}

impl WaitTable {
    pub const fn new() -> Self {
        Self {
            entries: BTreeMap::new(),
            index: Index {
                wakeups: Wakeups(BTreeSet::new()),
                owners: OwnerIndex(BTreeMap::new()),
                departed_owners: Vec::new(),
                emptied: Vec::new(),
            },
            last_ticket: 0,
            empty: Queue::new(),
        }
    }

    /// Nobody waits anywhere, and nothing is to be cleared away.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The number of locks that are waited for.
    pub fn locks(&self) -> usize {
        let is_waited_for = |entry: &&Entry| !entry.queue.is_empty();
        self.entries.values().filter(is_waited_for).count()
    }

    pub fn waiters(&self) -> usize {
        self.entries.values().map(|entry| entry.queue.len()).sum()
    }

    /// Since when the longest waiter of all has been waiting.
    pub fn longest_since(&self) -> Option<Instant> {
        self.entries
            .values()
            .flat_map(|entry| entry.queue.iter())
            .map(|(_, waiter)| waiter.since())
            .min()
    }

    /// The queue of a lock, if somebody waits there.
    pub fn queue(&self, name: &LockName) -> Option<&Queue> {
        let queue = self.entries.get(name).map(|entry| &entry.queue);
        queue.filter(|queue| !queue.is_empty())
    }

    /// The name as it is kept, if somebody waits there.
    pub fn name(&self, db: i32, key: &[u8]) -> Option<LockName> {
        if self.entries.is_empty() {
            return None;
        }
        let name: &dyn Name = &(db, key);
        let (name, entry) = self.entries.get_key_value(name)?;
        (!entry.queue.is_empty()).then(|| name.clone())
    }

    /// Runs a step on a lock with its queue, and takes note of what became of both.
    pub fn step<R>(
        &mut self,
        db: i32,
        key: &[u8],
        lock: &mut Lock,
        cx: &TransitionContext,
        step: impl FnOnce(&mut Lock, &mut Queue) -> R,
    ) -> R {
        let name: &dyn Name = &(db, key);
        match self.entries.get_mut(name) {
            Some(entry) if !entry.queue.is_empty() => {
                let result = step(lock, &mut entry.queue);
                self.index.update(entry, lock, cx);
                result
            }
            _ => step(lock, &mut self.empty),
        }
    }

    /// Clears away what is left of those who wait no more.
    fn collect_garbage(&mut self) {
        for (owner, name) in self.index.departed_owners.drain(..) {
            self.index.owners.remove_wait(&owner, &name);
        }
        while let Some(name) = self.index.emptied.pop() {
            if self.queue(&name).is_none() {
                self.remove_entry(&name);
            }
        }
    }

    /// Lets a request wait, that could not be granted. Refused, nothing has changed.
    pub fn enqueue(
        &mut self,
        name: &LockName,
        lock: &Lock,
        request: &Acquire<'_>,
        timeout: Timeout,
        cx: &TransitionContext,
        rules: WaitPolicy,
    ) -> Result<Enqueued, Error> {
        self.collect_garbage();
        let next = Ticket(self.last_ticket.saturating_add(1));
        let entry = self
            .entries
            .entry(name.clone())
            .or_insert_with(|| Entry::new(name.clone()));
        let place = entry.find_place(request, next, rules.max_waiters);
        if let Ok(Enqueued { ticket, .. }) = place {
            entry.queue.remove(ticket);
            entry.queue.insert(ticket, Waiter::new(request, timeout, cx.now));
            self.last_ticket = self.last_ticket.max(ticket.0);
        }
        self.index.update(entry, lock, cx);
        let enqueued = place?;
        // A request that took the place of another left with it, and is back.
        self.collect_garbage();
        if let Some(entry) = self.entries.get(name) {
            self.index.owners.waits(request.owner, &entry.name);
        }
        let search =
            rules.detect_deadlocks && !enqueued.replaced && self.index.owners.may_close_cycle(request.owner);
        if let Some(cycle) = search
            .then(|| deadlock::search(self, name, request.owner, cx.now))
            .flatten()
        {
            if let Some(entry) = self.entries.get_mut(name) {
                entry.queue.remove(enqueued.ticket);
                self.index.update(entry, lock, cx);
            }
            return Err(Error::Deadlock(Box::new(cycle)));
        }
        Ok(enqueued)
    }

    /// A waiter has left, and those behind it have to be looked at.
    pub fn remove_waiter(&mut self, name: &LockName, ticket: Ticket) {
        let Some(entry) = self.entries.get_mut(name) else {
            return;
        };
        entry.queue.remove(ticket);
        self.index.owners.drop_departed(name, &mut entry.queue);
        if entry.queue.is_empty() {
            self.remove_entry(name);
        } else {
            self.schedule(name, Instant::DISTANT_PAST);
        }
    }

    /// All waiters of a lock that nobody can be granted here any more.
    pub fn drain(&mut self, name: &LockName) -> Vec<Ticket> {
        let Some(entry) = self.entries.get_mut(name) else {
            return Vec::new();
        };
        let queue = std::mem::take(&mut entry.queue);
        for owner in queue.owners() {
            self.index.owners.remove_wait(owner, name);
        }
        self.remove_entry(name);
        queue.iter().map(|(ticket, _)| ticket).collect()
    }

    fn remove_entry(&mut self, name: &LockName) {
        if let Some(entry) = self.entries.remove(name) {
            self.index.wakeups.change(name, entry.next_wakeup, None);
            entry
                .holders
                .iter()
                .for_each(|member| self.index.owners.remove_hold(&member.owner));
        }
    }

    /// Waiters give up at their time, also while nobody can be let in.
    pub fn time_out_waiters(&mut self, name: &LockName, cx: &TransitionContext, effects: &mut Effects) {
        let Some(entry) = self.entries.get_mut(name) else {
            return;
        };
        time_out_waiters(&mut entry.queue, cx, effects);
        self.index.owners.drop_departed(name, &mut entry.queue);
        if entry.queue.is_empty() {
            self.remove_entry(name);
        }
    }

    /// The queues in which this owner stands.
    pub(super) fn waits_of(&self, owner: &[u8]) -> impl Iterator<Item = (&LockName, &Entry)> {
        let names = self
            .index
            .owners
            .0
            .get(owner)
            .map(|involvement| involvement.waits.iter());
        names
            .into_iter()
            .flatten()
            .filter_map(|name| self.entries.get_key_value(name))
    }

    /// Whether this owner waits anywhere, or holds what others wait for.
    pub fn involves(&mut self, owner: &[u8]) -> bool {
        self.collect_garbage();
        self.index.owners.0.contains_key(owner)
    }

    /// When somebody has to look at a queue next.
    pub fn next_wakeup(&self) -> Option<Instant> {
        self.index.wakeups.0.first().map(|(at, _)| *at)
    }

    /// A queue that has to be looked at now. It is named again and again until it is put back with a later
    /// alarm, or snoozed.
    pub fn next_due(&mut self, now: Instant) -> Option<LockName> {
        self.collect_garbage();
        self.index
            .wakeups
            .0
            .first()
            .filter(|(at, _)| *at <= now)
            .map(|(_, name)| name.clone())
    }

    /// Has a queue looked at then.
    pub fn schedule(&mut self, name: &LockName, at: Instant) {
        if let Some(entry) = self.entries.get_mut(name) {
            self.index.wakeups.change(name, entry.next_wakeup, Some(at));
            entry.next_wakeup = Some(at);
        }
    }

    /// Has a queue that cannot be served now looked at then, or when a waiter gives up before.
    pub fn defer(&mut self, name: &LockName, until: Instant) {
        let deadline = self.queue(name).and_then(Queue::first_deadline);
        self.schedule(name, deadline.map_or(until, |deadline| deadline.min(until)));
    }

    /// Has every queue of a database looked at; `None` = of all.
    pub fn schedule_db(&mut self, db: Option<i32>, at: Instant) {
        let names: Vec<LockName> = self
            .entries
            .keys()
            .filter(|name| db.is_none_or(|db| db == name.db))
            .cloned()
            .collect();
        for name in names {
            self.schedule(&name, at);
        }
    }
}

impl Entry {
    fn new(name: LockName) -> Self {
        Self {
            name,
            queue: Queue::with_waiters(),
            holders: Vec::new(),
            next_wakeup: None,
        }
    }

    /// Where a request waits: in the place of one with the same id, else at the end.
    fn find_place(&self, request: &Acquire<'_>, next: Ticket, max_waiters: usize) -> Result<Enqueued, Error> {
        let same = request
            .request_id
            .and_then(|id| self.queue.find(request.owner, id));
        match same {
            Some((_, same)) if same.limit != request.limit => Err(Error::OtherLimit),
            Some((ticket, _)) => Ok(Enqueued {
                ticket,
                replaced: true,
            }),
            None if self.queue.len() >= max_waiters => Err(Error::QueueFull(max_waiters)),
            None => Ok(Enqueued {
                ticket: next,
                replaced: false,
            }),
        }
    }
}

impl Index {
    /// Takes note of what a step made of a queue and its lock.
    fn update(&mut self, entry: &mut Entry, lock: &Lock, cx: &TransitionContext) {
        let Entry {
            name,
            queue,
            holders,
            next_wakeup,
        } = entry;
        self.departed_owners
            .extend(queue.departed_owners.drain(..).map(|owner| (owner, name.clone())));
        if queue.is_empty() {
            self.emptied.push(name.clone());
            return;
        }
        sync_holders(holders, lock, cx, &mut self.owners);
        let next = earliest_wakeup(queue, lock, cx);
        self.wakeups.change(name, *next_wakeup, next);
        *next_wakeup = next;
    }
}

/// When to look where.
#[derive(Debug, Default)]
struct Wakeups(BTreeSet<(Instant, LockName)>);

impl Wakeups {
    fn change(&mut self, name: &LockName, from: Option<Instant>, to: Option<Instant>) {
        if from == to {
            return;
        }
        if let Some(at) = from {
            self.0.remove(&(at, name.clone()));
        }
        if let Some(at) = to {
            self.0.insert((at, name.clone()));
        }
    }
}

/// In which queues each owner stands, and how many locks it holds that others wait for.
#[derive(Debug, Default)]
struct OwnerIndex(BTreeMap<Owner, OwnerEntry>);

#[derive(Debug, Default)]
struct OwnerEntry {
    waits: BTreeSet<LockName>,
    holds: usize,
}

impl OwnerIndex {
    /// An owner that neither holds what others wait for, nor waits elsewhere, cannot close a circle.
    fn may_close_cycle(&self, owner: &[u8]) -> bool {
        self.0
            .get(owner)
            .is_some_and(|involvement| involvement.holds > 0 || involvement.waits.len() > 1)
    }

    fn waits(&mut self, owner: &[u8], name: &LockName) {
        let involvement = self.0.entry(owner.into()).or_default();
        involvement.waits.insert(name.clone());
    }

    fn holds(&mut self, owner: &Owner) {
        let involvement = self.0.entry(Rc::clone(owner)).or_default();
        involvement.holds = involvement.holds.saturating_add(1);
    }

    /// Takes note of those who stand in a queue no more.
    fn drop_departed(&mut self, name: &LockName, queue: &mut Queue) {
        for owner in queue.departed_owners.drain(..) {
            self.remove_wait(&owner, name);
        }
    }

    fn remove_wait(&mut self, owner: &Owner, name: &LockName) {
        self.update_or_remove(owner, |involvement| _ = involvement.waits.remove(name));
    }

    fn remove_hold(&mut self, owner: &Owner) {
        self.update_or_remove(owner, |involvement| {
            involvement.holds = involvement.holds.saturating_sub(1)
        });
    }

    fn update_or_remove(&mut self, owner: &Owner, change: impl FnOnce(&mut OwnerEntry)) {
        if let Some(involvement) = self.0.get_mut(owner) {
            change(involvement);
            if involvement.waits.is_empty() && involvement.holds == 0 {
                self.0.remove(owner);
            }
        }
    }
}

/// Makes `sync_holders` the holders of `lock`. Holders leave from anywhere, new ones come last.
fn sync_holders(
    sync_holders: &mut Vec<HolderSnapshot>,
    lock: &Lock,
    cx: &TransitionContext,
    owners: &mut OwnerIndex,
) {
    let live = |holder: &&Holder| cx.is_live(holder);
    let mut present = lock.holders().iter().filter(live).peekable();
    sync_holders.retain_mut(|member| {
        let Some(holder) = present.next_if(|holder| holder.owner() == &*member.owner) else {
            owners.remove_hold(&member.owner);
            return false;
        };
        // It may have left, and come back with another limit.
        member.limit = holder.limit();
        member.lease_end = cx.lease_end(holder);
        true
    });
    for holder in present {
        let owner: Owner = holder.owner().into();
        owners.holds(&owner);
        sync_holders.push(HolderSnapshot {
            owner,
            limit: holder.limit(),
            lease_end: cx.lease_end(holder),
        });
    }
}

/// When a queue changes by itself: a waiter gives up, a lease ends, or a grace does.
fn earliest_wakeup(queue: &Queue, lock: &Lock, cx: &TransitionContext) -> Option<Instant> {
    let grace_end = Some(cx.grace_end).filter(|end| *end > cx.now);
    [queue.first_deadline(), cx.first_lease_end(lock), grace_end]
        .into_iter()
        .flatten()
        .min()
}
