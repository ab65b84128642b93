use std::io::{self, BufRead, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use redis::{Value, parse_redis_value};

use crate::connection::packed;

/// How many requests, or pieces of replies, may be under way in one direction of a connection.
const MAX_CHUNKS: usize = 4096;

/// A faulty network in front of a server: delays, freezes and cuts connections, and rejects requests.
/// Dropped, it cuts them all.
pub struct Proxy {
    port: u16,
    network: Arc<Network>,
}

/// Which requests are rejected next: those of a command.
#[derive(Clone, Default)]
pub struct Rejection {
    pub command: String,
    /// Its first argument, without line ends; any if it is empty.
    pub key: String,
    /// The error, which begins with its word.
    pub error: String,
    pub times: usize,
}

/// A request that was forwarded.
#[derive(Clone, Debug)]
pub struct Request {
    pub at: Instant,
    /// Bytes that are no text are replaced.
    pub words: Vec<String>,
}

/// The direction of bytes through the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    ToServer,
    ToClient,
}

impl Request {
    pub fn is(&self, command: &str) -> bool {
        self.words[0].eq_ignore_ascii_case(command)
    }

    /// The word after this option.
    pub fn option(&self, name: &str) -> Option<&str> {
        let mut words = self.words.iter();
        words.find(|word| word.eq_ignore_ascii_case(name))?;
        words.next().map(String::as_str)
    }
}

