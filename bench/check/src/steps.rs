//! Steps of the core, each as the shell takes them, over and over. Nothing here is random, and no clock is read.

use std::hint::black_box;

use dlock_core::{
    Acquire, Effects, Fences, Holds, Instant, Limit, Lock, LockName, Queue, Release, Timeout,
    TransitionContext, WaitPolicy, WaitTable, acquire, expire_holders, release,
};

use crate::Result;

/// So often each is done.
pub const ROUNDS: u64 = 1_000;

const LEASE_MS: u64 = 30_000;
const DB: i32 = 0;
const KEY: &[u8] = b"lock:000123";
const RULES: WaitPolicy = WaitPolicy {
    max_waiters: 10_000,
    detect_deadlocks: true,
};

/// The scenarios, and the functions that callgrind looks at.
pub const NAMES: [(&str, &str); 4] = [
    ("acquire and release", "dlock_bench_check::steps::pair"),
    ("re-enter and release once", "dlock_bench_check::steps::pair"),
    (
        "wait, release and hand over",
        "dlock_bench_check::steps::hand_over",
    ),
    ("sweep an ended lock", "dlock_bench_check::steps::sweep"),
];

/// Runs one of them, by its name.
pub fn run(name: &str) -> Result<()> {
    match NAMES.iter().position(|(own, _)| *own == name) {
        Some(0) => repeat(&mut Server::new(), pair),
        Some(1) => {
            let mut server = Server::new();
            server.acquire(&request(b"owner-000001"));
            repeat(&mut server, pair);
        }
        Some(2) => {
            let mut server = Server::new();
            server.acquire(&request(b"owner-000000"));
            repeat(&mut server, hand_over);
        }
        Some(3) => {
            let mut server = Server::new();
            for lock in 0..ROUNDS {
                server.lock = Lock::default();
                server.acquire(&request(format!("owner-{lock:06}").as_bytes()));
                server.abandoned.push(std::mem::take(&mut server.lock));
            }
            server.moment = TransitionContext::at(server.moment.now.after_ms(LEASE_MS));
            repeat(&mut server, sweep);
        }
        _ => return Err(format!("no scenario {name}").into()),
    }
    Ok(())
}

fn repeat(server: &mut Server, scenario: impl Fn(&mut Server, u64)) {
    (0..ROUNDS).for_each(|round| scenario(server, round));
}

/// A new holder, or one that re-enters.
#[inline(never)]
fn pair(server: &mut Server, _: u64) {
    server.acquire(&request(b"owner-000001"));
    server.release(b"owner-000001");
}

/// Two owners in turn: one waits until the other gives back.
#[inline(never)]
fn hand_over(server: &mut Server, round: u64) {
    let (holder, other): (&[u8], &[u8]) = if round.is_multiple_of(2) {
        (b"owner-000000", b"owner-000001")
    } else {
        (b"owner-000001", b"owner-000000")
    };
    server.wait(&request(other));
    server.release(holder);
    assert_eq!(server.effects.wakes.len(), 1, "nobody was let in");
}

#[inline(never)]
fn sweep(server: &mut Server, _: u64) {
    if let Some(mut lock) = server.abandoned.pop() {
        server.effects.clear();
        expire_holders(&mut lock, &server.moment, &mut server.effects);
        assert!(black_box(lock).is_free(), "a lease that ended counts");
    }
}

/// What a server knows: one lock, and the locks that nobody gave back.
struct Server {
    lock: Lock,
    abandoned: Vec<Lock>,
    waiting: WaitTable,
    fences: Fences,
    moment: TransitionContext,
    effects: Effects,
}

fn request(owner: &[u8]) -> Acquire<'_> {
    Acquire {
        owner,
        lease_ms: LEASE_MS,
        limit: Limit::MUTEX,
        block: None,
        request_id: None,
    }
}

impl Server {
    fn new() -> Self {
        Self {
            lock: Lock::default(),
            abandoned: Vec::new(),
            waiting: WaitTable::new(),
            fences: Fences::starting(),
            moment: TransitionContext::at(Instant::from_micros(1)),
            effects: Effects::default(),
        }
    }

    fn step<R>(&mut self, step: impl FnOnce(&mut Lock, &mut Queue, &mut Fences, &mut Effects) -> R) -> R {
        let (fences, effects) = (&mut self.fences, &mut self.effects);
        effects.clear();
        self.waiting
            .step(DB, KEY, &mut self.lock, &self.moment, |lock, queue| {
                step(lock, queue, fences, effects)
            })
    }

    /// Whether it was granted.
    fn acquire(&mut self, request: &Acquire<'_>) -> bool {
        let moment = self.moment;
        let granted =
            self.step(|lock, queue, fences, effects| acquire(lock, queue, request, &moment, fences, effects));
        matches!(black_box(granted), Ok(Some(_)))
    }

    fn wait(&mut self, request: &Acquire<'_>) {
        assert!(!self.acquire(request), "nothing to wait for");
        let name = LockName::new(DB, KEY);
        let enqueued =
            self.waiting
                .enqueue(&name, &self.lock, request, Timeout::Infinite, &self.moment, RULES);
        assert!(enqueued.is_ok(), "{enqueued:?}");
    }

    fn release(&mut self, owner: &[u8]) {
        let moment = self.moment;
        let request = Release {
            owner,
            fence: None,
            holds: Holds::One,
        };
        let left = self
            .step(|lock, queue, fences, effects| release(lock, queue, &request, &moment, fences, effects));
        assert!(left.is_ok(), "{left:?}");
    }
}
