//! What is replicated gives the same state: on lagging replicas, from the append-only file, after a promotion.

use proptest::collection::vec;
use proptest::prelude::*;

use super::ops::{Answer, Micros, Reply};
use super::pair::Pair;
use super::schedule::{LOCKS, MAX_STEPS, Memory, Step, config, queue_schedules, single_lock_schedules};
use super::subject::{Command, Saved, Sent, Server, Stored};
use crate::error::Error;
use crate::event::Event;
use crate::fence::AdvanceReason;

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
        let locks = primary.locks.len();
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

    /// A server loads it at one time, without the last `lost` records, and goes through the same states.
    fn load(&self, now: Micros, origin: Micros, lost: usize) -> Server {
        let mut server = Server::load(&self.base, now, origin);
        let kept = self.records.len().saturating_sub(lost);
        for sent in self.records.iter().take(kept) {
            execute(&mut server, sent, now);
        }
        server
    }
}

/// A server executes a record at `now`, or later if its clock is ahead.
fn execute(server: &mut Server, sent: &Sent, now: Micros) {
    server.set_now(server.now().max(now));
    server.receive(sent.lock, &sent.command);
    if let Command::Apply(_, events) = &sent.command {
        assert_same_events(events, &server.effects.events);
    }
    assert_follows(&sent.after, &server.stored(sent.lock));
}

fn full_sync(replica: &mut Server, primary: &Server, late: Micros) {
    let now = replica.now().max(primary.now() + late);
    *replica = Server::load(&primary.save(), now, replica.origin);
    for lock in 0..primary.locks.len() {
        assert_follows(&primary.stored(lock), &replica.stored(lock));
    }
}

/// The replica has the same holders, and their leases end no earlier.
pub fn assert_follows(primary: &[Stored], replica: &[Stored]) {
    let (theirs, their_ends): (Vec<_>, Vec<_>) = replica.iter().cloned().unzip();
    let (ours, our_ends): (Vec<_>, Vec<_>) = primary.iter().cloned().unzip();
    assert_eq!(theirs, ours, "owners, fences, limits and holds");
    let mut ends = their_ends.iter().zip(&our_ends);
    assert!(
        ends.all(|(theirs, ours)| theirs >= ours),
        "leases end at {their_ends:?} instead of {our_ends:?}"
    );
}

/// The replica publishes what the primary published. Only an EXTEND without effect may be missing.
fn assert_same_events(primary: &[Event], replica: &[Event]) {
    let is_extended = |event: &&Event| **event == Event::Extended;
    let others = |events: &[Event]| -> Vec<Event> {
        { events.iter() }
            .filter(|event| !is_extended(event))
            .copied()
            .collect()
    };
    assert_eq!(others(replica), others(primary));
    assert!(
        primary.iter().any(|event| is_extended(&event)) || !replica.iter().any(|event| is_extended(&event))
    );
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
                let restarted = self.followers.aof.load(self.primary.now(), origin, 0);
                self.become_primary(restarted, AdvanceReason::Start, grace_ms, deliveries);
            }
            Step::Promotion { grace_ms, lost: 0 } => {
                let promoted = self.followers.replicas.remove(0);
                self.followers.replicas.push(Server::new(1, 987_654));
                self.become_primary(promoted, AdvanceReason::Promotion, grace_ms, deliveries);
            }
            Step::Promotion { grace_ms, lost } => {
                let promoted = self.followers.aof.load(self.primary.now(), 44_000_000, lost);
                self.become_primary(promoted, AdvanceReason::Promotion, grace_ms, deliveries);
            }
            Step::Evictable(evictable) => self.primary.set_policy(|policy| policy.evictable = evictable),
            step => panic!("no step of one lock without waiters: {step:?}"),
        }
    }

    /// Another server becomes the primary: the append-only file starts over, and the replicas resynchronize.
    fn become_primary(
        &mut self,
        server: Server,
        reason: AdvanceReason,
        grace_ms: u64,
        deliveries: [Delivery; 2],
    ) {
        self.primary = server;
        self.primary.take_over(reason, grace_ms);
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
    ) {
        let mut pair = Pair::new(LOCKS);
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
fn acquire_replicates_removal_of_expired_holders() {
    let mut cluster = alice_has_expired();
    assert_eq!(cluster.primary.owners("a"), ["alice", "bob"]);
    let reply = cluster.call("ACQUIRE a carol 10 LIMIT 2");
    assert!(matches!(reply, Ok(Answer::Granted(_))));
    cluster.assert_owners_everywhere(&["bob", "carol"]);
}

#[test]
fn release_replicates_removal_of_expired_holders() {
    let mut cluster = alice_has_expired();
    assert_eq!(cluster.call("RELEASE a bob"), Ok(Answer::Holds(1)));
    cluster.assert_owners_everywhere(&["bob"]);
    assert_eq!(cluster.call("RELEASE a bob"), Ok(Answer::Holds(0)));
    cluster.assert_owners_everywhere(&[]);
}

#[test]
fn last_release_replicates_removal_of_expired_holders() {
    let mut cluster = alice_has_expired();
    assert_eq!(cluster.call("RELEASE a bob ALL"), Ok(Answer::Holds(0)));
    cluster.assert_owners_everywhere(&[]);
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
