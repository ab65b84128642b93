//! The core behind plain words: a server with one lock, as far as the core goes.
//!
//! Every step taken through here is checked against the promises, so every test checks them.

use super::invariants::{self, Checked};
use super::ops::{Action, Answer, Limit as OpsLimit, Micros, Request, View};
use crate::codec::{decode_lock, encode_lock};
use crate::context::TransitionContext;
use crate::effects::{Effects, Replication};
use crate::engine::Engine;
use crate::error::Error;
use crate::fence::{AdvanceReason, Fence, WallClock};
use crate::limit::Limit;
use crate::lock::{Holder, Lock};
use crate::name::LockRef;
use crate::outcome::{Acquired, Event, Granted};
use crate::request::{Acquire, Extend, Holds, Release};
use crate::time::Instant;
use crate::transition::Transition;
use crate::wait_table::WaitPolicy;

const POLICY: WaitPolicy = WaitPolicy {
    max_waiters: 0,
    detect_deadlocks: false,
};

/// Owners are of different lengths: none may be taken for the beginning of another.
const OWNERS: [&[u8]; 5] = [b"a", b"ab", b"alice", b"\0", b"bob"];

/// When the tests take place: a wall clock in 2025, so that fences have as many bytes as real ones.
const UNIX_MS: u64 = 1_750_000_000_000;

#[derive(Debug)]
pub struct Subject {
    pub lock: Lock,
    pub engine: Engine,
    pub effects: Effects,
    pub now: Micros,
    pub grace_begin: Option<Micros>,
    pub grace_end: Option<Micros>,
    pub evictable: bool,
    /// What the clock of this server shows at 0.
    pub origin: Micros,
}

/// What the log and the replicas get.
#[derive(Clone, Debug)]
pub enum Record {
    Nothing,
    Verbatim(Request),
    Change(Vec<u8>),
}

/// What a server stores, or hands to a replica as a whole. Grace and counter belong to no lock: the shell
/// keeps them beside it.
#[derive(Clone, Debug)]
pub struct Saved {
    lock: Option<Vec<u8>>,
    known: Fence,
    grace_left_ms: u64,
}

/// A holder as it is stored, ended or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    pub owner: Vec<u8>,
    pub fence: Fence,
    pub limit: Limit,
    pub unnamed: u32,
    pub names: Vec<Box<[u8]>>,
}

impl Subject {
    /// A server without the lock, whose clock shows `origin` at 0.
    pub fn new(origin: Micros) -> Self {
        let mut engine = Engine::starting();
        engine.advance_fences_if_pending(WallClock::from_unix_ms(UNIX_MS), 0);
        Self {
            lock: Lock::default(),
            engine,
            effects: Effects::default(),
            now: 0,
            grace_begin: None,
            grace_end: None,
            evictable: false,
            origin,
        }
    }

    pub fn save(&self) -> Saved {
        let left = self.grace_end.map_or(0, |end| end - self.now).max(0);
        Saved {
            lock: (!self.lock.is_free()).then(|| encode_lock(&self.lock, &self.cx())),
            known: self.engine.fences.known(),
            grace_left_ms: (left as u64).div_ceil(1000),
        }
    }

    /// A server that reads what was stored, at `now`.
    pub fn load(saved: &Saved, now: Micros, origin: Micros) -> Self {
        let mut server = Self {
            now,
            ..Self::new(origin)
        };
        if let Some(bytes) = &saved.lock {
            server.lock = decode_lock(bytes, server.cx().now).expect("what was written can be read");
        }
        server.engine.fences.observe(saved.known);
        server.begin_grace(saved.grace_left_ms);
        server
    }

    /// One request, checked against the promises.
    pub fn ask(&mut self, request: &Request) -> Answer {
        self.step(Some(request), |server| server.perform(request))
    }

    /// What the server does when a lease has ended, checked against the promises.
    pub fn sweep(&mut self) {
        self.step(None, |server| {
            server.begin(&server.cx()).expire_holders();
            Answer::NotGranted
        });
    }

