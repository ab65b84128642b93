//! results.csv: what was measured, a row for each figure of each round. Everything else is computed from it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::Result;

/// DLOCK, in columns of implementations.
pub const DLOCK: &str = "dlock";

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    pub workload: String,
    /// How the server is configured, or another condition.
    pub setting: String,
    pub implementation: String,
    pub clients: usize,
    pub figure: String,
    /// Empty for a ratio or a count.
    pub unit: String,
    pub round: usize,
    pub value: f64,
}

#[derive(Default)]
pub struct Results {
    /// For each workload, where and when it was measured.
    pub environments: BTreeMap<String, String>,
    pub rows: Vec<Row>,
}

/// The rows of one implementation in one round of a workload.
pub struct Round<'a> {
    results: &'a mut Results,
    row: Row,
}

impl Results {
    /// Everything that is added belongs to this setting, implementation and round of the workload that runs.
    pub fn round(&mut self, setting: &str, implementation: &str, round: usize) -> Round<'_> {
        let row = Row {
            setting: setting.into(),
            implementation: implementation.into(),
            clients: 1,
            round,
            ..Row::default()
        };
        Round { results: self, row }
    }

    pub fn read(file: &Path) -> Result<Self> {
        let text = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
        let environments = text
            .lines()
            .filter_map(|line| line.strip_prefix("# ")?.split_once(": "));
        let environments = environments.map(|(workload, text)| (workload.into(), text.into()));
        let mut reader = csv::ReaderBuilder::new();
        let mut reader = reader.comment(Some(b'#')).from_reader(text.as_bytes());
        Ok(Self {
            environments: environments.collect(),
            rows: reader.deserialize().collect::<csv::Result<_>>()?,
        })
    }

    pub fn write(&self, file: &Path) -> Result<()> {
        let mut table = csv::Writer::from_writer(Vec::new());
        self.rows.iter().try_for_each(|row| table.serialize(row))?;
        let environments = self.environments.iter();
        let comments: String = environments
            .map(|(workload, text)| format!("# {workload}: {text}\n"))
            .collect();
        let table = String::from_utf8(table.into_inner().map_err(|error| error.to_string())?)?;
        Ok(fs::write(file, comments + &table)?)
    }

    /// Replaces the workloads that `newer` has, and keeps the others.
    pub fn replace(&mut self, newer: Self) {
        self.rows
            .retain(|row| !newer.rows.iter().any(|new| new.workload == row.workload));
        self.rows.extend(newer.rows);
        self.environments.extend(newer.environments);
    }
}

impl Round<'_> {
    pub fn clients(mut self, clients: usize) -> Self {
        self.row.clients = clients;
        self
    }

    pub fn add(&mut self, figure: &str, unit: &str, value: f64) -> &mut Self {
        self.results.rows.push(Row {
            figure: figure.into(),
            unit: unit.into(),
            value,
            ..self.row.clone()
        });
        self
    }
}
