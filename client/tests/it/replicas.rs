//! Locks that count when replicas have them.

use std::time::Instant;

use crate::support::{Journal, locks, ms, soon, until, until_free};
use dlock_testkit::{Proxy, SLOW_MACHINE, Server, Way, skip};
use redis_dlock_client::{Error, Lock, Locks, Owner, Settings};

fn lock(server: &Server) -> Lock {
    locks(server).lock("door").replicas(1, ms(400))
}

#[tokio::test]
async fn replicated_grant_is_confirmed() {
    let primary = Server::start();
    let replica = primary.replica();
    primary.client().acquire("warm-up somebody 60000");
    let guard = lock(&primary).replicas(1, ms(10_000)).acquire().await.unwrap();
    // It has it now: it need not be waited for.
    assert_eq!(replica.client().owner("door"), Some(guard.owner().to_string()));
    guard.release().await.unwrap();
}

#[tokio::test]
async fn unreplicated_grant_is_released() {
    let primary = Server::start();
    for outcome in [
        lock(&primary).try_acquire().await.map(drop),
        lock(&primary).acquire().await.map(drop),
    ] {
        let refused = outcome.unwrap_err();
        let is_expected = matches!(
            refused,
            Error::Unreplicated {
                needed: 1,
                acknowledged: 0,
                ..
            }
        );
        assert!(is_expected, "{refused:?}");
        until_free(&mut primary.client(), "door").await;
    }
}

#[tokio::test]
async fn killed_replica_acknowledges_nothing() {
    let primary = Server::start();
    let mut replica = primary.replica();
    let lock = lock(&primary).replicas(1, ms(10_000));
    lock.acquire().await.unwrap().release().await.unwrap();
    replica.kill();
    let refused = lock.replicas(1, ms(400)).acquire().await.unwrap_err();
    assert!(matches!(refused, Error::Unreplicated { .. }), "{refused:?}");
    until_free(&mut primary.client(), "door").await;
}

