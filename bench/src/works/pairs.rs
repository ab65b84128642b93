//! Uncontended pairs: a lock taken and given back at once, again and again, by us and by the floor in turn.

use std::iter;
use std::time::Instant;

use crate::Result;
use crate::contenders::command::{Contender, Names, Requests, short_names};
use crate::resp::Connection;
use crate::results::spread::{Spread, spread};
use crate::results::table::{Figure, Summary};
use crate::works::cpu::cpu_seconds;

/// What we stand beside: it knows no owner, no re-entry and no fence.
const SET: &str = "SET NX PX + DEL";

/// What a pair cost, in microseconds.
#[derive(Clone, Copy)]
pub struct Cost {
    /// Of the thread of the server that carries commands out.
    pub cpu: f64,
    pub wall: f64,
}

impl Cost {
    /// As seen from outside.
    pub fn a_second(&self) -> f64 {
        1e6 / self.wall
    }
}

/// The same thing measured of both.
pub struct Beside<T> {
    pub dlock: T,
    pub set: T,
}

/// Pairs as bytes, made before anything is measured.
pub struct Pairs {
    requests: Vec<Requests>,
    count: usize,
}

impl Pairs {
    /// With so many different names, pipelined.
    pub fn pipelined(contender: &Contender, count: usize) -> Self {
        Self::of(contender, (0..count).map(short_names))
    }

    /// The same with any names.
    pub fn of(contender: &Contender, names: impl Iterator<Item = Names>) -> Self {
        let mut count = 0;
        let pairs = names.flat_map(|names| {
            count += 1;
            let again = Names {
                key: names.key.clone(),
                owner: names.owner.clone(),
            };
            [(&contender.acquire, names), (&contender.release, again)]
        });
        let requests = vec![Requests::of(pairs)];
        Self { requests, count }
    }

    /// Each command is sent when the reply to the one before has been read.
    pub fn one_by_one(contender: &Contender, count: usize) -> Self {
        let both = |number| [(&contender.acquire, number), (&contender.release, number)];
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

/// Measures both, the other one first in every second round.
pub fn in_turn<T>(round: usize, mut measure: impl FnMut(&Contender) -> Result<T>) -> Result<Beside<T>> {
    let (dlock, set) = (Contender::dlock(), Contender::set_and_del());
    Ok(if round.is_multiple_of(2) {
        let dlock = measure(&dlock)?;
        let set = measure(&set)?;
        Beside { dlock, set }
    } else {
        let set = measure(&set)?;
        let dlock = measure(&dlock)?;
        Beside { dlock, set }
    })
}

/// So many rounds of [`in_turn`].
pub fn rounds<T>(count: usize, mut measure: impl FnMut(&Contender) -> Result<T>) -> Result<Vec<Beside<T>>> {
    (0..count).map(|round| in_turn(round, &mut measure)).collect()
}

/// Ours to the other's, within each round: what the machine did to a round, it did to both.
pub fn ratio<T>(rounds: &[Beside<T>], of: fn(&T) -> f64) -> Spread {
    spread(rounds, |round| of(&round.dlock) / of(&round.set))
}

/// A row of each: ours, and the floor's beside the ratio of both.
pub fn add<T>(
    summary: &mut Summary,
    case: &str,
    metric: &str,
    unit: &'static str,
    rounds: &[Beside<T>],
    of: fn(&T) -> f64,
) {
    let dlock = spread(rounds, |round| of(&round.dlock));
    let set = spread(rounds, |round| of(&round.set));
    summary.add(Figure::new(metric, dlock).unit(unit).case(case));
    let set = Figure::new(metric, set).unit(unit).case(case).of(SET);
    summary.add(set.ratio(ratio(rounds, of)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_first_alternates() -> Result<()> {
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
