//! Leases are renewed, and a loss is reported in time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::support::{Journal, assert_lost, locks, ms, soon, stall, until, until_free};
use dlock_testkit::{Proxy, SLOW_MACHINE, Server, Way, renewed, start, wait_for};
use redis_dlock_client::{Error, EventKind, Guard, Locks, Lost, RunError, Settings};
use tokio::time::timeout;

#[tokio::test]
async fn lease_is_renewed_while_guard_lives() {
    let (server, mut client) = start();
    let lock = locks(&server).lock("door").lease(ms(3000));
    let guard = lock.acquire().await.unwrap();
    let fence = guard.fence();
    let start = Instant::now();
    while start.elapsed() < ms(3500) {
        assert!(guard.is_held(), "{guard:?}");
        assert_eq!(client.lock("door").holders[0].fence, fence);
        tokio::time::sleep(ms(20)).await;
    }
    guard.release().await.unwrap();
}

#[tokio::test]
async fn lease_is_renewed_despite_blocked_runtime() {
    let server = Server::start();
    let lock = locks(&server).lock("door").lease(ms(3000));
    let guard = lock.acquire().await.unwrap();
    // This blocks the one thread of the test's runtime.
    wait_for("a renewal", renewed(|| guard.remaining()));
    guard.release().await.unwrap();
}

#[tokio::test]
async fn renewal_stops_with_release() {
    let (server, mut client) = start();
    let locks = locks(&server);
    client.ok("CONFIG RESETSTAT");
    for n in 0..10 {
        let guard = locks.lock("door").lease(ms(1500)).acquire().await.unwrap();
        // Around the time of a renewal.
        tokio::time::sleep(ms(495 + n)).await;
        if n % 2 == 0 {
            drop(guard)
        } else {
            drop(guard.release().await)
        }
        until_free(&mut client, "door").await;
    }
    // What was on its way has arrived.
    tokio::time::sleep(ms(50)).await;
    let before = client.calls("dlock.extend");
    tokio::time::sleep(ms(300)).await;
    assert_eq!(client.calls("dlock.extend"), before);
}

#[tokio::test]
async fn hold_ends_locally_before_it_does_on_server() {
    let (server, mut client) = start();
    let lock = locks(&server).lock("door").lease(ms(500)).max_hold(ms(500));
    let guard = lock.acquire().await.unwrap();
    let start = Instant::now();
    assert_eq!(guard.lost().await, Lost::MaxHold);
    assert!(start.elapsed() < ms(500) + SLOW_MACHINE);
    assert!(!guard.is_held() && guard.remaining().is_zero());
    assert!(guard.token().is_cancelled());
    // An ended lease is not revived.
    let refused = guard.extend(ms(1000)).await.unwrap_err();
    let is_expected = matches!(refused, Error::Lost(Lost::MaxHold));
    assert!(is_expected, "{refused:?}");
    until_free(&mut client, "door").await;
    assert_lost(guard.release().await, Lost::MaxHold);
}

#[tokio::test]
async fn release_of_broken_lock_reports_who_holds_it() {
    let (server, mut client) = start();
    let lock = locks(&server).lock("door").owner("alice");
    let others = [
        ("PING", Lost::NotHeld),
        ("DLOCK.ACQUIRE door bob 60000", Lost::NotOwner),
        ("DLOCK.ACQUIRE door alice 60000", Lost::Stale),
    ];
    for (other, expected) in others {
        let guard = lock.acquire().await.unwrap();
        client.call("DEL door").unwrap();
        client.call(other).unwrap();
        let released = guard.release().await;
        let is_expected = matches!(&released, Err(Error::Lost(reason)) if *reason == expected);
        assert!(is_expected, "{expected:?}: {released:?}");
        client.call("DEL door").unwrap();
    }
}

#[tokio::test]
async fn broken_lock_is_reported_by_run() {
    let server = Server::start();
    let locks = locks(&server);
    let done = locks
        .lock("door")
        .run(async |_| server.client().call("DEL door").map(|_| "the result").unwrap())
        .await;
    let Err(RunError::Unprotected { lost, done }) = done else {
        panic!("{done:?}");
    };
    assert_eq!((lost, done), (Lost::NotHeld, "the result"));
}

#[tokio::test]
async fn unresponsive_server_does_not_hide_lease_expiry() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let locks = Locks::open(proxy.url()).unwrap();
    let guard = locks.lock("door").lease(ms(3000)).acquire().await.unwrap();
    proxy.freeze(Way::ToServer);
    let start = Instant::now();
    assert_eq!(soon("the reason", guard.lost()).await, Lost::LeaseExpired);
    assert!(start.elapsed() < ms(3000) + SLOW_MACHINE, "{:?}", start.elapsed());
    assert!(!guard.is_held());
}

