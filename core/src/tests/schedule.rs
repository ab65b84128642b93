//! Random schedules: requests, disconnects, time, and events of locks and of the server.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::RngAlgorithm;

use super::ops::{Action, Answer, Block, Limit, Micros, Request};

const OWNERS: u8 = 5;
const NAMES: u8 = 3;
/// The number of locks in schedules with waiters.
pub const LOCKS: usize = 3;
/// The largest number of steps in a schedule.
pub const MAX_STEPS: usize = 70;

#[derive(Clone, Copy, Debug)]
pub enum Step {
    Ask {
        lock: usize,
        owner: u8,
        action: Action,
        given: GivenFence,
        block: Block,
    },
    /// Time passes, and no timer fires.
    Pass(Pass),
    /// Expired holders are removed from a lock without waiters.
    Expire,
    /// The timers of all due locks fire.
    FireTimers,
    /// A client that waits for this lock (its index wraps) disconnects.
    Disconnect {
        lock: usize,
        place: usize,
    },
    /// The client of the next grant to a waiter disconnects before the grant reaches it.
    LoseNextGrant,
    Admin(Admin),
    /// A grace period starts: waiters are sent away.
    Grace(u64),
    /// The server restarts from what it stored; its clock has another origin.
    Restart {
        grace_ms: u64,
        origin: Micros,
    },
    /// A replica that never received the last `lost` records becomes the primary.
    Promotion {
        grace_ms: u64,
        lost: usize,
    },
    /// Whether the server may evict locks.
    Evictable(bool),
    /// Whether the server may not grant: paused clients, too few replicas, a full disk.
    GrantsPaused(bool),
    DetectDeadlocks(bool),
}

/// Commands of an administrator.
#[derive(Clone, Copy, Debug)]
pub enum Admin {
    Delete(usize),
    Rename {
        from: usize,
        to: usize,
    },
    /// Keeps the value for a RESTORE.
    Dump(usize),
    Restore(usize),
    /// SET and DEL: for a moment the key has another type, and waiters get an error.
    OtherType(usize),
}

/// The fence that an owner gives with a request.
#[derive(Clone, Copy, Debug)]
pub enum GivenFence {
    None,
    /// Of its latest grant: valid as long as that lasts.
    Latest,
    /// Of the grant before.
    Earlier,
    /// Of the latest grant of another owner.
    Foreign,
}

/// How time passes. Never backwards: a past target means now.
#[derive(Clone, Copy, Debug)]
pub enum Pass {
    Micros(Micros),
    /// To the end of the lease of a live holder (its index wraps), or a microsecond before or after.
    ToLeaseEnd {
        holder: usize,
        offset: Micros,
    },
    ToGraceEnd {
        offset: Micros,
    },
    /// To the next time at which a lock changes without a request, or a microsecond before or after.
    ToChange {
        lock: usize,
        offset: Micros,
    },
}

impl Pass {
    /// `next_change`: when the given lock changes without a request.
    pub fn target(
        self,
        now: Micros,
        lease_ends: &[Micros],
        grace_end: Option<Micros>,
        next_change: impl FnOnce(usize) -> Option<Micros>,
    ) -> Micros {
        let target = match self {
            Self::Micros(micros) => now + micros,
            Self::ToLeaseEnd { .. } if lease_ends.is_empty() => now,
            Self::ToLeaseEnd { holder, offset } => lease_ends[holder % lease_ends.len()] + offset,
            Self::ToGraceEnd { offset } => grace_end.map_or(now, |end| end + offset),
            Self::ToChange { lock, offset } => next_change(lock).unwrap_or(now) + offset,
        };
        target.max(now)
    }
}

/// All fences of the grants of a lock, newest last.
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

    /// Whether a fence is above all earlier ones, or one of this owner's own.
    pub fn may_be_granted(&self, owner: u8, fence: u64) -> bool {
        let above_all = self.grants.iter().all(|grant| grant.1 < fence);
        above_all || self.grants.contains(&(owner, fence))
    }

    /// The request with the fence that its owner gives. If there is none it gives 1, which no grant ever has.
    pub fn request(&self, owner: u8, action: Action, given: GivenFence) -> Request {
        let newest_first = || self.grants.iter().rev();
        let fence = match given {
            GivenFence::None => {
                return Request {
                    owner,
                    action,
                    fence: None,
                };
            }
            GivenFence::Latest => newest_first().find(|grant| grant.0 == owner),
            GivenFence::Earlier => newest_first().filter(|grant| grant.0 == owner).nth(1),
            GivenFence::Foreign => newest_first().find(|grant| grant.0 != owner),
        };
        Request {
            owner,
            action,
            fence: Some(fence.map_or(1, |grant| grant.1)),
        }
    }
}

