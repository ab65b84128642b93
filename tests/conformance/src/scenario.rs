//! Scenarios as data. The README beside describes the format.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};

use crate::outcome::Outcome;

/// For how long a step waits that says nothing else. Generous: the machine may be busy.
const PATIENCE_MS: u64 = 10_000;

/// The driver of steps that name none.
const FIRST_DRIVER: &str = "a";

/// What the scenarios of a file are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Replies, error words and request ids.
    Wire,
    /// Deadlines, renewal, and when a loss is told.
    Time,
    /// Lost replies, cut connections, stopped processes, restarts and crowds.
    Faults,
}

/// One scenario, which runs on its own servers and drivers.
#[derive(Debug)]
pub struct Scenario {
    pub name: String,
    /// Lines for the configuration of the servers.
    pub config: String,
    /// Whether the server has a replica, for a failover.
    pub has_replica: bool,
    /// What the first line of the driver must contain; the scenario is not for other drivers.
    pub only_for: Value,
    pub steps: Vec<Value>,
}

impl Level {
    pub const ALL: [Self; 3] = [Self::Wire, Self::Time, Self::Faults];

    pub fn scenarios(self) -> Vec<Scenario> {
        let text = match self {
            Self::Wire => include_str!("../scenarios/wire.json"),
            Self::Time => include_str!("../scenarios/time.json"),
            Self::Faults => include_str!("../scenarios/faults.json"),
        };
        let scenarios: Vec<Value> =
            serde_json::from_str(text).unwrap_or_else(|error| panic!("{self:?}: {error}"));
        let scenarios = scenarios.into_iter().map(Scenario::parse);
        scenarios
            .collect::<Outcome<_>>()
            .unwrap_or_else(|error| panic!("{self:?}: {error}"))
    }
}

impl Scenario {
    fn parse(value: Value) -> Outcome<Self> {
        let mut fields = Fields::of(value)?;
        let name = fields.take_text("name")?;
        let mut parse = || {
            Ok(Self {
                name: name.clone(),
                config: fields.take_list("config")?.join("\n"),
                has_replica: fields.take("replica").is_some_and(|replica| replica == true),
                only_for: fields.take("only_for").unwrap_or(json!({})),
                steps: match fields.take("steps") {
                    Some(Value::Array(steps)) => steps,
                    other => return Err(format!("`steps` is {other:?}")),
                },
            })
        };
        let scenario = parse().map_err(|error: String| format!("{name}: {error}"))?;
        fields.finish()?;
        Ok(scenario)
    }

    /// The drivers that steps are about.
    pub fn drivers(&self) -> BTreeSet<&str> {
        let named = self.steps.iter().filter_map(|step| step["on"].as_str());
        named.chain([FIRST_DRIVER]).collect()
    }
}

/// The fields of a step. Each is taken once, and none may be left, so that no typing error goes unnoticed.
#[derive(Clone, Debug)]
pub struct Fields(BTreeMap<String, Value>);

impl Fields {
    pub fn of(value: Value) -> Outcome<Self> {
        match value {
            Value::Object(fields) => Ok(Self(fields.into_iter().collect())),
            other => Err(format!("expected an object, got {other}")),
        }
    }

    pub fn take(&mut self, name: &str) -> Option<Value> {
        self.0.remove(name)
    }

    pub fn take_text(&mut self, name: &str) -> Outcome<String> {
        match self.take(name) {
            Some(Value::String(text)) => Ok(text),
            other => Err(format!("`{name}` must be a text, not {other:?}")),
        }
    }

    pub fn take_number(&mut self, name: &str) -> Outcome<Option<u64>> {
        match self.take(name) {
            None => Ok(None),
            Some(value) => {
                let number = value
                    .as_u64()
                    .ok_or_else(|| format!("`{name}` must be a number, not {value}"));
                number.map(Some)
            }
        }
    }

    pub fn take_list(&mut self, name: &str) -> Outcome<Vec<String>> {
        let list = self.take(name).unwrap_or(Value::Array(Vec::new()));
        let texts = list
            .as_array()
            .map(|list| list.iter().map(|text| text.as_str().map(str::to_owned)));
        let texts = texts.and_then(|texts| texts.collect());
        texts.ok_or_else(|| format!("`{name}` must be a list of texts, not {list}"))
    }

    /// The driver that a step is about: the first one if it names none.
    pub fn take_driver(&mut self) -> Outcome<String> {
        if self.0.contains_key("on") {
            self.take_text("on")
        } else {
            Ok(FIRST_DRIVER.into())
        }
    }

    /// How long the step may take.
    pub fn take_limit(&mut self) -> Outcome<Duration> {
        let limit = self.take_number("within_ms")?.unwrap_or(PATIENCE_MS);
        Ok(Duration::from_millis(limit))
    }

    /// What is left, for the driver.
    pub fn rest(&mut self) -> serde_json::Map<String, Value> {
        std::mem::take(&mut self.0).into_iter().collect()
    }

    pub fn finish(self) -> Outcome {
        match self.0.first_key_value() {
            None => Ok(()),
            Some((name, _)) => Err(format!("unknown field `{name}`")),
        }
    }
}
