//! The model: locks with their queues, written from the contract and from nothing else.
//!
//! It has no clever representation and never removes expired holders: a holder whose lease has expired stays in
//! the list and is ignored. So an owner may be in the list several times, live at most once. A waiter is a
//! request that is tried again at every chance, until it is granted, rejected, or times out.

use super::ops::{Answer, Client, HolderView, LockView, Micros, Reply, Request, Waiter};
use crate::fence::Fence;
use crate::names::Limit;
use crate::wire::{Acquire, Error, Extend, Full, GrantRef, Granted, Guard, Holds, Release};

#[derive(Clone, Debug, Default)]
pub struct Model {
    pub now: Micros,
    pub grace_end: Option<Micros>,
    pub evictable: bool,
    /// The largest fence granted. Each grant adds one; the test says when the counter advances.
    pub last_fence: Fence,
    /// With a minimum, a grant adds one to the last fence of its name, or to this floor of all names.
    pub floor: Fence,
    pub max_waiters: usize,
    pub detect_deadlocks: bool,
    pub locks: Vec<Lock>,
    /// The replies to clients, oldest first.
    pub replies: Vec<(Client, Reply)>,
}

#[derive(Clone, Debug, Default)]
pub struct Lock {
    pub holders: Vec<Holder>,
    pub queue: Vec<Waiter<'static>>,
    /// The last fence of this name.
    pub last_fence: Fence,
}

#[derive(Clone, Debug)]
pub struct Holder {
    pub owner: &'static [u8],
    pub fence: Fence,
    pub limit: Limit,
    pub since: Micros,
    pub lease_end: Micros,
    /// Oldest first; `None` = a hold without a request id.
    pub holds: Vec<Option<&'static [u8]>>,
}

/// One lock without its queue.
impl Model {
    /// The reply to a request that does not wait.
    fn try_now(&mut self, lock: usize, request: &Request<'static>) -> Reply {
        match request {
            Request::Acquire(request) => self.acquire_now(lock, request),
            Request::Release(request) => self.release(lock, request),
            Request::Extend(request) => self.extend(lock, request),
        }
    }

    fn acquire_now(&mut self, lock: usize, request: &Acquire<'static>) -> Reply {
        let (owner, limit, id) = (request.owner, request.limit, request.request_id);
        let lease_end = self.now + micros(request.lease_ms);
        let grace = self.check_grace();
        if let Some(place) = self.place_of(lock, owner) {
            let holder = &mut self.locks[lock].holders[place];
            if as_number(limit) < as_number(holder.limit) {
                return Err(Error::Upgrade(holder.limit));
            }
            if id.is_none() || !holder.holds.contains(&id) {
                grace?;
                if id.is_some() && holder.holds.iter().flatten().count() == 64 {
                    return Err(Error::TooManyRequestIds(64));
                }
                holder.holds.push(id);
                holder.lease_end = holder.lease_end.max(lease_end);
            }
            return Ok(self.granted(lock, place));
        }
        grace?;
        if self.evictable {
            return Err(Error::Evictable);
        }
        let limits = self.live(lock).map(|holder| holder.limit).chain([limit]);
        let after = self.live(lock).count() as u64 + 1;
        if limits.map(as_number).any(|limit| after > limit) {
            return Ok(Answer::NotGranted);
        }
        let youngest = self.live(lock).last().map_or(0, |holder| holder.fence);
        let last = self.locks[lock].last_fence.max(self.floor);
        let fence = match request.min_fence {
            None => self.last_fence + 1,
            Some(min) => min.max(last + 1).max(youngest + 1),
        };
        self.note_fence(lock, fence);
        let (since, holds) = (self.now, vec![id]);
        let holder = Holder {
            owner,
            fence,
            limit,
            since,
            lease_end,
            holds,
        };
        self.locks[lock].holders.push(holder);
        Ok(self.granted(lock, self.locks[lock].holders.len() - 1))
    }