/// This many random cases. Failures are not kept in a file: the printed schedule is enough to write a test.
pub fn config(cases: u32) -> ProptestConfig {
    ProptestConfig {
        // Miri is hundreds of times slower and checks for other faults.
        cases: if cfg!(miri) { 2 } else { cases },
        failure_persistence: None,
        // The default generator takes most of the time of an unoptimized build.
        rng_algorithm: RngAlgorithm::XorShift,
        ..ProptestConfig::default()
    }
}

/// What the requests of a schedule are like.
#[derive(Clone, Copy, Debug)]
pub struct Profile {
    pub locks: usize,
    pub owners: u8,
    pub names: u8,
    pub limits: &'static [Limit],
    /// The longest of nearly all leases, and the longest of all.
    pub lease_ms: u64,
    pub max_lease_ms: u64,
    /// How many of a hundred ACQUIREs block, and how many of these have no timeout.
    pub block: u32,
    pub infinite: u32,
    /// How often something happens to locks and server, besides requests, disconnects and time.
    pub faults: u32,
}

pub const MUTEXES: Profile = Profile {
    locks: LOCKS,
    owners: OWNERS,
    names: 2,
    limits: &[Some(1)],
    lease_ms: 30,
    max_lease_ms: 30,
    block: 70,
    infinite: 40,
    faults: 8,
};

pub const SEMAPHORES: Profile = Profile {
    limits: &[Some(2)],
    ..MUTEXES
};

pub const READERS_AND_WRITERS: Profile = Profile {
    limits: &[Some(1), None, None],
    ..MUTEXES
};

pub const MIXED: Profile = Profile {
    limits: &[Some(1), Some(2), Some(3), None],
    ..MUTEXES
};

/// Every owner waits for every lock, so deadlocks are frequent.
pub const DEADLOCKING: Profile = Profile {
    limits: &[Some(1), Some(1), Some(2), None],
    lease_ms: 300,
    max_lease_ms: 300,
    block: 95,
    infinite: 90,
    faults: 2,
    ..MUTEXES
};

/// One lock, and no request blocks.
const SINGLE: Profile = Profile {
    locks: 1,
    owners: 4,
    names: NAMES,
    limits: &[],
    lease_ms: 20,
    max_lease_ms: 2_000,
    block: 0,
    infinite: 0,
    faults: 7,
};

/// Several locks with waiters.
pub fn queue_schedules() -> impl Strategy<Value = Vec<Step>> {
    prop_oneof![
        1 => queue_schedule(MUTEXES),
        1 => queue_schedule(SEMAPHORES),
        1 => queue_schedule(READERS_AND_WRITERS),
        2 => queue_schedule(MIXED),
        1 => queue_schedule(DEADLOCKING),
    ]
}

pub fn queue_schedule(profile: Profile) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        70 => ask(profile),
        10 => pass(profile).prop_map(Step::Pass),
        6 => Just(Step::FireTimers),
        4 => (0..LOCKS, 0_usize..4).prop_map(|(lock, place)| Step::Disconnect { lock, place }),
        2 => Just(Step::LoseNextGrant),
        profile.faults => queue_fault(),
    ];
    vec(step, 1..60)
}

/// One lock without waiters, on a server that restarts and fails over. Requests for the same limit and for
/// several: with mixed limits alone, a lock would rarely be full.
pub fn single_lock_schedules() -> impl Strategy<Value = Vec<Step>> {
    prop_oneof![
        2 => single_lock_schedule(&[Some(1)]),
        2 => single_lock_schedule(&[Some(2)]),
        2 => single_lock_schedule(&[None]),
        2 => single_lock_schedule(&[Some(2), Some(3), None]),
        3 => single_lock_schedule(&[Some(1), Some(2), Some(3), Some(i32::MAX as u32), None]),
    ]
}

