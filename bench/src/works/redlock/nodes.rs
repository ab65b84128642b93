//! Five servers, near or at a distance, one of which may be in trouble.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use dlock_testkit::{Proxy, Way};

use crate::Result;
use crate::server::Server;

const NODES: u32 = 5;
/// The round trip to the slowest server of a distant five; the others are a little nearer.
const SLOWEST: Duration = Duration::from_millis(2);
/// To one that is slow.
const SLOW: Duration = Duration::from_millis(20);

/// How far away the servers are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Distance {
    Near,
    Far,
}

/// What is wrong with the first server.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    Well,
    Slow,
    /// Its process is gone: connections are refused.
    Dead,
    /// It does what it is asked, and no answer arrives.
    Silent,
}

pub struct Nodes {
    nodes: Vec<Node>,
    trouble: Trouble,
}

struct Node {
    /// Before the server: it ends the connections.
    proxy: Option<Proxy>,
    server: Option<Server>,
    url: String,
}

impl Distance {
    pub const ALL: [Self; 2] = [Self::Near, Self::Far];
}

impl Trouble {
    pub const ALL: [Self; 4] = [Self::Well, Self::Slow, Self::Dead, Self::Silent];
}

impl Nodes {
    /// All well as yet.
    pub fn start(module: &Path, distance: Distance, trouble: Trouble) -> Result<Self> {
        let nodes = (0..NODES)
            .map(|number| {
                let server = Server::start(module)?;
                // A proxy takes its own time: near, there is one only where it is needed.
                let is_needed = distance == Distance::Far || (number == 0 && trouble.is_of_the_network());
                let proxy = is_needed.then(|| Proxy::to(server.port()));
                if let (Some(proxy), Distance::Far) = (&proxy, distance) {
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
        Ok(Self { nodes, trouble })
    }

    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(|node| node.url.clone()).collect()
    }

    /// Of those that stay well.
    pub fn slowest_url(&self) -> &str {
        self.nodes.last().map_or("", |node| &node.url)
    }

    /// Now the first server gets into trouble.
    pub fn strike(&mut self) {
        let Some(first) = self.nodes.first_mut() else {
            return;
        };
        match (self.trouble, &first.proxy) {
            (Trouble::Dead, _) => first.server = None,
            (Trouble::Slow, Some(proxy)) => proxy.delay(Way::ToClient, SLOW),
            (Trouble::Silent, Some(proxy)) => proxy.freeze(Way::ToClient),
            _ => {}
        }
    }
}

impl Trouble {
    fn is_of_the_network(self) -> bool {
        matches!(self, Self::Slow | Self::Silent)
    }
}

/// From 60 % of the slowest, in even steps.
fn round_trip(number: u32) -> Duration {
    SLOWEST * (NODES + 1 + number) / (2 * NODES)
}

impl fmt::Display for Distance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Near => f.write_str("on this machine"),
            Self::Far => {
                let ms = |number| round_trip(number).as_secs_f64() * 1e3;
                write!(f, "{} to {} ms away", ms(0), ms(NODES - 1))
            }
        }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Well => f.write_str("all well"),
            Self::Slow => write!(f, "one slow ({SLOW:?})"),
            Self::Dead => f.write_str("one dead"),
            Self::Silent => f.write_str("one silent"),
        }
    }
}
