//! The model: locks with their queues, written from the contract and from nothing else.
//!
//! It has no clever representation and never removes expired holders: a holder whose lease has expired stays in
//! the list and is ignored. So an owner may be in the list several times, live at most once. A waiter is a
//! request that is tried again at every chance, until it is granted, rejected, or times out.

use super::ops::{Action, Answer, Ask, Block, Client, Limit, LockView, Micros, Reply, Request};
use super::ops::{Undelivered, View, Waiter};

#[derive(Clone, Debug, Default)]
pub struct Model {
    pub now: Micros,
    pub grace_end: Option<Micros>,
    pub evictable: bool,
    /// The last fence granted. Each grant adds one; the test says when the counter advances.
    pub last_fence: u64,
    pub max_waiters: usize,
    pub detect_deadlocks: bool,
    pub locks: Vec<Lock>,
    /// The replies to clients, oldest first.
    pub replies: Vec<(Client, Reply)>,
}

#[derive(Clone, Debug, Default)]
pub struct Lock {
    pub holders: Vec<Holder>,
    pub queue: Vec<Waiter>,
}

#[derive(Clone, Debug)]
pub struct Holder {
    pub owner: u8,
    pub fence: u64,
    pub limit: Limit,
    pub since: Micros,
    pub lease_end: Micros,
    /// Oldest first; `None` = a hold without a request id.
    pub holds: Vec<Option<u8>>,
}

/// One lock without its queue.
impl Model {
    /// The answer to a request that does not wait.
    fn try_now(&mut self, lock: usize, request: &Request) -> Answer {
        match request.action {
            Action::Acquire {
                lease_ms,
                limit,
                name,
            } => self.acquire_now(lock, request.owner, lease_ms, limit, name),
            Action::ReleaseOne | Action::ReleaseAll | Action::ReleaseNamed(_) => self.release(lock, request),
            Action::Extend { lease_ms, name } => self.extend(lock, request, lease_ms, name),
        }
    }

    fn acquire_now(
        &mut self,
        lock: usize,
        owner: u8,
        lease_ms: u64,
        limit: Limit,
        name: Option<u8>,
    ) -> Answer {
        let lease_end = self.now + micros(lease_ms);
        if let Some(place) = self.place_of(lock, owner) {
            let own_limit = self.locks[lock].holders[place].limit;
            if as_number(limit) < as_number(own_limit) {
                return Answer::Error("ERR", u64::from(own_limit.unwrap_or(0)));
            }
            if name.is_some() && self.locks[lock].holders[place].holds.contains(&name) {
                return self.granted(lock, place);
            }
            if let Some(grace_error) = self.grace_error() {
                return grace_error;
            }
            let holder = &mut self.locks[lock].holders[place];
            let named = holder.holds.iter().filter(|hold| hold.is_some()).count();
            if name.is_some() && named == 64 {
                return Answer::Error("ERR", 64);
            }
            holder.holds.push(name);
            holder.lease_end = holder.lease_end.max(lease_end);
            return self.granted(lock, place);
        }
        if let Some(grace_error) = self.grace_error() {
            return grace_error;
        }
        if self.evictable {
            return Answer::Error("EVICTABLE", 0);
        }
        let live: Vec<&Holder> = self.live(lock).collect();
        let after = live.len() as u64 + 1;
        if after > as_number(limit) || live.iter().any(|holder| after > as_number(holder.limit)) {
            return Answer::NotGranted;
        }
        self.last_fence += 1;
        let holds = vec![name];
        self.locks[lock].holders.push(Holder {
            owner,
            fence: self.last_fence,
            limit,
            since: self.now,
            lease_end,
            holds,
        });
        self.granted(lock, self.locks[lock].holders.len() - 1)
    }

    fn release(&mut self, lock: usize, request: &Request) -> Answer {
        let place = match self.place_for(lock, request) {
            Ok(place) => place,
            Err(Answer::Error("NOTHELD" | "NOTOWNER", _))
                if request.fence.is_none() && matches!(request.action, Action::ReleaseNamed(_)) =>
            {
                return Answer::Holds(0);
            }
            Err(error) => return error,
        };
        let holds = &mut self.locks[lock].holders[place].holds;
        match request.action {
            Action::ReleaseAll => holds.clear(),
            Action::ReleaseNamed(name) => holds.retain(|hold| *hold != Some(name)),
            _ => {
                let unnamed = holds.iter().position(|hold| hold.is_none());
                holds.remove(unnamed.unwrap_or(holds.len() - 1));
            }
        }
        let left = holds.len() as u64;
        if left == 0 {
            self.locks[lock].holders.remove(place);
        }
        Answer::Holds(left)
    }

