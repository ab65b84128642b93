//! Transitions of the core, called like the module calls them. Deterministic: no randomness, no clock.

use std::hint::black_box;

use dlock_core::{
    Acquire, Acquired, Effects, Environment, Holds, Inputs, Instant, Limit, Lock, LockNameRef, Policy,
    Release, Role, ServerState, Timeout, Transition, Wait, WallClock,
};

use crate::error::Result;

pub const ROUNDS: u64 = 1_000;

const LEASE_MS: u64 = 30_000;
const DB: i32 = 0;
const KEY: &[u8] = b"lock:000123";
/// Asked once, at the first transition.
struct Fixed;

impl Environment for Fixed {
    fn wall_clock(&self) -> WallClock {
        WallClock::from_unix_ms(1_750_000_000_000)
    }

    fn random(&self) -> u64 {
        0
    }
}

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
        wait: Some(Wait {
            timeout: Timeout::Infinite,
            inbox: None,
        }),
        ..request(waiter)
    });
    core.release(holder);
    core.server.deliver(&mut core.effects);
    let call = core.effects.calls.pop();
    let reply = call.and_then(|call| core.server.inboxes.reply(call, core.inputs.now));
    assert!(black_box(reply).is_some(), "no waiter was granted");
}

#[inline(never)]
fn expire(core: &mut Core, _: u64) {
    if let Some(mut lock) = core.abandoned.pop() {
        let name = LockNameRef::new(DB, KEY);
        core.server
            .begin(&core.inputs, name, &mut lock, &mut core.effects)
            .expire_holders();
        assert!(black_box(lock).is_free(), "an expired holder remains");
    }
}

/// The state of a server with one lock, and locks that were never released.
struct Core {
    lock: Lock,
    abandoned: Vec<Lock>,
    server: ServerState,
    inputs: Inputs<'static>,
    effects: Effects,
}

fn request(owner: &[u8]) -> Acquire<'_> {
    Acquire {
        owner,
        lease_ms: LEASE_MS,
        limit: Limit::MUTEX,
        wait: None,
        request_id: None,
        min_fence: None,
    }
}

impl Core {
    fn new() -> Self {
        let mut server = ServerState::default();
        server.set_policy(Policy {
            max_waiters_per_lock: 10_000,
            max_waiters: 1_000_000,
            detect_deadlocks: true,
            ..Policy::default()
        });
        Self {
            lock: Lock::default(),
            abandoned: Vec::new(),
            server,
            inputs: Inputs {
                now: Instant::from_micros(1),
                role: Role::Primary,
                slot: None,
                must_encode: true,
                environment: &Fixed,
            },
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
        core.inputs.now = core.inputs.now.after_ms(LEASE_MS);
        core
    }

    fn begin(&mut self) -> Transition<'_> {
        let name = LockNameRef::new(DB, KEY);
        self.server
            .begin(&self.inputs, name, &mut self.lock, &mut self.effects)
    }

    fn acquire(&mut self, request: &Acquire<'_>) {
        let acquired = black_box(self.begin().acquire(request, b"", true));
        assert!(matches!(acquired, Ok(Acquired::Granted(_))), "{acquired:?}");
    }

    fn wait(&mut self, request: &Acquire<'_>) {
        let acquired = self.begin().acquire(request, b"", true);
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
