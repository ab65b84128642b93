use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::Sender;
use std::thread;
use std::time::{Duration, Instant};

use crate::exit::Failure;
use crate::lock::NamedLock;
use crate::scan::{self, KeyspaceScan};
use crate::server::{Node, Target};
use crate::stats;

/// SCAN calls per server and sample: a large keyspace is scanned over several samples.
const BATCHES_PER_SAMPLE: usize = 20;
/// The number of locks that are read per server.
const MAX_LOCKS_PER_NODE: usize = 2000;

pub type SampleResult = Result<Sample, Failure>;

/// The state of all servers at about the same time.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    pub servers: usize,
    /// Why other servers are missing.
    pub unreachable: Vec<String>,
    /// The role of the last server. All of a cluster are primaries.
    pub role: &'static str,
    /// The fields of INFO dlock: the sum over all servers, or the maximum for some fields.
    pub counters: BTreeMap<String, u64>,
    pub locks: Vec<NamedLock>,
    /// Time since the previous sample.
    pub elapsed: Duration,
}

/// Samples the servers periodically.
pub struct Sampler {
    target: Target,
    pattern: Option<Vec<u8>>,
    watched: Vec<WatchedNode>,
    unreachable: Vec<String>,
    last: Instant,
}

/// A server and the names of its known locks.
struct WatchedNode {
    node: Node,
    scan: KeyspaceScan,
    names: BTreeSet<Vec<u8>>,
}

impl Sampler {
    pub fn connect(target: &Target, pattern: Option<&[u8]>) -> Result<Self, Failure> {
        let mut sampler = Self {
            target: target.clone(),
            pattern: pattern.map(<[u8]>::to_vec),
            watched: Vec::new(),
            unreachable: Vec::new(),
            last: Instant::now(),
        };
        sampler.reconnect()?;
        Ok(sampler)
    }

    fn reconnect(&mut self) -> Result<(), Failure> {
        let (nodes, failures) = self.target.reachable_primaries()?;
        self.unreachable = failures.into_iter().map(|failure| failure.message).collect();
        self.watched = nodes
            .into_iter()
            .map(|node| WatchedNode {
                node,
                scan: KeyspaceScan::new(self.pattern.as_deref()),
                names: BTreeSet::new(),
            })
            .collect();
        Ok(())
    }

    /// Samples until the receiver is dropped.
    pub fn run(mut self, every: Duration, results: &Sender<SampleResult>) {
        let mut must_reconnect = false;
        loop {
            thread::sleep(every);
            let connected = if must_reconnect { self.reconnect() } else { Ok(()) };
            let result = connected.and_then(|()| self.sample());
            must_reconnect = result.is_err() || !self.unreachable.is_empty();
            if results.send(result).is_err() {
                return;
            }
        }
    }

    pub fn sample(&mut self) -> SampleResult {
        let mut sample = Sample {
            servers: self.watched.len(),
            unreachable: self.unreachable.clone(),
            ..Sample::default()
        };
        for watched in &mut self.watched {
            let stats = stats::fetch(&mut watched.node)?;
            sample.role = stats.role;
            for (field, value) in stats.fields {
                let is_maximum = is_maximum(&field);
                let known = sample.counters.entry(field).or_default();
                *known = match is_maximum {
                    true => value.max(*known),
                    false => known.wrapping_add(value),
                };
            }
            sample.locks.extend(watched.sample()?);
        }
        sample.elapsed = self.last.elapsed();
        self.last = Instant::now();
        Ok(sample)
    }
}

/// Whether to combine a field by its maximum instead of its sum.
fn is_maximum(field: &str) -> bool {
    matches!(
        field,
        "longest_wait_ms" | "fence_known" | "grace_left_ms" | "max_lease_ms"
    )
}

impl WatchedNode {
    fn sample(&mut self) -> Result<Vec<NamedLock>, Failure> {
        for _ in 0..BATCHES_PER_SAMPLE {
            self.names.extend(self.scan.next_batch(&mut self.node)?);
            if self.scan.is_done() {
                break;
            }
        }
        while self.names.len() > MAX_LOCKS_PER_NODE {
            self.names.pop_last();
        }
        // Locks that the user has no permission to read are not shown.
        let found = scan::fetch_infos(&mut self.node, self.names.iter().cloned().collect())?;
        let locks: Vec<NamedLock> = found
            .locks
            .into_iter()
            .filter(|lock| lock.info.is_some())
            .collect();
        self.names = locks.iter().map(|lock| lock.name.clone()).collect();
        Ok(locks)
    }
}

#[cfg(test)]
#[test]
fn counters_are_summed_and_maxima_are_not() {
    let summed = ["acquired", "waiters", "locks", "waited_ms", "errors_stale"];
    assert!(!summed.into_iter().any(is_maximum));
    assert!(["longest_wait_ms", "grace_left_ms"].into_iter().all(is_maximum));
}
