use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::Sender;
use std::thread;
use std::time::{Duration, Instant};

use crate::exit::Failure;
use crate::lock::Named;
use crate::scan::{self, Walk};
use crate::server::{Node, Target};
use crate::stats;

/// So far a look goes through the keys of a server: a large keyspace is walked through by several looks.
const STEPS: usize = 20;
/// So many locks of a server are looked at.
const MOST_LOCKS: usize = 2000;

/// What was seen, or why nothing was.
pub type Look = Result<Sample, Failure>;

/// What all servers told, at about the same time.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    pub servers: usize,
    /// The fields of INFO dlock, summed up; of some, the largest.
    pub counted: BTreeMap<String, u64>,
    pub locks: Vec<Named>,
    /// Since the last sample.
    pub elapsed: Duration,
}

/// Looks at the servers again and again.
pub struct Sampler {
    target: Target,
    pattern: Option<Vec<u8>>,
    watched: Vec<Watched>,
    last: Instant,
}

/// A server, and the locks that are known there.
struct Watched {
    node: Node,
    walk: Walk,
    names: BTreeSet<Vec<u8>>,
}

impl Sampler {
    pub fn connect(target: &Target, pattern: Option<&[u8]>) -> Result<Self, Failure> {
        let mut sampler = Self {
            target: target.clone(),
            pattern: pattern.map(<[u8]>::to_vec),
            watched: Vec::new(),
            last: Instant::now(),
        };
        sampler.connect_again()?;
        Ok(sampler)
    }

    fn connect_again(&mut self) -> Result<(), Failure> {
        let nodes = self.target.primaries()?.into_iter();
        self.watched = nodes
            .map(|node| Watched {
                node,
                walk: Walk::new(self.pattern.as_deref()),
                names: BTreeSet::new(),
            })
            .collect();
        Ok(())
    }

    /// Looks until nobody wants to know any more.
    pub fn run(mut self, every: Duration, looks: &Sender<Look>) {
        let mut is_lost = false;
        loop {
            thread::sleep(every);
            let connected = if is_lost { self.connect_again() } else { Ok(()) };
            let look = connected.and_then(|()| self.sample());
            is_lost = look.is_err();
            if looks.send(look).is_err() {
                return;
            }
        }
    }

    pub fn sample(&mut self) -> Look {
        let mut sample = Sample {
            servers: self.watched.len(),
            ..Sample::default()
        };
        for watched in &mut self.watched {
            for (field, value) in stats::counted(&mut watched.node)?.fields {
                let is_maximum = is_maximum(&field);
                let known = sample.counted.entry(field).or_default();
                *known = if is_maximum {
                    value.max(*known)
                } else {
                    known.wrapping_add(value)
                };
            }
            sample.locks.extend(watched.look()?);
        }
        sample.elapsed = self.last.elapsed();
        self.last = Instant::now();
        Ok(sample)
    }
}

/// Whether the largest value of all servers says more than the sum. Percentiles are those of the slowest server.
fn is_maximum(field: &str) -> bool {
    matches!(field, "longest_wait_ms" | "fence_known" | "grace_left_ms")
        || ["_p50", "_p99", "_max"].iter().any(|end| field.ends_with(end))
}

impl Watched {
    fn look(&mut self) -> Result<Vec<Named>, Failure> {
        for _ in 0..STEPS {
            self.names.extend(self.walk.step(&mut self.node)?);
            if self.walk.is_over() {
                break;
            }
        }
        while self.names.len() > MOST_LOCKS {
            self.names.pop_last();
        }
        // What the user may not look at is not shown.
        let found = scan::infos(&mut self.node, self.names.iter().cloned().collect())?;
        let locks: Vec<Named> = found
            .locks
            .into_iter()
            .filter(|lock| lock.info.is_some())
            .collect();
        self.names = locks.iter().map(|lock| lock.name.clone()).collect();
        Ok(locks)
    }
}

#[cfg(test)]
mod tests {
    use super::is_maximum;

    #[test]
    fn counters_of_several_servers_are_summed_and_times_are_not() {
        for field in ["acquired", "waiters", "locks", "waited_ms", "errors_stale"] {
            assert!(!is_maximum(field), "{field}");
        }
        for field in [
            "longest_wait_ms",
            "grace_left_ms",
            "held_ms_p50",
            "waited_ms_p99",
            "held_ms_max",
        ] {
            assert!(is_maximum(field), "{field}");
        }
    }
}
