//! After a real failover, of a cluster or by a Sentinel, a lock that the new primary grants protects writes at once.

use std::time::{Duration, Instant};

use dlock_conformance::driver::Driver;
use dlock_conformance::launch::Launch;
use dlock_testkit::{Client, Cluster, Sentinel, Server, skip, wait_for};
use serde_json::{Map, Value, json};

use crate::drivers;

/// After its grant, a write under a lock must succeed in this time.
const WRITES_WITHIN: Duration = Duration::from_secs(2);
/// Until the servers agree that the primary is gone, and clients have found the new one.
const FAILS_OVER_WITHIN: Duration = Duration::from_secs(60);
/// For what takes a round trip.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);

/// The key of the lock, and one in the same slot that is written while it is held.
const KEYS: [&str; 2] = ["{k}", "{k}d"];

fn fields(command: Value) -> Map<String, Value> {
    match command {
        Value::Object(fields) => fields,
        other => panic!("{other} is no command"),
    }
}

fn ask(driver: &mut Driver, command: Value, within: Duration) -> Value {
    let id = driver.send(fields(command)).expect("the driver reads");
    driver.answer(id, within).expect("the driver answers").1
}

/// Acquires the lock, and returns the number of the command and the fence.
fn acquire(driver: &mut Driver, within: Duration) -> (u64, u64) {
    let command = json!({"do": "acquire", "key": KEYS[0], "lease_ms": 30_000});
    let id = driver.send(fields(command)).expect("the driver reads");
    let (_, answer) = driver.answer(id, within).expect("the driver answers");
    let fence = answer["fence"].as_u64();
    (id, fence.unwrap_or_else(|| panic!("not acquired: {answer}")))
}

fn write(driver: &mut Driver, of: u64) -> Value {
    let command = json!({"do": "query", "of": of, "command": ["SET", KEYS[1], "1"]});
    ask(driver, command, ANSWERS_WITHIN)
}

fn release(driver: &mut Driver, of: u64) {
    let answer = ask(driver, json!({"do": "release", "of": of}), ANSWERS_WITHIN);
    assert_eq!(answer["released"], true, "{answer}");
}

fn is_held(server: &Server, fence: u64) -> bool {
    let lock = server.client().find_lock(KEYS[0]);
    lock.is_some_and(|lock| lock.holders.iter().any(|holder| holder.fence == fence))
}

/// Acquires the lock of this server. Until it is demoted, the former primary grants its own.
fn acquire_at(server: &Server, driver: &mut Driver) -> (u64, u64) {
    let end = Instant::now() + FAILS_OVER_WITHIN;
    loop {
        let (lock, fence) = acquire(driver, FAILS_OVER_WITHIN);
        if server.is_primary() && is_held(server, fence) {
            return (lock, fence);
        }
        assert!(Instant::now() < end, "the former primary still grants locks");
        // What it has granted may be lost.
        ask(driver, json!({"do": "release", "of": lock}), ANSWERS_WITHIN);
    }
}

/// Writes under a lock before and after a failover. A write is sent once, and so may fail: a program repeats it.
fn assert_writes_after(fail_over: impl FnOnce(), replica: &Server, driver: &mut Driver) {
    let (lock, first) = acquire(driver, ANSWERS_WITHIN);
    assert_eq!(write(driver, lock)["reply"], "OK");
    release(driver, lock);
    fail_over();
    let (lock, second) = acquire_at(replica, driver);
    let granted = Instant::now();
    loop {
        let answer = write(driver, lock);
        let took = granted.elapsed();
        if answer["reply"] == "OK" {
            assert!(took < WRITES_WITHIN, "the first write took {took:?}");
            break;
        }
        assert!(took < WRITES_WITHIN, "no write succeeds: {answer}");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(first < second, "the fence falls from {first} to {second}");
    release(driver, lock);
}

fn start(launch: Result<Launch, String>, address: String, port: u16) -> Option<Driver> {
    match launch {
        Ok(launch) => Some(Driver::start(&launch.at(address), port).expect("the driver starts")),
        Err(reason) => {
            skip(&reason);
            None
        }
    }
}

/// Why there is a failover.
#[derive(Clone, Copy)]
enum Cause {
    /// The primary dies.
    Death,
    /// Somebody asks for it.
    Plan,
}

/// The Sentinel promotes the replica.
fn assert_writes_after_failover_by_a_sentinel(launch: Result<Launch, String>, cause: Cause) {
    let mut primary = Server::start();
    let replica = primary.replica();
    let sentinel = Sentinel::of(&primary, 1);
    let address = format!("redis+sentinel://127.0.0.1:{}/", sentinel.port());
    let Some(mut driver) = start(launch, address, sentinel.port()) else {
        return;
    };
    let fail_over = || match cause {
        Cause::Death => primary.kill(),
        Cause::Plan => {
            let mut client = Client::connect(&format!("redis://127.0.0.1:{}/", sentinel.port()));
            wait_for("a failover", || client.call("SENTINEL FAILOVER main").is_ok());
        }
    };
    assert_writes_after(fail_over, &replica, &mut driver);
}

/// The nodes promote the replica of the primary of a third of the slots.
fn assert_writes_after_failover_of_a_cluster(launch: Result<Launch, String>, cause: Cause) {
    let mut cluster = Cluster::start(3);
    let of = (0..3).find(|&n| cluster.client(n).call(&format!("EXISTS {}", KEYS[0])).is_ok());
    let of = of.expect("each slot has a primary");
    let mut replica = cluster.add_replica(of);
    let port = cluster.nodes[(of + 1) % 3].port();
    let address = format!("redis+cluster://127.0.0.1:{port}/");
    let Some(mut driver) = start(launch, address, port) else {
        return;
    };
    let promoted = cluster.nodes.pop().expect("the replica is the last one");
    let fail_over = || match cause {
        Cause::Death => cluster.nodes[of].kill(),
        Cause::Plan => cluster.fail_over(&mut replica),
    };
    assert_writes_after(fail_over, &promoted, &mut driver);
}

macro_rules! failovers {
    ($($driver:ident: $launch:expr;)*) => {
        $(mod $driver {
            use super::*;

            #[test]
            fn writes_after_a_sentinel_has_replaced_a_dead_primary() {
                assert_writes_after_failover_by_a_sentinel($launch, Cause::Death);
            }

            #[test]
            fn writes_after_a_planned_failover_by_a_sentinel() {
                assert_writes_after_failover_by_a_sentinel($launch, Cause::Plan);
            }

            #[test]
            fn writes_after_a_cluster_has_replaced_a_dead_primary() {
                assert_writes_after_failover_of_a_cluster($launch, Cause::Death);
            }

            #[test]
            fn writes_after_a_planned_failover_of_a_cluster() {
                assert_writes_after_failover_of_a_cluster($launch, Cause::Plan);
            }
        })*
    };
}

failovers! {
    rust: Ok(drivers::rust());
    rust_tokio: Ok(drivers::rust_tokio());
    python_sync: drivers::python_sync();
    python_asyncio: drivers::python_asyncio();
    go: drivers::go();
    node_ioredis: drivers::node("ioredis");
    node_redis: drivers::node("node-redis");
}