    fn extend(&mut self, lock: usize, request: &Request, lease_ms: u64, name: Option<u8>) -> Answer {
        let fence = request.fence.filter(|_| name.is_none());
        if let (None, None, Some(grace_error)) = (fence, name, self.grace_error()) {
            return grace_error;
        }
        match self.place_for(lock, &Request { fence, ..*request }) {
            Ok(place) if name.is_some() && !self.locks[lock].holders[place].holds.contains(&name) => {
                Answer::Error("STALE", self.locks[lock].holders[place].fence)
            }
            Ok(place) => {
                let lease_end = self.now + micros(lease_ms);
                let holder = &mut self.locks[lock].holders[place];
                holder.lease_end = holder.lease_end.max(lease_end);
                Answer::Lease(self.lease_ms(lock, place))
            }
            Err(error) => error,
        }
    }

    fn place_of(&self, lock: usize, owner: u8) -> Option<usize> {
        self.locks[lock]
            .holders
            .iter()
            .position(|holder| holder.owner == owner && holder.lease_end > self.now)
    }

    /// The live holder that makes the request, if the fence that it gives is its own.
    fn place_for(&self, lock: usize, request: &Request) -> Result<usize, Answer> {
        match self.place_of(lock, request.owner) {
            None if self.live(lock).next().is_some() => Err(Answer::Error("NOTOWNER", 0)),
            None => Err(Answer::Error("NOTHELD", 0)),
            Some(place) => match self.locks[lock].holders[place].fence {
                fence if request.fence.is_none_or(|given| given == fence) => Ok(place),
                fence => Err(Answer::Error("STALE", fence)),
            },
        }
    }

    fn grace_error(&self) -> Option<Answer> {
        let left = self.grace_end? - self.now;
        (left > 0).then(|| Answer::Error("GRACE", whole_ms(left + 999)))
    }

    fn granted(&self, lock: usize, place: usize) -> Answer {
        let holder = &self.locks[lock].holders[place];
        Answer::Granted {
            fence: holder.fence,
            holds: holder.holds.len() as u64,
            lease_ms: self.lease_ms(lock, place),
        }
    }

    fn lease_ms(&self, lock: usize, place: usize) -> u64 {
        whole_ms(self.locks[lock].holders[place].lease_end - self.now)
    }
}

/// Locks with their queues.
impl Model {
    pub fn ask(&mut self, client: Client, ask: &Ask) {
        match ask.request.action {
            Action::Acquire { .. } => self.acquire(client, ask),
            _ => self.other(client, ask),
        }
    }

    /// The queue comes first. A new owner is granted the lock only when no request waits.
    fn acquire(&mut self, client: Client, ask: &Ask) {
        self.grant_waiters(ask.lock);
        let overtakes = !self.locks[ask.lock].queue.is_empty() && !self.holds(ask.lock, ask.request.owner);
        let before = (self.locks[ask.lock].holders.clone(), self.last_fence);
        let mut answer = self.try_now(ask.lock, &ask.request);
        if overtakes && matches!(answer, Answer::Granted { .. }) {
            (self.locks[ask.lock].holders, self.last_fence) = before;
            answer = Answer::NotGranted;
        }
        match answer {
            Answer::NotGranted | Answer::Error("GRACE", _) if ask.block != Block::No => {
                self.wait(client, ask);
            }
            answer => self.reply(client, answer, 0),
        }
    }

