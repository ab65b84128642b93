//! Grants that replicas have: what they cost a free lock, and for how long a failover stops grants, beside a grace period.

use std::time::{Duration, Instant};

use redis::Value;

use super::contention::{Window, add_waits, run};
use super::lock_owner::LockOwner;
use crate::error::Result;
use crate::locks::LEASE;
use crate::results::{DLOCK, Results};
use crate::scale::{Scale, turns};
use crate::server::Server;
use crate::stats::ms;

/// Replicas, and how many of them must have a grant.
const CASES: [(usize, usize); 5] = [(1, 0), (1, 1), (2, 0), (2, 1), (2, 2)];
/// Each with a lock of its own.
const CLIENTS: [usize; 2] = [1, 64];
/// Between two requests for a lock.
const RETRY: Duration = Duration::from_millis(1);
/// Longer than any grace period here.
const PATIENCE: Duration = Duration::from_secs(120);

pub fn free_lock(scale: Scale, results: &mut Results) -> Result<()> {
    for (round, case) in turns(scale.rounds(3), CASES.len()) {
        one_round(scale, CASES[case], round, results)?;
    }
    Ok(())
}

/// Clients that acquire and release a lock each, which is free.
fn one_round(
    scale: Scale,
    (replicas, acknowledging): (usize, usize),
    round: usize,
    results: &mut Results,
) -> Result<()> {
    let server = Server::with_replicas(replicas, &format!("dlock.min-sync-replicas {acknowledging}"))?;
    grant(&server, "first", LEASE)?;
    let setting = format!("{acknowledging} of {replicas}");
    for count in CLIENTS {
        let client = |number| {
            LockOwner::new(
                &server,
                &format!("lock:{number}"),
                &format!("owner-{number}"),
                LEASE,
            )
        };
        let clients = (0..count).map(client).collect::<Result<Vec<_>>>()?;
        let window = Window {
            section: Duration::ZERO,
            warm_up: scale.window() / 10,
            duration: scale.window(),
        };
        let seconds = window.duration.as_secs_f64();
        let logs = run(clients, window)?;
        add_waits(
            &logs,
            seconds,
            &mut results.round(&setting, DLOCK, round).clients(count),
        )?;
    }
    Ok(())
}

pub fn failover(scale: Scale, results: &mut Results) -> Result<()> {
    let lease_ms = if scale == Scale::Full { 30_000 } else { 500 };
    let synchronous = |n: usize| format!("dlock.min-sync-replicas {n}\ndlock.failover-grace-ms 0");
    let cases = [
        (
            format!("a grace period, leases of {lease_ms} ms"),
            format!("dlock.failover-grace-ms -1\ndlock.max-lease-ms {lease_ms}"),
            false,
        ),
        ("2 replicas, 1 must have it".to_owned(), synchronous(1), false),
        (
            "2 replicas, 2 must have it, the killed server is replaced".to_owned(),
            synchronous(2),
            true,
        ),
    ];
    for (round, case) in turns(scale.rounds(3), cases.len()) {
        let (setting, lines, is_replaced) = &cases[case];
        let pause = pause_ms(lines, lease_ms, *is_replaced)?;
        results
            .round(setting, DLOCK, round)
            .add("no grants for", "ms", pause);
    }
    Ok(())
}

/// Kills a primary, promotes a replica at once, and asks it for a lock until it grants one: milliseconds since the kill.
fn pause_ms(lines: &str, lease_ms: u64, is_replaced: bool) -> Result<f64> {
    let mut server = Server::with_replicas(2, lines)?;
    let lease = lease_ms.to_string();
    grant(&server, "held", &lease)?;
    let killed = Instant::now();
    server.fail_over()?;
    if is_replaced {
        server.add_replica(lines);
    }
    grant(&server, "free", &lease)?;
    Ok(ms(killed.elapsed()))
}

/// Asks for a lock until it is granted. Replicas are new, or a grace period is running: errors name what is waited for.
fn grant(server: &Server, key: &str, lease: &str) -> Result<()> {
    let mut client = server.connect()?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        match client.ask::<Value>(&["DLOCK.ACQUIRE", key, "owner", lease]) {
            Ok(Value::Array(_)) => return Ok(()),
            Err(error) if Instant::now() > deadline => return Err(error),
            _ => std::thread::sleep(RETRY),
        }
    }
}
