//! An implementation as the commands that acquire and release a lock.

use crate::error::Result;
use crate::resp::{Connection, Reply, encode};

/// Commands in a pipeline: all are sent before the first reply is read.
pub const BATCH: usize = 500;

/// Never expires during a measurement.
const LONG_LEASE_MS: u64 = 600_000;

/// Placeholders in a command, alone or within a longer word.
pub const KEY: &str = "{key}";
pub const OWNER: &str = "{owner}";
pub const LEASE_MS: &str = "{lease}";
const REQUEST_ID: &str = "{id}";

pub struct Implementation {
    pub acquire: Command,
    pub release: Command,
    /// What its client sends after each release.
    pub after_release: Option<Command>,
    pub reentry: Reentry,
}

/// What happens to a second acquisition by the same owner.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Reentry {
    /// Rejected.
    None,
    /// Granted as another hold: it takes as many releases as acquisitions.
    Counted,
    /// Granted but not counted: the first release frees the lock.
    Uncounted,
}

/// A command with placeholders for names, and a check of its reply.
#[derive(Clone)]
pub struct Command {
    words: Vec<String>,
    is_expected: fn(&Reply) -> bool,
}

/// What replaces the placeholders.
#[derive(Clone)]
pub struct Names {
    pub key: String,
    pub owner: String,
    pub lease_ms: u64,
    /// Of a release. Written with 32 digits.
    pub request_id: u128,
}

/// `lock:000123` and `owner-000123`.
pub fn short_names(number: usize) -> Names {
    Names {
        key: format!("lock:{number:06}"),
        owner: format!("owner-{number:06}"),
        lease_ms: LONG_LEASE_MS,
        request_id: 0,
    }
}

impl Implementation {
    /// Not re-entrant, and nothing is sent after a release.
    pub fn new(acquire: Command, release: Command) -> Self {
        Self {
            acquire,
            release,
            after_release: None,
            reentry: Reentry::None,
        }
    }

    /// All commands of a release.
    pub fn release_commands(&self) -> impl Iterator<Item = &Command> {
        std::iter::once(&self.release).chain(&self.after_release)
    }
}

impl Command {
    pub fn new(words: &[&str], is_expected: fn(&Reply) -> bool) -> Self {
        Self {
            words: words.iter().map(|word| (*word).to_owned()).collect(),
            is_expected,
        }
    }

    /// A script by EVALSHA. Loads it.
    pub fn script(
        connection: &mut Connection,
        script: &str,
        keys: &[&str],
        args: &[&str],
        is_expected: fn(&Reply) -> bool,
    ) -> Result<Self> {
        let (sha, count) = (load_script(connection, script)?, keys.len().to_string());
        Ok(Self::new(
            &[&["EVALSHA", &sha, &count], keys, args].concat(),
            is_expected,
        ))
    }

    /// The same command; any reply but an error is expected.
    pub fn accepting_any_reply(&self) -> Self {
        Self {
            words: self.words.clone(),
            is_expected: |reply| !matches!(reply, Reply::Error(_)),
        }
    }

    pub fn words(&self, names: &Names) -> Vec<String> {
        let (lease, id) = (names.lease_ms.to_string(), format!("{:032x}", names.request_id));
        let values = [
            (KEY, &names.key),
            (OWNER, &names.owner),
            (LEASE_MS, &lease),
            (REQUEST_ID, &id),
        ];
        let substitute = |word: &String| {
            if !word.contains('{') {
                return word.clone();
            }
            let replace = |word: String, (name, value): (&str, &String)| word.replace(name, value);
            values.into_iter().fold(word.clone(), replace)
        };
        self.words.iter().map(substitute).collect()
    }

    /// An error that shows the reply unless it is the expected one.
    pub fn check(&self, reply: &Reply) -> Result<()> {
        check(self.is_expected, reply)
    }
}

/// Commands encoded in advance, so that encoding is not measured.
#[derive(Default)]
pub struct Requests {
    bytes: Vec<u8>,
    is_expected: Vec<fn(&Reply) -> bool>,
    /// End of each batch in `bytes`.
    ends: Vec<usize>,
}

impl Requests {
    pub fn of<'a>(commands: impl Iterator<Item = (&'a Command, Names)>) -> Self {
        let mut requests = Self::default();
        commands.for_each(|(command, names)| requests.push(command, &names));
        requests
    }

    fn push(&mut self, command: &Command, names: &Names) {
        let words = command.words(names);
        encode(words.iter().map(String::as_str), &mut self.bytes);
        if self.is_expected.len().is_multiple_of(BATCH) {
            self.ends.push(0);
        }
        self.is_expected.push(command.is_expected);
        if let Some(end) = self.ends.last_mut() {
            *end = self.bytes.len();
        }
    }

    /// Sends all commands, batch by batch, and checks every reply.
    pub fn run(&self, connection: &mut Connection) -> Result<()> {
        let mut start = 0;
        for (&end, checks) in self.ends.iter().zip(self.is_expected.chunks(BATCH)) {
            connection.send(&self.bytes[start..end])?;
            start = end;
            for is_expected in checks {
                check(*is_expected, &connection.receive()?)?;
            }
        }
        Ok(())
    }
}

fn check(is_expected: fn(&Reply) -> bool, reply: &Reply) -> Result<()> {
    if is_expected(reply) {
        Ok(())
    } else {
        Err(format!("unexpected reply: {reply:?}").into())
    }
}

/// Returns the SHA1 for EVALSHA.
pub fn load_script(connection: &mut Connection, script: &str) -> Result<String> {
    connection.text(&["SCRIPT", "LOAD", script])
}

pub fn is_ok(reply: &Reply) -> bool {
    matches!(reply, Reply::Simple(text) if text == "OK")
        || matches!(reply, Reply::Bulk(text) if text == b"OK")
}

pub fn is_one(reply: &Reply) -> bool {
    *reply == Reply::Integer(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_longer_than_a_batch_are_split() {
        let release = Implementation::dlock().release;
        let requests = Requests::of((0..BATCH + 1).map(|number| (&release, short_names(number))));
        let one = requests.bytes.len() / (BATCH + 1);
        assert_eq!(requests.ends, [BATCH * one, (BATCH + 1) * one]);
        let last = b"*3\r\n$13\r\nDLOCK.RELEASE\r\n$11\r\nlock:000500\r\n$12\r\nowner-000500\r\n";
        assert!(requests.bytes.ends_with(last));
    }
}