    fn release(&mut self, lock: usize, request: &Release<'_>) -> Reply {
        let place = match self.place_for(lock, request.owner, request.fence) {
            Err(Error::NotHeld | Error::NotOwner)
                if request.fence.is_none() && matches!(request.holds, Holds::ById(_)) =>
            {
                return Ok(Answer::Holds(0));
            }
            place => place?,
        };
        let holds = &mut self.locks[lock].holders[place].holds;
        match request.holds {
            Holds::All => holds.clear(),
            Holds::ById(id) => holds.retain(|hold| *hold != Some(id)),
            Holds::One => {
                let anonymous = holds.iter().position(|hold| hold.is_none());
                holds.remove(anonymous.unwrap_or(holds.len() - 1));
            }
        }
        let left = holds.len() as u64;
        if left == 0 {
            self.locks[lock].holders.remove(place);
        }
        Ok(Answer::Holds(left))
    }

    fn extend(&mut self, lock: usize, request: &Extend<'_>) -> Reply {
        let (fence, id) = match request.grant {
            GrantRef::Current => (None, None),
            GrantRef::Fence(fence) => (Some(fence), None),
            GrantRef::RequestId(id) => (None, Some(id)),
        };
        if request.grant == GrantRef::Current {
            self.check_grace()?;
        }
        let place = self.place_for(lock, request.owner, fence)?;
        if id.is_some() && !self.has_hold(lock, request.owner, id) {
            return Err(Error::StaleRequestId);
        }
        let lease_end = self.now + micros(request.lease_ms);
        let holder = &mut self.locks[lock].holders[place];
        match request.min_fence {
            Some(_) if holder.limit != Limit::MUTEX => return Err(Error::RaiseOfShared),
            Some(min) if holder.fence > min => return Err(Error::Stale),
            min => holder.fence = min.unwrap_or(holder.fence),
        }
        holder.lease_end = holder.lease_end.max(lease_end);
        let lease_end = holder.lease_end;
        if let Some(min) = request.min_fence {
            self.note_fence(lock, min);
        }
        Ok(Answer::Lease(whole_ms(lease_end - self.now)))
    }

    /// This lock has a holder with this fence.
    fn note_fence(&mut self, lock: usize, fence: Fence) {
        self.last_fence = self.last_fence.max(fence);
        self.locks[lock].last_fence = self.locks[lock].last_fence.max(fence);
    }

    fn place_of(&self, lock: usize, owner: &[u8]) -> Option<usize> {
        let is_live = |holder: &Holder| holder.owner == owner && holder.lease_end > self.now;
        self.locks[lock].holders.iter().position(is_live)
    }

    /// The live holder that makes the request, if the fence that it gives is its own.
    fn place_for(&self, lock: usize, owner: &[u8], given: Option<Fence>) -> Result<usize, Error> {
        match self.place_of(lock, owner) {
            None if self.live(lock).next().is_some() => Err(Error::NotOwner),
            None => Err(Error::NotHeld),
            Some(place) => match self.locks[lock].holders[place].fence {
                fence if given.is_none_or(|given| given == fence) => Ok(place),
                _ => Err(Error::Stale),
            },
        }
    }

    /// What remains of the lease.
    pub fn guard(&self, lock: usize, request: &Guard<'_>) -> Result<u64, Error> {
        let place = self.place_for(lock, request.owner, Some(request.fence))?;
        Ok(whole_ms(self.locks[lock].holders[place].lease_end - self.now))
    }

    fn check_grace(&self) -> Result<(), Error> {
        let left = self.grace_end.map_or(0, |end| end - self.now);
        if left > 0 {
            Err(Error::Grace(whole_ms(left + 999)))
        } else {
            Ok(())
        }
    }

    fn granted(&self, lock: usize, place: usize) -> Answer {
        let holder = &self.locks[lock].holders[place];
        Answer::Granted(Granted {
            fence: holder.fence,
            holds: holder.holds.len() as u64,
            lease_ms: whole_ms(holder.lease_end - self.now),
            waited_ms: 0,
        })
    }
}

/// Locks with their queues.
impl Model {
    pub fn ask(&mut self, client: Client, lock: usize, request: &Request<'static>) {
        match request {
            Request::Acquire(request) => self.acquire(client, lock, request),
            _ => self.release_or_extend(client, lock, request),
        }
    }

