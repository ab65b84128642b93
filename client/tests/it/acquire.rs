//! Getting locks and giving them back, as far as only this client does it so. `tests/conformance` has what all do.

use std::time::Instant;

use crate::support::{Journal, assert_lost, locks, ms, soon, until, until_free};
use dlock_testkit::{SLOW_MACHINE, Server, start};
use redis_dlock_client::{Error, LockInfo, Locks, Lost, Owner, RunError, redis};

#[tokio::test]
async fn info_shows_holders_and_waiters() {
    let server = Server::start();
    let lock = locks(&server).lock("door").owner("alice").lease(ms(60_000));
    assert_eq!(lock.info().await.unwrap(), None);
    let guard = lock.acquire().await.unwrap();
    let _waiter = server.waiter("door bob 60000 SHARED BLOCK 50000");
    let info = lock.info().await.unwrap().unwrap();
    assert_eq!((info.limit, info.waiting), (Some(1), 1));
    let holder = &info.holders[0];
    let expected = (guard.owner(), guard.fence(), 1);
    assert_eq!((&holder.owner, holder.fence, holder.holds), expected);
    assert!(holder.lease <= ms(60_000) && holder.lease > ms(60_000) - SLOW_MACHINE);
    let waiter = &info.waiters[0];
    assert_eq!((waiter.owner.to_string().as_str(), waiter.limit), ("bob", None));
    assert_eq!(waiter.timeout, Some(ms(50_000)));
}

#[test]
fn info_reply_is_parsed_in_both_protocols() {
    let server = Server::start();
    for (book, mut client) in [("red", server.client()), ("blue", server.client_resp3())] {
        client.acquire(&format!("{book} reader 60000 SHARED"));
        let _limited = server.waiter(&format!("{book} writer 60000 BLOCK 0"));
        let _shared = server.waiter(&format!("{book} other 60000 SHARED BLOCK 50000"));
        let info: Option<LockInfo> = redis::cmd("DLOCK.INFO")
            .arg(book)
            .query(client.connection())
            .unwrap();
        let info = info.unwrap();
        assert_eq!((info.limit, info.waiting), (None, 2));
        assert_eq!(info.holders[0].owner, Owner::from("reader"));
        let waiters: Vec<_> = info
            .waiters
            .iter()
            .map(|waiter| (waiter.owner.to_string(), waiter.limit, waiter.timeout))
            .collect();
        let expected = [
            ("writer".to_owned(), Some(1), None),
            ("other".to_owned(), None, Some(ms(50_000))),
        ];
        assert_eq!(waiters, expected);
    }
}

#[tokio::test]
async fn missing_module_is_reported_with_remedy() {
    let server = Server::without_module("");
    let lock = locks(&server).lock("door");
    for error in [
        lock.try_acquire().await.map(drop).unwrap_err(),
        lock.acquire().await.map(drop).unwrap_err(),
    ] {
        assert!(matches!(error, Error::ModuleMissing { .. }), "{error:?}");
        let is_expected = error.to_string().contains("loadmodule /path/to/libdlock.so");
        assert!(is_expected, "{error}");
    }
}

#[tokio::test]
async fn run_holds_lock_and_releases_it() {
    let (server, mut client) = start();
    let locks = locks(&server);
    let fence = locks.lock("door").run(async |guard| guard.fence()).await.unwrap();
    assert!(fence > 0);
    until_free(&mut client, "door").await;
    // Also in a task of its own.
    let lock = locks.lock("door");
    let task = tokio::spawn(async move { lock.run(async |guard| guard.is_held()).await });
    assert!(task.await.unwrap().unwrap());
}

