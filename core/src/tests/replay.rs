//! What is replicated gives the same state: on lagging replicas, from the append-only file, after a promotion.

use proptest::collection::vec;
use proptest::prelude::*;

use super::schedule::{LOCKS, MAX_STEPS, config, queue_schedules, single_lock_schedules};
use crate::testing::{
    Answer, Command, Memory, Micros, Pair, Reply, Saved, Sent, Server, Step, execute, full_sync,
};
use crate::wire::{Error, Event};

/// How the next records reach a replica.
#[derive(Clone, Copy, Debug)]
enum Delivery {
    /// This many microseconds late, in order.
    Late(Micros),
    /// Not at all: the connection was lost, and the replica gets a full resync.
    FullSync,
}

/// The replicas of a primary, and its append-only file.
struct Followers {
    replicas: Vec<Server>,
    aof: Aof,
}

/// The append-only file.
struct Aof {
    base: Saved,
    records: Vec<Sent>,
}

impl Followers {
    fn of(primary: &Server) -> Self {
        let locks = primary.names.len();
        Self {
            replicas: vec![Server::new(locks, -77_000_000), Server::new(locks, 5_000_000_123)],
            aof: Aof::starting(primary),
        }
    }

    /// What the primary sent since the last call reaches the replicas and the append-only file.
    fn receive(&mut self, primary: &mut Server, deliveries: [Delivery; 2]) {
        let records = primary.take_sent();
        for (replica, delivery) in self.replicas.iter_mut().zip(deliveries) {
            match delivery {
                Delivery::FullSync => full_sync(replica, primary, 0),
                Delivery::Late(late) => {
                    let now = replica.now().max(primary.now() + late);
                    replica.set_now(now);
                    records.iter().for_each(|sent| execute(replica, sent, now));
                }
            }
        }
        self.aof.records.extend(records);
    }
}

impl Delivery {
    fn late(self) -> Micros {
        match self {
            Self::Late(late) => late,
            Self::FullSync => 0,
        }
    }
}

impl Aof {
    fn starting(primary: &Server) -> Self {
        Self {
            base: primary.save(),
            records: Vec::new(),
        }
    }

    /// A server loads it at one time, without the last `lost` records, and goes through the same states. An advance of the
    /// fence counter is not lost: if it were, a fence could be issued again.
    fn load(&self, now: Micros, origin: Micros, lost: usize) -> Server {
        let mut server = Server::load(&self.base, now, origin);
        let is_sync = |sent: &Sent| matches!(sent.command, Command::Sync(_));
        let synced = self.records.iter().rposition(is_sync).map_or(0, |last| last + 1);
        let kept = self.records.len().saturating_sub(lost).max(synced);
        for sent in self.records.iter().take(kept) {
            execute(&mut server, sent, now);
        }
        server
    }
}

/// A primary with one lock, and its followers.
struct Cluster {
    primary: Server,
    followers: Followers,
    memory: Memory,
}

impl Cluster {
    fn new() -> Self {
        let primary = Server::new(1, 0);
        let followers = Followers::of(&primary);
        Self {
            primary,
            followers,
            memory: Memory::default(),
        }
    }

    fn step(&mut self, step: Step, deliveries: [Delivery; 2]) {
        match step {
            Step::Ask { request, given, .. } => {
                let request = self.memory.with_fence(request, given);
                let reply = self.primary.ask(0, 0, &request).expect("no request blocks");
                if let Ok(Answer::Granted(granted)) = &reply {
                    let may_be_granted = self.memory.may_be_granted(request.owner(), granted.fence);
                    assert!(may_be_granted, "{granted:?} to {request}");
                }
                self.memory.note(request.owner(), &reply);
                // EXTEND with MINFENCE replies with the lease only.
                let view = self.primary.view(0);
                let held = view.holders.iter().find(|holder| holder.owner == request.owner());
                if let Some(holder) = held {
                    self.memory.note_fence(request.owner(), holder.fence);
                }
                self.followers.receive(&mut self.primary, deliveries);
            }
            Step::Expire => {
                self.primary.expire_holders(0);
                self.followers.receive(&mut self.primary, deliveries);
            }
            Step::Pass(pass) => {
                let lease_ends = self.primary.lease_ends(0);
                let first = lease_ends.iter().copied().min();
                let now = pass.target(self.primary.now(), &lease_ends, self.primary.grace_end(), |_| {
                    first
                });
                self.primary.set_now(now);
            }
            Step::Restart { grace_ms, origin } => {
                let mut restarted = self.followers.aof.load(self.primary.now(), origin, 0);
                restarted.start(grace_ms);
                self.become_primary(restarted, deliveries);
            }
            Step::Promotion { grace_ms, lost: 0 } => {
                let mut promoted = self.followers.replicas.remove(0);
                self.followers.replicas.push(Server::new(1, 987_654));
                promoted.promote(grace_ms);
                self.become_primary(promoted, deliveries);
            }
            Step::Promotion { grace_ms, lost } => {
                // Meanwhile the clock has passed the fences that are lost.
                self.primary.pass(1_000);
                let mut promoted = self.followers.aof.load(self.primary.now(), 44_000_000, lost);
                promoted.promote(grace_ms);
                self.become_primary(promoted, deliveries);
            }
            Step::Evictable(evictable) => self.primary.set_policy(|policy| policy.evictable = evictable),
            step => panic!("no step of one lock without waiters: {step:?}"),
        }
    }