impl Proxy {
    /// A proxy to a local port that forwards everything at first.
    pub fn to(server_port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("the system has a free port");
        let port = listener.local_addr().expect("a bound socket has an address");
        let port = port.port();
        let network = Arc::new(Network::default());
        network.change(|rules| rules.server_port = server_port);
        thread::spawn({
            let network = Arc::clone(&network);
            move || accept(&listener, &network)
        });
        Self { port, network }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// Delays data by this time, as a distant network does: it does not wait for data before it that is delayed, too.
    pub fn delay(&self, way: Way, delay: Duration) {
        self.network.change(|rules| rules.way(way).delay = delay);
    }

    /// Nothing arrives until [`Proxy::thaw`]; then everything does, unless it was cut.
    pub fn freeze(&self, way: Way) {
        self.network.change(|rules| rules.way(way).frozen = true);
    }

    /// Nothing arrives any more over the connections that are open now, as if the peer were gone. New connections
    /// are not affected.
    pub fn strand(&self) {
        self.network
            .change(|rules| rules.stranded.clone_from(&rules.open));
    }

    /// Strands the connection of the next request that contains this text, before the request reaches the server.
    pub fn strand_request(&self, request: &str) {
        self.network
            .change(|rules| rules.stranding = Some(Loss::new(request, 1)));
    }

    /// What was sent over stranded connections arrives after all, even if the sender has closed its end.
    pub fn deliver_late(&self) {
        self.network.change(|rules| rules.stranded.clear());
    }

    pub fn thaw(&self) {
        self.network.change(|rules| {
            rules.to_server.frozen = false;
            rules.to_client.frozen = false;
        });
    }

    /// Cuts a connection after this many more bytes in that direction, counted over all connections. The bytes
    /// before arrive. It happens once.
    pub fn cut_after(&self, way: Way, bytes: usize) {
        self.network
            .change(|rules| rules.way(way).until_cut = Some(bytes));
    }

    /// Whether the cut of [`Proxy::cut_after`] is still pending.
    pub fn will_cut(&self) -> bool {
        let rules = self.network.rules();
        rules.to_server.until_cut.is_some() || rules.to_client.until_cut.is_some()
    }

    /// Loses the replies to the next requests that contain this text: the server carries each out, and in place of its
    /// reply, the connection is cut.
    pub fn lose_replies_to(&self, request: &str, times: usize) {
        self.network
            .change(|rules| rules.to_server.loss = Some(Loss::new(request, times)));
    }

    /// Loses the next replies that contain this text: in place of each, the connection is cut.
    pub fn lose_replies_with(&self, text: &str, times: usize) {
        self.network
            .change(|rules| rules.to_client.loss = Some(Loss::new(text, times)));
    }

    /// How many replies are still to be lost.
    pub fn replies_to_lose(&self) -> usize {
        let rules = self.network.rules();
        let losses = [&rules.to_server.loss, &rules.to_client.loss];
        losses.into_iter().flatten().map(|loss| loss.left).sum()
    }

    /// Has the server reply with an error to the next requests of a command, which it does not get: a script takes their
    /// place, so that the error takes its turn among the other replies. Replaces what was to be rejected before.
    pub fn reject(&self, rejection: Rejection) {
        self.network
            .change(|rules| (rules.rejection, rules.rejected) = (rejection, 0));
    }

    /// How many requests were rejected so, and how many are still to be.
    pub fn rejections(&self) -> (usize, usize) {
        let rules = self.network.rules();
        (rules.rejected, rules.rejection.times - rules.rejected)
    }

    /// Remembers the requests that are forwarded from now on.
    pub fn record(&self) {
        self.network.change(|rules| rules.recorded = Some(Vec::new()));
    }

    /// The requests since [`Proxy::record`], in the order in which they were forwarded.
    pub fn recorded(&self) -> Vec<Request> {
        self.network.rules().recorded.clone().unwrap_or_default()
    }

    /// New connections go to another port.
    pub fn forward_to(&self, server_port: u16) {
        self.network.change(|rules| rules.server_port = server_port);
    }

    /// Cuts all connections. Frozen and delayed data is lost.
    pub fn cut(&self) {
        self.network.cut();
    }

    /// Whether new connections are closed at once, before they reach the server.
    pub fn refuse(&self, refuse: bool) {
        self.network.change(|rules| rules.refuse = refuse);
    }

    /// How many connections were closed because of [`Proxy::refuse`].
    pub fn refused(&self) -> usize {
        self.network.rules().refused
    }

    /// The number of open connections.
    pub fn connections(&self) -> usize {
        self.network.rules().open.len()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.network.change(|rules| {
            rules.ended = true;
            rules.refuse = true;
        });
        self.network.cut();
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

#[derive(Default)]
struct Network {
    rules: Mutex<Rules>,
    changed: Condvar,
}

#[derive(Default)]
struct Rules {
    server_port: u16,
    to_server: WayRules,
    to_client: WayRules,
    refuse: bool,
    refused: usize,
    ended: bool,
    open: Vec<Arc<Link>>,
    stranded: Vec<Arc<Link>>,
    /// The request whose connection is to be stranded.
    stranding: Option<Loss>,
    rejection: Rejection,
    rejected: usize,
    recorded: Option<Vec<Request>>,
}

#[derive(Default)]
struct WayRules {
    delay: Duration,
    frozen: bool,
    until_cut: Option<usize>,
    loss: Option<Loss>,
}

/// Requests or replies that are to be lost.
struct Loss {
    /// What each contains. The case of letters does not count.
    text: Box<[u8]>,
    left: usize,
}

/// Data under way.
struct Chunk {
    data: Vec<u8>,
    /// Not forwarded before.
    due: Instant,
}

/// What may be forwarded in place of a chunk.
struct Passing {
    data: Vec<u8>,
    then_cut: bool,
}

/// The two sockets of one connection.
struct Link {
    client: TcpStream,
    server: TcpStream,
    /// The server's next data is lost, and the connection with it.
    loses_reply: AtomicBool,
}

impl Loss {
    fn new(text: &str, times: usize) -> Self {
        Self {
            text: text.as_bytes().into(),
            left: times,
        }
    }

    /// Whether this data is hit: a request, or a reply that is so small that it arrives in one piece.
    fn hits(&mut self, data: &[u8]) -> bool {
        let mut windows = data.windows(self.text.len());
        let is_hit = self.left > 0 && windows.any(|window| window.eq_ignore_ascii_case(&self.text));
        self.left -= usize::from(is_hit);
        is_hit
    }
}

impl Rules {
    fn way(&mut self, way: Way) -> &mut WayRules {
        match way {
            Way::ToServer => &mut self.to_server,
            Way::ToClient => &mut self.to_client,
        }
    }

    fn is_blocked(&mut self, link: &Arc<Link>, way: Way) -> bool {
        self.way(way).frozen || self.stranded.iter().any(|stranded| Arc::ptr_eq(stranded, link))
    }

    /// The error that a request gets.
    fn error_for(&mut self, request: &[u8]) -> Option<&str> {
        // `*3`, `$13`, `DLOCK.ACQUIRE`, `$1`, `k` ...
        let mut lines = request
            .split(|byte| *byte == b'\n')
            .map(|line| line.strip_suffix(b"\r").unwrap_or(line));
        let (command, key) = (lines.nth(2)?, lines.nth(1)?);
        let Rejection {
            command: chosen,
            key: of,
            error,
            times,
        } = &self.rejection;
        let is_chosen =
            command.eq_ignore_ascii_case(chosen.as_bytes()) && (of.is_empty() || key == of.as_bytes());
        if !is_chosen || self.rejected == *times {
            return None;
        }
        self.rejected += 1;
        Some(error.as_str())
    }

    fn record(&mut self, request: &[u8]) {
        let (Some(recorded), Ok(Value::Array(words))) = (&mut self.recorded, parse_redis_value(request))
        else {
            return;
        };
        let words = words.iter().map(|word| match word {
            Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            other => format!("{other:?}"),
        });
        recorded.push(Request {
            at: Instant::now(),
            words: words.collect(),
        });
    }

    fn has(&self, link: &Arc<Link>) -> bool {
        self.open.iter().any(|open| Arc::ptr_eq(open, link))
    }
}

impl Network {
    fn rules(&self) -> MutexGuard<'_, Rules> {
        self.rules
            .lock()
            .expect("no thread panics while it holds the rules")
    }

    fn change(&self, change: impl FnOnce(&mut Rules)) {
        change(&mut self.rules());
        self.changed.notify_all();
    }

    fn cut(&self) {
        let links = std::mem::take(&mut self.rules().open);
        self.changed.notify_all();
        links.iter().for_each(|link| link.close());
    }

    /// Waits until data may be forwarded; `None` if its connection was cut meanwhile, or is to be.
    fn admit(&self, link: &Arc<Link>, way: Way, mut data: Vec<u8>) -> Option<Passing> {
        let mut rules = self.rules();
        if way == Way::ToServer
            && rules
                .stranding
                .as_mut()
                .is_some_and(|request| request.hits(&data))
        {
            rules.stranded.push(Arc::clone(link));
        }
        while rules.is_blocked(link, way) && rules.has(link) {
            rules = self
                .changed
                .wait(rules)
                .expect("no thread panics while it holds the rules");
        }
        if !rules.has(link) || way == Way::ToClient && link.loses_reply.load(Ordering::SeqCst) {
            return None;
        }
        if rules.way(way).loss.as_mut().is_some_and(|loss| loss.hits(&data)) {
            if way == Way::ToClient {
                return None;
            }
            // Before the request is forwarded: the reply may be fast.
            link.loses_reply.store(true, Ordering::SeqCst);
        }
        if way == Way::ToServer {
            match rules.error_for(&data) {
                Some(error) => data = packed(&["EVAL", "return redis.error_reply(ARGV[1])", "0", error]),
                None => rules.record(&data),
            }
        }
        let left = rules.way(way).until_cut.take();
        let then_cut = left.is_some_and(|left| left <= data.len());
        match left {
            Some(left) if then_cut => data.truncate(left),
            left => rules.way(way).until_cut = left.map(|left| left - data.len()),
        }
        Some(Passing { data, then_cut })
    }

    fn forget(&self, link: &Arc<Link>) {
        self.change(|rules| rules.open.retain(|open| !Arc::ptr_eq(open, link)));
        link.close();
    }
}

impl Link {
    fn close(&self) {
        // An error means that the other side has closed it already.
        let _ = self.client.shutdown(Shutdown::Both);
        let _ = self.server.shutdown(Shutdown::Both);
    }
}

fn accept(listener: &TcpListener, network: &Arc<Network>) {
    for client in listener.incoming().flatten() {
        let server_port = {
            let mut rules = network.rules();
            if rules.ended {
                return;
            }
            if rules.refuse {
                rules.refused += 1;
                continue;
            }
            rules.server_port
        };
        let Ok(server) = TcpStream::connect(("127.0.0.1", server_port)) else {
            continue;
        };
        // Small messages are forwarded at once.
        let _ = (client.set_nodelay(true), server.set_nodelay(true));
        let link = Arc::new(Link {
            client,
            server,
            loses_reply: AtomicBool::new(false),
        });
        network.change(|rules| rules.open.push(Arc::clone(&link)));
        for way in [Way::ToServer, Way::ToClient] {
            let (sender, receiver) = mpsc::sync_channel(MAX_CHUNKS);
            thread::spawn({
                let (link, network) = (Arc::clone(&link), Arc::clone(network));
                move || receive(&link, way, &network, &sender)
            });
            let (link, network) = (Arc::clone(&link), Arc::clone(network));
            thread::spawn(move || {
                forward(&link, way, &network, &receiver);
                network.forget(&link);
            });
        }
    }
}

/// Receives data in one direction until that side closes.
fn receive(link: &Link, way: Way, network: &Network, chunks: &SyncSender<Chunk>) {
    let mut from = BufReader::new(match way {
        Way::ToServer => &link.client,
        Way::ToClient => &link.server,
    });
    loop {
        let data = next_chunk(&mut from, way);
        if data.is_empty() {
            return;
        }
        let due = Instant::now() + network.rules().way(way).delay;
        if chunks.send(Chunk { data, due }).is_err() {
            return;
        }
    }
}

/// A whole request, if it is an array of strings; else what has arrived. Nothing at the end.
fn next_chunk(from: &mut impl BufRead, way: Way) -> Vec<u8> {
    let mut data = Vec::new();
    match from.fill_buf() {
        // The beginning of a request that breaks off is forwarded, too.
        Ok([b'*', ..]) if way == Way::ToServer => _ = read_request(from, &mut data),
        Ok(arrived) => {
            data.extend_from_slice(arrived);
            from.consume(data.len());
        }
        Err(_) => {}
    }
    data
}

fn read_request(from: &mut impl BufRead, data: &mut Vec<u8>) -> io::Result<()> {
    for _ in 0..read_number(from, data)? {
        let length = read_number(from, data)?;
        // With the end of its line.
        from.take(length + 2).read_to_end(data)?;
    }
    Ok(())
}

/// Reads a line such as `*3` or `$13`.
fn read_number(from: &mut impl BufRead, data: &mut Vec<u8>) -> io::Result<u64> {
    let start = data.len();
    from.read_until(b'\n', data)?;
    let line = String::from_utf8_lossy(&data[start..]);
    let number = line.get(1..).and_then(|digits| digits.trim_end().parse().ok());
    number.ok_or_else(|| io::Error::other("not a request"))
}

/// Forwards data in one direction until there is no more, or the connection is cut.
fn forward(link: &Arc<Link>, way: Way, network: &Network, chunks: &Receiver<Chunk>) {
    let mut to = match way {
        Way::ToServer => &link.server,
        Way::ToClient => &link.client,
    };
    for Chunk { data, due } in chunks {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let Some(passing) = network.admit(link, way, data) else {
            return;
        };
        if to.write_all(&passing.data).is_err() || passing.then_cut {
            return;
        }
    }
}
