//! The same for threads that block.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{assert_lost, locks, ms};
use dlock_testkit::{Proxy, SLOW_MACHINE, Server, start, wait_for};
use redis_dlock_client::{Error, Locks, LostReason, Owner, RunError, blocking_acquire_all};
use tokio::runtime::Builder;

/// For how long a test waits for what must happen.

#[test]
fn blocking_methods_cover_the_life_of_a_lock() {
    let (server, mut client) = start();
    let lock = locks(&server).lock("door").lease(ms(10_000)).auto_renew(false);
    assert_eq!(lock.blocking_current_owner().unwrap(), None);
    let guard = lock.blocking_acquire().unwrap();
    assert_eq!((guard.key(), guard.holds()), (&b"door"[..], 1));
    let standing = client.lock("door").standing();
    assert_eq!(standing, [(guard.owner().to_string(), guard.fence(), 1)]);
    let expected = Some(guard.owner());
    assert_eq!(lock.blocking_current_owner().unwrap().as_ref(), expected);
    let next_fence = lock.blocking_info().unwrap().unwrap().holders[0].fence;
    assert_eq!(next_fence, guard.fence());
    assert!(guard.blocking_extend(ms(60_000)).unwrap() > ms(50_000));
    assert!(guard.is_held() && guard.lost_reason().is_none() && guard.remaining() > ms(50_000));
    assert!(matches!(lock.blocking_try_acquire(), Err(Error::Busy)));
    assert_eq!(guard.blocking_release().unwrap(), 0);
    assert!(client.find_lock("door").is_none());
}

#[test]
fn blocking_run_and_adopt_are_there_for_guards() {
    let server = Server::start();
    let mut client = server.client();
    let locks = locks(&server);
    let guard = locks
        .lock("door")
        .at_least(ms(60_000))
        .blocking_acquire()
        .unwrap();
    let guard = locks.blocking_adopt(guard.into_parts()).unwrap();
    assert_eq!(guard.blocking_run(|guard| guard.holds()).unwrap(), 1);
    assert!(client.find_lock("door").is_none(), "an adopted hold is not kept");
    let guard = locks
        .lock("door")
        .at_least(ms(60_000))
        .blocking_acquire()
        .unwrap();
    assert_eq!(guard.blocking_release_at_once().unwrap(), 0);
    assert!(client.find_lock("door").is_none());
    let guards = blocking_acquire_all([locks.lock("door"), locks.lock("book")]).unwrap();
    assert_eq!(guards.blocking_run(|guards| guards.guards().len()).unwrap(), 2);
    assert!(client.find_lock("door").is_none() && client.find_lock("book").is_none());
    // A loss does not cancel the work, but is reported.
    let guards = blocking_acquire_all([locks.lock("door"), locks.lock("book")]).unwrap();
    let outcome = guards.blocking_run(|_| client.call("DEL door").map(drop));
    assert!(matches!(
        outcome,
        Err(RunError::Unprotected {
            reason: LostReason::NotHeld,
            ..
        })
    ));
    assert!(blocking_acquire_all([]).unwrap().blocking_run(|_| ()).is_ok());
}

#[test]
fn panic_in_blocking_run_releases_the_locks() {
    let server = Server::start();
    let mut client = server.client();
    let locks = locks(&server);
    let panics = [
        thread::spawn({
            let lock = locks.lock("door");
            move || drop(lock.blocking_run(|_| panic!("the work fails")))
        }),
        thread::spawn({
            let both = [locks.lock("book"), locks.lock("page")];
            move || {
                drop(
                    blocking_acquire_all(both)
                        .unwrap()
                        .blocking_run(|_| panic!("the work fails")),
                )
            }
        }),
    ];
    for panic in panics {
        assert!(panic.join().is_err());
    }
    assert!(locks.blocking_settle(SLOW_MACHINE));
    for key in ["door", "book", "page"] {
        assert!(client.find_lock(key).is_none(), "{key}");
    }
}

#[test]
fn blocking_waiters_are_fifo_and_time_out() {
    let (server, mut client) = start();
    client.acquire("door alice 60000");
    let locks = locks(&server);
    let start = Instant::now();
    let refused = locks.lock("door").wait(ms(200)).blocking_acquire().unwrap_err();
    assert!(matches!(refused, Error::Timeout { .. }), "{refused:?}");
    assert!(start.elapsed() >= ms(200) && start.elapsed() < ms(200) + SLOW_MACHINE);
    wait_for("an empty queue", || client.waiting("door") == 0);
    let mut threads = Vec::new();
    for n in 0..4 {
        let lock = locks.lock("door").owner(format!("thread{n}"));
        threads.push(thread::spawn(move || {
            let guard = lock.blocking_acquire().unwrap();
            let fence = guard.fence();
            guard.blocking_release().unwrap();
            fence
        }));
        wait_for("a place in the queue", || client.waiting("door") == n + 1);
    }
    client.release("door alice");
    let fences: Vec<u64> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    assert!(fences.is_sorted(), "{fences:?}");
}

