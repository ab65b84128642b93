//! A server with one lock, which drives the core as the module does, and takes note of what is to be checked.

use std::hash::{Hash, Hasher};

use super::message::Ms;
use super::setting::LEASE_MS;
use dlock_core::testing::Outside;
use dlock_core::{
    Acquire, Acquired, Answer, Call, Caller, Effects, Error, Grants, GrantsReply, Holder, Holds, InboxId,
    InboxStep, Instant, Limit, Lock, LockNameRef, Outcome, Policy, Queue, Received, Release, Reply,
    ServerState, Timeout, Transition, Undelivered, Wait, decode_lock, encode_lock,
};

const NAME: LockNameRef<'_> = LockNameRef { db: 0, key: b"lock" };
const CALLER: Caller<'_> = Caller {
    db: 0,
    user: b"default",
};
const REQUEST_ID: &[u8] = b"r";
/// The names of inboxes.
const INBOXES: [&[u8]; 2] = [b"a", b"b"];
/// Times in 2025 and 2035: no cursor is mistaken for a fence.
const FENCES_UNIX_MS: u64 = 1_750_000_000_000;
const CURSORS_UNIX_MS: u64 = 2_065_000_000_000;
/// X has the lock until it releases it.
const LONG_MS: u64 = 1_000_000;
/// Longer than any world: no request times out by itself.
const TIMEOUT_MS: u64 = 60_000;

/// Who wants the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Party {
    /// It holds the lock at first.
    X,
    /// It blocks, and never fails.
    C,
    /// A client and its request.
    Request(u8, u8),
}

#[derive(Clone)]
pub struct Server {
    pub state: ServerState,
    pub lock: Lock,
    /// How many servers there were before.
    number: u64,
    /// The calls that are to be replied to.
    pub woken: Vec<Call>,
    pub watch: Watch,
}

/// What is to be checked.
#[derive(Clone, Default, Hash)]
pub struct Watch {
    /// Those that wait, as they came.
    order: Vec<Party>,
    /// Those of them whose requests arrived late only.
    late: Vec<Party>,
    pub hold: Option<Hold>,
    /// A grant went to another than the first of them.
    pub is_overtaken: bool,
}

/// The hold that was granted last, as long as it lasts.
#[derive(Clone, Debug, Hash)]
pub struct Hold {
    pub party: Party,
    pub fence: u64,
    /// That of its answer, if it waited.
    inbox: Option<InboxId>,
    /// A reply has carried it, whether it arrived or not.
    is_told: bool,
    /// One of these was that to a request that was sent again.
    is_repeated: bool,
    pub lateness: Lateness,
}

/// Whether a hold is due to a request of a lost connection only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lateness {
    No,
    /// It waited, and its inbox tells the client.
    Told,
    /// It was granted at once, or its inbox has ended: nobody tells the client.
    Untold,
}

impl Server {
    /// X holds the lock.
    pub fn new(now: Ms) -> Self {
        let mut server = Self {
            state: ServerState::default(),
            lock: Lock::default(),
            number: 0,
            woken: Vec::new(),
            watch: Watch::default(),
        };
        server.set_policy();
        let granted = server.acquire(Party::X, 0, false, now);
        assert!(matches!(granted, Ok(Acquired::Granted(_))));
        server
    }

    fn set_policy(&mut self) {
        self.state.set_policy(Policy {
            max_waiters_per_lock: 100,
            max_waiters: 100,
            max_inboxes: 100,
            detect_deadlocks: true,
            ..Policy::default()
        });
    }

    /// A planned failover: a replica with all holds takes over. This server keeps nothing of its inboxes.
    pub fn fail_over(&mut self, now: Ms) {
        let at = instant(now);
        for call in self.state.demote() {
            assert!(self.state.inboxes.reply(call, at).is_none());
        }
        while self.state.process_inboxes(at).is_some() {}
        let inboxes = &self.state.inboxes;
        assert_eq!((inboxes.len(), inboxes.waiters(), inboxes.answers()), (0, 0, 0));

        let stored = (!self.lock.is_free()).then(|| encode_lock(&self.lock, self.state.clock(at)));
        self.number += 1;
        self.state = ServerState::default();
        self.set_policy();
        if let Some(stored) = stored {
            self.lock = decode_lock(&stored, at).expect("a lock that was encoded");
            self.state.observe_lock(&self.lock, at);
        }
        self.state.promote();
        self.woken.clear();
        self.watch.order.clear();
        self.watch.late.clear();
        self.watch.end_told();
        if let Some(hold) = &mut self.watch.hold {
            hold.inbox = None;
        }
    }

