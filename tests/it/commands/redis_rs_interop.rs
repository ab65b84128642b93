//! The commands through redis-rs: typed replies, pipelines, transactions, scripts.

use std::collections::HashMap;

use dlock_testkit::{Server, start};
use redis::{RedisResult, Script, Value, cmd, pipe};

type Granted = (u64, u64, u64, u64);

#[test]
fn replies_convert_to_native_types() {
    let server = Server::start();
    for mut client in [server.client(), server.client_resp3()] {
        let connection = client.connection();
        let acquire = |owner: &str| cmd("DLOCK.ACQUIRE").arg("door").arg(owner).arg(60_000).clone();
        let granted: Option<Granted> = acquire("alice").query(connection).unwrap();
        let (fence, holds, lease_ms, waited_ms) = granted.expect("the lock is free");
        assert_eq!((holds, lease_ms, waited_ms), (1, 60_000, 0));
        let granted: Option<Granted> = acquire("bob").query(connection).unwrap();
        assert_eq!(granted, None);
        let owner: Option<String> = cmd("DLOCK.OWNER").arg("door").query(connection).unwrap();
        assert_eq!(owner.as_deref(), Some("alice"));
        let info: HashMap<String, Value> = cmd("DLOCK.INFO").arg("door").query(connection).unwrap();
        assert_eq!(info["limit"], Value::Int(1));
        let lease_ms: u64 = cmd("DLOCK.EXTEND")
            .arg("door")
            .arg("alice")
            .arg(90_000)
            .query(connection)
            .unwrap();
        assert_eq!(lease_ms, 90_000);
        let left: u64 = cmd("DLOCK.RELEASE")
            .arg("door")
            .arg("alice")
            .arg("FENCE")
            .arg(fence)
            .query(connection)
            .unwrap();
        assert_eq!(left, 0);
        let owner: Option<String> = cmd("DLOCK.OWNER").arg("door").query(connection).unwrap();
        assert_eq!(owner, None);
        let info: Option<HashMap<String, Value>> = cmd("DLOCK.INFO").arg("door").query(connection).unwrap();
        assert_eq!(info, None);
    }
}

#[test]
fn error_code_is_first_word_of_error() {
    let server = Server::start();
    let mut client = server.client_resp3();
    let refused: RedisResult<u64> = cmd("DLOCK.RELEASE")
        .arg("door")
        .arg("alice")
        .query(client.connection());
    assert_eq!(refused.unwrap_err().code(), Some("NOTHELD"));
}

#[test]
fn commands_work_in_pipelines_and_transactions() {
    let (_server, mut client) = start();
    for atomic in [false, true] {
        let mut pipeline = pipe();
        if atomic {
            pipeline.atomic();
        }
        pipeline
            .cmd("DLOCK.ACQUIRE")
            .arg("door")
            .arg("alice")
            .arg(60_000)
            .ignore();
        pipeline.cmd("DLOCK.ACQUIRE").arg("door").arg("bob").arg(60_000);
        pipeline.cmd("DLOCK.OWNER").arg("door");
        pipeline.cmd("DLOCK.RELEASE").arg("door").arg("alice");
        let (refused, owner, left): (Option<Granted>, String, u64) =
            pipeline.query(client.connection()).unwrap();
        assert_eq!((refused, owner.as_str(), left), (None, "alice", 0));
    }
}

#[test]
fn script_object_acquires_lock() {
    let (_server, mut client) = start();
    let script = Script::new("return redis.call('DLOCK.ACQUIRE', KEYS[1], ARGV[1], 60000)");
    let mut run = |owner: &str| {
        script
            .key("door")
            .arg(owner)
            .invoke::<Option<Granted>>(client.connection())
            .unwrap()
    };
    assert!(run("alice").is_some());
    assert_eq!(run("bob"), None);
}