#[tokio::test]
async fn token_cancelled_by_application_loses_no_lock() {
    let server = Server::start();
    let locks = locks(&server);
    let guard = locks.lock("door").lease(ms(3000)).acquire().await.unwrap();
    guard.token().cancel();
    assert!(!guard.token().is_cancelled());
    assert!(timeout(ms(300), guard.lost()).await.is_err(), "nothing is lost");
    server.client().call("DEL door").unwrap();
    assert_eq!(soon("the reason", guard.lost()).await, Lost::NotHeld);
    assert!(guard.token().is_cancelled());
}

#[tokio::test]
async fn deleted_lock_is_lost_at_next_renewal() {
    let (server, mut client) = start();
    let locks = locks(&server);
    let lock = locks.lock("door").lease(ms(3000));
    let guard = lock.acquire().await.unwrap();
    client.call("DEL door").unwrap();
    assert_eq!(soon("the reason", guard.lost()).await, Lost::NotHeld);
    assert_lost(guard.release().await, Lost::NotHeld);

    let guard = lock.acquire().await.unwrap();
    client.call("DEL door").unwrap();
    client.acquire("door bob 60000");
    assert_eq!(soon("the reason", guard.lost()).await, Lost::NotOwner);
    assert_lost(guard.release().await, Lost::NotOwner);
    assert_eq!(client.owner("door").as_deref(), Some("bob"));

    client.release("door bob");
    let guard = lock.clone().owner("alice").acquire().await.unwrap();
    client.call("DEL door").unwrap();
    client.acquire("door alice 60000");
    assert_eq!(soon("the reason", guard.lost()).await, Lost::Stale);
    assert_lost(guard.release().await, Lost::Stale);
    assert_eq!(client.owner("door").as_deref(), Some("alice"));
}

#[tokio::test]
async fn release_of_lost_lock_keeps_next_holder() {
    let (server, mut client) = start();
    let lock = locks(&server).lock("door").owner("alice");
    let guard = lock.acquire().await.unwrap();
    client.call("DEL door").unwrap();
    client.acquire("door alice 60000");
    assert!(guard.is_held(), "not noticed yet");
    assert_lost(guard.release().await, Lost::Stale);
    assert_eq!(client.lock("door").holder("alice").holds, 1);
}

#[tokio::test]
async fn failed_renewal_is_retried() {
    let (server, mut client) = start();
    let proxy = Proxy::to(server.port());
    let journal = Journal::default();
    let locks = Locks::with(proxy.url(), journal.settings()).unwrap();
    let guard = locks.lock("door").lease(ms(6000)).acquire().await.unwrap();
    proxy.refuse(true);
    proxy.cut();
    until("a failed renewal", || journal.count("RenewFailed") > 0).await;
    proxy.refuse(false);
    let before = client.calls("dlock.extend");
    until("a renewal", || client.calls("dlock.extend") > before).await;
    assert!(guard.is_held());
    assert_eq!(client.lock("door").holders[0].fence, guard.fence());
    assert_eq!(journal.count("Ended"), 0);
}

#[tokio::test]
async fn renewal_of_ended_hold_reports_no_failure() {
    let (server, mut client) = start();
    let proxy = Proxy::to(server.port());
    let journal = Journal::default();
    let locks = Locks::with(proxy.url(), journal.settings()).unwrap();
    let lock = locks.lock("door").lease(ms(3000));
    // Broken, and given up before the renewal is answered.
    let guard = lock.acquire().await.unwrap();
    until("a renewal", renewed(|| guard.remaining())).await;
    let before = client.calls("dlock.extend");
    client.call("DEL door").unwrap();
    proxy.freeze(Way::ToClient);
    until("the next renewal", || client.calls("dlock.extend") > before).await;
    drop(guard);
    proxy.thaw();
    until("the release", || journal.count("Ended") > 0).await;
    // Broken, and reported by the server.
    let guard = lock.acquire().await.unwrap();
    client.call("DEL door").unwrap();
    assert_eq!(soon("the reason", guard.lost()).await, Lost::NotHeld);
    until("the event", || journal.count("Ended") > 1).await;
    assert_eq!(journal.count("RenewFailed"), 0);
}

