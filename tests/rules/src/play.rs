//! Plays a rule on a server.

use std::collections::{BTreeMap, BTreeSet};

use dlock_testkit::{Connection, packed, wait_for};
use redis::Value;

use crate::pattern::{Bound, Pattern};
use crate::script::{Expected, Rule, Step};
use crate::world::World;

/// Returns what went wrong, after the number of the line.
pub fn play(world: &impl World, rule: &Rule) -> Result<(), String> {
    let mut stage = Stage {
        world,
        control: Connection::open(world.port()).expect("the server accepts connections"),
        clients: BTreeMap::new(),
        blocked: BTreeSet::new(),
        bound: Bound::new(),
    };
    for (line, step) in &rule.steps {
        stage.play(step).map_err(|error| format!("{line}: {error}"))?;
    }
    stage.expect_silence()
}

struct Stage<'a, W> {
    world: &'a W,
    /// The connection that looks at what the others have done.
    control: Connection,
    clients: BTreeMap<String, Connection>,
    /// Those of them that wait for replies.
    blocked: BTreeSet<String>,
    bound: Bound,
}

impl<W: World> Stage<'_, W> {
    fn play(&mut self, step: &Step) -> Result<(), String> {
        match step {
            Step::Command {
                client,
                words,
                expected,
            } => {
                let words: Vec<_> = words.iter().map(|word| self.substitute(word)).collect();
                self.client(client)
                    .send(&packed(&words))
                    .map_err(|error| error.to_string())?;
                match expected {
                    Expected::Waits => self.expect_blocked(client),
                    Expected::Replaces(other) => {
                        self.blocked.remove(other);
                        self.expect_blocked(client)
                    }
                    Expected::Reply(pattern) => self.expect_reply(client, pattern),
                }
            }
            Step::Reply { client, pattern } => {
                self.blocked.remove(client);
                self.expect_reply(client, pattern)
            }
            Step::Owners { field, key, owners } => self.expect_owners(field, key, owners),
            Step::Pass(time) => {
                self.world.pass(*time);
                Ok(())
            }
            Step::Leave(client) => {
                self.clients.remove(client).ok_or("no such client")?;
                if self.blocked.remove(client) {
                    // Others may have been granted what it waited for.
                    self.wait_for_blocked(|blocked, expected| blocked <= expected);
                }
                Ok(())
            }
        }
    }

    /// A command's `$name` is what a pattern has bound.
    fn substitute(&self, word: &str) -> String {
        let bound = word.strip_prefix('$').and_then(|name| self.bound.get(name));
        bound.map_or_else(|| word.to_owned(), i64::to_string)
    }

    fn client(&mut self, name: &str) -> &mut Connection {
        let open = || Connection::open(self.world.port()).expect("the server accepts connections");
        self.clients.entry(name.to_owned()).or_insert_with(open)
    }

    fn expect_reply(&mut self, client: &str, pattern: &Pattern) -> Result<(), String> {
        let reply = self
            .client(client)
            .read(W::PATIENCE)
            .map_err(|error| error.to_string())?;
        match pattern.matches(&reply, &mut self.bound) {
            true => Ok(()),
            false => Err(format!("{reply:?} is not {pattern:?}, where {:?}", self.bound)),
        }
    }

    fn expect_blocked(&mut self, client: &str) -> Result<(), String> {
        self.blocked.insert(client.to_owned());
        self.wait_for_blocked(|blocked, expected| blocked == expected);
        match self.client(client).is_silent() {
            Ok(true) => Ok(()),
            _ => Err("replied at once".to_owned()),
        }
    }

    fn expect_owners(&mut self, field: &str, key: &str, expected: &[String]) -> Result<(), String> {
        let info = self.control.call(&["DLOCK.INFO", key], W::PATIENCE);
        let owners = owners(&info.map_err(|error| error.to_string())?, field);
        match owners == expected {
            true => Ok(()),
            false => Err(format!("{field} of {key}: {owners:?}")),
        }
    }

    /// Waits until the number of blocked clients is as it should be.
    fn wait_for_blocked(&mut self, is_right: impl Fn(usize, usize) -> bool) {
        let expected = self.blocked.len();
        wait_for(&format!("{expected} blocked clients"), || {
            let info = self.control.call(&["INFO", "clients"], W::PATIENCE);
            info.is_ok_and(|info| is_right(blocked_clients(&info), expected))
        });
    }

    /// Nobody has a reply that no step has read.
    fn expect_silence(&mut self) -> Result<(), String> {
        let loud = self
            .clients
            .iter()
            .find(|(_, client)| !client.is_silent().unwrap_or(true));
        loud.map_or(Ok(()), |(name, _)| Err(format!("end: {name} has another reply")))
    }
}

/// The field `blocked_clients` of INFO.
fn blocked_clients(info: &Value) -> usize {
    let text: String = redis::from_redis_value_ref(info).expect("a text");
    let field = text
        .lines()
        .find_map(|line| line.strip_prefix("blocked_clients:"));
    field.and_then(|count| count.parse().ok()).expect("a number")
}

/// The owners in a field of DLOCK.INFO, whose reply is a map.
fn owners(info: &Value, field: &str) -> Vec<String> {
    let owner = |holder: &Value| match find(holder, "owner") {
        Some(Value::BulkString(owner)) => String::from_utf8_lossy(owner).into_owned(),
        other => panic!("an owner is {other:?}"),
    };
    match find(info, field) {
        Some(Value::Array(owners)) => owners.iter().map(owner).collect(),
        _ => Vec::new(),
    }
}

/// A field of a map, as RESP2 has it.
fn find<'a>(map: &'a Value, field: &str) -> Option<&'a Value> {
    let Value::Array(fields) = map else {
        return None;
    };
    let is_it = |name: &Value| *name == Value::BulkString(field.as_bytes().to_vec());
    fields.chunks(2).find(|pair| is_it(&pair[0])).map(|pair| &pair[1])
}
