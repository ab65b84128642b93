//! The two servers.

use std::thread;
use std::time::Duration;

use dlock_testkit::{Events, ReplicationStream, Server, wait_for};
use redis_dlock_client::testing::TestServer;

use crate::script::Real;

/// A server on a port of this machine, and its time.
pub trait World: Sized + 'static {
    /// The folders of the rules that it can play.
    const FOLDERS: &'static [&'static str];
    /// How long a reply may take.
    const PATIENCE: Duration;

    /// With these lines in its configuration file.
    fn start(lines: &str) -> Self;

    fn port(&self) -> u16;

    /// At least this time passes at the server.
    fn pass(&self, time: Duration);

    /// The port of the replica.
    fn replica_port(&self) -> Option<u16>;

    fn do_real(&mut self, step: &Real) -> Result<(), String>;
}

/// The engine of the module with a host in memory.
pub struct InMemory(TestServer);

impl World for InMemory {
    const FOLDERS: &'static [&'static str] = &["rules"];
    const PATIENCE: Duration = Duration::from_secs(10);

    fn start(_lines: &str) -> Self {
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

    fn replica_port(&self) -> Option<u16> {
        None
    }

    fn do_real(&mut self, _: &Real) -> Result<(), String> {
        Err("only a real server does that: the rule belongs into another folder".to_owned())
    }
}

/// The module in a real server: `DLOCK_SERVER`.
pub struct OverTheWire {
    stream: Option<ReplicationStream>,
    events: Option<Events>,
    replica: Option<Server>,
    server: Server,
}

impl World for OverTheWire {
    const FOLDERS: &'static [&'static str] = &["rules", "wire"];
    /// Generous: on a busy machine much may come between.
    const PATIENCE: Duration = Duration::from_secs(120);

    fn start(lines: &str) -> Self {
        Self {
            stream: None,
            events: None,
            replica: None,
            server: Server::with(lines),
        }
    }

    fn port(&self) -> u16 {
        self.server.port()
    }

    fn pass(&self, time: Duration) {
        thread::sleep(time);
    }

    fn replica_port(&self) -> Option<u16> {
        self.replica.as_ref().map(Server::port)
    }

    fn do_real(&mut self, step: &Real) -> Result<(), String> {
        match step {
            Real::Config(line) => self.server.add_config(line),
            Real::Crash => self.server.crash_and_restart(),
            Real::Kill => self.server.kill(),
            Real::StartReplica(line) => self.replica = Some(self.server.replica_with(line)),
            Real::StopReplica => self.replica().stop(),
            Real::ResumeReplica => self.replica().resume(),
            Real::Sync => self.sync(),
            Real::Watch => {
                let classes = "CONFIG SET notify-keyspace-events Eg$d";
                self.server.client().ok(classes);
                self.events = Some(Events::watch(&self.server));
                self.stream = Some(ReplicationStream::attach(&self.server));
                self.events().take();
            }
            Real::Stream(expected) => {
                let stream = self.stream.as_mut().expect("a rule watches first").take();
                return assert_same(&stream, expected);
            }
            Real::Events(expected) => return assert_same(&self.events().take(), expected),
        }
        Ok(())
    }
}

impl OverTheWire {
    /// Waits until the replica has applied all that was written before. WAIT is about what its own client has written.
    fn sync(&self) {
        let offset =
            |server: &Server, field: &str| -> u64 { server.client().server_number("replication", field) };
        let written = offset(&self.server, "master_repl_offset");
        wait_for("the replica to follow", || {
            offset(self.replica(), "slave_repl_offset") >= written
        });
    }

    fn replica(&self) -> &Server {
        self.replica.as_ref().expect("a rule starts it first")
    }

    fn events(&mut self) -> &mut Events {
        self.events.as_mut().expect("a rule watches first")
    }
}

fn assert_same(found: &[String], expected: &[String]) -> Result<(), String> {
    match found == expected {
        true => Ok(()),
        false => Err(format!("{found:?}")),
    }
}
