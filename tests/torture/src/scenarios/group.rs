//! A primary with replicas that change roles.

use dlock_testkit::{Server, wait_for};

use crate::clients::Route;
use crate::history::{History, Micros, Op, Recorder, Reply, now};
use crate::servers;

/// No server listens on this port: a replica of it is disconnected and keeps its data.
pub const CLOSED_PORT: u16 = 1;

/// What keeps a new primary from granting a lock that somebody holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    None,
    /// A grace period as long as the longest lease.
    Grace,
    /// Grants are told only when all replicas have them. No grace period follows a failover.
    Synchronous,
}

impl Protection {
    pub fn config(self, lease_ms: u64, replicas: usize) -> String {
        match self {
            Self::None => String::new(),
            Self::Grace => format!("dlock.failover-grace-ms {lease_ms}"),
            Self::Synchronous => format!("dlock.min-sync-replicas {replicas}\ndlock.failover-grace-ms 0"),
        }
    }
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
    /// When the primary took over.
    since: Micros,
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
            since: now(),
        };
        group.resync();
        group
    }

    /// Of the primary.
    pub fn port(&self) -> u16 {
        self.servers[self.primary].port()
    }

    pub fn server(&self, n: usize) -> &Server {
        &self.servers[n]
    }

    pub fn replicas(&self) -> Vec<usize> {
        (0..self.servers.len()).filter(|n| *n != self.primary).collect()
    }

    pub fn follow(&self, n: usize) {
        let mut client = self.servers[n].client();
        // Replies OK, also if it is one already.
        client.ask::<String>(&format!("REPLICAOF 127.0.0.1 {}", self.port()));
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
        self.since = now();
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
            let is_new = |op: &Op| op.sent > self.since && matches!(op.reply, Reply::Granted { .. });
            history.ops.iter().rev().any(is_new)
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
