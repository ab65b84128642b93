//! What one request can cost, while all others wait: many holders, long keys, long chains of waiters, many grants that
//! are in flight or cannot be delivered.

use std::time::Instant;

use crate::environment;
use crate::error::Result;
use crate::resp::{Connection, Reply, command};
use crate::results::stats::{Stats, ms};
use crate::results::table::{Figure, Summary};
use crate::server::Server;
use crate::workloads::bench::Bench;

const HOLDERS: u64 = 100_000;
const KEY_BYTES: usize = 1_000_000;
const WAITERS: usize = 9_000;
const QUICK_WAITERS: usize = 1_000;
/// The longest chain that a search follows: one of more owners is abandoned halfway, which takes less.
const LONGEST_CHAIN: usize = 999;
const REQUESTS: usize = 1_000;
/// Open files other than the connections of waiters, an upper bound.
const OTHER_FILES: usize = 200;
const LEASE: &str = "600000";
/// No request below 100 000 holders or 10 000 waiters should stop the others for longer.
const TARGET_MS: f64 = 10.0;

/// A name, and the milliseconds of one attempt with that many waiters.
type Case = (&'static str, fn(usize) -> Result<f64>);

const CASES: [Case; 6] = [
    ("DEADLOCK through keys of 1 MB", deadlock_of_long_keys),
    ("first waiter of a lock with 100 000 holders", first_waiter),
    ("re-entry of a lock with 100 000 holders", reentry),
    ("search through a chain of 1 000 owners", search),
    ("1 000 requests with an id, grants in flight", requests_with_id),
    ("worst PING while grants are rolled back", rollback),
];

pub fn measure(bench: &Bench, summary: &mut Summary) -> Result<()> {
    let wanted = bench.rounds(WAITERS, QUICK_WAITERS);
    let files = usize::try_from(environment::allow_open_files((wanted + OTHER_FILES) as u64)?)?;
    let waiters = wanted.min(files.saturating_sub(OTHER_FILES));
    for (name, attempt) in CASES {
        bench.progress.step("stalls", name);
        let attempts = (0..bench.rounds(5, 2)).map(|_| attempt(waiters));
        let ms = Stats::of(attempts.collect::<Result<Vec<f64>>>()?);
        summary.add(Figure::new(name, ms).ms().at_most(TARGET_MS));
    }
    summary.note(format!(
        "{waiters} waiters; the time that the server spends in the command"
    ));
    Ok(())
}

fn deadlock_of_long_keys(_: usize) -> Result<f64> {
    let server = Server::start()?;
    let control = &mut server.connect()?;
    let [a, b] = ["a", "b"].map(|key| "é".repeat(KEY_BYTES / 2) + key);
    control.call(&["DLOCK.ACQUIRE", &a, "alice", LEASE])?;
    control.call(&["DLOCK.ACQUIRE", &b, "bob", LEASE])?;
    let mut alice = server.connect()?;
    alice.send_words(&["DLOCK.ACQUIRE", &b, "alice", LEASE, "BLOCK", "0"])?;
    wait_for_waiters(control, 1)?;
    spent(control, "dlock.acquire", |control| {
        control.send_words(&["DLOCK.ACQUIRE", &a, "bob", LEASE, "BLOCK", "0"])?;
        expect_deadlock(control)
    })
}

fn first_waiter(_: usize) -> Result<f64> {
    of_crowded_lock(&["DLOCK.ACQUIRE", "lock", "writer", LEASE, "BLOCK", "1"])
}

fn reentry(_: usize) -> Result<f64> {
    of_crowded_lock(&["DLOCK.ACQUIRE", "lock", "holder0", LEASE, "SHARED"])
}

fn of_crowded_lock(request: &[&str]) -> Result<f64> {
    let server = Server::start()?;
    server.restore_lock_with_holders("lock", HOLDERS);
    spent(&mut server.connect()?, "dlock.acquire", |control| {
        control.call(request).map(drop)
    })
}

/// Each owner waits for the lock of the next; the last one closes the cycle.
fn search(waiters: usize) -> Result<f64> {
    let waiters = waiters.min(LONGEST_CHAIN);
    let server = Server::with("maxclients 20000")?;
    let control = &mut server.connect()?;
    let name = |n: usize| format!("name-{n:06}");
    for n in 0..=waiters {
        control.call(&["DLOCK.ACQUIRE", &name(n), &name(n), LEASE])?;
    }
    let mut connections = Vec::new();
    for n in (0..waiters).rev() {
        let mut connection = server.connect_small()?;
        connection.send_words(&["DLOCK.ACQUIRE", &name(n + 1), &name(n), LEASE, "BLOCK", "0"])?;
        // The server has read the request before it replies to this: nobody waits for the next owner yet.
        control.call(&["PING"])?;
        connections.push(connection);
    }
    wait_for_waiters(control, waiters)?;
    spent(control, "dlock.acquire", |control| {
        control.send_words(&["DLOCK.ACQUIRE", &name(0), &name(waiters), LEASE, "BLOCK", "0"])?;
        expect_deadlock(control)
    })
}

/// In one transaction with the release that grants: the server has sent no reply yet.
fn requests_with_id(waiters: usize) -> Result<f64> {
    let (server, _readers) = readers(waiters)?;
    let control = &mut server.connect()?;
    let mut transaction = command(&["MULTI"]);
    transaction.extend(command(&["DLOCK.RELEASE", "lock", "writer"]));
    for _ in 0..REQUESTS {
        transaction.extend(command(&["DLOCK.ACQUIRE", "other", "owner", LEASE, "REQID", "r"]));
    }
    transaction.extend(command(&["EXEC"]));
    control.call(&["CONFIG", "RESETSTAT"])?;
    control.send(&transaction)?;
    for _ in 0..REQUESTS + 3 {
        control.receive()?;
    }
    // Without what the waiters cost, which count as ACQUIRE too.
    Ok(usec(control, "exec")? / 1_000.0 - usec(control, "dlock.release")? / 1_000.0)
}

fn rollback(waiters: usize) -> Result<f64> {
    let (server, _readers) = readers(waiters)?;
    let control = &mut server.connect()?;
    for words in [
        &["MULTI"][..],
        &["DLOCK.RELEASE", "lock", "writer"],
        &["CLIENT", "KILL", "USER", "reader"],
        &["EXEC"],
    ] {
        control.call(words)?;
    }
    let mut worst: f64 = 0.0;
    while control.info_number("dlock", "dlock_grants_rolled_back")? < waiters as f64 {
        let start = Instant::now();
        control.call(&["PING"])?;
        worst = worst.max(ms(start.elapsed()));
    }
    Ok(worst)
}

/// A lock that a writer holds, and readers that wait for it.
fn readers(count: usize) -> Result<(Server, Vec<Connection>)> {
    let server = Server::with("maxclients 20000")?;
    let control = &mut server.connect()?;
    control.call(&["ACL", "SETUSER", "reader", "on", "nopass", "~*", "+dlock.acquire"])?;
    control.call(&["DLOCK.ACQUIRE", "lock", "writer", LEASE])?;
    let readers = (0..count).map(|n| {
        let mut reader = server.connect_small()?;
        reader.call(&["AUTH", "reader", "any"])?;
        let owner = format!("reader-{n}");
        let acquire = [
            "DLOCK.ACQUIRE",
            "lock",
            &owner,
            LEASE,
            "SHARED",
            "BLOCK",
            "0",
            "REQID",
            "r",
        ];
        reader.send_words(&acquire)?;
        Ok(reader)
    });
    let readers = readers.collect::<Result<Vec<_>>>()?;
    wait_for_waiters(control, count)?;
    Ok((server, readers))
}

fn wait_for_waiters(control: &mut Connection, count: usize) -> Result<()> {
    while control.info_number("dlock", "dlock_waiters")? < count as f64 {
        crate::interrupt::check()?;
    }
    Ok(())
}

fn expect_deadlock(control: &mut Connection) -> Result<()> {
    match control.receive() {
        Err(error) if error.to_string().contains("DEADLOCK") => Ok(()),
        Ok(Reply::Error(error)) if error.starts_with("DEADLOCK") => Ok(()),
        reply => Err(format!("no deadlock: {reply:?}").into()),
    }
}

/// The milliseconds that the server spends in a command during `work`.
fn spent(
    control: &mut Connection,
    name: &str,
    work: impl FnOnce(&mut Connection) -> Result<()>,
) -> Result<f64> {
    control.call(&["CONFIG", "RESETSTAT"])?;
    work(control)?;
    Ok(usec(control, name)? / 1_000.0)
}

fn usec(control: &mut Connection, name: &str) -> Result<f64> {
    let usec = control.command_stat(name, "usec")?;
    usec.ok_or_else(|| format!("no statistics of {name}").into())
}
