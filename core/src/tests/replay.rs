//! What is replicated gives the same state: on replicas that lag, from the log, after a promotion.

use proptest::collection::vec;
use proptest::prelude::*;

use super::ops::{Answer, Micros, Request};
use super::schedule::{Memory, Step, config, schedule};
use super::subject::{Record, Saved, Stored, Subject};
use crate::effects::Replication;
use crate::fence::AdvanceReason;
use crate::outcome::Event;

/// How the next record reaches a replica.
#[derive(Clone, Copy, Debug)]
enum Delivery {
    /// So many microseconds after it was sent, but never before an earlier one.
    Late(Micros),
    /// Not at all: the connection broke, and the replica gets everything as a whole.
    FullSync,
}

struct Cluster {
    primary: Subject,
    replicas: Vec<Subject>,
    log: Log,
    memory: Memory,
}

/// What the log holds, and how the primary stood after each record.
struct Log {
    base: Saved,
    records: Vec<(Record, Vec<(Stored, Micros)>)>,
}

impl Cluster {
    fn new() -> Self {
        let primary = Subject::new(0);
        let replicas = vec![Subject::new(-77_000_000), Subject::new(5_000_000_123)];
        let log = Log::starting(&primary);
        Self {
            primary,
            replicas,
            log,
            memory: Memory::default(),
        }
    }

    fn step(&mut self, step: Step, deliveries: [Delivery; 2]) {
        match step {
            Step::Ask { owner, action, told } => {
                let request = self.memory.request(owner, action, told);
                let answer = self.primary.ask(&request);
                if let Answer::Granted { fence, .. } = answer {
                    assert!(self.memory.may_be_given(owner, fence), "{fence} to {request:?}");
                }
                self.memory.note(owner, &answer);
                self.tell(Some(&request), deliveries);
            }
            Step::Sweep => {
                self.primary.sweep();
                self.tell(None, deliveries);
            }
            Step::Pass(pass) => {
                let Subject { now, grace_end, .. } = self.primary;
                self.primary.now = pass.target(now, &self.primary.lease_ends(), grace_end);
            }
            Step::Restart { grace_ms, origin } => {
                let restarted = self.log.load(self.primary.now, origin, 0);
                self.become_primary(restarted, AdvanceReason::Start, grace_ms, deliveries);
            }
            Step::Promotion { grace_ms, lost: 0 } => {
                let promoted = self.replicas.remove(0);
                self.replicas.push(Subject::new(987_654));
                self.become_primary(promoted, AdvanceReason::Promotion, grace_ms, deliveries);
            }
            Step::Promotion { grace_ms, lost } => {
                let promoted = self.log.load(self.primary.now, 44_000_000, lost);
                self.become_primary(promoted, AdvanceReason::Promotion, grace_ms, deliveries);
            }
            Step::Evictable(evictable) => self.primary.evictable = evictable,
        }
    }

    /// Another server goes on as the primary: log and replicas begin anew from what it has.
    fn become_primary(
        &mut self,
        server: Subject,
        raise: AdvanceReason,
        grace_ms: u64,
        deliveries: [Delivery; 2],
    ) {
        self.primary = server;
        self.primary.take_over(raise, grace_ms);
        self.log = Log::starting(&self.primary);
        for (replica, delivery) in self.replicas.iter_mut().zip(deliveries) {
            full_sync(replica, &self.primary, delivery.late());
        }
    }

