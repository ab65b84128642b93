//! Every reachable state of small locks: three owners, at most two holds each, leases of up to three ticks.
//!
//! Each transition from each state is checked against the invariants and the model, and what it replicates is
//! applied to a replica. The search terminates: times are relative and owners are numbered in the order of the
//! holders, so the number of states is finite.

use std::collections::{HashSet, VecDeque};

use super::naive::{self, Model};
use super::ops::{Action, Ask, Block, Limit, Micros, Request};
use super::subject::{Server, core_limit, name_bytes, owner_bytes};
use crate::engine::Engine;
use crate::lock::Holder;
use crate::time::Instant;

const OWNERS: u8 = 3;
const MAX_HOLDS: usize = 2;
const LEASES_MS: [u64; 3] = [1, 2, 3];
/// One millisecond, so that leases are whole ticks.
const TICK: Micros = 1_000;
/// A fence that no holder has in any state.
const WRONG_FENCE: u64 = 99;
/// The clock of the replica, and how many ticks later leases end there.
const REPLICA: Micros = -500_000;
const LATER: u8 = 3;

/// A state up to renaming: the owners are 0, 1, 2 in the order of the holders, and so are the fences.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct State {
    holders: Vec<Part>,
    grace_ticks: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Part {
    limit: Limit,
    unnamed: u32,
    names: Vec<u8>,
    /// The remaining lease; 0 = expired, and not removed yet.
    ticks: u8,
}

/// The requests that are tried.
struct Alphabet {
    limits: &'static [Limit],
    names: &'static [u8],
    graces: &'static [u8],
}

fn search(alphabet: &Alphabet) -> HashSet<State> {
    let mut seen = HashSet::from([State::default()]);
    let mut next = VecDeque::from([State::default()]);
    while let Some(state) = next.pop_front() {
        for reached in successors(&state, alphabet) {
            if reached.is_small() && seen.insert(reached.clone()) {
                next.push_back(reached);
            }
        }
    }
    seen
}

fn successors(state: &State, alphabet: &Alphabet) -> Vec<State> {
    let mut reached = vec![state.a_tick_later(), after_expiry(state)];
    reached.extend(alphabet.graces.iter().map(|ticks| state.with_grace(*ticks)));
    reached.extend(
        requests(state, alphabet)
            .iter()
            .map(|request| after(state, request)),
    );
    reached
}

fn after(state: &State, request: &Request) -> State {
    let (mut server, mut model) = (state.server(0, 0), state.model());
    let answer = server.request(0, request);
    let (request, block) = (*request, Block::No);
    model.ask(
        0,
        &Ask {
            lock: 0,
            request,
            block,
        },
    );
    let replies = { model.replies.iter() }.map(|(_, reply)| reply.answer);
    assert_eq!(
        vec![answer],
        replies.collect::<Vec<_>>(),
        "to {request:?} in {state:?}"
    );
    assert_eq!(server.view(0), model.view(0), "after {request:?} in {state:?}");
    check_replica(state, &mut server, Some(&request));
    State::of(&server)
}

fn after_expiry(state: &State) -> State {
    let mut server = state.server(0, 0);
    let view = server.view(0);
    server.sweep(0);
    assert_eq!(server.view(0), view, "after expiry in {state:?}");
    check_replica(state, &mut server, None);
    State::of(&server)
}

/// A replica with the same holders, whose leases end later, has the same holders again.
fn check_replica(state: &State, primary: &mut Server, request: Option<&Request>) {
    let mut replica = state.server(REPLICA, LATER);
    primary.take_sent().iter().for_each(|sent| replica.receive(sent));
    let (theirs, ours) = (replica.stored(0), primary.stored(0));
    assert_eq!(theirs.len(), ours.len(), "holders after {request:?} in {state:?}");
    for ((theirs, their_end), (ours, our_end)) in theirs.iter().zip(&ours) {
        assert_eq!(theirs, ours, "after {request:?} in {state:?}");
        assert!(their_end >= our_end, "after {request:?} in {state:?}");
    }
}

fn requests(state: &State, alphabet: &Alphabet) -> Vec<Request> {
    let mut requests = Vec::new();
    for owner in 0..OWNERS {
        let names = || alphabet.names.iter().copied();
        let mut fences = vec![None, Some(WRONG_FENCE)];
        if usize::from(owner) < state.holders.len() {
            fences.push(Some(fence_of(owner)));
        }
        let mut fenced = vec![Action::ReleaseOne, Action::ReleaseAll];
        fenced.extend(names().map(Action::ReleaseNamed));
        for lease_ms in LEASES_MS {
            for &limit in alphabet.limits {
                for name in names().map(Some).chain([None]) {
                    let action = Action::Acquire {
                        lease_ms,
                        limit,
                        name,
                    };
                    requests.push(Request {
                        owner,
                        action,
                        fence: None,
                    });
                }
            }
            fenced.push(Action::Extend { lease_ms, name: None });
            requests.extend(names().map(|name| Request::extend_named(owner, lease_ms, name)));
        }
        for fence in fences {
            requests.extend(fenced.iter().map(|&action| Request { owner, action, fence }));
        }
    }
    requests
}

