//! Transitions of the core, called like the module calls them. Deterministic: no randomness, no clock.

use std::hint::black_box;

use dlock_core::{
    Acquire, Acquired, Effects, Engine, Holds, Instant, Limit, Lock, LockRef, Release, Timeout, Transition,
    TransitionContext, WaitPolicy,
};

use crate::Result;

pub const ROUNDS: u64 = 1_000;

const LEASE_MS: u64 = 30_000;
const DB: i32 = 0;
const KEY: &[u8] = b"lock:000123";
const POLICY: WaitPolicy = WaitPolicy {
    max_waiters: 10_000,
    detect_deadlocks: true,
};

pub struct Scenario {
    pub name: &'static str,
    /// What callgrind counts.
    pub function: &'static str,
    run: fn(),
}

pub const SCENARIOS: [Scenario; 4] = [
    Scenario {
        name: "acquire and release",
        function: "dlock_bench_check::core_steps::pair",
        run: || repeat(&mut Core::new(), pair),
    },
    Scenario {
        name: "re-enter and release once",
        function: "dlock_bench_check::core_steps::pair",
        run: || repeat(&mut Core::held_by(b"owner-000001"), pair),
    },
    Scenario {
        name: "wait, release and hand over",
        function: "dlock_bench_check::core_steps::hand_over",
        run: || repeat(&mut Core::held_by(b"owner-000000"), hand_over),
    },
    Scenario {
        name: "expire an abandoned lock",
        function: "dlock_bench_check::core_steps::expire",
        run: || repeat(&mut Core::with_abandoned_locks(), expire),
    },
];

/// Runs the scenario of this name.
pub fn run(name: &str) -> Result<()> {
    let scenario = SCENARIOS.iter().find(|scenario| scenario.name == name);
    (scenario.ok_or_else(|| format!("no scenario {name}"))?.run)();
    Ok(())
}

fn repeat(core: &mut Core, scenario: fn(&mut Core, u64)) {
    (0..ROUNDS).for_each(|round| scenario(core, round));
}

/// By a new holder, or by one that re-enters.
#[inline(never)]
fn pair(core: &mut Core, _: u64) {
    core.acquire(&request(b"owner-000001"));
    core.release(b"owner-000001");
}

/// Two owners alternate: one waits until the other releases.
#[inline(never)]
fn hand_over(core: &mut Core, round: u64) {
    let (holder, waiter): (&[u8], &[u8]) = if round.is_multiple_of(2) {
        (b"owner-000000", b"owner-000001")
    } else {
        (b"owner-000001", b"owner-000000")
    };
    core.wait(&Acquire {
        block: Some(Timeout::Infinite),
        ..request(waiter)
    });
    core.release(holder);
    assert_eq!(core.effects.wakes.len(), 1, "no waiter was granted");
}

#[inline(never)]
fn expire(core: &mut Core, _: u64) {
    if let Some(mut lock) = core.abandoned.pop() {
        core.effects.clear();
        let name = LockRef::new(DB, KEY);
        core.engine
            .begin(name, &mut lock, &core.context, &mut core.effects)
            .expire_holders();
        assert!(black_box(lock).is_free(), "an expired holder remains");
    }
}

/// The state of a server with one lock, and locks that were never released.
struct Core {
    lock: Lock,
    abandoned: Vec<Lock>,
    engine: Engine,
    context: TransitionContext,
    effects: Effects,
}

fn request(owner: &[u8]) -> Acquire<'_> {
    Acquire {
        owner,
        lease_ms: LEASE_MS,
        limit: Limit::MUTEX,
        block: None,
        request_id: None,
        min_fence: None,
    }
}

impl Core {
    fn new() -> Self {
        Self {
            lock: Lock::default(),
            abandoned: Vec::new(),
            engine: Engine::starting(),
            context: TransitionContext::at(Instant::from_micros(1)),
            effects: Effects::default(),
        }
    }

    fn held_by(owner: &[u8]) -> Self {
        let mut core = Self::new();
        core.acquire(&request(owner));
        core
    }

    /// Their leases have expired.
    fn with_abandoned_locks() -> Self {
        let mut core = Self::new();
        for number in 0..ROUNDS {
            core.acquire(&request(format!("owner-{number:06}").as_bytes()));
            core.abandoned.push(std::mem::take(&mut core.lock));
        }
        core.context = TransitionContext::at(core.context.now.after_ms(LEASE_MS));
        core
    }

    fn begin(&mut self) -> Transition<'_> {
        self.effects.clear();
        let name = LockRef::new(DB, KEY);
        self.engine
            .begin(name, &mut self.lock, &self.context, &mut self.effects)
    }

    fn acquire(&mut self, request: &Acquire<'_>) {
        let acquired = black_box(self.begin().acquire(request, POLICY));
        assert!(matches!(acquired, Ok(Acquired::Granted(_))), "{acquired:?}");
    }

    fn wait(&mut self, request: &Acquire<'_>) {
        let acquired = self.begin().acquire(request, POLICY);
        assert!(matches!(acquired, Ok(Acquired::Queued(_))), "{acquired:?}");
    }

    fn release(&mut self, owner: &[u8]) {
        let request = Release {
            owner,
            fence: None,
            holds: Holds::One,
        };
        let released = self.begin().release(&request);
        assert!(released.is_ok(), "{released:?}");
    }
}