    fn wait(&mut self, client: Client, ask: &Ask) {
        let Action::Acquire {
            lease_ms,
            limit,
            name,
        } = ask.request.action
        else {
            panic!("only an ACQUIRE waits: {ask:?}")
        };
        let owner = ask.request.owner;
        let waiter = Waiter {
            client,
            owner,
            limit,
            lease_ms,
            name,
            since: self.now,
            block: ask.block,
        };
        let queue = &mut self.locks[ask.lock].queue;
        let same = |other: &&mut Waiter| name.is_some() && (other.owner, other.name) == (owner, name);
        if let Some(other) = queue.iter_mut().find(same) {
            if other.limit != limit {
                return self.reply(client, Answer::Error("ERR", 0), 0);
            }
            let replaced = std::mem::replace(other, waiter).client;
            return self.reply(replaced, Answer::Error("UNBLOCKED", 0), 0);
        }
        if queue.len() >= self.max_waiters {
            return self.reply(client, Answer::Error("QUEUEFULL", self.max_waiters as u64), 0);
        }
        let may_close_cycle = self.detect_deadlocks && self.is_involved(owner, ask.lock);
        self.locks[ask.lock].queue.push(waiter);
        if may_close_cycle && self.is_deadlocked(client) {
            self.locks[ask.lock].queue.pop();
            self.reply(client, Answer::Error("DEADLOCK", 0), 0);
        }
    }

    /// RELEASE and EXTEND. Afterwards the queue is granted what it can be, even if the request was rejected.
    fn other(&mut self, client: Client, ask: &Ask) {
        let (lock, owner) = (ask.lock, ask.request.owner);
        let had = match ask.request.action {
            Action::ReleaseNamed(name) => self.has_hold(lock, owner, Some(name)),
            _ => true,
        };
        let answer = self.try_now(lock, &ask.request);
        self.reply(client, answer, 0);
        if let (Action::ReleaseNamed(name), false, Answer::Holds(_)) = (ask.request.action, had, answer) {
            let queue = &mut self.locks[lock].queue;
            let withdrawn = queue
                .iter()
                .position(|waiter| (waiter.owner, waiter.name) == (owner, Some(name)));
            if let Some(place) = withdrawn {
                let waiter = queue.remove(place);
                self.reply(waiter.client, Answer::NotGranted, 0);
            }
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
            self.reply(waiter.client, Answer::NotGranted, 0);
        }
    }

    /// Grants all that can be granted.
    fn grant_waiters(&mut self, lock: usize) {
        if self.is_grace() {
            return;
        }
        self.time_out_waiters(lock);
        while let Some((place, answer)) = self.next_answer(lock) {
            let waiter = self.locks[lock].queue.remove(place);
            let waited_ms = match answer {
                Answer::Granted { .. } => (self.now - waiter.since) as u64 / 1000,
                _ => 0,
            };
            self.reply(waiter.client, answer, waited_ms);
        }
    }

    /// A waiting holder re-enters at once; otherwise the first waiter is next.
    fn next_answer(&mut self, lock: usize) -> Option<(usize, Answer)> {
        let queue = &self.locks[lock].queue;
        let holder = queue.iter().position(|waiter| self.holds(lock, waiter.owner));
        let place = holder.unwrap_or(0);
        let ask = queue.get(place)?.ask(lock);
        match self.try_now(lock, &ask.request) {
            Answer::NotGranted => None,
            answer => Some((place, answer)),
        }
    }

    /// A client disconnects: it gets no reply.
    pub fn leave(&mut self, lock: usize, client: Client) {
        self.locks[lock].queue.retain(|waiter| waiter.client != client);
    }

    /// Releases exactly that hold, if it still exists.
    pub fn rollback_grant(&mut self, hold: &Undelivered) {
        let same_grant = self
            .live(hold.lock)
            .any(|holder| (holder.owner, holder.fence) == (hold.owner, hold.fence));
        if same_grant && self.has_hold(hold.lock, hold.owner, hold.name) {
            let request = match hold.name {
                Some(name) => Request::release_named(hold.owner, name),
                None => Request::release(hold.owner),
            };
            self.try_now(hold.lock, &request);
        }
        self.grant_waiters(hold.lock);
    }

    /// All waiters of this lock get the same error.
    pub fn drain(&mut self, lock: usize, code: &'static str) {
        for waiter in std::mem::take(&mut self.locks[lock].queue) {
            self.reply(waiter.client, Answer::Error(code, 0), 0);
        }
    }

