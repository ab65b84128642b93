//! The server crashes anywhere, and starts again from its log, or its replica is promoted, and perhaps fails, too.
//!
//! What a crash leaves is what the host was told to replicate until then: a prefix of the stream. So every prefix stands
//! for a crash at some call of the host, in a command or a timer, and all of them are tried after every short sequence of
//! requests. What a client was told before must be true afterwards.

use std::collections::BTreeMap;

use crate::effects::Answer;
use crate::engine::{Cause, Error, Process, acquire, answering, decide, events, scheduler};
use crate::inbox::Reply;
use crate::lock::Holder;
use crate::memory::{Clocks, Memory, Sent};
use crate::names::{Call, Limit, LockName};
use crate::time::{GraceLength, GraceSettings, Instant};
use crate::transition::Policy;
use crate::wire::{Acquire, Acquired, Extend, GrantRef, Granted, Holds, Release, Timeout, Wait};

const LEASE_MS: u64 = 1_000;
const OWNERS: [&[u8]; 2] = [b"alice", b"bob"];
const DEPTH: usize = 4;
const START_MS: u64 = 5_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Acquire(usize),
    /// With BLOCK.
    Wait(usize),
    Extend(usize),
    Release(usize),
    /// A release whose grant to a waiter does not reach its client any more: it is rolled back.
    ReleaseToNobody(usize),
    /// The client of the waiter that was asked last is gone.
    Leave,
    Pass(u64),
}

const STEPS: [Step; 11] = [
    Step::Acquire(0),
    Step::Acquire(1),
    Step::Wait(0),
    Step::Wait(1),
    Step::Extend(0),
    Step::Release(0),
    Step::Release(1),
    Step::ReleaseToNobody(0),
    Step::Leave,
    Step::Pass(400),
    Step::Pass(2_000),
];

/// What an owner may rely on: its fence, and when its lease ends at the latest.
#[derive(Clone, Copy, Debug)]
struct Told {
    fence: u64,
    until_ms: u64,
}

struct World {
    primary: Memory,
    now_ms: u64,
    told: BTreeMap<usize, Told>,
    max_told: u64,
    waiting: BTreeMap<Call, usize>,
}

fn server(now_ms: u64) -> Memory {
    let mut server = Memory::default();
    let length = GraceLength::Ms(0);
    server.state().server.set_policy(Policy {
        max_waiters_per_lock: 10,
        max_waiters: 10,
        max_inboxes: 10,
        graces: GraceSettings {
            startup: length,
            failover: GraceLength::Ms(LEASE_MS),
        },
        ..Policy::default()
    });
    set_clock(&mut server, now_ms);
    server
}

fn set_clock(server: &mut Memory, now_ms: u64) {
    server.clocks = Clocks {
        now: Instant::from_micros(now_ms as i64 * 1_000),
        unix_ms: now_ms,
        random: 0,
    };
}

/// A server that has loaded its data.
fn start(server: &mut Memory) {
    events::loading_ended(server);
    scheduler::run_jobs(server);
}

fn name() -> LockName {
    LockName::new(0, b"a")
}

fn ask(server: &mut Memory, key: &[u8], owner: &[u8], wait: Option<Wait<'_>>) -> Result<Acquired, Error> {
    let request = Acquire {
        owner,
        lease_ms: LEASE_MS,
        limit: Limit::MUTEX,
        wait,
        request_id: None,
        min_fence: None,
    };
    let flags = server.flags;
    acquire(server, key, flags, b"", &request)
}

impl World {
    fn new() -> Self {
        Self {
            primary: server(START_MS),
            now_ms: START_MS,
            told: BTreeMap::new(),
            max_told: 0,
            waiting: BTreeMap::new(),
        }
    }

    /// Takes a step, and tries a crash after each prefix of what it replicates.
    fn take(&mut self, step: Step) {
        let before = self.primary.stream.len();
        let reply = self.run(step);
        // Who gives a lock back relies on it no more, whether the reply comes or not.
        if let Step::Release(owner) | Step::ReleaseToNobody(owner) = step {
            self.told.remove(&owner);
        }
        for len in before..=self.primary.stream.len() {
            self.crash(len);
        }
        if let Some((owner, told)) = reply {
            self.tell(owner, told);
        }
        self.answer();
        self.told.retain(|_, told| told.until_ms > self.now_ms);
        self.crash(self.primary.stream.len());
        (0..self.primary.stream.len()).for_each(|len| self.promote(len));
        self.promote(self.primary.stream.len());
    }

    fn run(&mut self, step: Step) -> Option<(usize, Told)> {
        let (flags, server) = (self.primary.flags, &mut self.primary);
        match step {
            Step::Acquire(owner) => match ask(server, b"a", OWNERS[owner], None) {
                Ok(Acquired::Granted(granted)) => return Some((owner, self.told_by(granted))),
                other => assert!(matches!(other, Ok(Acquired::NotGranted)), "{other:?}"),
            },
            Step::Wait(owner) => {
                let wait = Wait {
                    timeout: Timeout::Infinite,
                    inbox: None,
                };
                match ask(server, b"a", OWNERS[owner], Some(wait)) {
                    Ok(Acquired::Granted(granted)) => return Some((owner, self.told_by(granted))),
                    Ok(Acquired::Queued(_)) => {
                        let call = server.take_parked().expect("a client that is blocked");
                        self.waiting.insert(call, owner);
                    }
                    other => panic!("{other:?}"),
                }
            }
            Step::Extend(owner) => {
                let request = Extend {
                    owner: OWNERS[owner],
                    lease_ms: LEASE_MS,
                    grant: GrantRef::Current,
                    min_fence: None,
                };
                let extended = decide(server, b"a", flags, Cause::Client, |it| it.extend(&request));
                let lease_ms = extended.ok()?;
                let told = self.told.get(&owner)?;
                let until_ms = self.now_ms + lease_ms;
                return Some((owner, Told { until_ms, ..*told }));
            }
            Step::Release(owner) | Step::ReleaseToNobody(owner) => {
                let request = Release {
                    owner: OWNERS[owner],
                    fence: None,
                    holds: Holds::All,
                };
                let _ = decide(server, b"a", flags, Cause::Client, |it| it.release(&request));
                if let Step::ReleaseToNobody(_) = step {
                    for call in server.take_woken() {
                        self.waiting.remove(&call);
                        answering::lose_reader(server, call);
                    }
                    server.run_due();
                }
            }
            Step::Leave => {
                if let Some((call, _)) = self.waiting.pop_last() {
                    server.forget_blocked(call);
                    answering::lose_reader(server, call);
                    server.run_due();
                }
            }
            Step::Pass(ms) => {
                self.now_ms += ms;
                set_clock(server, self.now_ms);
                self.told.retain(|_, told| told.until_ms > self.now_ms);
                server.run_due();
            }
        }
        None
    }

