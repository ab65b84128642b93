//! Guards that are dropped: wherever that is, nothing is left behind. For dropped futures, see `client/src/simulation`.

use std::thread;
use std::time::Instant;

use crate::support::{locks, runtime, soon, until};
use dlock_testkit::{Proxy, SLOW_MACHINE, Server, Way, start, wait_for};
use redis_dlock_client::{Guard, Locks};
use tokio::runtime::Runtime;

/// A guard of `door`, from a runtime that is still there.
fn guard(server: &Server, runtime: &Runtime) -> Guard {
    runtime.block_on(locks(server).acquire("door")).unwrap()
}

#[track_caller]
fn wait_until_free(server: &Server, key: &str) {
    let mut client = server.client();
    wait_for("the lock to be free", || client.find_lock(key).is_none());
}

#[test]
fn dropped_guard_is_released_with_and_without_runtime() {
    let server = Server::start();
    let runtime = runtime();
    runtime.block_on(async { drop(locks(&server).acquire("door").await.unwrap()) });
    wait_until_free(&server, "door");
    drop(guard(&server, &runtime));
    wait_until_free(&server, "door");
    let elsewhere = guard(&server, &runtime);
    thread::spawn(|| drop(elsewhere)).join().unwrap();
    wait_until_free(&server, "door");
}

#[test]
fn guard_dropped_by_runtime_shutdown_is_released() {
    let (server, mut client) = start();
    let runtime = runtime();
    let locks = locks(&server);
    runtime.spawn(async move {
        let _guard = locks.acquire("door").await.unwrap();
        std::future::pending::<()>().await;
    });
    runtime.block_on(until("the lock", || client.find_lock("door").is_some()));
    runtime.shutdown_background();
    wait_until_free(&server, "door");
}

#[test]
fn drop_does_not_block_on_unresponsive_server() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let runtime = runtime();
    let locks = Locks::open(proxy.url()).unwrap();
    let guards: Vec<Guard> = (0..50)
        .map(|n| runtime.block_on(locks.acquire(format!("door{n}"))).unwrap())
        .collect();
    proxy.freeze(Way::ToServer);
    let start = Instant::now();
    drop(guards);
    assert!(start.elapsed() < SLOW_MACHINE / 3, "{:?}", start.elapsed());
    proxy.thaw();
    for n in 0..50 {
        wait_until_free(&server, &format!("door{n}"));
    }
}

#[test]
fn connections_close_after_last_guard() {
    let server = Server::start();
    let runtime = runtime();
    drop(guard(&server, &runtime));
    wait_until_free(&server, "door");
    drop(runtime);
    let mut client = server.client();
    wait_for("only the connection of the test", || {
        client.server_info("clients", "connected_clients") == "1"
    });
}

#[tokio::test]
async fn token_is_cancelled_when_guard_is_released_or_dropped() {
    let server = Server::start();
    let locks = locks(&server);
    let guard = locks.acquire("door").await.unwrap();
    let token = guard.token();
    assert!(!token.is_cancelled());
    guard.release().await.unwrap();
    assert!(token.is_cancelled());
    let guard = locks.acquire("door").await.unwrap();
    let token = guard.token();
    drop(guard);
    soon("the token", token.cancelled()).await;
}
