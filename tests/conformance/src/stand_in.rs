//! Stands between the network of a driver and the server, and has the server answer chosen requests with an error.
//!
//! In place of such a request, the server gets a script that replies with the error: so the error takes its turn among
//! the other replies.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;

use dlock_testkit::packed;

/// Forwards everything but requests that are to be answered. Dropped, it accepts nothing more.
pub struct StandIn {
    port: u16,
    rules: Arc<Mutex<Rules>>,
}

#[derive(Default)]
struct Rules {
    server_port: u16,
    answer: Answer,
    given: usize,
    has_ended: bool,
}

/// What the next requests of a command are answered with.
#[derive(Clone, Default)]
pub struct Answer {
    pub command: String,
    /// Its first argument; any if it is empty.
    pub key: String,
    /// The error, which begins with its word.
    pub error: String,
    pub times: usize,
}

/// A request as it was sent.
struct Request {
    bytes: Vec<u8>,
    /// Its command and its first argument.
    words: [Vec<u8>; 2],
}

impl StandIn {
    pub fn to(server_port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("the system has a free port");
        let port = listener.local_addr().expect("a bound socket has an address");
        let rules = Arc::new(Mutex::new(Rules {
            server_port,
            ..Rules::default()
        }));
        thread::spawn({
            let rules = Arc::clone(&rules);
            move || {
                for client in listener.incoming().flatten() {
                    if lock(&rules).has_ended {
                        return;
                    }
                    connect(client, &rules);
                }
            }
        });
        Self {
            port: port.port(),
            rules,
        }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// New connections go to another port.
    pub fn forward_to(&self, server_port: u16) {
        lock(&self.rules).server_port = server_port;
    }

    /// Replaces what was to be answered before.
    pub fn answer(&self, answer: Answer) {
        let mut rules = lock(&self.rules);
        (rules.answer, rules.given) = (answer, 0);
    }

    /// How many requests were answered so, and how many are still to be.
    pub fn answers(&self) -> (usize, usize) {
        let rules = lock(&self.rules);
        (rules.given, rules.answer.times - rules.given)
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        lock(&self.rules).has_ended = true;
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

fn lock(rules: &Mutex<Rules>) -> MutexGuard<'_, Rules> {
    rules.lock().expect("no thread panics while it holds the rules")
}

/// Connects a client with the server. Without a server, the connection ends at once.
fn connect(client: TcpStream, rules: &Arc<Mutex<Rules>>) {
    let server_port = lock(rules).server_port;
    let Ok(server) = TcpStream::connect(("127.0.0.1", server_port)) else {
        return;
    };
    // Small messages are forwarded at once.
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (Ok(client_end), Ok(server_end)) = (client.try_clone(), server.try_clone()) else {
        return;
    };
    let rules = Arc::clone(rules);
    thread::spawn(move || {
        // An error ends the connection, as its end does.
        let _ = forward_requests(client, &server, &rules);
        let _ = server.shutdown(Shutdown::Both);
    });
    thread::spawn(move || {
        let (mut server, mut client) = (server_end, client_end);
        let _ = io::copy(&mut server, &mut client);
        let _ = client.shutdown(Shutdown::Both);
    });
}

fn forward_requests(client: TcpStream, mut server: &TcpStream, rules: &Mutex<Rules>) -> io::Result<()> {
    let mut client = BufReader::new(client);
    while let Some(request) = Request::read(&mut client)? {
        match lock(rules).error_for(&request) {
            None => server.write_all(&request.bytes)?,
            Some(error) => {
                let script = "return redis.error_reply(ARGV[1])";
                server.write_all(&packed(&["EVAL", script, "0", &error]))?;
            }
        }
    }
    Ok(())
}

impl Rules {
    fn error_for(&mut self, request: &Request) -> Option<String> {
        let [command, key] = &request.words;
        let answer = &self.answer;
        let is_chosen = command.eq_ignore_ascii_case(answer.command.as_bytes())
            && (answer.key.is_empty() || key == answer.key.as_bytes());
        if !is_chosen || self.given == answer.times {
            return None;
        }
        self.given += 1;
        Some(self.answer.error.clone())
    }
}

impl Request {
    /// The next request, an array of strings; `None` at the end.
    fn read(from: &mut BufReader<TcpStream>) -> io::Result<Option<Self>> {
        let mut request = Self {
            bytes: Vec::new(),
            words: Default::default(),
        };
        if from.read_until(b'\n', &mut request.bytes)? == 0 {
            return Ok(None);
        }
        for n in 0..number(&request.bytes, b'*')? {
            let start = request.bytes.len();
            from.read_until(b'\n', &mut request.bytes)?;
            let length = number(&request.bytes[start..], b'$')?;
            let word = request.bytes.len();
            // With the end of its line.
            request.bytes.resize(word + length + 2, 0);
            from.read_exact(&mut request.bytes[word..])?;
            if let Some(known) = request.words.get_mut(n) {
                *known = request.bytes[word..word + length].to_vec();
            }
        }
        Ok(Some(request))
    }
}

/// Of a line such as `*3`.
fn number(line: &[u8], mark: u8) -> io::Result<usize> {
    let digits = line.strip_prefix(&[mark]).unwrap_or_default();
    let number = String::from_utf8_lossy(digits).trim_end().parse();
    number.map_err(|_| io::Error::other("not a request"))
}
