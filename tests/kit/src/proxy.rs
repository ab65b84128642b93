use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

const BUFFER_BYTES: usize = 16 * 1024;
/// How many of them may be under way in one direction of a connection.
const MAX_CHUNKS: usize = 64;

/// A faulty network in front of a server: delays, freezes and cuts connections. Dropped, it cuts them all.
pub struct Proxy {
    port: u16,
    network: Arc<Network>,
}

/// The direction of bytes through the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    ToServer,
    ToClient,
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

    /// Whether the request of [`Proxy::strand_request`] is still to come.
    pub fn will_strand(&self) -> bool {
        let rules = self.network.rules();
        rules.stranding.as_ref().is_some_and(|request| request.left > 0)
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
    data: Box<[u8]>,
    /// Not forwarded before.
    due: Instant,
}

/// How much of a chunk may be forwarded.
struct Passing {
    bytes: usize,
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

    /// Whether this data is hit. A small request or reply arrives in one piece.
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
    fn admit(&self, link: &Arc<Link>, way: Way, data: &[u8]) -> Option<Passing> {
        let mut rules = self.rules();
        if way == Way::ToServer && rules.stranding.as_mut().is_some_and(|request| request.hits(data)) {
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
        let rules = rules.way(way);
        if rules.loss.as_mut().is_some_and(|loss| loss.hits(data)) {
            if way == Way::ToClient {
                return None;
            }
            // Before the request is forwarded: the reply may be fast.
            link.loses_reply.store(true, Ordering::SeqCst);
        }
        match rules.until_cut {
            Some(left) if left <= data.len() => {
                rules.until_cut = None;
                Some(Passing {
                    bytes: left,
                    then_cut: true,
                })
            }
            left => {
                rules.until_cut = left.map(|left| left - data.len());
                Some(Passing {
                    bytes: data.len(),
                    then_cut: false,
                })
            }
        }
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
    let mut from = match way {
        Way::ToServer => &link.client,
        Way::ToClient => &link.server,
    };
    let mut buffer = [0; BUFFER_BYTES];
    while let Ok(bytes @ 1..) = from.read(&mut buffer) {
        let chunk = Chunk {
            data: buffer[..bytes].into(),
            due: Instant::now() + network.rules().way(way).delay,
        };
        if chunks.send(chunk).is_err() {
            return;
        }
    }
}

/// Forwards data in one direction until there is no more, or the connection is cut.
fn forward(link: &Arc<Link>, way: Way, network: &Network, chunks: &Receiver<Chunk>) {
    let mut to = match way {
        Way::ToServer => &link.server,
        Way::ToClient => &link.client,
    };
    for Chunk { data, due } in chunks {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let Some(passing) = network.admit(link, way, &data) else {
            return;
        };
        if to.write_all(&data[..passing.bytes]).is_err() || passing.then_cut {
            return;
        }
    }
}