    /// `inbox`: the number of its name. C has none: it blocks. `is_late`: the request is of a lost connection.
    pub fn acquire(&mut self, party: Party, inbox: u8, is_late: bool, now: Ms) -> Result<Acquired, Error> {
        let (timeout, inbox) = match party {
            Party::X | Party::C => (Timeout::Infinite, None),
            Party::Request(client, request) => {
                let timeout = Timeout::Ms(timeout_ms(client, request));
                (timeout, Some(Self::name_of(inbox)))
            }
        };
        let request = Acquire {
            owner: party.owner(),
            lease_ms: if party == Party::X { LONG_MS } else { LEASE_MS },
            limit: Limit::MUTEX,
            wait: Some(Wait { timeout, inbox }),
            request_id: Some(REQUEST_ID),
            min_fence: None,
        };
        let (acquired, outcome) =
            self.step(now, |transition| transition.acquire(&request, CALLER.user, true));
        match &acquired {
            Ok(Acquired::Granted(granted)) => {
                if outcome == Outcome::New {
                    let lateness = if is_late { Lateness::Untold } else { Lateness::No };
                    self.watch.granted(party, granted.fence, None, lateness);
                }
                if let Some(hold) = &mut self.watch.hold {
                    hold.is_told = true;
                    hold.is_repeated |= outcome == Outcome::Repeated;
                }
            }
            Ok(Acquired::Queued(_)) => self.watch.queued(party, is_late),
            Ok(Acquired::NotGranted) => unreachable!("every request waits"),
            Err(_) => {}
        }
        acquired
    }

    pub fn release(&mut self, party: Party, now: Ms) {
        let _ = self.step(now, |transition| transition.release(&release(party, None)));
    }

    /// A waiter leaves, and keeps its turn for who checks that.
    pub fn forget_place(&mut self, party: Party, now: Ms) {
        let (inputs, mut effects) = (outside(FENCES_UNIX_MS, self.number), Effects::default());
        let inputs = inputs.inputs(instant(now));
        let mut transition = self.state.begin(&inputs, NAME, &mut self.lock, &mut effects);
        let _ = transition.release(&release(party, None));
        effects.wakes.clear();
    }

    pub fn receive(&mut self, request: &Grants<'_>, now: Ms) -> Result<Received, Error> {
        let outside = outside(CURSORS_UNIX_MS, self.number);
        let received = self
            .state
            .receive(request, CALLER, &outside.inputs(instant(now)))?;
        if let Received::Replied { reply, .. } = &received {
            self.watch.told(reply);
        }
        Ok(received)
    }

    /// The reply to a call that waited.
    pub fn reply(&mut self, call: Call, now: Ms) -> Option<Reply> {
        let reply = self.state.inboxes.reply(call, instant(now))?;
        match &reply {
            Reply::Grants(reply) => self.watch.told(reply),
            Reply::Answer(_) => {
                if let Some(hold) = &mut self.watch.hold {
                    hold.is_told |= hold.party == Party::C;
                }
            }
        }
        Some(reply)
    }

    pub fn lose_reader(&mut self, call: Call, now: Ms) {
        self.state.lose_reader(call, instant(now));
    }

    /// This request times out, with those that would do so earlier.
    pub fn time_out(&mut self, client: u8, request: u8, now: Ms) {
        let (at, mut effects) = (
            instant(now).after_ms(timeout_ms(client, request)),
            Effects::default(),
        );
        self.state.time_out_waiters(NAME, at, &mut effects);
        self.deliver(&mut effects);
        self.serve(now);
    }

    /// Whether this request is the one that times out first.
    pub fn times_out_first(&self, client: u8, request: u8) -> bool {
        let mut timeouts: Vec<u64> = Vec::new();
        for party in self.waiting() {
            if let Party::Request(client, request) = party {
                timeouts.push(timeout_ms(client, request));
            }
        }
        timeouts.into_iter().min() == Some(timeout_ms(client, request))
    }

    /// The timer of the queue, if it is due.
    pub fn serve(&mut self, now: Ms) {
        while self.state.wait_table.next_due(instant(now)).is_some() {
            let _ = self.step(now, |transition| {
                transition.on_timer();
                Ok::<(), Error>(())
            });
        }
    }