    /// Another server becomes the primary: the append-only file starts over, and the replicas resynchronize.
    fn become_primary(&mut self, server: Server, deliveries: [Delivery; 2]) {
        self.primary = server;
        self.followers.aof = Aof::starting(&self.primary);
        for (replica, delivery) in self.followers.replicas.iter_mut().zip(deliveries) {
            full_sync(replica, &self.primary, delivery.late());
        }
    }
}

fn delivery() -> impl Strategy<Value = Delivery> {
    prop_oneof![
        6 => Just(Delivery::Late(0)),
        3 => (0_i64..60_000).prop_map(Delivery::Late),
        1 => Just(Delivery::FullSync),
    ]
}

proptest! {
    #![proptest_config(config(1_500))]

    #[test]
    fn replicas_and_aof_follow_primary_in_random_schedules(
        schedule in single_lock_schedules(),
        deliveries in vec([delivery(), delivery()], MAX_STEPS),
        downtime in 0_i64..50_000,
    ) {
        let mut cluster = Cluster::new();
        for (step, deliveries) in schedule.into_iter().zip(deliveries) {
            cluster.step(step, deliveries);
        }
        cluster.followers.aof.load(cluster.primary.now() + downtime, -31_000_000, 0);
    }
}

proptest! {
    #![proptest_config(config(800))]

    #[test]
    fn replicas_and_aof_follow_every_hand_over(
        schedule in queue_schedules(),
        lags in vec(0_i64..60_000, MAX_STEPS),
        downtime in 0_i64..1_000_000,
        max_answers in prop_oneof![Just(1), Just(usize::MAX)],
    ) {
        let mut pair = Pair::answering(max_answers, LOCKS);
        let mut followers = Followers::of(&pair.server);
        for (step, lag) in schedule.into_iter().zip(lags) {
            pair.step(step);
            followers.receive(&mut pair.server, [Delivery::Late(0), Delivery::Late(lag)]);
        }
        followers.aof.load(pair.server.now() + downtime, -31_000_000, 0);
    }
}

const AN_HOUR: Micros = 3_600_000_000;

/// Alice's lease has expired at 10 ms, Bob has two holds. A replica lags by an hour.
fn alice_has_expired() -> Cluster {
    let mut cluster = Cluster::new();
    for (owner, lease_ms) in [("alice", 10), ("bob", 90), ("bob", 90)] {
        let granted = cluster.call(&format!("ACQUIRE a {owner} {lease_ms} LIMIT 2"));
        assert!(matches!(granted, Ok(Answer::Granted(_))));
    }
    cluster.primary.set_now(10_000);
    cluster
}

impl Cluster {
    fn call(&mut self, command: &str) -> Reply {
        let reply = self.primary.call(command);
        let deliveries = [Delivery::Late(0), Delivery::Late(AN_HOUR)];
        self.followers.receive(&mut self.primary, deliveries);
        reply
    }

    fn assert_owners_everywhere(&self, owners: &[&str]) {
        for server in self.followers.replicas.iter().chain([&self.primary]) {
            assert_eq!(server.owners("a"), owners);
        }
    }
}

#[test]
fn grace_outlasts_hold_unknown_to_promoted_replica() {
    let mut cluster = Cluster::new();
    assert!(cluster.call("ACQUIRE a alice 30").is_ok());
    let promotion = Step::Promotion {
        grace_ms: 30,
        lost: 1,
    };
    cluster.step(promotion, [Delivery::Late(0); 2]);
    assert!(cluster.primary.lock("a").is_free());
    cluster.primary.pass(29_999);
    assert_eq!(cluster.call("ACQUIRE a bob 30"), Err(Error::Grace(1)));
    cluster.primary.pass(1);
    assert!(matches!(cluster.call("ACQUIRE a bob 30"), Ok(Answer::Granted(_))));
}

#[test]
fn every_change_replicates_removal_of_expired_holders() {
    for (request, owners) in [
        ("ACQUIRE a carol 10 LIMIT 2", &["bob", "carol"][..]),
        ("RELEASE a bob", &["bob"]),
        ("RELEASE a bob ALL", &[]),
    ] {
        let mut cluster = alice_has_expired();
        assert_eq!(cluster.primary.owners("a"), ["alice", "bob"]);
        assert!(cluster.call(request).is_ok());
        cluster.assert_owners_everywhere(owners);
    }
}

#[test]
fn replica_never_expires_leases_by_its_clock() {
    let mut cluster = alice_has_expired();
    let replica = &mut cluster.followers.replicas[0];
    replica.pass(AN_HOUR);
    let bob_released = b"\x01\x02\x03bob".to_vec();
    replica.receive(0, &Command::Apply(bob_released, vec![Event::Released]));
    assert_eq!(replica.owners("a"), ["alice"]);
}
