//! Implementations measured in turns, and the figures that compare them.

use crate::error::Result;
use crate::results::plot::Bar;
use crate::results::stats::{Stats, stats_of};
use crate::results::table::{Figure, Summary};

/// Samples of several implementations, DLOCK first.
pub struct Comparison<T> {
    pub names: Vec<&'static str>,
    /// In each, a sample per implementation.
    pub rounds: Vec<Vec<T>>,
}

impl<T> Comparison<T> {
    /// Each round starts with another implementation. `measure` gets the round and the index of the implementation.
    pub fn in_turns(
        names: Vec<&'static str>,
        rounds: usize,
        mut measure: impl FnMut(usize, usize) -> Result<T>,
    ) -> Result<Self> {
        let count = names.len();
        let round = |round: usize| {
            let order = (0..count).map(|turn| (round + turn) % count);
            let mut samples = order
                .map(|index| measure(round, index))
                .collect::<Result<Vec<_>>>()?;
            samples.rotate_right(round % count);
            Ok(samples)
        };
        let rounds = (0..rounds).map(round).collect::<Result<_>>()?;
        Ok(Self { names, rounds })
    }

    pub fn stats(&self, index: usize, of: impl Fn(&T) -> f64) -> Stats {
        stats_of(&self.rounds, |round| of(&round[index]))
    }

    /// DLOCK divided by this implementation, within each round: noise affects both sides alike.
    pub fn ratio(&self, index: usize, of: impl Fn(&T) -> f64) -> Stats {
        stats_of(&self.rounds, |round| of(&round[0]) / of(&round[index]))
    }

    /// One per implementation that could be measured in all rounds.
    pub fn figures(&self, metric: &str, of: impl Fn(&T) -> f64 + Copy) -> impl Iterator<Item = Figure> {
        let names = self.names.iter().enumerate().map(move |(index, name)| {
            let figure = Figure::new(metric, self.stats(index, of)).of(*name);
            let ratio = self.ratio(index, of);
            if index > 0 && ratio.median.is_finite() {
                figure.ratio(ratio)
            } else {
                figure
            }
        });
        names.filter(|figure| figure.max.is_finite())
    }

    /// Adds these figures.
    pub fn add(
        &self,
        summary: &mut Summary,
        case: &str,
        metric: &str,
        unit: &'static str,
        of: impl Fn(&T) -> f64 + Copy,
    ) {
        let figures = self.figures(metric, of);
        figures.for_each(|figure| summary.add(figure.unit(unit).case(case)));
    }

    pub fn bars(&self, of: impl Fn(&T) -> f64 + Copy) -> Vec<Bar> {
        let bar = |(index, name): (usize, &&str)| Bar {
            name: (*name).into(),
            value: self.stats(index, of),
        };
        self.names.iter().enumerate().map(bar).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comparison_of_two_rounds_alternates_the_order() -> Result<()> {
        let mut measured = 0.0;
        let comparison = Comparison::in_turns(vec!["one", "other"], 2, |_, _| {
            measured += 1.0;
            Ok(measured)
        })?;
        assert_eq!(comparison.rounds, [[1.0, 2.0], [4.0, 3.0]]);
        let ratio = comparison.ratio(1, |at| *at);
        assert_eq!((ratio.min, ratio.max), (0.5, 4.0 / 3.0));
        Ok(())
    }
}
