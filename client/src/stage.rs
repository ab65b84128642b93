//! The stages of an entry of the session, what each has to send, and the inbox that gets the answers.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};
use tokio::sync::oneshot;

use crate::clock::BootInstant;
use crate::command::random_name;
use crate::error::Error;
use crate::hold::PendingRelease;
use crate::request::{Acquired, Held, Identity, Pending, Reply, Request};

/// Small, as there is one for each of many entries.
pub(crate) enum Stage {
    Waiting(Box<Waiting>),
    Held(Holding),
    Releasing(Box<Releasing>),
    GivingBack(Box<GivingBack>),
    Asking(Box<Asking>),
    /// Nothing is left to do.
    Over,
}

/// A lock that is held.
pub(crate) struct Holding {
    pub held: Arc<Held>,
    /// Whether a lost connection may still deliver its ACQUIRE.
    pub has_copies: bool,
    /// The lease of the renewal that is to be sent.
    pub renewal: Option<Duration>,
    /// Whether the last renewal failed.
    pub is_failing: bool,
    /// Who waits until replicas have acknowledged the grant.
    pub unconfirmed: Option<(oneshot::Sender<Acquired>, BootInstant)>,
}

/// A question of a caller.
pub(crate) struct Asking {
    pub question: Question,
    pub until: BootInstant,
    pub last: Option<Error>,
}

pub(crate) enum Question {
    Command {
        command: Cmd,
        is_idempotent: bool,
        reply: Option<Reply<Value>>,
    },
    Extend {
        held: Arc<Held>,
        lease: Duration,
        min_fence: Option<NonZeroU64>,
        reply: Option<Reply<Duration>>,
    },
}

/// An acquisition without an outcome yet.
pub(crate) struct Waiting {
    pub request: Request,
    pub reply: oneshot::Sender<Acquired>,
    pub begun: BootInstant,
    /// The inbox that the last sending named, and whether that was open.
    pub sent_to: Option<(u64, bool)>,
    /// Whether the server has it in its queue, as far as known.
    pub is_queued: bool,
    /// Whether it ever was.
    pub was_queued: bool,
    /// Whether it has to wait, and its server had no inbox.
    pub found_no_inbox: bool,
    /// Whether a lost connection may still deliver it.
    pub has_copies: bool,
    /// Whether [`EventKind::Waiting`](crate::EventKind::Waiting) was reported.
    pub is_reported: bool,
    /// Until when one that does not wait is tried.
    pub tried_until: Option<BootInstant>,
    /// Why there is no outcome, and since when.
    pub last: Option<Box<(Error, BootInstant)>>,
}

/// A hold that its guard has given up.
pub(crate) struct Releasing {
    pub held: Arc<Held>,
    pub has_copies: bool,
    pub release: PendingRelease,
    /// Who waits for the outcome, and until when.
    pub reply: Option<(Reply<()>, BootInstant)>,
    /// How long it was held.
    pub time: Duration,
    pub last: Option<Error>,
    pub _pending: Pending,
}

/// A request that is taken back, whether it is queued, granted, or under way.
pub(crate) struct GivingBack {
    pub identity: Identity,
    /// It is tried again until then: the lease ends it.
    pub until: BootInstant,
    /// Whether it is taken back once more, from a copy that arrives late.
    pub is_repeated: bool,
    pub pending: Option<Pending>,
}

impl Releasing {
    pub fn command(&self, now: BootInstant) -> Cmd {
        match self.release.keep_until {
            Some(until) => self.held.extend((until - now).max(Duration::from_millis(1))),
            None => self.held.release(),
        }
    }

    pub fn wakes_at(&self) -> Option<BootInstant> {
        // An attempt ends by itself. Only after that does it matter how long the caller waits.
        self.last.as_ref()?;
        let replies_by = self.reply.as_ref().map(|(_, by)| *by);
        let deadline = self.release.deadline();
        Some(replies_by.map_or(deadline, |by| by.min(deadline)))
    }

    /// Takes note why it is not released yet.
    pub fn note(&mut self, error: Error) {
        self.last = Some(error);
    }

    pub fn reply(&mut self, outcome: Result<(), Error>) {
        if let Some((reply, _)) = self.reply.take() {
            // A caller that is gone does not want it.
            let _ = reply.send(outcome);
        }
    }
}

