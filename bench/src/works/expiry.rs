//! A holder that vanishes: from the end of its lease until somebody who waits has the lock.

use std::time::{Duration, Instant};

use crate::Result;
use crate::contenders::{self, Waiting, Wanted};
use crate::results::plot::{Bar, Plot, Shape};
use crate::results::spread::{Spread, ms};
use crate::results::table::{Figure, Summary};
use crate::server::Server;
use crate::works::Bench;

const LEASE: Duration = Duration::from_millis(150);
const PATIENCE: Duration = Duration::from_secs(10);
/// Long enough to end in no measurement.
const WAITERS_LEASE_MS: u64 = 30_000;

pub fn measure(bench: &Bench, summary: &mut Summary) -> Result<()> {
    let server = Server::start(&bench.module)?;
    let others = contenders::others(&bench.module)?;
    let contenders = contenders::waiting(&server, false)?;
    let count = bench.rounds(15, 4);
    let mut times: Vec<Vec<f64>> = contenders.iter().map(|_| Vec::new()).collect();
    for round in 0..count {
        bench
            .progress
            .step("expiry", &format!("round {} of {count}", round + 1));
        for turn in 0..contenders.len() {
            let index = (round + turn) % contenders.len();
            times[index].push(ms(one(&server, &others, contenders[index], round)?));
        }
    }
    let spread = |index: usize| Spread::of(times[index].iter().copied());
    let mut bars = Vec::new();
    for (index, contender) in contenders.iter().enumerate() {
        let figure = Figure::new("end of the lease to the next grant", spread(index))
            .ms()
            .of(contender.name);
        let pairs = times[0].iter().zip(&times[index]);
        let ratio = Spread::of(pairs.map(|(ours, theirs)| ours / theirs));
        summary.add(if index == 0 { figure } else { figure.ratio(ratio) });
        bars.push(Bar {
            name: contender.name.into(),
            value: spread(index),
        });
    }
    summary.plot(Plot {
        file: "expiry",
        title: "A holder vanishes: from the end of its lease to the next grant".into(),
        about: format!("median, shortest and longest of {count}; the lease is {LEASE:?}, one client waits"),
        shape: Shape::Bars { unit: "ms", bars },
    });
    summary.note(
        "etcd takes no part: its leases are whole seconds, from about 2 s on, and end when it looks next",
    );
    Ok(())
}

fn one(server: &Server, others: &[Server], contender: Waiting, round: usize) -> Result<Duration> {
    let key = format!("expiry:{}:{round}", contender.name);
    let open = |number, lease_ms| {
        (contender.open)(&Wanted {
            server,
            others,
            etcd: None,
            key: &key,
            number,
            lease_ms,
        })
    };
    let mut holder = open(0, LEASE.as_millis().try_into()?)?;
    let mut waiter = open(1, WAITERS_LEASE_MS)?;
    let asked = Instant::now();
    if !holder.acquire(asked + PATIENCE)? {
        return Err("a free lock was not granted".into());
    }
    if !waiter.acquire(asked + PATIENCE)? {
        return Err("a lock was not granted, though its lease had ended".into());
    }
    let waited = asked.elapsed();
    waiter.release()?;
    // The lease began a little later than it was asked for: this is what it seems to last at most.
    Ok(waited.saturating_sub(LEASE))
}
