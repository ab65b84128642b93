//! A service and its test: see "Testing your code" in docs/client.md.

use std::time::Duration;

use redis_dlock_client::testing::TestServer;
use redis_dlock_client::{Error, Lock, Locks, Lost, RunError};

/// The service: work that must stop when its lock is lost.
async fn ship(lock: Lock, work: impl Future<Output = ()>) -> Result<(), RunError<()>> {
    lock.run(async |_| work.await).await
}

#[tokio::test]
async fn shipping_stops_when_the_lock_is_lost() -> Result<(), Error> {
    let server = TestServer::start();
    let locks = Locks::open(server.url())?;
    let lock = locks.lock("orders:42").lease(Duration::from_millis(300));
    let shipping = tokio::spawn(ship(lock.clone(), std::future::pending()));
    while lock.info().await?.is_none() {}
    server.lose("orders:42");
    let outcome = shipping.await.expect("no panic");
    assert!(matches!(outcome, Err(RunError::Cancelled(Lost::NotHeld))));
    Ok(())
}
