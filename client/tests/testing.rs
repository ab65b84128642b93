//! The server for tests beside a real server with the module: the same commands get the same replies.

use std::collections::HashMap;

use dlock_testkit::{Client, Server, bytes_of_replies, wait_for};
use fastrand::Rng;
use redis::{RedisResult, Value};
use redis_dlock_client::testing::TestServer;

const COMMANDS: usize = 1_500;
/// Leases differ by this much, replies by less.
const LEASE_MS: i64 = 200_000;
/// Fences and cursors are larger, all other numbers smaller.
const LARGE: i64 = 1 << 40;

/// One of the two servers. Fences and cursors differ between them, so that they are named in the order in which they
/// appear.
struct Side {
    client: Client,
    fences: Vec<i64>,
    cursors: Vec<i64>,
    /// The last cursor of each inbox.
    last_cursors: HashMap<String, usize>,
}

impl Side {
    fn new(client: Client) -> Self {
        Self {
            client,
            fences: Vec::new(),
            cursors: Vec::new(),
            last_cursors: HashMap::new(),
        }
    }

    /// Runs a command, in which `F3` stands for the fourth fence that appeared and `C3` for the fourth cursor. Returns
    /// what both servers must reply.
    fn run(&mut self, command: &str) -> String {
        let words = command
            .split(' ')
            .map(|word| self.number(word))
            .collect::<Vec<_>>();
        let reply = self.client.call(&words.join(" "));
        self.shown(command, reply)
    }

    fn number(&self, word: &str) -> String {
        let (numbers, index) = match word.split_at_checked(1) {
            Some(("F", index)) => (&self.fences, index),
            Some(("C", index)) => (&self.cursors, index),
            _ => return word.to_owned(),
        };
        match index.parse::<usize>() {
            Ok(index) => numbers.get(index).unwrap_or(&1).to_string(),
            Err(_) => word.to_owned(),
        }
    }

    fn shown(&mut self, command: &str, reply: RedisResult<Value>) -> String {
        match reply {
            Ok(Value::Array(items)) if command.starts_with("DLOCK.GRANTS") => {
                let [Value::Int(cursor), Value::Int(_waited), Value::Array(answers)] = &items[..] else {
                    panic!("{command}: {items:?}")
                };
                let cursor = name(&mut self.cursors, *cursor);
                let inbox = command.split(' ').nth(1).unwrap_or_default();
                self.last_cursors.insert(inbox.to_owned(), cursor);
                let answers: Vec<_> = answers.iter().map(|answer| self.value(answer)).collect();
                format!("C{cursor} {answers:?}")
            }
            Ok(reply) => self.value(&reply),
            Err(error) => {
                let words = error.to_string();
                let words = words.split(' ').map(|word| {
                    let number = word
                        .trim_end_matches(',')
                        .parse()
                        .ok()
                        .filter(|number| *number > LARGE);
                    number.map_or(word.to_owned(), |number| {
                        format!("F{}", name(&mut self.fences, number))
                    })
                });
                words.collect::<Vec<_>>().join(" ")
            }
        }
    }

    fn value(&mut self, value: &Value) -> String {
        match value {
            Value::Int(number) if *number > LARGE => format!("F{}", name(&mut self.fences, *number)),
            // A lease, or a timeout.
            Value::Int(number) if *number > LEASE_MS / 2 => {
                format!("{} leases", (number + LEASE_MS / 2) / LEASE_MS)
            }
            Value::Array(items) if is_grant(items) => {
                // All but how long it waited.
                let items: Vec<_> = items[..items.len() - 1]
                    .iter()
                    .map(|item| self.value(item))
                    .collect();
                format!("grant {items:?}")
            }
            Value::Array(items) => {
                let mut shown = Vec::new();
                let mut is_time = false;
                for item in items {
                    shown.push(if is_time {
                        "time".to_owned()
                    } else {
                        self.value(item)
                    });
                    is_time = is_name_of_time(item);
                }
                format!("{shown:?}")
            }
            Value::Map(fields) => {
                let flat = fields
                    .iter()
                    .flat_map(|(name, value)| [name.clone(), value.clone()]);
                format!("map {}", self.value(&Value::Array(flat.collect())))
            }
            Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            other => format!("{other:?}"),
        }
    }
}

