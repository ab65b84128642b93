//! After a real failover, of a cluster or by a Sentinel, a lock that the new primary grants protects writes at once.

use std::time::{Duration, Instant};

use dlock_conformance::driver::Driver;
use dlock_conformance::launch::Launch;
use dlock_testkit::{Cluster, Sentinel, Server, skip, wait_for};
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

/// Writes under a lock before and after a failover. A write is sent once, and so may fail: a program repeats it.
fn assert_writes_after(fail_over: impl FnOnce(), driver: &mut Driver) {
    let (lock, first) = acquire(driver, ANSWERS_WITHIN);
    assert_eq!(write(driver, lock)["reply"], "OK");
    release(driver, lock);
    fail_over();
    let (lock, second) = acquire(driver, FAILS_OVER_WITHIN);
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

/// The primary dies, and the Sentinel promotes its replica.
fn assert_writes_after_failover_by_a_sentinel(launch: Result<Launch, String>) {
    let mut primary = Server::start();
    let replica = primary.replica();
    let sentinel = Sentinel::of(&primary, 1);
    let address = format!("redis+sentinel://127.0.0.1:{}/", sentinel.port());
    if let Some(mut driver) = start(launch, address, sentinel.port()) {
        assert_writes_after(|| primary.kill(), &mut driver);
        assert!(replica.is_primary());
    }
}

/// The primary of a third of the slots dies, and the others elect its replica.
fn assert_writes_after_failover_of_a_cluster(launch: Result<Launch, String>) {
    let mut cluster = Cluster::start(3);
    let of = (0..3).find(|&n| cluster.client(n).call(&format!("EXISTS {}", KEYS[0])).is_ok());
    let of = of.expect("each slot has a primary");
    let mut replica = cluster.add_replica(of);
    let port = cluster.nodes[(of + 1) % 3].port();
    let address = format!("redis+cluster://127.0.0.1:{port}/");
    if let Some(mut driver) = start(launch, address, port) {
        assert_writes_after(|| cluster.nodes[of].kill(), &mut driver);
        wait_for("the replica to be promoted", || {
            replica.server_info("replication", "role") == "master"
        });
    }
}

macro_rules! failovers {
    ($($driver:ident: $launch:expr;)*) => {
        $(mod $driver {
            use super::*;

            #[test]
            fn writes_after_a_failover_by_a_sentinel() {
                assert_writes_after_failover_by_a_sentinel($launch);
            }

            #[test]
            fn writes_after_a_failover_of_a_cluster() {
                assert_writes_after_failover_of_a_cluster($launch);
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
