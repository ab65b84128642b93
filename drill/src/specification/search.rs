//! Looks for a run of the specification with the recorded replies: for a linearization, in which calls take effect one
//! after the other, each between its sending and its reply (Wing and Gong 1993). No state is visited twice (Lowe 2017),
//! and those come first that explain the most replies with the fewest assumptions.

use std::cmp::Ordering;
use std::collections::{BTreeSet, BinaryHeap, HashSet};

use super::call::Call;
use super::steps::{State, Steps};

/// States to visit before the search gives up.
const MAX_STATES: usize = 100_000;
/// An explained reply makes up for so many of the things that are assumed.
const REPLY: usize = 4;
/// How much it is to assume that a request without a reply has arrived.
const ARRIVAL: usize = 6;

/// What the search has found.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    Run,
    /// None, after all. In the run that comes furthest, these calls are next, by their indexes in the history.
    NoRun(Vec<usize>),
    /// It has given up.
    Undecided,
}

/// A state that was reached.
#[derive(PartialEq, Eq)]
struct Reached {
    state: State,
    assumed: usize,
    /// What comes next is a request without a reply.
    is_late: bool,
}

/// Looks for a run. `taken`: the fences of other locks with the same counter.
pub fn search(calls: Vec<Call<'_>>, taken: BTreeSet<u64>) -> Found {
    let steps = Steps::new(calls, taken);
    let Some(start) = steps.start() else {
        return Found::Run;
    };
    let mut furthest = start.clone();
    let mut visited = HashSet::new();
    let mut next = BinaryHeap::from([Reached::new(start, 0)]);
    while let Some(Reached {
        state,
        assumed,
        is_late,
    }) = next.pop()
    {
        if is_late {
            let arrivals = steps.late_arrivals(&state).into_iter();
            next.extend(arrivals.map(|state| Reached::new(state, assumed)));
            continue;
        }
        if steps.are_done(&state) {
            return Found::Run;
        }
        if visited.len() == MAX_STATES {
            return Found::Undecided;
        }
        if !visited.insert(state.clone()) {
            continue;
        }
        if state.replies() > furthest.replies() {
            furthest.clone_from(&state);
        }
        let likely = steps.likely(&state).into_iter();
        next.extend(likely.map(|state| Reached::new(state, assumed)));
        let unlikely = steps.unlikely(&state).into_iter();
        next.extend(unlikely.map(|state| Reached::new(state, assumed + 1)));
        next.push(Reached {
            is_late: true,
            ..Reached::new(state, assumed + ARRIVAL)
        });
    }
    Found::NoRun(steps.next_of(&furthest))
}

impl Reached {
    fn new(state: State, assumed: usize) -> Self {
        Self {
            state,
            assumed,
            is_late: false,
        }
    }
}

/// The best one is the largest.
impl Ord for Reached {
    fn cmp(&self, other: &Self) -> Ordering {
        let left = REPLY * self.state.replies() + other.assumed;
        left.cmp(&(REPLY * other.state.replies() + self.assumed))
    }
}

impl PartialOrd for Reached {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