    /// The queue comes first. A new owner is granted the lock only when no request waits.
    fn acquire(&mut self, client: Client, lock: usize, request: &Acquire<'static>) {
        self.grant_waiters(lock);
        let overtakes = !self.locks[lock].queue.is_empty() && !self.is_held_by(lock, request.owner);
        let before = self.clone();
        let mut reply = self.acquire_now(lock, request);
        if overtakes && matches!(reply, Ok(Answer::Granted(_))) {
            *self = before;
            reply = Ok(Answer::NotGranted);
        }
        match reply {
            Ok(Answer::NotGranted) | Err(Error::Grace(_)) if request.wait.is_some() => {
                self.wait(client, lock, *request);
            }
            reply => self.replies.push((client, reply)),
        }
    }

    fn wait(&mut self, client: Client, lock: usize, request: Acquire<'static>) {
        let (owner, id, since) = (request.owner, request.request_id, self.now);
        let waiter = Waiter {
            client,
            since,
            request,
        };
        let is_same = |other: &&mut Waiter| {
            id.is_some() && (other.request.owner, other.request.request_id) == (owner, id)
        };
        let length = self.locks[lock].queue.len();
        if let Some(other) = self.locks[lock].queue.iter_mut().find(is_same) {
            let reply = if other.request.limit != request.limit {
                (client, Err(Error::OtherLimit))
            } else {
                let replaced = std::mem::replace(other, waiter);
                let min_fence = &mut other.request.min_fence;
                *min_fence = replaced.request.min_fence.max(*min_fence);
                (replaced.client, Err(Error::Replaced))
            };
            return self.replies.push(reply);
        }
        if length >= self.max_waiters {
            return self
                .replies
                .push((client, Err(Error::QueueFull(Full::Lock(self.max_waiters)))));
        }
        let may_close_cycle = self.detect_deadlocks && self.is_involved(owner, lock);
        self.locks[lock].queue.push(waiter);
        if may_close_cycle && self.deadlocked().iter().any(|waiter| waiter.client == client) {
            self.locks[lock].queue.pop();
            self.replies.push((client, Ok(Answer::Deadlock)));
        }
    }

    /// Afterwards the queue is granted what it can be, even if the request was rejected.
    fn release_or_extend(&mut self, client: Client, lock: usize, request: &Request<'static>) {
        let by_id = match *request {
            Request::Release(Release {
                owner,
                holds: Holds::ById(id),
                ..
            }) => Some((owner, Some(id))),
            _ => None,
        };
        let may_wait = by_id.filter(|(owner, id)| !self.has_hold(lock, owner, *id));
        let reply = self.try_now(lock, request);
        let is_accepted = reply.is_ok();
        self.replies.push((client, reply));
        let mut queue = self.locks[lock].queue.iter();
        let is_withdrawn =
            |waiter: &Waiter| Some((waiter.request.owner, waiter.request.request_id)) == may_wait;
        if let Some(place) = queue.position(is_withdrawn).filter(|_| is_accepted) {
            let waiter = self.locks[lock].queue.remove(place);
            self.replies.push((waiter.client, Ok(Answer::NotGranted)));
        }
        self.grant_waiters(lock);
    }

    /// The timer of a lock fires.
    pub fn on_timer(&mut self, lock: usize) {
        self.time_out_waiters(lock);
        self.grant_waiters(lock);
    }

    pub fn time_out_waiters(&mut self, lock: usize) {
        let now = self.now;
        let is_late = |waiter: &Waiter| waiter.deadline().is_some_and(|deadline| deadline <= now);
        while let Some(place) = self.locks[lock].queue.iter().position(is_late) {
            let waiter = self.locks[lock].queue.remove(place);
            self.replies.push((waiter.client, Ok(Answer::NotGranted)));
        }
    }

    /// Grants all that can be granted.
    fn grant_waiters(&mut self, lock: usize) {
        if self.check_grace().is_err() {
            return;
        }
        self.time_out_waiters(lock);
        while let Some((place, mut reply)) = self.next_reply(lock) {
            let waiter = self.locks[lock].queue.remove(place);
            if let Ok(Answer::Granted(granted)) = &mut reply {
                granted.waited_ms = whole_ms(self.now - waiter.since);
            }
            self.replies.push((waiter.client, reply));
        }
    }

    /// A waiting holder re-enters at once; otherwise the first waiter is next.
    fn next_reply(&mut self, lock: usize) -> Option<(usize, Reply)> {
        let queue = &self.locks[lock].queue;
        let holder = queue
            .iter()
            .position(|waiter| self.is_held_by(lock, waiter.request.owner));
        let place = holder.unwrap_or(0);
        let request = queue.get(place)?.request;
        Some((place, self.acquire_now(lock, &request))).filter(|(_, reply)| *reply != Ok(Answer::NotGranted))
    }

