//! Any sequence of requests that wait through inboxes, and of calls that are lost, late or repeated, on the engine.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::choices::Choices;
use super::holders::who;
use dlock_core::engine::{self, Cause, Level, Process, answering, decide, events};
use dlock_core::memory::{Clocks, Memory};
use dlock_core::testing::IN_2025_UNIX_MS;
use dlock_core::{
    Acquire, Acquired, Call, Error, Grants, GrantsReply, Holder, Holds, InboxId, Inboxes, Instant, Limit,
    Lock, LockName, Policy, Queue, Release, Reply, Timeout, Wait,
};

const KEY: &[u8] = b"k";
const USER: &[u8] = b"u";
const INBOXES: [&[u8]; 2] = [b"i", b"j"];
const OWNERS: [&[u8]; 3] = [b"a", b"b", b"c"];
const IDS: [&[u8]; 3] = [b"1", b"2", b"3"];
const MAX_WAITERS: usize = 12;
const PASSES: u64 = 5;
const PASS_MS: u64 = 10;
/// A server that could not grant tries again after this time.
const RETRY_MS: u64 = 50;

/// Each request that was queued gets exactly one answer. It stays until it is acknowledged, in order, whatever becomes of
/// calls; a cursor that is not of the last replies is refused; and an inbox that has ended leaves nothing. Requests keep
/// their places. A grant that was told is held until its lease is over or it is released, and one that nobody can be told
/// is not held. A replica has the same holders.
pub fn inboxes(bytes: &[u8]) {
    let mut choices = Choices(bytes);
    let mut server = Server::new();
    while !choices.is_empty() {
        match choices.byte() % 16 {
            0..=5 => server.acquire(&mut choices),
            6..=7 => server.release(&mut choices),
            8..=11 => server.receive(&mut choices),
            12 => server.lose_reader(&mut choices),
            13 => server.demote(),
            _ => server.pass(&mut choices),
        }
        server.check();
    }
    server.end();
}

/// An inbox as its reader knows it.
struct Known {
    id: InboxId,
    /// The answers that it was told, and has not acknowledged.
    answers: VecDeque<Request>,
    /// The cursors that acknowledge, and how many of these answers.
    cursors: BTreeMap<u64, usize>,
    call: Option<Call>,
    ttl_ms: u64,
    is_read: bool,
}

/// An owner and a request id.
type Request = (&'static [u8], &'static [u8]);

struct Server {
    host: Memory,
    replica: Memory,
    known: BTreeMap<&'static [u8], Known>,
    /// The requests whose answers nobody was told: their inboxes, `None` for a BLOCK.
    open: Vec<(Request, Option<InboxId>)>,
    /// The clients of BLOCKs.
    blocked: BTreeMap<Call, Request>,
    /// The requests that wait, as they came.
    order: Vec<Request>,
    /// Clients were paused until a moment ago: nothing is granted before.
    grants_again: Instant,
    /// The fence of the holder.
    held: Option<u64>,
    /// The grants that somebody was told, and when their leases are over. Not those of which a hold was released.
    told: BTreeMap<(&'static [u8], u64), Instant>,
    released: BTreeSet<u64>,
    /// The fences of all grants that somebody was told, or that were left to end by themselves.
    accounted: BTreeSet<u64>,
    last_cursor: u64,
}

impl Server {
    fn new() -> Self {
        let mut host = Memory::default();
        host.state().server.set_policy(Policy {
            max_waiters_per_lock: 8,
            max_waiters: MAX_WAITERS,
            max_inboxes: INBOXES.len(),
            ..Policy::default()
        });
        let mut replica = Memory::default();
        replica.flags.is_replica = true;
        let mut server = Self {
            host,
            replica,
            known: BTreeMap::new(),
            open: Vec::new(),
            blocked: BTreeMap::new(),
            order: Vec::new(),
            grants_again: Instant::DISTANT_PAST,
            held: None,
            told: BTreeMap::new(),
            released: BTreeSet::new(),
            accounted: BTreeSet::new(),
            last_cursor: 0,
        };
        server.pass_ms(1);
        events::loading_ended(&mut server.host);
        server
    }