/// `[fence, holds, lease-ms, waited-ms]`, alone or at the end of an answer.
fn is_grant(items: &[Value]) -> bool {
    let fence = items.len().checked_sub(4).map(|at| &items[at]);
    matches!(fence, Some(Value::Int(fence)) if *fence > LARGE)
}

fn is_name_of_time(value: &Value) -> bool {
    matches!(value, Value::BulkString(name) if name == b"held-ms" || name == b"waited-ms")
}

fn name(known: &mut Vec<i64>, number: i64) -> usize {
    let place = known.iter().position(|other| *other == number);
    place.unwrap_or_else(|| {
        known.push(number);
        known.len() - 1
    })
}

/// The order of numbers, whatever they are.
fn ranks(numbers: &[i64]) -> Vec<usize> {
    let less = |number| numbers.iter().filter(|other| **other < number).count();
    numbers.iter().map(|number| less(*number)).collect()
}

/// A command, mostly one that is well formed.
fn random_command(rng: &mut Rng, side: &Side) -> String {
    // Mostly a recent one.
    let fence = format!("F{}", side.fences.len().saturating_sub(rng.usize(1..4)));
    let any_cursor = format!("C{}", rng.usize(..side.cursors.len() + 1));
    let is_malformed = rng.u8(..20) == 0;
    let mut pick = |choices: &[&str], malformed: &[&str]| {
        let choices = if is_malformed && rng.bool() {
            malformed
        } else {
            choices
        };
        choices[rng.usize(..choices.len())].to_owned()
    };
    let (key, owner) = (
        pick(&["a", "b", "c"], &["text"]),
        pick(&["alice", "bob", "carol"], &["x y"]),
    );
    let lease = pick(&["200000", "400000", "600000"], &["0", "1e3", "99999999999"]);
    let id = pick(
        &["REQID r1", "REQID r2", "REQID r3"],
        &["REQID", "REQID r REQID r"],
    );
    let inbox = pick(&["x", "y", "z"], &["other"]);
    let cursor = side
        .last_cursors
        .get(&inbox)
        .map_or("0".to_owned(), |last| format!("C{last}"));
    let queue = format!("QUEUE {inbox} {}", pick(&["9000000", "0"], &["", "1 BLOCK 1"]));
    let limit = pick(
        &["", "SHARED", "LIMIT 2", "limit 3"],
        &["LIMIT 0", "SHARED LIMIT 2"],
    );
    let wait = pick(
        &["", &id, &format!("{queue} {id}"), &format!("{id} {queue}")],
        &[&queue],
    );
    let grant = pick(
        &["", &format!("FENCE {fence}"), &id],
        &["FENCE", "FENCE 0", "FENCE 1 REQID r"],
    );
    let holds = pick(&["", "ALL", "ALL", &id], &["ALL REQID r", "SHARED"]);
    let reader = format!(
        "{inbox} {}",
        pick(
            &["0", &any_cursor, &cursor, &cursor, &cursor],
            &["-1", "9007199254740992"]
        )
    );
    let ttl = pick(&["TTL 60000"], &["TTL", "TTL 50", "BLOCK 0"]);
    let inner = pick(
        &["", "GET text", "SET text s", "INCR n"],
        &["NONSENSE x y", "SELECT 1", "GET", "GET a"],
    );
    let words = match rng.u8(..20) {
        0..8 => format!("DLOCK.ACQUIRE {key} {owner} {lease} {limit} {wait}"),
        8..11 => format!("DLOCK.RELEASE {key} {owner} {holds}"),
        11 => format!("DLOCK.RELEASE {key} {owner} FENCE {fence} {holds}"),
        12..14 => format!("DLOCK.EXTEND {key} {owner} {lease} {grant}"),
        14..17 => format!("DLOCK.GRANTS {reader} {ttl}"),
        17 => format!("DLOCK.GUARD {key} {owner} {fence} {inner}"),
        18 => format!("DLOCK.OWNER {key}"),
        _ if rng.u8(..4) == 0 => format!("DEL {key}"),
        _ => format!("DLOCK.INFO {key}"),
    };
    words.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn random_commands_get_the_replies_of_a_real_server() {
    for seed in 0..6 {
        let (server, own) = (Server::start(), TestServer::start());
        let protocol = if seed % 2 == 0 { "resp2" } else { "resp3" };
        let real = format!("redis://127.0.0.1:{}?protocol={protocol}", server.port());
        let mut real = Side::new(Client::connect(&real));
        let mut own = Side::new(Client::connect(&format!("{}?protocol={protocol}", own.url())));
        let mut rng = Rng::with_seed(seed);
        for number in 0..COMMANDS {
            let command = random_command(&mut rng, &real);
            let (expected, replied) = (real.run(&command), own.run(&command));
            if let Some(key) = command.strip_prefix("DEL ") {
                // The module serves the waiters soon, not at once.
                wait_for("the next holder", || {
                    let lock = real.client.find_lock(key);
                    lock.is_none_or(|lock| !lock.holders.is_empty())
                });
            }
            assert_eq!(replied, expected, "seed {seed}, command {number}: {command}");
        }
        assert_eq!(ranks(&own.fences), ranks(&real.fences), "seed {seed}");
        assert_eq!(ranks(&own.cursors), ranks(&real.cursors), "seed {seed}");
        let (fences, cursors) = (own.fences.len(), own.cursors.len());
        assert!(
            fences > 50 && cursors > 20,
            "seed {seed}: only {fences} fences, {cursors} cursors"
        );
    }
}

/// The bytes of the replies to commands, with all numbers masked.
fn masked_replies(url: &str, resp: u8, commands: &[&str]) -> String {
    let (_, port) = url.rsplit_once(':').expect("an address with a port");
    let replies = bytes_of_replies(port.parse().expect("a port"), resp, commands);
    let lines = replies
        .lines()
        .map(|line| if line.starts_with(':') { ":n" } else { line });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn replies_have_the_bytes_of_a_real_server() {
    let (real, own) = (Server::start(), TestServer::start());
    let commands = [
        "DLOCK.OWNER k",
        "DLOCK.INFO k",
        "DLOCK.GRANTS box 0 TTL 60000",
        "DLOCK.ACQUIRE k alice 30000",
        "DLOCK.ACQUIRE k bob 30000",
        "DLOCK.ACQUIRE k bob 30000 BLOCK 1",
        "DLOCK.ACQUIRE k bob 30000 QUEUE box 1000 REQID r",
        "DLOCK.OWNER k",
        "DLOCK.INFO k",
        "DLOCK.EXTEND k alice 40000",
        "DLOCK.RELEASE k bob REQID r",
        "DLOCK.RELEASE k bob",
        "DLOCK.RELEASE k alice",
        "DLOCK.RELEASE k",
        "dlock.nothing a b",
        "GET none",
        "SET text 1",
        "GET text",
        "INCR text",
        "INCR text 2",
        "SET word w",
        "INCR word",
        "DLOCK.OWNER text",
        "DLOCK.INFO text",
        "EXISTS text text none",
        "DEL text none",
        "SELECT 1",
        "SELECT 16",
        "SELECT x",
        "CLIENT SETNAME n",
        "PING",
        "PING a b",
    ];
    let (own, real) = (own.url(), format!("redis://127.0.0.1:{}", real.port()));
    for resp in [2, 3] {
        let [own, real] = [&own, &real].map(|url| masked_replies(url, resp, &commands));
        assert_eq!(own, real, "RESP{resp}");
    }
}