    /// The timer of the inboxes, and the cron. What inboxes leave that have ended is left to [`Self::step_inboxes`].
    pub fn process(&mut self, is_paused: bool, now: Ms) {
        self.state.inboxes.look_at_pauses(is_paused, instant(now));
        while !self.has_ended_inboxes() && self.step_inboxes(now) {}
        if is_paused {
            return;
        }
        self.serve(now);
        let _ = self.step(now, |transition| {
            transition.expire_holders();
            Ok::<(), Error>(())
        });
    }

    /// Does one of the things that are due in inboxes. False if nothing is.
    pub fn step_inboxes(&mut self, now: Ms) -> bool {
        let before = self.waiting();
        let step = self.state.process_inboxes(instant(now));
        if let Some(InboxStep::Reply(call)) = step {
            self.woken.push(call);
        }
        let after = self.waiting();
        for party in before.iter().filter(|party| !after.contains(party)) {
            self.watch.ended(*party);
        }
        if !self.has_ended_inboxes()
            && let Some(hold) = &self.watch.hold
            && hold
                .inbox
                .is_some_and(|inbox| !self.state.inboxes.has_name(inbox))
            && !hold.is_repeated
        {
            self.watch.end_told();
        }
        step.is_some()
    }

    fn has_ended_inboxes(&self) -> bool {
        self.state.inboxes.next_wakeup() == Some(Instant::DISTANT_PAST)
    }

    /// Whether inboxes that have ended have left nothing.
    pub fn is_clear(&self) -> bool {
        !self.has_ended_inboxes() && self.state.inboxes.undelivered() == 0
    }

    /// The next grant to be rolled back.
    pub fn next_undelivered(&mut self) -> Option<Undelivered> {
        self.state.inboxes.next_undelivered()
    }

    pub fn roll_back(&mut self, party: Party, fence: u64, now: Ms) {
        let _ = self.step(now, |transition| {
            transition.rollback_grant(&release(party, Some(fence)));
            Ok::<(), Error>(())
        });
    }

    pub fn name_of(number: u8) -> &'static [u8] {
        INBOXES[usize::from(number)]
    }

    pub fn inbox(&self, name: u8) -> Option<InboxId> {
        self.state.inboxes.find(Self::name_of(name))
    }

    fn step<R>(
        &mut self,
        now: Ms,
        decide: impl FnOnce(&mut Transition<'_>) -> Result<R, Error>,
    ) -> (Result<R, Error>, Outcome) {
        let (outside, mut effects) = (outside(FENCES_UNIX_MS, self.number), Effects::default());
        let inputs = outside.inputs(instant(now));
        let result = decide(&mut self.state.begin(&inputs, NAME, &mut self.lock, &mut effects));
        if let Some(hold) = &self.watch.hold {
            let mut holders = self.lock.holders().iter();
            if !holders.any(|holder| holder.fence() == hold.fence) {
                self.watch.hold = None;
            }
        }
        // C is blocked now.
        effects.parked = None;
        self.deliver(&mut effects);
        (result, effects.outcome)
    }

    fn deliver(&mut self, effects: &mut Effects) {
        for wake in &effects.wakes {
            let party = Party::of(wake.waiter.owner());
            match &wake.answer {
                Answer::Granted(granted) => {
                    let inbox = Some(wake.waiter.inbox());
                    self.watch.granted_waiter(party, granted.fence, inbox);
                }
                Answer::TimedOut | Answer::Withdrawn => self.watch.ended(party),
                // Its place is that of the new request.
                Answer::Rejected(Error::Replaced) => {}
                Answer::Rejected(_) | Answer::Elsewhere(_) | Answer::Extended(_) => panic!("{wake:?}"),
            }
        }
        self.state.deliver(effects);
        self.woken.append(&mut effects.calls);
    }

    /// Those that wait, in the order of the queue.
    pub fn waiting(&self) -> Vec<Party> {
        let queue = self.state.wait_table.queue(NAME).into_iter();
        let waiters = queue.flat_map(Queue::iter);
        waiters.map(|(_, waiter)| Party::of(waiter.owner())).collect()
    }

    /// The inbox to which the answer of a request will go.
    pub fn inbox_of(&self, party: Party) -> Option<InboxId> {
        let queue = self.state.wait_table.queue(NAME)?;
        let mut waiters = queue.iter().map(|(_, waiter)| waiter);
        let waiter = waiters.find(|waiter| waiter.owner() == party.owner())?;
        Some(waiter.inbox())
    }

    pub fn holder(&self, now: Ms) -> Option<Party> {
        let clock = self.state.clock(instant(now));
        let mut holders = self.lock.live_holders(clock);
        holders.next().map(|holder: &Holder| Party::of(holder.owner()))
    }

    /// Whether a grant that nobody was sent, and nobody can read, keeps the lock.
    pub fn is_wasted(&self, now: Ms) -> bool {
        let (inboxes, hold) = (&self.state.inboxes, self.watch.hold.as_ref());
        self.holder(now).is_some()
            && hold.is_some_and(|hold| {
                let is_unreadable = hold.inbox.is_some_and(|inbox| !inboxes.has_name(inbox));
                matches!(hold.party, Party::Request(..)) && !hold.is_told && is_unreadable
            })
    }
}

