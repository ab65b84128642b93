//! Two clients and some servers whose clocks are 1 % fast: all orders in which requests and replies may arrive and time
//! may pass. The clients never both consider the lock held.

use std::collections::HashSet;

use super::ms;
use crate::clock::BootInstant;
use crate::hold::{Hold as NodeHold, Plan};
use crate::redlock::hold::{Hold, NodeLease};
use crate::redlock::quorum::{Decision, Quorum, Tally, Vote};

const LEASE_MS: u64 = 3000;
/// When it ends on a server, by the clock of the clients.
const SERVER_LEASE_MS: u64 = 2970;
/// Before and after each end of a lease, as a client and as a server see it, of leases that begin at the
/// first two instants.
const INSTANTS_MS: [u64; 8] = [0, 1500, 2967, 2969, 2971, 4467, 4469, 4471];

/// When leases are extended.
const EXTENDED_AT: Instant = 1;

/// Indexes of `INSTANTS_MS`.
type Instant = usize;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Link {
    Idle,
    /// The request is pending.
    Asked,
    /// The lock is granted, and the reply pending.
    Granting,
    /// The client knows of a lease that was requested at that time.
    Granted {
        sent: Instant,
    },
    /// As before, and an extension is pending.
    Extending {
        sent: Instant,
        again: Instant,
    },
    /// The request was refused. A lost request or reply is one that never arrives.
    Refused,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Server {
    /// Which client, and until when.
    holder: Option<(usize, u64)>,
    links: [Link; 2],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Idle,
    Asking {
        sent: Instant,
    },
    Holding {
        sent: Instant,
    },
    /// It does not consider the lock held any more: nothing can go wrong.
    Over,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    extends: bool,
    now: Instant,
    clients: [Phase; 2],
    servers: Vec<Server>,
}

fn moment(instant: Instant) -> BootInstant {
    BootInstant::after_boot(ms(INSTANTS_MS[instant]))
}

impl Server {
    fn acquire(&mut self, client: usize, now_ms: u64) -> bool {
        let is_free = self.holder.is_none_or(|(_, ends_ms)| ends_ms <= now_ms);
        if is_free {
            self.holder = Some((client, now_ms + SERVER_LEASE_MS));
        }
        is_free
    }

    fn extend(&mut self, client: usize, now_ms: u64) -> bool {
        let holds = |(holder, ends_ms)| holder == client && now_ms < ends_ms;
        let is_held = self.holder.is_some_and(holds);
        if is_held {
            self.holder = Some((client, now_ms + SERVER_LEASE_MS));
        }
        is_held
    }

    /// What a client knows of its hold here.
    fn lease(&self, client: usize, now: BootInstant) -> Option<NodeLease> {
        let (Link::Granted { sent } | Link::Extending { sent, .. }) = self.links[client] else {
            return None;
        };
        let plan = Plan {
            lease: ms(LEASE_MS),
            renew_after: None,
            over_at: None,
            keep_until: None,
        };
        let hold = NodeHold::granted(plan, moment(sent), ms(0), plan.lease);
        Some(NodeLease {
            remaining: hold.remaining(now),
            lease: plan.lease,
            is_reported_lost: false,
        })
    }
}

impl World {
    /// The first client has asked all servers.
    fn new(servers: usize, extends: bool) -> Self {
        let server = Server {
            holder: None,
            links: [Link::Asked, Link::Idle],
        };
        Self {
            extends,
            now: 0,
            clients: [Phase::Asking { sent: 0 }, Phase::Idle],
            servers: vec![server; servers],
        }
    }

    fn quorum(&self) -> Quorum {
        Quorum::of(self.servers.len())
    }

    fn considers_held(&self, client: usize) -> bool {
        let Phase::Holding { .. } = self.clients[client] else {
            return false;
        };
        let now = moment(self.now);
        let leases = self.servers.iter().filter_map(|server| server.lease(client, now));
        let leases: Vec<NodeLease> = leases.collect();
        !Hold::new(self.quorum(), None).remaining(now, &leases).is_zero()
    }

    /// Everything that may happen next. A forgetful server may lose its lock.
    fn successors(&self, forgetful: bool) -> Vec<Self> {
        let mut next = Vec::new();
        if self.now + 1 < INSTANTS_MS.len() {
            next.push(self.after(|world| world.now += 1));
        }
        if self.clients[1] == Phase::Idle {
            next.push(self.after(|world| {
                world.clients[1] = Phase::Asking { sent: world.now };
                world
                    .servers
                    .iter_mut()
                    .for_each(|server| server.links[1] = Link::Asked);
            }));
        }
        for server in 0..self.servers.len() {
            for client in 0..2 {
                self.link_steps(client, server, &mut next);
            }
            if forgetful {
                next.push(self.after(|world| world.servers[server].holder = None));
            }
        }
        next
    }

    fn link_steps(&self, client: usize, server: usize, next: &mut Vec<Self>) {
        let now = INSTANTS_MS[self.now];
        let mut then = |change: &dyn Fn(&mut Server) -> Link| {
            next.push(self.after(|world| {
                let server = &mut world.servers[server];
                server.links[client] = change(server);
                world.decide(client);
            }));
        };
        match (self.servers[server].links[client], self.clients[client]) {
            (Link::Asked, _) => then(&|server| match server.acquire(client, now) {
                true => Link::Granting,
                false => Link::Refused,
            }),
            // A reply may arrive after the majority: the server joins it.
            (Link::Granting, Phase::Asking { sent } | Phase::Holding { sent }) => {
                then(&|_| Link::Granted { sent });
            }
            (Link::Granted { sent }, Phase::Holding { .. })
                if self.extends && sent < self.now && self.now == EXTENDED_AT =>
            {
                then(&|_| Link::Extending {
                    sent,
                    again: EXTENDED_AT,
                });
            }
            (Link::Extending { sent, again }, _) => {
                // It arrives, and the reply arrives, too, or is lost.
                then(&|server| match server.extend(client, now) {
                    true => Link::Granted { sent: again },
                    false => Link::Granted { sent },
                });
                then(&|server| {
                    server.extend(client, now);
                    Link::Granted { sent }
                });
            }
            _ => {}
        }
    }

    /// What a client concludes from the replies so far.
    fn decide(&mut self, client: usize) {
        let Phase::Asking { sent } = self.clients[client] else {
            return;
        };
        let mut tally = Tally::new(self.quorum());
        for server in &self.servers {
            match server.links[client] {
                Link::Granted { .. } => _ = tally.count(Vote::Yes),
                Link::Refused => _ = tally.count(Vote::Busy),
                _ => {}
            }
        }
        self.clients[client] = match tally.decision() {
            Decision::Open => Phase::Asking { sent },
            Decision::Reached => Phase::Holding { sent },
            Decision::Busy | Decision::Failed | Decision::Rejected => Phase::Over,
        };
    }

    fn after(&self, change: impl FnOnce(&mut Self)) -> Self {
        let mut world = self.clone();
        change(&mut world);
        for client in 0..2 {
            if matches!(world.clients[client], Phase::Holding { .. }) && !world.considers_held(client) {
                world.clients[client] = Phase::Over;
            }
        }
        // The servers are all alike.
        world.servers.sort_unstable();
        world
    }
}

/// How many states there are, up to the first one in which both clients consider the lock held, if there is one.
fn search(servers: usize, extends: bool, forgetful: bool) -> (usize, Option<World>) {
    let mut seen = HashSet::new();
    let mut open = vec![World::new(servers, extends)];
    while let Some(world) = open.pop() {
        if world.considers_held(0) && world.considers_held(1) {
            return (seen.len(), Some(world));
        }
        if !world.clients.contains(&Phase::Over) && seen.insert(world.clone()) {
            open.extend(world.successors(forgetful));
        }
    }
    (seen.len(), None)
}

#[test]
fn lock_in_all_schedules_is_held_by_at_most_one_client() {
    for (servers, extends) in [(1, true), (2, true), (3, false)] {
        let (states, both) = search(servers, extends, false);
        assert_eq!(both, None, "with {servers} servers");
        println!("{servers} servers: {states} states");
    }
}

#[test]
fn servers_that_forget_and_grant_at_once_admit_two_clients() {
    for servers in 1..=3 {
        assert!(search(servers, false, true).1.is_some(), "with {servers} servers");
    }
}
