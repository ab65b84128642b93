//! What must be true after every step.

use std::collections::BTreeMap;
use std::time::Duration;

use super::elapsed;
use super::ledger::{Ledger, Who, key_name};
use super::network::Net;
use super::runtimes;

/// How long a suspicion may last. Some take a second: a late copy takes up to 400 ms, and what it was granted or queued for
/// is given back 500 ms after the first RELEASE, which may have to be repeated. After a fault, a connection is opened
/// again, and a request sent again, after a pause of up to 500 ms each.
const SUSPICIOUS: Duration = Duration::from_millis(1_500);

/// What may be so for a while only, since its process could do something about it: it is not slow, and nothing it sends
/// is delayed, refused or rejected.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Suspicion {
    HeldForNobody(usize, String),
    QueuedForNobody(usize, String),
    Unnoticed(usize, String),
    Unqueued(u64),
    /// A guard is held although its lock was broken, and a lost connection shows that.
    Unlost(u64),
    /// More than half of a lease is over.
    Unrenewed(u64),
}

pub(super) struct Checks {
    keys: usize,
    last: Duration,
    /// With their ages, and whether that has counted since the last check.
    suspicions: BTreeMap<Suspicion, (Duration, bool)>,
}

/// A lock, as the server has it.
struct Served {
    /// The owners, with their fences and how many holds they have.
    holders: Vec<(String, u64, usize)>,
    queue: Vec<String>,
}

impl Served {
    fn of(net: &Net, key: usize) -> Self {
        let (holders, queue) = net.server.lock(key_name(key).as_bytes());
        let name = |owner: &[u8]| String::from_utf8_lossy(owner).into_owned();
        let holders = holders
            .iter()
            .map(|holder| (name(holder.owner()), holder.fence(), holder.holds() as usize));
        let queue = queue.into_iter().flat_map(|queue| queue.iter());
        Self {
            holders: holders.collect(),
            queue: queue.map(|(_, waiter)| name(waiter.owner())).collect(),
        }
    }

    fn is_held_by(&self, owner: &str) -> bool {
        self.holders.iter().any(|(holder, ..)| holder == owner)
    }

    fn times_queued(&self, owner: &str) -> usize {
        self.queue.iter().filter(|waiter| *waiter == owner).count()
    }

    /// The place in the queue; that of holders is 0.
    fn place_of(&self, owner: &str) -> Option<usize> {
        if self.is_held_by(owner) {
            return Some(0);
        }
        let place = self.queue.iter().position(|waiter| waiter == owner);
        place.map(|place| place + 1)
    }
}

impl Checks {
    pub fn new(keys: usize) -> Self {
        Self {
            keys,
            last: Duration::ZERO,
            suspicions: BTreeMap::new(),
        }
    }

    pub fn run(&mut self, ledger: &mut Ledger, net: &mut Net) {
        assert!(!runtimes::has_panicked(), "a task has panicked");
        assert_eq!(ledger.wrong, None);
        let mut suspected = BTreeMap::new();
        for key in 0..self.keys {
            let served = Served::of(net, key);
            check_holders(ledger, key, &served);
            // Those who were turned away come back in any order.
            if net.turned_away.remove(key_name(key).as_bytes()) {
                let calls = ledger.calls.values_mut().filter(|call| call.who.key == key);
                calls.for_each(|call| call.older.clear());
            }
            check_order(ledger, net, key, &served);
            suspect(ledger, net, key, &served, &mut suspected);
        }
        self.grow_older(suspected);
    }

    fn grow_older(&mut self, suspected: BTreeMap<Suspicion, bool>) {
        let passed = elapsed() - self.last;
        self.last += passed;
        let former = std::mem::take(&mut self.suspicions);
        for (suspicion, counts) in suspected {
            let age = match former.get(&suspicion) {
                Some((age, true)) => *age + passed,
                _ => Duration::ZERO,
            };
            assert!(age < SUSPICIOUS, "{suspicion:?} for {age:?}");
            self.suspicions.insert(suspicion, (age, counts));
        }
    }
}

/// Nobody holds a lock beside another, or longer than the server says, as far as they know.
fn check_holders(ledger: &Ledger, key: usize, served: &Served) {
    let guards = ledger.guards.values().filter(|holding| holding.who.key == key);
    let held =
        guards.filter(|holding| holding.guard.is_held() && !ledger.broken.contains(&holding.guard.fence()));
    let mut owners: Vec<_> = held
        .map(|holding| (&*holding.who.owner, holding.guard.fence()))
        .collect();
    for (owner, fence) in &owners {
        let mut holders = served.holders.iter();
        let is_held = holders.any(|(holder, of, _)| holder == owner && of == fence);
        assert!(is_held, "{owner} believes that it holds {key}");
    }
    owners.dedup();
    assert!(owners.len() <= 1, "{owners:?} hold {key}");
}

