//! Five servers, local or behind a simulated network, the first of which may fail.

use std::fmt;
use std::time::Duration;

use dlock_testkit::{Proxy, Way};

use crate::Result;
use crate::server::Server;

const NODES: u32 = 5;
/// Of the majority that is needed, the last: a single server as far away as this one is what a quorum is compared with.
const MEDIAN: usize = 2;
/// Round trip to the slowest of the remote servers; the others are somewhat faster.
const MAX_ROUND_TRIP: Duration = Duration::from_millis(2);

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Network {
    Local,
    Remote,
}

/// The state of the first server.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    None,
    /// SIGSTOP: its connections stay open, and new ones are accepted by the system.
    Stopped,
    /// SIGKILL: connections are refused.
    Dead,
}

/// Declared in the order in which they end: connections are closed first.
pub struct Nodes {
    proxies: Vec<Proxy>,
    servers: Vec<Server>,
    fault: Fault,
}

impl Nodes {
    /// All healthy, until [`Nodes::inject_fault`].
    pub fn start(network: Network, fault: Fault) -> Result<Self> {
        let servers = (0..NODES)
            .map(|_| Server::with("dlock.quorum yes"))
            .collect::<Result<Vec<_>>>()?;
        let proxy = |(number, server): (u32, &Server)| {
            let proxy = Proxy::to(server.port());
            proxy.delay(Way::ToClient, round_trip(number));
            proxy
        };
        let proxies = match network {
            Network::Local => Vec::new(),
            Network::Remote => (0..).zip(&servers).map(proxy).collect(),
        };
        Ok(Self {
            proxies,
            servers,
            fault,
        })
    }

    pub fn urls(&self) -> Vec<String> {
        if self.proxies.is_empty() {
            self.servers.iter().map(Server::url).collect()
        } else {
            self.proxies.iter().map(Proxy::url).collect()
        }
    }

    /// Of the server in the middle, which stays healthy.
    pub fn median_url(&self) -> String {
        self.urls().swap_remove(MEDIAN)
    }

    /// In the first server.
    pub fn inject_fault(&mut self) {
        match self.fault {
            Fault::None => {}
            Fault::Stopped => self.servers[0].stop(),
            Fault::Dead => self.servers[0].kill(),
        }
    }

    /// How often the servers that reply have run these commands.
    pub fn calls(&self, commands: &[&str]) -> Result<f64> {
        let skipped = usize::from(self.fault != Fault::None);
        let calls = self.servers.iter().skip(skipped);
        calls
            .flat_map(|server| commands.iter().map(|command| server.calls(command)))
            .sum()
    }
}

/// From 60 % of the maximum, in even steps.
fn round_trip(number: u32) -> Duration {
    MAX_ROUND_TRIP * (NODES + 1 + number) / (2 * NODES)
}

impl Network {
    pub const ALL: [Self; 2] = [Self::Local, Self::Remote];
}

impl Fault {
    pub const ALL: [Self; 3] = [Self::None, Self::Stopped, Self::Dead];
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local => f.write_str("loopback"),
            Self::Remote => {
                let ms = |number| round_trip(number).as_secs_f64() * 1e3;
                write!(f, "{} to {} ms away", ms(0), ms(NODES - 1))
            }
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "all healthy",
            Self::Stopped => "first stopped",
            Self::Dead => "first killed",
        })
    }
}
