//! What only this server does: pauses, cut connections, a clock that is set ahead. `tests/rules` plays its rules on it.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use dlock_testkit::{Client, Delivery, Grant};
use redis::Value;

use super::TestServer;

const PATIENCE: Duration = Duration::from_secs(60);

fn start() -> (TestServer, Client) {
    let server = TestServer::start();
    let client = connect(&server);
    (server, client)
}

fn connect(server: &TestServer) -> Client {
    Client::connect(&server.url())
}

/// A client whose ACQUIRE waits with BLOCK.
#[track_caller]
fn waiter(server: &TestServer, key: &str, args: &str) -> Client {
    let (mut waiter, mut client) = (connect(server), connect(server));
    let before = client.waiting(key);
    waiter.send(&format!("DLOCK.ACQUIRE {key} {args}"));
    client.wait_for_queue(key, before + 1);
    waiter
}

/// The next reply of a client that waits.
#[track_caller]
fn reply(client: &mut Client) -> Value {
    client.connection().recv_response().expect("a reply")
}

fn address(server: &TestServer) -> String {
    server.url().trim_start_matches("redis://").to_owned()
}

#[track_caller]
fn granted(client: &mut Client) -> Grant {
    Grant::parse(reply(client)).expect("a grant")
}

/// Makes an inbox. Returns its cursor.
#[track_caller]
fn make_inbox(client: &mut Client, name: &str, ttl_ms: u64) -> u64 {
    grants(client, &format!("{name} 0 TTL {ttl_ms}")).cursor
}

#[track_caller]
fn grants(client: &mut Client, args: &str) -> Delivery {
    Delivery::parse(&client.ask(&format!("DLOCK.GRANTS {args}")))
}

fn shown(delivery: &Delivery) -> Vec<String> {
    delivery.answers.iter().map(|answer| answer.shown()).collect()
}

#[test]
fn blocked_waiter_that_disconnects_leaves_the_queue() {
    let (server, mut client) = start();
    client.acquire("k alice 30000");
    for _ in 0..20 {
        let bob = waiter(&server, "k", "bob 20000 BLOCK 0");
        // No pause in between: the server sees the end of the connection before the release.
        drop(bob);
        client.release("k alice");
        assert_eq!(client.find_lock("k").map(|lock| lock.owners()), None);
        client.acquire("k alice 30000");
    }
}

#[test]
fn waiter_that_disconnects_when_the_lock_is_released_is_not_granted() {
    let (server, mut client) = start();
    client.acquire("k alice 30000");
    let bob = waiter(&server, "k", "bob 20000 BLOCK 0");
    let pause = server.pause();
    client.send("DLOCK.RELEASE k alice");
    drop(bob);
    drop(pause);
    assert_eq!(reply(&mut client), Value::Int(0));
    assert!(client.find_lock("k").is_none());
}

#[test]
fn lost_lock_goes_to_the_next_waiter_with_a_larger_fence() {
    let (server, mut client) = start();
    let fence = client.acquire("k alice 30000").fence;
    let mut bob = waiter(&server, "k", "bob 20000 BLOCK 0");
    server.lose("k");
    assert!(granted(&mut bob).fence > fence);
    client.assert_error("NOTOWNER", &format!("DLOCK.EXTEND k alice 30000 FENCE {fence}"));
    server.lose("k");
    client.assert_error("NOTHELD", "DLOCK.RELEASE k bob");
    server.lose("no such lock");
    client.ok("SELECT 3");
    client.acquire("k carol 30000");
    server.lose("k");
    assert_eq!(client.owner("k"), None, "in all databases");
}

#[test]
fn paused_server_answers_nothing_until_the_pause_ends() {
    let (server, mut client) = start();
    client.acquire("k alice 1000");
    let (pause, second) = (server.pause(), server.pause());
    server.advance(Duration::from_secs(2));
    let mut other = TcpStream::connect(address(&server)).expect("the system accepts connections");
    other
        .write_all(b"*2\r\n$11\r\nDLOCK.OWNER\r\n$1\r\nk\r\n")
        .unwrap();
    drop(second);
    other.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    assert!(other.read(&mut [0; 1]).is_err());
    drop(pause);
    other.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut reply = [0; 5];
    other.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"$-1\r\n");
}

#[test]
fn inbox_survives_that_connections_are_killed() {
    let (server, mut client) = start();
    let cursor = make_inbox(&mut client, "box", 60_000);
    client.acquire("k alice 30000");
    client.enqueue("k bob 20000 QUEUE box 0 REQID b");
    let mut blocked = waiter(&server, "k", "carol 20000 BLOCK 0");
    server.kill_connections();
    assert!(blocked.connection().recv_response().is_err());
    assert!(client.call("PING").is_err());
    let mut client = connect(&server);
    assert_eq!(client.queue("k"), ["bob"]);
    client.release("k alice");
    let delivery = grants(&mut client, &format!("box {cursor} BLOCK 60000"));
    assert_eq!(shown(&delivery), ["granted b k bob"]);
}

#[test]
fn advanced_clock_ends_leases_one_after_the_other() {
    let (server, mut client) = start();
    client.acquire("k alice 10000");
    let mut bob = waiter(&server, "k", "bob 10000 BLOCK 0");
    let mut carol = waiter(&server, "k", "carol 10000 BLOCK 0");
    server.advance(Duration::from_secs(25));
    let (second, third) = (granted(&mut bob), granted(&mut carol));
    assert!(third.fence > second.fence);
    assert!((15_000..=20_000).contains(&third.waited_ms), "{third:?}");
    assert_eq!(client.owner("k").as_deref(), Some("carol"));
    server.advance(Duration::from_secs(6));
    assert_eq!((client.owner("k"), client.exists("k")), (None, false));
    client.assert_error("NOTHELD", "DLOCK.EXTEND k carol 1000");
}

#[test]
fn pipeline_is_answered_in_order_across_a_wait() {
    let (server, mut client) = start();
    client.acquire("k alice 600000");
    let mut commands = vec!["INCR n"; 500];
    commands.push("DLOCK.ACQUIRE k bob 1000 BLOCK 0");
    commands.extend(["INCR n"; 500]);
    let replies = std::thread::scope(|scope| {
        let other = scope.spawn(|| connect(&server).batch(&commands));
        client.wait_for_queue("k", 1);
        assert_eq!(client.ask::<i64>("GET n"), 500);
        client.release("k alice");
        other.join().unwrap()
    });
    let numbers = replies.iter().filter_map(|reply| match reply {
        Value::Int(number) => Some(*number),
        _ => None,
    });
    assert_eq!(numbers.collect::<Vec<_>>(), (1..=1000).collect::<Vec<_>>());
    assert!(Grant::parse(replies[500].clone()).is_some());
}

#[test]
fn dropped_server_closes_connections_and_its_port() {
    let (server, mut client) = start();
    let address = address(&server);
    let pause = server.pause();
    drop(server);
    drop(pause);
    assert!(client.call("PING").is_err());
    assert!(TcpStream::connect(address).is_err());
}
