//! Any sequence of requests that wait through inboxes, and of calls that are lost, late or repeated.

use std::collections::{BTreeMap, VecDeque};

use super::choices::Choices;
use dlock_core::testing::inputs_at;
use dlock_core::{
    Acquire, Acquired, Call, Caller, Effects, Error, Grants, GrantsReply, Holds, InboxId, InboxStep, Instant,
    Limit, Lock, LockNameRef, Policy, Received, Release, Reply, ServerState, Timeout, Transition, Wait,
    Waiter,
};

const NAME: LockNameRef<'_> = LockNameRef { db: 0, key: b"k" };
const CALLER: Caller<'_> = Caller { db: 0, user: b"u" };
const INBOXES: [&[u8]; 2] = [b"i", b"j"];
const OWNERS: [&[u8]; 3] = [b"a", b"b", b"c"];
const IDS: [&[u8]; 3] = [b"1", b"2", b"3"];
const MAX_WAITERS: usize = 12;

/// Each request that was queued gets exactly one answer. It stays until it is acknowledged, in order, whatever becomes of
/// calls; a cursor that is not of the last replies is refused; and an inbox that has ended leaves nothing.
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
#[derive(Default)]
struct Known {
    /// The request ids and owners of the answers that are not acknowledged.
    answers: VecDeque<Request>,
    /// The cursors that acknowledge, and how many of these answers.
    cursors: BTreeMap<u64, usize>,
    call: Option<Call>,
    is_read: bool,
}

type Request = (&'static [u8], &'static [u8]);

struct Server {
    state: ServerState,
    lock: Lock,
    now: Instant,
    is_paused: bool,
    known: BTreeMap<&'static [u8], Known>,
    /// The inbox of each request that waits, `None` for a BLOCK.
    queued: BTreeMap<Request, Option<InboxId>>,
    /// The clients of BLOCKs.
    blocked: BTreeMap<Request, Call>,
    last_cursor: u64,
}

impl Server {
    fn new() -> Self {
        let mut state = ServerState::default();
        state.set_policy(Policy {
            max_waiters_per_lock: 8,
            max_waiters: MAX_WAITERS,
            max_inboxes: INBOXES.len(),
            ..Policy::default()
        });
        Self {
            state,
            lock: Lock::default(),
            now: Instant::from_micros(123_456),
            is_paused: false,
            known: BTreeMap::new(),
            queued: BTreeMap::new(),
            blocked: BTreeMap::new(),
            last_cursor: 0,
        }
    }

    fn acquire(&mut self, choices: &mut Choices<'_>) {
        let (owner, id, inbox) = (choices.of(&OWNERS), choices.of(&IDS), choices.of(&INBOXES));
        let timeout = choices.of(&[Timeout::Infinite, Timeout::Ms(150)]);
        let inbox = choices.of(&[Some(inbox), Some(inbox), Some(inbox), None]);
        let request = Acquire {
            owner,
            lease_ms: choices.of(&[50, 400]),
            limit: Limit::MUTEX,
            wait: Some(Wait { timeout, inbox }),
            request_id: Some(id),
            min_fence: None,
        };
        let found = inbox.and_then(|name| self.state.inboxes.find(name));
        let was_full = self.state.wait_table.waiters() + self.kept() >= MAX_WAITERS;
        let acquired = self.step(|transition| transition.acquire(&request, CALLER.user, true));
        match acquired {
            // Before it: a holder with that id was told.
            Ok(Acquired::Granted(granted)) => assert_eq!(granted.waited_ms, 0),
            Ok(Acquired::Queued(_)) => {
                assert!(inbox.is_none() || found.is_some(), "it waits unread");
                self.queued.insert((owner, id), found);
            }
            Ok(Acquired::NotGranted) => panic!("a request that waits was refused"),
            Err(Error::NoInbox) => assert!(inbox.is_some() && found.is_none()),
            Err(Error::QueueFull(_)) => assert!(was_full || self.queued.len() >= 8),
            Err(error) => assert!(matches!(error, Error::TooManyRequestIds(_)), "{error}"),
        }
        self.process();
    }

    fn release(&mut self, choices: &mut Choices<'_>) {
        let request = Release {
            owner: choices.of(&OWNERS),
            fence: None,
            holds: choices.of(&[Holds::One, Holds::All, Holds::ById(b"1"), Holds::ById(b"2")]),
        };
        let _ = self.step(|transition| transition.release(&request));
        self.process();
    }