#[tokio::test]
async fn unresponsive_replica_costs_at_most_the_timeout() {
    let primary = Server::start();
    let replica = primary.replica();
    let lock = lock(&primary);
    lock.clone()
        .replicas(1, ms(10_000))
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    replica.stop();
    let start = Instant::now();
    let refused = lock.acquire().await.unwrap_err();
    let took = start.elapsed();
    assert!(took >= ms(400) && took < ms(400) + SLOW_MACHINE, "{took:?}");
    assert!(matches!(refused, Error::Unreplicated { .. }), "{refused:?}");
    until_free(&mut primary.client(), "door").await;
    replica.resume();
    let guard = soon("a lock", lock.replicas(1, ms(10_000)).acquire()).await;
    guard.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn unresponsive_primary_times_out() {
    let primary = Server::start();
    let settings = Settings::default().response_timeout(ms(200));
    let locks = Locks::with(primary.url(), settings).unwrap();
    let lock = locks.lock("door").replicas(1, ms(100));
    assert!(lock.try_acquire().await.is_err());
    primary.stop();
    let start = Instant::now();
    let error = soon("an answer", lock.try_acquire()).await.unwrap_err();
    assert!(start.elapsed() < SLOW_MACHINE, "{:?}", start.elapsed());
    assert!(error.is_transient(), "{error:?}");
    primary.resume();
    until_free(&mut primary.client(), "door").await;
}

#[tokio::test]
async fn grant_from_queue_is_confirmed() {
    let primary = Server::start();
    let replica = primary.replica();
    let mut client = primary.client();
    client.acquire("door alice 60000");
    client.sync();
    let waiting = tokio::spawn(async move {
        let lock = lock(&primary);
        (lock.acquire().await, primary)
    });
    until("a place in the queue", || client.waiting("door") == 1).await;
    replica.stop();
    client.release("door alice");
    let (outcome, _primary) = soon("an answer", waiting).await.unwrap();
    assert!(matches!(outcome, Err(Error::Unreplicated { .. })), "{outcome:?}");
    until_free(&mut client, "door").await;
}

#[tokio::test]
async fn acquire_dropped_during_confirmation_leaves_no_lock() {
    let primary = Server::start();
    let mut client = primary.client();
    let lock = lock(&primary).replicas(1, ms(1500));
    let asking = tokio::spawn(async move { lock.acquire().await });
    until("the grant", || client.find_lock("door").is_some()).await;
    asking.abort();
    until_free(&mut client, "door").await;
}

#[tokio::test]
async fn grant_that_waits_for_replicas_longer_than_its_lease_is_renewed() {
    let primary = Server::start();
    let replica = primary.replica();
    let mut client = primary.client();
    client.acquire("warm-up somebody 60000");
    client.sync();
    replica.stop();
    let lock = lock(&primary).lease(ms(900)).replicas(1, ms(30_000));
    let asking = tokio::spawn(async move { lock.acquire().await });
    until("the grant", || client.find_lock("door").is_some()).await;
    tokio::time::sleep(ms(2700)).await;
    assert!(client.find_lock("door").is_some(), "three leases later");
    replica.resume();
    let guard = soon("an answer", asking).await.unwrap().unwrap();
    assert!(guard.is_held());
    assert_eq!(client.stat("dlock_expired"), 0);
    guard.release().await.unwrap();
}

/// A primary with a replica, and a client that knows the primary only through a bad network.
struct Scene {
    primary: Server,
    replica: Server,
    proxy: Proxy,
    locks: Locks,
    journal: Journal,
}

impl Scene {
    fn new() -> Self {
        let primary = Server::with("appendonly yes");
        let replica = primary.replica_with("appendonly yes");
        let proxy = Proxy::to(primary.port());
        let journal = Journal::default();
        let locks = Locks::with(proxy.url(), journal.settings()).unwrap();
        Self {
            primary,
            replica,
            proxy,
            locks,
            journal,
        }
    }

    /// The connections are there, and the replica has all.
    async fn warm_up(&self) {
        let guard = self.locks.lock("door").replicas(1, ms(10_000)).acquire().await;
        let guard = guard.unwrap();
        self.give_back(move || drop(guard)).await;
    }

    /// In the background, over its own connection.
    async fn give_back(&self, drops: impl FnOnce()) {
        let before = self.journal.count("Ended");
        drops();
        until("the answer to the release", || {
            self.journal.count("Ended") > before
        })
        .await;
        self.primary.client().sync();
    }

    /// The server grants the lock, its answer is lost, and the request is sent again.
    async fn lose_the_answer_to<T>(&self, acquiring: impl Future<Output = T>) -> T {
        let mut client = self.primary.client();
        let before = client.calls("dlock.acquire");
        self.proxy.delay(Way::ToClient, ms(300));
        let losing = async {
            until("the grant", || client.find_lock("door").is_some()).await;
            self.proxy.cut();
            self.proxy.delay(Way::ToClient, ms(0));
        };
        let (outcome, ()) = tokio::join!(soon("an outcome", acquiring), losing);
        let sent = client.calls("dlock.acquire") - before;
        assert!(sent >= 2, "sent {sent} times");
        outcome
    }

    async fn refused_though_the_answer_was_lost<T: std::fmt::Debug>(
        &self,
        acquiring: impl Future<Output = Result<T, Error>>,
    ) {
        self.warm_up().await;
        self.replica.stop();
        let outcome = self.lose_the_answer_to(acquiring).await;
        self.replica.resume();
        assert!(matches!(outcome, Err(Error::Unreplicated { .. })), "{outcome:?}");
        until_free(&mut self.primary.client(), "door").await;
    }
}

#[tokio::test]
async fn repeated_grant_is_not_confirmed_without_replica() {
    let scene = Scene::new();
    let lock = scene.locks.lock("door").replicas(1, ms(400));
    scene.refused_though_the_answer_was_lost(lock.acquire()).await;
    scene.refused_though_the_answer_was_lost(lock.try_acquire()).await;
    if has_waitaof(&scene.primary) {
        let lock = lock.fsynced(1, ms(400));
        scene.refused_though_the_answer_was_lost(lock.acquire()).await;
    }
}

#[tokio::test]
async fn repeated_grant_counts_once_when_confirmed() {
    let scene = Scene::new();
    let mut client = scene.primary.client();
    let owner = Owner::unique();
    let lock = scene.locks.lock("door").owner(&owner).replicas(1, ms(10_000));
    // The answers that come after the first one, those to the connecting included, have some 150 bytes.
    for bytes in (0..180).step_by(3) {
        scene.warm_up().await;
        let cut_again = async {
            until("the cut", || !scene.proxy.will_cut()).await;
            scene.proxy.cut_after(Way::ToClient, bytes);
        };
        scene.proxy.cut_after(Way::ToClient, 1);
        let (outcome, ()) = tokio::join!(soon("the lock", lock.acquire()), cut_again);
        let guard = outcome.unwrap();
        let expected = [(owner.to_string(), guard.fence(), 1)];
        assert_eq!(client.lock("door").standing(), expected, "cut after {bytes}");
        let left = guard.release().await;
        // The last cuts are in the reply to the release.
        let is_released = matches!(left, Ok(()) | Err(Error::Unconfirmed(_)));
        assert!(is_released, "cut after {bytes}: {left:?}");
        until_free(&mut client, "door").await;
    }
}

/// Servers before Redis 7.2 do not.
fn has_waitaof(server: &Server) -> bool {
    let connection = redis::Client::open(server.url()).unwrap();
    let mut connection = connection.get_connection().unwrap();
    let mut known = redis::cmd("COMMAND");
    known.arg("INFO").arg("WAITAOF");
    let known: Vec<redis::Value> = known.query(&mut connection).unwrap();
    known != [redis::Value::Nil]
}

#[tokio::test]
async fn fsynced_lock_survives_crash_or_server_is_too_old() {
    let mut primary = Server::with("appendonly yes\nappendfsync everysec");
    let lock = locks(&primary).lock("door");
    let lock = lock.fsynced(0, ms(10_000));
    let outcome = lock.acquire().await;
    if !has_waitaof(&primary) {
        let refused = outcome.unwrap_err();
        let is_expected = matches!(&refused, Error::Invalid(text) if text.contains("Redis 7.2"));
        assert!(is_expected, "{refused:?}");
        until_free(&mut primary.client(), "door").await;
        return;
    }
    let guard = outcome.unwrap();
    primary.crash_and_restart();
    let owner = Some(guard.owner().to_string());
    until("the lock", || primary.client().owner("door") == owner).await;
    guard.release().await.unwrap();
}

#[tokio::test]
async fn grant_without_enough_fsyncs_is_released() {
    let primary = Server::with("appendonly yes\nappendfsync always");
    if !has_waitaof(&primary) {
        return skip("the server does not have WAITAOF");
    }
    let lock = locks(&primary).lock("door").fsynced(1, ms(200));
    let refused = lock.acquire().await.unwrap_err();
    // The primary has it, and there is no replica.
    let is_expected = matches!(
        refused,
        Error::Unreplicated {
            needed: 2,
            acknowledged: 1,
            ..
        }
    );
    assert!(is_expected, "{refused:?}");
    until_free(&mut primary.client(), "door").await;
    let without_log = Server::start();
    let lock = locks(&without_log).lock("door").fsynced(0, ms(200));
    let refused = lock.acquire().await.unwrap_err();
    assert!(refused.to_string().contains("appendonly"), "{refused}");
    until_free(&mut without_log.client(), "door").await;
}
