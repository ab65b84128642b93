//! The figures of a run: each is one row of the results, beside its target where it has one.

use serde::{Deserialize, Serialize};

use crate::results::plot::Plot;
use crate::results::spread::Spread;

/// Who is measured when nothing else is said.
pub const DLOCK: &str = "dlock";

/// A figure as the results give it. The names are the columns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    pub work: String,
    pub contender: String,
    pub metric: String,
    /// Under which circumstances, where a work has several.
    pub case: String,
    /// Empty for a ratio.
    pub unit: String,
    pub median: f64,
    pub min: f64,
    pub max: f64,
    /// What dlock shows to what this contender shows, of the same rounds.
    pub ratio: Option<f64>,
    pub target: Option<Target>,
    /// None without a target.
    pub met: Option<bool>,
}

/// `<= 1.25` or `>= 0.99`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Target {
    AtMost(f64),
    AtLeast(f64),
}

/// A row that is being made.
pub struct Figure {
    contender: String,
    metric: String,
    case: String,
    unit: &'static str,
    value: Spread,
    ratio: Option<Spread>,
    target: Option<Target>,
}

/// What all works found.
#[derive(Default)]
pub struct Summary {
    /// The work that runs now.
    work: &'static str,
    rows: Vec<Row>,
    notes: Vec<(&'static str, String)>,
    plots: Vec<Plot>,
}

impl Figure {
    /// A ratio, of dlock, without a target.
    pub fn new(metric: impl Into<String>, value: Spread) -> Self {
        Self {
            contender: DLOCK.into(),
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

    /// Somebody else's figure.
    pub fn of(self, contender: impl Into<String>) -> Self {
        Self {
            contender: contender.into(),
            ..self
        }
    }

    pub fn case(self, case: impl Into<String>) -> Self {
        Self {
            case: case.into(),
            ..self
        }
    }

    /// What dlock shows to what this contender shows.
    pub fn ratio(self, ratio: Spread) -> Self {
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
            Self::AtMost(most) => value <= most,
            Self::AtLeast(least) => value >= least,
        }
    }
}

impl From<Target> for String {
    fn from(target: Target) -> Self {
        match target {
            Target::AtMost(most) => format!("<= {most}"),
            Target::AtLeast(least) => format!(">= {least}"),
        }
    }
}

impl TryFrom<String> for Target {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let number = |digits: &str| digits.parse().map_err(|error| format!("{text}: {error}"));
        match text.split_once(' ') {
            Some(("<=", most)) => number(most).map(Self::AtMost),
            Some((">=", least)) => number(least).map(Self::AtLeast),
            _ => Err(format!("not a target: {text}")),
        }
    }
}

impl Summary {
    /// What is added from now on belongs to this work.
    pub fn begin(&mut self, work: &'static str) {
        self.work = work;
    }

    pub fn add(&mut self, figure: Figure) {
        let value = figure.value;
        self.rows.push(Row {
            work: self.work.into(),
            contender: figure.contender,
            metric: figure.metric,
            case: figure.case,
            unit: figure.unit.into(),
            median: value.median,
            min: value.low,
            max: value.high,
            ratio: figure.ratio.map(|ratio| ratio.median),
            met: figure.target.map(|target| target.is_met(value.median)),
            target: figure.target,
        });
    }

    /// What a reader must know to read the figures of this work rightly; who could not take part, too.
    pub fn note(&mut self, note: impl Into<String>) {
        self.notes.push((self.work, note.into()));
    }

    pub fn plot(&mut self, plot: Plot) {
        self.plots.push(plot);
    }

    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    pub fn rows_of(&self, work: &str) -> Vec<&Row> {
        self.rows.iter().filter(|row| row.work == work).collect()
    }

    pub fn notes_of(&self, work: &str) -> impl Iterator<Item = &str> {
        let notes = self.notes.iter().filter(move |(of, _)| *of == work);
        notes.map(|(_, note)| note.as_str())
    }

    /// Each with the work that it belongs to.
    pub fn notes(&self) -> &[(&'static str, String)] {
        &self.notes
    }

    pub fn plots(&self) -> &[Plot] {
        &self.plots
    }

    /// Whether any target was missed.
    pub fn missed(&self) -> bool {
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
    fn a_target_is_met_up_to_its_edge() {
        let met = |figure: Figure| row_of(figure).met;
        let value = |median| Figure::new("pair", Spread::of([median]));
        assert_eq!(met(value(1.25).at_most(1.25)), Some(true));
        assert_eq!(met(value(1.26).at_most(1.25)), Some(false));
        assert_eq!(met(value(0.99).at_least(0.99)), Some(true));
        assert_eq!(met(value(0.98).at_least(0.99)), Some(false));
        assert_eq!(met(value(7.0)), None);
        // What could not be measured meets nothing.
        assert_eq!(met(value(f64::NAN).at_most(1.25)), Some(false));
    }

    #[test]
    fn a_figure_is_of_dlock_and_of_the_work_that_runs() {
        let row = row_of(Figure::new("pair", Spread::of([1.0, 3.0, 2.0])).unit("us"));
        assert_eq!((row.work.as_str(), row.contender.as_str()), ("cpu", DLOCK));
        assert_eq!((row.min, row.median, row.max), (1.0, 2.0, 3.0));
        let row = row_of(
            Figure::new("pair", Spread::of([4.0]))
                .of("other")
                .ratio(Spread::of([0.5])),
        );
        assert_eq!((row.contender.as_str(), row.ratio), ("other", Some(0.5)));
    }
}