    /// A client disconnects: it gets no reply.
    pub fn disconnect(&mut self, lock: usize, client: Client) {
        self.locks[lock].queue.retain(|waiter| waiter.client != client);
    }

    /// Releases exactly that hold, if it still exists.
    pub fn rollback_grant(&mut self, lock: usize, request: &Release<'_>) {
        let id = match request.holds {
            Holds::ById(id) => Some(id),
            Holds::One | Holds::All => None,
        };
        let is_same_grant = self.place_for(lock, request.owner, request.fence).is_ok();
        if is_same_grant && self.has_hold(lock, request.owner, id) {
            self.release(lock, request).expect("a holder");
        }
        self.grant_waiters(lock);
    }

    /// All waiters of this lock get an error.
    pub fn drain(&mut self, lock: usize) {
        let waiters = std::mem::take(&mut self.locks[lock].queue);
        self.replies.extend(
            waiters
                .into_iter()
                .map(|waiter| (waiter.client, Err(Error::Replaced))),
        );
    }

    /// A grace period starts, or the current one becomes longer. Live leases last at least until its end.
    pub fn begin_grace(&mut self, grace_ms: u64) {
        let now = self.now;
        let end = self.grace_end.unwrap_or(now).max(now + micros(grace_ms));
        self.grace_end = Some(end);
        let holders = self.locks.iter_mut().flat_map(|lock| &mut lock.holders);
        for holder in holders.filter(|holder| holder.lease_end > now) {
            holder.lease_end = holder.lease_end.max(end);
        }
    }

    /// The server restarts with its locks as they were stored. Times are stored in whole milliseconds, so a
    /// lease or a grace period ends up to one millisecond later, never earlier.
    pub fn restart(&mut self) {
        let now = self.now;
        for lock in 0..self.locks.len() {
            let holders = std::mem::take(&mut self.locks[lock].holders);
            self.restore(lock, &holders, now);
        }
        self.grace_end = self
            .grace_end
            .filter(|end| *end > now)
            .map(|end| now + rounded_up(end - now));
    }

    /// The fence counter has advanced to this fence.
    pub fn advance_fences(&mut self, last_fence: Fence) {
        assert!(last_fence >= self.last_fence, "the fence counter went backwards");
        self.last_fence = last_fence;
        self.floor = last_fence;
    }

    /// A lock as it was at another time: ages and leases in whole milliseconds, leases never shorter.
    pub fn restore(&mut self, lock: usize, holders: &[Holder], at: Micros) {
        let now = self.now;
        let grace_end = self.grace_end.unwrap_or(now);
        let live = holders.iter().filter(|holder| holder.lease_end > at).cloned();
        let restored = live.map(|holder| Holder {
            since: now - (at - holder.since) / 1000 * 1000,
            lease_end: grace_end.max(now + rounded_up(holder.lease_end - at)),
            ..holder
        });
        self.locks[lock].holders = restored.collect();
        for holder in &self.locks[lock].holders {
            self.floor = self.floor.max(holder.fence);
        }
    }

    /// A lock has come to another name, with holders up to this fence.
    pub fn learn_fence(&mut self, fence: Fence) {
        self.floor = self.floor.max(fence);
    }

    /// The live holders, earliest grant first.
    pub fn live(&self, lock: usize) -> impl Iterator<Item = &Holder> {
        let holders = self.locks[lock].holders.iter();
        holders.filter(|holder| holder.lease_end > self.now)
    }

    fn is_held_by(&self, lock: usize, owner: &[u8]) -> bool {
        self.place_of(lock, owner).is_some()
    }

    fn has_hold(&self, lock: usize, owner: &[u8], id: Option<&[u8]>) -> bool {
        let mut live = self.live(lock);
        live.any(|holder| holder.owner == owner && holder.holds.contains(&id))
    }