impl Stage {
    /// What to send now, if anything.
    pub fn command(&mut self, inbox: &Inbox, now: BootInstant) -> Option<Cmd> {
        match self {
            Self::Waiting(waiting) => waiting.command(inbox),
            Self::Held(holding) => {
                let held = &holding.held;
                holding.renewal.take().map(|lease| held.extend_within(lease, now))
            }
            Self::Releasing(releasing) => Some(releasing.command(now)),
            Self::GivingBack(giving) => Some(giving.identity.give_back()),
            Self::Asking(asking) => Some(asking.command(now)),
            Self::Over => None,
        }
    }

    /// The key of an acquisition that waits if the lock is taken.
    pub fn waits_for(&self) -> Option<&[u8]> {
        match self {
            Self::Waiting(waiting) if waiting.is_patient() => Some(&waiting.request.identity.key),
            _ => None,
        }
    }

    /// Whether this is a hold whose renewal is due at this time, and may be sent now.
    pub fn is_renewed_by(&self, at: BootInstant, now: BootInstant) -> bool {
        matches!(self, Self::Held(holding) if holding.held.hold().is_renewal_due(at, now))
    }

    pub fn wakes_at(&self) -> Option<BootInstant> {
        match self {
            Self::Waiting(waiting) => waiting.wakes_at(),
            Self::Held(holding) => holding.held.hold().wakes_at(),
            Self::Releasing(releasing) => releasing.wakes_at(),
            Self::GivingBack(_) | Self::Over => None,
            Self::Asking(asking) => Some(asking.until),
        }
    }
}

impl Holding {
    pub fn new(held: Arc<Held>, has_copies: bool) -> Self {
        Self {
            held,
            has_copies,
            renewal: None,
            is_failing: false,
            unconfirmed: None,
        }
    }
}

impl Asking {
    pub fn is_idempotent(&self) -> bool {
        match &self.question {
            Question::Command { is_idempotent, .. } => *is_idempotent,
            Question::Extend { .. } => true,
        }
    }

    pub fn command(&self, now: BootInstant) -> Cmd {
        match &self.question {
            Question::Command { command, .. } => command.clone(),
            Question::Extend {
                held,
                lease,
                min_fence,
                ..
            } => {
                let mut command = held.extend_within(*lease, now);
                if let Some(fence) = min_fence {
                    command.arg("MINFENCE").arg(fence.get());
                }
                command
            }
        }
    }
}

impl Waiting {
    pub fn new(request: Request, reply: oneshot::Sender<Acquired>, now: BootInstant) -> Self {
        Self {
            request,
            reply,
            begun: now,
            sent_to: None,
            is_queued: false,
            was_queued: false,
            found_no_inbox: false,
            has_copies: false,
            is_reported: false,
            tried_until: None,
            last: None,
        }
    }

    /// Whether it waits if the lock is taken.
    pub fn is_patient(&self) -> bool {
        self.request.waits
    }

    pub fn command(&mut self, inbox: &Inbox) -> Option<redis::Cmd> {
        let name = self.is_patient().then(|| {
            self.sent_to = Some((inbox.epoch(), inbox.is_open()));
            inbox.name()
        });
        Some(self.request.acquire(name))
    }

    pub fn wakes_at(&self) -> Option<BootInstant> {
        self.request.until.or(self.tried_until)
    }

    pub fn is_timed_out(&self, now: BootInstant) -> bool {
        self.wakes_at().is_some_and(|until| until <= now)
    }

    /// Why it is over when its time is.
    pub fn timeout(&self, reader_trouble: Option<&(Error, BootInstant)>, now: BootInstant) -> Error {
        let silent = || (Error::no_response(), self.begun);
        let noted = self.last.as_deref().cloned();
        // Others are not blamed before the server has said that the lock is taken, or while its answers do not arrive.
        let last = match (noted, reader_trouble) {
            (None, Some(trouble)) if self.is_queued => Some(trouble.clone()),
            (noted, _) => noted.or_else(|| (!self.is_reported).then(silent)),
        };
        if !self.is_patient() {
            return last.map_or_else(Error::no_response, |(last, _)| last);
        }
        let last_for = last.as_ref().map_or(Duration::ZERO, |(_, since)| now - *since);
        Error::Timeout {
            key: String::from_utf8_lossy(&self.request.identity.key).into_owned(),
            waited: now - self.begun,
            last: last.map(|(last, _)| Box::new(last)),
            last_for,
        }
    }