    fn step(&mut self, request: Option<&Request>, step: impl FnOnce(&mut Self) -> Answer) -> Answer {
        let (before, known_before) = (self.lock.clone(), self.engine.fences.known());
        self.effects.clear();
        let answer = step(self);
        invariants::check(&Checked {
            before: &before,
            known_before,
            request: request.map(|request| (request, owner_bytes(request.owner))),
            cx: &self.cx(),
            after: &self.lock,
            known_after: self.engine.fences.known(),
            answer,
            effects: &self.effects,
        });
        answer
    }

    pub fn begin<'a>(&'a mut self, cx: &'a TransitionContext) -> Transition<'a> {
        let name = LockRef::new(0, b"lock");
        self.engine.begin(name, &mut self.lock, cx, &mut self.effects)
    }

    fn perform(&mut self, request: &Request) -> Answer {
        let cx = self.cx();
        let mut transition = self.begin(&cx);
        let owner = owner_bytes(request.owner);
        match request.action {
            Action::Acquire {
                lease_ms,
                limit,
                name,
            } => {
                let name = name.map(name_bytes);
                let request_id = name.as_ref().map(|name| &name[..]);
                let request = Acquire {
                    owner,
                    lease_ms,
                    limit: core_limit(limit),
                    block: None,
                    request_id,
                };
                match transition.acquire(&request, POLICY) {
                    Ok(Acquired::Granted(Granted {
                        fence,
                        holds,
                        lease_ms,
                        waited_ms: 0,
                    })) => Answer::Granted {
                        fence,
                        holds,
                        lease_ms,
                    },
                    Ok(Acquired::Granted(granted)) => panic!("nobody waited: {granted:?}"),
                    Ok(Acquired::NotGranted) => Answer::NotGranted,
                    Ok(Acquired::Queued(_)) => panic!("no request blocks"),
                    Err(refusal) => error(refusal),
                }
            }
            Action::Extend { lease_ms } => {
                let request = Extend {
                    owner,
                    lease_ms,
                    fence: request.fence,
                };
                transition.extend(&request).map_or_else(error, Answer::Lease)
            }
            _ => {
                with_release(request, |request| transition.release(request)).map_or_else(error, Answer::Holds)
            }
        }
    }

    /// What the last step has the log and the replicas be told.
    pub fn record(&self, request: Option<&Request>) -> Record {
        match (self.effects.replication, request) {
            (Replication::Nothing, _) => Record::Nothing,
            (Replication::Change, _) => Record::Change(self.effects.change().to_vec()),
            (Replication::Verbatim, Some(request)) => Record::Verbatim(*request),
            (Replication::Verbatim, None) => panic!("a sweep is no request"),
        }
    }

    /// As a replica, or from the log: what was told happens.
    pub fn receive(&mut self, record: &Record) {
        self.effects.clear();
        let cx = self.cx();
        let mut transition = self.begin(&cx);
        match record {
            Record::Nothing => return,
            Record::Verbatim(request) => {
                with_release(request, |request| transition.apply_release(request))
                    .expect("a release that happened there happens here");
            }
            Record::Change(change) => {
                let admitted = transition.apply(change).expect("a change that a step wrote");
                assert_eq!(admitted, self.effects.events.contains(&Event::Acquired));
            }
        }
        let Self {
            lock,
            engine,
            effects,
            ..
        } = self;
        let fences = &engine.fences;
        assert_eq!(
            effects.replication,
            Replication::Verbatim,
            "a replica passes on what it was told"
        );
        assert!(lock.is_sound(), "{lock:?}");
        assert!(
            lock.holders()
                .iter()
                .all(|holder| holder.fence() <= fences.known())
        );
    }

    /// Becomes a primary: raises the counter of fences, and a grace begins.
    pub fn take_over(&mut self, raise: AdvanceReason, grace_ms: u64) {
        let last = self.engine.fences.last();
        self.engine.fences.request_advance(raise);
        self.engine.fences.advance(WallClock::from_unix_ms(UNIX_MS), last);
        assert!(self.engine.fences.last() >= last);
        self.begin_grace(grace_ms);
    }

    /// A grace begins, or the one that runs becomes longer.
    fn begin_grace(&mut self, grace_ms: u64) {
        self.run_grace(grace_ms, Some(self.now));
    }

    /// The primary, or the log, says what is left of a grace.
    pub fn told_of_grace(&mut self, left_ms: u64) {
        self.run_grace(left_ms, None);
    }

