//! Uncontended pairs of acquire and release, DLOCK and the lower bound alternating.

use std::iter;
use std::time::Instant;

use crate::error::Result;
use crate::implementations::command::{Implementation, Names, Requests, short_names};
use crate::implementations::plain_key::set_and_del;
use crate::resp::Connection;
use crate::results::DLOCK;
use crate::workloads::comparison::Comparison;
use crate::workloads::cpu::cpu_seconds;

/// The lower bound: no ownership check, no re-entry, no fence.
const SET: &str = "SET NX PX + DEL";

/// Cost of a pair, in microseconds.
#[derive(Clone, Copy)]
pub struct Cost {
    /// Of the main thread of the server.
    pub cpu: f64,
    pub wall: f64,
}

impl Cost {
    pub fn per_second(&self) -> f64 {
        1e6 / self.wall
    }
}

/// Pairs, encoded in advance.
pub struct Pairs {
    requests: Vec<Requests>,
    count: usize,
}

impl Pairs {
    /// Pipelined, each pair with different names.
    pub fn pipelined(implementation: &Implementation, count: usize) -> Self {
        Self::of(implementation, (0..count).map(short_names))
    }

    /// Pipelined, with these names.
    pub fn of(implementation: &Implementation, names: impl Iterator<Item = Names>) -> Self {
        let mut count = 0;
        let pairs = names.flat_map(|names| {
            count += 1;
            [
                (&implementation.acquire, names.clone()),
                (&implementation.release, names),
            ]
        });
        let requests = vec![Requests::of(pairs)];
        Self { requests, count }
    }

    /// Not pipelined: each reply is read before the next command is sent.
    pub fn one_by_one(implementation: &Implementation, count: usize) -> Self {
        let both = |number| {
            [
                (&implementation.acquire, number),
                (&implementation.release, number),
            ]
        };
        let one = |(command, number)| Requests::of(iter::once((command, short_names(number))));
        let requests = (0..count).flat_map(both).map(one).collect();
        Self { requests, count }
    }

    pub fn count(&self) -> usize {
        self.count
    }

    pub fn run(&self, connection: &mut Connection) -> Result<()> {
        self.requests
            .iter()
            .try_for_each(|requests| requests.run(connection))
    }

    pub fn cost(&self, connection: &mut Connection) -> Result<Cost> {
        let before = cpu_seconds(connection)?;
        let start = Instant::now();
        self.run(connection)?;
        let wall = start.elapsed().as_secs_f64();
        let cpu = cpu_seconds(connection)? - before;
        let us = |seconds: f64| seconds * 1e6 / self.count as f64;
        Ok(Cost {
            cpu: us(cpu),
            wall: us(wall),
        })
    }
}

/// Measures DLOCK and the lower bound in turns.
pub fn compare<T>(
    rounds: usize,
    mut measure: impl FnMut(&Implementation) -> Result<T>,
) -> Result<Comparison<T>> {
    let both = [Implementation::dlock(), set_and_del()];
    Comparison::in_turns(vec![DLOCK, SET], rounds, |_, index| measure(&both[index]))
}
