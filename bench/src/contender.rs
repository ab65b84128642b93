//! What is compared: ways to hold a lock, each as the command that takes it and the one that gives it back.

use crate::Result;
use crate::resp::{Connection, Reply, encode};

/// So many commands are sent before the first reply is read.
pub const BATCH: usize = 500;

/// Long enough to end in no measurement.
const LEASE_MS: &str = "3600000";

/// The scripts that many articles recommend, with a lock that its owner may take again.
const LUA_ACQUIRE: &str = r#"if redis.call("GET", KEYS[1]) == ARGV[1] then
redis.call("SET", KEYS[1], ARGV[1], "PX", ARGV[2])
return "OK"
else
return redis.call("SET", KEYS[1], ARGV[1], "NX", "PX", ARGV[2])
end"#;
const LUA_RELEASE: &str = r#"if redis.call("GET", KEYS[1]) == ARGV[1] then
return redis.call("DEL", KEYS[1])
else
return 0
end"#;

/// In a command, these stand for the names.
const KEY: &str = "{key}";
const OWNER: &str = "{owner}";

pub struct Contender {
    pub acquire: Command,
    pub release: Command,
}

/// A command with gaps for the names, and how a right reply looks.
pub struct Command {
    words: Vec<String>,
    is_right: fn(&Reply) -> bool,
}

/// A lock, and who wants it.
pub struct Names {
    pub key: String,
    pub owner: String,
}

/// `lock:000123` and `owner-000123`.
pub fn short_names(number: usize) -> Names {
    Names {
        key: format!("lock:{number:06}"),
        owner: format!("owner-{number:06}"),
    }
}

impl Contender {
    pub fn dlock() -> Self {
        Self {
            acquire: dlock_acquire(LEASE_MS),
            release: Command::new(&["DLOCK.RELEASE", KEY, OWNER], |reply| {
                *reply == Reply::Integer(0)
            }),
        }
    }

    /// The least that a lock can cost: no ownership check, no re-entry, no fence.
    pub fn set_and_del() -> Self {
        Self {
            acquire: Command::new(&["SET", KEY, OWNER, "NX", "PX", LEASE_MS], is_ok),
            release: Command::new(&["DEL", KEY], is_one),
        }
    }

    /// As such articles send them: the server gets the text each time, and hashes it.
    pub fn lua_by_eval() -> Self {
        Self {
            acquire: Command::new(&["EVAL", LUA_ACQUIRE, "1", KEY, OWNER, LEASE_MS], is_ok),
            release: Command::new(&["EVAL", LUA_RELEASE, "1", KEY, OWNER], is_one),
        }
    }

    /// The favourable way.
    pub fn lua_by_evalsha(connection: &mut Connection) -> Result<Self> {
        let acquire = load_script(connection, LUA_ACQUIRE)?;
        let release = load_script(connection, LUA_RELEASE)?;
        Ok(Self {
            acquire: Command::new(&["EVALSHA", &acquire, "1", KEY, OWNER, LEASE_MS], is_ok),
            release: Command::new(&["EVALSHA", &release, "1", KEY, OWNER], is_one),
        })
    }
}

pub fn dlock_acquire(lease_ms: &str) -> Command {
    Command::new(&["DLOCK.ACQUIRE", KEY, OWNER, lease_ms], is_granted)
}

impl Command {
    fn new(words: &[&str], is_right: fn(&Reply) -> bool) -> Self {
        Self {
            words: words.iter().map(|word| (*word).to_owned()).collect(),
            is_right,
        }
    }
}

/// Commands as bytes, made before anything is measured.
#[derive(Default)]
pub struct Requests {
    bytes: Vec<u8>,
    is_right: Vec<fn(&Reply) -> bool>,
    /// Where in `bytes` each batch ends.
    ends: Vec<usize>,
}

impl Requests {
    pub fn of<'a>(commands: impl Iterator<Item = (&'a Command, Names)>) -> Self {
        let mut requests = Self::default();
        commands.for_each(|(command, names)| requests.push(command, &names));
        requests
    }

    fn push(&mut self, command: &Command, names: &Names) {
        let words = command.words.iter().map(|word| match word.as_str() {
            KEY => names.key.as_str(),
            OWNER => names.owner.as_str(),
            word => word,
        });
        encode(words, &mut self.bytes);
        if self.is_right.len().is_multiple_of(BATCH) {
            self.ends.push(0);
        }
        self.is_right.push(command.is_right);
        if let Some(end) = self.ends.last_mut() {
            *end = self.bytes.len();
        }
    }

    /// Sends everything, batch by batch, and looks at every reply.
    pub fn run(&self, connection: &mut Connection) -> Result<()> {
        let mut start = 0;
        for (&end, checks) in self.ends.iter().zip(self.is_right.chunks(BATCH)) {
            connection.send(&self.bytes[start..end])?;
            start = end;
            for is_right in checks {
                let reply = connection.receive()?;
                if !is_right(&reply) {
                    return Err(format!("an unexpected reply: {reply:?}").into());
                }
            }
        }
        Ok(())
    }
}

/// A fence, one hold, a lease, no waiting.
fn is_granted(reply: &Reply) -> bool {
    matches!(reply, Reply::Array(numbers) if matches!(
        numbers[..],
        [Reply::Integer(1..), Reply::Integer(1), Reply::Integer(1..), Reply::Integer(0)]
    ))
}

fn is_ok(reply: &Reply) -> bool {
    matches!(reply, Reply::Simple(text) if text == "OK")
        || matches!(reply, Reply::Bulk(text) if text == b"OK")
}

fn is_one(reply: &Reply) -> bool {
    *reply == Reply::Integer(1)
}

fn load_script(connection: &mut Connection, script: &str) -> Result<String> {
    match connection.call(&["SCRIPT", "LOAD", script])? {
        Reply::Bulk(sha) => Ok(String::from_utf8(sha)?),
        reply => Err(format!("SCRIPT LOAD answered {reply:?}").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_first_hold_without_waiting_is_a_grant() {
        let reply = |numbers: [i64; 4]| Reply::Array(numbers.map(Reply::Integer).into());
        assert!(is_granted(&reply([7, 1, 5, 0])));
        for wrong in [[0, 1, 5, 0], [7, 2, 5, 0], [7, 1, 0, 0], [7, 1, 5, 1]] {
            assert!(!is_granted(&reply(wrong)), "{wrong:?}");
        }
        assert!(!is_granted(&Reply::Null) && !is_granted(&Reply::Error("ERR".into())));
    }

    #[test]
    fn commands_are_cut_into_batches() {
        let release = Contender::dlock().release;
        let requests = Requests::of((0..BATCH + 1).map(|number| (&release, short_names(number))));
        let one = requests.bytes.len() / (BATCH + 1);
        assert_eq!(requests.ends, [BATCH * one, (BATCH + 1) * one]);
        let last = requests
            .bytes
            .rsplit(|byte| *byte == b'*')
            .next()
            .map(String::from_utf8_lossy);
        assert_eq!(
            last.as_deref(),
            Some("3\r\n$13\r\nDLOCK.RELEASE\r\n$11\r\nlock:000500\r\n$12\r\nowner-000500\r\n")
        );
    }
}
