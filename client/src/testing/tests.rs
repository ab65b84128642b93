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

/// The first word of an error.
fn code(reply: &Value) -> &str {
    match reply {
        Value::ServerError(error) => error.code(),
        _ => panic!("not an error: {reply:?}"),
    }
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
fn acquire_is_reentrant_and_release_frees_the_lock() {
    let (_server, mut client) = start();
    let first = client.acquire("k alice 30000");
    assert_eq!((first.holds, first.lease_ms, first.waited_ms), (1, 30_000, 0));
    let second = client.acquire("k alice 60000");
    assert_eq!((second.fence, second.holds), (first.fence, 2));
    assert_eq!(client.try_acquire("k bob 1000"), None);
    assert_eq!(client.owner("k").as_deref(), Some("alice"));
    assert_eq!((client.release("k alice"), client.release("k alice")), (1, 0));
    assert_eq!((client.owner("k"), client.exists("k")), (None, false));
    assert!(client.acquire("k bob 1000").fence > first.fence);
}

#[test]
fn info_shows_holders_and_waiters() {
    let (server, mut client) = start();
    let fence = client.acquire("k alice 30000 LIMIT 2").fence;
    client.acquire("k bob 30000 LIMIT 3");
    let _waiter = waiter(&server, "k", "carol 30000 SHARED BLOCK 60000");
    make_inbox(&mut client, "box", 60_000);
    assert_eq!(client.enqueue("k dave 30000 QUEUE box 0 REQID d"), 1);
    let lock = client.lock("k");
    assert_eq!((lock.limit, lock.waiting), (2, 2));
    assert_eq!(lock.standing()[0], ("alice".to_owned(), fence, 1));
    assert_eq!(lock.owners(), ["alice", "bob"]);
    let waiters = client.waiters("k");
    let shown: Vec<_> = waiters
        .iter()
        .map(|waiter| (&*waiter.owner, waiter.limit, waiter.timeout_ms, waiter.is_queued))
        .collect();
    assert_eq!(shown, [("carol", -1, 60_000, false), ("dave", 1, -1, true)]);
    assert!(client.find_lock("other").is_none());
}

#[test]
fn wrong_owner_or_fence_is_refused() {
    let (_server, mut client) = start();
    client.assert_error("NOTHELD", "DLOCK.RELEASE k alice");
    let fence = client.acquire("k alice 30000").fence;
    client.assert_error("NOTOWNER", "DLOCK.RELEASE k bob");
    client.assert_error("NOTOWNER", "DLOCK.EXTEND k bob 1000");
    client.assert_error("STALE", "DLOCK.EXTEND k alice 1000 FENCE 1");
    assert_eq!(client.extend(&format!("k alice 60000 FENCE {fence}")), 60_000);
    client.ok("SET text x");
    client.assert_error("WRONGTYPE", "DLOCK.ACQUIRE text alice 1000");
    client.assert_error("WRONGTYPE", "GET k");
}

#[test]
fn command_that_is_unknown_or_malformed_is_an_error() {
    let (_server, mut client) = start();
    assert_eq!(
        client.error("FLUSHALL now"),
        "ERR unknown command 'FLUSHALL', with args beginning with: 'now' "
    );
    assert_eq!(
        client.error("dlock.owner"),
        "ERR wrong number of arguments for 'dlock.owner' command"
    );
    client.assert_error("ERR", "DLOCK.ACQUIRE k alice 0");
    client.assert_error("ERR", "SELECT 16");
    assert_eq!(client.ask::<String>("PING"), "PONG");
}

#[test]
fn blocked_waiter_is_granted_at_release_in_order() {
    let (server, mut client) = start();
    let fence = client.acquire("k alice 30000").fence;
    let mut bob = waiter(&server, "k", "bob 20000 BLOCK 0");
    let mut carol = waiter(&server, "k", "carol 20000 BLOCK 0");
    assert_eq!(client.release("k alice"), 0);
    let second = granted(&mut bob);
    assert!(second.fence > fence && second.lease_ms == 20_000, "{second:?}");
    assert_eq!(client.lock("k").owners(), ["bob"]);
    client.release("k bob");
    assert!(granted(&mut carol).fence > second.fence);
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
fn deadlock_is_refused() {
    let (server, mut client) = start();
    client.acquire("a alice 60000");
    client.acquire("b bob 60000");
    let _alice = waiter(&server, "b", "alice 60000 BLOCK 0");
    client.assert_error("DEADLOCK", "DLOCK.ACQUIRE a bob 60000 BLOCK 5000");
}

#[test]
fn queued_request_is_answered_and_acknowledged_by_cursor() {
    let (_server, mut client) = start();
    let first = make_inbox(&mut client, "box", 60_000);
    client.acquire("k alice 30000");
    assert_eq!(client.enqueue("k bob 20000 QUEUE box 0 REQID b"), 0);
    assert_eq!(client.enqueue("k carol 20000 QUEUE box 0 REQID c"), 1);
    client.release("k alice");
    client.release("k carol REQID c");
    let delivery = grants(&mut client, &format!("box {first}"));
    assert_eq!(shown(&delivery), ["granted b k bob", "withdrawn c k carol"]);
    let repeated = grants(&mut client, &format!("box {first}"));
    assert_eq!(
        (repeated.cursor, shown(&repeated)),
        (delivery.cursor, shown(&delivery))
    );
    let next = grants(&mut client, &format!("box {}", delivery.cursor));
    assert_eq!(next.answers, []);
    client.assert_error("NOINBOX", &format!("DLOCK.GRANTS box {first}"));
    client.assert_error("BUSYINBOX", "DLOCK.GRANTS box 0");
    client.assert_error("NOINBOX", "DLOCK.ACQUIRE k dave 1000 QUEUE other 0 REQID d");
}

#[test]
fn reader_that_blocks_gets_the_answer_when_it_comes() {
    let (server, mut client) = start();
    let cursor = make_inbox(&mut client, "box", 60_000);
    client.acquire("k alice 30000");
    client.enqueue("k bob 20000 QUEUE box 0 REQID b");
    let mut reader = connect(&server);
    reader.send(&format!("DLOCK.GRANTS box {cursor} BLOCK 60000"));
    client.release("k alice");
    let delivery = Delivery::parse(&reply(&mut reader));
    assert_eq!(shown(&delivery), ["granted b k bob"]);
    // Another call takes over.
    reader.send(&format!("DLOCK.GRANTS box {} BLOCK 60000", delivery.cursor));
    // What was sent before this is run when it has replied.
    client.ask::<String>("PING");
    grants(&mut client, &format!("box {}", delivery.cursor));
    assert_eq!(code(&reply(&mut reader)), "UNBLOCKED");
}

#[test]
fn repeat_of_a_request_changes_nothing() {
    let (_server, mut client) = start();
    make_inbox(&mut client, "box", 60_000);
    let first = client.acquire("k alice 30000 REQID a");
    let again = client.acquire("k alice 90000 REQID a");
    assert_eq!((again.fence, again.holds), (first.fence, 1));
    assert!(again.lease_ms <= 30_000);
    client.enqueue("k bob 20000 QUEUE box 0 REQID b");
    client.enqueue("k carol 20000 QUEUE box 0 REQID c");
    assert_eq!(client.enqueue("k bob 20000 QUEUE box 0 REQID b"), 0);
    assert_eq!(client.queue("k"), ["bob", "carol"]);
    client.release("k alice REQID a");
    assert_eq!(client.acquire("k bob 20000 QUEUE box 0 REQID b").holds, 1);
    assert_eq!(
        (client.release("k bob REQID b"), client.release("k bob REQID b")),
        (0, 0)
    );
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
}

#[test]
fn key_that_becomes_another_type_turns_waiters_away() {
    let (server, mut client) = start();
    client.acquire("k alice 30000");
    let mut bob = waiter(&server, "k", "bob 20000 BLOCK 0");
    client.ok("SET k text");
    assert_eq!(code(&reply(&mut bob)), "WRONGTYPE");
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
fn advanced_clock_ends_timeouts() {
    let (server, mut client) = start();
    let cursor = make_inbox(&mut client, "box", 60_000);
    client.acquire("k alice 600000");
    let mut bob = waiter(&server, "k", "bob 10000 BLOCK 20000");
    client.enqueue("k carol 10000 QUEUE box 20000 REQID c");
    server.advance(Duration::from_secs(25));
    assert_eq!(reply(&mut bob), Value::Nil);
    assert_eq!(
        shown(&grants(&mut client, &format!("box {cursor}"))),
        ["timeout c k carol"]
    );
    assert_eq!(client.waiting("k"), 0);
}

#[test]
fn advanced_clock_ends_an_inbox_that_nobody_reads() {
    let (server, mut client) = start();
    let read = make_inbox(&mut client, "read", 20_000);
    let unread = make_inbox(&mut client, "unread", 20_000);
    client.acquire("k alice 600000");
    client.enqueue("k bob 10000 QUEUE unread 0 REQID b");
    client.enqueue("k carol 10000 QUEUE read 0 REQID c");
    let mut reader = connect(&server);
    reader.send(&format!("DLOCK.GRANTS read {read} BLOCK 60000"));
    client.ask::<String>("PING");
    server.advance(Duration::from_secs(25));
    client.assert_error("NOINBOX", &format!("DLOCK.GRANTS unread {unread}"));
    assert_eq!(client.queue("k"), ["carol"]);
    client.release("k alice");
    assert_eq!(
        shown(&Delivery::parse(&reply(&mut reader))),
        ["granted c k carol"]
    );
}

#[test]
fn inbox_that_ends_gives_its_unread_grants_to_the_next() {
    let (server, mut client) = start();
    make_inbox(&mut client, "box", 20_000);
    client.acquire("k alice 600000");
    client.enqueue("k bob 600000 QUEUE box 0 REQID b");
    let mut carol = waiter(&server, "k", "carol 600000 BLOCK 0");
    client.release("k alice");
    assert_eq!(client.owner("k").as_deref(), Some("bob"));
    server.advance(Duration::from_secs(25));
    granted(&mut carol);
}

#[test]
fn guard_runs_the_command_only_under_the_lock() {
    let (server, mut client) = start();
    let fence = client.acquire("k alice 30000").fence;
    client.ok(&format!("DLOCK.GUARD k alice {fence} SET n 1"));
    assert_eq!(
        client.ask::<i64>(&format!("DLOCK.GUARD k alice {fence} INCR n")),
        2
    );
    assert!(client.ask::<i64>(&format!("DLOCK.GUARD k alice {fence}")) > 20_000);
    client.assert_error("STALE", "DLOCK.GUARD k alice 1 SET n 7");
    client.assert_error("ERR", &format!("DLOCK.GUARD k alice {fence} SELECT 1"));
    client.assert_error("ERR", &format!("DLOCK.GUARD k alice {fence} dlock.owner k"));
    client.assert_error("ERR", &format!("DLOCK.GUARD k alice {fence} FLUSHALL"));
    server.lose("k");
    client.assert_error("NOTHELD", &format!("DLOCK.GUARD k alice {fence} SET n 7"));
    assert_eq!(client.ask::<i64>("GET n"), 2);
    assert_eq!(client.ask::<i64>("DEL n k"), 1);
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
fn resp3_has_maps_and_one_null() {
    let server = TestServer::start();
    let mut client = Client::connect(&format!("{}?protocol=resp3", server.url()));
    client.acquire("k alice 30000");
    assert!(matches!(client.ask("DLOCK.INFO k"), Value::Map(fields) if fields.len() == 4));
    assert_eq!(client.ask::<Value>("DLOCK.INFO other"), Value::Nil);
    assert_eq!(client.try_acquire("k bob 1000"), None);
    let hello = client.ask::<Value>("HELLO 2");
    assert!(matches!(hello, Value::Array(_)), "{hello:?}");
    assert!(matches!(client.ask("DLOCK.INFO k"), Value::Array(fields) if fields.len() == 8));
    client.assert_error("NOPROTO", "HELLO 4");
}

#[test]
fn databases_have_locks_and_inboxes_of_their_own() {
    let server = TestServer::start();
    let mut client = Client::connect(&format!("{}/3", server.url()));
    client.acquire("k alice 30000");
    make_inbox(&mut client, "box", 60_000);
    client.ok("SELECT 0");
    assert_eq!(client.owner("k"), None);
    client.assert_error("NOPERM", "DLOCK.GRANTS box 0");
    server.lose("k");
    client.ok("SELECT 3");
    assert_eq!(client.owner("k"), None);
}

#[test]
fn many_waiters_of_an_inbox_are_all_answered() {
    const WAITERS: usize = 20_000;
    let (server, mut client) = start();
    let mut cursor = make_inbox(&mut client, "box", 60_000);
    let commands: Vec<String> = (0..WAITERS)
        .flat_map(|n| {
            let hold = format!("DLOCK.ACQUIRE k{n} alice 600000");
            [
                hold,
                format!("DLOCK.ACQUIRE k{n} bob{n} 600000 QUEUE box 0 REQID r"),
            ]
        })
        .collect();
    assert_eq!(client.batch(&commands).len(), 2 * WAITERS);
    let releases: Vec<String> = (0..WAITERS)
        .map(|n| format!("DLOCK.RELEASE k{n} alice"))
        .collect();
    let mut releaser = connect(&server);
    let mut answers = 0;
    std::thread::scope(|scope| {
        scope.spawn(move || releaser.batch(&releases));
        while answers < WAITERS {
            let delivery = grants(&mut client, &format!("box {cursor} BLOCK 60000"));
            answers += delivery.answers.len();
            cursor = delivery.cursor;
        }
    });
    assert_eq!(answers, WAITERS);
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
