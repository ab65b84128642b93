use std::ops::Range;
use std::time::Duration;

use crate::client::Client;
use crate::server::Server;
use crate::wait::{every, wait_for};

const SLOTS: u16 = 16_384;
/// On a busy machine, nodes may not agree on a failover in time: the server gives it up after five seconds.
const FAILOVER_INTERVAL: Duration = Duration::from_secs(7);
/// On a busy machine, nodes may not reply to CLUSTER MEET in time: the server forgets them after the node timeout.
pub const MEET_INTERVAL: Duration = Duration::from_secs(5);

/// Primaries that share all slots evenly.
pub struct Cluster {
    pub nodes: Vec<Server>,
}

/// A slot that is being moved to another node.
#[derive(Clone, Copy)]
pub struct Move {
    pub slot: u16,
    pub from: usize,
    pub to: usize,
}

impl Cluster {
    pub fn start(count: u16) -> Self {
        let nodes: Vec<Server> = (0..count).map(|_| Server::cluster_node()).collect();
        for (n, node) in (0..count).zip(&nodes) {
            let bound = |n: u16| u32::from(SLOTS) * u32::from(n) / u32::from(count);
            let (first, last) = (bound(n), bound(n + 1) - 1);
            let mut client = node.client();
            client.ok(&format!("CLUSTER ADDSLOTSRANGE {first} {last}"));
            // Otherwise the nodes have to agree on one first.
            client.ok(&format!("CLUSTER SET-CONFIG-EPOCH {}", n + 1));
        }
        let cluster = Self { nodes };
        cluster.introduce(1..count.into(), "a cluster that serves all slots", || {
            let mut nodes = cluster.nodes.iter();
            nodes.all(|node| serves_all_slots(&mut node.client(), count.into()))
        });
        cluster
    }

    /// Makes nodes known to the first one, and so to all, until that is seen.
    #[track_caller]
    fn introduce(&self, nodes: Range<usize>, what: &str, mut is_seen: impl FnMut() -> bool) {
        let first = &self.nodes[0];
        let bus = first.client().config("cluster-port");
        let meet = format!("CLUSTER MEET 127.0.0.1 {} {bus}", first.port());
        let mut is_due = every(MEET_INTERVAL);
        wait_for(what, || {
            if is_due() {
                nodes.clone().for_each(|n| self.client(n).ok(&meet));
            }
            is_seen()
        });
    }

    /// Adds a replica of a node, which all nodes know.
    pub fn add_replica(&mut self, of: usize) -> Client {
        self.nodes.push(Server::cluster_node());
        let n = self.nodes.len() - 1;
        let (mut replica, primary) = (self.client(n), self.id(of));
        let id = self.id(n);
        self.introduce(n..n + 1, "the nodes to know each other", || {
            let knows = |node: &Server, id: &str| node.client().ask::<String>("CLUSTER NODES").contains(id);
            knows(&self.nodes[n], &primary) && self.nodes.iter().all(|node| knows(node, &id))
        });
        replica.ok(&format!("CLUSTER REPLICATE {primary}"));
        self.nodes[n].wait_until_linked();
        for node in &self.nodes {
            let mut client = node.client();
            wait_for("the replica to be known", || {
                !client
                    .ask::<Vec<String>>(&format!("CLUSTER REPLICAS {primary}"))
                    .is_empty()
            });
        }
        replica
    }

    /// Makes a replica the primary of its slots.
    pub fn fail_over(&self, replica: &mut Client) {
        let mut is_due = every(FAILOVER_INTERVAL);
        wait_for("the failover", || {
            if is_due() {
                let _ = replica.call("CLUSTER FAILOVER");
            }
            replica.server_info("replication", "role") == "master"
        });
        let id: String = replica.ask("CLUSTER MYID");
        for node in &self.nodes {
            let mut client = node.client();
            wait_for("the new primary to be known", || {
                let nodes: String = client.ask("CLUSTER NODES");
                let mut promoted = nodes.lines().filter(|line| line.starts_with(&id));
                let is_up = promoted.any(|line| line.contains("master") && line.contains(" connected "));
                is_up && client.ask::<String>("CLUSTER INFO").contains("cluster_state:ok")
            });
        }
    }

    pub fn client(&self, n: usize) -> Client {
        self.nodes[n].client()
    }

    pub fn id(&self, n: usize) -> String {
        self.client(n).ask("CLUSTER MYID")
    }

    /// A key with this prefix in a slot of that node.
    pub fn key_on(&self, n: usize, prefix: &str) -> String {
        let mut client = self.client(n);
        let mut keys = (0..1000).map(|n| format!("{prefix}{n}"));
        keys.find(|key| client.call(&format!("EXISTS {key}")).is_ok())
            .expect("each node has slots")
    }

    /// Begins to move the slot of a key.
    pub fn begin_move(&self, key: &str, from: usize, to: usize) -> Move {
        let slot = self.client(from).ask(&format!("CLUSTER KEYSLOT {key}"));
        self.client(to)
            .ok(&format!("CLUSTER SETSLOT {slot} IMPORTING {}", self.id(from)));
        self.client(from)
            .ok(&format!("CLUSTER SETSLOT {slot} MIGRATING {}", self.id(to)));
        Move { slot, from, to }
    }

    /// The command that moves a key of the slot.
    pub fn migrate(&self, slot: Move, key: &str) -> String {
        format!("MIGRATE 127.0.0.1 {} {key} 0 10000", self.nodes[slot.to].port())
    }

    /// The command that ends the move, for each node.
    pub fn assign(&self, slot: Move) -> String {
        format!("CLUSTER SETSLOT {} NODE {}", slot.slot, self.id(slot.to))
    }
}

/// Whether a node sees this many nodes and all slots served.
fn serves_all_slots(client: &mut Client, nodes: usize) -> bool {
    let info: String = client.ask("CLUSTER INFO");
    let links: String = client.ask("CLUSTER NODES");
    let connected = links.lines().filter(|line| line.contains(" connected "));
    info.contains("cluster_state:ok") && connected.count() == nodes && !links.contains("handshake")
}
