//! The two servers.

use std::thread;
use std::time::Duration;

use dlock_testkit::Server;
use redis_dlock_client::testing::TestServer;

/// A server on a port of this machine, and its time.
pub trait World: 'static {
    /// How long a reply may take.
    const PATIENCE: Duration;

    fn start() -> Self;

    fn port(&self) -> u16;

    /// At least this time passes at the server.
    fn pass(&self, time: Duration);
}

/// The engine of the module with a host in memory.
pub struct InMemory(TestServer);

impl World for InMemory {
    const PATIENCE: Duration = Duration::from_secs(10);

    fn start() -> Self {
        Self(TestServer::start())
    }

    fn port(&self) -> u16 {
        let url = self.0.url();
        let port = url.rsplit_once(':').map(|(_, port)| port.parse());
        port.and_then(Result::ok).expect("a port")
    }

    fn pass(&self, time: Duration) {
        self.0.advance(time);
    }
}

/// The module in a real server: `DLOCK_SERVER`.
pub struct OverTheWire(Server);

impl World for OverTheWire {
    /// Generous: on a busy machine much may come between.
    const PATIENCE: Duration = Duration::from_secs(120);

    fn start() -> Self {
        Self(Server::start())
    }

    fn port(&self) -> u16 {
        self.0.port()
    }

    fn pass(&self, time: Duration) {
        thread::sleep(time);
    }
}
