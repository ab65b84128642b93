//! A primary with replicas that change roles.

use dlock_testkit::{Server, wait_for};

use crate::clients::Route;
use crate::history::{History, Recorder, Reply, ServerTerm};
use crate::servers;

/// No server listens on this port: a replica of it is disconnected and keeps its data.
pub const CLOSED_PORT: u16 = 1;

/// Grants are told only when this many replicas have them, and no grace period follows a failover.
pub fn synchronous(replicas: usize) -> String {
    format!("dlock.min-sync-replicas {replicas}\ndlock.failover-grace-ms 0")
}

/// Servers that replicate from one primary.
pub struct ReplicationGroup {
    servers: Vec<Server>,
    /// Index of the primary.
    pub primary: usize,
    /// Directs clients to the primary.
    pub route: Route,
    pub recorder: Recorder,
    term: u32,
}

impl ReplicationGroup {
    /// Starts `count` servers with this configuration and waits until they are in sync.
    pub fn start(count: usize, config: &str) -> Self {
        let mut servers: Vec<Server> = (0..count).map(|_| Server::with(config)).collect();
        // A restarted primary must come back as a replica: late requests of clients may still reach it.
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

    /// The primary in its present term.
    pub fn primary_term(&self) -> ServerTerm {
        ServerTerm {
            port: self.servers[self.primary].port(),
            term: self.term,
        }
    }

    pub fn server(&self, n: usize) -> &Server {
        &self.servers[n]
    }

    pub fn replicas(&self) -> Vec<usize> {
        (0..self.servers.len()).filter(|n| *n != self.primary).collect()
    }

    pub fn follow(&self, n: usize) {
        let port = self.servers[self.primary].port();
        let mut client = self.servers[n].client();
        // Replies OK, also if it is one already.
        client.ask::<String>(&format!("REPLICAOF 127.0.0.1 {port}"));
    }

    /// Disconnects a replica from the primary. It remains a replica and keeps its data.
    pub fn detach(&self, n: usize) {
        self.recorder
            .event(format!("replica on port {} detached", self.servers[n].port()));
        self.servers[n]
            .client()
            .ok(&format!("REPLICAOF 127.0.0.1 {CLOSED_PORT}"));
    }

    /// `kill -9` of the primary.
    pub fn kill_primary(&mut self) {
        self.kill(self.primary);
    }

    /// `kill -9` of a server.
    pub fn kill(&mut self, n: usize) {
        let role = if n == self.primary {
            servers::record_lists(&self.servers[n], &self.recorder, false);
            "primary"
        } else {
            "replica"
        };
        let server = &mut self.servers[n];
        self.recorder
            .event(format!("kill -9 of the {role}, port {}", server.port()));
        server.kill();
    }

    /// Promotes a replica and redirects the clients. Returns the index of the old primary.
    pub fn promote(&mut self, n: usize) -> usize {
        let server = &self.servers[n];
        server.client().ok("REPLICAOF NO ONE");
        self.redirect_clients(n)
    }

    /// Redirects the clients to a server that was promoted. Returns the index of the old primary.
    pub fn redirect_clients(&mut self, n: usize) -> usize {
        let server = &self.servers[n];
        self.term += 1;
        self.recorder.event(format!("port {} promoted", server.port()));
        self.route.set(server.port(), self.term);
        std::mem::replace(&mut self.primary, n)
    }

    /// Index of a replica that reports itself as primary.
    pub fn new_primary(&self) -> Option<usize> {
        let replicas = self.replicas().into_iter();
        let mut primaries = replicas.filter(|n| self.servers[*n].is_primary());
        primaries.next()
    }

    /// Restarts a killed server as a disconnected replica.
    pub fn restart(&mut self, n: usize) {
        self.servers[n].start_again();
    }

    /// Attaches all replicas to the primary and waits until they are in sync.
    pub fn resync(&self) {
        let replicas = self.replicas();
        replicas.iter().for_each(|n| self.follow(*n));
        replicas.iter().for_each(|n| self.servers[*n].wait_until_linked());
        self.wait_for_replication(replicas.len());
    }

    /// Waits until `replicas` replicas have all writes of the primary.
    pub fn wait_for_replication(&self, replicas: usize) {
        servers::wait_for_replication(&self.servers[self.primary], replicas);
    }

    /// Waits until the primary has granted a lock, which raises its fence counter, and all replicas have it.
    pub fn wait_for_replicated_grant(&self) {
        wait_for("a grant of the new primary", || {
            let history = self.recorder.lock();
            let last = history.ops.iter().rev();
            let mut latest = last.take_while(|op| op.server.term == self.term);
            latest.any(|op| matches!(op.reply, Reply::Granted { .. }))
        });
        self.wait_for_replication(self.servers.len() - 1);
    }

    /// Ends the run and records the final states.
    pub fn finish(mut self) -> History {
        for n in self.replicas() {
            servers::check_no_crash(&mut self.servers[n], &self.recorder);
        }
        servers::record_final_state(&mut self.servers[self.primary], &self.recorder);
        self.recorder.history()
    }
}