    fn now(&self) -> Instant {
        self.host.clocks.now
    }

    fn inboxes(&self) -> &Inboxes {
        &self.host.engine().server.inboxes
    }

    fn lock(&self) -> Option<&Lock> {
        self.host.lock(&LockName::new(0, KEY))
    }

    /// Those that wait, in the order of the queue, and the inboxes for their answers.
    fn waiting(&self) -> Vec<(Request, InboxId)> {
        let name = LockName::new(0, KEY);
        let queue = self.host.engine().server.wait_table.queue(name.as_ref());
        let waiters = queue.into_iter().flat_map(Queue::iter);
        let waiting =
            waiters.map(|(_, it)| (named(it.owner(), it.request_id().unwrap_or_default()), it.inbox()));
        waiting.collect()
    }

    fn acquire(&mut self, choices: &mut Choices<'_>) {
        let (owner, id, inbox) = (choices.of(&OWNERS), choices.of(&IDS), choices.of(&INBOXES));
        let timeout = choices.of(&[Timeout::Infinite, Timeout::Ms(150)]);
        let inbox = choices.of(&[Some(inbox), Some(inbox), Some(inbox), None]);
        let request = Acquire {
            owner,
            lease_ms: choices.of(&[50, 400, 60_000]),
            limit: Limit::MUTEX,
            wait: Some(Wait { timeout, inbox }),
            request_id: Some(id),
            min_fence: None,
        };
        let found = inbox.and_then(|name| self.inboxes().find(name));
        let was_waiting = self.waiting();
        let was_full = was_waiting.len() + self.inboxes().answers() >= MAX_WAITERS || was_waiting.len() >= 8;
        let request_id = (owner, id);
        let flags = self.host.flags;
        match engine::acquire(&mut self.host, KEY, flags, USER, &request) {
            Ok(Acquired::Granted(granted)) => {
                assert_eq!(granted.waited_ms, 0);
                self.told(owner, granted.fence, granted.lease_ms);
            }
            Ok(Acquired::Queued(_)) => {
                assert!(inbox.is_none() || found.is_some(), "it waits unread");
                let call = self.host.take_parked();
                assert_eq!(call.is_some(), inbox.is_none());
                self.blocked.extend(call.map(|call| (call, request_id)));
                let was_waiting = was_waiting.iter().find(|(other, _)| *other == request_id);
                let is_repeat = was_waiting.is_some_and(|(_, inbox)| Some(*inbox) == found);
                if !is_repeat {
                    self.open.push((request_id, found));
                }
                if was_waiting.is_none() {
                    self.order.push(request_id);
                }
            }
            Ok(Acquired::NotGranted) => panic!("a request that waits was refused"),
            Err(engine::Error::Rejected(error)) => match error {
                Error::NoInbox => assert!(inbox.is_some() && found.is_none()),
                Error::QueueFull(_) => assert!(was_full),
                error => assert!(matches!(error, Error::TooManyRequestIds(_)), "{error}"),
            },
            Err(error) => panic!("{error}"),
        }
        self.run_due();
    }

    fn release(&mut self, choices: &mut Choices<'_>) {
        let request = Release {
            owner: choices.of(&OWNERS),
            fence: None,
            holds: choices.of(&[Holds::One, Holds::All, Holds::ById(b"1"), Holds::ById(b"2")]),
        };
        let holders = self.lock().into_iter().flat_map(Lock::holders);
        let own = holders.filter(|holder| holder.owner() == request.owner);
        let own: Vec<u64> = own.map(Holder::fence).collect();
        self.told.retain(|(_, fence), _| !own.contains(fence));
        self.released.extend(own);
        let flags = self.host.flags;
        let _ = decide(&mut self.host, KEY, flags, Cause::Client, |it| {
            it.release(&request)
        });
        self.run_due();
    }