fn single_lock_schedule(limits: &'static [Limit]) -> impl Strategy<Value = Vec<Step>> {
    let profile = Profile { limits, ..SINGLE };
    let step = prop_oneof![
        60 => ask(profile),
        25 => pass(profile).prop_map(Step::Pass),
        4 => Just(Step::Expire),
        profile.faults => server_fault(),
    ];
    vec(step, 1..MAX_STEPS)
}

fn ask(profile: Profile) -> impl Strategy<Value = Step> {
    let request = (action(profile), given_fence(), block(profile));
    (0..profile.locks, 0..profile.owners, request).prop_map(|(lock, owner, (action, given, block))| {
        Step::Ask {
            lock,
            owner,
            action,
            given,
            block,
        }
    })
}

fn action(profile: Profile) -> impl Strategy<Value = Action> {
    let lease_ms = move || prop_oneof![8 => 1..=profile.lease_ms, 1 => 1..=profile.max_lease_ms];
    prop_oneof![
        9 => (lease_ms(), select(profile.limits), option::weighted(0.35, 0..profile.names))
            .prop_map(|(lease_ms, limit, name)| Action::Acquire { lease_ms, limit, name }),
        3 => Just(Action::ReleaseOne),
        1 => Just(Action::ReleaseAll),
        2 => (0..profile.names).prop_map(Action::ReleaseNamed),
        2 => (lease_ms(), option::weighted(0.3, 0..profile.names))
            .prop_map(|(lease_ms, name)| Action::Extend { lease_ms, name }),
    ]
}

fn block(Profile { block, infinite, .. }: Profile) -> impl Strategy<Value = Block> {
    let percent = || 0_u32..100;
    (percent(), percent(), 1_u64..25).prop_map(move |(blocks, times_out, ms)| match () {
        () if blocks < 100 - block => Block::No,
        () if times_out < infinite => Block::Infinite,
        () => Block::Ms(ms),
    })
}

fn given_fence() -> impl Strategy<Value = GivenFence> {
    prop_oneof![
        5 => Just(GivenFence::None),
        4 => Just(GivenFence::Latest),
        1 => Just(GivenFence::Earlier),
        1 => Just(GivenFence::Foreign),
    ]
}

fn pass(profile: Profile) -> impl Strategy<Value = Pass> {
    let offset = || -1_i64..=1;
    prop_oneof![
        1 => Just(Pass::Micros(1)),
        3 => (0_i64..3_000).prop_map(Pass::Micros),
        3 => (0_i64..30_000).prop_map(Pass::Micros),
        3 => (0_usize..4, offset()).prop_map(|(holder, offset)| Pass::ToLeaseEnd { holder, offset }),
        1 => offset().prop_map(|offset| Pass::ToGraceEnd { offset }),
        4 => (0..profile.locks, offset()).prop_map(|(lock, offset)| Pass::ToChange { lock, offset }),
    ]
}

fn server_fault() -> impl Strategy<Value = Step> {
    let grace_ms = || prop_oneof![2 => Just(0), 1 => 1_u64..40];
    prop_oneof![
        2 => (grace_ms(), -1_000_000_000_i64..1_000_000_000)
            .prop_map(|(grace_ms, origin)| Step::Restart { grace_ms, origin }),
        2 => (grace_ms(), prop_oneof![2 => Just(0), 1 => 1_usize..6])
            .prop_map(|(grace_ms, lost)| Step::Promotion { grace_ms, lost }),
        1 => any::<bool>().prop_map(Step::Evictable),
    ]
}

fn queue_fault() -> impl Strategy<Value = Step> {
    let lock = || 0..LOCKS;
    prop_oneof![
        2 => lock().prop_map(|lock| Step::Admin(Admin::Delete(lock))),
        2 => (lock(), lock()).prop_map(|(from, to)| Step::Admin(Admin::Rename { from, to })),
        2 => lock().prop_map(|lock| Step::Admin(Admin::Dump(lock))),
        2 => lock().prop_map(|lock| Step::Admin(Admin::Restore(lock))),
        1 => lock().prop_map(|lock| Step::Admin(Admin::OtherType(lock))),
        2 => (1_u64..30).prop_map(Step::Grace),
        1 => any::<bool>().prop_map(Step::Evictable),
        2 => any::<bool>().prop_map(Step::GrantsPaused),
        1 => any::<bool>().prop_map(Step::DetectDeadlocks),
    ]
}
