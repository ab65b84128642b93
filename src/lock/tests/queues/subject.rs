//! The core behind plain words: a server with several locks and their queues, driven as the shell does it.

use crate::lock::effects::{Answer, Effects, Wake};
use crate::lock::fence::{Fences, WallClock};
use crate::lock::limit::Limit;
use crate::lock::queue::{Queue, Ticket};
use crate::lock::refusal::Refusal;
use crate::lock::request::{Acquire, Extend, Release, Share, Timeout};
use crate::lock::state::Lock;
use crate::lock::step::{Granted, Moment, acquire, extend, release, tend, undo};
use crate::lock::time::Instant;
use crate::lock::waiting::{LockName, NotQueued, Rules, Waiting};

const UNIX_MS: u64 = 1_750_000_000_000;

pub struct Server {
    pub waiting: Waiting,
    /// What is under each name; free = no key.
    pub locks: Vec<(LockName, Lock)>,
    pub fences: Fences,
    pub effects: Effects,
    /// All answers that waiters were given, oldest first.
    pub answers: Vec<(Ticket, Answer)>,
    pub moment: Moment,
    pub rules: Rules,
}

/// What becomes of an ACQUIRE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Granted(Granted),
    NotGranted,
    Waits(Ticket),
}

impl Server {
    /// A server on which nobody holds or waits for these locks.
    pub fn with(locks: &[&str]) -> Self {
        let mut fences = Fences::starting();
        fences.raise(WallClock::from_unix_ms(UNIX_MS), 0);
        let name = |key: &&str| LockName {
            db: 0,
            key: key.as_bytes().into(),
        };
        Self {
            waiting: Waiting::new(),
            locks: locks.iter().map(|key| (name(key), Lock::default())).collect(),
            fences,
            effects: Effects::default(),
            answers: Vec::new(),
            moment: Moment::at(Instant::from_micros(123_456)),
            rules: Rules {
                max_waiters: 100,
                detect_deadlocks: true,
            },
        }
    }

    pub fn pass_ms(&mut self, ms: u64) {
        self.moment.now = self.moment.now.after_ms(ms);
    }

    /// A grace begins now.
    pub fn grace(&mut self, ms: u64) {
        self.moment.grace_begin = self.moment.now;
        self.moment.grace_end = self.moment.now.after_ms(ms);
    }

    pub fn name(&self, key: &str) -> LockName {
        self.locks[self.place(key)].0.clone()
    }

    pub fn lock(&self, key: &str) -> &Lock {
        &self.locks[self.place(key)].1
    }

    fn place(&self, key: &str) -> usize {
        self.locks
            .iter()
            .position(|(name, _)| *name.key == *key.as_bytes())
            .expect("a lock of this server")
    }

    /// ACQUIRE. A request that blocks lets go first what is due anywhere.
    pub fn acquire(&mut self, key: &str, request: &Acquire<'_>) -> Result<Outcome, NotQueued> {
        if request.block.is_some() {
            self.ring();
        }
        let moment = self.moment;
        let granted = self.step(key, |lock, queue, fences, effects| {
            acquire(lock, queue, request, &moment, fences, effects)
        })?;
        match (granted, request.block) {
            (Some(granted), _) => Ok(Outcome::Granted(granted)),
            (None, None) => Ok(Outcome::NotGranted),
            (None, Some(timeout)) => self.enqueue(key, request, timeout),
        }
    }

    fn enqueue(&mut self, key: &str, request: &Acquire<'_>, timeout: Timeout) -> Result<Outcome, NotQueued> {
        let place = self.place(key);
        let (name, lock) = &self.locks[place];
        let enqueued = self
            .waiting
            .enqueue(name, lock, request, timeout, &self.moment, self.rules)?;
        if enqueued.replaced {
            self.answers
                .push((enqueued.ticket, Answer::Refused(Refusal::Replaced)));
        }
        Ok(Outcome::Waits(enqueued.ticket))
    }

