//! Figures of a run, one per row, some with a target.

use serde::{Deserialize, Serialize};

use crate::results::DLOCK;
use crate::results::plot::Plot;
use crate::results::stats::Stats;

/// A row of results.csv. The fields are its columns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    pub workload: String,
    pub implementation: String,
    pub metric: String,
    /// Distinguishes the cases of a workload.
    pub case: String,
    /// Empty for a ratio.
    pub unit: String,
    pub median: f64,
    pub min: f64,
    pub max: f64,
    /// DLOCK divided by this implementation, within the same rounds.
    pub ratio: Option<f64>,
    pub target: Option<Target>,
    /// `None` without a target.
    pub met: Option<bool>,
}

/// `<= 1.25` or `>= 0.99`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Target {
    AtMost(f64),
    AtLeast(f64),
}

/// Builds a row.
pub struct Figure {
    implementation: String,
    metric: String,
    case: String,
    unit: &'static str,
    value: Stats,
    ratio: Option<Stats>,
    target: Option<Target>,
}

/// Results of all workloads.
#[derive(Default)]
pub struct Summary {
    /// The one that is running.
    workload: &'static str,
    rows: Vec<Row>,
    notes: Vec<(&'static str, String)>,
    plots: Vec<Plot>,
}

impl Figure {
    /// A ratio, of DLOCK, without a target.
    pub fn new(metric: impl Into<String>, value: Stats) -> Self {
        Self {
            implementation: DLOCK.into(),
            metric: metric.into(),
            case: String::new(),
            unit: "",
            value,
            ratio: None,
            target: None,
        }
    }

    pub fn ms(self) -> Self {
        self.unit("ms")
    }

    pub fn unit(self, unit: &'static str) -> Self {
        Self { unit, ..self }
    }

    /// Of another implementation.
    pub fn of(self, implementation: impl Into<String>) -> Self {
        Self {
            implementation: implementation.into(),
            ..self
        }
    }

    pub fn case(self, case: impl Into<String>) -> Self {
        Self {
            case: case.into(),
            ..self
        }
    }

    /// DLOCK divided by this implementation.
    pub fn ratio(self, ratio: Stats) -> Self {
        Self {
            ratio: Some(ratio),
            ..self
        }
    }

    pub fn at_most(self, target: f64) -> Self {
        Self {
            target: Some(Target::AtMost(target)),
            ..self
        }
    }

    pub fn at_least(self, target: f64) -> Self {
        Self {
            target: Some(Target::AtLeast(target)),
            ..self
        }
    }
}

impl Target {
    fn is_met(self, value: f64) -> bool {
        match self {
            Self::AtMost(limit) => value <= limit,
            Self::AtLeast(limit) => value >= limit,
        }
    }
}

impl From<Target> for String {
    fn from(target: Target) -> Self {
        match target {
            Target::AtMost(limit) => format!("<= {limit}"),
            Target::AtLeast(limit) => format!(">= {limit}"),
        }
    }
}

impl TryFrom<String> for Target {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let number = |digits: &str| digits.parse().map_err(|error| format!("{text}: {error}"));
        match text.split_once(' ') {
            Some(("<=", limit)) => number(limit).map(Self::AtMost),
            Some((">=", limit)) => number(limit).map(Self::AtLeast),
            _ => Err(format!("not a target: {text}")),
        }
    }
}

impl Summary {
    /// Everything added from now on belongs to this workload.
    pub fn begin(&mut self, workload: &'static str) {
        self.workload = workload;
    }

    pub fn add(&mut self, figure: Figure) {
        let value = figure.value;
        self.rows.push(Row {
            workload: self.workload.into(),
            implementation: figure.implementation,
            metric: figure.metric,
            case: figure.case,
            unit: figure.unit.into(),
            median: value.median,
            min: value.min,
            max: value.max,
            ratio: figure.ratio.map(|ratio| ratio.median),
            met: figure.target.map(|target| target.is_met(value.median)),
            target: figure.target,
        });
    }

    /// What a reader needs to know to interpret the figures of this workload.
    pub fn note(&mut self, note: impl Into<String>) {
        self.notes.push((self.workload, note.into()));
    }

    pub fn plot(&mut self, plot: Plot) {
        self.plots.push(plot);
    }

    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    pub fn rows_of(&self, workload: &str) -> Vec<&Row> {
        self.rows.iter().filter(|row| row.workload == workload).collect()
    }

    pub fn notes_of(&self, workload: &str) -> impl Iterator<Item = &str> {
        let notes = self.notes.iter().filter(move |(of, _)| *of == workload);
        notes.map(|(_, note)| note.as_str())
    }

    /// Each with its workload.
    pub fn notes(&self) -> &[(&'static str, String)] {
        &self.notes
    }

    pub fn plots(&self) -> &[Plot] {
        &self.plots
    }

    /// Whether any figure misses its target.
    pub fn has_missed_target(&self) -> bool {
        self.rows.iter().any(|row| row.met == Some(false))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row_of(figure: Figure) -> Row {
        let mut summary = Summary::default();
        summary.begin("cpu");
        summary.add(figure);
        summary.rows.remove(0)
    }

    #[test]
    fn target_at_its_limit_is_met() {
        let met = |figure: Figure| row_of(figure).met;
        let value = |median| Figure::new("pair", Stats::of([median]));
        assert_eq!(met(value(1.25).at_most(1.25)), Some(true));
        assert_eq!(met(value(1.26).at_most(1.25)), Some(false));
        assert_eq!(met(value(0.99).at_least(0.99)), Some(true));
        assert_eq!(met(value(0.98).at_least(0.99)), Some(false));
        assert_eq!(met(value(7.0)), None);
        // A figure that could not be measured misses its target.
        assert_eq!(met(value(f64::NAN).at_most(1.25)), Some(false));
    }

    #[test]
    fn figure_by_default_belongs_to_dlock_and_the_running_workload() {
        let row = row_of(Figure::new("pair", Stats::of([1.0, 3.0, 2.0])).unit("us"));
        assert_eq!(
            (row.workload.as_str(), row.implementation.as_str()),
            ("cpu", DLOCK)
        );
        assert_eq!((row.min, row.median, row.max), (1.0, 2.0, 3.0));
        let row = row_of(
            Figure::new("pair", Stats::of([4.0]))
                .of("other")
                .ratio(Stats::of([0.5])),
        );
        assert_eq!((row.implementation.as_str(), row.ratio), ("other", Some(0.5)));
    }
}
