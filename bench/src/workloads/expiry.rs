//! A holder that crashes: from the expiry of its lease until the waiter has the lock.

use std::time::{Duration, Instant};

use crate::error::Result;
use crate::implementations::{ClientKind, Servers};
use crate::results::plot::{Plot, Shape};
use crate::results::stats::ms;
use crate::results::table::Summary;
use crate::workloads::bench::Bench;
use crate::workloads::comparison::Comparison;

const LEASE: Duration = Duration::from_millis(150);
const TIMEOUT: Duration = Duration::from_secs(10);
/// Does not expire during a measurement.
const WAITER_LEASE_MS: u64 = 30_000;

pub fn measure(bench: &Bench, summary: &mut Summary) -> Result<()> {
    let servers = Servers::start(false)?;
    let kinds = servers.client_kinds()?;
    let count = bench.rounds(15, 4);
    let names = kinds.iter().map(|(name, _)| *name).collect();
    let times = Comparison::in_turns(names, count, |round, index| {
        bench.progress.round("expiry", round, count);
        lease_expiry_to_grant(&servers, kinds[index], round)
    })?;
    times.add(summary, "", "lease expiry to next grant", "ms", |ms| *ms);
    summary.plot(Plot {
        file: "expiry",
        title: "A holder crashes: from the expiry of its lease to the next grant".into(),
        about: format!("median, minimum and maximum of {count}; lease {LEASE:?}, one waiter"),
        shape: Shape::Bars {
            unit: "ms",
            bars: times.bars(|ms| *ms),
        },
    });
    summary.note(
        "etcd is not measured: its leases are whole seconds, at least about 2 s, and expire at its next check",
    );
    Ok(())
}

/// In milliseconds.
fn lease_expiry_to_grant(servers: &Servers, (name, open): ClientKind, round: usize) -> Result<f64> {
    let key = format!("expiry:{name}:{round}");
    let mut holder = servers.open(open, &key, 0, LEASE.as_millis().try_into()?)?;
    let mut waiter = servers.open(open, &key, 1, WAITER_LEASE_MS)?;
    let requested = Instant::now();
    if !holder.acquire(requested + TIMEOUT)? {
        return Err("a free lock was not granted".into());
    }
    if !waiter.acquire(requested + TIMEOUT)? {
        return Err("a lock was not granted although the lease of its holder had expired".into());
    }
    let waited = requested.elapsed();
    waiter.release()?;
    // The lease started slightly after the request, so this is an upper bound.
    Ok(ms(waited.saturating_sub(LEASE)))
}