    pub fn release(&mut self, key: &str, owner: &str, share: Share<'_>) -> Result<u64, Refusal> {
        let moment = self.moment;
        let request = Release {
            owner: owner.as_bytes(),
            fence: None,
            share,
        };
        self.step(key, |lock, queue, fences, effects| {
            release(lock, queue, &request, &moment, fences, effects)
        })
    }

    pub fn extend(&mut self, key: &str, owner: &str, lease_ms: u64) -> Result<u64, Refusal> {
        self.extend_as(key, owner, lease_ms, None)
    }

    pub fn extend_fenced(
        &mut self,
        key: &str,
        owner: &str,
        lease_ms: u64,
        fence: u64,
    ) -> Result<u64, Refusal> {
        self.extend_as(key, owner, lease_ms, Some(fence))
    }

    fn extend_as(
        &mut self,
        key: &str,
        owner: &str,
        lease_ms: u64,
        fence: Option<u64>,
    ) -> Result<u64, Refusal> {
        let moment = self.moment;
        let request = Extend {
            owner: owner.as_bytes(),
            lease_ms,
            fence,
        };
        self.step(key, |lock, queue, fences, effects| {
            extend(lock, queue, &request, &moment, fences, effects)
        })
    }

    /// Gives back a hold whose client has gone; whether it was still there.
    pub fn undo(&mut self, key: &str, owner: &str) -> bool {
        let moment = self.moment;
        let request = Release {
            owner: owner.as_bytes(),
            fence: None,
            share: Share::One,
        };
        self.step(key, |lock, queue, fences, effects| {
            undo(lock, queue, &request, &moment, fences, effects)
        })
    }

    /// Looks after every queue that is due.
    pub fn ring(&mut self) {
        while let Some(name) = self.waiting.due(self.moment.now) {
            let key = std::str::from_utf8(&name.key)
                .expect("a name in plain text")
                .to_owned();
            let moment = self.moment;
            self.step(&key, |lock, queue, fences, effects| {
                tend(lock, queue, &moment, fences, effects);
            });
        }
    }

    /// A waiter's client is gone.
    pub fn leave(&mut self, key: &str, ticket: Ticket) {
        let name = self.name(key);
        self.waiting.leave(&name, ticket);
    }

    /// DEL, RENAME, RESTORE REPLACE: another value is under the name, and its queue is marked.
    pub fn replace(&mut self, key: &str, lock: Lock) {
        let place = self.place(key);
        self.locks[place].1 = lock;
        let name = self.name(key);
        self.waiting.alarm_at(&name, Instant::DISTANT_PAST);
    }

    fn step<R>(
        &mut self,
        key: &str,
        step: impl FnOnce(&mut Lock, &mut Queue, &mut Fences, &mut Effects) -> R,
    ) -> R {
        let place = self.place(key);
        let (name, lock) = &mut self.locks[place];
        self.effects.clear();
        let result = match self.waiting.name(name.db, &name.key) {
            None => step(lock, &mut Queue::new(), &mut self.fences, &mut self.effects),
            Some(name) => {
                let mut queue = self.waiting.take(&name);
                let result = step(lock, &mut queue, &mut self.fences, &mut self.effects);
                self.waiting.put_back(&name, queue, lock, &self.moment);
                result
            }
        };
        let wakes = self.effects.wakes.iter().cloned();
        self.answers
            .extend(wakes.map(|Wake { ticket, answer }| (ticket, answer)));
        result
    }
}

/// `ACQUIRE owner lease-ms` for a mutex that does not wait.
pub fn ask(owner: &str, lease_ms: u64) -> Acquire<'_> {
    Acquire {
        owner: owner.as_bytes(),
        lease_ms,
        limit: Limit::MUTEX,
        block: None,
        request_id: None,
    }
}

/// The same, and it waits without limit.
pub fn wait(owner: &str, lease_ms: u64) -> Acquire<'_> {
    Acquire {
        block: Some(Timeout::Never),
        ..ask(owner, lease_ms)
    }
}
