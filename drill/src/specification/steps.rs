//! What may happen next in a run that agrees with the recorded calls.

use std::collections::{BTreeMap, BTreeSet};

use super::call::{Assumed, Call, Progress, ROUNDING};
use super::lock::{Lock, Moment, Reply, Span};
use crate::history::{Micros, Request, ServerTerm, Wait};

/// The calls about one lock, and what is known from all of them.
pub struct Steps<'a> {
    /// In the order of sending.
    calls: Vec<Call<'a>>,
    certain: Vec<usize>,
    uncertain: Vec<usize>,
    /// ACQUIREs whose owners do nothing else afterwards: it does not matter which of them took effect.
    anonymous: BTreeSet<usize>,
    /// The fences of the lock with their owners, and all that are not for grants without a reply.
    fences: BTreeMap<u64, &'a str>,
    taken: BTreeSet<u64>,
    /// The shortest lease and the longest one.
    leases: Span,
}

/// How far a run has come.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    lock: Lock,
    server: ServerTerm,
    /// It is not earlier.
    time: Micros,
    /// So many of the certain calls have their replies, and of the others these.
    first: usize,
    done: BTreeSet<usize>,
    /// Uncertain calls that have arrived, among those that still could.
    arrived: BTreeSet<usize>,
}

impl<'a> Steps<'a> {
    pub fn new(mut calls: Vec<Call<'a>>, mut taken: BTreeSet<u64>) -> Self {
        calls.sort_by_key(|call| call.op.sent);
        let (certain, uncertain) = (0..calls.len()).partition(|call| calls[*call].is_certain);
        let granted = calls
            .iter()
            .filter_map(|call| Some((call.fence()?, &*call.op.owner)));
        let fences: BTreeMap<u64, &str> = granted.collect();
        taken.extend(fences.keys());
        Self {
            certain,
            uncertain,
            anonymous: anonymous(&calls),
            fences,
            taken,
            leases: leases(&calls),
            calls,
        }
    }

    /// `None`: there are no calls.
    pub fn start(&self) -> Option<State> {
        Some(State {
            server: self.calls.first()?.op.server,
            lock: Lock::default(),
            time: 0,
            first: 0,
            done: BTreeSet::new(),
            arrived: BTreeSet::new(),
        })
    }

    /// Whether all calls that have replies have them.
    pub fn are_done(&self, state: &State) -> bool {
        state.first == self.certain.len()
    }

    /// The calls that are next, by their indexes in the history.
    pub fn next_of(&self, state: &State) -> Vec<usize> {
        let (open, _) = self.open(state);
        open.into_iter().map(|call| self.calls[call].n).collect()
    }

    /// A call arrives, or the server does what is due.
    pub fn likely(&self, state: &State) -> Vec<State> {
        let (open, by) = self.open(state);
        let mut arriving: Vec<usize> = open.into_iter().filter(|call| !state.waits(*call)).collect();
        arriving.sort_by_key(|call| self.calls[*call].arrives_by);
        let arriving = arriving.into_iter();
        let arrivals = arriving.filter_map(|call| self.arrival(state, call, Assumed::default(), by));
        arrivals.chain(self.timer(state, by)).collect()
    }

    /// A lease ends, or a waiter leaves.
    pub fn unlikely(&self, state: &State) -> Vec<State> {
        let (_, by) = self.open(state);
        let holders = 0..state.lock.holders.len();
        let ends = holders.filter_map(|holder| state.without_holder(holder, by));
        let waiters = state.lock.queue.iter().map(|waiter| waiter.call);
        let leaving = waiters.filter(|call| self.calls[*call].may_leave());
        ends.chain(leaving.map(|call| self.without_waiter(state, call)))
            .collect()
    }