    /// The last step of the primary reaches log and replicas.
    fn tell(&mut self, request: Option<&Request>, deliveries: [Delivery; 2]) {
        let record = self.primary.record(request);
        for (replica, delivery) in self.replicas.iter_mut().zip(deliveries) {
            match delivery {
                Delivery::FullSync => full_sync(replica, &self.primary, delivery.late()),
                Delivery::Late(late) => {
                    replica.now = replica.now.max(self.primary.now + late);
                    replica.receive(&record);
                    assert_same_news(&self.primary, replica);
                }
            }
            assert_follows(&self.primary.stored(), replica);
        }
        self.log.records.push((record, self.primary.stored()));
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

impl Log {
    fn starting(primary: &Subject) -> Self {
        Self {
            base: primary.save(),
            records: Vec::new(),
        }
    }

    /// A server reads it at one cx, but for the last so many records, and goes through the same states.
    fn load(&self, now: Micros, origin: Micros, lost: usize) -> Subject {
        let mut server = Subject::load(&self.base, now, origin);
        let there = self.records.len().saturating_sub(lost);
        for (record, primary) in self.records.iter().take(there) {
            server.receive(record);
            assert_follows(primary, &server);
        }
        server
    }
}

fn full_sync(replica: &mut Subject, primary: &Subject, late: Micros) {
    let now = replica.now.max(primary.now + late);
    *replica = Subject::load(&primary.save(), now, replica.origin);
    assert_follows(&primary.stored(), replica);
}

/// The replica has what the primary had, and its leases end no earlier.
fn assert_follows(primary: &[(Stored, Micros)], replica: &Subject) {
    let (theirs, their_ends): (Vec<_>, Vec<_>) = replica.stored().into_iter().unzip();
    let (ours, our_ends): (Vec<_>, Vec<_>) = primary.iter().cloned().unzip();
    assert_eq!(theirs, ours, "owners, fences, limits and holds");
    let earlier = their_ends
        .iter()
        .zip(&our_ends)
        .any(|(theirs, ours)| theirs < ours);
    assert!(!earlier, "leases end at {their_ends:?} instead of {our_ends:?}");
}

/// The replica announces what the primary announced. EXTEND alone may say so there without effect.
fn assert_same_news(primary: &Subject, replica: &Subject) {
    let but_extended = |server: &Subject| -> Vec<Event> {
        server
            .effects
            .events
            .iter()
            .copied()
            .filter(|event| *event != Event::Extended)
            .collect()
    };
    assert_eq!(but_extended(replica), but_extended(primary));
    let extended = |server: &Subject| server.effects.events.contains(&Event::Extended);
    assert!(extended(primary) || !extended(replica));
}

fn delivery() -> impl Strategy<Value = Delivery> {
    prop_oneof![
        6 => Just(Delivery::Late(0)),
        3 => (0_i64..30_000).prop_map(Delivery::Late),
        1 => Just(Delivery::FullSync),
    ]
}

proptest! {
    #![proptest_config(config(1_500))]

    #[test]
    fn replicas_and_aof_follow_primary_in_random_schedules(
        schedule in schedule(),
        deliveries in vec([delivery(), delivery()], 70),
        downtime in 0_i64..50_000,
    ) {
        let mut cluster = Cluster::new();
        for (step, deliveries) in schedule.into_iter().zip(deliveries) {
            cluster.step(step, deliveries);
        }
        cluster.log.load(cluster.primary.now + downtime, -31_000_000, 0);
    }
}

const ALICE: u8 = 0;
const BOB: u8 = 1;
const CAROL: u8 = 2;
const AN_HOUR: Micros = 3_600_000_000;

/// Alice's lease ends at 10 ms, Bob's lasts, with two holds. The replica is an hour behind.
fn alice_has_ended_unswept() -> Cluster {
    let mut cluster = Cluster::new();
    for request in [
        Request::acquire(ALICE, 10, Some(2)),
        Request::acquire(BOB, 90, Some(2)),
        Request::acquire(BOB, 90, Some(2)),
    ] {
        ask(&mut cluster, &request);
    }
    cluster.primary.now = 10_000;
    cluster
}

fn ask(cluster: &mut Cluster, request: &Request) -> Answer {
    let answer = cluster.primary.ask(request);
    cluster.tell(Some(request), [Delivery::Late(0), Delivery::Late(AN_HOUR)]);
    answer
}

fn owners(server: &Subject) -> Vec<&[u8]> {
    server
        .lock
        .holders()
        .iter()
        .map(|holder| holder.owner())
        .collect()
}

#[test]
fn grace_outlasts_hold_unknown_to_promoted_replica() {
    let mut cluster = Cluster::new();
    ask(&mut cluster, &Request::acquire(ALICE, 30, Some(1)));
    let promotion = Step::Promotion {
        grace_ms: 30,
        lost: 1,
    };
    cluster.step(promotion, [Delivery::Late(0); 2]);
    assert!(cluster.primary.lock.is_free());
    let bob = Request::acquire(BOB, 30, Some(1));
    cluster.primary.now += 29_999;
    assert_eq!(ask(&mut cluster, &bob), Answer::Error("GRACE", 1));
    cluster.primary.now += 1;
    assert!(matches!(ask(&mut cluster, &bob), Answer::Granted { .. }));
}

#[test]
fn acquire_replicates_removal_of_expired_holders() {
    let mut cluster = alice_has_ended_unswept();
    assert_eq!(owners(&cluster.primary), [b"a".as_slice(), b"ab"]);
    let answer = ask(&mut cluster, &Request::acquire(CAROL, 10, Some(2)));
    assert!(matches!(answer, Answer::Granted { .. }));
    for server in cluster.replicas.iter().chain([&cluster.primary]) {
        assert_eq!(owners(server), [b"ab".as_slice(), b"alice"]);
    }
}

#[test]
fn release_replicates_removal_of_expired_holders() {
    let mut cluster = alice_has_ended_unswept();
    assert_eq!(ask(&mut cluster, &Request::release(BOB)), Answer::Holds(1));
    assert_eq!(cluster.primary.effects.replication, Replication::Change);
    for server in cluster.replicas.iter().chain([&cluster.primary]) {
        assert_eq!(owners(server), [b"ab"]);
    }
    assert_eq!(ask(&mut cluster, &Request::release(BOB)), Answer::Holds(0));
    assert_eq!(cluster.primary.effects.replication, Replication::Verbatim);
    for server in cluster.replicas.iter().chain([&cluster.primary]) {
        assert!(server.lock.is_free());
    }
}

#[test]
fn last_release_replicates_removal_of_expired_holders() {
    let mut cluster = alice_has_ended_unswept();
    assert_eq!(ask(&mut cluster, &Request::release_all(BOB)), Answer::Holds(0));
    for server in cluster.replicas.iter().chain([&cluster.primary]) {
        assert!(server.lock.is_free());
    }
}

#[test]
fn replica_never_expires_leases_by_its_clock() {
    let mut cluster = alice_has_ended_unswept();
    let replica = &mut cluster.replicas[0];
    replica.now += AN_HOUR;
    replica.receive(&Record::Verbatim(Request::release(BOB)));
    assert_eq!(owners(replica), [b"a".as_slice(), b"ab"]);
}
