//! A lost connection is a reason to check the locks.

use dlock_testkit::{Proxy, Server};
use redis_dlock_client::{Locks, Lost};

use crate::support::{calls, locks, ms, until};

#[tokio::test]
async fn empty_restart_is_noticed_long_before_the_next_renewal() {
    let mut server = Server::start();
    // Renewed after 10 s.
    let lock = locks(&server).lock("door").lease(ms(30_000));
    let guard = lock.acquire().await.unwrap();
    server.kill();
    server.start_again();
    let reason = tokio::time::timeout(ms(5_000), guard.lost()).await;
    assert_eq!(reason, Ok(Lost::NotHeld));
}

#[tokio::test]
async fn lost_connection_renews_every_hold_at_once() {
    const HOLDS: u64 = 200;
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let locks = Locks::open(proxy.url()).unwrap();
    let mut guards = Vec::new();
    for n in 0..HOLDS {
        let lock = locks.lock(format!("lock{n}")).lease(ms(60_000));
        guards.push(lock.acquire().await.unwrap());
    }
    let mut client = server.client();
    assert_eq!(calls(&mut client, "dlock.extend"), 0);
    proxy.cut();
    until("the renewals", || calls(&mut client, "dlock.extend") >= HOLDS).await;
    assert!(guards.iter().all(redis_dlock_client::Guard::is_held));
}

#[tokio::test]
async fn lost_connection_without_holds_is_not_replaced() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let locks = Locks::open(proxy.url()).unwrap();
    locks.acquire("door").await.unwrap().release().await.unwrap();
    proxy.cut();
    tokio::time::sleep(ms(300)).await;
    assert_eq!(proxy.connections(), 0);
    assert!(locks.acquire("door").await.unwrap().is_held());
}
