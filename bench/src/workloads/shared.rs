//! Shared locks: readers and writers, and semaphores.

use std::ops::Range;
use std::time::Duration;

use crate::error::Result;
use crate::implementations::{Open, PERMITS, READ_WRITE_LOCKS, SEMAPHORES, Servers};
use crate::results::table::Summary;
use crate::workloads::bench::Bench;
use crate::workloads::comparison::Comparison;
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
    let read_write_locks = READ_WRITE_LOCKS.map(|(name, ..)| name).into();
    let readers_writers = Comparison::in_turns(read_write_locks, count, |round, index| {
        bench.progress.round("shared", round, count);
        read_and_write(index, duration)
    })?;
    let case = format!("{READERS} readers and {WRITERS} writers, {CRITICAL_SECTION:?} critical section");
    let mut add = |metric, unit, of: fn(&(Outcome, Outcome)) -> f64| {
        readers_writers.add(summary, &case, metric, unit, of);
    };
    add("reads", "/s", |(readers, _)| readers.acquisitions);
    add("writes", "/s", |(_, writers)| writers.acquisitions);
    add("reader wait p99", "ms", |(readers, _)| readers.wait_p99);
    add("writer wait p50", "ms", |(_, writers)| writers.wait_p50);
    add("writer wait p99", "ms", |(_, writers)| writers.wait_p99);
    add("commands per read", "", |(readers, _)| readers.commands);

    let semaphores = SEMAPHORES.map(|(name, _)| name).into();
    let semaphores = Comparison::in_turns(semaphores, count, |round, index| {
        bench.progress.round("shared", round, count);
        share_permits(index, duration)
    })?;
    let case = format!("a semaphore of {PERMITS}, {CLIENTS} clients, {CRITICAL_SECTION:?} critical section");
    let mut add = |metric, unit, of: fn(&Outcome) -> f64| semaphores.add(summary, &case, metric, unit, of);
    add("acquisitions", "/s", |outcome| outcome.acquisitions);
    add("wait p50", "ms", |outcome| outcome.wait_p50);
    add("wait p99", "ms", |outcome| outcome.wait_p99);
    add("wait max", "ms", |outcome| outcome.wait_max);
    add("commands", "per acquisition", |outcome| outcome.commands);
    add("fairness", "", |outcome| outcome.fairness);
    summary
        .note("dlock grants readers and writers in FIFO order; Redisson's readers overtake waiting writers");
    summary.note("Redisson's semaphore does less: it has neither owners nor leases");
    Ok(())
}

/// Outcomes of the readers and of the writers.
fn read_and_write(index: usize, duration: Duration) -> Result<(Outcome, Outcome)> {
    let (_, reader, writer) = READ_WRITE_LOCKS[index];
    let servers = Servers::single()?;
    let mut workers = workers(&servers, reader, 0..READERS, 1)?;
    // A writer takes the whole capacity.
    workers.extend(self::workers(
        &servers,
        writer,
        READERS..READERS + WRITERS,
        READERS,
    )?);
    let window = Window::of(CRITICAL_SECTION, duration);
    Ok(run_workers(workers, READERS, window)?.split(READERS))
}

fn share_permits(index: usize, duration: Duration) -> Result<Outcome> {
    let servers = Servers::single()?;
    let workers = workers(&servers, SEMAPHORES[index].1, 0..CLIENTS, 1)?;
    let window = Window::of(CRITICAL_SECTION, duration);
    let logs = run_workers(workers, PERMITS, window)?;
    Ok(logs.outcome(logs.commands))
}

fn workers(servers: &Servers, open: Open, numbers: Range<usize>, weight: usize) -> Result<Vec<Worker>> {
    let worker = |number| {
        Ok(Worker::weighted(
            servers.open(open, "lock", number, LEASE_MS)?,
            weight,
        ))
    };
    numbers.map(worker).collect()
}