impl State {
    fn is_small(&self) -> bool {
        self.holders
            .iter()
            .all(|part| part.unnamed as usize + part.names.len() <= MAX_HOLDS)
    }

    fn live(&self) -> impl Iterator<Item = &Part> {
        self.holders.iter().filter(|part| part.ticks > 0)
    }

    fn a_tick_later(&self) -> Self {
        let mut later = self.clone();
        later.grace_ticks = later.grace_ticks.saturating_sub(1);
        for part in &mut later.holders {
            part.ticks = part.ticks.saturating_sub(1);
        }
        later
    }

    /// Live leases last at least until the end of the grace period.
    fn with_grace(&self, ticks: u8) -> Self {
        let mut state = self.clone();
        state.grace_ticks = state.grace_ticks.max(ticks);
        for part in state.holders.iter_mut().filter(|part| part.ticks > 0) {
            part.ticks = part.ticks.max(state.grace_ticks);
        }
        state
    }

    /// A server in this state, its clock at `origin`, with leases that end this many ticks later.
    fn server(&self, origin: Micros, later: u8) -> Server {
        let mut server = Server::new(1, origin);
        server.engine = Engine::starting();
        let now = server.cx.now;
        if self.grace_ticks > 0 {
            // A lease that has expired by now had expired when the grace period began.
            server.cx.grace_begin = now;
            server.cx.grace_end = Instant::from_micros(origin + Micros::from(self.grace_ticks) * TICK);
        }
        for (owner, part) in (0..).zip(&self.holders) {
            let lease_end = now.after_ms(u64::from(part.ticks + later));
            let (owner, fence) = (owner_bytes(owner), fence_of(owner));
            let mut holder = Holder::new(owner, core_limit(part.limit), fence, now, lease_end);
            holder.add_anonymous(part.unnamed).expect("few holds");
            for name in &part.names {
                holder.add_with_id(&name_bytes(*name)).expect("few ids");
            }
            server.locks[0].1.push(holder);
            server.engine.fences.observe(fence);
        }
        server
    }

    fn model(&self) -> Model {
        let holder = |(owner, part): (u8, &Part)| naive::Holder {
            owner,
            fence: fence_of(owner),
            limit: part.limit,
            since: 0,
            lease_end: Micros::from(part.ticks) * TICK,
            holds: (0..part.unnamed)
                .map(|_| None)
                .chain(part.names.iter().copied().map(Some))
                .collect(),
        };
        let grace_end = (self.grace_ticks > 0).then(|| Micros::from(self.grace_ticks) * TICK);
        let holders: Vec<_> = (0..).zip(&self.holders).map(holder).collect();
        Model {
            grace_end,
            last_fence: holders.len() as u64,
            locks: vec![naive::Lock {
                holders,
                queue: Vec::new(),
            }],
            ..Model::default()
        }
    }

    fn of(server: &Server) -> Self {
        let cx = &server.cx;
        let part = |holder: &Holder| Part {
            limit: holder.limit().get(),
            unnamed: holder.anonymous(),
            names: holder
                .request_ids()
                .iter()
                .filter_map(|name| name.last().copied())
                .collect(),
            ticks: cx.lease_ms(holder) as u8,
        };
        Self {
            holders: server.locks[0].1.holders().iter().map(part).collect(),
            grace_ticks: cx.now.ms_until(cx.grace_end) as u8,
        }
    }
}

fn fence_of(owner: u8) -> u64 {
    u64::from(owner) + 1
}

/// The largest number of live holders in any of these states.
fn most_holders(states: &HashSet<State>) -> Option<usize> {
    states.iter().map(|state| state.live().count()).max()
}

#[test]
fn mutex_has_one_holder_in_every_reachable_state() {
    let states = search(&Alphabet {
        limits: &[Some(1)],
        names: &[0, 1],
        graces: &[1, 2],
    });
    assert_eq!(most_holders(&states), Some(1));
}

#[test]
fn semaphore_of_two_has_two_holders_in_every_reachable_state() {
    let states = search(&Alphabet {
        limits: &[Some(2)],
        names: &[0, 1],
        graces: &[2],
    });
    assert_eq!(most_holders(&states), Some(2));
}

#[test]
fn shared_lock_can_be_held_by_all_owners() {
    let states = search(&Alphabet {
        limits: &[None],
        names: &[],
        graces: &[1, 2],
    });
    assert_eq!(most_holders(&states), Some(3));
}

#[test]
fn mixed_limits_keep_smallest_limit_in_every_reachable_state() {
    let states = search(&Alphabet {
        limits: &[Some(1), Some(2), None],
        names: &[0],
        graces: &[2],
    });
    let within = |state: &State| {
        let holders = state.live().count();
        state
            .live()
            .filter_map(|part| part.limit)
            .all(|limit| holders as u32 <= limit)
    };
    assert!(states.iter().all(within));
    assert_eq!(most_holders(&states), Some(3));
}