/// A request is not granted before one of the same process that was waiting before.
fn check_order(ledger: &mut Ledger, net: &mut Net, key: usize, served: &Served) {
    let with_older = ledger
        .calls
        .iter()
        .filter(|(_, call)| call.who.key == key && !call.older.is_empty());
    for number in with_older.map(|(number, _)| *number).collect::<Vec<_>>() {
        let call = &ledger.calls[&number];
        let place = served.place_of(&call.who.owner);
        let mut older = call.older.clone();
        older.retain(|number| {
            let Some(older) = ledger.calls.get(number) else {
                return false;
            };
            // After a late grant it is asked for anew.
            if served.times_queued(&older.who.owner) > 1 {
                return false;
            }
            match (served.place_of(&older.who.owner), place) {
                // Granted, in order.
                (Some(0), _) => {
                    net.counts.note("granted in order");
                    false
                }
                (Some(place), Some(other)) => {
                    assert!(place < other, "{} overtakes {}", call.who.owner, older.who.owner);
                    true
                }
                (Some(_), None) => true,
                // Its client knows that it has to be sent again, and nothing is in the way.
                (None, _) if ledger.is_parked(&older.who).is_some() && can_queue(net, older.who.process) => {
                    assert!(
                        place.is_none(),
                        "{} has overtaken {}",
                        call.who.owner,
                        older.who.owner
                    );
                    true
                }
                (None, _) => false,
            }
        });
        if let Some(call) = ledger.calls.get_mut(&number) {
            call.older = older;
        }
    }
}

/// Whether a request that is sent again can be queued.
fn can_queue(net: &Net, process: usize) -> bool {
    net.is_good(process) && net.has_inbox(process)
}

/// What should not last. Each with whether its process can do something about it.
fn suspect(
    ledger: &Ledger,
    net: &Net,
    key: usize,
    served: &Served,
    suspected: &mut BTreeMap<Suspicion, bool>,
) {
    let can_act = |process: usize| net.is_good(process) && !ledger.is_slow(process);
    let calls = |owner: &str| {
        ledger
            .calls
            .values()
            .filter(|call| call.who.owner == owner)
            .count()
    };
    for (owner, _, holds) in &served.holders {
        let guards = ledger
            .guards
            .values()
            .filter(|holding| holding.who.owner == *owner);
        let wanted = guards
            .filter(|holding| holding.guard.lost_now().is_none())
            .count();
        let process = ledger.owners.get(owner).map_or(0, |account| account.process);
        if *holds > wanted + calls(owner) {
            let mut releases = ledger.releases.values().filter(|who| who.owner == *owner);
            let is_idle = releases.any(|who| who.runtime.is_paused());
            suspected.insert(
                Suspicion::HeldForNobody(key, owner.clone()),
                can_act(process) && !is_idle,
            );
        } else if *holds > wanted {
            let mut own = ledger.calls.values().filter(|call| call.who.owner == *owner);
            let is_idle = own.any(|call| call.who.runtime.is_paused());
            suspected.insert(
                Suspicion::Unnoticed(key, owner.clone()),
                can_act(process) && !is_idle,
            );
        }
    }
    for owner in &served.queue {
        if served.times_queued(owner) > calls(owner) && !ledger.unlucky.contains(owner.as_bytes()) {
            let process = ledger.owners.get(owner).map_or(0, |account| account.process);
            suspected.insert(Suspicion::QueuedForNobody(key, owner.clone()), can_act(process));
        }
    }
    for (number, holding) in ledger.guards.iter().filter(|(_, holding)| holding.who.key == key) {
        if !holding.guard.is_held() {
            continue;
        }
        let counts = can_act(holding.who.process);
        if holding.shows && holding.is_renewed && !served.is_held_by(&holding.who.owner) {
            suspected.insert(Suspicion::Unlost(*number), counts);
        }
        if holding.is_renewed && holding.guard.remaining() < holding.lease / 2 {
            suspected.insert(Suspicion::Unrenewed(*number), counts);
        }
    }
    for (number, call) in ledger.calls.iter().filter(|(_, call)| call.who.key == key) {
        let Who {
            process,
            runtime,
            owner,
            ..
        } = &call.who;
        if served.place_of(owner).is_none() {
            // What others of its process find is awaited.
            let mut others = ledger
                .calls
                .values()
                .filter(|call| call.who.process == *process && call.who.key == key);
            let counts =
                can_act(*process) && !runtime.is_paused() && !others.any(|call| call.who.runtime.is_paused());
            suspected.insert(Suspicion::Unqueued(*number), counts);
        }
    }
}