#[tokio::test]
async fn lock_is_kept_for_its_time_after_the_release() {
    let (server, mut client) = start();
    let journal = Journal::default();
    let locks = Locks::with(server.url(), journal.settings()).unwrap();
    let lock = locks.lock("job").lease(ms(3000)).release_after(ms(60_000));
    let guard = lock.acquire().await.unwrap();
    guard.release().await.unwrap();
    assert!(client.lock("job").holders[0].lease_ms > 50_000);
    assert_eq!(journal.count("Ended"), 1);
    assert!(lock.try_acquire().await.unwrap().is_none());
    client.call("DEL job").unwrap();
    // Work that was not finished, or that has failed, does not count.
    drop(lock.acquire().await.unwrap());
    until_free(&mut client, "job").await;
    let failed = lock.try_run(async |_| Err::<(), _>("failed")).await;
    assert!(matches!(failed, Err(RunError::Failed("failed"))), "{failed:?}");
    until_free(&mut client, "job").await;
    // After that time it is an ordinary release.
    let guard = lock.clone().release_after(ms(1)).acquire().await;
    drop(guard);
    let guard = lock
        .clone()
        .lease(ms(60_000))
        .release_after(ms(400))
        .acquire()
        .await
        .unwrap();
    tokio::time::sleep(ms(700)).await;
    guard.release().await.unwrap();
    assert!(client.find_lock("job").is_none());
    // A lost lock is not kept.
    let guard = lock.acquire().await.unwrap();
    client.call("DEL job").unwrap();
    assert_lost(guard.release().await, Lost::NotHeld);
}

#[tokio::test]
async fn lock_that_is_kept_for_less_than_a_lease_is_free_in_time() {
    let (server, mut client) = start();
    let lock = locks(&server).lock("job").release_after(ms(1500));
    let start = Instant::now();
    lock.acquire().await.unwrap().release().await.unwrap();
    assert!(client.lock("job").holders[0].lease_ms <= 1500);
    until_free(&mut client, "job").await;
    let took = start.elapsed();
    assert!(took > ms(1400) && took < ms(1500) + SLOW_MACHINE, "{took:?}");
    // Renewed beyond that time in its last third, it is released in the background.
    let start = Instant::now();
    let guard = lock.acquire().await.unwrap();
    until("a longer lease", || guard.remaining() > ms(10_000)).await;
    guard.release().await.unwrap();
    until_free(&mut client, "job").await;
    let took = start.elapsed();
    assert!(took > ms(1400) && took < ms(1500) + SLOW_MACHINE, "{took:?}");
}

#[tokio::test]
async fn each_acquisition_has_one_end() {
    let (server, mut client) = start();
    let journal = Journal::default();
    let locks = Locks::with(server.url(), journal.settings()).unwrap();
    let lock = locks.lock("door");
    // Broken, then released; lost, then released; dropped; released.
    let guard = lock.acquire().await.unwrap();
    client.call("DEL door").unwrap();
    assert_lost(guard.release().await, Lost::NotHeld);
    let guard = lock.clone().max_hold(ms(100)).acquire().await.unwrap();
    guard.lost().await;
    assert_lost(guard.release().await, Lost::MaxHold);
    // The background gives back what is left, and releases what was dropped.
    until_free(&mut client, "door").await;
    drop(lock.acquire().await.unwrap());
    until_free(&mut client, "door").await;
    lock.acquire().await.unwrap().release().await.unwrap();
    until("all ends", || journal.count("Ended") == 4).await;
    // Taken: once at once, once after a wait.
    client.acquire("door alice 60000");
    assert!(lock.try_acquire().await.unwrap().is_none());
    assert!(lock.clone().timeout(ms(100)).acquire().await.is_err());
    locks.shutdown().await;
    for (event, count) in [("Acquired", 4), ("NotAcquired", 2), ("Waiting", 1), ("Ended", 4)] {
        assert_eq!(journal.count(event), count, "{event}");
    }
}

#[tokio::test]
async fn refused_connection_and_unknown_name_are_told_at_once() {
    for (address, cause) in [
        ("redis://127.0.0.1:1/", "127.0.0.1:1: Connection refused"),
        ("redis://name.invalid/", "lookup"),
    ] {
        let locks = Locks::open(address).unwrap();
        let lock = locks.lock("door");
        let start = Instant::now();
        let errors = [
            locks.ping().await.unwrap_err(),
            lock.try_acquire().await.map(drop).unwrap_err(),
            lock.acquire().await.map(drop).unwrap_err(),
            lock.info().await.map(drop).unwrap_err(),
        ];
        assert!(start.elapsed() < SLOW_MACHINE, "{:?}", start.elapsed());
        for error in errors {
            assert!(error.to_string().contains(cause), "{error}");
        }
    }
}

