//! A run of the specification: a file in the [Informal Trace Format](https://apalache-mc.org/docs/adr/015adr-trace.html).

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use dlock_core::testing::{Client, Reply, Request, Server};
use serde_json::Value;

/// The states, the first one before anything has happened.
pub struct Trace {
    pub name: String,
    states: Vec<Value>,
}

/// A value of the specification.
#[derive(Clone, Copy)]
pub struct Data<'a>(&'a Value);

/// The first step where code and specification differ.
#[derive(Debug)]
pub struct Difference(pub String);

impl Trace {
    pub fn read(path: &Path) -> Self {
        let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let mut trace: Value = serde_json::from_str(&text).expect("a trace is JSON");
        let Value::Array(states) = trace["states"].take() else {
            panic!("{} has no states", path.display());
        };
        let name = path.file_name().expect("a file").display().to_string();
        Self { name, states }
    }

    /// The traces of a page in a folder.
    pub fn of_page(page: &str, folder: &Path) -> Vec<Self> {
        let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
        paths.retain(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with(&format!("{page}-")) && name.ends_with(".itf.json")
        });
        paths.sort();
        paths.iter().map(|path| Self::read(path)).collect()
    }

    /// The states after each step.
    pub fn steps(&self) -> impl Iterator<Item = Data<'_>> {
        self.states.iter().skip(1).map(Data)
    }

    /// The names of the actions.
    pub fn actions(&self) -> BTreeSet<&str> {
        self.steps()
            .map(|state| state.var("last").get("name").text())
            .collect()
    }

    /// Does each step with `code`, which returns what it did and what the specification did. Both must be the same.
    pub fn replay<T: PartialEq + std::fmt::Debug>(
        &self,
        mut code: impl FnMut(Data<'_>) -> (T, T),
    ) -> Result<(), Difference> {
        for (number, state) in (1..).zip(self.steps()) {
            let (did, specified) = code(state);
            if did != specified {
                let last = state.var("last");
                let action = last.get("name").text();
                return Err(Difference(format!(
                    "{}: step {number}, {action}\nthe code:          {did:?}\nthe specification: {specified:?}\n{last:?}",
                    self.name
                )));
            }
        }
        Ok(())
    }
}

/// Longer than any trace.
pub(crate) const LEASE_MS: u64 = 3_600_000;

/// Sends a command, without its key, to the core.
pub(crate) fn ask(server: &mut Server, client: Client, command: &str) -> Option<Reply> {
    server.ask(client, 0, &Request::parse(command))
}

impl<'a> Data<'a> {
    /// A variable, whatever instance of the module it belongs to.
    pub fn var(self, name: &str) -> Self {
        let variables = self.0.as_object().expect("a state");
        let is_it = |key: &&String| key.rsplit("::").next() == Some(name);
        let key = variables.keys().find(is_it);
        Self(&variables[key.unwrap_or_else(|| panic!("no variable {name}"))])
    }

    /// A field of a record.
    pub fn get(self, field: &str) -> Self {
        Self(
            self.0
                .get(field)
                .unwrap_or_else(|| panic!("no field {field} in {self:?}")),
        )
    }

    pub fn int(self) -> i64 {
        let digits = self.get("#bigint");
        digits.text().parse().expect("an integer")
    }

    pub fn text(self) -> &'a str {
        self.0.as_str().unwrap_or_else(|| panic!("{self:?} is no text"))
    }

    pub fn bool(self) -> bool {
        self.0
            .as_bool()
            .unwrap_or_else(|| panic!("{self:?} is no boolean"))
    }

    /// The elements of a list.
    pub fn list(self) -> impl Iterator<Item = Data<'a>> {
        let list = self.0.as_array().unwrap_or_else(|| panic!("{self:?} is no list"));
        list.iter().map(Data)
    }

    /// The elements of a set.
    pub fn set(self) -> impl Iterator<Item = Data<'a>> {
        self.get("#set").list()
    }

    /// A variant and what it carries.
    pub fn variant(self) -> (&'a str, Self) {
        (self.get("tag").text(), self.get("value"))
    }
}

impl std::fmt::Debug for Data<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self.0, f)
    }
}
