//! A bad network: whatever is lost, nothing counts twice, and nothing is left behind for longer than its lease.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{Journal, locks, ms, soon, until, until_free};
use dlock_testkit::{Proxy, Server, Way, start};
use redis::Parser;
use redis_dlock_client::{Error, Guard, Locks, Lost, Owner, Settings};

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
async fn release_with_reply_cut_at_any_byte_is_repeated_and_unconfirmed() {
    let scene = Scene::new();
    let mut client = scene.server.client();
    // ":0\r\n"
    for bytes in 0..4 {
        scene.warm_up().await;
        let lock = scene.locks.lock("door");
        let guard = lock.acquire().await.unwrap();
        scene.proxy.cut_after(Way::ToClient, bytes);
        let before = client.calls("dlock.release");
        let released = guard.release().await;
        let is_expected = matches!(released, Err(Error::Unconfirmed(_)));
        assert!(is_expected, "cut after {bytes}: {released:?}");
        assert!(!client.exists("door"), "cut after {bytes}");
        let attempts = client.calls("dlock.release") - before;
        assert!(attempts >= 2, "cut after {bytes}: {attempts}");
    }
}

#[tokio::test]
async fn renewal_with_reply_cut_at_any_byte_is_retried() {
    let scene = Scene::new();
    let mut client = scene.server.client();
    // ":3000\r\n"
    for bytes in 0..7 {
        scene.warm_up().await;
        let guard = scene.locks.lock("door").lease(ms(3000)).acquire().await.unwrap();
        scene.proxy.cut_after(Way::ToClient, bytes);
        until("the cut", || !scene.proxy.will_cut()).await;
        let before = guard.remaining();
        until("a renewal", || guard.remaining() > before || !guard.is_held()).await;
        assert!(guard.is_held(), "cut after {bytes}");
        assert_eq!(client.lock("door").holders[0].holds, 1);
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn short_lease_is_renewed_after_unresponsive_connection() {
    let journal = Journal::default();
    let scene = Scene::with(journal.settings());
    let guard = scene.locks.lock("door").lease(ms(2000)).acquire().await.unwrap();
    let mut client = scene.server.client();
    until("a renewal", || client.calls("dlock.extend") >= 1).await;
    // Nobody closes the connections, and new ones are fine.
    scene.proxy.strand();
    until("more renewals", || {
        client.calls("dlock.extend") >= 4 || !guard.is_held()
    })
    .await;
    assert!(guard.is_held());
    assert!(journal.count("RenewFailed") >= 1);
}

#[tokio::test]
async fn waiter_with_grant_cut_at_any_byte_is_granted_once() {
    let scene = Scene::new();
    let mut client = scene.server.client();
    // "*4\r\n:<16 digits>\r\n:1\r\n:5000\r\n:<waited>\r\n"
    for bytes in 0..=40 {
        client.acquire("door alice 60000");
        let lock = scene.locks.lock("door").owner("bob");
        let waiting = tokio::spawn(async move { lock.lease(ms(5_000)).acquire().await });
        until("a place in the queue", || client.queue("door") == ["bob"]).await;
        scene.proxy.cut_after(Way::ToClient, bytes);
        client.release("door alice");
        let guard = soon("the lock", waiting).await.unwrap().unwrap();
        let standing = client.lock("door").standing();
        assert_eq!(standing, [("bob".into(), guard.fence(), 1)], "cut after {bytes}");
        assert_released(guard, bytes).await;
        until_free(&mut client, "door").await;
    }
}

#[tokio::test]
async fn release_without_reply_is_unconfirmed_and_continues() {
    let scene = Scene::with(Settings::default().response_timeout(ms(100)));
    let mut client = scene.server.client();
    let lock = scene.locks.lock("door");
    let guard = lock.acquire().await.unwrap();
    scene.proxy.freeze(Way::ToServer);
    let outcome = soon("an outcome", guard.release()).await.unwrap_err();
    assert!(matches!(outcome, Error::Unconfirmed(_)), "{outcome:?}");
    scene.proxy.thaw();
    until_free(&mut client, "door").await;
}

#[tokio::test]
async fn unsent_release_is_unconfirmed_with_its_reason_and_continues() {
    let scene = Scene::with(Settings::default());
    let lock = scene.locks.lock("door");
    let guard = lock.acquire().await.unwrap();
    scene.proxy.refuse(true);
    scene.proxy.cut();
    // The client notices on its next request: that one is not the release.
    assert!(scene.locks.lock("other").try_acquire().await.is_err());
    let outcome = soon("an outcome", guard.release()).await.unwrap_err();
    let is_named = matches!(&outcome, Error::Unconfirmed(last) if matches!(**last, Error::Redis { .. }));
    assert!(is_named, "{outcome:?}");
    scene.proxy.refuse(false);
    until_free(&mut scene.server.client(), "door").await;
}

#[tokio::test]
async fn unreachable_server_times_out_with_its_error() {
    let scene = Scene::new();
    scene.warm_up().await;
    scene.proxy.refuse(true);
    scene.proxy.cut();
    let start = Instant::now();
    let lock = scene.locks.lock("door").timeout(ms(300));
    let error = lock.acquire().await.unwrap_err();
    assert!(start.elapsed() >= ms(300));
    let is_expected = matches!(&error, Error::Timeout { last: Some(last), .. } if last.is_transient());
    assert!(is_expected, "{error:?}");
    let error = lock.try_acquire().await.unwrap_err();
    assert!(matches!(error, Error::Redis { .. }), "{error:?}");
}

#[tokio::test]
async fn acquire_waits_for_server_restart() {
    let mut scene = Scene::new();
    scene.warm_up().await;
    scene.server.kill();
    let waiting = tokio::spawn({
        let lock = scene.locks.lock("door");
        async move { lock.acquire().await }
    });
    tokio::time::sleep(ms(100)).await;
    scene.server.start_again();
    let guard = soon("the lock", waiting).await.unwrap().unwrap();
    assert!(guard.is_held());
}

#[tokio::test]
async fn waiter_keeps_its_place_when_connections_are_lost() {
    let scene = Scene::new();
    let mut client = scene.server.client();
    client.acquire("door alice 60000");
    let waiting = tokio::spawn({
        let lock = scene.locks.lock("door").owner("bob");
        async move { lock.acquire().await }
    });
    for _ in 0..3 {
        until("a place in the queue", || client.queue("door") == ["bob"]).await;
        let before = client.calls("dlock.grants");
        scene.proxy.cut();
        until("another call", || client.calls("dlock.grants") > before).await;
    }
    until("a place in the queue", || client.queue("door") == ["bob"]).await;
    client.release("door alice");
    let guard = soon("the lock", waiting).await.unwrap().unwrap();
    guard.release().await.unwrap();
    until_free(&mut client, "door").await;
}

#[tokio::test]
async fn waiter_with_lost_grant_is_granted_once() {
    let scene = Scene::new();
    let mut client = scene.server.client();
    for _ in 0..10 {
        client.acquire("door alice 60000");
        let waiting = tokio::spawn({
            let lock = scene.locks.lock("door").owner("bob");
            let lock = lock.lease(ms(5_000));
            async move { lock.acquire().await }
        });
        until("a place in the queue", || client.queue("door") == ["bob"]).await;
        scene.proxy.freeze(Way::ToClient);
        client.release("door alice");
        until("the grant", || client.owner("door").as_deref() == Some("bob")).await;
        scene.proxy.cut();
        scene.proxy.thaw();
        let guard = soon("the lock", waiting).await.unwrap().unwrap();
        // The server may have undone the grant when it saw the connection go: not once it was confirmed.
        tokio::time::sleep(ms(60)).await;
        assert!(guard.is_held());
        assert_eq!(client.lock("door").standing(), [("bob".into(), guard.fence(), 1)]);
        guard.release().await.unwrap();
        until_free(&mut client, "door").await;
    }
}

#[tokio::test]
async fn waiter_dropped_during_outage_gets_no_lock() {
    let scene = Scene::new();
    let mut client = scene.server.client();
    client.acquire("door alice 60000");
    let lock = scene.locks.lock("door");
    let waiting = tokio::spawn(async move { lock.acquire().await });
    until("a place in the queue", || client.waiting("door") == 1).await;
    // Before it is dropped, or the withdrawal could be faster.
    scene.proxy.freeze(Way::ToServer);
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    client.release("door alice");
    until("the grant", || client.owner("door").is_some()).await;
    scene.proxy.thaw();
    until_free(&mut client, "door").await;
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
async fn reads_recover_after_lost_connection() {
    let scene = Scene::new();
    scene.server.client().acquire("door alice 60000");
    let lock = scene.locks.lock("door");
    for _ in 0..5 {
        assert!(lock.info().await.unwrap().is_some());
        scene.proxy.cut();
    }
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
async fn slow_network_loses_no_lock() {
    let scene = Scene::new();
    let mut client = scene.server.client();
    scene.proxy.delay(Way::ToServer, ms(40));
    scene.proxy.delay(Way::ToClient, ms(40));
    let guard = scene.locks.lock("door").lease(ms(3000)).acquire().await.unwrap();
    until("renewals", || client.calls("dlock.extend") >= 2).await;
    assert!(guard.is_held());
    guard.release().await.unwrap();
}

#[tokio::test]
async fn lost_request_is_cancelled_though_its_retry_was_rejected() {
    let (locks, received) = forgetful_server(|command| match command {
        "DLOCK.ACQUIRE" => "*-1\r\n",
        _ => ":0\r\n",
    });
    let refused = locks.lock("door").try_acquire().await.unwrap();
    assert!(refused.is_none(), "{refused:?}");
    let mut commands = Vec::new();
    until("a withdrawal", || {
        commands.extend(received.try_iter().map(|command| command[0].clone()));
        commands.len() >= 3
    })
    .await;
    assert_eq!(commands[..3], ["DLOCK.ACQUIRE", "DLOCK.ACQUIRE", "DLOCK.RELEASE"]);
}

#[tokio::test]
async fn lost_lock_with_repeated_request_is_released_without_fence_too() {
    let (locks, received) = forgetful_server(|command| match command {
        "DLOCK.ACQUIRE" => "*4\r\n:7\r\n:1\r\n:30000\r\n:0\r\n",
        "DLOCK.RELEASE" => "-NOTHELD nobody holds it\r\n",
        _ => "",
    });
    let guard = locks.lock("door").try_acquire().await.unwrap().expect("a grant");
    let lost = guard.release().await.unwrap_err();
    assert!(matches!(lost, Error::Lost(Lost::NotHeld)), "{lost:?}");
    // A late duplicate of the first request may have been granted meanwhile.
    let mut releases = Vec::new();
    until("a release without fence", || {
        releases.extend(
            received
                .try_iter()
                .filter(|command| command[0] == "DLOCK.RELEASE"),
        );
        releases.len() >= 2
    })
    .await;
    assert_eq!(releases[0][3..5], ["FENCE", "7"]);
    assert_eq!(releases[1][3], "REQID");
}

/// A client of a server that loses the first request for a lock and replies to the others as `reply` says, and the
/// commands of the module that it gets.
fn forgetful_server(reply: fn(&str) -> &'static str) -> (Locks, mpsc::Receiver<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("redis://{}/", listener.local_addr().unwrap());
    let (sender, received) = mpsc::channel();
    let has_forgotten = Arc::new(AtomicBool::new(false));
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (sender, has_forgotten) = (sender.clone(), Arc::clone(&has_forgotten));
            let (mut stream, mut parser) = (stream.unwrap(), Parser::new());
            thread::spawn(move || {
                // The name and the arguments of a command are an array.
                while let Ok(Ok(command)) = parser
                    .parse_value(&stream)
                    .map(redis::from_redis_value::<Vec<String>>)
                {
                    let name = command[0].clone();
                    let is_ours = name.starts_with("DLOCK.");
                    if is_ours && sender.send(command).is_err()
                        || name == "DLOCK.ACQUIRE" && !has_forgotten.swap(true, Ordering::SeqCst)
                    {
                        return;
                    }
                    let reply = if is_ours { reply(&name) } else { "+OK\r\n" };
                    if stream.write_all(reply.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    (Locks::open(address).unwrap(), received)
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

#[tokio::test]
async fn timeout_of_waiter_names_unresponsive_server() {
    let (server, mut client) = start();
    client.acquire("door alice 60000");
    let locks = locks(&server);
    let lock = locks.lock("door").timeout(ms(7000));
    let waiting = tokio::spawn(async move { lock.acquire().await });
    until("a place in the queue", || client.waiting("door") == 1).await;
    server.stop();
    let error = soon("a timeout", waiting).await.unwrap().unwrap_err();
    server.resume();
    let is_outage = matches!(&error, Error::Timeout { last: Some(_), .. }) && error.is_transient();
    assert!(is_outage, "{error:?}");
    until("a reply", || client.waiting("door") == 0).await;
    let held = locks.lock("door").timeout(ms(3000)).acquire().await.unwrap_err();
    assert!(matches!(&held, Error::Timeout { last: None, .. }), "{held:?}");
}
