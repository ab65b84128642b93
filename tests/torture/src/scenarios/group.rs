//! A primary with replicas, whose roles go round.

use dlock_testkit::{Server, wait_for};

use crate::clients::Route;
use crate::history::{History, Recorder, Reply};
use crate::servers;

/// A port on which nobody ever listens: a replica of it is cut off, and keeps what it has.
pub const CLOSED_PORT: u16 = 1;

/// Servers of which one is the primary.
pub struct ReplicationGroup {
    servers: Vec<Server>,
    /// Which one decides.
    pub primary: usize,
    /// Where the clients find it.
    pub route: Route,
    /// What happened.
    pub recorder: Recorder,
    term: u32,
}

impl ReplicationGroup {
    /// So many servers, all with these lines in their configuration, in step.
    pub fn start(count: usize, config: &str) -> Self {
        let mut servers: Vec<Server> = (0..count).map(|_| Server::with(config)).collect();
        // A primary that comes back must not be one for a moment: a client may still be on its way to it.
        let as_replica = format!("replicaof 127.0.0.1 {CLOSED_PORT}");
        servers
            .iter_mut()
            .for_each(|server| server.add_config(&as_replica));
        let group = Self {
            route: Route::to(servers[0].port(), 0),
            servers,
            primary: 0,
            recorder: Recorder::default(),
            term: 0,
        };
        group.resync();
        group
    }

    /// The server of that number.
    pub fn server(&self, n: usize) -> &Server {
        &self.servers[n]
    }

    /// The numbers of all that are not the primary.
    pub fn replicas(&self) -> Vec<usize> {
        (0..self.servers.len()).filter(|n| *n != self.primary).collect()
    }

    /// Makes a server a replica of the primary, if it is not.
    pub fn follow(&self, n: usize) {
        let port = self.servers[self.primary].port();
        let mut client = self.servers[n].client();
        // OK, or that it is already.
        client.ask::<String>(&format!("REPLICAOF 127.0.0.1 {port}"));
    }

    /// Cuts a replica's link to the primary. It stays a replica, and keeps what it has.
    pub fn detach(&self, n: usize) {
        self.recorder
            .event(format!("port {} hears no more", self.servers[n].port()));
        self.servers[n]
            .client()
            .ok(&format!("REPLICAOF 127.0.0.1 {CLOSED_PORT}"));
    }

    /// `kill -9` of the primary.
    pub fn kill_primary(&mut self) {
        self.kill(self.primary);
    }

    /// `kill -9` of one of them.
    pub fn kill(&mut self, n: usize) {
        let role = if n == self.primary { "primary" } else { "replica" };
        let server = &mut self.servers[n];
        self.recorder
            .event(format!("kill -9 of the {role}, port {}", server.port()));
        server.kill();
    }

    /// Makes a replica the primary, and sends the clients there. Returns the number of the old one.
    pub fn promote(&mut self, n: usize) -> usize {
        let server = &self.servers[n];
        server.client().ok("REPLICAOF NO ONE");
        self.redirect_clients(n)
    }

    /// Sends the clients to a server that has become the primary. Returns the number of the old one.
    pub fn redirect_clients(&mut self, n: usize) -> usize {
        let server = &self.servers[n];
        self.term += 1;
        self.recorder.event(format!("port {} is promoted", server.port()));
        self.route.set(server.port(), self.term);
        std::mem::replace(&mut self.primary, n)
    }

    /// The number of another server that says it is a primary.
    pub fn new_primary(&self) -> Option<usize> {
        let replicas = self.replicas().into_iter();
        let mut primaries = replicas.filter(|n| self.servers[*n].is_primary());
        primaries.next()
    }

    /// Starts a server that was killed. It follows nobody yet, and nobody asks it.
    pub fn restart(&mut self, n: usize) {
        self.servers[n].start_again();
    }

    /// All others follow the primary, and are in step when this returns.
    pub fn resync(&self) {
        let replicas = self.replicas();
        replicas.iter().for_each(|n| self.follow(*n));
        replicas.iter().for_each(|n| self.servers[*n].wait_until_linked());
        self.wait_for_replication(replicas.len());
    }

    /// Waits until so many replicas have all that the primary has done so far.
    pub fn wait_for_replication(&self, replicas: usize) {
        servers::wait_for_replication(&self.servers[self.primary], replicas);
    }

    /// Waits until the primary has granted something, which raises its fences, and all replicas have heard.
    pub fn wait_for_replicated_grant(&self) {
        wait_for("a grant of the new primary", || {
            let history = self.recorder.lock();
            let last = history.ops.iter().rev();
            let mut latest = last.take_while(|op| op.server.term == self.term);
            latest.any(|op| matches!(op.reply, Reply::Granted { .. }))
        });
        self.wait_for_replication(self.servers.len() - 1);
    }

    /// FinalStates the run: looks at what is left.
    pub fn check_final_state(mut self) -> History {
        for n in self.replicas() {
            servers::check_no_crash(&mut self.servers[n], &self.recorder);
        }
        servers::check_final_state(&mut self.servers[self.primary], &self.recorder);
        self.recorder.history()
    }
}
