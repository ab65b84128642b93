//! The module's commands on a real server under callgrind.

use std::env;

use dlock_testkit::{Client, Server, Waiter, wait_for};
use redis::{Value, from_redis_value_ref};

use crate::callgrind::Callgrind;
use crate::error::Result;

pub const ROUNDS: u64 = 1_000;

/// Where the server calls the module: a command, the reply to a blocked client, and the end of its wait.
const ENTRY_POINTS: [&str; 3] = [
    "dlock::redis::ffi::command::entry*",
    "dlock::redis::ffi::blocked_client::reply*",
    "dlock::redis::ffi::blocked_client::free*",
];

/// A name, and what is run.
type Scenario = (&'static str, fn(&Server));

pub const SCENARIOS: [Scenario; 4] = [
    ("ACQUIRE and RELEASE", pairs),
    ("ACQUIRE BLOCK, RELEASE and hand-over", hand_overs),
    ("QUEUE, RELEASE and hand-over by GRANTS", hand_overs_by_inbox),
    ("GUARD SET", guarded_writes),
];

/// Instructions of all rounds, in the module and in the server's functions that it calls.
pub fn count(scenario: fn(&Server)) -> Result<u64> {
    let callgrind = Callgrind::new()?;
    let mut launcher = callgrind.command_line(&ENTRY_POINTS);
    launcher.push(server_program());
    let mut server = Server::launched_by(&launcher, "")?;
    scenario(&server);
    server.shut_down();
    callgrind.total()
}

pub fn server_program() -> String {
    env::var("DLOCK_SERVER").unwrap_or_else(|_| "redis-server".into())
}

/// One lock, acquired and released.
fn pairs(server: &Server) {
    let mut client = Waiter::connect(server);
    for _ in 0..ROUNDS {
        expect_grant(&client.ask("DLOCK.ACQUIRE lock:000123 owner-000001 600000"));
        assert_eq!(
            client.ask("DLOCK.RELEASE lock:000123 owner-000001"),
            Value::Int(0)
        );
    }
}

/// Two clients that hand a lock back and forth.
fn hand_overs(server: &Server) {
    let mut observer = server.client();
    let (mut holder, mut waiter) = (Waiter::connect(server), Waiter::connect(server));
    let (mut owner, mut next_owner) = ("owner-000001", "owner-000002");
    expect_grant(&holder.ask(&format!("DLOCK.ACQUIRE lock:000123 {owner} 600000")));
    for _ in 0..ROUNDS {
        waiter.acquire(&format!("lock:000123 {next_owner} 600000 BLOCK 0"));
        wait_for_blocked_client(&mut observer);
        holder.send(&format!("DLOCK.RELEASE lock:000123 {owner}"));
        expect_grant(&waiter.next_reply());
        assert_eq!(holder.next_reply(), Value::Int(0));
        std::mem::swap(&mut holder, &mut waiter);
        std::mem::swap(&mut owner, &mut next_owner);
    }
}

/// The same, by one process with an inbox.
fn hand_overs_by_inbox(server: &Server) {
    let mut observer = server.client();
    let (mut requests, mut reader) = (Waiter::connect(server), Waiter::connect(server));
    let (mut owner, mut next_owner) = ("owner-000001", "owner-000002");
    let mut cursor = cursor_of(&reader.ask("DLOCK.GRANTS inbox 0"));
    expect_grant(&requests.ask(&format!("DLOCK.ACQUIRE lock:000123 {owner} 600000")));
    for round in 0..ROUNDS {
        reader.send(&format!("DLOCK.GRANTS inbox {cursor} BLOCK 60000"));
        wait_for_blocked_client(&mut observer);
        let queue = format!("{next_owner} 600000 QUEUE inbox 0 REQID id-{round:06}");
        let queued = requests.ask(&format!("DLOCK.ACQUIRE lock:000123 {queue}"));
        assert_eq!(queued, Value::Array(vec![Value::Int(0)]));
        let released = requests.ask(&format!("DLOCK.RELEASE lock:000123 {owner}"));
        assert_eq!(released, Value::Int(0));
        cursor = cursor_of(&reader.next_reply());
        std::mem::swap(&mut owner, &mut next_owner);
    }
}

/// Of a reply of GRANTS.
fn cursor_of(reply: &Value) -> i64 {
    let (cursor, ..): (i64, i64, Vec<Value>) = from_redis_value_ref(reply).expect("a reply of GRANTS");
    cursor
}

/// One holder, which writes.
fn guarded_writes(server: &Server) {
    let mut client = Waiter::connect(server);
    let fence = expect_grant(&client.ask("DLOCK.ACQUIRE lock:000001 owner-000001 600000"));
    let guarded = format!("DLOCK.GUARD lock:000001 owner-000001 {fence} SET data:000001 value-001");
    for _ in 0..ROUNDS {
        assert_eq!(client.ask(&guarded), Value::Okay);
    }
}

/// The fence.
fn expect_grant(reply: &Value) -> i64 {
    let (fence, ..): (i64, i64, i64, i64) = from_redis_value_ref(reply).expect("a grant");
    fence
}

/// INFO, because DLOCK.INFO would be counted.
fn wait_for_blocked_client(observer: &mut Client) {
    wait_for("a blocked client", || {
        observer.server_info("clients", "blocked_clients") == "1"
    });
}
