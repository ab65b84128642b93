//! What applications ask for, what they hold, and what they are told.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::counts::Counts;
use super::network;
use super::runtimes::Runtime;
use super::tell;
use crate::events::{End, Event, EventKind};
use crate::guard::Guard;
use crate::locks::Lock;
use crate::session::Session;

/// A name for the lock of this number.
pub(super) fn key_name(key: usize) -> String {
    format!("key{key}")
}

/// The ledger of all processes.
#[derive(Default)]
pub(super) struct Ledger {
    pub sessions: Vec<Arc<Session>>,
    /// The runtimes of the backgrounds.
    backgrounds: Vec<Arc<Runtime>>,
    /// The acquisitions without an outcome.
    pub calls: BTreeMap<u64, Call>,
    pub guards: BTreeMap<u64, Holding>,
    /// The releases without an outcome.
    pub releases: BTreeMap<u64, Who>,
    pub owners: BTreeMap<String, Account>,
    /// The fences of locks that were broken: their holders may not know yet.
    pub broken: BTreeSet<u64>,
    /// Their owners. An old answer may tell one of a grant that was broken after its request was queued again: then that
    /// is given back only when it is granted.
    pub unlucky: BTreeSet<Vec<u8>>,
    /// The last grant of each lock that an application was told of: its fence, and its owner.
    last_grants: BTreeMap<usize, (u64, String)>,
    last_number: u64,
    pub counts: Counts,
    /// What should not have happened.
    pub wrong: Option<String>,
}

pub(super) type SharedLedger = Arc<Mutex<Ledger>>;

pub(super) fn lock(ledger: &Mutex<Ledger>) -> MutexGuard<'_, Ledger> {
    ledger.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Who acquires, or holds.
#[derive(Clone)]
pub(super) struct Who {
    pub process: usize,
    pub runtime: Arc<Runtime>,
    pub key: usize,
    pub owner: String,
    /// Whether this owner has only one acquisition.
    pub is_alone: bool,
}

pub(super) struct Call {
    pub who: Who,
    pub waits: bool,
    /// Whether it was told that the lock is taken.
    pub is_waiting: bool,
    /// The calls that were waiting when this one began: they are served first.
    pub older: BTreeSet<u64>,
}

#[derive(Clone)]
pub(super) struct Holding {
    pub who: Who,
    pub guard: Arc<Guard>,
    pub lease: Duration,
    pub is_renewed: bool,
    /// Whether the lock was broken, and then the connections of its process were lost.
    pub shows: bool,
}

/// The events of an owner.
#[derive(Debug, Default)]
pub(super) struct Account {
    pub process: usize,
    pub is_alone: bool,
    /// Acquisitions that are over, and those of them that were dropped.
    pub over: u32,
    pub dropped: u32,
    pub acquired: u32,
    pub not_acquired: u32,
    pub ended: u32,
}

impl Ledger {
    /// The next process.
    pub fn add(&mut self, session: Arc<Session>, background: Arc<Runtime>) {
        self.sessions.push(session);
        self.backgrounds.push(background);
    }

    /// Whether a process does nothing at the moment.
    pub fn is_slow(&self, process: usize) -> bool {
        self.backgrounds[process].is_paused()
    }

    pub fn on_event(&mut self, event: &Event) {
        let owner = event.owner.to_string();
        tell(|| format!("{owner}: {:?}", event.kind));
        let account = self.owners.entry(owner.clone()).or_default();
        match &event.kind {
            EventKind::Waiting { .. } => {
                let own = self.calls.values_mut().filter(|call| call.who.owner == owner);
                own.for_each(|call| call.is_waiting = true);
            }
            EventKind::Acquired { fence, .. } => {
                account.acquired += 1;
                self.on_grant(&event.key, *fence, owner);
            }
            EventKind::NotAcquired { .. } => account.not_acquired += 1,
            EventKind::Ended { how, .. } => {
                account.ended += 1;
                if matches!(how, End::Lost(_)) {
                    self.counts.note("lost");
                }
            }
            EventKind::StillWaiting { .. } | EventKind::RenewFailed { .. } | EventKind::RenewedAgain => {}
        }
    }

    /// Fences rise.
    fn on_grant(&mut self, key: &[u8], fence: u64, owner: String) {
        let key = (0..)
            .find(|number| key_name(*number).as_bytes() == key)
            .unwrap_or_default();
        let is_higher = self
            .last_grants
            .get(&key)
            .is_none_or(|(last, by)| *last < fence || *last == fence && *by == owner);
        if !is_higher && !self.broken.contains(&fence) {
            self.wrong = Some(format!(
                "fence {fence} of {owner} after {:?}",
                self.last_grants[&key]
            ));
        }
        if is_higher {
            self.last_grants.insert(key, (fence, owner));
        }
    }

    /// Takes a guard, unless it is being extended.
    pub fn take_unused(&mut self, number: u64) -> Option<Holding> {
        let is_unused = self
            .guards
            .get(&number)
            .is_some_and(|holding| Arc::strong_count(&holding.guard) == 1);
        is_unused.then(|| self.guards.remove(&number))?
    }