    /// Takes note why there is no outcome yet.
    pub fn note(&mut self, error: Error, now: BootInstant) {
        let since = match self.last.as_deref() {
            Some((last, since)) if *last == error => *since,
            _ => now,
        };
        self.last = Some(Box::new((error, since)));
    }
}

/// An inbox for which nobody has waited for this long is closed.
const IDLE: Duration = Duration::from_secs(10);

/// The inbox of this process: where the servers put the answers to requests that wait.
///
/// ```text
///            NOINBOX                created on all servers
///   Closed ----------> Opening ------------------------------> Open
///      ^                  |  ^                                   |
///      | nobody waits     v  | a new name                        | NOINBOX
///      +------------- Unreachable <------------------------------+
/// ```
///
/// Each change takes a new name. A request that is under way with an old one finds no inbox, and so is never queued
/// before an older one that is to be sent again.
pub(crate) struct Inbox {
    name: [u8; 32],
    /// How many names there were before this one.
    epoch: u64,
    state: State,
    /// When somebody waited last.
    used_at: Option<BootInstant>,
    /// Whether it is there before somebody waits, and after.
    is_kept: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nobody waits, as far as known.
    Closed,
    /// Somebody waits: readers are to be started.
    Wanted,
    /// Readers create it. Nothing is queued meanwhile, so that those who wait are queued in order.
    Opening,
    /// Readers cannot create it, and go on trying. Locks that are free can be acquired meanwhile.
    Unreachable,
    Open,
}

impl Inbox {
    pub fn new() -> Self {
        Self {
            name: random_name(),
            epoch: 0,
            state: State::Closed,
            used_at: None,
            is_kept: false,
        }
    }

    pub fn name(&self) -> &[u8; 32] {
        &self.name
    }

    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    pub fn is_open(&self) -> bool {
        self.state == State::Open
    }

    /// Whether a request that has to wait would find none.
    pub fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    /// Whether requests that could be queued are held back.
    pub fn is_opening(&self) -> bool {
        matches!(self.state, State::Wanted | State::Opening)
    }

    /// Whether readers fail to create it.
    pub fn is_unreachable(&self) -> bool {
        self.state == State::Unreachable
    }

    /// Opens it now, and again whenever it has ended.
    pub fn keep(&mut self) {
        self.is_kept = true;
        self.want();
    }

    /// A request has to wait.
    pub fn want(&mut self) {
        if self.state == State::Closed {
            self.renew(State::Wanted);
        }
    }

    /// Whether readers are to be started now.
    pub fn take_wanted(&mut self) -> bool {
        let is_wanted = self.state == State::Wanted;
        if is_wanted {
            self.state = State::Opening;
        }
        is_wanted
    }

    /// All readers have created it.
    pub fn opened(&mut self, now: BootInstant) {
        self.state = State::Open;
        self.used_at = Some(now);
    }

    /// A reader could not create it.
    pub fn failed(&mut self) {
        if self.is_opening() {
            self.state = State::Unreachable;
        }
    }

    /// It is gone, or taken. Another is needed if somebody waits.
    pub fn ended(&mut self, is_wanted: bool) {
        self.renew(match is_wanted || self.is_kept {
            true => State::Wanted,
            false => State::Closed,
        });
    }

    /// The server rejects it for good.
    pub fn refused(&mut self) {
        self.is_kept = false;
        self.renew(State::Closed);
    }

    /// Somebody waits, or nobody does. After some time without anybody the inbox is closed: `true`.
    pub fn use_or_close(&mut self, is_used: bool, now: BootInstant) -> bool {
        if is_used {
            self.used_at = Some(now);
        }
        let is_idle = !self.is_kept && self.used_at.is_none_or(|used_at| now - used_at > IDLE);
        if is_idle {
            self.renew(State::Closed);
        }
        is_idle
    }

    fn renew(&mut self, state: State) {
        *self = Self {
            epoch: self.epoch + 1,
            state,
            is_kept: self.is_kept,
            ..Self::new()
        };
    }
}
