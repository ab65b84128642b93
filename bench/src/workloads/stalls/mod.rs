//! What one request can cost while all others wait: many holders, long keys, long chains of waiters, many grants that
//! are in flight or cannot be delivered. Beside them: many `waiters`, many and full `inboxes`.

mod crowd;
mod inboxes;
mod waiters;

use std::time::Instant;

use crate::error::Result;
use crate::locks::LEASE;
use crate::machine::allow_open_files;
use crate::results::{DLOCK, Results};
use crate::scale::Scale;
use crate::server::Server;
use crate::stats::ms;
use crate::wire::{Connection, command};
use crowd::Case;

const HOLDERS: u64 = 100_000;
const KEY_BYTES: usize = 1_000_000;
const WAITERS: usize = 9_000;
/// The longest chain that a search follows: one of more owners is abandoned halfway, which takes less.
const LONGEST_CHAIN: usize = 999;
const REQUESTS: usize = 1_000;
/// Open files other than the connections of waiters, an upper bound.
const OTHER_FILES: u64 = 200;

const CASES: [Case; 6] = [
    ("DEADLOCK through keys of 1 MB", deadlock_of_long_keys),
    ("first waiter of a lock with 100 000 holders", |_| {
        of_crowded_lock(&["DLOCK.ACQUIRE", "lock", "writer", LEASE, "BLOCK", "1"])
    }),
    ("re-entry of a lock with 100 000 holders", |_| {
        of_crowded_lock(&["DLOCK.ACQUIRE", "lock", "holder0", LEASE, "SHARED"])
    }),
    ("search through a chain of 1 000 owners", search),
    ("1 000 requests with an id, grants in flight", requests_with_id),
    ("worst PING while grants are rolled back", rollback),
];

pub fn measure(scale: &Scale, results: &mut Results) -> Result<()> {
    allow_open_files(scale.count(WAITERS) as u64 + OTHER_FILES)?;
    for round in 0..scale.rounds(5) {
        for (name, attempt) in CASES.into_iter().chain(waiters::CASES).chain(inboxes::CASES) {
            let ms = attempt(scale)?;
            results.round(name, DLOCK, round).add("time", "ms", ms);
        }
        waiters::contended_locks(scale, round, results)?;
    }
    Ok(())
}

fn deadlock_of_long_keys(_: &Scale) -> Result<f64> {
    let server = Server::start()?;
    let control = &mut server.connect()?;
    let [a, b] = ["a", "b"].map(|key| "é".repeat(KEY_BYTES / 2) + key);
    control.call(&["DLOCK.ACQUIRE", &a, "alice", LEASE])?;
    control.call(&["DLOCK.ACQUIRE", &b, "bob", LEASE])?;
    let mut alice = server.connect()?;
    alice.send(&command(&["DLOCK.ACQUIRE", &b, "alice", LEASE, "BLOCK", "0"]))?;
    control.until_waiting(1)?;
    deadlock_ms(control, &["DLOCK.ACQUIRE", &a, "bob", LEASE, "BLOCK", "0"])
}

fn of_crowded_lock(request: &[&str]) -> Result<f64> {
    let server = Server::start()?;
    server.restore_lock_with_holders("lock", HOLDERS);
    let control = &mut server.connect()?;
    control.call(&["CONFIG", "RESETSTAT"])?;
    control.call(request)?;
    control.spent_ms("dlock.acquire")
}

/// Each owner waits for the lock of the next; the last one closes the cycle.
fn search(scale: &Scale) -> Result<f64> {
    let waiters = scale.count(WAITERS).min(LONGEST_CHAIN);
    let server = Server::with("maxclients 20000")?;
    let control = &mut server.connect()?;
    let name = |number: usize| format!("name-{number:06}");
    for number in 0..=waiters {
        control.call(&["DLOCK.ACQUIRE", &name(number), &name(number), LEASE])?;
    }
    let mut connections = Vec::new();
    for number in (0..waiters).rev() {
        let mut connection = server.connect()?;
        connection.send(&command(&[
            "DLOCK.ACQUIRE",
            &name(number + 1),
            &name(number),
            LEASE,
            "BLOCK",
            "0",
        ]))?;
        // The server has read the request before it replies to this: nobody waits for the next owner yet.
        control.call(&["PING"])?;
        connections.push(connection);
    }
    control.until_waiting(waiters)?;
    deadlock_ms(
        control,
        &["DLOCK.ACQUIRE", &name(0), &name(waiters), LEASE, "BLOCK", "0"],
    )
}

fn deadlock_ms(control: &mut Connection, request: &[&str]) -> Result<f64> {
    control.call(&["CONFIG", "RESETSTAT"])?;
    control.send(&command(request))?;
    match control.receive() {
        Err(error) if error.to_string().contains("DEADLOCK") => control.spent_ms("dlock.acquire"),
        reply => Err(format!("no deadlock: {reply:?}").into()),
    }
}

/// In one transaction with the release that grants: the server has sent no reply yet.
fn requests_with_id(scale: &Scale) -> Result<f64> {
    let (server, _readers) = readers(scale.count(WAITERS))?;
    let control = &mut server.connect()?;
    let request = command(&["DLOCK.ACQUIRE", "other", "owner", LEASE, "REQID", "r"]);
    let transaction = [
        command(&["MULTI"]),
        release(),
        request.repeat(REQUESTS),
        command(&["EXEC"]),
    ];
    control.call(&["CONFIG", "RESETSTAT"])?;
    control.send(&transaction.concat())?;
    for _ in 0..REQUESTS + 3 {
        control.receive()?;
    }
    // Without what the waiters cost, which count as ACQUIRE too.
    Ok(control.spent_ms("exec")? - control.spent_ms("dlock.release")?)
}

fn rollback(scale: &Scale) -> Result<f64> {
    let waiters = scale.count(WAITERS);
    let (server, _readers) = readers(waiters)?;
    let control = &mut server.connect()?;
    let kill = command(&["CLIENT", "KILL", "USER", "reader"]);
    control.send(&[command(&["MULTI"]), release(), kill, command(&["EXEC"])].concat())?;
    for _ in 0..4 {
        control.receive()?;
    }
    let mut worst: f64 = 0.0;
    while control.number("dlock", "dlock_grants_rolled_back")? < waiters as f64 {
        let start = Instant::now();
        control.call(&["PING"])?;
        worst = worst.max(ms(start.elapsed()));
    }
    Ok(worst)
}

fn release() -> Vec<u8> {
    command(&["DLOCK.RELEASE", "lock", "writer"])
}

/// A lock that a writer holds, and readers that wait for it.
fn readers(count: usize) -> Result<(Server, Vec<Connection>)> {
    let server = Server::with("maxclients 20000")?;
    let control = &mut server.connect()?;
    control.call(&["ACL", "SETUSER", "reader", "on", "nopass", "~*", "+dlock.acquire"])?;
    control.call(&["DLOCK.ACQUIRE", "lock", "writer", LEASE])?;
    let reader = |number| {
        let (mut reader, owner) = (server.connect()?, format!("reader-{number}"));
        reader.call(&["AUTH", "reader", "any"])?;
        reader.send(&command(&[
            "DLOCK.ACQUIRE",
            "lock",
            &owner,
            LEASE,
            "SHARED",
            "BLOCK",
            "0",
            "REQID",
            "r",
        ]))?;
        Ok(reader)
    };
    let readers = (0..count).map(reader).collect::<Result<_>>()?;
    control.until_waiting(count)?;
    Ok((server, readers))
}