    fn run_grace(&mut self, grace_ms: u64, begin: Option<Micros>) {
        if grace_ms > 0 {
            if self.grace_end.is_none_or(|end| end <= self.now) {
                self.grace_begin = begin;
            }
            self.grace_end = self.grace_end.max(Some(self.now + grace_ms as Micros * 1000));
        }
    }

    pub fn cx(&self) -> TransitionContext {
        let here = |time: Micros| Instant::from_micros(time + self.origin);
        TransitionContext {
            grace_begin: self.grace_begin.map_or(Instant::DISTANT_PAST, here),
            grace_end: self.grace_end.map_or(Instant::DISTANT_PAST, here),
            evictable: self.evictable,
            ..TransitionContext::at(here(self.now))
        }
    }

    /// The live holders, as clients see them.
    pub fn view(&self) -> Vec<View> {
        let cx = self.cx();
        self.live().map(|holder| view_of(holder, &cx)).collect()
    }

    pub fn live(&self) -> impl Iterator<Item = &Holder> {
        let cx = self.cx();
        self.lock
            .holders()
            .iter()
            .filter(move |holder| cx.is_live(holder))
    }

    /// When the leases of the live holders end.
    pub fn lease_ends(&self) -> Vec<Micros> {
        self.live().map(|holder| self.lease_end(holder)).collect()
    }

    /// When a lease ends, on the clock that all share.
    pub fn lease_end(&self, holder: &Holder) -> Micros {
        self.cx().lease_end(holder).as_micros() - self.origin
    }

    /// All holders as they are stored, with the ends of their leases.
    pub fn stored(&self) -> Vec<(Stored, Micros)> {
        self.lock
            .holders()
            .iter()
            .map(|holder| (Stored::from(holder), self.lease_end(holder)))
            .collect()
    }
}

impl From<&Holder> for Stored {
    fn from(holder: &Holder) -> Self {
        Self {
            owner: holder.owner().to_vec(),
            fence: holder.fence(),
            limit: holder.limit(),
            unnamed: holder.anonymous(),
            names: holder.request_ids().to_vec(),
        }
    }
}

/// A holder, as clients see it.
pub fn view_of(holder: &Holder, cx: &TransitionContext) -> View {
    View {
        owner: owner_number(holder.owner()),
        fence: holder.fence(),
        limit: holder.limit().get(),
        unnamed: u64::from(holder.anonymous()),
        names: holder
            .request_ids()
            .iter()
            .map(|name| name_number(name))
            .collect(),
        lease_ms: cx.lease_ms(holder),
        held_ms: holder.since().ms_until(cx.now),
    }
}

pub fn owner_bytes(owner: u8) -> &'static [u8] {
    OWNERS[usize::from(owner)]
}

pub fn owner_number(owner: &[u8]) -> u8 {
    OWNERS
        .iter()
        .position(|known| *known == owner)
        .expect("a known owner") as u8
}

pub fn name_bytes(name: u8) -> [u8; 2] {
    [b'r', name]
}

pub fn core_limit(limit: OpsLimit) -> Limit {
    limit.map_or(Limit::SHARED, |n| Limit::new(n).expect("a limit"))
}

pub fn name_number(name: &[u8]) -> u8 {
    *name.last().expect("a name")
}

/// The RELEASE that these plain words mean.
pub fn with_release<T>(request: &Request, step: impl FnOnce(&Release<'_>) -> T) -> T {
    let name;
    let share = match request.action {
        Action::ReleaseOne => Holds::One,
        Action::ReleaseAll => Holds::All,
        Action::ReleaseNamed(number) => {
            name = name_bytes(number);
            Holds::ById(&name)
        }
        Action::Acquire { .. } | Action::Extend { .. } => panic!("no release: {request:?}"),
    };
    step(&Release {
        owner: owner_bytes(request.owner),
        fence: request.fence,
        holds: share,
    })
}

pub fn error(refusal: Error) -> Answer {
    let number = match refusal {
        Error::Stale(fence) => fence,
        Error::Grace(ms) => ms,
        Error::Upgrade(limit) => u64::from(limit.get().unwrap_or(0)),
        Error::TooManyRequestIds(max) | Error::QueueFull(max) => max as u64,
        _ => 0,
    };
    Answer::Error(refusal.code(), number)
}
