//! The requests of a process: those that wait, those that are held, and what is known of them. Pure: replies, answers and
//! times go in, steps come out; nothing here waits, sends, or reads a clock.

use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use redis::{Cmd, FromRedisValue, Value};
use std::num::NonZeroU64;
use tokio_util::sync::CancellationToken;

use crate::command::{Answer, Grant, InboxName, Request, random_name};
use crate::error::Error;
use crate::hold::{BootInstant, Hold};

/// An inbox for which nobody has waited for this long is closed.
const IDLE: Duration = Duration::from_secs(10);
/// It is told that a request waits after this time, but not again of any request within the next one.
const NOTICED_AFTER: Duration = Duration::from_secs(1);
const NOTICED_EVERY: Duration = Duration::from_secs(10);

/// Of numbers that nobody chooses, which need no protection from those who would.
#[derive(Clone, Copy, Default)]
pub(crate) struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, number: u64) {
        // Fibonacci hashing (Knuth, The Art of Computer Programming 3, 6.4): neighbours are far from each other.
        const GOLDEN_RATIO: u64 = 0x9e37_79b9_7f4a_7c15;
        self.0 = (self.0.rotate_left(5) ^ number).wrapping_mul(GOLDEN_RATIO);
    }
}

type ByNumber<T> = HashMap<u64, T, BuildHasherDefault<NumberHasher>>;

/// All requests, by number: older ones have smaller ones.
pub(crate) struct Table {
    entries: ByNumber<Entry>,
    /// Those that wait for an inbox.
    parked: BTreeSet<u64>,
    /// The keys, as hashes, of requests that have no place in the server's queue yet, and would be overtaken by newer ones.
    unsettled: ByNumber<Unsettled>,
    /// When holds are to be looked at.
    due: BTreeSet<(BootInstant, u64)>,
    /// Holds that are not among them yet: most are released before their turn comes.
    fresh: Vec<u64>,
    inbox: Inbox,
    /// Whether readers have failed to create the inbox since parked requests were sent.
    has_failed: bool,
    /// Why the last call of a reader has failed, and since when.
    trouble: Option<(Error, BootInstant)>,
    /// When it is to be looked at next whether a request waits for long.
    looks_at: Option<BootInstant>,
}

/// How many requests for a key have no place in the server's queue yet.
#[derive(Default)]
struct Unsettled {
    /// Sent by its caller while there was no inbox: others wait until it is known whether it finds the lock free.
    asking: u32,
    parked: u32,
}

struct Entry {
    request: Arc<Request>,
    stage: Stage,
    /// Who waits for its outcome.
    waker: Option<Waker>,
    /// When the hold is to be looked at, as `due` knows it.
    timer: Option<BootInstant>,
    /// Whether the server has, or had, it in its queue.
    was_queued: bool,
    /// Whether a lost connection may still deliver it.
    has_copies: bool,
    /// How many times it was sent, or told otherwise while it was under way: only the reply to the last sending counts.
    sendings: u32,
    unsettled: Option<Unplaced>,
    /// The epoch of the inbox that it named when it was sent last, if that has failed.
    failed_in: Option<u64>,
    /// Since when it waits, as was told, and whether it was told that this takes long.
    waits_since: Option<BootInstant>,
    is_noticed: bool,
}

/// Why a request has no place in the server's queue yet, as [`Unsettled`] counts them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unplaced {
    Asking,
    Parked,
}

enum Stage {
    /// Its caller sends it, and will look for the outcome.
    Asking,
    /// It waits for an inbox. Whether the server has said so.
    Parked {
        found_none: bool,
    },
    /// The background sends it.
    AskingAgain,
    /// The server has it in its queue.
    Queued,
    Told(Told),
    /// It is granted, and its caller does not know yet.
    Granted(Arc<Held>),
    Held(Arc<Held>),
}

