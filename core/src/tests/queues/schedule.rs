//! Random schedules for several locks: who asks what, who leaves, how time passes, and what befalls the locks
//! and the server.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use super::super::ops::{Action, Limit, Micros};
use super::super::schedule::Told;
use super::ops::Block;

const OWNERS: u8 = 5;
const NAMES: u8 = 2;
pub const LOCKS: usize = 3;

#[derive(Clone, Copy, Debug)]
pub enum Step {
    Ask {
        lock: usize,
        owner: u8,
        action: Action,
        told: Told,
        block: Block,
    },
    /// Time passes, and the timers are late.
    Pass(Pass),
    /// The timers fire.
    Ring,
    /// A client that waits for this lock (its place wraps) closes its connection.
    Leave {
        lock: usize,
        place: usize,
    },
    /// The next client that is granted what it waited for is gone before it is told.
    Vanish,
    Break(Break),
    /// A grace begins: those who wait are sent away.
    Grace(u64),
    /// The server may, or may not any more, evict locks.
    Evictable(bool),
    /// The server may not, or may again, grant anything: paused clients, too few replicas, a full disk.
    HeldBack(bool),
    DetectDeadlocks(bool),
}

/// What an administrator does.
#[derive(Clone, Copy, Debug)]
pub enum Break {
    Delete(usize),
    Rename {
        from: usize,
        to: usize,
    },
    /// Remembers the value for a RESTORE.
    Dump(usize),
    Restore(usize),
    /// SET and DEL: another type for a cx, which sends the waiters away.
    OtherType(usize),
}

/// How time passes. Never backwards: an instant that is over is now.
#[derive(Clone, Copy, Debug)]
pub enum Pass {
    Micros(Micros),
    /// To the next moment at which a lock changes by itself, or a microsecond before or after.
    ToChange {
        lock: usize,
        offset: Micros,
    },
}

/// What the requests of a schedule are like.
#[derive(Clone, Copy, Debug)]
pub struct Manners {
    pub limits: &'static [Limit],
    /// Leases are at most this.
    pub lease_ms: u64,
    /// Of a hundred ACQUIREs so many wait, and of these so many for ever.
    pub block: u32,
    pub forever: u32,
    /// What befalls locks and server, beside clients and time.
    pub accidents: u32,
}

pub const MUTEXES: Manners = Manners {
    limits: &[Some(1)],
    lease_ms: 30,
    block: 70,
    forever: 40,
    accidents: 8,
};

pub const SEMAPHORES: Manners = Manners {
    limits: &[Some(2)],
    ..MUTEXES
};

pub const READERS_AND_WRITERS: Manners = Manners {
    limits: &[Some(1), None, None],
    ..MUTEXES
};

pub const ALL_SORTS: Manners = Manners {
    limits: &[Some(1), Some(2), Some(3), None],
    ..MUTEXES
};

/// Everybody waits for everything: where deadlocks come from.
pub const STUBBORN: Manners = Manners {
    limits: &[Some(1), Some(1), Some(2), None],
    lease_ms: 300,
    block: 95,
    forever: 90,
    accidents: 2,
};

pub fn any_schedule() -> impl Strategy<Value = Vec<Step>> {
    prop_oneof![
        1 => schedule(MUTEXES),
        1 => schedule(SEMAPHORES),
        1 => schedule(READERS_AND_WRITERS),
        2 => schedule(ALL_SORTS),
        1 => schedule(STUBBORN),
    ]
}

pub fn schedule(manners: Manners) -> impl Strategy<Value = Vec<Step>> {
    vec(step(manners), 1..60)
}

fn step(manners: Manners) -> impl Strategy<Value = Step> {
    prop_oneof![
        70 => ask(manners),
        10 => pass().prop_map(Step::Pass),
        6 => Just(Step::Ring),
        4 => (0..LOCKS, 0_usize..4).prop_map(|(lock, place)| Step::Leave { lock, place }),
        2 => Just(Step::Vanish),
        manners.accidents => accident(),
    ]
}

fn ask(manners: Manners) -> impl Strategy<Value = Step> {
    let action = (action(manners), block(manners));
    (0..LOCKS, 0..OWNERS, action, told()).prop_map(|(lock, owner, (action, block), told)| Step::Ask {
        lock,
        owner,
        action,
        told,
        block,
    })
}

fn action(manners: Manners) -> impl Strategy<Value = Action> {
    let lease_ms = 1..=manners.lease_ms;
    prop_oneof![
        10 => (lease_ms.clone(), select(manners.limits), option::weighted(0.3, 0..NAMES))
            .prop_map(|(lease_ms, limit, name)| Action::Acquire { lease_ms, limit, name }),
        3 => Just(Action::ReleaseOne),
        1 => Just(Action::ReleaseAll),
        2 => (0..NAMES).prop_map(Action::ReleaseNamed),
        1 => lease_ms.prop_map(|lease_ms| Action::Extend { lease_ms }),
    ]
}

fn block(Manners { block, forever, .. }: Manners) -> impl Strategy<Value = Block> {
    prop_oneof![
        100 - block => Just(Block::No),
        block * forever / 100 => Just(Block::Forever),
        block * (100 - forever) / 100 => (1_u64..25).prop_map(Block::Ms),
    ]
}

fn told() -> impl Strategy<Value = Told> {
    prop_oneof![
        6 => Just(Told::None),
        3 => Just(Told::Latest),
        1 => Just(Told::Earlier),
    ]
}

fn pass() -> impl Strategy<Value = Pass> {
    prop_oneof![
        2 => (0_i64..3_000).prop_map(Pass::Micros),
        2 => (0_i64..40_000).prop_map(Pass::Micros),
        5 => (0..LOCKS, -1_i64..=1).prop_map(|(lock, offset)| Pass::ToChange { lock, offset }),
    ]
}

fn accident() -> impl Strategy<Value = Step> {
    let lock = || 0..LOCKS;
    prop_oneof![
        2 => lock().prop_map(|lock| Step::Break(Break::Delete(lock))),
        2 => (lock(), lock()).prop_map(|(from, to)| Step::Break(Break::Rename { from, to })),
        2 => lock().prop_map(|lock| Step::Break(Break::Dump(lock))),
        2 => lock().prop_map(|lock| Step::Break(Break::Restore(lock))),
        1 => lock().prop_map(|lock| Step::Break(Break::OtherType(lock))),
        2 => (1_u64..30).prop_map(Step::Grace),
        1 => any::<bool>().prop_map(Step::Evictable),
        2 => any::<bool>().prop_map(Step::HeldBack),
        1 => any::<bool>().prop_map(Step::DetectDeadlocks),
    ]
}
