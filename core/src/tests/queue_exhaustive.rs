//! Every reachable state of small locks with queues and three owners.
//!
//! Each transition from each state is checked against the invariants and the model. The searches terminate:
//! times are relative, queues and hold counts are bounded, and states that differ only in the names of owners and
//! locks are the same.

use std::collections::{HashSet, VecDeque};

use super::naive::Holder;
use super::ops::{Action, Ask, Block, Limit, Micros, Request, Waiter};
use super::pair::Pair;
use super::schedule::Admin;
use super::subject::{Stored, name_number, owner_number};

const OWNERS: u8 = 3;
/// A millisecond, so that leases and timeouts are whole ticks.
const TICK: Micros = 1_000;

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct State {
    sites: Vec<Site>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Site {
    holders: Vec<Part>,
    queue: Vec<Place>,
    /// The queue is due and not processed yet.
    is_due: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Part {
    owner: u8,
    limit: Limit,
    unnamed: u32,
    names: Vec<u8>,
    /// The remaining lease; 0 = expired, and not removed yet.
    ticks: Micros,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Place {
    owner: u8,
    limit: Limit,
    name: Option<u8>,
    /// The remaining timeout, `None` = no timeout.
    ticks: Option<Micros>,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Ask(Ask),
    /// The timers fire.
    FireTimers,
    Disconnect {
        lock: usize,
        place: usize,
    },
    Delete(usize),
}

/// The requests that are tried, and the bounds of the search.
struct Alphabet {
    locks: usize,
    limits: &'static [Limit],
    blocks: &'static [Block],
    names: &'static [Option<u8>],
    /// Leases; empty = they never expire.
    leases_ms: &'static [u64],
    max_queue: usize,
    max_holds: usize,
}

const ENDLESS_MS: u64 = 1_000_000;

impl Alphabet {
    fn search(&self) -> HashSet<State> {
        let first = State {
            sites: vec![Site::default(); self.locks],
        };
        let mut seen = HashSet::from([first.clone()]);
        let mut next = VecDeque::from([first]);
        while let Some(state) = next.pop_front() {
            for reached in self.successors(&state) {
                if self.is_small(&reached) && seen.insert(reached.clone()) {
                    next.push_back(reached);
                }
            }
        }
        seen
    }

    fn successors(&self, state: &State) -> Vec<State> {
        let steps = self.steps(state);
        let mut reached: Vec<State> = steps.iter().map(|step| after(state, *step)).collect();
        if !self.leases_ms.is_empty() {
            reached.push(state.a_tick_later().canonical());
        }
        reached
    }

    fn steps(&self, state: &State) -> Vec<Step> {
        let mut steps = vec![Step::FireTimers];
        for (lock, site) in state.sites.iter().enumerate() {
            let places = 0..site.queue.len();
            steps.extend(places.map(|place| Step::Disconnect { lock, place }));
            steps.push(Step::Delete(lock));
            for owner in 0..OWNERS {
                steps.extend(self.asks(lock, owner).map(Step::Ask));
            }
        }
        steps
    }

    fn asks(&self, lock: usize, owner: u8) -> impl Iterator<Item = Ask> {
        let mut asks = Vec::new();
        let mut ask = |action: Action, block: Block| {
            let request = Request {
                owner,
                action,
                fence: None,
            };
            asks.push(Ask { lock, request, block });
        };
        let leases_ms = if self.leases_ms.is_empty() {
            &[ENDLESS_MS]
        } else {
            self.leases_ms
        };
        for &lease_ms in leases_ms {
            for &limit in self.limits {
                for &name in self.names {
                    let action = Action::Acquire {
                        lease_ms,
                        limit,
                        name,
                    };
                    self.blocks.iter().for_each(|block| ask(action, *block));
                }
            }
        }
        ask(Action::ReleaseOne, Block::No);
        for name in self.names.iter().flatten() {
            ask(Action::ReleaseNamed(*name), Block::No);
        }
        asks.into_iter()
    }

    fn is_small(&self, state: &State) -> bool {
        let few_holds = |part: &Part| part.unnamed as usize + part.names.len() <= self.max_holds;
        state
            .sites
            .iter()
            .all(|site| site.queue.len() <= self.max_queue && site.holders.iter().all(few_holds))
    }
}

fn after(state: &State, step: Step) -> State {
    let mut pair = state.pair();
    match step {
        Step::Ask(ask) => pair.ask(&ask),
        Step::FireTimers => pair.process_due(),
        Step::Disconnect { lock, place } => pair.disconnect(lock, place),
        Step::Delete(lock) => pair.administrate(Admin::Delete(lock)),
    }
    pair.compare(&(state, step));
    State::of(&pair).canonical()
}

impl State {
    fn a_tick_later(&self) -> Self {
        let mut later = self.clone();
        for site in &mut later.sites {
            for part in &mut site.holders {
                part.ticks = (part.ticks - 1).max(0);
                site.is_due |= part.ticks == 0 && !site.queue.is_empty();
            }
            for ticks in site.queue.iter_mut().filter_map(|place| place.ticks.as_mut()) {
                *ticks = (*ticks - 1).max(0);
                site.is_due |= *ticks == 0;
            }
        }
        later
    }

    fn pair(&self) -> Pair {
        let mut pair = Pair::new(self.sites.len());
        for (lock, site) in self.sites.iter().enumerate() {
            for part in &site.holders {
                let unnamed = (0..part.unnamed).map(|_| None);
                pair.put_holder(
                    lock,
                    Holder {
                        owner: part.owner,
                        fence: 0,
                        limit: part.limit,
                        since: 0,
                        lease_end: part.ticks * TICK,
                        holds: unnamed.chain(part.names.iter().copied().map(Some)).collect(),
                    },
                );
            }
            for place in &site.queue {
                let block = |ticks: Micros| Block::Ms(ticks as u64);
                pair.put_waiter(
                    lock,
                    Waiter {
                        client: 0,
                        owner: place.owner,
                        limit: place.limit,
                        lease_ms: 1,
                        name: place.name,
                        since: 0,
                        block: place.ticks.map_or(Block::Infinite, block),
                    },
                );
            }
            if site.is_due {
                pair.server.mark(lock);
            }
        }
        pair.expect_deadlocks();
        pair
    }

    fn of(pair: &Pair) -> Self {
        let part = |(stored, lease_end): (Stored, Micros)| Part {
            owner: owner_number(&stored.owner),
            limit: stored.limit.get(),
            unnamed: stored.unnamed,
            names: stored.names.iter().map(|name| name_number(name)).collect(),
            ticks: lease_end / TICK,
        };
        let place = |waiter: Waiter| Place {
            owner: waiter.owner,
            limit: waiter.limit,
            name: waiter.name,
            ticks: waiter.deadline().map(|deadline| deadline / TICK),
        };
        let site = |lock: usize| Site {
            holders: pair.server.stored(lock).into_iter().map(part).collect(),
            queue: pair.server.view(lock).queue.into_iter().map(place).collect(),
            is_due: pair.server.is_due(lock),
        };
        Self {
            sites: (0..pair.model.locks.len()).map(site).collect(),
        }
    }

    /// The same for all states that differ only in the names of owners and locks.
    fn canonical(&self) -> Self {
        const ORDERS: [[u8; 3]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
        let renamed = ORDERS.iter().map(|order| {
            let mut state = self.clone();
            for site in &mut state.sites {
                let owners = site.holders.iter_mut().map(|part| &mut part.owner);
                let owners = owners.chain(site.queue.iter_mut().map(|place| &mut place.owner));
                owners.for_each(|owner| *owner = order[usize::from(*owner)]);
            }
            state.sites.sort_unstable();
            state
        });
        renamed.min().expect("six orders")
    }
}

/// The largest number of waiters for one lock, and of owners that hold one.
fn largest(states: &HashSet<State>) -> (usize, usize) {
    let sites = || states.iter().flat_map(|state| &state.sites);
    let live = |site: &Site| site.holders.iter().filter(|part| part.ticks > 0).count();
    let waiters = sites().map(|site| site.queue.len()).max();
    (waiters.unwrap_or(0), sites().map(live).max().unwrap_or(0))
}

#[test]
fn one_lock_with_queue_matches_model_in_every_reachable_state() {
    let states = Alphabet {
        locks: 1,
        limits: &[Some(1), Some(2), None],
        blocks: &[Block::Infinite, Block::Ms(1)],
        names: &[None],
        leases_ms: &[1],
        max_queue: 2,
        max_holds: 1,
    }
    .search();
    assert_eq!(largest(&states), (2, 3));
}

#[test]
fn mutex_with_request_ids_matches_model_in_every_reachable_state() {
    let states = Alphabet {
        locks: 1,
        limits: &[Some(1)],
        blocks: &[Block::No, Block::Infinite, Block::Ms(1)],
        names: &[None, Some(0)],
        leases_ms: &[1],
        max_queue: 3,
        max_holds: 1,
    }
    .search();
    assert_eq!(largest(&states), (3, 1));
}

#[test]
fn two_mutexes_match_model_in_every_reachable_state() {
    let states = Alphabet {
        locks: 2,
        limits: &[Some(1)],
        blocks: &[Block::Infinite],
        names: &[None],
        leases_ms: &[],
        max_queue: 2,
        max_holds: 2,
    }
    .search();
    assert_eq!(largest(&states), (2, 1));
}

#[test]
fn two_semaphores_match_model_in_every_reachable_state() {
    let states = Alphabet {
        locks: 2,
        limits: &[Some(1), Some(2)],
        blocks: &[Block::Infinite],
        names: &[None],
        leases_ms: &[],
        max_queue: 1,
        max_holds: 1,
    }
    .search();
    assert_eq!(largest(&states), (1, 2));
}
