//! The summary: each figure beside its target.

use std::fmt;

use crate::spread::Spread;

pub struct Figure {
    name: &'static str,
    value: Spread,
    /// With the space before it, if there is one.
    unit: &'static str,
    /// None for what only explains another figure.
    at_most: Option<f64>,
}

#[derive(Default)]
pub struct Summary(Vec<Figure>);

impl Figure {
    /// A ratio, without a target.
    pub fn new(name: &'static str, value: Spread) -> Self {
        Self {
            name,
            value,
            unit: "",
            at_most: None,
        }
    }

    pub fn ms(self) -> Self {
        Self { unit: " ms", ..self }
    }

    pub fn at_most(self, target: f64) -> Self {
        Self {
            at_most: Some(target),
            ..self
        }
    }

    fn missed(&self) -> bool {
        self.at_most.is_some_and(|target| self.value.median > target)
    }

    fn verdict(&self) -> &'static str {
        match self.at_most {
            None => "",
            Some(_) if self.missed() => "MISSED",
            Some(_) => "ok",
        }
    }
}

impl Summary {
    pub fn add(&mut self, figure: Figure) {
        self.0.push(figure);
    }

    /// Whether any target was missed.
    pub fn missed(&self) -> bool {
        self.0.iter().any(Figure::missed)
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<36}{:<30}{:<12}verdict", "figure", "value", "target")?;
        for figure in &self.0 {
            // Ratios differ in the third digit, milliseconds in the first.
            let digits = if figure.unit.is_empty() { 3 } else { 1 };
            let value = format!("{:.digits$}{}", figure.value, figure.unit);
            let target = figure
                .at_most
                .map_or(String::new(), |target| format!("<= {target}{}", figure.unit));
            write!(
                f,
                "\n{:<36}{value:<30}{target:<12}{}",
                figure.name,
                figure.verdict()
            )?;
        }
        Ok(())
    }
}
