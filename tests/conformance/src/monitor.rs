//! The commands that a server carries out, as MONITOR shows them.

use std::net::{Shutdown, TcpStream};
use std::str::Chars;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use dlock_testkit::{Connection, Server};
use redis::Value;

use crate::key;
use crate::outcome::{Outcome, within};

const PATIENCE: Duration = Duration::from_secs(10);
/// Longer than any scenario.
const SILENCE: Duration = Duration::from_secs(600);

/// The owners of the kit's own locks begin with this.
pub const KIT: &str = "kit";

/// Records what a server carries out, until it is dropped or the server ends.
pub struct Monitor {
    executed: Arc<Mutex<Vec<Executed>>>,
    stream: TcpStream,
    thread: JoinHandle<()>,
}

/// A command that a server has carried out.
#[derive(Clone, Debug, PartialEq)]
pub struct Executed {
    /// The server's clock, in seconds.
    pub at: f64,
    pub words: Vec<String>,
}

impl Monitor {
    pub fn of(server: &Server) -> Outcome<Self> {
        let text = |error: std::io::Error| format!("MONITOR: {error}");
        let mut connection = Connection::open(server.port()).map_err(text)?;
        let started = connection.call(&["MONITOR"], PATIENCE);
        started.map_err(|error| format!("MONITOR: {error}"))?;
        let stream = connection.try_clone_stream().map_err(text)?;
        let executed = Arc::<Mutex<Vec<Executed>>>::default();
        let thread = thread::spawn({
            let executed = Arc::clone(&executed);
            move || {
                while let Ok(line) = connection.read(SILENCE) {
                    if let Value::SimpleString(line) = line {
                        let command = Executed::parse(&line);
                        executed
                            .lock()
                            .expect("no thread panics while it holds this")
                            .extend(command);
                    }
                }
            }
        });
        Ok(Self {
            executed,
            stream,
            thread,
        })
    }

    /// What was carried out so far, in order.
    pub fn executed(&self) -> Vec<Executed> {
        self.executed
            .lock()
            .expect("no thread panics while it holds this")
            .clone()
    }

    /// Waits until everything before this command of the kit has arrived, or the server has ended.
    pub fn wait_for(&self, mark: &str) -> Outcome {
        let is_mark = |command: &Executed| command.words.last().is_some_and(|word| word == mark);
        within(PATIENCE, || {
            let executed = self
                .executed
                .lock()
                .expect("no thread panics while it holds this");
            let is_there = executed.iter().rev().any(is_mark);
            if is_there || self.thread.is_finished() {
                return Ok(());
            }
            Err("MONITOR is silent".to_owned())
        })
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        // Ends the thread. An error means that the server has closed it already.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

impl Executed {
    /// Parses `1339518083.107412 [0 127.0.0.1:60866] "keys" "*"`.
    fn parse(line: &str) -> Option<Self> {
        let (at, rest) = line.split_once(' ')?;
        let (_, rest) = rest.split_once("] ")?;
        Some(Self {
            at: at.parse().ok()?,
            words: quoted_words(rest),
        })
    }

    pub fn is(&self, command: &str) -> bool {
        self.words[0].eq_ignore_ascii_case(command)
    }

    /// Whether it is about an owner of the kit itself.
    pub fn is_of_kit(&self) -> bool {
        self.words.get(2).is_some_and(|owner| owner.starts_with(KIT))
    }

    /// The word after this option.
    pub fn option(&self, name: &str) -> Option<&str> {
        let position = self
            .words
            .iter()
            .position(|word| word.eq_ignore_ascii_case(name))?;
        self.words.get(position + 1).map(String::as_str)
    }
}

/// Words in quotation marks, in which `\` escapes. Bytes that are no text are replaced.
fn quoted_words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<Vec<u8>> = None;
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match (character, &mut word) {
            ('"', None) => word = Some(Vec::new()),
            ('"', Some(_)) => {
                let word = word.take().unwrap_or_default();
                words.push(String::from_utf8_lossy(&word).into_owned());
            }
            ('\\', Some(word)) => word.extend(unescaped(&mut characters)),
            (_, Some(word)) => word.extend(character.to_string().bytes()),
            (_, None) => {}
        }
    }
    words
}

/// The byte after a `\`.
fn unescaped(characters: &mut Chars<'_>) -> Option<u8> {
    match characters.next()? {
        'x' => key::bytes(&characters.by_ref().take(2).collect::<String>())
            .first()
            .copied(),
        'n' => Some(b'\n'),
        'r' => Some(b'\r'),
        't' => Some(b'\t'),
        'a' => Some(7),
        'b' => Some(8),
        other => u8::try_from(other).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn monitored_command_is_parsed() {
        let line = r#"1339518083.107412 [0 127.0.0.1:60866] "DLOCK.ACQUIRE" "a \"b\"" "x" "REQID" "7""#;
        let command = Executed::parse(line).expect("a command");
        assert_eq!(command.words, ["DLOCK.ACQUIRE", "a \"b\"", "x", "REQID", "7"]);
        assert!(command.is("dlock.acquire"));
        assert_eq!(command.option("reqid"), Some("7"));
        assert_eq!(command.option("fence"), None);
        assert_eq!(Executed::parse("OK"), None);
        let bytes = Executed::parse(r#"1.0 [0 :1] "GET" "caf\xc3\xa9\n\xff""#).expect("a command");
        assert_eq!(bytes.words[1], "caf\u{e9}\n\u{fffd}");
    }
}
