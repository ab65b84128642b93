//! What drivers were told to acquire.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::key;
use crate::world::World;

/// A lease that may be shorter than the way to the server, on a busy machine: a grant that comes too late is given back,
/// and asked for anew.
const SHORT_MS: f64 = 1_000.0;
/// How often, generously.
const ANEW: usize = 12;

/// What the requests of drivers may be about.
#[derive(Default)]
pub struct Asked {
    /// How many acquisitions there may be of each key.
    acquisitions: BTreeMap<String, usize>,
    /// Keys whose grants may come too late, and are then asked for anew.
    short: BTreeSet<String>,
    /// Owners that the scenario has chosen.
    owners: BTreeSet<String>,
}

impl Asked {
    pub fn of(world: &World) -> Self {
        let mut asked = Self::default();
        for (_, sent) in world.drivers.values().flat_map(|driver| driver.commands()) {
            asked.add(&sent.command);
        }
        asked
    }

    pub fn acquisitions(&self, key: &str) -> usize {
        self.acquisitions.get(key).copied().unwrap_or_default()
    }

    /// Whether an acquisition of this key may be more than one for the server.
    pub fn is_short(&self, key: &str) -> bool {
        self.short.contains(key)
    }

    pub fn has_chosen(&self, owner: &str) -> bool {
        self.owners.contains(owner)
    }

    pub fn add(&mut self, command: &Map<String, Value>) {
        let number = |name| command.get(name).and_then(Value::as_u64).unwrap_or_default();
        match command["do"].as_str().unwrap_or_default() {
            "acquire" | "try" => {
                let times = ["lease_ms", "max_hold_ms"].map(|name| command.get(name));
                let mut times = times.into_iter().flatten().filter_map(Value::as_f64);
                if times.any(|time| time < SHORT_MS) {
                    self.short.insert(key::of(command));
                    self.expect(key::of(command), ANEW);
                } else {
                    self.expect(key::of(command), 1);
                }
            }
            "churn" => self.expect(key::of(command), number("times") as usize),
            "hold_many" => {
                let prefix = command["prefix"].as_str().unwrap_or_default();
                for n in 0..=number("locks") {
                    self.expect(format!("{prefix}{n}"), 1);
                }
            }
            _ => {}
        }
        let owner = command.get("owner").and_then(Value::as_str);
        self.owners.extend(owner.map(str::to_owned));
    }

    fn expect(&mut self, key: String, times: usize) {
        *self.acquisitions.entry(key).or_default() += times;
    }
}
