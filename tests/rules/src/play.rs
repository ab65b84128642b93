//! Plays a rule on a server.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::{Duration, Instant};

use dlock_testkit::{Connection, packed, wait_for};
use redis::Value;

use crate::pattern::{Bound, Pattern};
use crate::script::{Expected, Real, Rule, Step};
use crate::world::World;

/// How often a step is repeated that succeeds eventually.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Returns what went wrong, after the number of the line.
pub fn play<W: World>(rule: &Rule) -> Result<(), String> {
    let config = rule.steps.iter().map_while(|(_, step)| match step {
        Step::Real(Real::Config(line)) => Some(line.as_str()),
        _ => None,
    });
    let config: Vec<_> = config.collect();
    let world = W::start(&config.join("\n"));
    let mut stage = Stage {
        control: open(world.port()),
        world,
        clients: BTreeMap::new(),
        blocked: BTreeSet::new(),
        bound: Bound::new(),
    };
    for (line, step) in &rule.steps[config.len()..] {
        stage.play(step).map_err(|error| format!("{line}: {error}"))?;
    }
    stage.expect_silence()
}

fn open(port: u16) -> Connection {
    Connection::open(port).expect("the server accepts connections")
}

struct Stage<W> {
    /// The connection that looks at what the others have done.
    control: Connection,
    clients: BTreeMap<String, Connection>,
    /// Those of them that wait for replies.
    blocked: BTreeSet<String>,
    bound: Bound,
    world: W,
}

impl<W: World> Stage<W> {
    fn play(&mut self, step: &Step) -> Result<(), String> {
        match step {
            Step::Command {
                client,
                commands,
                expected,
            } => self.command(client, commands, expected),
            Step::Reply { client, pattern } => {
                self.blocked.remove(client);
                let reply = self.read(client)?;
                self.expect(&reply, pattern)
            }
            Step::Closed(client) => {
                self.blocked.remove(client);
                match self.client(client).read(W::PATIENCE) {
                    Err(error) if error.is_io_error() && !error.is_timeout() => Ok(()),
                    reply => Err(format!("not closed: {reply:?}")),
                }
            }
            Step::Owners { field, key, owners } => self.expect_owners(field, key, owners),
            Step::Info { field, pattern } => self.expect_info(field, pattern),
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
            Step::Eventually(step) => self.eventually(step),
            Step::Real(step) => {
                self.world.do_real(step)?;
                if matches!(step, Real::Crash) {
                    self.clients.clear();
                    self.blocked.clear();
                    self.control = open(self.world.port());
                }
                Ok(())
            }
        }
    }

    fn command(&mut self, client: &str, commands: &[Vec<String>], expected: &Expected) -> Result<(), String> {
        let bytes = commands.iter().flat_map(|words| {
            let words: Vec<_> = words.iter().map(|word| self.substitute(word)).collect();
            packed(&words)
        });
        let bytes: Vec<u8> = bytes.collect();
        self.client(client)
            .send(&bytes)
            .map_err(|error| error.to_string())?;
        match expected {
            Expected::Waits => self.expect_blocked(client),
            Expected::Replaces(other) => {
                self.blocked.remove(other);
                self.expect_blocked(client)
            }
            Expected::Replies(patterns) => {
                let replies = patterns.iter().map(|_| self.read(client));
                let replies = replies.collect::<Result<Vec<_>, _>>()?;
                for (pattern, reply) in patterns.iter().zip(&replies) {
                    self.expect(reply, pattern)?;
                }
                if patterns.len() < commands.len() {
                    self.blocked.insert(client.to_owned());
                }
                Ok(())
            }
        }
    }

    fn eventually(&mut self, step: &Step) -> Result<(), String> {
        let (start, bound) = (Instant::now(), self.bound.clone());
        loop {
            match self.play(step) {
                Err(_) if start.elapsed() < W::PATIENCE => self.bound.clone_from(&bound),
                result => return result,
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// A command's `$name` is what a pattern has bound, `$name+1` is one more.
    fn substitute(&self, word: &str) -> String {
        let number = || {
            let name = word.strip_prefix('$')?;
            let (name, more) = name.split_once('+').unwrap_or((name, "0"));
            Some(self.bound.get(name)? + more.parse::<i64>().ok()?)
        };
        number().map_or_else(|| word.to_owned(), |number| number.to_string())
    }

    /// The client of this name. That of the name `replica` asks the replica.
    fn client(&mut self, name: &str) -> &mut Connection {
        let port = match name {
            "replica" => self.world.replica_port().expect("a rule starts it first"),
            _ => self.world.port(),
        };
        self.clients.entry(name.to_owned()).or_insert_with(|| open(port))
    }

    fn read(&mut self, client: &str) -> Result<Value, String> {
        let reply = self.client(client).read(W::PATIENCE);
        reply.map_err(|error| error.to_string())
    }

    fn expect(&mut self, reply: &Value, pattern: &Pattern) -> Result<(), String> {
        match pattern.matches(reply, &mut self.bound) {
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

    fn expect_info(&mut self, field: &str, pattern: &Pattern) -> Result<(), String> {
        let info = self.control.call(&["INFO", "everything"], W::PATIENCE);
        let info = info.map_err(|error| error.to_string())?;
        let value = info_field(&info, field).ok_or("no such field")?;
        let value = match value.parse() {
            Ok(number) => Value::Int(number),
            Err(_) => Value::SimpleString(value),
        };
        self.expect(&value, pattern)
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

fn blocked_clients(info: &Value) -> usize {
    let count = info_field(info, "blocked_clients");
    count.and_then(|count| count.parse().ok()).expect("a number")
}

fn info_field(info: &Value, field: &str) -> Option<String> {
    let text: String = redis::from_redis_value_ref(info).expect("a text");
    let values = text
        .lines()
        .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    values.map(str::to_owned)
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
