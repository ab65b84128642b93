//! The examples do what they say. `readme.rs` runs the first one.

// Their programs are not called here.
#[allow(dead_code)]
#[path = "../../examples/blocking_lock.rs"]
mod blocking_lock;
#[allow(dead_code)]
#[path = "../../examples/cancellation.rs"]
mod cancellation;
#[allow(dead_code)]
#[path = "../../examples/cron_job.rs"]
mod cron_job;
#[allow(dead_code)]
#[path = "../../examples/fenced_write.rs"]
mod fenced_write;
#[allow(dead_code)]
#[path = "../../examples/graceful_shutdown.rs"]
mod graceful_shutdown;
#[allow(dead_code)]
#[path = "../../examples/leader_election.rs"]
mod leader_election;
#[allow(dead_code)]
#[path = "../../examples/quorum.rs"]
mod quorum;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::support::{assert_lost, locks, ms, soon, until, until_free, url};
use dlock_testkit::{Client, Server, start};
use redis_dlock_client::{Error, LostReason};

#[test]
fn blocking_lock() {
    let server = Server::start();
    let first = blocking_lock::run(&url(&server)).unwrap();
    assert!(blocking_lock::run(&url(&server)).unwrap() > first);
    assert!(server.client().find_lock("orders:42").is_none());
}

#[tokio::test]
async fn quorum() {
    let mut servers: Vec<Server> = (0..3).map(|_| Server::with("dlock.quorum yes")).collect();
    let addresses: Vec<String> = servers.iter().map(url).collect();
    let first = quorum::run(&addresses).await.unwrap();
    servers[0].kill();
    assert!(quorum::run(&addresses).await.unwrap() > first);
    servers[1].kill();
    let refused = quorum::run(&addresses).await.unwrap_err();
    let is_expected = refused.to_string().contains(&servers[1].port().to_string());
    assert!(is_expected, "{refused}");
}

#[tokio::test]
async fn fenced_write() {
    let server = Server::start();
    let client = redis::Client::open(url(&server)).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let guard = locks(&server).acquire("report:lock").await.unwrap();
    fenced_write::write(&guard, &mut connection, "first")
        .await
        .unwrap();
    server.client().call("DEL report:lock").unwrap();
    let refused = fenced_write::write(&guard, &mut connection, "late")
        .await
        .unwrap_err();
    assert!(matches!(refused, Error::NotHeld), "{refused:?}");
    assert_eq!(server.client().ask::<String>("GET report"), "first");
}

/// Sends a request that takes longer than this test.
fn post(address: SocketAddr, order: u32) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    let request = format!("POST /orders/{order} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    stream
}

#[tokio::test]
async fn graceful_shutdown() {
    let (server, mut client) = start();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let locks = locks(&server);
    let (stop, stopped) = tokio::sync::oneshot::channel();
    let service = tokio::spawn(async move {
        let shutdown = async { _ = stopped.await };
        graceful_shutdown::serve(&locks, listener, shutdown).await
    });
    let requests: Vec<_> = (0..50).map(|order| post(address, order)).collect();
    until("the locks", || client.ask::<usize>("DBSIZE") == 50).await;
    stop.send(()).unwrap();
    soon("the end", service).await.unwrap().unwrap();
    assert_eq!(client.ask::<usize>("DBSIZE"), 0);
    for mut request in requests {
        let mut answer = String::new();
        request.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    }
}

#[tokio::test]
async fn cancellation() {
    let server = Server::start();
    let locks = locks(&server);
    let break_lock = async || {
        let mut client = server.client();
        until("the work", || client.find_lock("report").is_some()).await;
        client.call("DEL report").unwrap();
    };
    let (outcome, ()) = soon("the end", async {
        tokio::join!(cancellation::cancelled(&locks), break_lock())
    })
    .await;
    assert_lost(outcome, LostReason::NotHeld);
    let (steps, ()) = soon("the end", async {
        tokio::join!(cancellation::checked(&locks), break_lock())
    })
    .await;
    assert_lost(steps, LostReason::NotHeld);
}

#[tokio::test]
async fn cron_job() {
    let server = Server::start();
    let mut done = 0;
    for is_mine in [true, false, false] {
        let ran = cron_job::run(&url(&server), "2026-01-01T00", async || done += 1).await;
        assert_eq!(ran.unwrap(), is_mine);
    }
    assert_eq!(done, 1);
    assert!(
        cron_job::run(&url(&server), "2026-01-01T01", async || done += 1)
            .await
            .unwrap()
    );
    assert_eq!(done, 2);
}

fn leads(client: &mut Client, name: &str) -> bool {
    client
        .owner("leader")
        .is_some_and(|owner| owner.starts_with(name))
}

#[tokio::test]
async fn leader_election() {
    let (server, mut client) = start();
    let lead = |name: &'static str| {
        let locks = locks(&server);
        tokio::spawn(async move {
            leader_election::lead(&locks, name, async |_| tokio::time::sleep(ms(3_600_000)).await).await
        })
    };
    let alice = lead("alice");
    until("alice to lead", || leads(&mut client, "alice:")).await;
    let bob = lead("bob");
    until("bob to wait", || client.waiting("leader") == 1).await;
    alice.abort();
    until("bob to lead", || leads(&mut client, "bob:")).await;
    // Started twice by mistake, it does not share the lead.
    let second = lead("bob");
    until("the second bob to wait", || client.waiting("leader") == 1).await;
    assert_eq!(client.lock("leader").holders[0].holds, 1);
    bob.abort();
    second.abort();
    until_free(&mut client, "leader").await;
}
