//! Random schedules of steps.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::RngAlgorithm;

use crate::fence::Fence;
use crate::names::Limit;
use crate::testing::{self, Admin, GivenFence, OWNERS, Pass, Request, Step};
use crate::wire::{Acquire, Extend, GrantRef, Holds, Release, Timeout};

const IDS: [&[u8]; 3] = [b"r0", b"r1", b"r2"];
/// The number of locks in schedules with waiters.
pub const LOCKS: usize = 3;
/// The largest number of steps in a schedule.
const MAX_STEPS: usize = 70;

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
    pub owners: usize,
    pub ids: usize,
    /// `None` = SHARED.
    pub limits: &'static [Option<u32>],
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
    owners: OWNERS.len(),
    ids: 2,
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
    ids: IDS.len(),
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
        3 => single_lock_schedule(&[Some(1), Some(2), Some(3), Some(Limit::MAX), None]),
    ]
}

fn single_lock_schedule(limits: &'static [Option<u32>]) -> impl Strategy<Value = Vec<Step>> {
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
    let step = (0..profile.locks, request(profile), given_fence());
    step.prop_map(|(lock, request, given)| Step::Ask { lock, request, given })
}

fn request(profile: Profile) -> impl Strategy<Value = Request<'static>> {
    let owner = move || select(&OWNERS[..profile.owners]);
    let id = move || select(&IDS[..profile.ids]);
    let lease_ms = move || prop_oneof![8 => 1..=profile.lease_ms, 1 => 1..=profile.max_lease_ms];
    let acquire = (
        owner(),
        lease_ms(),
        select(profile.limits).prop_map(limit),
        block(profile),
        option::weighted(0.35, id()),
        min_fence(),
    );
    let holds = prop_oneof![3 => Just(Holds::One), 1 => Just(Holds::All), 2 => id().prop_map(Holds::ById)];
    prop_oneof![
        9 => acquire.prop_map(|(owner, lease_ms, limit, block, request_id, min_fence)| {
            Request::Acquire(Acquire { owner, lease_ms, limit, wait: block.and_then(testing::block), request_id, min_fence })
        }),
        6 => (owner(), holds)
            .prop_map(|(owner, holds)| Request::Release(Release { owner, fence: None, holds })),
        2 => (owner(), lease_ms(), option::weighted(0.3, id()), min_fence())
            .prop_map(|(owner, lease_ms, id, min_fence)| {
                let grant = id.map_or(GrantRef::Current, GrantRef::RequestId);
                Request::Extend(Extend { owner, lease_ms, grant, min_fence })
            }),
    ]
}

fn min_fence() -> impl Strategy<Value = Option<Fence>> {
    option::weighted(0.2, 1_u64..10)
}

fn block(Profile { block, infinite, .. }: Profile) -> impl Strategy<Value = Option<Timeout>> {
    let percent = || 0_u32..100;
    (percent(), percent(), 1_u64..25).prop_map(move |(blocks, times_out, ms)| match () {
        () if blocks < 100 - block => None,
        () if times_out < infinite => Some(Timeout::Infinite),
        () => Some(Timeout::Ms(ms)),
    })
}

pub fn limit(n: Option<u32>) -> Limit {
    n.map_or(Limit::SHARED, |n| Limit::new(n).expect("a limit"))
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
        2 => grace_ms().prop_map(Step::Promotion),
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
