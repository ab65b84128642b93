//! What is compared: ways to hold a lock, each as the command that takes it and the one that gives it back.

use crate::Result;
pub use crate::contenders::dlock::acquire as dlock_acquire;
use crate::resp::{Connection, Reply, encode};

/// So many commands are sent before the first reply is read.
pub const BATCH: usize = 500;

/// Long enough to end in no measurement.
pub const LEASE_MS: &str = "3600000";

/// In a command, these stand for the names, alone or within a longer word.
pub const KEY: &str = "{key}";
pub const OWNER: &str = "{owner}";

pub struct Contender {
    pub acquire: Command,
    pub release: Command,
    /// What its client sends behind each release.
    pub after_release: Option<Command>,
    pub reentry: Reentry,
}

/// What a second acquisition by the same owner is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Reentry {
    /// Refused.
    None,
    /// A further hold: as many releases as acquisitions.
    Counted,
    /// Granted, but forgotten: the first release gives all up.
    Forgotten,
}

/// A command with gaps for the names, and how a right reply looks.
#[derive(Clone)]
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
    /// One that refuses re-entry and sends nothing behind a release.
    pub fn new(acquire: Command, release: Command) -> Self {
        Self {
            acquire,
            release,
            after_release: None,
            reentry: Reentry::None,
        }
    }

    /// The commands that give the lock back.
    pub fn all_release(&self) -> impl Iterator<Item = &Command> {
        std::iter::once(&self.release).chain(&self.after_release)
    }
}

impl Command {
    pub fn new(words: &[&str], is_right: fn(&Reply) -> bool) -> Self {
        Self {
            words: words.iter().map(|word| (*word).to_owned()).collect(),
            is_right,
        }
    }

    /// The same, satisfied with any reply that is no error.
    pub fn loosely(&self) -> Self {
        Self {
            words: self.words.clone(),
            is_right: |reply| !matches!(reply, Reply::Error(_)),
        }
    }

    pub fn words(&self, names: &Names) -> Vec<String> {
        let fill = |word: &String| word.replace(KEY, &names.key).replace(OWNER, &names.owner);
        self.words.iter().map(fill).collect()
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
        let words = command.words(names);
        encode(words.iter().map(String::as_str), &mut self.bytes);
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