    /// A call without a reply arrives.
    pub fn late_arrivals(&self, state: &State) -> Vec<State> {
        let (_, by) = self.open(state);
        let uncertain = self.uncertain.iter().copied();
        let mut late: Vec<usize> = uncertain
            .filter(|call| self.can_arrive(state, *call, by))
            .collect();
        // Of equal ones, that which must arrive first.
        late.sort_by_key(|call| self.calls[*call].arrives_by);
        let mut kinds = BTreeSet::new();
        late.retain(|call| {
            let acquire = self.calls[*call].op.acquire();
            let anonymous = acquire.filter(|_| self.anonymous.contains(call));
            anonymous.is_none_or(|acquire| kinds.insert((acquire.limit, acquire.wait == Wait::No)))
        });
        late.into_iter()
            .flat_map(|call| self.late_arrival(state, call, by))
            .collect()
    }

    /// The certain calls that are next, and by when something happens to one of them: it arrives, or it has its reply.
    fn open(&self, state: &State) -> (Vec<usize>, Micros) {
        let mut by = Micros::MAX;
        let mut open = Vec::new();
        for call in &self.certain[state.first..] {
            let next = &self.calls[*call];
            if next.op.sent > by {
                break;
            }
            if !state.done.contains(call) {
                by = by.min(if state.waits(*call) {
                    next.op.replied
                } else {
                    next.arrives_by
                });
                open.push(*call);
            }
        }
        open.retain(|call| self.calls[*call].op.sent <= by);
        (open, by)
    }

    fn arrival(&self, state: &State, call: usize, assumed: Assumed, by: Micros) -> Option<State> {
        let arriving = &self.calls[call];
        let now = Span {
            from: state.time.max(arriving.op.sent),
            to: by.min(arriving.arrives_by),
        };
        let mut next = state.clone();
        next.move_to(arriving.op.server, now, self.leases);
        let is_over = |until: Span| until.to + ROUNDING < now.from;
        if now.from > now.to || next.lock.holders.iter().any(|holder| is_over(holder.until)) {
            return None;
        }
        let mut moment = self.moment(now);
        let progress = arriving.arrive(call, assumed, &mut next.lock, &mut moment)?;
        if progress == Progress::Waits && !next.can_be_granted_in_order() {
            return None;
        }
        next.time = now.from;
        if !arriving.is_certain {
            next.arrived.insert(call);
        } else if progress == Progress::Done {
            next.done.insert(call);
        }
        self.tell(next, moment)
    }

    /// What changes nothing is left out.
    fn late_arrival(&self, state: &State, call: usize, by: Micros) -> Vec<State> {
        let is_anonymous = self.anonymous.contains(&call);
        let lease = is_anonymous.then_some(self.leases);
        let owner = &*self.calls[call].op.owner;
        let mut later = self.fences.range(state.lock.fence + 1..);
        // A repeated request may tell the fence.
        let own = later.find(|(_, granted)| **granted == owner && !is_anonymous);
        let fences = [None].into_iter().chain(own.map(|(fence, _)| Some(*fence)));
        let arrivals = fences.filter_map(|fence| self.arrival(state, call, Assumed { fence, lease }, by));
        arrivals.filter(|next| next.lock != state.lock).collect()
    }

    fn can_arrive(&self, state: &State, call: usize, by: Micros) -> bool {
        let Call { op, arrives_by, .. } = &self.calls[call];
        let is_in_time = op.sent <= by && state.time <= *arrives_by;
        // Only an owner that holds the lock or waits for it can change it by something else.
        is_in_time && !state.arrived.contains(&call) && (op.acquire().is_some() || state.knows(&op.owner))
    }

    fn timer(&self, state: &State, by: Micros) -> Option<State> {
        let now = Span {
            from: state.time,
            to: by,
        };
        let mut next = state.clone();
        let mut moment = self.moment(now);
        next.lock.settle(&mut moment)?;
        self.tell(next, moment).filter(|next| next.lock != state.lock)
    }

    fn without_waiter(&self, state: &State, call: usize) -> State {
        let mut next = state.clone();
        next.lock.queue.retain(|waiter| waiter.call != call);
        if self.calls[call].is_certain {
            next.done.insert(call);
        }
        self.tidy(next)
    }

