//! Random schedules for one lock: who asks what, how time passes, and what befalls the server.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::RngAlgorithm;

use super::ops::{Action, Answer, Limit, Micros, Request};

const OWNERS: u8 = 4;
const NAMES: u8 = 3;

#[derive(Clone, Copy, Debug)]
pub enum Step {
    Ask {
        owner: u8,
        action: Action,
        told: Told,
    },
    Pass(Pass),
    Sweep,
    /// The server starts again from what it had stored, with its clock at another origin.
    Restart {
        grace_ms: u64,
        origin: Micros,
    },
    /// A replica takes over, which never got the last so many records.
    Promotion {
        grace_ms: u64,
        lost: usize,
    },
    /// The server may, or may not any more, evict locks.
    Evictable(bool),
}

/// Which fence an owner gives with a request.
#[derive(Clone, Copy, Debug)]
pub enum Told {
    None,
    /// The one of its latest grant: right while that lasts.
    Latest,
    /// The one of the grant before.
    Earlier,
    /// The latest that anybody else was given.
    Foreign,
}

/// How time passes. Never backwards: an instant that is over is now.
#[derive(Clone, Copy, Debug)]
pub enum Pass {
    Micros(Micros),
    /// To the end of a live holder's lease (its index wraps), or a microsecond before or after.
    ToLeaseEnd {
        holder: usize,
        offset: Micros,
    },
    ToGraceEnd {
        offset: Micros,
    },
}

impl Pass {
    pub fn target(self, now: Micros, lease_ends: &[Micros], grace_end: Option<Micros>) -> Micros {
        let target = match self {
            Self::Micros(micros) => now + micros,
            Self::ToLeaseEnd { .. } if lease_ends.is_empty() => now,
            Self::ToLeaseEnd { holder, offset } => lease_ends[holder % lease_ends.len()] + offset,
            Self::ToGraceEnd { offset } => grace_end.map_or(now, |end| end + offset),
        };
        target.max(now)
    }
}

/// What the owners remember: all fences that they were given, newest last.
#[derive(Debug, Default)]
pub struct Memory {
    grants: Vec<(u8, u64)>,
}

impl Memory {
    pub fn note(&mut self, owner: u8, answer: &Answer) {
        match *answer {
            Answer::Granted { fence, .. } if !self.grants.contains(&(owner, fence)) => {
                self.grants.push((owner, fence));
            }
            _ => {}
        }
    }

    /// Whether a fence is above all that anybody was given before, or this owner's own.
    pub fn may_be_given(&self, owner: u8, fence: u64) -> bool {
        let above_all = self.grants.iter().all(|grant| grant.1 < fence);
        above_all || self.grants.contains(&(owner, fence))
    }

    /// The request with the fence that its owner would give. Without a memory of one it gives 1, which no
    /// schedule ever reaches.
    pub fn request(&self, owner: u8, action: Action, told: Told) -> Request {
        let newest_first = || self.grants.iter().rev();
        let fence = match told {
            Told::None => {
                return Request {
                    owner,
                    action,
                    fence: None,
                };
            }
            Told::Latest => newest_first().find(|grant| grant.0 == owner),
            Told::Earlier => newest_first().filter(|grant| grant.0 == owner).nth(1),
            Told::Foreign => newest_first().find(|grant| grant.0 != owner),
        };
        Request {
            owner,
            action,
            fence: Some(fence.map_or(1, |grant| grant.1)),
        }
    }
}

/// So many random cases, and no file about those that fail: what is printed is enough to write a test.
pub fn config(cases: u32) -> ProptestConfig {
    ProptestConfig {
        // Miri is hundreds of times slower, and looks for other faults.
        cases: if cfg!(miri) { 2 } else { cases },
        failure_persistence: None,
        // The default one takes most of the time where nothing is optimized.
        rng_algorithm: RngAlgorithm::XorShift,
        ..ProptestConfig::default()
    }
}

/// Schedules in which all ask for the same kind of lock, and mixed ones: in a mix alone the limits would
/// rarely let a lock fill up.
pub fn schedule() -> impl Strategy<Value = Vec<Step>> {
    prop_oneof![
        2 => schedule_with(&[Some(1)]),
        2 => schedule_with(&[Some(2)]),
        2 => schedule_with(&[None]),
        2 => schedule_with(&[Some(2), Some(3), None]),
        3 => schedule_with(&[Some(1), Some(2), Some(3), Some(i32::MAX as u32), None]),
    ]
}

fn schedule_with(limits: &'static [Limit]) -> impl Strategy<Value = Vec<Step>> {
    vec(step(limits), 1..70)
}

fn step(limits: &'static [Limit]) -> impl Strategy<Value = Step> {
    let grace_ms = || prop_oneof![2 => Just(0), 1 => 1_u64..40];
    prop_oneof![
        60 => (0..OWNERS, action(limits), told())
            .prop_map(|(owner, action, told)| Step::Ask { owner, action, told }),
        25 => pass().prop_map(Step::Pass),
        4 => Just(Step::Sweep),
        2 => (grace_ms(), -1_000_000_000_i64..1_000_000_000)
            .prop_map(|(grace_ms, origin)| Step::Restart { grace_ms, origin }),
        2 => (grace_ms(), prop_oneof![2 => Just(0), 1 => 1_usize..6])
            .prop_map(|(grace_ms, lost)| Step::Promotion { grace_ms, lost }),
        1 => any::<bool>().prop_map(Step::Evictable),
    ]
}

fn action(limits: &'static [Limit]) -> impl Strategy<Value = Action> {
    prop_oneof![
        8 => (lease_ms(), select(limits), option::weighted(0.4, 0..NAMES))
            .prop_map(|(lease_ms, limit, name)| Action::Acquire { lease_ms, limit, name }),
        3 => Just(Action::ReleaseOne),
        1 => Just(Action::ReleaseAll),
        2 => (0..NAMES).prop_map(Action::ReleaseNamed),
        3 => lease_ms().prop_map(|lease_ms| Action::Extend { lease_ms }),
    ]
}

fn told() -> impl Strategy<Value = Told> {
    prop_oneof![
        5 => Just(Told::None),
        4 => Just(Told::Latest),
        1 => Just(Told::Earlier),
        1 => Just(Told::Foreign),
    ]
}

fn lease_ms() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 1_u64..20, 1 => 1_u64..2_000]
}

fn pass() -> impl Strategy<Value = Pass> {
    prop_oneof![
        1 => Just(Pass::Micros(1)),
        3 => (0_i64..3_000).prop_map(Pass::Micros),
        3 => (0_i64..15_000).prop_map(Pass::Micros),
        4 => (0_usize..4, -1_i64..=1).prop_map(|(holder, offset)| Pass::ToLeaseEnd { holder, offset }),
        1 => (-1_i64..=1).prop_map(|offset| Pass::ToGraceEnd { offset }),
    ]
}