    pub fn view(&self, lock: usize) -> LockView<'_> {
        let view = |holder: &Holder| HolderView {
            owner: holder.owner,
            fence: holder.fence,
            limit: holder.limit,
            anonymous: holder.holds.iter().filter(|hold| hold.is_none()).count(),
            ids: holder.holds.iter().copied().flatten().collect(),
            lease_ms: whole_ms(holder.lease_end - self.now),
            held_ms: whole_ms(self.now - holder.since),
        };
        LockView {
            holders: self.live(lock).map(view).collect(),
            queue: self.locks[lock].queue.clone(),
        }
    }

    /// Whether a timer would change nothing for this lock now. Waiters of an evictable server get their error
    /// only when their turn comes.
    pub fn is_settled(&self, lock: usize) -> bool {
        let mut later = Self {
            now: self.now,
            grace_end: self.grace_end,
            locks: vec![self.locks[lock].clone()],
            ..Self::default()
        };
        later.on_timer(0);
        later.replies.is_empty()
    }

    /// When this lock changes without a request, if it has waiters.
    pub fn next_change(&self, lock: usize) -> Option<Micros> {
        let queue = &self.locks[lock].queue;
        if queue.is_empty() {
            return None;
        }
        if !self.is_settled(lock) {
            return Some(self.now);
        }
        let deadlines = queue.iter().filter_map(Waiter::deadline);
        let lease_ends = self.live(lock).map(|holder| holder.lease_end);
        let grace_end = self.grace_end.filter(|end| *end > self.now);
        deadlines.chain(lease_ends).chain(grace_end).min()
    }

    /// Whether the owner holds a contended lock or waits for one, apart from this. If not, its request cannot
    /// close a cycle, and no search is made.
    fn is_involved(&self, owner: &[u8], apart_from: usize) -> bool {
        let involved = |lock: usize| {
            let queue = &self.locks[lock].queue;
            let waits = queue.iter().any(|waiter| waiter.request.owner == owner);
            waits || !queue.is_empty() && self.is_held_by(lock, owner)
        };
        (0..self.locks.len()).any(|lock| lock != apart_from && involved(lock))
    }

    /// The requests that still wait after every owner that does not wait has released all it holds, the owners
    /// granted by this have done the same, and so on.
    pub fn deadlocked(&self) -> Vec<Waiter<'static>> {
        let holders = |lock| {
            self.live(lock)
                .map(|holder| (holder.owner, holder.limit))
                .collect()
        };
        let queue = |lock: usize| self.locks[lock].queue.clone();
        let reduced = |lock| Reduced {
            holders: holders(lock),
            queue: queue(lock),
        };
        let mut locks: Vec<Reduced> = (0..self.locks.len()).map(reduced).collect();
        loop {
            let before = locks.clone();
            locks.iter_mut().for_each(Reduced::grant);
            let waiters = locks.iter().flat_map(|lock| &lock.queue);
            let waiting: Vec<&[u8]> = waiters.map(|waiter| waiter.request.owner).collect();
            for lock in &mut locks {
                lock.holders.retain(|(owner, _)| waiting.contains(owner));
            }
            if locks == before {
                return locks.into_iter().flat_map(|lock| lock.queue).collect();
            }
        }
    }
}

/// A lock while all owners release what they can.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Reduced {
    holders: Vec<(&'static [u8], Limit)>,
    queue: Vec<Waiter<'static>>,
}

impl Reduced {
    fn grant(&mut self) {
        loop {
            let is_held_by = |owner: &[u8]| self.holders.iter().any(|(holder, _)| *holder == owner);
            self.queue.retain(|waiter| !is_held_by(waiter.request.owner));
            let Some(Waiter { request, .. }) = self.queue.first() else {
                return;
            };
            let after = self.holders.len() as u64 + 1;
            let limits = self
                .holders
                .iter()
                .map(|(_, limit)| *limit)
                .chain([request.limit]);
            if limits.map(as_number).any(|limit| after > limit) {
                return;
            }
            self.holders.push((request.owner, request.limit));
        }
    }
}

/// SHARED is larger than every limit.
fn as_number(limit: Limit) -> u64 {
    limit.get().map_or(u64::MAX, u64::from)
}

fn micros(ms: u64) -> Micros {
    ms as Micros * 1000
}

fn whole_ms(micros: Micros) -> u64 {
    micros as u64 / 1000
}

/// To whole milliseconds.
fn rounded_up(micros: Micros) -> Micros {
    (micros + 999) / 1000 * 1000
}
