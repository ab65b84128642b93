use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use crate::client::Client;
use crate::server::Server;
use crate::wait::{WAIT_TIMEOUT, wait_for};

const MARK_CHANNEL: &str = "end-of-stream";

/// The replication stream of a server, received as one of its replicas.
pub struct ReplicationStream {
    stream: BufReader<TcpStream>,
    marker: Client,
}

impl ReplicationStream {
    /// Attaches a replica and reads the snapshot.
    pub fn attach(server: &Server) -> Self {
        let socket =
            TcpStream::connect(("127.0.0.1", server.port())).expect("the server accepts connections");
        socket
            .set_read_timeout(Some(WAIT_TIMEOUT))
            .expect("a socket takes a timeout");
        let mut stream = Self {
            stream: BufReader::new(socket),
            marker: server.client(),
        };
        // After a grant, or in a grace period, a server sends a checkpoint to a new replica in its next tick.
        if stream.marker.stat("dlock_grace_left_ms") == 0 {
            stream.marker.acquire("checkpoint replica 60000");
            stream.marker.release("checkpoint replica");
        }
        // Without the capability `eof` the snapshot comes with its length in front.
        stream.handshake("REPLCONF listening-port 1", "+OK");
        stream.handshake("REPLCONF capa psync2", "+OK");
        stream.handshake("PSYNC ? -1", "+FULLRESYNC");
        stream.skip_snapshot();
        let is_sync = |command: &Vec<Vec<u8>>| command[0].eq_ignore_ascii_case(b"DLOCK.SYNC");
        wait_for("a checkpoint in the stream", || {
            stream.take_raw().iter().any(is_sync)
        });
        stream
    }

    /// The commands since the last call, with the bytes of a change as `<change>`. Without `DLOCK.SYNC`, which the
    /// server sends on its own schedule.
    pub fn take(&mut self) -> Vec<String> {
        let mut commands = self.take_all();
        commands.retain(|command| !command.starts_with("DLOCK.SYNC "));
        commands
    }

    /// As [`ReplicationStream::take`], with `DLOCK.SYNC`.
    pub fn take_all(&mut self) -> Vec<String> {
        self.take_raw().iter().map(|command| shown(command)).collect()
    }

    /// The words of each command since the last call.
    pub fn take_raw(&mut self) -> Vec<Vec<Vec<u8>>> {
        let mut commands = self.read_to_mark();
        // A PUBLISH may be the mark of an `Events`.
        commands.retain(|command| !command[0].eq_ignore_ascii_case(b"PUBLISH"));
        commands
    }

    fn read_to_mark(&mut self) -> Vec<Vec<Vec<u8>>> {
        // A PUBLISH is replicated in order: what precedes it was sent before the call.
        self.marker.ask::<i64>(&format!("PUBLISH {MARK_CHANNEL} mark"));
        let mut commands = Vec::new();
        loop {
            let command = self.command();
            match command[0].to_ascii_uppercase().as_slice() {
                b"PUBLISH" if command[1] == MARK_CHANNEL.as_bytes() => return commands,
                b"SELECT" | b"PING" | b"REPLCONF" => {}
                _ => commands.push(command),
            }
        }
    }

    fn handshake(&mut self, command: &str, answer: &str) {
        self.stream
            .get_mut()
            .write_all(format!("{command}\r\n").as_bytes())
            .expect("the server reads");
        let line = self.line();
        assert!(line.starts_with(answer), "{command} replied {line}");
    }

    fn skip_snapshot(&mut self) {
        let mut line = self.line();
        // Empty lines keep the link alive while the server writes the snapshot.
        while line.is_empty() {
            line = self.line();
        }
        let length: u64 = line
            .strip_prefix('$')
            .and_then(|n| n.parse().ok())
            .expect("a snapshot with its length");
        let mut snapshot = Vec::new();
        Read::by_ref(&mut self.stream)
            .take(length)
            .read_to_end(&mut snapshot)
            .expect("the snapshot arrives");
        assert_eq!(snapshot.len() as u64, length);
    }

    fn command(&mut self) -> Vec<Vec<u8>> {
        let mut line = self.line();
        while line.is_empty() {
            line = self.line();
        }
        let count = line.strip_prefix('*');
        let count: usize = count.and_then(|n| n.parse().ok()).expect("a command");
        (0..count).map(|_| self.word()).collect()
    }

    fn word(&mut self) -> Vec<u8> {
        let line = self.line();
        let length = line.strip_prefix('$');
        let length: usize = length.and_then(|n| n.parse().ok()).expect("a word");
        let mut word = vec![0; length + 2];
        self.stream.read_exact(&mut word).expect("the word arrives");
        word.truncate(length);
        word
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).expect("the stream is open");
        assert!(!line.is_empty(), "the server closed the link to the replica");
        line.trim_end().to_owned()
    }
}

fn shown(command: &[Vec<u8>]) -> String {
    let mut words: Vec<String> = command
        .iter()
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect();
    if words[0].eq_ignore_ascii_case("DLOCK.APPLY") && words.len() == 3 {
        words[2] = "<change>".into();
    }
    words.join(" ")
}
