//! Whole clients on a bad network: all their code, over simulated connections, with the core as the server, in simulated
//! time. What happens depends on a seed only: one that fails is run again, and tells what it does.
//!
//! - `runtimes`: where the tasks of a process run. A process, or one of its runtimes, can be slow, idle or gone.
//! - `network`: the server, and connections that lose, delay and repeat what they carry.
//! - `ledger`: what applications ask for, and get.
//! - `checks`: what must be true after every step.
//! - `world`: what applications do, and what goes wrong.

mod checks;
mod counts;
mod ledger;
mod network;
mod runtimes;
mod world;

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use tokio::time::Instant;

pub(crate) use network::Network;
pub(crate) use runtimes::{RuntimeHandle, RuntimeId, handle_of, id_of};

use counts::Counts;

thread_local! {
    /// When the simulation of this thread began.
    static ZERO: Cell<Option<Instant>> = const { Cell::new(None) };
    /// How much faster the server's clock is, in millionths.
    static DRIFT: Cell<i32> = const { Cell::new(0) };
    /// For the jitter and the names of clients.
    static RANDOM: RefCell<Option<fastrand::Rng>> = const { RefCell::new(None) };
    static IS_TOLD: Cell<bool> = const { Cell::new(false) };
}

/// The most that the clock of a server may be faster.
const MAX_DRIFT: i32 = 1_000;

/// The time of clients.
pub(crate) fn now() -> Option<Duration> {
    ZERO.get().map(|zero| Instant::now() - zero)
}

/// The time of the server.
pub(crate) fn server_uptime() -> Option<Duration> {
    let faster = 1.0 + f64::from(DRIFT.get()) / 1e6;
    now().map(|now| now.mul_f64(faster))
}

pub(crate) fn random_bits() -> Option<u128> {
    RANDOM.with_borrow_mut(|random| random.as_mut().map(|random| random.u128(..)))
}

/// Since the simulation began.
fn elapsed() -> Duration {
    now().unwrap_or_default()
}

/// Says what happens, when a seed that has failed is run again.
fn tell(what: impl FnOnce() -> String) {
    if IS_TOLD.get() {
        eprintln!("{:>12?} {}", elapsed(), what());
    }
}

fn simulate(seed: u64, way: Duration) -> Counts {
    let mut random = fastrand::Rng::with_seed(seed);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build();
    runtime.expect("a runtime").block_on(async {
        ZERO.set(Some(Instant::now()));
        DRIFT.set(random.i32(-MAX_DRIFT..=MAX_DRIFT));
        RANDOM.set(Some(random.fork()));
        world::run(random, way).await
    })
}

/// Stops when a thread, or a test, has enough.
struct Simulated;

impl Drop for Simulated {
    fn drop(&mut self) {
        network::remove();
        ZERO.set(None);
        RANDOM.set(None);
        IS_TOLD.set(false);
    }
}

/// Runs these seeds. One that fails is run again, and told.
fn simulate_all(seeds: impl Iterator<Item = u64>, way: Duration) -> Counts {
    let _simulated = Simulated;
    let mut counts = Counts::default();
    for seed in seeds {
        match catch_unwind(AssertUnwindSafe(|| simulate(seed, way))) {
            Ok(more) => counts.add(more),
            Err(failure) => {
                eprintln!("seed {seed} again:");
                IS_TOLD.set(true);
                simulate(seed, way);
                resume_unwind(failure);
            }
        }
    }
    counts
}

const SEEDS: u64 = 250;
const NEAR: Duration = Duration::from_millis(3);
const FAR: Duration = Duration::from_millis(60);

#[test]
fn clients_on_a_bad_network_exclude_each_other_and_forget_nothing() {
    let counts = simulate_all(0..SEEDS, NEAR);
    counts.assert_at_least(&[
        ("granted in a reply", 2_000),
        ("granted in an answer", 3_000),
        ("granted in order", 2_000),
        ("lost", 200),
        ("given back", 2_000),
        ("late ACQUIRE", 40),
        ("lost reply", 250),
        ("ended inbox", 150),
        ("ended runtime", 200),
    ]);
}

/// More is under way when a connection is lost, and short leases are over when they arrive.
#[test]
fn clients_far_from_the_server_exclude_each_other_and_forget_nothing() {
    let counts = simulate_all(SEEDS..2 * SEEDS, FAR);
    counts.assert_at_least(&[
        ("granted in a reply", 1_000),
        ("granted in an answer", 3_000),
        ("granted in order", 1_500),
        ("lost", 200),
        ("given back", 2_500),
        ("late ACQUIRE", 80),
        ("other late copy", 250),
        ("lost reply", 1_000),
        ("no inbox", 500),
    ]);
}

#[test]
fn simulation_of_a_seed_is_always_the_same() {
    for seed in 0..3 {
        let both = [(); 2].map(|()| {
            let _simulated = Simulated;
            // The next random number tells how many there were.
            (simulate(seed, FAR), random_bits())
        });
        assert_eq!(both[0], both[1], "seed {seed}");
    }
}

/// The machine is suspended: all clocks of its boot go on, but timers do not count that.
fn suspend(time: Duration) {
    ZERO.set(ZERO.get().map(|zero| zero - time));
}

#[test]
fn hold_whose_lease_ended_in_a_suspend_is_lost_within_a_second() {
    const LEASE: Duration = Duration::from_secs(60);
    let _simulated = Simulated;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build();
    runtime.expect("a runtime").block_on(async {
        // Long after the boot, so that the past can be longer.
        tokio::time::advance(2 * LEASE).await;
        ZERO.set(Some(Instant::now()));
        network::install(network::Net::new(fastrand::Rng::with_seed(0), 1, NEAR));
        let background = runtimes::Runtime::new(0);
        let real = tokio::runtime::Handle::current();
        let (handle, running) = background.within(|| {
            let server = crate::Server::simulated(Network { process: 0 });
            let hook = crate::events::Hook::default();
            crate::background::Handle::new(server, Duration::from_secs(1), hook, &real)
        });
        let _running = background.spawn(running);
        let locks = crate::Locks::of(handle);
        let (told, mut lost) = tokio::sync::oneshot::channel();
        let _holding = runtimes::Runtime::new(1).spawn(async move {
            let guard = locks
                .lock("door")
                .lease(LEASE)
                .acquire()
                .await
                .expect("it is free");
            let _ = told.send((guard.is_held(), guard.lost().await, Instant::now()));
        });
        let story = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            suspend(LEASE);
            (Instant::now(), (&mut lost).await.expect("a loss"))
        };
        let (resumed, (was_held, reason, at)) = tokio::select! {
            biased;
            () = world::deliver(|| {}) => unreachable!("it never ends"),
            told = story => told,
        };
        assert!(was_held && reason == crate::Lost::LeaseExpired, "{reason:?}");
        assert!(at - resumed <= Duration::from_millis(1_100), "{:?}", at - resumed);
    });
}
