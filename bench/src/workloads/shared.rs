//! Shared locks: readers and writers, and semaphores.

use std::time::Duration;

use crate::Result;
use crate::implementations::{ClientConfig, Open, PERMITS, READ_WRITE_LOCKS, SEMAPHORES};
use crate::results::stats::stats_of;
use crate::results::table::{Figure, Summary};
use crate::server::Server;
use crate::workloads::Bench;
use crate::workloads::contention::{Outcome, Window, Worker, run_workers};

const LEASE_MS: u64 = 30_000;
const READERS: usize = 12;
const WRITERS: usize = 4;
const CLIENTS: usize = 16;
const CRITICAL_SECTION: Duration = Duration::from_millis(1);
const WINDOW: Duration = Duration::from_millis(1_000);
const QUICK_WINDOW: Duration = Duration::from_millis(400);

pub fn measure(bench: &Bench, summary: &mut Summary) -> Result<()> {
    let count = bench.rounds(3, 1);
    let duration = if bench.quick { QUICK_WINDOW } else { WINDOW };
    let mut readers_writers: Vec<Vec<(Outcome, Outcome)>> =
        READ_WRITE_LOCKS.iter().map(|_| Vec::new()).collect();
    let mut semaphores: Vec<Vec<Outcome>> = SEMAPHORES.iter().map(|_| Vec::new()).collect();
    for round in 0..count {
        bench
            .progress
            .step("shared", &format!("round {} of {count}", round + 1));
        let server = Server::start()?;
        for turn in 0..READ_WRITE_LOCKS.len() {
            let index = (round + turn) % READ_WRITE_LOCKS.len();
            readers_writers[index].push(read_and_write(&server, index, duration)?);
            semaphores[index].push(share_permits(&server, index, duration)?);
        }
    }
    let case = format!("{READERS} readers and {WRITERS} writers, {CRITICAL_SECTION:?} critical section");
    for (index, shared) in READ_WRITE_LOCKS.iter().enumerate() {
        let readers = |of: fn(&Outcome) -> f64| stats_of(&readers_writers[index], |(readers, _)| of(readers));
        let writers = |of: fn(&Outcome) -> f64| stats_of(&readers_writers[index], |(_, writers)| of(writers));
        let figure = |metric: &str, value| Figure::new(metric, value).of(shared.name).case(&case);
        summary.add(figure("reads", readers(|outcome| outcome.acquisitions)).unit("/s"));
        summary.add(figure("writes", writers(|outcome| outcome.acquisitions)).unit("/s"));
        summary.add(figure("reader wait p99", readers(|outcome| outcome.wait_p99)).ms());
        summary.add(figure("writer wait p50", writers(|outcome| outcome.wait_p50)).ms());
        summary.add(figure("writer wait p99", writers(|outcome| outcome.wait_p99)).ms());
        summary.add(figure("commands per read", readers(|outcome| outcome.commands)));
    }
    let case = format!("a semaphore of {PERMITS}, {CLIENTS} clients, {CRITICAL_SECTION:?} critical section");
    for (semaphore, rounds) in SEMAPHORES.iter().zip(&semaphores) {
        let figure = |metric: &str, of: fn(&Outcome) -> f64| {
            Figure::new(metric, stats_of(rounds, of))
                .of(semaphore.name)
                .case(&case)
        };
        summary.add(figure("acquisitions", |outcome| outcome.acquisitions).unit("/s"));
        summary.add(figure("wait p50", |outcome| outcome.wait_p50).ms());
        summary.add(figure("wait p99", |outcome| outcome.wait_p99).ms());
        summary.add(figure("wait max", |outcome| outcome.wait_max).ms());
        summary.add(figure("commands", |outcome| outcome.commands).unit("per acquisition"));
        summary.add(figure("fairness", |outcome| outcome.fairness));
    }
    summary
        .note("dlock grants readers and writers in FIFO order; Redisson's readers overtake waiting writers");
    summary.note("Redisson's semaphore does less: it has neither owners nor leases");
    Ok(())
}

/// Outcomes of the readers and of the writers.
fn read_and_write(server: &Server, index: usize, duration: Duration) -> Result<(Outcome, Outcome)> {
    let shared = READ_WRITE_LOCKS[index];
    let key = format!("readers-writers:{}", shared.name);
    let mut workers = clients(server, shared.reader, &key, 0..READERS, 1)?;
    // A writer takes the whole capacity.
    workers.extend(clients(
        server,
        shared.writer,
        &key,
        READERS..READERS + WRITERS,
        READERS,
    )?);
    let window = Window {
        critical_section: CRITICAL_SECTION,
        warm_up: Duration::ZERO,
        duration,
    };
    Ok(run_workers(workers, READERS, window)?.split(READERS))
}

fn share_permits(server: &Server, index: usize, duration: Duration) -> Result<Outcome> {
    let semaphore = SEMAPHORES[index];
    let key = format!("semaphore:{}", semaphore.name);
    let workers = clients(server, semaphore.open, &key, 0..CLIENTS, 1)?;
    let window = Window {
        critical_section: CRITICAL_SECTION,
        warm_up: Duration::ZERO,
        duration,
    };
    let logs = run_workers(workers, PERMITS, window)?;
    Ok(logs.outcome(logs.commands))
}

fn clients(
    server: &Server,
    open: Open,
    key: &str,
    numbers: std::ops::Range<usize>,
    weight: usize,
) -> Result<Vec<Worker>> {
    let client = |number| {
        let config = ClientConfig {
            server,
            other_servers: &[],
            etcd: None,
            key,
            number,
            lease_ms: LEASE_MS,
        };
        Ok(Worker::weighted(open(&config)?, weight))
    };
    numbers.map(client).collect()
}