/// An outcome other than a grant.
pub(crate) enum Told {
    /// Others hold the lock, or wait for it.
    Taken,
    /// The lease had expired when the grant arrived.
    Late,
    /// It is to be sent again, perhaps because of an error.
    Again(Option<Box<Error>>),
}

pub(crate) enum Outcome {
    Granted(Arc<Held>),
    Told(Told),
}

/// A sending of a request.
#[derive(Clone, Copy)]
pub(crate) struct Sending {
    pub sent_at: BootInstant,
    /// The inbox that it named, and whether that was open.
    epoch: u64,
    was_open: bool,
    number: u32,
}

/// What is to be done.
#[derive(Default)]
pub(crate) struct Step {
    /// Who learns of the outcome.
    pub woken: Option<Waker>,
    /// It is news that this request has to wait, and behind how many, if the server said so.
    pub waits: Option<(Arc<Request>, Option<u64>)>,
    /// Nobody wants what the server has, or may have: whether copies of it may arrive late.
    pub gives_back: Option<bool>,
    /// There is something to do for the background.
    pub is_urgent: bool,
}

/// A lock that is held.
pub(crate) struct Held {
    pub request: Arc<Request>,
    /// 0: not known, while it is raised.
    fence: AtomicU64,
    has_copies: AtomicBool,
    /// Made when somebody asks for it.
    token: OnceLock<CancellationToken>,
    is_over: AtomicBool,
    hold: Mutex<Hold>,
}

impl Held {
    fn new(request: Arc<Request>, fence: u64, has_copies: bool, hold: Hold) -> Self {
        Self {
            request,
            fence: AtomicU64::new(fence),
            has_copies: AtomicBool::new(has_copies),
            token: OnceLock::new(),
            is_over: AtomicBool::new(false),
            hold: Mutex::new(hold),
        }
    }

    /// The state of the hold. Nothing that holds this lock waits.
    pub fn hold(&self) -> MutexGuard<'_, Hold> {
        // Nothing panics under it, and each change is a whole one.
        self.hold.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Cancelled when the lock is lost or released.
    pub fn token(&self) -> &CancellationToken {
        let token = self.token.get_or_init(CancellationToken::new);
        // Either this sees that it is over, or `end` sees the token.
        if self.is_over.load(Ordering::SeqCst) {
            token.cancel();
        }
        token
    }

    /// It is lost or released.
    pub fn end(&self) {
        self.is_over.store(true, Ordering::SeqCst);
        if let Some(token) = self.token.get() {
            token.cancel();
        }
    }

    /// The fencing token; 0 while it is not known.
    pub fn fence(&self) -> u64 {
        self.fence.load(Ordering::Relaxed)
    }

    pub fn set_fence(&self, fence: u64) {
        self.fence.store(fence, Ordering::Relaxed);
    }

    /// Whether a lost connection may still deliver its ACQUIRE.
    pub fn has_copies(&self) -> bool {
        self.has_copies.load(Ordering::Relaxed)
    }

    pub fn extend(&self, lease: Duration) -> Cmd {
        self.request.extend(lease, self.fence())
    }

    /// As [`Held::extend`], but not beyond the maximum hold time.
    pub fn extend_within(&self, lease: Duration, now: BootInstant) -> Cmd {
        let longest = self.hold().longest(now).max(Duration::from_millis(1));
        self.extend(lease.min(longest))
    }

    pub fn release(&self) -> Cmd {
        self.request.release(NonZeroU64::new(self.fence()))
    }
}