#[tokio::test]
async fn reads_and_extensions_survive_a_lost_connection() {
    let (server, mut client) = start();
    let locks = locks(&server);
    let guard = locks.acquire("door").await.unwrap();
    for _ in 0..10 {
        client.call("CLIENT KILL TYPE normal SKIPME yes").unwrap();
        assert!(locks.lock("door").info().await.unwrap().is_some());
        client.call("CLIENT KILL TYPE normal SKIPME yes").unwrap();
        guard.extend(ms(60_000)).await.unwrap();
        client.call("CLIENT KILL TYPE normal SKIPME yes").unwrap();
        locks.ping().await.unwrap();
    }
    guard.release().await.unwrap();
}

#[tokio::test]
async fn owner_that_is_too_long_is_rejected_before_anything_is_sent() {
    // Nothing listens there.
    let locks = Locks::open("redis://127.0.0.1:1/").unwrap();
    let refused = locks.lock("door").owner("x".repeat(513)).try_acquire().await;
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
}

#[tokio::test]
async fn extend_beyond_max_hold_ends_with_it() {
    let (server, mut client) = start();
    let lock = locks(&server).lock("door").max_hold(ms(20_000));
    let guard = lock.acquire().await.unwrap();
    let left = guard.extend(ms(600_000)).await.unwrap();
    assert!(left <= ms(20_000), "{left:?}");
    assert!(client.lock("door").holders[0].lease_ms <= 20_000);
}

#[tokio::test]
async fn ping_finds_server_and_says_what_is_wrong() {
    let (server, mut client) = start();
    locks(&server).ping().await.unwrap();
    client.call("ACL SETUSER reader on nopass ~* +@read").unwrap();
    let reader = Locks::open(format!("redis://reader:x@127.0.0.1:{}/", server.port())).unwrap();
    let refused = reader.ping().await.unwrap_err();
    assert!(refused.to_string().contains("NOPERM"), "{refused}");
    assert!(!refused.to_string().contains("reader:x"), "{refused}");
    let locks = locks(&server);
    locks.ping().await.unwrap();
    server.stop();
    let silent = soon("an outcome", locks.ping()).await.unwrap_err();
    assert!(silent.is_transient(), "{silent:?}");
    server.resume();
}

#[tokio::test]
async fn work_longer_than_release_after_keeps_lock_until_it_ends() {
    let (server, mut client) = start();
    let lock = locks(&server).lock("job").lease(ms(3000)).release_after(ms(500));
    let guard = lock.acquire().await.unwrap();
    tokio::time::sleep(ms(700)).await;
    assert!(guard.is_held(), "{guard:?}");
    client.assert_sole_holder("job", &guard.owner().to_string(), guard.fence(), 1);
    guard.release().await.unwrap();
    assert!(client.find_lock("job").is_none());
}

#[tokio::test]
async fn contended_acquisition_with_open_inbox_takes_one_command() {
    let (server, mut client) = start();
    let locks = locks(&server);
    client.acquire("door alice 60000");
    assert!(locks.lock("door").timeout(ms(300)).acquire().await.is_err());
    let before = client.calls("dlock.acquire");
    let waiting = tokio::spawn({
        let locks = locks.clone();
        async move { locks.acquire("door").await }
    });
    until("a place in the queue", || client.waiting("door") == 1).await;
    client.release("door alice");
    let guard = soon("the lock", waiting).await.unwrap().unwrap();
    assert_eq!(client.calls("dlock.acquire") - before, 1);
    guard.release().await.unwrap();
}

#[tokio::test]
async fn rejected_request_sends_no_release() {
    let (server, mut client) = start();
    client.acquire("door alice 60000");
    let locks = locks(&server);
    for _ in 0..20 {
        assert!(locks.lock("door").try_acquire().await.unwrap().is_none());
    }
    let waited = locks.lock("door").timeout(ms(100)).acquire().await;
    assert!(matches!(waited, Err(Error::Timeout { .. })), "{waited:?}");
    locks.shutdown().await;
    // One question each; one that found no inbox, and then waited.
    assert_eq!(client.calls("dlock.acquire"), 1 + 20 + 2);
    // That of the one that was queued.
    assert_eq!(client.calls("dlock.release"), 1);
}
