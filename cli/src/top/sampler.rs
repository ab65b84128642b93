//! Reads the state of the servers again and again.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::time::Duration;

use crate::exit::Failure;
use crate::lock::NamedLock;
use crate::scan::{self, KeyspaceScan};
use crate::server::{Node, Target};

/// SCAN calls per server and sample: a large keyspace is scanned over several samples.
const BATCHES_PER_SAMPLE: usize = 20;
/// The number of locks that are read per server.
const MAX_LOCKS_PER_NODE: usize = 2000;

/// The state of all servers at about the same time.
#[derive(Default)]
pub struct Sample {
    pub servers: usize,
    /// The role of the last server. All of a cluster are primaries.
    pub role: &'static str,
    pub held: u64,
    pub waiters: u64,
    /// Those of them whose answers go to inboxes.
    pub queued: u64,
    pub longest_wait: Duration,
    pub grace_left: Duration,
    /// Those with the most waiters come first.
    pub locks: Vec<NamedLock>,
    /// Why a server, or a newer sample, is missing.
    pub error: Option<String>,
}

/// Samples the servers.
pub struct Sampler {
    target: Target,
    pattern: Option<Vec<u8>>,
    watched: Vec<WatchedNode>,
    /// Why the other servers are missing.
    error: Option<String>,
    must_reconnect: bool,
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
            error: None,
            must_reconnect: false,
        };
        sampler.reconnect()?;
        for watched in &mut sampler.watched {
            watched.node.require_module()?;
        }
        Ok(sampler)
    }

    fn reconnect(&mut self) -> Result<(), Failure> {
        let (nodes, failures) = self.target.reachable_primaries()?;
        self.error = failures.into_iter().next().map(|failure| failure.message);
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

    pub fn sample(&mut self) -> Result<Sample, Failure> {
        if self.must_reconnect {
            self.reconnect()?;
        }
        // Unless all of it succeeds.
        self.must_reconnect = true;
        let mut sample = Sample {
            servers: self.watched.len(),
            error: self.error.clone(),
            ..Sample::default()
        };
        for watched in &mut self.watched {
            watched.add_to(&mut sample)?;
        }
        sample.locks.sort_by(|a, b| a.name.cmp(&b.name));
        sample.locks.sort_by_key(|lock| Reverse(lock.waiting()));
        self.must_reconnect = self.error.is_some();
        Ok(sample)
    }
}

impl WatchedNode {
    fn add_to(&mut self, sample: &mut Sample) -> Result<(), Failure> {
        let info = self.node.info(&["dlock", "replication"])?;
        let number = |field| info.number(field).unwrap_or(0);
        let time = |field| Duration::from_millis(number(field));
        sample.role = match info.get("role") {
            "slave" => "replica",
            _ => "primary",
        };
        sample.held += number("dlock_locks");
        sample.waiters += number("dlock_waiters");
        sample.queued += number("dlock_waiters_queued");
        sample.longest_wait = sample.longest_wait.max(time("dlock_longest_wait_ms"));
        sample.grace_left = sample.grace_left.max(time("dlock_grace_left_ms"));
        sample.locks.extend(self.locks()?);
        Ok(())
    }

    fn locks(&mut self) -> Result<Vec<NamedLock>, Failure> {
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
        let mut locks = scan::fetch_infos(&mut self.node, self.names.iter().cloned().collect())?.locks;
        locks.retain(|lock| lock.info.is_some());
        self.names = locks.iter().map(|lock| lock.name.clone()).collect();
        Ok(locks)
    }
}