    /// With the cursor of one of the last replies, an old one, or none that was ever given out.
    fn receive(&mut self, choices: &mut Choices<'_>) {
        let name = choices.of(&INBOXES);
        let exists = self.state.inboxes.find(name).is_some();
        let known = self.known.entry(name).or_default();
        let cursors: Vec<u64> = known.cursors.keys().copied().collect();
        let cursor = match choices.byte() % 8 {
            0 => 0,
            1 => self.last_cursor.saturating_sub(1),
            2 => self.last_cursor + 1_000,
            choice => cursors
                .get(usize::from(choice) % cursors.len().max(1))
                .copied()
                .unwrap_or(0),
        };
        let is_valid = exists && known.cursors.contains_key(&cursor);
        let (was_read, former) = (known.is_read, known.call);
        let request = Grants {
            inbox: name,
            cursor,
            block_ms: choices.of(&[None, Some(100)]),
            ttl_ms: choices.of(&[None, Some(200), Some(1_000), Some(0)]),
        };
        let received = match self.state.receive(&request, CALLER, &inputs_at(self.now)) {
            Ok(received) => received,
            Err(Error::NoInbox) => return assert!(cursor != 0 && !is_valid, "{cursor} of {cursors:?}"),
            Err(Error::BusyInbox) => return assert!(exists && cursor == 0 && was_read),
            Err(error) => return assert!(!exists && matches!(error, Error::QueueFull(_)), "{error}"),
        };
        assert!(is_valid || cursor == 0, "{cursor} of {cursors:?}");
        if !exists {
            self.known.insert(name, Known::default());
        }
        self.acknowledge(name, cursor);
        let (reply, call, replaced) = match received {
            Received::Replied { reply, former } => (Some(reply), None, former),
            Received::Waits { call, former } => (None, Some(call), former),
        };
        assert_eq!(replaced, former.filter(|_| exists));
        self.known.entry(name).or_default().call = call;
        if let Some(replaced) = replaced {
            let reply = self.state.inboxes.reply(replaced, self.now);
            assert!(reply.is_none(), "two calls of one inbox got a reply");
        }
        if let Some(reply) = reply {
            self.told(name, &reply);
        }
        self.process();
    }

    fn acknowledge(&mut self, name: &'static [u8], cursor: u64) {
        let known = self.known.entry(name).or_default();
        if let Some(&count) = known.cursors.get(&cursor) {
            known.answers.drain(..count);
            known.cursors = known.cursors.split_off(&cursor);
            known.cursors.values_mut().for_each(|later| *later -= count);
            known.is_read = true;
        }
    }

    /// The reply has all answers that are not acknowledged.
    fn told(&mut self, name: &'static [u8], reply: &GrantsReply) {
        let known = self.known.entry(name).or_default();
        let told = reply.answers.iter().map(|answered| {
            let id = answered.request_id.as_deref().unwrap_or_default();
            (&*answered.owner, id)
        });
        assert!(
            told.eq(known.answers.iter().copied()),
            "other answers than those that are kept"
        );
        known.call = None;
        known.cursors.insert(reply.cursor, known.answers.len());
        self.last_cursor = self.last_cursor.max(reply.cursor);
    }

    fn lose_reader(&mut self, choices: &mut Choices<'_>) {
        if let Some(known) = self.known.get_mut(choices.of(&INBOXES)) {
            if let Some(call) = known.call.take() {
                self.state.lose_reader(call, self.now);
            }
        } else if let Some((request, call)) = self.blocked.pop_first() {
            self.queued.remove(&request);
            self.state.lose_reader(call, self.now);
        }
        self.process();
    }

    fn demote(&mut self) {
        for call in self.state.demote() {
            assert!(self.state.inboxes.reply(call, self.now).is_none());
        }
        self.process();
    }

    fn pass(&mut self, choices: &mut Choices<'_>) {
        self.now = self.now.after_ms(u64::from(choices.byte()));
        self.is_paused = choices.of(&[false, false, false, true]);
        self.process();
    }

    /// The timer of inboxes and queues, until nothing is due.
    fn process(&mut self) {
        self.state.inboxes.look_at_pauses(self.is_paused, self.now);
        loop {
            self.process_inboxes();
            if self.is_paused {
                return;
            }
            self.process_queue();
            // A reply of the queue's may have ended an inbox: TTL 0.
            if self.state.inboxes.next_wakeup() != Some(Instant::DISTANT_PAST) {
                return;
            }
        }
    }

    fn process_inboxes(&mut self) {
        let mut expected = self.state.inboxes.len();
        while let Some(step) = self.state.process_inboxes(self.now) {
            if let InboxStep::Reply(call) = step {
                let before = self.state.inboxes.len();
                self.reply(call);
                expected -= before - self.state.inboxes.len();
            }
        }
        let is_expected = self.state.inboxes.len() == expected;
        assert!(!self.is_paused || is_expected, "one ended in a pause");
        self.forget_ended();
    }

