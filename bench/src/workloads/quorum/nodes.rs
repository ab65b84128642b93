//! Five servers behind a simulated network, one of which may fail.

use std::fmt;
use std::time::Duration;

use dlock_testkit::{Proxy, Way};

use crate::error::Result;
use crate::server::Server;

const RAISE: &str = "dlock.extend";
const NODES: usize = 5;
const LAST: usize = NODES - 1;
/// Of the majority that is needed, the last: a single server as far away as this one is what a quorum is compared with.
const MEDIAN: usize = 2;
/// Round trip to the slowest of the remote servers; the others are somewhat faster.
const MAX_ROUND_TRIP: Duration = Duration::from_millis(2);

/// What has happened to a server.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// SIGSTOP: its connections stay open, and new ones are accepted by the system.
    Stopped,
    /// SIGKILL: connections are refused.
    Killed,
}

/// All servers up, or a fault of one of them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Situation(Option<(usize, Fault)>);

/// Declared in the order in which they end: connections are closed first.
pub struct Nodes {
    proxies: Vec<Proxy>,
    servers: Vec<Server>,
}

impl Nodes {
    /// All up.
    pub fn start() -> Result<Self> {
        let servers = (0..NODES).map(|_| Server::with("dlock.quorum yes"));
        let servers = servers.collect::<Result<Vec<_>>>()?;
        let proxy = |(number, server): (usize, &Server)| {
            let proxy = Proxy::to(server.port());
            proxy.delay(Way::ToClient, round_trip(number));
            proxy
        };
        let proxies = servers.iter().enumerate().map(proxy).collect();
        Ok(Self { proxies, servers })
    }

    pub fn urls(&self) -> Vec<String> {
        self.proxies.iter().map(Proxy::url).collect()
    }

    pub fn inject(&mut self, situation: Situation) {
        match situation.0 {
            None => {}
            Some((server, Fault::Stopped)) => self.servers[server].stop(),
            Some((server, Fault::Killed)) => self.servers[server].kill(),
        }
    }

    /// How often the servers that reply have run these commands.
    pub fn calls(&self, commands: &[&str], situation: Situation) -> Result<f64> {
        self.sum(situation, |server| {
            let calls = commands.iter().map(|command| server.calls(command));
            calls.sum()
        })
    }

    /// How often they have raised a fence. The EXTENDs by which a client looks at a server fail: nobody holds that lock.
    pub fn raises(&self, situation: Situation) -> Result<f64> {
        self.sum(situation, |server| {
            Ok(server.calls(RAISE)? - server.failed_calls(RAISE)?)
        })
    }

    fn sum(&self, situation: Situation, of: impl Fn(&Server) -> Result<f64>) -> Result<f64> {
        let replies = |number| situation.0.is_none_or(|(failed, _)| failed != number);
        let servers = self.servers.iter().enumerate();
        let servers = servers.filter(|(number, _)| replies(*number));
        servers.map(|(_, server)| of(server)).sum()
    }
}

/// The server in the middle, which never fails.
pub fn median_url(urls: &[String]) -> Result<&str> {
    Ok(urls.get(MEDIAN).ok_or("there are too few servers")?)
}

/// From 60 % of the maximum, in even steps.
fn round_trip(number: usize) -> Duration {
    MAX_ROUND_TRIP * (NODES + 1 + number) as u32 / (2 * NODES) as u32
}

impl Situation {
    pub const ALL_UP: Self = Self(None);
    pub const ALL: [Self; 5] = [
        Self::ALL_UP,
        Self(Some((0, Fault::Stopped))),
        Self(Some((0, Fault::Killed))),
        Self(Some((LAST, Fault::Stopped))),
        Self(Some((LAST, Fault::Killed))),
    ];
}

/// How far away the servers are, in milliseconds.
pub fn distance() -> String {
    let ms = |number| round_trip(number).as_secs_f64() * 1e3;
    format!("{} to {} ms away", ms(0), ms(LAST))
}

impl fmt::Display for Situation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((server, fault)) = self.0 else {
            return f.write_str("all up");
        };
        let server = if server == 0 { "first" } else { "last" };
        let fault = match fault {
            Fault::Stopped => "stopped",
            Fault::Killed => "killed",
        };
        write!(f, "{server} {fault}")
    }
}