    /// The clients that were woken get their replies.
    fn answer(&mut self) {
        for call in self.primary.take_woken() {
            let owner = self.waiting.remove(&call).expect("a client that waits");
            if let Some(Reply::Answer(Answer::Granted(granted))) = answering::reply(&mut self.primary, call) {
                self.tell(owner, self.told_by(granted));
            }
        }
    }

    fn told_by(&self, granted: Granted) -> Told {
        Told {
            fence: granted.fence,
            until_ms: self.now_ms + granted.lease_ms,
        }
    }

    fn tell(&mut self, owner: usize, told: Told) {
        self.max_told = self.max_told.max(told.fence);
        self.told.insert(owner, told);
    }

    fn replay(&self, stream: &[Sent], is_replica: bool) -> Memory {
        let mut other = server(self.now_ms);
        other.flags.is_replica = is_replica;
        for sent in stream {
            other.receive(sent).expect("a command of the primary");
        }
        other.stream.clear();
        other
    }

    /// The server starts again from its log, of which nothing is lost that was written before a reply.
    fn crash(&self, len: usize) {
        let mut restarted = self.replay(&self.primary.stream[..len], false);
        start(&mut restarted);
        let clock = restarted.engine().server.clock(restarted.now());
        let holders = restarted.lock(&name()).map(|lock| lock.holders());
        let holders: Vec<&Holder> = holders.into_iter().flatten().collect();
        for (owner, told) in &self.told {
            let held = holders.iter().find(|holder| holder.owner() == OWNERS[*owner]);
            let held = held.unwrap_or_else(|| panic!("{told:?} of {owner} is lost after {len} records"));
            assert_eq!(held.fence(), told.fence);
            assert!(
                held.lease_ms(clock) >= told.until_ms - self.now_ms,
                "a shorter lease"
            );
        }
        assert!(holders.iter().filter(|holder| holder.is_live(clock)).count() <= 1);
        self.assert_fences_rise(&mut restarted);
    }

    /// A replica that has received this much is promoted, with a grace period of the longest lease: whatever is lost, no
    /// other owner gets the lock too early. Nor if that server fails, too, and starts from its log or from a snapshot.
    fn promote(&self, len: usize) {
        let received = &self.primary.stream[..len];
        let mut promoted = self.replay(received, true);
        promoted.flags.is_replica = false;
        events::role_changed(&mut promoted, true);
        scheduler::run_jobs(&mut promoted);
        let mut from_log = self.replay(&[received, &promoted.stream[..]].concat(), false);
        start(&mut from_log);
        let mut from_snapshot = server(self.now_ms);
        from_snapshot.load(&promoted.save()).expect("a snapshot");
        scheduler::run_jobs(&mut from_snapshot);
        for mut server in [promoted, from_log, from_snapshot] {
            self.assert_nobody_is_early(&mut server, len);
            set_clock(&mut server, self.now_ms + 3 * LEASE_MS);
            self.assert_fences_rise(&mut server);
        }
    }

    fn assert_nobody_is_early(&self, server: &mut Memory, len: usize) {
        if let Some(until_ms) = self.told.values().map(|told| told.until_ms).max() {
            set_clock(server, until_ms - 1);
            server.run_due();
            let early = ask(server, b"a", b"eve", None);
            assert!(
                !matches!(early, Ok(Acquired::Granted(_))),
                "eve holds what {:?} hold, after {len} records",
                self.told
            );
        }
    }

    fn assert_fences_rise(&self, server: &mut Memory) {
        let granted = match ask(server, b"other", b"eve", None) {
            Ok(Acquired::Granted(granted)) => granted,
            other => panic!("{other:?} for a free lock"),
        };
        assert!(
            granted.fence > self.max_told,
            "{granted:?} after {}",
            self.max_told
        );
    }
}

fn all_sequences(mut each: impl FnMut(&[Step])) {
    for number in 0..STEPS.len().pow(DEPTH as u32) {
        let steps = (0..DEPTH as u32).map(|place| STEPS[number / STEPS.len().pow(place) % STEPS.len()]);
        each(&steps.collect::<Vec<_>>());
    }
}

#[test]
fn crash_at_any_call_of_the_host_breaks_no_promise() {
    let (mut grants, mut records) = (0, 0);
    all_sequences(|steps| {
        let mut world = World::new();
        for step in steps {
            world.take(*step);
        }
        grants += usize::from(world.max_told > 0);
        records = records.max(world.primary.stream.len());
        let is_change = |sent: &Sent| !matches!(sent, Sent::Verbatim);
        assert!(world.primary.stream.iter().all(is_change));
    });
    assert!(grants > 5_000 && records >= DEPTH, "{grants} {records}");
}