    /// With the cursor of one of the last replies, an old one, or none that was ever given out.
    fn receive(&mut self, choices: &mut Choices<'_>) {
        let name = choices.of(&INBOXES);
        let known = self.known.get(name);
        let cursors = known.map_or(Vec::new(), |known| known.cursors.keys().copied().collect());
        let cursor = match choices.byte() % 8 {
            0 => 0,
            1 => self.last_cursor.saturating_sub(1),
            2 => self.last_cursor + 1_000,
            choice => cursors
                .get(usize::from(choice) % cursors.len().max(1))
                .copied()
                .unwrap_or(0),
        };
        let (exists, is_valid) = (known.is_some(), cursors.contains(&cursor));
        let was_read = known.is_some_and(|known| known.is_read);
        let former = known.and_then(|known| known.call);
        let request = Grants {
            inbox: name,
            cursor,
            block_ms: choices.of(&[None, Some(100)]),
            ttl_ms: choices.of(&[None, Some(200), Some(1_000), Some(0)]),
        };
        let flags = self.host.flags;
        let reply = match answering::receive(&mut self.host, flags, USER, &request) {
            Ok(reply) => reply,
            Err(engine::Error::Rejected(error)) => {
                return match error {
                    Error::NoInbox => assert!(cursor != 0 && !is_valid, "{cursor} of {cursors:?}"),
                    Error::BusyInbox => assert!(exists && cursor == 0 && was_read),
                    error => assert!(!exists && matches!(error, Error::QueueFull(_)), "{error}"),
                };
            }
            Err(error) => panic!("{error}"),
        };
        assert!(is_valid || cursor == 0 && !was_read, "{cursor} of {cursors:?}");
        // One of TTL 0 is gone already.
        let id = self.inboxes().find(name);
        if let Some(id) = id.filter(|_| !exists) {
            self.known.insert(name, Known::new(id));
        }
        let woken = self.host.take_woken();
        assert!(woken.iter().eq(&former), "{former:?} waits beside another call");
        for replaced in woken {
            let reply = answering::reply(&mut self.host, replaced);
            assert!(reply.is_none(), "two calls of one inbox got a reply");
        }
        let call = self.host.take_parked();
        assert_eq!(call.is_some(), reply.is_none());
        if let Some(known) = self.known.get_mut(name) {
            known.acknowledge(cursor);
            known.call = call;
            known.ttl_ms = request.ttl_ms.unwrap_or(known.ttl_ms);
        }
        if let Some(reply) = reply {
            self.told_inbox(name, &reply);
        }
        self.run_due();
    }

    /// The reply begins with all answers that are not acknowledged. What follows are answers to open requests.
    fn told_inbox(&mut self, name: &'static [u8], reply: &GrantsReply) {
        let mut told = Vec::new();
        for answered in &reply.answers {
            let request = named(
                &answered.owner,
                answered.request_id.as_deref().unwrap_or_default(),
            );
            told.push(request);
            if let dlock_core::Answer::Granted(granted) = &answered.answer {
                self.told(request.0, granted.fence, granted.lease_ms);
            }
        }
        self.last_cursor = self.last_cursor.max(reply.cursor);
        let Some(known) = self.known.get_mut(name) else {
            return assert!(told.is_empty(), "a new inbox has answers");
        };
        assert!(
            told.iter().zip(&known.answers).all(|(told, kept)| told == kept)
                && told.len() >= known.answers.len(),
            "{told:?} instead of {:?}",
            known.answers
        );
        for request in told.drain(known.answers.len()..) {
            let answered = (request, Some(known.id));
            let place = self.open.iter().position(|open| *open == answered);
            self.open
                .remove(place.unwrap_or_else(|| panic!("a second answer to {request:?}")));
            known.answers.push_back(request);
        }
        known.call = None;
        known.cursors.insert(reply.cursor, known.answers.len());
    }

    fn told(&mut self, owner: &'static [u8], fence: u64, lease_ms: u64) {
        let until = self.now().after_ms(lease_ms);
        if !self.released.contains(&fence) {
            self.told.insert((owner, fence), until);
        }
        self.accounted.insert(fence);
    }

    fn lose_reader(&mut self, choices: &mut Choices<'_>) {
        if let Some(known) = self.known.get_mut(choices.of(&INBOXES)) {
            if let Some(call) = known.call.take() {
                self.lose(call);
            }
        } else if let Some((call, request)) = self.blocked.pop_first() {
            self.lose_blocked(call, request);
        }
        self.run_due();
    }