    /// Each acquisition has one event, and a second one when it ends. What is held is renewed.
    pub fn check(&self) {
        for (owner, account) in &self.owners {
            let told = account.acquired + account.not_acquired;
            // One that is dropped before it was ever sent has none.
            let least = account.over - account.dropped;
            assert!((least..=account.over).contains(&told), "{owner}: {account:?}");
            assert!(account.ended <= account.acquired, "{owner}: {account:?}");
        }
        for Holding { who, guard, .. } in self.guards.values().filter(|holding| holding.guard.is_held()) {
            let account = &self.owners[&who.owner];
            assert!(account.ended < account.acquired, "{}: {account:?}", who.owner);
            let table = self.sessions[who.process].table();
            let mut holds = table.holds().filter(|held| held.fence() == guard.fence());
            assert!(
                holds.any(|held| held.request.owner() == guard.owner()),
                "{} is not in the table",
                who.owner
            );
        }
    }

    fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// The undisturbed calls that are in the server's queue, or that their client is about to send again.
    fn waiting_before(&self, who: &Who) -> BTreeSet<u64> {
        let is_before = |call: &&Call| {
            call.is_waiting
                && call.waits
                && call.who.is_alone
                && (call.who.process, call.who.key) == (who.process, who.key)
        };
        let calls = self.calls.iter().filter(|(_, call)| is_before(call));
        let are_queued =
            calls.filter(|(_, call)| is_queued(&call.who) || self.is_parked(&call.who) == Some(false));
        are_queued.map(|(number, _)| *number).collect()
    }

    /// Whether its client knows that it is to be sent again, and has done so.
    pub fn is_parked(&self, who: &Who) -> Option<bool> {
        let table = self.sessions[who.process].table();
        let mut parked = table
            .parked()
            .filter(|(request, _)| request.owner().as_bytes() == who.owner.as_bytes());
        parked.next().map(|(_, is_sent)| is_sent)
    }
}

fn is_queued(who: &Who) -> bool {
    network::with(|net| {
        let (_, queue) = net.server.lock(key_name(who.key).as_bytes());
        let mut queue = queue.into_iter().flat_map(|queue| queue.iter());
        queue.any(|(_, waiter)| waiter.owner() == who.owner.as_bytes())
    })
}

/// Ends a call when its future is over, or dropped.
struct Calling {
    ledger: SharedLedger,
    number: u64,
    is_done: bool,
}

impl Drop for Calling {
    fn drop(&mut self) {
        let mut ledger = lock(&self.ledger);
        if let Some(call) = ledger.calls.remove(&self.number) {
            let account = ledger.owners.entry(call.who.owner).or_default();
            account.over += 1;
            account.dropped += u32::from(!self.is_done);
        }
    }
}

/// How to acquire.
pub(super) struct Wanted {
    pub lock: Lock,
    pub lease: Duration,
    pub waits: bool,
    pub has_timeout: bool,
}

/// Acquires a lock, and keeps its guard in the ledger.
pub(super) async fn acquire(ledger: SharedLedger, wanted: Wanted, who: Who) {
    let Wanted {
        lease,
        waits,
        has_timeout,
        ..
    } = wanted;
    let mut calling = {
        let mut locked = lock(&ledger);
        let number = locked.next_number();
        let older = if waits && who.is_alone {
            locked.waiting_before(&who)
        } else {
            BTreeSet::new()
        };
        let account = locked.owners.entry(who.owner.clone()).or_default();
        (account.process, account.is_alone) = (who.process, who.is_alone);
        let call = Call {
            who: who.clone(),
            waits,
            is_waiting: false,
            older,
        };
        locked.calls.insert(number, call);
        Calling {
            ledger: Arc::clone(&ledger),
            number,
            is_done: false,
        }
    };
    let outcome = match waits {
        true => wanted.lock.acquire().await.map(Some),
        false => wanted.lock.try_acquire().await,
    };
    calling.is_done = true;
    match outcome {
        Ok(Some(guard)) => {
            let mut locked = lock(&ledger);
            let number = locked.next_number();
            let holding = Holding {
                who,
                guard: Arc::new(guard),
                lease,
                is_renewed: true,
                shows: false,
            };
            locked.guards.insert(number, holding);
        }
        Ok(None) => {}
        Err(error) => {
            tell(|| format!("{} is not acquired: {error}", who.owner));
            let mut locked = lock(&ledger);
            // One that waits goes on, once there has been a connection.
            let goes_on = waits && !has_timeout && locked.sessions[who.process].links.has_connected();
            if goes_on && error.is_transient() {
                locked.wrong = Some(format!("{} ends with {error}", who.owner));
            }
        }
    }
}

/// Releases a lock. It is in the ledger before this is polled.
pub(super) fn release(ledger: SharedLedger, guard: Guard, who: Who) -> impl Future<Output = ()> + Send {
    let number = {
        let mut locked = lock(&ledger);
        let number = locked.next_number();
        locked.releases.insert(number, who);
        number
    };
    let releasing = Releasing { ledger, number };
    async move {
        let _releasing = releasing;
        let _ = guard.release().await;
    }
}

/// Ends a release when its future is over, or dropped.
struct Releasing {
    ledger: SharedLedger,
    number: u64,
}

impl Drop for Releasing {
    fn drop(&mut self) {
        lock(&self.ledger).releases.remove(&self.number);
    }
}