    /// Waiters have their replies. `None`: they had others.
    fn tell(&self, mut next: State, moment: Moment<'_>) -> Option<State> {
        for (call, reply) in moment.told {
            let told = &self.calls[call];
            told.hear(&reply, moment.now)?;
            if let Reply::Granted { fence, .. } = reply {
                let mut holders = next.lock.holders.iter_mut();
                let holder = holders.find(|holder| holder.fence == fence);
                holder
                    .into_iter()
                    .for_each(|holder| told.learn(&mut holder.until));
            }
            if told.is_certain {
                next.done.insert(call);
            }
        }
        Some(self.tidy(next))
    }

    /// Equal states look the same.
    fn tidy(&self, mut state: State) -> State {
        while let Some(call) = self.certain.get(state.first)
            && state.done.remove(call)
        {
            state.first += 1;
        }
        let time = state.time;
        state.arrived.retain(|call| time <= self.calls[*call].arrives_by);
        state
    }

    fn moment(&self, now: Span) -> Moment<'_> {
        Moment {
            now,
            next_fence: Box::new(|last| self.fence_after(last)),
            told: Vec::new(),
        }
    }

    /// A fence between this one and the next one of the lock that is known, for a grant without a reply.
    fn fence_after(&self, last: u64) -> Option<u64> {
        let next = self.fences.range(last + 1..).next();
        let mut between = last + 1..next.map_or(u64::MAX, |(fence, _)| *fence);
        between.find(|fence| !self.taken.contains(fence))
    }
}

impl State {
    /// How many calls have their replies.
    pub fn replies(&self) -> usize {
        self.first + self.done.len()
    }

    fn waits(&self, call: usize) -> bool {
        self.lock.queue.iter().any(|waiter| waiter.call == call)
    }

    /// Waiters are granted the lock in order, so those fences that are known rise.
    fn can_be_granted_in_order(&self) -> bool {
        let waiters = self.lock.queue.iter();
        let mut fences = waiters.filter_map(|waiter| waiter.fence.filter(|fence| *fence > self.lock.fence));
        let mut last = 0;
        fences.all(|fence| std::mem::replace(&mut last, fence) <= fence)
    }

    fn knows(&self, owner: &str) -> bool {
        let holders = self.lock.holders.iter().map(|holder| &holder.owner);
        let mut owners = holders.chain(self.lock.queue.iter().map(|waiter| &waiter.owner));
        owners.any(|known| **known == *owner)
    }

    fn without_holder(&self, holder: usize, by: Micros) -> Option<Self> {
        let mut next = self.clone();
        let ended = next.lock.holders.remove(holder);
        (ended.until.from <= by.saturating_add(ROUNDING)).then_some(next)
    }

    /// Another process or server has the lock now, where leases may last longer, but not less.
    fn move_to(&mut self, server: ServerTerm, now: Span, leases: Span) {
        if self.server != server {
            self.server = server;
            let longest = now.after(leases).to;
            let leases = self.lock.holders.iter_mut().map(|holder| &mut holder.until);
            leases.for_each(|until| until.to = until.to.max(longest));
        }
    }
}

fn anonymous(calls: &[Call<'_>]) -> BTreeSet<usize> {
    let by_owner = calls.iter().enumerate().map(|(n, call)| (&*call.op.owner, n));
    let last: BTreeMap<&str, usize> = by_owner.collect();
    let is_anonymous = |call: &Call<'_>| call.op.acquire().is_some() && call.op.reply.is_unknown();
    last.into_values()
        .filter(|call| is_anonymous(&calls[*call]))
        .collect()
}

fn leases(calls: &[Call<'_>]) -> Span {
    let leases = calls.iter().filter_map(|call| match &call.op.request {
        Request::Acquire(acquire) => Some(acquire.lease_ms),
        Request::Extend { lease_ms, .. } => Some(*lease_ms),
        _ => None,
    });
    Span {
        from: Span::of_ms(leases.clone().min().unwrap_or_default()).from,
        to: Span::of_ms(leases.max().unwrap_or_default()).to,
    }
}