    fn lose(&mut self, call: Call) {
        assert!(self.host.forget_blocked(call), "a call that is over");
        answering::lose_reader(&mut self.host, call);
    }

    fn lose_blocked(&mut self, call: Call, request: Request) {
        let place = self.open.iter().position(|open| *open == (request, None));
        self.open.remove(place.expect("a BLOCK that waits"));
        self.lose(call);
    }

    /// Follows another server for a moment, of which it gets nothing. A replica rolls nothing back.
    fn demote(&mut self) {
        let holders = self.lock().into_iter().flat_map(Lock::holders);
        let fences: Vec<u64> = holders.map(Holder::fence).collect();
        self.accounted.extend(fences);
        for is_primary in [false, true] {
            self.host.flags.is_replica = !is_primary;
            events::role_changed(&mut self.host, is_primary);
            self.run_due();
        }
    }

    fn pass(&mut self, choices: &mut Choices<'_>) {
        self.pass_ms(choices.byte().into());
        self.host.is_paused = choices.of(&[false, false, false, true]);
        if self.host.is_paused {
            self.grants_again = Instant::from_micros(i64::MAX);
        } else if self.grants_again > self.now() {
            self.grants_again = self.now().after_ms(RETRY_MS);
        }
        self.run_due();
        // An inbox outlives its time by some passes of the server's loop.
        for _ in 0..PASSES {
            self.pass_ms(PASS_MS);
            self.run_due();
        }
    }

    fn pass_ms(&mut self, ms: u64) {
        let now = self.now().after_ms(ms);
        let unix_ms = IN_2025_UNIX_MS + now.as_micros().unsigned_abs() / 1_000;
        for server in [&mut self.host, &mut self.replica] {
            server.clocks = Clocks {
                now,
                unix_ms,
                random: 0,
            };
        }
    }

    /// The timers fire until nothing is due. Calls that are woken get their replies.
    fn run_due(&mut self) {
        for _ in 0..1_000 {
            self.host.run_due();
            let woken = self.host.take_woken();
            let is_idle = woken.is_empty() && self.host.next_due().is_none_or(|at| at > self.now());
            for call in woken {
                self.reply(call);
            }
            self.forget_ended();
            if is_idle {
                return;
            }
        }
        panic!("something is always due");
    }

    /// A call that waited gets its reply.
    fn reply(&mut self, call: Call) {
        let reply = answering::reply(&mut self.host, call);
        let reader = self.known.iter().find(|(_, known)| known.call == Some(call));
        match (reply, reader.map(|(name, _)| *name)) {
            (Some(Reply::Grants(reply)), Some(name)) => self.told_inbox(name, &reply),
            (Some(Reply::Answer(answer)), None) => {
                let request = self.blocked.remove(&call).expect("a second reply to a BLOCK");
                let place = self.open.iter().position(|open| *open == (request, None));
                self.open.remove(place.expect("a BLOCK that waits"));
                if let dlock_core::Answer::Granted(granted) = answer {
                    self.told(request.0, granted.fence, granted.lease_ms);
                }
            }
            // This server is a replica now.
            (None, Some(_)) => {}
            (reply, reader) => panic!("{reply:?} to {reader:?}"),
        }
    }

    /// Requests whose inboxes have ended are those of nobody.
    fn forget_ended(&mut self) {
        let inboxes = &self.host.engine().server.inboxes;
        let may_end = !self.host.is_paused || self.host.flags.is_replica;
        self.known.retain(|name, known| {
            let is_there = inboxes.find(name) == Some(known.id);
            assert!(is_there || may_end || known.ttl_ms == 0, "one ended in a pause");
            is_there
        });
        let is_there = |inbox| inboxes.has_name(inbox);
        self.open.retain(|(_, inbox)| inbox.is_none_or(is_there));
    }

