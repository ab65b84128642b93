//! Locks that count when replicas have them.

mod support;

use std::time::Instant;

use dlock_testkit::{SLOW_MACHINE, Server};
use redis_dlock_client::{Error, Lock, Locks, Settings};
use support::{locks, ms, soon, until, until_free, url};

fn lock(server: &Server) -> Lock {
    locks(server).lock("door").replicas(1, ms(400))
}

#[tokio::test]
async fn a_lock_that_a_replica_has_is_granted() {
    let primary = Server::start();
    let replica = primary.replica();
    primary.client().acquire("warm-up somebody 60000");
    let guard = lock(&primary).replicas(1, ms(10_000)).acquire().await.unwrap();
    // It has it now: it need not be waited for.
    assert_eq!(replica.client().owner("door"), Some(guard.owner().to_string()));
    guard.release().await.unwrap();
}

#[tokio::test]
async fn without_a_replica_the_lock_is_given_back() {
    let primary = Server::start();
    for outcome in [lock(&primary).try_acquire().await, lock(&primary).acquire().await] {
        let refused = outcome.unwrap_err();
        assert!(
            matches!(
                refused,
                Error::Unreplicated {
                    needed: 1,
                    acknowledged: 0
                }
            ),
            "{refused:?}"
        );
        until_free(&mut primary.client(), "door").await;
    }
}

#[tokio::test]
async fn a_killed_replica_acknowledges_nothing() {
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
async fn a_silent_replica_costs_no_more_than_the_timeout() {
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
    replica.go_on();
    let guard = soon("a lock", lock.replicas(1, ms(10_000)).acquire()).await;
    guard.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_silent_primary_is_not_waited_for_for_ever() {
    let primary = Server::start();
    let settings = Settings::default().response_timeout(ms(200)).patience(ms(0));
    let locks = Locks::with(url(&primary), settings.connect_timeout(ms(200))).unwrap();
    let lock = locks.lock("door").replicas(1, ms(100));
    assert!(lock.try_acquire().await.is_err());
    primary.stop();
    let start = Instant::now();
    let error = soon("an answer", lock.try_acquire()).await.unwrap_err();
    assert!(start.elapsed() < SLOW_MACHINE, "{:?}", start.elapsed());
    assert!(error.is_transient(), "{error:?}");
    primary.go_on();
    until_free(&mut primary.client(), "door").await;
}

#[tokio::test]
async fn what_a_waiter_is_granted_is_acknowledged_too() {
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
async fn an_acquisition_that_is_dropped_while_the_replicas_are_asked_leaves_nothing_behind() {
    let primary = Server::start();
    let mut client = primary.client();
    let lock = lock(&primary).replicas(1, ms(1500));
    let asking = tokio::spawn(async move { lock.acquire().await });
    until("the grant", || client.find_lock("door").is_some()).await;
    asking.abort();
    until_free(&mut client, "door").await;
}

/// Servers before Redis 7.2 do not.
fn has_waitaof(server: &Server) -> bool {
    let mut connection = redis::Client::open(url(server))
        .unwrap()
        .get_connection()
        .unwrap();
    let known: Vec<redis::Value> = redis::cmd("COMMAND")
        .arg("INFO")
        .arg("WAITAOF")
        .query(&mut connection)
        .unwrap();
    known != [redis::Value::Nil]
}

#[tokio::test]
async fn a_lock_that_is_on_disk_outlives_a_crash_of_the_server_or_the_server_is_said_to_be_too_old() {
    let mut primary = Server::with("appendonly yes\nappendfsync everysec");
    let lock = locks(&primary)
        .lock("door")
        .auto_renew(false)
        .on_disk(0, ms(10_000));
    let outcome = lock.acquire().await;
    if !has_waitaof(&primary) {
        let refused = outcome.unwrap_err();
        assert!(
            matches!(&refused, Error::Invalid(text) if text.contains("Redis 7.2")),
            "{refused:?}"
        );
        until_free(&mut primary.client(), "door").await;
        return;
    }
    let guard = outcome.unwrap();
    primary.crash_and_restart();
    let owner = Some(guard.owner().to_string());
    until("the lock", || primary.client().owner("door") == owner).await;
    assert_eq!(guard.release().await.unwrap(), 0);
}

#[tokio::test]
async fn a_lock_that_too_few_logs_have_is_given_back() {
    let primary = Server::with("appendonly yes");
    if !has_waitaof(&primary) {
        eprintln!("skipped: the server does not have WAITAOF");
        return;
    }
    let refused = locks(&primary)
        .lock("door")
        .on_disk(1, ms(200))
        .acquire()
        .await
        .unwrap_err();
    // The primary has it, and there is no replica.
    assert!(
        matches!(
            refused,
            Error::Unreplicated {
                needed: 2,
                acknowledged: 1
            }
        ),
        "{refused:?}"
    );
    until_free(&mut primary.client(), "door").await;
    let without_log = Server::start();
    let refused = locks(&without_log)
        .lock("door")
        .on_disk(0, ms(200))
        .acquire()
        .await
        .unwrap_err();
    assert!(refused.to_string().contains("appendonly"), "{refused}");
    until_free(&mut without_log.client(), "door").await;
}
