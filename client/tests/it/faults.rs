//! A bad network: whatever is lost, nothing counts twice, and nothing is left behind for longer than its lease.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{ms, soon, until, until_free};
use dlock_testkit::{Proxy, Server, Way};
use redis_dlock_client::{Error, Guard, Locks, Owner, Settings};

/// For how long a test waits for what must happen.
const PATIENCE: Duration = Duration::from_secs(10);

/// A server behind a bad network, and a client that knows it only through that.
struct Scene {
    server: Server,
    proxy: Proxy,
    locks: Locks,
}

impl Scene {
    fn new() -> Self {
        Self::with(Settings::default())
    }

    fn with(settings: Settings) -> Self {
        let server = Server::start();
        let proxy = Proxy::to(server.port());
        let locks = Locks::with(proxy.url(), settings).unwrap();
        Self { server, proxy, locks }
    }

    /// Connections are there, so that the next bytes are those of requests.
    async fn warm_up(&self) {
        // Released in the background, over a connection of its own. A cut must not hit that reply.
        drop(self.locks.acquire("warm-up").await.unwrap());
        self.locks.shutdown().await;
    }
}

/// The last cuts are in the reply to the release.
async fn assert_released(guard: Guard, bytes: usize) {
    let left = guard.release().await;
    let is_expected = matches!(left, Ok(()) | Err(Error::Unconfirmed(_)));
    assert!(is_expected, "cut after {bytes}: {left:?}");
}

#[tokio::test]
async fn acquire_with_reply_cut_at_any_byte_counts_once() {
    let scene = Scene::new();
    let mut client = scene.server.client();
    let owner = Owner::unique();
    let lock = scene.locks.lock("door").owner(&owner);
    // "*4\r\n:<16 digits>\r\n:1\r\n:30000\r\n:0\r\n"
    for bytes in 0..=40 {
        scene.warm_up().await;
        scene.proxy.cut_after(Way::ToClient, bytes);
        let guard = lock.acquire().await.unwrap();
        let standing = client.lock("door").standing();
        assert_eq!(standing, [(owner.to_string(), guard.fence(), 1)]);
        assert_released(guard, bytes).await;
        assert!(client.find_lock("door").is_none(), "cut after {bytes}");
        assert!(!scene.proxy.will_cut());
    }
}

#[tokio::test]
async fn request_cut_at_any_byte_is_retried() {
    let scene = Scene::new();
    let mut client = scene.server.client();
    // An acquisition and a release have some 280 bytes together.
    for bytes in 0..290 {
        scene.warm_up().await;
        scene.proxy.cut_after(Way::ToServer, bytes);
        let lock = scene.locks.lock("door");
        let guard = lock.acquire().await.unwrap();
        assert_eq!(client.lock("door").holders[0].holds, 1, "cut after {bytes}");
        let left = guard.release().await;
        assert!(left.is_ok(), "cut after {bytes}: {left:?}");
        until_free(&mut client, "door").await;
        assert!(!scene.proxy.will_cut());
    }
}

#[tokio::test]
async fn lost_connection_is_replaced_once_for_all_requests() {
    let scene = Scene::new();
    let mut client = scene.server.client();
    scene.warm_up().await;
    scene.proxy.cut();
    let before: i64 = client.server_number("stats", "total_connections_received");
    let mut tasks = Vec::new();
    for n in 0..100 {
        let lock = scene.locks.lock(format!("door{n}"));
        tasks.push(tokio::spawn(async move {
            lock.acquire().await.unwrap().release().await.unwrap();
        }));
    }
    for task in tasks {
        soon("a lock", task).await.unwrap();
    }
    let after: i64 = client.server_number("stats", "total_connections_received");
    assert!(after - before <= 2, "{}", after - before);
}

#[tokio::test]
async fn concurrent_requests_share_connect_failure() {
    let scene = Scene::with(Settings::default().response_timeout(ms(300)));
    // Accepted by the system, but nobody answers.
    scene.proxy.freeze(Way::ToClient);
    let start = Instant::now();
    let mut tasks = Vec::new();
    for n in 0..300 {
        let lock = scene.locks.lock(format!("door{n}"));
        tasks.push(tokio::spawn(async move { lock.try_acquire().await.map(|_| ()) }));
    }
    for task in tasks {
        assert!(soon("an error", task).await.unwrap().is_err());
    }
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
}

#[tokio::test]
async fn connect_failure_that_nobody_awaited_is_not_reported_later() {
    let scene = Scene::with(Settings::default());
    let lock = scene.locks.lock("door");
    scene.proxy.refuse(true);
    tokio::select! {
        biased;
        reply = lock.info() => panic!("{reply:?}"),
        () = tokio::task::yield_now() => {}
    }
    // The connection is made, in vain, though its request is gone.
    until("the connection", || scene.proxy.refused() > 0).await;
    tokio::time::sleep(ms(300)).await;
    scene.proxy.refuse(false);
    assert_eq!(lock.info().await.unwrap(), None);
}

#[tokio::test]
async fn try_acquire_and_release_on_silent_server_end_within_settings() {
    let settings = Settings::default().response_timeout(ms(700));
    let scene = Scene::with(settings);
    let guard = scene.locks.acquire("door").await.unwrap();
    scene.proxy.freeze(Way::ToServer);
    let start = Instant::now();
    scene.locks.lock("gate").try_acquire().await.unwrap_err();
    assert!(start.elapsed() < ms(5400), "{:?}", start.elapsed());
    let start = Instant::now();
    guard.release().await.unwrap_err();
    assert!(start.elapsed() < ms(5400), "{:?}", start.elapsed());
}

/// A server that knows nothing but how connections begin. What became of the connection on which it was asked for a
/// lock, once the client has closed it.
fn silent_server(listener: TcpListener, closed: mpsc::Sender<std::io::Result<usize>>) {
    for mut connection in listener.incoming().flatten() {
        let closed = closed.clone();
        thread::spawn(move || {
            let (mut buffer, mut was_asked) = ([0; 4096], false);
            let end = loop {
                let length = match connection.read(&mut buffer) {
                    Ok(length @ 1..) => length,
                    end => break end,
                };
                let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
                was_asked |= text.contains("DLOCK.ACQUIRE");
                // It is an old one, too.
                let refused = "-ERR unknown command\r\n".repeat(text.matches("HELLO").count());
                let accepted = text.matches("SETINFO").count() + text.matches("SETNAME").count();
                let accepted = "+OK\r\n".repeat(accepted);
                let _ = connection.write_all((refused + &accepted).as_bytes());
            };
            if was_asked {
                let _ = closed.send(end);
            }
        });
    }
}

#[tokio::test]
async fn discarded_connection_is_reset() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}/", listener.local_addr().unwrap());
    let (sender, closed) = mpsc::channel();
    thread::spawn(move || silent_server(listener, sender));
    let settings = Settings::default().response_timeout(ms(200));
    let locks = Locks::with(url, settings).unwrap();
    let silence = locks.lock("door").try_acquire().await.unwrap_err();
    assert!(matches!(silence, Error::Redis { .. }), "{silence:?}");
    // The connection is closed by this runtime.
    let end = tokio::task::spawn_blocking(move || closed.recv_timeout(PATIENCE))
        .await
        .unwrap();
    let end = end.expect("the client closes what it gives up");
    let expected = std::io::ErrorKind::ConnectionReset;
    assert_eq!(end.expect_err("it is no orderly end").kind(), expected);
}
