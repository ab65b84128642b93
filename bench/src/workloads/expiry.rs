//! A holder that crashes: from the expiry of its lease until the waiter has the lock.

use std::time::{Duration, Instant};

use crate::Result;
use crate::implementations::{self, ClientConfig, ClientKind};
use crate::results::plot::{Bar, Plot, Shape};
use crate::results::stats::{Stats, ms};
use crate::results::table::{Figure, Summary};
use crate::server::Server;
use crate::workloads::Bench;

const LEASE: Duration = Duration::from_millis(150);
const TIMEOUT: Duration = Duration::from_secs(10);
/// Does not expire during a measurement.
const WAITER_LEASE_MS: u64 = 30_000;

pub fn measure(bench: &Bench, summary: &mut Summary) -> Result<()> {
    let server = Server::start()?;
    let other_servers = implementations::start_other_servers()?;
    let implementations = implementations::client_kinds(&server, false)?;
    let count = bench.rounds(15, 4);
    let mut times: Vec<Vec<f64>> = implementations.iter().map(|_| Vec::new()).collect();
    for round in 0..count {
        bench
            .progress
            .step("expiry", &format!("round {} of {count}", round + 1));
        for turn in 0..implementations.len() {
            let index = (round + turn) % implementations.len();
            times[index].push(ms(lease_expiry_to_grant(
                &server,
                &other_servers,
                implementations[index],
                round,
            )?));
        }
    }
    let stats = |index: usize| Stats::of(times[index].iter().copied());
    let mut bars = Vec::new();
    for (index, implementation) in implementations.iter().enumerate() {
        let figure = Figure::new("lease expiry to next grant", stats(index))
            .ms()
            .of(implementation.name);
        let pairs = times[0].iter().zip(&times[index]);
        let ratio = Stats::of(pairs.map(|(dlock, other)| dlock / other));
        summary.add(if index == 0 { figure } else { figure.ratio(ratio) });
        bars.push(Bar {
            name: implementation.name.into(),
            value: stats(index),
        });
    }
    summary.plot(Plot {
        file: "expiry",
        title: "A holder crashes: from the expiry of its lease to the next grant".into(),
        about: format!("median, minimum and maximum of {count}; lease {LEASE:?}, one waiter"),
        shape: Shape::Bars { unit: "ms", bars },
    });
    summary.note(
        "etcd is not measured: its leases are whole seconds, at least about 2 s, and expire at its next check",
    );
    Ok(())
}

fn lease_expiry_to_grant(
    server: &Server,
    other_servers: &[Server],
    implementation: ClientKind,
    round: usize,
) -> Result<Duration> {
    let key = format!("expiry:{}:{round}", implementation.name);
    let open = |number, lease_ms| {
        (implementation.open)(&ClientConfig {
            server,
            other_servers,
            etcd: None,
            key: &key,
            number,
            lease_ms,
        })
    };
    let mut holder = open(0, LEASE.as_millis().try_into()?)?;
    let mut waiter = open(1, WAITER_LEASE_MS)?;
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
    Ok(waited.saturating_sub(LEASE))
}
