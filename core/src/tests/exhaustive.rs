//! Every reachable state of small locks with three owners.
//!
//! Each transition from each state is checked against the invariants and the model, and what it replicates is
//! applied to a replica. The searches terminate: times are relative, queues and hold counts are bounded, and
//! states that differ only in the names of owners and locks are the same.

use std::collections::{HashSet, VecDeque};

use super::schedule::limit;
use crate::effects::MaxAnswers;
use crate::fence::Fence;
use crate::testing::{
    self, Admin, Micros, ModelHolder as Holder, ORIGIN, OWNERS, Pair, Request, Server, Stored, Waiter,
    execute,
};
use crate::wire::{Acquire, Extend, GrantRef, Holds, Release, Timeout};

/// A millisecond, so that leases, timeouts and grace periods are whole ticks.
const TICK: Micros = 1_000;
/// A fence that no holder has in any state.
const WRONG_FENCE: Fence = 1;
/// The clock of the replica, and how many ticks later leases end there.
const REPLICA: Micros = -500_000;
const LATER: Micros = 3;
const IDS: [&[u8]; 2] = [b"r0", b"r1"];
const LONG_LEASE_MS: u64 = 1_000_000;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct State {
    locks: Vec<LockState>,
    grace_ticks: Micros,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct LockState {
    holders: Vec<HolderState>,
    queue: Vec<WaiterState>,
    /// The queue is due and not processed yet.
    is_due: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct HolderState {
    /// Its place in [`OWNERS`].
    owner: usize,
    limit: Option<u32>,
    anonymous: u32,
    ids: Vec<Box<[u8]>>,
    /// The remaining lease; 0 = expired, and not removed yet.
    ticks: Micros,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct WaiterState {
    owner: usize,
    limit: Option<u32>,
    id: Option<&'static [u8]>,
    /// The remaining timeout, `None` = no timeout.
    ticks: Option<Micros>,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Ask(usize, Request<'static>),
    /// The timers fire.
    FireTimers,
    /// Expired holders are removed from a lock without waiters.
    Expire,
    Disconnect(usize, usize),
    Delete(usize),
    Tick,
    Grace(Micros),
}

/// The requests that are tried, and the bounds of the search.
struct Alphabet {
    locks: usize,
    limits: &'static [Option<u32>],
    blocks: &'static [Option<Timeout>],
    /// How many of [`IDS`] are used.
    ids: usize,
    /// Empty = leases never expire.
    leases_ms: &'static [u64],
    grace_ticks: &'static [Micros],
    /// With RELEASE ALL, EXTEND, and fences that are given.
    all_requests: bool,
    max_queue: usize,
    max_holds: usize,
}

const SMALL: Alphabet = Alphabet {
    locks: 1,
    limits: &[Some(1)],
    blocks: &[None],
    ids: 0,
    leases_ms: &[],
    grace_ticks: &[],
    all_requests: false,
    max_queue: 0,
    max_holds: 1,
};

/// One lock without waiters.
const NO_QUEUE: Alphabet = Alphabet {
    leases_ms: &[1, 2, 3],
    all_requests: true,
    max_holds: 2,
    ..SMALL
};

impl Alphabet {
    fn search(&self) -> HashSet<State> {
        let first = State {
            locks: vec![LockState::default(); self.locks],
            grace_ticks: 0,
        };
        let mut seen = HashSet::from([first.clone()]);
        // Before they are canonical: most are reached often.
        let mut reached = HashSet::new();
        let mut next = VecDeque::from([first]);
        while let Some(state) = next.pop_front() {
            for step in self.steps(&state) {
                let after = after(&state, step);
                if self.is_small(&after) && reached.insert(after.clone()) {
                    let canonical = after.canonical();
                    if seen.insert(canonical.clone()) {
                        next.push_back(canonical);
                    }
                }
            }
        }
        seen
    }

    fn steps(&self, state: &State) -> Vec<Step> {
        let mut steps = vec![if self.max_queue > 0 {
            Step::FireTimers
        } else {
            Step::Expire
        }];
        if !self.leases_ms.is_empty() {
            steps.push(Step::Tick);
        }
        steps.extend(self.grace_ticks.iter().map(|ticks| Step::Grace(*ticks)));
        let server = state.server(ORIGIN, 0);
        for lock in 0..server.names.len() {
            let value = server.lock_at(lock);
            steps.extend((0..state.locks[lock].queue.len()).map(|place| Step::Disconnect(lock, place)));
            steps.push(Step::Delete(lock));
            for owner in &OWNERS[..3] {
                let own_fence = value.get(owner).map(|holder| holder.fence());
                steps.extend(
                    self.requests(owner, own_fence)
                        .map(|request| Step::Ask(lock, request)),
                );
            }
        }
        steps
    }

    fn requests(
        &self,
        owner: &'static [u8],
        own_fence: Option<Fence>,
    ) -> impl Iterator<Item = Request<'static>> {
        let mut requests = Vec::new();
        let ids = &IDS[..self.ids];
        let leases_ms = if self.leases_ms.is_empty() {
            &[LONG_LEASE_MS]
        } else {
            self.leases_ms
        };
        let mut holds = vec![Holds::One];
        holds.extend(ids.iter().copied().map(Holds::ById));
        let mut fences = vec![None];
        if self.all_requests {
            holds.push(Holds::All);
            fences.extend([Some(WRONG_FENCE)].into_iter().chain(own_fence.map(Some)));
        }
        for &lease_ms in leases_ms {
            for limit in self.limits.iter().copied().map(limit) {
                for request_id in ids.iter().copied().map(Some).chain([None]) {
                    let acquire = |&block: &Option<Timeout>| {
                        Request::Acquire(Acquire {
                            owner,
                            lease_ms,
                            limit,
                            wait: block.and_then(testing::block),
                            request_id,
                            min_fence: None,
                        })
                    };
                    requests.extend(self.blocks.iter().map(acquire));
                }
            }
            if self.all_requests {
                let grants = fences.iter().map(|&fence| fence.into());
                let grants = grants.chain(ids.iter().map(|id| GrantRef::RequestId(id)));
                requests.extend(grants.map(|grant| {
                    Request::Extend(Extend {
                        owner,
                        lease_ms,
                        grant,
                        min_fence: None,
                    })
                }));
            }
        }
        for fence in fences {
            requests.extend(
                holds
                    .iter()
                    .map(|&holds| Request::Release(Release { owner, fence, holds })),
            );
        }
        requests.into_iter()
    }

    fn is_small(&self, state: &State) -> bool {
        let few_holds = |holder: &HolderState| holder.anonymous as usize + holder.ids.len() <= self.max_holds;
        let is_small =
            |lock: &LockState| lock.queue.len() <= self.max_queue && lock.holders.iter().all(few_holds);
        state.locks.iter().all(is_small)
    }
}

/// Transitions that answer all waiters at once, and those that leave all but one to the timer, do the same in the end.
fn after(state: &State, step: Step) -> State {
    if state.locks.iter().any(|lock| lock.queue.len() > 1) {
        after_answering(MaxAnswers(1), state, step);
    }
    after_answering(MaxAnswers::default(), state, step)
}

fn after_answering(max_answers: MaxAnswers, state: &State, step: Step) -> State {
    let mut pair = state.pair();
    pair.server.effects.max_answers = max_answers;
    match step {
        Step::Ask(lock, request) => pair.ask(lock, request),
        Step::FireTimers => pair.process_due(),
        Step::Expire => pair.server.expire_holders(0),
        Step::Disconnect(lock, place) => pair.disconnect(lock, place),
        Step::Delete(lock) => pair.administrate(Admin::Delete(lock)),
        Step::Tick => return state.a_tick_later(),
        Step::Grace(ticks) => return state.with_grace(ticks),
    }
    pair.compare(&(state, step));
    let mut replica = state.server(REPLICA, LATER);
    for sent in pair.server.take_sent() {
        let now = replica.now();
        execute(&mut replica, &sent, now);
    }
    State::of(&pair)
}

impl State {
    fn a_tick_later(&self) -> Self {
        let mut later = self.clone();
        later.grace_ticks = (later.grace_ticks - 1).max(0);
        for lock in &mut later.locks {
            for holder in &mut lock.holders {
                holder.ticks = (holder.ticks - 1).max(0);
                lock.is_due |= holder.ticks == 0 && !lock.queue.is_empty();
            }
            for ticks in lock.queue.iter_mut().filter_map(|waiter| waiter.ticks.as_mut()) {
                *ticks = (*ticks - 1).max(0);
                lock.is_due |= *ticks == 0;
            }
        }
        later
    }

    /// Live leases last at least until the end of the grace period.
    fn with_grace(&self, ticks: Micros) -> Self {
        let mut state = self.clone();
        state.grace_ticks = state.grace_ticks.max(ticks);
        let holders = state.locks.iter_mut().flat_map(|lock| &mut lock.holders);
        for holder in holders.filter(|holder| holder.ticks > 0) {
            holder.ticks = holder.ticks.max(state.grace_ticks);
        }
        state
    }

    fn pair(&self) -> Pair {
        let mut pair = Pair::of(self.server(ORIGIN, 0));
        pair.model.grace_end = pair.server.grace_end();
        for (lock, state) in self.locks.iter().enumerate() {
            let fences = pair
                .server
                .lock_at(lock)
                .holders()
                .iter()
                .map(|holder| holder.fence());
            let holders = fences.zip(&state.holders).map(|(fence, holder)| Holder {
                fence,
                ..holder.holder(0)
            });
            pair.model.locks[lock].holders = holders.collect();
            for waiter in &state.queue {
                let ms = |ticks: Micros| Timeout::Ms(ticks as u64);
                pair.put_waiter(
                    lock,
                    Acquire {
                        owner: OWNERS[waiter.owner],
                        lease_ms: 1,
                        limit: limit(waiter.limit),
                        wait: testing::block(waiter.ticks.map_or(Timeout::Infinite, ms)),
                        request_id: waiter.id,
                        min_fence: None,
                    },
                );
            }
            if state.is_due {
                pair.server.mark_due(lock);
            }
        }
        pair.expect_deadlocks();
        pair
    }

    /// A server in this state, without its waiters, with leases that end this many ticks later.
    fn server(&self, origin: Micros, later: Micros) -> Server {
        let mut server = Server::new(self.locks.len(), origin);
        if self.grace_ticks > 0 {
            // A lease that has expired by now had expired when the grace period began.
            server.grace((self.grace_ticks * TICK / 1_000) as u64);
        }
        for (lock, state) in self.locks.iter().enumerate() {
            for holder in &state.holders {
                server.put_holder(lock, &holder.holder(later));
            }
        }
        server
    }

    fn of(pair: &Pair) -> Self {
        let owner = |owner: &[u8]| {
            OWNERS
                .iter()
                .position(|known| *known == owner)
                .expect("a known owner")
        };
        let holder = |(stored, lease_end): Stored| HolderState {
            owner: owner(stored.owner()),
            limit: stored.limit().get(),
            anonymous: stored.anonymous(),
            ids: stored.request_ids().to_vec(),
            ticks: lease_end / TICK,
        };
        let waiter = |waiter: Waiter<'_>| WaiterState {
            owner: owner(waiter.request.owner),
            limit: waiter.request.limit.get(),
            id: waiter.request.request_id.map(known_id),
            ticks: waiter.deadline().map(|deadline| deadline / TICK),
        };
        let lock = |lock: usize| LockState {
            holders: pair.server.stored(lock).into_iter().map(holder).collect(),
            queue: pair.server.view(lock).queue.into_iter().map(waiter).collect(),
            is_due: pair.server.is_due(lock),
        };
        Self {
            locks: (0..pair.model.locks.len()).map(lock).collect(),
            grace_ticks: pair.server.grace_end().unwrap_or(0) / TICK,
        }
    }

    /// The same for all states that differ only in the names of owners and locks.
    fn canonical(&self) -> Self {
        const ORDERS: [[usize; 3]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
        let renamed = ORDERS.iter().map(|order| {
            let mut locks = self.locks.clone();
            for lock in &mut locks {
                let owners = lock.holders.iter_mut().map(|holder| &mut holder.owner);
                let owners = owners.chain(lock.queue.iter_mut().map(|waiter| &mut waiter.owner));
                owners.for_each(|owner| *owner = order[*owner]);
            }
            locks.sort_unstable();
            locks
        });
        let (locks, grace_ticks) = (renamed.min().expect("six orders"), self.grace_ticks);
        Self { locks, grace_ticks }
    }
}

impl HolderState {
    fn holder(&self, later: Micros) -> Holder {
        let ids = self.ids.iter().map(|id| Some(known_id(id)));
        Holder {
            owner: OWNERS[self.owner],
            fence: 0,
            limit: limit(self.limit),
            since: 0,
            lease_end: (self.ticks + later) * TICK,
            holds: (0..self.anonymous).map(|_| None).chain(ids).collect(),
        }
    }
}

fn known_id(id: &[u8]) -> &'static [u8] {
    IDS.into_iter().find(|known| *known == id).expect("a known id")
}

/// The largest number of waiters for one lock, and of owners that hold one.
fn largest(states: &HashSet<State>) -> (usize, usize) {
    let locks = || states.iter().flat_map(|state| &state.locks);
    let live = |lock: &LockState| lock.holders.iter().filter(|holder| holder.ticks > 0).count();
    let waiters = locks().map(|lock| lock.queue.len()).max();
    (waiters.unwrap_or(0), locks().map(live).max().unwrap_or(0))
}

#[test]
fn mutex_has_one_holder_in_every_reachable_state() {
    let states = Alphabet {
        ids: 2,
        grace_ticks: &[1, 2],
        ..NO_QUEUE
    }
    .search();
    assert_eq!(largest(&states), (0, 1));
}

#[test]
fn semaphore_of_two_has_two_holders_in_every_reachable_state() {
    let states = Alphabet {
        limits: &[Some(2)],
        ids: 2,
        grace_ticks: &[2],
        ..NO_QUEUE
    }
    .search();
    assert_eq!(largest(&states), (0, 2));
}

#[test]
fn shared_lock_can_be_held_by_all_owners() {
    let states = Alphabet {
        limits: &[None],
        grace_ticks: &[1, 2],
        ..NO_QUEUE
    }
    .search();
    assert_eq!(largest(&states), (0, 3));
}

#[test]
fn mixed_limits_keep_smallest_limit_in_every_reachable_state() {
    let limits = &[Some(1), Some(2), None];
    let states = Alphabet {
        limits,
        ids: 1,
        grace_ticks: &[2],
        ..NO_QUEUE
    }
    .search();
    let within = |state: &State| {
        let live = || state.locks[0].holders.iter().filter(|holder| holder.ticks > 0);
        live()
            .filter_map(|holder| holder.limit)
            .all(|limit| live().count() as u32 <= limit)
    };
    assert!(states.iter().all(within));
    assert_eq!(largest(&states), (0, 3));
}

#[test]
fn one_lock_with_queue_matches_model_in_every_reachable_state() {
    let states = Alphabet {
        limits: &[Some(1), Some(2), None],
        blocks: &[Some(Timeout::Infinite), Some(Timeout::Ms(1))],
        leases_ms: &[1],
        max_queue: 2,
        ..SMALL
    }
    .search();
    assert_eq!(largest(&states), (2, 3));
}

#[test]
fn mutex_with_request_ids_matches_model_in_every_reachable_state() {
    let states = Alphabet {
        blocks: &[None, Some(Timeout::Infinite), Some(Timeout::Ms(1))],
        ids: 1,
        leases_ms: &[1],
        max_queue: 3,
        ..SMALL
    }
    .search();
    assert_eq!(largest(&states), (3, 1));
}

#[test]
fn two_mutexes_match_model_in_every_reachable_state() {
    let states = Alphabet {
        locks: 2,
        blocks: &[Some(Timeout::Infinite)],
        max_queue: 2,
        max_holds: 2,
        ..SMALL
    };
    assert_eq!(largest(&states.search()), (2, 1));
}

#[test]
fn two_semaphores_match_model_in_every_reachable_state() {
    let states = Alphabet {
        locks: 2,
        limits: &[Some(1), Some(2)],
        blocks: &[Some(Timeout::Infinite)],
        max_queue: 1,
        ..SMALL
    };
    assert_eq!(largest(&states.search()), (1, 2));
}