#[tokio::test]
async fn lock_whose_key_holds_another_type_is_lost() {
    let (server, mut client) = start();
    let locks = locks(&server);
    let guards = [
        locks.acquire("extended").await.unwrap(),
        locks.acquire("released").await.unwrap(),
        locks.acquire("queried").await.unwrap(),
    ];
    for guard in &guards {
        let key = String::from_utf8_lossy(guard.key());
        client.ok(&format!("SET {key} text"));
    }
    let [extended, released, queried] = guards;
    assert_lost(extended.extend(ms(60_000)).await.map(drop), Lost::WrongType);
    assert!(!extended.is_held());
    assert_lost(released.release().await, Lost::WrongType);
    assert_lost(queried.query::<()>(&redis::cmd("PING")).await, Lost::NotHeld);
    assert!(!queried.is_held());
}

#[tokio::test]
async fn second_grant_of_broken_lock_is_given_back() {
    let (server, mut client) = start();
    let locks = locks(&server);
    let released = locks.acquire("released").await.unwrap();
    let extended = locks.acquire("extended").await.unwrap();
    for guard in [&released, &extended] {
        let (key, owner) = (String::from_utf8_lossy(guard.key()), guard.owner().to_string());
        let mut parts = owner.rsplitn(3, ':');
        let (number, random) = (parts.next().unwrap(), parts.next().unwrap());
        client.call(&format!("DEL {key}")).unwrap();
        // A late copy of its ACQUIRE.
        client.acquire(&format!("{key} {owner} 600000 REQID {random}:{number}"));
    }
    assert_lost(released.release().await, Lost::Stale);
    assert_lost(extended.extend(ms(60_000)).await.map(drop), Lost::Stale);
    until_free(&mut client, "released").await;
    until_free(&mut client, "extended").await;
}

#[tokio::test]
async fn rejected_extension_is_sent_again() {
    let (server, mut client) = start();
    let guard = locks(&server).acquire("door").await.unwrap();
    client.ok("CONFIG SET min-replicas-to-write 1");
    let extending = tokio::spawn(async move { (guard.extend(ms(60_000)).await, guard) });
    until("two attempts", || {
        client.server_number::<u64>("stats", "total_error_replies") >= 2
    })
    .await;
    client.ok("CONFIG SET min-replicas-to-write 0");
    let (extended, guard) = soon("the extension", extending).await.unwrap();
    assert!(extended.unwrap() > ms(50_000));
    assert!(guard.is_held());
}

#[tokio::test]
async fn rejected_renewal_is_retried() {
    let (server, mut client) = start();
    let journal = Journal::default();
    let locks = Locks::with(server.url(), journal.settings()).unwrap();
    let guard = locks.lock("door").lease(ms(6000)).acquire().await.unwrap();
    client.ok("CONFIG SET min-replicas-to-write 1");
    until("some refused renewals", || journal.count("RenewFailed") > 2).await;
    assert!(guard.is_held());
    assert_eq!(client.lock("door").holders[0].fence, guard.fence());
    client.ok("CONFIG SET min-replicas-to-write 0");
    let before = guard.remaining();
    until("a renewal", || guard.remaining() > before).await;
    assert!(guard.is_held());
}

#[tokio::test]
async fn guard_is_lost_when_server_resumes_too_late() {
    let server = Server::start();
    let lock = locks(&server).lock("door").lease(ms(1000));
    let guard = lock.acquire().await.unwrap();
    stall(&server, ms(2000));
    assert_eq!(soon("the reason", guard.lost()).await, Lost::LeaseExpired);
    let refused = soon("an answer", guard.release()).await;
    assert_lost(refused, Lost::LeaseExpired);
}

#[tokio::test]
async fn max_hold_ends_renewed_guard() {
    let (server, mut client) = start();
    let lock = locks(&server).lock("door").lease(ms(3000)).max_hold(ms(3500));
    let guard = lock.acquire().await.unwrap();
    let start = Instant::now();
    assert_eq!(guard.lost().await, Lost::MaxHold);
    let took = start.elapsed();
    assert!(took > ms(3400) && took < ms(3500) + SLOW_MACHINE, "{took:?}");
    until_free(&mut client, "door").await;
    drop(guard);
}

#[tokio::test]
async fn run_cancels_work_on_loss() {
    static CANCELLED: AtomicBool = AtomicBool::new(false);
    struct Work;
    impl Drop for Work {
        fn drop(&mut self) {
            CANCELLED.store(true, Ordering::SeqCst);
        }
    }
    let (server, mut client) = start();
    let lock = locks(&server).lock("door").lease(ms(3000));
    let running = tokio::spawn(async move {
        lock.run(async |_| {
            let _work = Work;
            std::future::pending::<()>().await;
        })
        .await
    });
    until("the work", || client.find_lock("door").is_some()).await;
    client.call("DEL door").unwrap();
    let outcome = soon("the end of the work", running).await.unwrap();
    let is_expected = matches!(outcome, Err(RunError::Cancelled(Lost::NotHeld)));
    assert!(is_expected, "{outcome:?}");
    assert!(CANCELLED.load(Ordering::SeqCst));
}