impl Watch {
    fn queued(&mut self, party: Party, is_late: bool) {
        if !self.order.contains(&party) {
            self.order.push(party);
            self.late.extend(is_late.then_some(party));
        } else if !is_late {
            self.late.retain(|other| *other != party);
        }
    }

    fn granted_waiter(&mut self, party: Party, fence: u64, inbox: Option<InboxId>) {
        let is_late = self.late.contains(&party);
        let lateness = if is_late { Lateness::Told } else { Lateness::No };
        self.granted(party, fence, inbox, lateness);
    }

    fn granted(&mut self, party: Party, fence: u64, inbox: Option<InboxId>, lateness: Lateness) {
        self.is_overtaken |= self.order.first().is_some_and(|first| *first != party);
        self.ended(party);
        self.hold = Some(Hold {
            party,
            fence,
            inbox,
            is_told: false,
            is_repeated: false,
            lateness,
        });
    }

    /// Its place has ended.
    fn ended(&mut self, party: Party) {
        self.order.retain(|other| *other != party);
        self.late.retain(|other| *other != party);
    }

    fn told(&mut self, reply: &GrantsReply) {
        for answered in &reply.answers {
            if let Answer::Granted(granted) = &answered.answer
                && let Some(hold) = &mut self.hold
                && hold.fence == granted.fence
            {
                hold.is_told = true;
            }
        }
    }

    /// The inbox that would have told the client of its hold is no more.
    fn end_told(&mut self) {
        if let Some(hold) = &mut self.hold
            && hold.lateness == Lateness::Told
        {
            hold.lateness = Lateness::Untold;
        }
    }
}

impl Party {
    const OWNERS: [(&'static [u8], Self); 6] = [
        (b"x", Self::X),
        (b"c", Self::C),
        (b"a0", Self::Request(0, 0)),
        (b"a1", Self::Request(0, 1)),
        (b"b0", Self::Request(1, 0)),
        (b"b1", Self::Request(1, 1)),
    ];

    fn owner(self) -> &'static [u8] {
        let (owner, _) = Self::OWNERS
            .iter()
            .find(|(_, party)| *party == self)
            .expect("a party");
        owner
    }

    pub fn of(owner: &[u8]) -> Self {
        let (_, party) = Self::OWNERS
            .iter()
            .find(|(name, _)| *name == owner)
            .expect("an owner");
        *party
    }
}

/// All that future steps depend on, and what is checked.
impl Hash for Server {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let queue = self.state.wait_table.queue(NAME).into_iter();
        for (ticket, waiter) in queue.flat_map(Queue::iter) {
            (ticket, waiter.owner(), waiter.inbox()).hash(state);
        }
        self.state.inboxes.hash(state);
        for holder in self.lock.holders() {
            (
                holder.owner(),
                holder.fence(),
                holder.lease_end(self.state.clock(instant(0))),
            )
                .hash(state);
        }
        self.watch.hash(state);
    }
}

fn release(party: Party, fence: Option<u64>) -> Release<'static> {
    Release {
        owner: party.owner(),
        fence,
        holds: Holds::ById(REQUEST_ID),
    }
}

/// Different ones, so that a request can time out before the others.
fn timeout_ms(client: u8, request: u8) -> u64 {
    TIMEOUT_MS * (1 + 2 * u64::from(client) + u64::from(request))
}

fn instant(now: Ms) -> Instant {
    Instant::default().after_ms(u64::from(now))
}

/// No two servers start in the same millisecond.
fn outside(unix_ms: u64, number: u64) -> Outside {
    Outside::at_unix_ms(unix_ms + number)
}