    /// A grace period starts, or the one that runs becomes longer. Live leases last at least until its end.
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
        let later = |end: Micros| now + (end - now + 999) / 1000 * 1000;
        for holder in self.locks.iter_mut().flat_map(|lock| &mut lock.holders) {
            holder.since = now - (now - holder.since) / 1000 * 1000;
            if holder.lease_end > now {
                holder.lease_end = later(holder.lease_end);
            }
        }
        self.grace_end = self.grace_end.filter(|end| *end > now).map(later);
    }

    /// The server becomes a primary: the fence counter has advanced, and a grace period starts.
    pub fn take_over(&mut self, last_fence: u64, grace_ms: u64) {
        assert!(last_fence >= self.last_fence, "the fence counter went backwards");
        self.last_fence = last_fence;
        if grace_ms > 0 {
            self.begin_grace(grace_ms);
        }
    }

    /// A lock as it was at another time: ages and leases in whole milliseconds, leases never shorter.
    pub fn restore(&mut self, lock: usize, holders: &[Holder], at: Micros) {
        let now = self.now;
        let grace_end = self.grace_end.unwrap_or(now);
        let restored = holders.iter().cloned().map(|holder| Holder {
            since: now - (at - holder.since) / 1000 * 1000,
            lease_end: grace_end.max(now + (holder.lease_end - at + 999) / 1000 * 1000),
            ..holder
        });
        self.locks[lock].holders = restored.collect();
    }

    fn reply(&mut self, client: Client, answer: Answer, waited_ms: u64) {
        self.replies.push((client, Reply { answer, waited_ms }));
    }

    fn is_grace(&self) -> bool {
        self.grace_end.is_some_and(|end| end > self.now)
    }

    /// The live holders, earliest grant first.
    pub fn live(&self, lock: usize) -> impl Iterator<Item = &Holder> {
        let holders = self.locks[lock].holders.iter();
        holders.filter(|holder| holder.lease_end > self.now)
    }

    fn holds(&self, lock: usize, owner: u8) -> bool {
        self.live(lock).any(|holder| holder.owner == owner)
    }

    fn has_hold(&self, lock: usize, owner: u8, name: Option<u8>) -> bool {
        self.live(lock)
            .any(|holder| holder.owner == owner && holder.holds.contains(&name))
    }

    pub fn view(&self, lock: usize) -> LockView {
        let view = |holder: &Holder| View {
            owner: holder.owner,
            fence: holder.fence,
            limit: holder.limit,
            unnamed: holder.holds.iter().filter(|hold| hold.is_none()).count() as u64,
            names: holder.holds.iter().copied().flatten().collect(),
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
    fn is_involved(&self, owner: u8, apart_from: usize) -> bool {
        let involved = |lock: usize| {
            let queue = &self.locks[lock].queue;
            let waits = queue.iter().any(|waiter| waiter.owner == owner);
            waits || !queue.is_empty() && self.holds(lock, owner)
        };
        (0..self.locks.len()).any(|lock| lock != apart_from && involved(lock))
    }

    fn is_deadlocked(&self, client: Client) -> bool {
        self.deadlocked().iter().any(|waiter| waiter.client == client)
    }

    /// The requests that still wait after every owner that does not wait has released all it holds, the owners
    /// granted by this have done the same, and so on.
    pub fn deadlocked(&self) -> Vec<Waiter> {
        let mut locks: Vec<Reduced> = (0..self.locks.len())
            .map(|lock| Reduced {
                holders: self
                    .live(lock)
                    .map(|holder| (holder.owner, holder.limit))
                    .collect(),
                queue: self.locks[lock].queue.clone(),
            })
            .collect();
        loop {
            let before = locks.clone();
            locks.iter_mut().for_each(Reduced::grant);
            let waiting: Vec<u8> = locks
                .iter()
                .flat_map(|lock| &lock.queue)
                .map(|waiter| waiter.owner)
                .collect();
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
    holders: Vec<(u8, Limit)>,
    queue: Vec<Waiter>,
}

impl Reduced {
    fn grant(&mut self) {
        loop {
            let held = |owner: u8| self.holders.iter().any(|(holder, _)| *holder == owner);
            self.queue.retain(|waiter| !held(waiter.owner));
            let Some(first) = self.queue.first() else { return };
            let after = self.holders.len() as u64 + 1;
            let limits = self.holders.iter().map(|(_, limit)| *limit);
            if limits
                .chain([first.limit])
                .flatten()
                .any(|limit| after > u64::from(limit))
            {
                return;
            }
            self.holders.push((first.owner, first.limit));
        }
    }
}

/// SHARED is larger than every limit.
fn as_number(limit: Limit) -> u64 {
    limit.map_or(u64::MAX, u64::from)
}

fn micros(ms: u64) -> Micros {
    ms as Micros * 1000
}

fn whole_ms(micros: Micros) -> u64 {
    micros as u64 / 1000
}
