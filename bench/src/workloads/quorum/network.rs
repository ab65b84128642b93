//! Five servers behind a simulated network, one of which may fail.

use std::time::Duration;

use dlock_testkit::{Proxy, Way};

use crate::error::Result;
use crate::server::Server;

const NODES: usize = 5;
const LAST: usize = NODES - 1;
/// Of a majority, the last: a single server as far away as this one is what a quorum is compared with.
const MEDIAN: usize = 2;
/// Round trip to the slowest server; the others are somewhat faster: 1.2 ms at least.
const MAX_ROUND_TRIP: Duration = Duration::from_millis(2);

const ALL_UP: &str = "all up";

/// What happens to a server: its position in the list of servers, of which the first decides the order of waiters.
pub struct Fault {
    pub name: &'static str,
    server: Option<usize>,
    is_killed: bool,
}

pub const FAULTS: [Fault; 5] = [
    fault(ALL_UP, None, false),
    fault("first stopped", Some(0), false),
    fault("first killed", Some(0), true),
    fault("last stopped", Some(LAST), false),
    fault("last killed", Some(LAST), true),
];

const fn fault(name: &'static str, server: Option<usize>, is_killed: bool) -> Fault {
    Fault {
        name,
        server,
        is_killed,
    }
}

/// What the servers that are up have run so far.
pub struct Calls {
    pub commands: f64,
    /// Of a fence. No lease is renewed so soon, and the EXTENDs by which a client looks at a server fail.
    pub raises: f64,
}

/// Declared in the order in which they end: connections are closed first.
pub struct Network {
    proxies: Vec<Proxy>,
    servers: Vec<Server>,
}

impl Network {
    pub fn start() -> Result<Self> {
        let servers = (0..NODES).map(|_| Server::with("dlock.quorum yes"));
        let servers = servers.collect::<Result<Vec<_>>>()?;
        let proxy = |(number, server): (u32, &Server)| {
            let proxy = Proxy::to(server.port());
            proxy.delay(
                Way::ToClient,
                MAX_ROUND_TRIP * (NODES as u32 + 1 + number) / (2 * NODES as u32),
            );
            proxy
        };
        let proxies = (0..).zip(&servers).map(proxy).collect();
        Ok(Self { proxies, servers })
    }

    pub fn urls(&self) -> Vec<String> {
        self.proxies.iter().map(Proxy::url).collect()
    }

    /// Of the server in the middle, which never fails.
    pub fn median_url(&self) -> String {
        self.proxies[MEDIAN].url()
    }

    pub fn inject(&mut self, fault: &Fault) {
        match fault.server {
            Some(server) if fault.is_killed => self.servers[server].kill(),
            Some(server) => self.servers[server].stop(),
            None => {}
        }
    }

    pub fn calls(&self, fault: &Fault) -> Result<Calls> {
        let mut sum = Calls {
            commands: 0.0,
            raises: 0.0,
        };
        for (number, server) in self.servers.iter().enumerate() {
            if fault.server == Some(number) {
                continue;
            }
            let connection = &mut server.connect()?;
            for command in ["dlock.acquire", "dlock.extend", "dlock.release"] {
                sum.commands += connection.command_stat(command, "calls")?;
            }
            let [calls, failed] = connection.command_stats("dlock.extend", ["calls", "failed_calls"])?;
            sum.raises += calls - failed;
        }
        Ok(sum)
    }
}