#[test]
fn blocking_acquire_respects_options() {
    let server = Server::start();
    let locks = locks(&server);
    let readers = [
        locks.lock("book").shared().blocking_acquire().unwrap(),
        locks.lock("book").shared().blocking_acquire().unwrap(),
    ];
    let _pool = [
        locks.lock("pool").limit(2).blocking_acquire().unwrap(),
        locks.lock("pool").limit(2).blocking_acquire().unwrap(),
    ];
    let third = locks.lock("pool").limit(2).blocking_try_acquire();
    assert!(matches!(third, Err(Error::Busy)));
    drop(readers);
    let owner = Owner::unique();
    let first = locks.lock("door").owner(&owner).blocking_acquire().unwrap();
    let second = locks.lock("door").owner(&owner).blocking_acquire().unwrap();
    assert_eq!(first.blocking_release().unwrap(), 1);
    assert_eq!(second.blocking_release().unwrap(), 0);
    let short = locks.lock("door").lease(ms(2_000));
    let short = short.max_hold(ms(2_500)).blocking_acquire().unwrap();
    assert_eq!(short.blocking_lost(), LostReason::MaxHoldExceeded);
    assert!(short.token().is_cancelled());
    assert_lost(short.blocking_release(), LostReason::MaxHoldExceeded);
}

#[test]
fn lease_is_renewed_while_thread_is_busy() {
    let server = Server::start();
    let guard = locks(&server).lock("door").lease(ms(3000));
    let guard = guard.blocking_acquire().unwrap();
    thread::sleep(ms(3500));
    assert!(guard.is_held());
    assert_eq!(guard.blocking_release().unwrap(), 0);
}

#[test]
fn blocking_run_reports_loss() {
    let server = Server::start();
    let locks = locks(&server);
    assert!(locks.lock("door").blocking_run(|guard| guard.is_held()).unwrap());
    let lock = locks.lock("door").lease(ms(1000)).auto_renew(false);
    let outcome = lock.blocking_run(|guard| wait_for("the reason", || !guard.is_held()));
    let is_expected = matches!(
        outcome,
        Err(RunError::Unprotected {
            reason: LostReason::LeaseExpired,
            ..
        })
    );
    assert!(is_expected, "{outcome:?}");
}

#[test]
fn dropped_guard_is_released_within_runtime() {
    let (server, mut client) = start();
    let locks = locks(&server);
    drop(locks.blocking_acquire("door").unwrap());
    wait_for("the lock to be free", || client.find_lock("door").is_none());
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        // No good habit, but no panic.
        drop(locks.blocking_acquire("door").unwrap());
    });
    wait_for("the lock to be free", || client.find_lock("door").is_none());
}

#[test]
fn blocking_in_async_task_does_not_exhaust_coop_budget() {
    // No good habit either. A task that never yields has soon used up its budget with the runtime that it is in.
    const TURNS: u32 = 200;
    let server = Server::start();
    for mut runtime in [Builder::new_current_thread(), Builder::new_multi_thread()] {
        let locks = locks(&server);
        let (turn, turns) = mpsc::channel();
        let runtime = runtime.enable_all().build().unwrap();
        // In a thread of its own: a test that hangs tells less than one that fails.
        thread::spawn(move || {
            let task = runtime.spawn(async move {
                for _ in 0..TURNS {
                    locks
                        .blocking_acquire("door")
                        .unwrap()
                        .blocking_release()
                        .unwrap();
                    turn.send(()).unwrap();
                }
            });
            runtime.block_on(task).unwrap();
        });
        for n in 0..TURNS {
            let turn = turns.recv_timeout(Duration::from_secs(20));
            assert!(turn.is_ok(), "hangs after {n} turns");
        }
    }
}

#[test]
fn lost_connection_is_replaced_for_blocking_calls() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let locks = Locks::open(proxy.url()).unwrap();
    let guard = locks.blocking_acquire("door").unwrap();
    proxy.cut();
    assert_eq!(guard.blocking_release().unwrap(), 0);
    proxy.cut();
    assert_eq!(locks.blocking_acquire("door").unwrap().holds(), 1);
}

#[test]
fn blocking_acquire_all_is_all_or_none() {
    let (server, mut client) = start();
    let locks = locks(&server);
    let guards = blocking_acquire_all([locks.lock("b"), locks.lock("a")]).unwrap();
    let keys: Vec<&[u8]> = guards.guards().iter().map(|guard| guard.key()).collect();
    assert_eq!(keys, [b"b", b"a"]);
    assert!(guards.is_held() && guards.lost_reason().is_none() && guards.remaining() > ms(1000));
    guards.blocking_release().unwrap();
    assert!(client.find_lock("a").is_none() && client.find_lock("b").is_none());
    client.acquire("b alice 60000");
    let refused = blocking_acquire_all(["a", "b"].map(|key| locks.lock(key).wait(ms(200)))).unwrap_err();
    let is_expected = matches!(&refused, Error::Timeout { key, .. } if key == "b");
    assert!(is_expected, "{refused:?}");
    wait_for("nothing to be kept", || client.find_lock("a").is_none());
    client.release("b alice");
    let guards = blocking_acquire_all(["a", "b"].map(|key| locks.lock(key).lease(ms(3000)))).unwrap();
    client.call("DEL b").unwrap();
    assert_eq!(guards.blocking_lost(), LostReason::NotHeld);
    assert_lost(guards.blocking_release(), LostReason::NotHeld);
    assert!(blocking_acquire_all([]).unwrap().blocking_release().is_ok());
}

#[test]
fn blocking_lost_resolves_on_loss() {
    let server = Server::start();
    let locks = locks(&server);
    let lock = |name| locks.lock(name).lease(ms(3000));
    let guard = lock("door").blocking_acquire().unwrap();
    let guards = blocking_acquire_all([lock("gate"), lock("wall")]).unwrap();
    server.client().call("DEL door wall").unwrap();
    assert_eq!(guard.blocking_lost(), LostReason::NotHeld);
    assert_eq!(guards.blocking_lost(), LostReason::NotHeld);
}
