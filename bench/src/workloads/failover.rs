//! A million requests wait, of 100 processes, when their primary is killed: all queue again at the replica that takes its
//! place, as sessions of the client libraries do, each with at most 1 000 requests without a reply.

use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;
use std::time::{Duration, Instant};

use redis::Value;

use super::process::Process;
use crate::error::Result;
use crate::locks::{BATCH, LEASE, fence_of};
use crate::machine::{MainThread, PinnedCores};
use crate::results::{DLOCK, Results};
use crate::scale::Scale;
use crate::server::Server;
use crate::stats::ms;

const WAITERS: usize = 1_000_000;
const PROCESSES: usize = 100;
const TTL_MS: u64 = 60_000;
/// Of a client library that finds no primary.
const RETRY: Duration = Duration::from_millis(10);
const PING_INTERVAL: Duration = Duration::from_millis(1);

pub fn measure(scale: Scale, results: &mut Results) -> Result<()> {
    let locks = scale.count(WAITERS) / PROCESSES;
    for round in 0..scale.rounds(3) {
        let mut server = Server::with_replicas(1, "maxclients 20000")?;
        let _pinned = PinnedCores::pin(&server)?;
        hold(&server, locks)?;
        let mut herd = Herd::start(&server, locks)?;
        let start = Instant::now();
        herd.queue()?;
        let queued_before = ms(start.elapsed());
        let replica = server.replica_port()?;
        let (end, ended) = channel();
        let requeueing = thread::spawn(move || {
            let times = herd.follow(replica);
            drop(end);
            times
        });
        let failed_over = Instant::now();
        server.fail_over()?;
        let (worst, worked) = watch(&server, locks, &ended)?;
        let times = requeueing.join().map_err(|_| "the processes panicked")??;
        let since = |at: Instant| ms(at - failed_over);
        results
            .round("a million waiters", DLOCK, round)
            .clients(PROCESSES)
            .add("all queued, before", "ms", queued_before)
            .add("first grant", "ms", since(times.first_grant))
            .add("all queued again", "ms", since(times.all_queued))
            .add("worst PING", "ms", worst)
            .add("server CPU in one PING", "ms", worked);
    }
    Ok(())
}

fn key(lock: usize) -> String {
    format!("lock:{lock:06}")
}

fn hold(server: &Server, locks: usize) -> Result<()> {
    let mut holder = server.connect()?;
    (0..locks).try_for_each(|lock| holder.call(&["DLOCK.ACQUIRE", &key(lock), "holder", LEASE]))?;
    // The replica has them all.
    holder.call(&["WAIT", "1", "0"])
}

/// Until all have queued again: the longest a PING took, and the most that the server worked during one, in milliseconds.
/// Meanwhile the holders release their locks, one after each PING.
fn watch(server: &Server, locks: usize, ended: &Receiver<()>) -> Result<(f64, f64)> {
    let mut control = server.connect()?;
    let (mut thread, mut worst, mut worked) = (MainThread::of(server.pid())?, 0.0_f64, 0.0_f64);
    let mut held = 0..locks;
    while ended.try_recv() == Err(TryRecvError::Empty) {
        let (start, before) = (Instant::now(), thread.cpu_ms()?);
        control.call(&["PING"])?;
        let took = ms(start.elapsed());
        worst = worst.max(took);
        worked = worked.max((thread.cpu_ms()? - before).min(took));
        if let Some(lock) = held.next() {
            control.call(&["DLOCK.RELEASE", &key(lock), "holder"])?;
        }
        thread::sleep(PING_INTERVAL);
    }
    Ok((worst, worked))
}

/// Processes that each wait for all locks.
struct Herd {
    processes: Vec<Process>,
    /// For each process, encoded in advance: it is the server that is measured.
    batches: Vec<Vec<(Vec<u8>, usize)>>,
    first_grant: Option<Instant>,
}

struct Times {
    first_grant: Instant,
    all_queued: Instant,
}

impl Herd {
    fn start(server: &Server, locks: usize) -> Result<Self> {
        let processes = (0..PROCESSES).map(|number| process(server.port(), number));
        let processes = processes.collect::<Result<Vec<_>>>()?;
        let batches = processes.iter().enumerate();
        let batches = batches
            .map(|(number, process)| encoded(process, number, locks))
            .collect();
        Ok(Self {
            processes,
            batches,
            first_grant: None,
        })
    }

    /// The connections break. All connect to the other server as soon as it is a primary, and queue again.
    fn follow(&mut self, port: u16) -> Result<Times> {
        for process in &mut self.processes {
            if process.reader.receive().is_ok() {
                return Err("an answer before the failover".into());
            }
        }
        for number in 0..PROCESSES {
            self.processes[number] = loop {
                match process(port, number) {
                    Ok(process) => break process,
                    // It is a replica still.
                    Err(_) => thread::sleep(RETRY),
                }
            };
        }
        self.queue()?;
        let all_queued = Instant::now();
        while self.first_grant.is_none() {
            self.look_for_grants()?;
        }
        Ok(Times {
            first_grant: self.first_grant.unwrap_or(all_queued),
            all_queued,
        })
    }

    /// All at the same time. Two batches of each process are under way.
    fn queue(&mut self) -> Result<()> {
        let rounds = self.batches.iter().map(Vec::len).max().unwrap_or_default();
        for round in 0..=rounds {
            for number in 0..PROCESSES {
                let (process, batches) = (&mut self.processes[number], &self.batches[number]);
                if let Some((bytes, _)) = batches.get(round) {
                    process.requests.send(bytes)?;
                }
                let Some((_, requests)) = round.checked_sub(1).and_then(|previous| batches.get(previous))
                else {
                    continue;
                };
                for _ in 0..*requests {
                    if is_granted(&process.requests.receive()?)? {
                        self.first_grant.get_or_insert_with(Instant::now);
                    }
                }
            }
            self.look_for_grants()?;
        }
        Ok(())
    }

    fn look_for_grants(&mut self) -> Result<()> {
        if self.first_grant.is_none() {
            for process in &self.processes {
                if process.reader.has_reply()? {
                    self.first_grant = Some(Instant::now());
                    break;
                }
            }
        }
        Ok(())
    }
}

fn process(port: u16, number: usize) -> Result<Process> {
    Process::start(port, &format!("inbox-{number}"), TTL_MS)
}

/// Each begins with other locks.
fn encoded(process: &Process, number: usize, locks: usize) -> Vec<(Vec<u8>, usize)> {
    let first = number * locks / PROCESSES;
    let order: Vec<usize> = (first..locks).chain(0..first).collect();
    let batch = |batch: &[usize]| {
        let mut bytes = Vec::new();
        for lock in batch {
            let owner = format!("owner-{number:02}-{lock:06}");
            process.encode_acquire((&key(*lock), &owner), &format!("{lock:06}"), &mut bytes);
        }
        (bytes, batch.len())
    };
    order.chunks(BATCH).map(batch).collect()
}

/// Whether the lock was free, because its holder has released it meanwhile. Otherwise the request waits.
fn is_granted(reply: &Value) -> Result<bool> {
    match reply {
        Value::Array(fields) if matches!(fields[..], [Value::Int(_)]) => Ok(false),
        reply => fence_of(reply).map(|_| true),
    }
}