    fn check(&mut self) {
        let waiting: Vec<Request> = self.waiting().into_iter().map(|(request, _)| request).collect();
        let inboxes = self.inboxes();
        let kept: usize = self.known.values().map(|known| known.answers.len()).sum();
        let untold = inboxes.answers() - kept;
        assert_eq!(
            self.open.len(),
            waiting.len() + untold,
            "one answer each: {:?}",
            self.open
        );
        assert_eq!(inboxes.waiters(), waiting.len() - self.blocked.len());
        assert!(waiting.len() + inboxes.answers() <= MAX_WAITERS);
        let clock = self.host.engine().server.clock(self.now());
        let is_held = self
            .lock()
            .is_some_and(|lock| lock.live_holders(clock).next().is_some());
        let may_grant = self.now() >= self.grants_again;
        assert!(
            waiting.is_empty() || is_held || !may_grant,
            "{waiting:?} wait for a free lock"
        );
        self.check_order(&waiting);
        self.check_holder();
        for sent in std::mem::take(&mut self.host.stream) {
            self.replica.receive(&sent).expect("a command of the primary");
        }
        let theirs = self.replica.lock(&LockName::new(0, KEY));
        assert_eq!(theirs.map(who), self.lock().map(who), "the replica");
    }

    /// Who waits keeps its place, and the first gets the lock.
    fn check_order(&mut self, waiting: &[Request]) {
        let place = |of: &Request| self.order.iter().position(|other| other == of);
        let holder = self.lock().and_then(|lock| lock.holders().first());
        let held = holder.map(|holder| holder.fence());
        if let Some(holder) = holder.filter(|_| held != self.held)
            && let Some(own) = self.order.iter().position(|(owner, _)| *owner == holder.owner())
        {
            let is_before = |other: &Request| place(other) < Some(own) && other.0 != holder.owner();
            assert!(!waiting.iter().any(is_before), "{:?}: overtaken", self.order);
        }
        self.held = held;
        self.order.retain(|request| waiting.contains(request));
        assert_eq!(self.order, waiting);
    }

    fn check_holder(&mut self) {
        let now = self.now();
        self.told.retain(|_, until| *until > now);
        let clock = self.host.engine().server.clock(now);
        let live = self.lock().into_iter().flat_map(|lock| lock.live_holders(clock));
        let live: BTreeSet<_> = live.map(|holder| (holder.owner(), holder.fence())).collect();
        for grant in self.told.keys() {
            assert!(live.contains(grant), "{grant:?} was told, and is not held");
        }
        for (owner, fence) in live
            .into_iter()
            .filter(|(_, fence)| !self.accounted.contains(fence))
        {
            let is_open = self.open.iter().any(|((other, _), _)| *other == owner);
            assert!(is_open, "nobody will know of the grant {fence} to {owner:?}");
        }
    }

    /// All clients are gone: nothing of them stays.
    fn end(&mut self) {
        for (call, request) in std::mem::take(&mut self.blocked) {
            self.lose_blocked(call, request);
        }
        self.host.is_paused = false;
        for _ in 0..80 {
            self.pass_ms(1_000);
            self.run_due();
        }
        self.check();
        let inboxes = self.inboxes();
        assert!(self.open.is_empty() && inboxes.is_empty() && inboxes.answers() == 0);
        assert_eq!((inboxes.undelivered(), self.host.next_due()), (0, None));
        assert!(self.lock().is_none());
        let is_warning = |(level, _): &&(Level, String)| *level == Level::Warning;
        assert_eq!(self.host.log.iter().find(is_warning), None);
    }
}

impl Known {
    fn new(id: InboxId) -> Self {
        Self {
            id,
            answers: VecDeque::new(),
            cursors: BTreeMap::new(),
            call: None,
            ttl_ms: u64::MAX,
            is_read: false,
        }
    }

    fn acknowledge(&mut self, cursor: u64) {
        if let Some(&count) = self.cursors.get(&cursor) {
            self.answers.drain(..count);
            self.cursors = self.cursors.split_off(&cursor);
            self.cursors.values_mut().for_each(|later| *later -= count);
            self.is_read = true;
        }
    }
}

fn named(owner: &[u8], id: &[u8]) -> Request {
    let owner = OWNERS.into_iter().find(|known| *known == owner);
    let id = IDS.into_iter().find(|known| *known == id);
    (owner.expect("a known owner"), id.expect("a known id"))
}
