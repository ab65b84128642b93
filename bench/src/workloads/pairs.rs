//! Uncontended pairs of acquire and release, DLOCK and the lower bound alternating.

use std::iter;
use std::time::Instant;

use crate::Result;
use crate::implementations::command::{Implementation, Names, Requests, short_names};
use crate::resp::Connection;
use crate::results::stats::{Stats, stats_of};
use crate::results::table::{Figure, Summary};
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

/// A measurement of both.
pub struct Comparison<T> {
    pub dlock: T,
    pub set: T,
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
            let again = Names {
                key: names.key.clone(),
                owner: names.owner.clone(),
            };
            [(&implementation.acquire, names), (&implementation.release, again)]
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
        let requests = (0..count)
            .flat_map(both)
            .map(|(command, number)| Requests::of(iter::once((command, short_names(number)))))
            .collect();
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

/// Measures both; which comes first alternates by round.
pub fn compare<T>(
    round: usize,
    mut measure: impl FnMut(&Implementation) -> Result<T>,
) -> Result<Comparison<T>> {
    let (dlock, set) = (Implementation::dlock(), Implementation::set_and_del());
    Ok(if round.is_multiple_of(2) {
        let dlock = measure(&dlock)?;
        let set = measure(&set)?;
        Comparison { dlock, set }
    } else {
        let set = measure(&set)?;
        let dlock = measure(&dlock)?;
        Comparison { dlock, set }
    })
}

/// Rounds of [`compare`].
pub fn rounds<T>(
    count: usize,
    mut measure: impl FnMut(&Implementation) -> Result<T>,
) -> Result<Vec<Comparison<T>>> {
    (0..count).map(|round| compare(round, &mut measure)).collect()
}

/// DLOCK divided by the lower bound, within each round: noise affects both sides alike.
pub fn ratio<T>(rounds: &[Comparison<T>], of: fn(&T) -> f64) -> Stats {
    stats_of(rounds, |round| of(&round.dlock) / of(&round.set))
}

/// Adds a row for each, and the ratio.
pub fn add<T>(
    summary: &mut Summary,
    case: &str,
    metric: &str,
    unit: &'static str,
    rounds: &[Comparison<T>],
    of: fn(&T) -> f64,
) {
    let dlock = stats_of(rounds, |round| of(&round.dlock));
    let set = stats_of(rounds, |round| of(&round.set));
    summary.add(Figure::new(metric, dlock).unit(unit).case(case));
    let set = Figure::new(metric, set).unit(unit).case(case).of(SET);
    summary.add(set.ratio(ratio(rounds, of)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comparison_of_two_rounds_alternates_the_order() -> Result<()> {
        let mut measured = 0.0;
        let rounds = rounds(2, |_| {
            measured += 1.0;
            Ok(measured)
        })?;
        let order: Vec<_> = rounds.iter().map(|round| (round.dlock, round.set)).collect();
        assert_eq!(order, [(1.0, 2.0), (4.0, 3.0)]);
        assert_eq!(
            format!("{:.3}", ratio(&rounds, |at| *at)),
            "0.917 (0.500 to 1.333)"
        );
        Ok(())
    }
}
