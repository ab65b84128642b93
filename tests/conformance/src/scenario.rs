//! Scenarios as data. The README beside describes the format.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};

use crate::cells;
use crate::outcome::Outcome;

/// For how long a step waits that says nothing else. Generous: the machine may be busy.
const PATIENCE_MS: u64 = 10_000;

/// The driver of steps that name none.
pub const FIRST_DRIVER: &str = "a";

/// What the scenarios of a file are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Replies, error words and request ids.
    Wire,
    /// Deadlines, renewal, and when a loss is told.
    Time,
    /// Lost replies, cut connections, stopped processes, restarts and crowds.
    Faults,
    /// Each error of the server, in reply to each command.
    Errors,
    /// Why a lock was not granted, or is lost.
    Causes,
    /// What options, times and keys mean, and what is refused.
    Options,
    /// Many locks, clients and failures: what they take, and what they leave.
    Load,
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
    /// Each is carried out, even if one before it fails.
    pub parts: Vec<Part>,
}

/// Steps that belong together, on the servers and drivers of their scenario.
#[derive(Debug)]
pub struct Part {
    /// Empty if it is the only one.
    pub name: String,
    pub steps: Vec<Value>,
}

impl Level {
    pub const ALL: [Self; 7] = [
        Self::Wire,
        Self::Time,
        Self::Faults,
        Self::Errors,
        Self::Causes,
        Self::Options,
        Self::Load,
    ];

    pub fn scenarios(self) -> Vec<Scenario> {
        let scenarios = self
            .data()
            .and_then(|scenarios| scenarios.into_iter().map(Scenario::parse).collect());
        scenarios.unwrap_or_else(|error| panic!("{self:?}: {error}"))
    }

    fn data(self) -> Outcome<Vec<Value>> {
        let text = match self {
            Self::Wire => include_str!("../scenarios/wire.json"),
            Self::Time => include_str!("../scenarios/time.json"),
            Self::Faults => include_str!("../scenarios/faults.json"),
            Self::Errors => return cells::scenarios(),
            Self::Causes => include_str!("../scenarios/causes.json"),
            Self::Options => include_str!("../scenarios/options.json"),
            Self::Load => include_str!("../scenarios/load.json"),
        };
        serde_json::from_str(text).map_err(|error| error.to_string())
    }
}

impl Scenario {
    pub fn parse(value: Value) -> Outcome<Self> {
        let mut fields = Fields::of(value)?;
        let name = fields.take_text("name")?;
        let mut parse = || {
            Ok(Self {
                name: name.clone(),
                config: fields.take_list("config")?.join("\n"),
                has_replica: fields.take("replica").is_some_and(|replica| replica == true),
                only_for: fields.take("only_for").unwrap_or(json!({})),
                parts: match fields.take("parts") {
                    Some(Value::Array(parts)) => {
                        parts.into_iter().map(Part::parse).collect::<Outcome<_>>()?
                    }
                    Some(other) => return Err(format!("`parts` is {other}")),
                    None => vec![Part::of_steps(String::new(), &mut fields)?],
                },
            })
        };
        let scenario = parse().map_err(|error: String| format!("{name}: {error}"))?;
        fields.finish()?;
        Ok(scenario)
    }

    /// The drivers that steps are about.
    pub fn drivers(&self) -> BTreeSet<&str> {
        let steps = self.parts.iter().flat_map(|part| &part.steps);
        let named = steps.filter_map(|step| step["on"].as_str());
        named.chain([FIRST_DRIVER]).collect()
    }
}

impl Part {
    fn parse(value: Value) -> Outcome<Self> {
        let mut fields = Fields::of(value)?;
        let name = fields.take_text("name")?;
        let part = Self::of_steps(name, &mut fields)?;
        fields.finish()?;
        Ok(part)
    }

    fn of_steps(name: String, fields: &mut Fields) -> Outcome<Self> {
        match fields.take("steps") {
            Some(Value::Array(steps)) => Ok(Self { name, steps }),
            other => Err(format!("`steps` is {other:?}")),
        }
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
