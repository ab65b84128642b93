//! Five servers, local or behind a simulated network, one of which may fail.

use std::fmt;
use std::time::Duration;

use dlock_testkit::{Proxy, Way};

use crate::Result;
use crate::server::Server;

const NODES: u32 = 5;
/// Round trip to the slowest of the remote servers; the others are somewhat faster.
const MAX_ROUND_TRIP: Duration = Duration::from_millis(2);
/// Round trip to a slow server.
const SLOW_ROUND_TRIP: Duration = Duration::from_millis(20);

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Network {
    Local,
    Remote,
}

/// The state of the first server.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    None,
    Slow,
    /// Its process has ended: connections are refused.
    Down,
    /// It runs commands, but its replies do not arrive.
    Unresponsive,
}

pub struct Nodes {
    nodes: Vec<Node>,
    fault: Fault,
}

struct Node {
    /// Declared before the server, so that it closes the connections first.
    proxy: Option<Proxy>,
    server: Option<Server>,
    url: String,
}

impl Network {
    pub const ALL: [Self; 2] = [Self::Local, Self::Remote];
}

impl Fault {
    pub const ALL: [Self; 4] = [Self::None, Self::Slow, Self::Down, Self::Unresponsive];
}

impl Nodes {
    /// All healthy, until [`Nodes::inject_fault`].
    pub fn start(network: Network, fault: Fault) -> Result<Self> {
        let nodes = (0..NODES)
            .map(|number| {
                let server = Server::start()?;
                // A proxy adds latency, so local servers only have one if they need it.
                let is_needed = network == Network::Remote || (number == 0 && fault.needs_proxy());
                let proxy = is_needed.then(|| Proxy::to(server.port()));
                if let (Some(proxy), Network::Remote) = (&proxy, network) {
                    proxy.delay(Way::ToClient, round_trip(number));
                }
                let port = proxy.as_ref().map_or(server.port(), Proxy::port);
                Ok(Node {
                    proxy,
                    server: Some(server),
                    url: format!("redis://127.0.0.1:{port}/"),
                })
            })
            .collect::<Result<_>>()?;
        Ok(Self { nodes, fault })
    }

    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(|node| node.url.clone()).collect()
    }

    /// Of those that stay healthy.
    pub fn slowest_url(&self) -> &str {
        self.nodes.last().map_or("", |node| &node.url)
    }

    /// In the first server.
    pub fn inject_fault(&mut self) {
        let Some(first) = self.nodes.first_mut() else {
            return;
        };
        match (self.fault, &first.proxy) {
            (Fault::Down, _) => first.server = None,
            (Fault::Slow, Some(proxy)) => proxy.delay(Way::ToClient, SLOW_ROUND_TRIP),
            (Fault::Unresponsive, Some(proxy)) => proxy.freeze(Way::ToClient),
            _ => {}
        }
    }
}

impl Fault {
    fn needs_proxy(self) -> bool {
        matches!(self, Self::Slow | Self::Unresponsive)
    }
}

/// From 60 % of the maximum, in even steps.
fn round_trip(number: u32) -> Duration {
    MAX_ROUND_TRIP * (NODES + 1 + number) / (2 * NODES)
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local => f.write_str("on this machine"),
            Self::Remote => {
                let ms = |number| round_trip(number).as_secs_f64() * 1e3;
                write!(f, "{} to {} ms away", ms(0), ms(NODES - 1))
            }
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("all healthy"),
            Self::Slow => write!(f, "one slow ({SLOW_ROUND_TRIP:?})"),
            Self::Down => f.write_str("one down"),
            Self::Unresponsive => f.write_str("one unresponsive"),
        }
    }
}