#[tokio::test]
async fn run_reports_loss_before_end_of_work() {
    let server = Server::start();
    let lock = locks(&server).lock("door").max_hold(ms(1000));
    // It never awaits, so it cannot be cancelled.
    let outcome = lock.run(async |_| std::thread::sleep(ms(1200))).await;
    let is_expected = matches!(
        outcome,
        Err(RunError::Unprotected {
            lost: Lost::MaxHold,
            done: ()
        })
    );
    assert!(is_expected, "{outcome:?}");
}

#[tokio::test]
async fn late_grant_is_not_returned() {
    let (server, mut client) = start();
    let proxy = Proxy::to(server.port());
    let locks = Locks::open(proxy.url()).unwrap();
    locks.acquire("warm-up").await.unwrap().release().await.unwrap();
    proxy.delay(Way::ToClient, ms(200));
    let late = locks.lock("door").lease(ms(100)).try_acquire().await.unwrap_err();
    assert!(matches!(late, Error::Lost(Lost::LeaseExpired)), "{late:?}");
    until_free(&mut client, "door").await;
}

async fn until_all_renewed(guards: &[Guard]) {
    let renewals = guards.iter().map(|guard| renewed(|| guard.remaining()));
    let mut missing: Vec<_> = renewals.collect();
    until("a renewal of each", || {
        missing.retain_mut(|is_renewed| !is_renewed());
        missing.is_empty()
    })
    .await;
}

#[tokio::test]
async fn hundreds_of_guards_share_one_renewal_thread() {
    let (server, mut client) = start();
    let locks = locks(&server);
    let mut guards = Vec::new();
    for n in 0..500 {
        guards.push(
            locks
                .lock(format!("door{n}"))
                .lease(ms(4000))
                .acquire()
                .await
                .unwrap(),
        );
    }
    until_all_renewed(&guards).await;
    assert!(guards.iter().all(|guard| guard.is_held()));
    drop(guards);
    until("all to be free", || client.ask::<i64>("DBSIZE") == 0).await;
}

#[tokio::test]
async fn extend_of_broken_lock_reports_who_holds_it() {
    let (server, mut client) = start();
    let lock = locks(&server).lock("door").owner("alice");
    let others = [
        ("PING", Lost::NotHeld),
        ("DLOCK.ACQUIRE door bob 60000", Lost::NotOwner),
        ("DLOCK.ACQUIRE door alice 60000", Lost::Stale),
    ];
    for (other, expected) in others {
        let guard = lock.acquire().await.unwrap();
        client.call("DEL door").unwrap();
        client.call(other).unwrap();
        assert_lost(guard.extend(ms(60_000)).await, expected);
        assert_eq!(soon("the loss", guard.lost()).await, expected);
        assert!(!guard.is_held());
        client.call("DEL door").unwrap();
    }
}

#[tokio::test]
async fn hook_that_panics_stops_no_renewal() {
    let (server, mut client) = start();
    let settings = Settings::default().on_event(|event| {
        let is_expected = matches!(event.kind, EventKind::RenewFailed { .. });
        assert!(is_expected, "this is part of the test");
    });
    let locks = Locks::with(server.url(), settings).unwrap();
    let guard = locks.lock("door").lease(ms(3000)).acquire().await.unwrap();
    // After the panic at the grant, and after the one at the first renewal.
    for _ in 0..2 {
        until("a renewal", renewed(|| guard.remaining())).await;
    }
    guard.release().await.unwrap();
    assert!(client.find_lock("door").is_none());
}

#[tokio::test]
async fn max_hold_is_kept_when_renewal_waits_for_a_connection() {
    let (server, mut client) = start();
    let proxy = Proxy::to(server.port());
    let locks = Locks::open(proxy.url()).unwrap();
    let lock = locks.lock("door").lease(ms(4500)).max_hold(ms(5000));
    let guard = lock.acquire().await.unwrap();
    let granted = Instant::now();
    // The renewal is due after at most 1.5 s.
    proxy.refuse(true);
    proxy.cut();
    tokio::time::sleep(ms(2500)).await;
    let before = client.calls("dlock.extend");
    proxy.refuse(false);
    until("a renewal", || client.calls("dlock.extend") > before).await;
    let held = granted.elapsed();
    let left = guard.remaining();
    assert!(held + left <= ms(5000), "{left:?} after {held:?}");
    assert_eq!(soon("the loss", guard.lost()).await, Lost::MaxHold);
}
