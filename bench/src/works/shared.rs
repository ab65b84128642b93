//! Locks that let several in: readers and writers, and semaphores.

use std::time::Duration;

use crate::Result;
use crate::contenders::{Open, PERMITS, SEMAPHORES, SHARED, Wanted};
use crate::results::spread::spread;
use crate::results::table::{Figure, Summary};
use crate::server::Server;
use crate::works::Bench;
use crate::works::contention::{Outcome, Shift, Worker, work};

const LEASE_MS: u64 = 30_000;
const READERS: usize = 12;
const WRITERS: usize = 4;
const CLIENTS: usize = 16;
const SECTION: Duration = Duration::from_millis(1);
const SHIFT: Duration = Duration::from_millis(1_000);
const QUICK_SHIFT: Duration = Duration::from_millis(400);

pub fn measure(bench: &Bench, summary: &mut Summary) -> Result<()> {
    let count = bench.rounds(3, 1);
    let lasts = if bench.quick { QUICK_SHIFT } else { SHIFT };
    let mut readers_writers: Vec<Vec<(Outcome, Outcome)>> = SHARED.iter().map(|_| Vec::new()).collect();
    let mut semaphores: Vec<Vec<Outcome>> = SEMAPHORES.iter().map(|_| Vec::new()).collect();
    for round in 0..count {
        bench
            .progress
            .step("shared", &format!("round {} of {count}", round + 1));
        let server = Server::start(&bench.module)?;
        for turn in 0..SHARED.len() {
            let index = (round + turn) % SHARED.len();
            readers_writers[index].push(read_and_write(&server, index, lasts)?);
            semaphores[index].push(share_permits(&server, index, lasts)?);
        }
    }
    let case = format!("{READERS} readers and {WRITERS} writers, {SECTION:?} inside");
    for (index, shared) in SHARED.iter().enumerate() {
        let readers = |of: fn(&Outcome) -> f64| spread(&readers_writers[index], |(readers, _)| of(readers));
        let writers = |of: fn(&Outcome) -> f64| spread(&readers_writers[index], |(_, writers)| of(writers));
        let figure = |metric: &str, value| Figure::new(metric, value).of(shared.name).case(&case);
        summary.add(figure("reads", readers(|outcome| outcome.acquisitions)).unit("/s"));
        summary.add(figure("writes", writers(|outcome| outcome.acquisitions)).unit("/s"));
        summary.add(figure("reader's wait p99", readers(|outcome| outcome.wait_p99)).ms());
        summary.add(figure("writer's wait p50", writers(|outcome| outcome.wait_p50)).ms());
        summary.add(figure("writer's wait p99", writers(|outcome| outcome.wait_p99)).ms());
        summary.add(figure("commands a read", readers(|outcome| outcome.commands)));
    }
    let case = format!("a semaphore of {PERMITS}, {CLIENTS} clients, {SECTION:?} inside");
    for (semaphore, rounds) in SEMAPHORES.iter().zip(&semaphores) {
        let figure = |metric: &str, of: fn(&Outcome) -> f64| {
            Figure::new(metric, spread(rounds, of))
                .of(semaphore.name)
                .case(&case)
        };
        summary.add(figure("acquisitions", |outcome| outcome.acquisitions).unit("/s"));
        summary.add(figure("wait p50", |outcome| outcome.wait_p50).ms());
        summary.add(figure("wait p99", |outcome| outcome.wait_p99).ms());
        summary.add(figure("wait max", |outcome| outcome.wait_max).ms());
        summary.add(figure("commands", |outcome| outcome.commands).unit("an acquisition"));
        summary.add(figure("fairness", |outcome| outcome.fairness));
    }
    summary.note("dlock serves readers and writers in the order in which they come; Redisson's readers pass writers that wait");
    summary.note("Redisson's semaphore has neither owners nor leases: it does less");
    Ok(())
}

/// Of the readers, and of the writers.
fn read_and_write(server: &Server, index: usize, lasts: Duration) -> Result<(Outcome, Outcome)> {
    let shared = SHARED[index];
    let key = format!("readers-writers:{}", shared.name);
    let mut workers = clients(server, shared.reader, &key, 0..READERS, 1)?;
    // A writer takes all the room that there is.
    workers.extend(clients(
        server,
        shared.writer,
        &key,
        READERS..READERS + WRITERS,
        READERS,
    )?);
    let shift = Shift {
        section: SECTION,
        lasts,
    };
    Ok(work(workers, READERS, shift)?.split(READERS))
}

fn share_permits(server: &Server, index: usize, lasts: Duration) -> Result<Outcome> {
    let semaphore = SEMAPHORES[index];
    let key = format!("semaphore:{}", semaphore.name);
    let workers = clients(server, semaphore.open, &key, 0..CLIENTS, 1)?;
    let shift = Shift {
        section: SECTION,
        lasts,
    };
    let group = work(workers, PERMITS, shift)?;
    Ok(group.outcome(group.commands))
}

fn clients(
    server: &Server,
    open: Open,
    key: &str,
    numbers: std::ops::Range<usize>,
    takes: usize,
) -> Result<Vec<Worker>> {
    let client = |number| {
        let wanted = Wanted {
            server,
            others: &[],
            etcd: None,
            key,
            number,
            lease_ms: LEASE_MS,
        };
        Ok(Worker::with(open(&wanted)?, takes))
    };
    numbers.map(client).collect()
}