    fn process_queue(&mut self) {
        while let Some(grant) = self.state.inboxes.next_undelivered() {
            if self.state.inboxes.claim(&grant) {
                let id = grant.request_id.as_deref().expect("a request id");
                let (owner, fence, holds) = (&*grant.owner, Some(grant.fence), Holds::ById(id));
                let request = Release { owner, fence, holds };
                self.step(|transition| transition.rollback_grant(&request));
            }
        }
        while self.state.wait_table.next_due(self.now).is_some() {
            self.step(|transition| transition.on_timer());
        }
    }

    /// Requests whose inboxes have ended are those of nobody.
    fn forget_ended(&mut self) {
        let inboxes = &self.state.inboxes;
        self.known.retain(|name, _| inboxes.find(name).is_some());
        self.queued
            .retain(|_, inbox| inbox.is_none_or(|inbox| inboxes.has_name(inbox)));
    }

    fn step<R>(&mut self, step: impl FnOnce(&mut Transition<'_>) -> R) -> R {
        let (inputs, mut effects) = (inputs_at(self.now), Effects::default());
        let result = step(&mut self.state.begin(&inputs, NAME, &mut self.lock, &mut effects));
        let parked = effects.parked.take();
        for wake in &effects.wakes {
            self.answered(&wake.waiter);
        }
        self.state.deliver(&mut effects);
        for call in effects.calls {
            self.reply(call);
        }
        if let Some(call) = parked {
            let queue = self.state.wait_table.queue(NAME).expect("a queue");
            let mut waiters = queue.iter().map(|(_, waiter)| waiter);
            let own = waiters.find(|waiter| waiter.inbox().call_of_block() == call);
            let request = request_of(own.expect("a waiter that is parked"));
            assert_eq!(self.blocked.insert(request, call), None);
        }
        result
    }

    /// The one answer to a request that waits.
    fn answered(&mut self, waiter: &Waiter) {
        let (request, inbox) = (request_of(waiter), waiter.inbox());
        let expected = self.queued.remove(&request);
        let inboxes = &self.state.inboxes;
        let is_block = expected == Some(None);
        assert!(
            is_block || expected == Some(Some(inbox)),
            "{request:?}: {expected:?}"
        );
        let name = INBOXES.into_iter().find(|name| inboxes.find(name) == Some(inbox));
        if let Some(name) = name {
            self.known.entry(name).or_default().answers.push_back(request);
        }
    }

    /// A call that waited gets its reply.
    fn reply(&mut self, call: Call) {
        let reply = self.state.inboxes.reply(call, self.now).expect("a reply");
        let reader = self.known.iter().find(|(_, known)| known.call == Some(call));
        match (reply, reader.map(|(name, _)| *name)) {
            (Reply::Grants(reply), Some(name)) => self.told(name, &reply),
            (Reply::Answer(_), None) => {
                let count = self.blocked.len();
                self.blocked.retain(|_, blocked| *blocked != call);
                assert_eq!(self.blocked.len() + 1, count, "a second reply to a BLOCK");
            }
            (reply, reader) => panic!("{reply:?} to {reader:?}"),
        }
    }

    fn kept(&self) -> usize {
        self.state.inboxes.answers()
    }

    fn check(&self) {
        let inboxes = &self.state.inboxes;
        let named = self.queued.values().flatten().count();
        assert_eq!(self.state.wait_table.waiters(), self.queued.len());
        assert_eq!(
            (inboxes.waiters(), self.blocked.len()),
            (named, self.queued.len() - named)
        );
        let answers: usize = self.known.values().map(|known| known.answers.len()).sum();
        assert_eq!(inboxes.answers(), answers);
        let waiting = self.queued.len() + self.kept();
        assert!(waiting <= MAX_WAITERS, "{waiting} wait");
    }

    /// All clients are gone: nothing of them stays.
    fn end(&mut self) {
        for (_, call) in std::mem::take(&mut self.blocked) {
            self.state.lose_reader(call, self.now);
        }
        self.queued.retain(|_, inbox| inbox.is_some());
        self.is_paused = false;
        for _ in 0..20 {
            self.now = self.now.after_ms(1_000);
            self.process();
        }
        self.check();
        let inboxes = &self.state.inboxes;
        assert!(self.queued.is_empty() && inboxes.is_empty() && self.kept() == 0);
        assert_eq!((inboxes.undelivered(), inboxes.next_wakeup()), (0, None));
    }
}

/// The owner and the id.
fn request_of(waiter: &Waiter) -> Request {
    let owner = OWNERS.into_iter().find(|owner| *owner == waiter.owner());
    let id = IDS.into_iter().find(|id| Some(*id) == waiter.request_id());
    (owner.expect("a known owner"), id.expect("a known id"))
}
