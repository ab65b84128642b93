//! Figures of a run, some with a target.

use serde::Serialize;

use crate::results::DLOCK;
use crate::results::plot::Plot;
use crate::results::stats::Stats;

/// A row of results.csv. The fields are its columns.
#[derive(Debug, Clone, Serialize)]
pub struct Figure {
    pub workload: &'static str,
    pub implementation: String,
    pub metric: String,
    /// Distinguishes the cases of a workload.
    pub case: String,
    /// Empty for a ratio.
    pub unit: &'static str,
    pub median: f64,
    pub min: f64,
    pub max: f64,
    /// DLOCK divided by this implementation, within the same rounds.
    pub ratio: Option<f64>,
    /// `<= 1.25` or `>= 0.99`.
    pub target: Option<String>,
    /// `None` without a target.
    pub met: Option<bool>,
}

/// Results of all workloads.
#[derive(Default)]
pub struct Summary {
    /// The one that is running.
    workload: &'static str,
    pub figures: Vec<Figure>,
    /// Each with its workload.
    pub notes: Vec<(&'static str, String)>,
    pub plots: Vec<Plot>,
}

impl Figure {
    /// A ratio, of DLOCK, without a target.
    pub fn new(metric: impl Into<String>, Stats { median, min, max }: Stats) -> Self {
        Self {
            workload: "",
            implementation: DLOCK.into(),
            metric: metric.into(),
            case: String::new(),
            unit: "",
            median,
            min,
            max,
            ratio: None,
            target: None,
            met: None,
        }
    }

    pub fn ms(self) -> Self {
        self.unit("ms")
    }

    pub fn unit(self, unit: &'static str) -> Self {
        Self { unit, ..self }
    }

    /// Of another implementation.
    pub fn of(mut self, implementation: impl Into<String>) -> Self {
        self.implementation = implementation.into();
        self
    }

    pub fn case(mut self, case: impl Into<String>) -> Self {
        self.case = case.into();
        self
    }

    /// DLOCK divided by this implementation.
    pub fn ratio(mut self, ratio: Stats) -> Self {
        self.ratio = Some(ratio.median);
        self
    }

    pub fn at_most(mut self, limit: f64) -> Self {
        self.target = Some(format!("<= {limit}"));
        self.met = Some(self.median <= limit);
        self
    }

    pub fn at_least(mut self, limit: f64) -> Self {
        self.target = Some(format!(">= {limit}"));
        self.met = Some(self.median >= limit);
        self
    }
}

impl Summary {
    /// Everything added from now on belongs to this workload.
    pub fn begin(&mut self, workload: &'static str) {
        self.workload = workload;
    }

    pub fn add(&mut self, mut figure: Figure) {
        figure.workload = self.workload;
        self.figures.push(figure);
    }

    /// What a reader needs to know to interpret the figures of this workload.
    pub fn note(&mut self, note: impl Into<String>) {
        self.notes.push((self.workload, note.into()));
    }

    pub fn plot(&mut self, plot: Plot) {
        self.plots.push(plot);
    }

    /// Whether any figure misses its target.
    pub fn has_missed_target(&self) -> bool {
        self.figures.iter().any(|figure| figure.met == Some(false))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_at_its_limit_is_met() {
        let value = |median| Figure::new("pair", Stats::of([median]));
        assert_eq!(value(1.25).at_most(1.25).met, Some(true));
        assert_eq!(value(1.26).at_most(1.25).met, Some(false));
        assert_eq!(value(0.99).at_least(0.99).met, Some(true));
        assert_eq!(value(0.98).at_least(0.99).met, Some(false));
        assert_eq!(value(7.0).met, None);
        // A figure that could not be measured misses its target.
        assert_eq!(value(f64::NAN).at_most(1.25).met, Some(false));
    }
}
