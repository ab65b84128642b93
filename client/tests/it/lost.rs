//! A lock that is lost, as far as only this client tells it so: `run`, tokens, events, and what comes late.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::support::{Journal, assert_lost, locks, ms, soon, until, until_free};
use dlock_testkit::{Proxy, Server, Way, renewed, start};
use redis_dlock_client::{EventKind, Locks, Lost, RunError, Settings};
use tokio::time::timeout;

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