impl Table {
    pub fn new() -> Self {
        Self {
            entries: HashMap::default(),
            parked: BTreeSet::new(),
            unsettled: HashMap::default(),
            due: BTreeSet::new(),
            fresh: Vec::new(),
            inbox: Inbox::new(),
            has_failed: false,
            trouble: None,
            looks_at: None,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    // Requests.

    /// A request is about to be sent by its caller, and is in the table from now on, because its answer may overtake the
    /// reply: the inbox to name. None: it has to wait for an older one for the same lock, which would be told to wait,
    /// while this one could find the lock free a moment later.
    pub fn begin(&mut self, request: &Arc<Request>, now: BootInstant) -> Option<(InboxName, Sending)> {
        let entry = self
            .entries
            .entry(request.number)
            .or_insert_with(|| Entry::new(request));
        if !matches!(entry.stage, Stage::Asking) {
            return None;
        }
        if request.waits && !(self.inbox.is_open() && self.unsettled.is_empty()) {
            // One that is sent again has its place before those that wait for it, until that ended with its inbox.
            let has_place = match entry.failed_in {
                Some(epoch) => epoch == self.inbox.epoch || self.inbox.state == InboxState::Closed,
                None => true,
            };
            let is_first = match entry.unsettled {
                Some(_) => has_place,
                None => !self.unsettled.contains_key(&request.key_hash),
            };
            if !is_first {
                self.park(request.number, false);
                return None;
            }
            if entry.unsettled.is_some() || !self.inbox.is_open() {
                entry.count(Some(Unplaced::Asking), &mut self.unsettled);
            }
        }
        self.sending(request.number, now)
    }

    /// The same for a parked request, which the background sends.
    pub fn begin_again(&mut self, request: &Request, now: BootInstant) -> Option<(InboxName, Sending)> {
        let entry = self.entries.get(&request.number)?;
        matches!(entry.stage, Stage::AskingAgain).then(|| self.sending(request.number, now))?
    }

    /// Parked requests that the background could not send, as there is no connection. It goes on trying.
    pub fn on_unsent(
        &mut self,
        requests: impl Iterator<Item = Arc<Request>>,
        error: Error,
        now: BootInstant,
    ) {
        self.set_trouble(Some(error), now);
        for number in requests.map(|request| request.number) {
            let stage = self.entries.get(&number).map(|entry| &entry.stage);
            if matches!(stage, Some(Stage::AskingAgain)) {
                self.park(number, false);
            }
        }
    }

    fn sending(&mut self, number: u64, now: BootInstant) -> Option<(InboxName, Sending)> {
        let entry = self.entries.get_mut(&number)?;
        entry.sendings += 1;
        let sending = Sending {
            sent_at: now,
            epoch: self.inbox.epoch,
            was_open: self.inbox.is_open(),
            number: entry.sendings,
        };
        Some((self.inbox.name, sending))
    }

    /// The reply to an ACQUIRE, or why there is none.
    pub fn on_reply(
        &mut self,
        request: &Request,
        sending: Sending,
        reply: Result<Value, Error>,
        now: BootInstant,
    ) -> Step {
        let number = request.number;
        let is_lost = reply.as_ref().is_err_and(Error::is_ambiguous);
        let Some(entry) = self.entries.get_mut(&number) else {
            // Its caller has gone while the background sent it.
            let has_it = is_lost || reply.is_ok_and(|reply| reply != Value::Nil);
            return Step {
                gives_back: has_it.then_some(is_lost),
                ..Step::default()
            };
        };
        let counts = sending.number == entry.sendings;
        // One that does not count may have been run after the one that does.
        let is_copy = is_lost || !counts;
        entry.has_copies |= is_copy;
        let was_awaited = entry.is_awaited(&self.parked);
        if let Stage::Granted(held) | Stage::Held(held) = &entry.stage {
            held.has_copies.fetch_or(is_copy, Ordering::Relaxed);
        }
        if !counts {
            return Step::default();
        }
        if !matches!(entry.stage, Stage::Asking | Stage::AskingAgain) {
            // The answer was faster.
            entry.count(None, &mut self.unsettled);
            return Step {
                is_urgent: was_awaited,
                ..Step::default()
            };
        }
        entry.failed_in = reply.is_err().then_some(sending.epoch);
        let mut step = match reply {
            Ok(Value::Array(numbers)) if numbers.len() >= 4 => match Grant::of(&numbers, None) {
                Some(grant) => self.on_granted(number, &grant, sending.sent_at, now),
                None => self.tell(number, Told::Again(Some(Box::new(Error::unreadable())))),
            },
            Ok(Value::Array(numbers)) => self.on_queued(number, sending, numbers.first(), now),
            Ok(Value::Nil) => self.tell(number, Told::Taken),
            Ok(_) => self.tell(number, Told::Again(Some(Box::new(Error::unreadable())))),
            Err(error) if error.has_code("NOINBOX") => self.on_no_inbox(number, sending, now),
            Err(error) => self.tell(number, Told::Again(Some(Box::new(error)))),
        };
        step.is_urgent |= was_awaited;
        step
    }

    fn on_queued(&mut self, number: u64, sending: Sending, ahead: Option<&Value>, now: BootInstant) -> Step {
        self.inbox.used_at = Some(now);
        let is_current = sending.epoch == self.inbox.epoch;
        let Some(entry) = self.entries.get_mut(&number) else {
            return Step::default();
        };
        entry.was_queued = true;
        let ahead = ahead.and_then(|ahead| u64::from_redis_value_ref(ahead).ok());
        let waits = entry.report(now).map(|request| (request, ahead));
        if is_current {
            entry.stage = Stage::Queued;
            entry.count(None, &mut self.unsettled);
        } else {
            // It keeps its place, and its answer goes to the new inbox.
            self.park(number, false);
        }
        Step {
            waits,
            is_urgent: !is_current,
            ..Step::default()
        }
    }

    /// The request has to wait, and there is no such inbox.
    fn on_no_inbox(&mut self, number: u64, sending: Sending, now: BootInstant) -> Step {
        self.park(number, true);
        if sending.was_open {
            self.on_inbox_ended(sending.epoch);
        }
        Step {
            waits: self
                .entries
                .get_mut(&number)
                .and_then(|entry| entry.report(now))
                .map(|request| (request, None)),
            is_urgent: true,
            ..Step::default()
        }
    }

    fn on_granted(&mut self, number: u64, grant: &Grant, sent_at: BootInstant, now: BootInstant) -> Step {
        let Some(entry) = self.entries.get_mut(&number) else {
            return Step::default();
        };
        let hold = Hold::granted(entry.request.plan, sent_at, grant.waited, grant.lease);
        // If its caller does not want it any more, it is given back.
        entry.was_queued = true;
        if hold.lost(now).is_some() {
            return self.tell(number, Told::Late);
        }
        self.fresh.push(number);
        self.parked.remove(&number);
        entry.count(None, &mut self.unsettled);
        let held = Held::new(Arc::clone(&entry.request), grant.fence, entry.has_copies, hold);
        entry.stage = Stage::Granted(Arc::new(held));
        Step {
            woken: entry.waker.take(),
            ..Step::default()
        }
    }

    /// An outcome other than a grant. One that is sent again is not overtaken.
    pub fn tell(&mut self, number: u64, told: Told) -> Step {
        let Some(entry) = self.entries.get_mut(&number) else {
            return Step::default();
        };
        if !matches!(told, Told::Again(_)) {
            entry.count(None, &mut self.unsettled);
        }
        entry.stage = Stage::Told(told);
        self.parked.remove(&number);
        Step {
            woken: entry.waker.take(),
            ..Step::default()
        }
    }

    /// What an inbox has for a request of this number, by a call of GRANTS that was first sent at `sent_at`.
    pub fn on_answer(
        &mut self,
        number: u64,
        answer: &Answer<'_>,
        (sent_at, waited): (BootInstant, Duration),
        now: BootInstant,
    ) -> Step {
        let Some(entry) = self.entries.get(&number) else {
            return Step {
                gives_back: (answer.word == b"granted").then_some(false),
                ..Step::default()
            };
        };
        if matches!(entry.stage, Stage::Told(_) | Stage::Granted(_) | Stage::Held(_)) {
            return Step::default();
        }
        let was_awaited = entry.is_awaited(&self.parked);
        let mut step = match (answer.word, answer.grant(waited)) {
            (b"granted", Some(grant)) => self.on_granted(number, &grant, sent_at, now),
            (b"error", _) => self.tell_instead(number, Some(Box::new(answer.error()))),
            // No request of ours has a timeout of the server's.
            (b"timeout" | b"withdrawn", _) => self.tell_instead(number, None),
            _ => Step::default(),
        };
        step.is_urgent |= was_awaited;
        step
    }

    /// An answer says that it waits no longer. A reply that is under way may be older than that.
    fn tell_instead(&mut self, number: u64, error: Option<Box<Error>>) -> Step {
        if let Some(entry) = self.entries.get_mut(&number) {
            entry.sendings += 1;
        }
        self.tell(number, Told::Again(error))
    }

    /// Waits for the outcome of a request.
    pub fn poll_outcome(&mut self, number: u64, now: BootInstant, waker: &Waker) -> Poll<Outcome> {
        let Some(entry) = self.entries.get_mut(&number) else {
            // It was granted, and lost before its caller looked.
            return Poll::Ready(Outcome::Told(Told::Late));
        };
        match std::mem::replace(&mut entry.stage, Stage::Asking) {
            Stage::Told(told) => Poll::Ready(Outcome::Told(told)),
            Stage::Granted(held) if held.hold().lost(now).is_some() => {
                // Its caller was slow.
                entry.stage = Stage::Granted(held);
                Poll::Ready(Outcome::Told(Told::Late))
            }
            Stage::Granted(held) => {
                entry.stage = Stage::Held(Arc::clone(&held));
                Poll::Ready(Outcome::Granted(held))
            }
            stage => {
                entry.stage = stage;
                entry.waker = Some(waker.clone());
                Poll::Pending
            }
        }
    }

    /// Whether a request is queued, and whether the server has ever said that the lock is taken.
    pub fn is_queued(&self, number: u64) -> (bool, bool) {
        let entry = self.entries.get(&number);
        entry.map_or((false, false), |entry| {
            (matches!(entry.stage, Stage::Queued), entry.waits_since.is_some())
        })
    }

    /// The request that waits longest in the server's queue, and for how long, if that is to be told now. Seldom, so that a
    /// crowd costs nothing.
    pub fn take_noticed(&mut self, now: BootInstant) -> Option<(Arc<Request>, Duration)> {
        if self.looks_at.is_some_and(|at| now < at) {
            return None;
        }
        let untold = self.entries.values_mut().filter(|entry| !entry.is_noticed);
        let queued = untold.filter(|entry| matches!(entry.stage, Stage::Queued));
        let waiting = queued.filter_map(|entry| Some((entry.waits_since?, entry)));
        let (since, longest) = waiting.min_by_key(|(since, _)| *since)?;
        if now - since < NOTICED_AFTER {
            self.looks_at = Some(since + NOTICED_AFTER);
            return None;
        }
        longest.is_noticed = true;
        self.looks_at = Some(now + NOTICED_EVERY);
        Some((Arc::clone(&longest.request), now - since))
    }

    /// Whether requests wait for an inbox, or for older requests.
    pub fn has_parked(&self) -> bool {
        !self.parked.is_empty()
    }

    /// Takes a request out, because it is over. If the server has, or may have, it: whether copies of it may arrive late.
    pub fn leave(&mut self, number: u64) -> Option<bool> {
        let mut entry = self.entries.remove(&number)?;
        if matches!(entry.stage, Stage::Parked { .. }) {
            self.parked.remove(&number);
        }
        entry.count(None, &mut self.unsettled);
        if let Some(at) = entry.timer {
            self.due.remove(&(at, number));
        }
        // One that the background sends is given back by its reply, too.
        let is_known = entry.was_queued || entry.has_copies || matches!(entry.stage, Stage::AskingAgain);
        is_known.then_some(entry.has_copies)
    }

    /// The requests that wait to be sent again by the background, and those that it has sent.
    #[cfg(all(test, feature = "testing"))]
    pub fn parked(&self) -> impl Iterator<Item = (&Arc<Request>, bool)> {
        self.entries.values().filter_map(|entry| match entry.stage {
            Stage::Parked { .. } => Some((&entry.request, false)),
            Stage::AskingAgain => Some((&entry.request, true)),
            _ => None,
        })
    }

    // Holds.

    /// The hold of this number, and whether its caller knows of it.
    pub fn held(&self, number: u64) -> Option<(&Arc<Held>, bool)> {
        match &self.entries.get(&number)?.stage {
            Stage::Granted(held) => Some((held, false)),
            Stage::Held(held) => Some((held, true)),
            _ => None,
        }
    }

    /// All holds.
    pub fn holds(&self) -> impl Iterator<Item = &Arc<Held>> {
        self.entries.values().filter_map(|entry| match &entry.stage {
            Stage::Granted(held) | Stage::Held(held) => Some(held),
            _ => None,
        })
    }

    /// Whether something is held, or was since the last call.
    pub fn take_fresh(&mut self) -> bool {
        let fresh = std::mem::take(&mut self.fresh);
        fresh.iter().for_each(|number| self.set_timer(*number));
        !fresh.is_empty() || !self.due.is_empty()
    }

    /// When a hold is to be looked at.
    pub fn wakes_at(&self) -> Option<BootInstant> {
        self.due.first().map(|(at, _)| *at)
    }

    /// The next hold that is to be looked at now, or is to be renewed by then, which is soon enough.
    pub fn take_due(&mut self, now: BootInstant, by: BootInstant) -> Option<(BootInstant, Arc<Held>)> {
        while let Some(&(at, number)) = self.due.first() {
            let held = self.held(number).map(|(held, _)| Arc::clone(held));
            let is_soon = |held: &Arc<Held>| at <= by && held.hold().is_renewal_due(at, now);
            if at > now && !held.as_ref().is_some_and(is_soon) {
                break;
            }
            self.due.pop_first();
            if let Some(entry) = self.entries.get_mut(&number) {
                entry.timer = None;
            }
            if let Some(held) = held {
                return Some((at, held));
            }
        }
        None
    }

    /// Looks at a hold again when it says so.
    pub fn set_timer(&mut self, number: u64) {
        if let Some(entry) = self.entries.get_mut(&number)
            && let Stage::Granted(held) | Stage::Held(held) = &entry.stage
        {
            let at = held.hold().wakes_at();
            entry.set_timer(at, &mut self.due);
        }
    }

    // Inboxes.

    /// The inbox that readers are to create now.
    pub fn take_wanted(&mut self) -> Option<(InboxName, u64)> {
        (self.inbox.state == InboxState::Wanted).then(|| {
            self.inbox.state = InboxState::Opening;
            (self.inbox.name, self.inbox.epoch)
        })
    }

    /// All readers have created the inbox of this epoch.
    pub fn on_inbox_open(&mut self, epoch: u64, now: BootInstant) {
        if epoch == self.inbox.epoch {
            self.inbox.state = InboxState::Open;
            self.inbox.used_at = Some(now);
            // An earlier call, whose reply was lost, may have created one of this name that has ended with its requests.
            self.park_queued();
        }
    }

    /// Readers cannot create it for now, and go on trying. Locks that are free can be acquired meanwhile.
    pub fn on_inbox_unreachable(&mut self, epoch: u64) {
        self.has_failed |= epoch == self.inbox.epoch;
    }

    /// The server rejects it for good: the requests that have to wait cannot.
    pub fn on_inbox_refused(&mut self, epoch: u64, error: &Error) -> Vec<Waker> {
        if epoch != self.inbox.epoch {
            return Vec::new();
        }
        self.inbox.renew(InboxState::Closed);
        let parked = std::mem::take(&mut self.parked);
        let refuse = |number: u64| {
            let found_none = match self.entries.get(&number).map(|entry| &entry.stage) {
                Some(Stage::Parked { found_none }) => *found_none,
                _ => false,
            };
            let error = found_none.then(|| Box::new(error.clone()));
            self.tell(number, Told::Again(error)).woken
        };
        parked.into_iter().filter_map(refuse).collect()
    }

    /// Nothing will be read or sent for requests that wait any more.
    pub fn refuse_waiting(&mut self, error: &Error) -> Vec<Waker> {
        let waits = |entry: &Entry| {
            matches!(
                entry.stage,
                Stage::Parked { .. } | Stage::AskingAgain | Stage::Queued
            )
        };
        let waiting = self.entries.iter().filter(|(_, entry)| waits(entry));
        let waiting: Vec<u64> = waiting.map(|(number, _)| *number).collect();
        let refuse = |number: u64| self.tell_instead(number, Some(Box::new(error.clone()))).woken;
        waiting.into_iter().filter_map(refuse).collect()
    }

    /// It has ended, or its name is taken. Requests that waited there are sent again.
    pub fn on_inbox_ended(&mut self, epoch: u64) {
        if epoch != self.inbox.epoch {
            return;
        }
        self.inbox.renew(match self.parked.is_empty() {
            true => InboxState::Closed,
            false => InboxState::Wanted,
        });
        self.park_queued();
    }

    /// All that the server had in its queue are sent again.
    fn park_queued(&mut self) {
        let is_queued = |entry: &Entry| matches!(entry.stage, Stage::Queued);
        let queued = self.entries.iter().filter(|(_, entry)| is_queued(entry));
        let queued: Vec<u64> = queued.map(|(number, _)| *number).collect();
        queued.into_iter().for_each(|number| self.park(number, false));
    }

    /// After some time without anybody who waits the inbox is closed: `true`.
    pub fn close_idle_inbox(&mut self, epoch: u64, now: BootInstant) -> bool {
        let holds = |entry: &Entry| matches!(entry.stage, Stage::Granted(_) | Stage::Held(_));
        if self
            .entries
            .values()
            .any(|entry| entry.request.waits && !holds(entry))
        {
            self.inbox.used_at = Some(now);
        }
        let is_idle = self.inbox.used_at.is_none_or(|used_at| now - used_at > IDLE);
        if is_idle && epoch == self.inbox.epoch {
            self.inbox.renew(InboxState::Closed);
        }
        is_idle
    }

    /// Those that can be sent now: the inbox is there, or readers have failed once more. All of them, the oldest first.
    pub fn take_parked(&mut self) -> Vec<Arc<Request>> {
        if !self.inbox.is_open() && !std::mem::take(&mut self.has_failed) {
            return Vec::new();
        }
        let (entries, unsettled) = (&mut self.entries, &self.unsettled);
        let mut requests = Vec::new();
        self.parked.retain(|number| {
            let Some(entry) = entries.get_mut(number) else {
                return false;
            };
            // Not before an older one, which may be told to wait.
            let waits = unsettled
                .get(&entry.request.key_hash)
                .is_some_and(|unsettled| unsettled.asking > 0);
            if !waits {
                entry.stage = Stage::AskingAgain;
                requests.push(Arc::clone(&entry.request));
            }
            waits
        });
        requests
    }

    /// A reader, or the background, has failed; or a reader has received a reply.
    pub fn set_trouble(&mut self, error: Option<Error>, now: BootInstant) {
        self.trouble = error.map(|error| self.trouble.take().unwrap_or((error, now)));
    }

    pub fn trouble(&self) -> Option<(Error, BootInstant)> {
        self.trouble.clone()
    }

    /// Until there is an inbox. Newer requests for the same lock wait, too.
    fn park(&mut self, number: u64, found_none: bool) {
        if let Some(entry) = self.entries.get_mut(&number) {
            entry.stage = Stage::Parked { found_none };
            entry.count(Some(Unplaced::Parked), &mut self.unsettled);
            entry.failed_in = None;
            self.parked.insert(number);
            self.inbox.want();
        }
    }
}

impl Unsettled {
    fn of(&mut self, place: Unplaced) -> &mut u32 {
        match place {
            Unplaced::Asking => &mut self.asking,
            Unplaced::Parked => &mut self.parked,
        }
    }
}

impl Entry {
    fn new(request: &Arc<Request>) -> Self {
        Self {
            request: Arc::clone(request),
            stage: Stage::Asking,
            waker: None,
            timer: None,
            was_queued: false,
            has_copies: false,
            sendings: 0,
            unsettled: None,
            failed_in: None,
            waits_since: None,
            is_noticed: false,
        }
    }

    /// Whether others wait until it is known whether this one finds the lock free.
    fn is_awaited(&self, parked: &BTreeSet<u64>) -> bool {
        self.unsettled == Some(Unplaced::Asking) && !parked.is_empty()
    }

    /// Counts it among those that have no place in the server's queue yet, or not any more.
    fn count(&mut self, place: Option<Unplaced>, all: &mut ByNumber<Unsettled>) {
        let former = std::mem::replace(&mut self.unsettled, place);
        if former == place {
            return;
        }
        let key = self.request.key_hash;
        let unsettled = all.entry(key).or_default();
        if let Some(former) = former {
            *unsettled.of(former) -= 1;
        }
        if let Some(place) = place {
            *unsettled.of(place) += 1;
        }
        if unsettled.asking + unsettled.parked == 0 {
            all.remove(&key);
        }
    }

    /// One that is set too early does no harm, and is corrected then.
    fn set_timer(&mut self, at: Option<BootInstant>, due: &mut BTreeSet<(BootInstant, u64)>) {
        if let Some(at) = at
            && self.timer.is_none_or(|earlier| at < earlier)
        {
            let number = self.request.number;
            let earlier = self.timer.replace(at);
            earlier.map(|earlier| due.remove(&(earlier, number)));
            due.insert((at, number));
        }
    }

    fn report(&mut self, now: BootInstant) -> Option<Arc<Request>> {
        if self.waits_since.is_some() {
            return None;
        }
        self.waits_since = Some(now);
        Some(Arc::clone(&self.request))
    }
}

/// Where the servers put the answers to requests that wait.
///
/// ```text
///            NOINBOX                 created on all servers
///   Closed ----------> Wanted, Opening --------------------> Open
///      ^                  ^                                    |
///      | nobody waits     | a new name                         | NOINBOX
///      +------------------+------------------------------------+
/// ```
///
/// Each change takes a new name. A request that is under way with an old one finds no inbox, and so is never queued
/// before an older one that is to be sent again.
struct Inbox {
    name: InboxName,
    /// How many names there were before this one.
    epoch: u64,
    state: InboxState,
    /// When somebody waited last.
    used_at: Option<BootInstant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InboxState {
    /// Nobody waits, as far as known.
    Closed,
    /// Somebody waits: readers are to be started.
    Wanted,
    /// Readers create it.
    Opening,
    Open,
}

impl Inbox {
    fn new() -> Self {
        Self {
            name: random_name(),
            epoch: 0,
            state: InboxState::Closed,
            used_at: None,
        }
    }

    fn is_open(&self) -> bool {
        self.state == InboxState::Open
    }

    /// A request has to wait.
    fn want(&mut self) {
        if self.state == InboxState::Closed {
            self.renew(InboxState::Wanted);
        }
    }

    fn renew(&mut self, state: InboxState) {
        *self = Self {
            epoch: self.epoch + 1,
            state,
            ..Self::new()
        };
    }
}

#[cfg(test)]
mod tests;
