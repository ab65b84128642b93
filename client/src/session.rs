//! All acquisitions, holds and releases of a process, and what is to be sent for them. Does no I/O and reads no clock:
//! operations, replies, answers and times go in, commands come out.
//!
//! Each entry of the table is one acquisition in one of its stages, or another question to the server. Three rules make
//! it safe to lose replies, connections and servers:
//!
//! - Only the reply to the last sending of an entry counts.
//! - A request without a reply is sent again, until one arrives or its time is over.
//! - What was, or may have been, granted to nobody is given back.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::{Cmd, FromRedisValue, Value};

use crate::clock::{Backoff, BootInstant};
use crate::command::{Milliseconds, ProcessName};
use crate::error::Error;
use crate::events::{Event, EventKind, Hook};
use crate::hold::Action;
use crate::request::{Acknowledgement, Exit, Held, Identity, Operation, Reply};
use crate::stage::{Asking, Inbox, Question, Stage, Waiting};

/// How many commands may be without a reply. More would only wait in buffers.
const MAX_UNANSWERED: usize = 1000;
/// Holds that are due within this time are renewed together, if that is early enough for each of them.
const RENEWED_TOGETHER: Duration = Duration::from_millis(50);
/// After a lost connection, all holds are renewed within this time.
const RENEWED_AFTER_LOSS: Duration = Duration::from_millis(500);

/// One sending of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sending {
    pub entry: u64,
    nth: u32,
    pub sent_at: BootInstant,
    /// The key's hash, of an acquisition that was sent without an inbox.
    probe: Option<u64>,
}

/// What the session is told once.
pub(crate) struct SessionSettings {
    pub process: Arc<ProcessName>,
    /// Numbers for entries, shared with the callers.
    pub numbers: Arc<AtomicU64>,
    pub hook: Hook,
    /// What the end of the process waits for.
    pub exit: Arc<Exit>,
    /// Whether connections redirect requests, so that a late one may overtake others.
    pub is_cluster: bool,
    /// How long a caller waits for a server that does not reply.
    pub patience: Duration,
}

pub(crate) struct Session {
    pub(crate) settings: SessionSettings,
    pub(crate) entries: HashMap<u64, Entry>,
    /// Entries with something to send: acquisitions that wait, the oldest first, and all others.
    pub(crate) acquisitions: BTreeSet<u64>,
    urgent: VecDeque<u64>,
    /// Acquisitions that have to wait while readers cannot create the inbox. All are sent again when it is there, or when
    /// the readers have failed once more: in order, too.
    pub(crate) parked: BTreeSet<u64>,
    /// The keys, as hashes, of acquisitions that were sent without an inbox and have no reply yet.
    probes: HashSet<u64>,
    timers: BTreeSet<(BootInstant, u64)>,
    unanswered: usize,
    pub(crate) inbox: Inbox,
    has_connected: bool,
    /// Why the last call of a reader has failed, and since when.
    pub(crate) reader_trouble: Option<(Error, BootInstant)>,
    /// Who waits until all releases are done.
    settling: Vec<Reply<()>>,
    /// Grants that replicas must acknowledge.
    pub(crate) unacknowledged: Vec<(Arc<Held>, Acknowledgement)>,
}

pub(crate) struct Entry {
    pub(crate) stage: Stage,
    /// How often something was sent for it.
    sendings: u32,
    /// The sending whose reply counts.
    pub(crate) awaits: Option<u32>,
    /// Whether it is among those with something to send.
    is_ready: bool,
    /// Nothing is sent before that.
    resumes_at: Option<BootInstant>,
    /// When it has to be looked at, as the timers know it.
    timer: Option<BootInstant>,
    pub(crate) backoff: Backoff,
}

impl Session {
    pub fn new(settings: SessionSettings) -> Self {
        Self {
            settings,
            entries: HashMap::new(),
            acquisitions: BTreeSet::new(),
            urgent: VecDeque::new(),
            parked: BTreeSet::new(),
            probes: HashSet::new(),
            timers: BTreeSet::new(),
            unanswered: 0,
            inbox: Inbox::new(),
            has_connected: false,
            reader_trouble: None,
            settling: Vec::new(),
            unacknowledged: Vec::new(),
        }
    }

    /// Whether nothing is left to be sent or awaited. A lock that is kept until later counts, too.
    pub fn is_over(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether someone waits until all releases are done.
    pub fn is_settling(&self) -> bool {
        !self.settling.is_empty()
    }

    /// All releases are done.
    pub fn on_settled(&mut self) {
        for reply in self.settling.drain(..) {
            let _ = reply.send(Ok(()));
        }
    }

    /// When [`Session::on_time`] has something to do.
    pub fn wakes_at(&self) -> Option<BootInstant> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// A caller asks for something.
    pub fn on_operation(&mut self, operation: Operation, now: BootInstant) {
        match operation {
            Operation::Acquire(request, reply) => {
                let number = request.identity.number;
                let waiting = Box::new(Waiting::new(request, reply, now));
                self.insert(number, Stage::Waiting(waiting));
            }
            Operation::Abandon(number, pending) => self.abandon(number, pending, now),
            Operation::Release {
                held,
                keeps,
                reply,
                pending,
            } => self.release(&held, keeps, reply, pending, now),
            Operation::Settle(reply) => self.settling.push(reply),
            Operation::KeepInbox => self.inbox.keep(),
            Operation::Extend {
                held,
                lease,
                min_fence,
                reply,
            } => {
                let reply = Some(reply);
                let question = Question::Extend {
                    held,
                    lease,
                    min_fence,
                    reply,
                };
                self.ask(question, now + self.settings.patience);
            }
            Operation::Query {
                command,
                is_idempotent,
                within,
                reply,
            } => {
                let question = Question::Command {
                    command,
                    is_idempotent,
                    reply: Some(reply),
                };
                self.ask(question, now + within);
            }
        }
    }

    /// The commands to send next.
    pub fn take_commands(&mut self, now: BootInstant) -> Vec<(Sending, Cmd)> {
        let mut commands = Vec::new();
        while self.unanswered < MAX_UNANSWERED
            && let Some(number) = self.next_ready()
        {
            let Some(entry) = self.entries.get_mut(&number) else {
                continue;
            };
            if !std::mem::take(&mut entry.is_ready) {
                continue;
            }
            let probe = match entry.stage.waits_for() {
                Some(key) if self.inbox.is_closed() => {
                    let mut hasher = DefaultHasher::new();
                    key.hash(&mut hasher);
                    Some(hasher.finish())
                }
                _ => None,
            };
            if probe.is_some_and(|key| !self.probes.insert(key)) {
                // The first one would be told to wait, and this one could find the lock free a moment later.
                self.inbox.want();
                self.ready(number);
                continue;
            }
            let inbox = &self.inbox;
            let Some(command) = entry.stage.command(inbox, now) else {
                continue;
            };
            entry.sendings += 1;
            entry.awaits = Some(entry.sendings);
            self.unanswered += 1;
            let sending = Sending {
                entry: number,
                nth: entry.sendings,
                sent_at: now,
                probe,
            };
            commands.push((sending, command));
            self.set_timer(number);
        }
        commands
    }

    /// Whether there is something to send, for which a connection is needed.
    pub fn is_ready(&self) -> bool {
        !self.urgent.is_empty() || (!self.acquisitions.is_empty() && !self.inbox.is_opening())
    }

    fn next_ready(&mut self) -> Option<u64> {
        let urgent = self.urgent.pop_front();
        urgent.or_else(|| match self.inbox.is_opening() {
            // A newer request must not be queued before those that found no inbox.
            true => None,
            false => self.acquisitions.pop_first(),
        })
    }

    /// The reply to a command, or why there is none.
    pub fn on_reply(&mut self, sending: Sending, reply: Result<Value, Error>, now: BootInstant) {
        self.unanswered = self.unanswered.saturating_sub(1);
        if let Some(key) = sending.probe {
            self.probes.remove(&key);
        }
        let Some(entry) = self.entries.get_mut(&sending.entry) else {
            return;
        };
        if entry.awaits != Some(sending.nth) {
            return;
        }
        entry.awaits = None;
        if reply.is_ok() {
            entry.backoff = Backoff::default();
        }
        let number = sending.entry;
        match &mut entry.stage {
            Stage::Waiting(_) => self.on_acquire_reply(number, sending.sent_at, reply, now),
            Stage::Held(_) => self.on_renewed(number, sending.sent_at, reply, now),
            Stage::Releasing(_) => self.on_release_reply(number, reply, now),
            Stage::GivingBack(_) => self.on_given_back(number, reply, now),
            Stage::Asking(_) => self.on_answered(number, sending.sent_at, reply, now),
            Stage::Over => {}
        }
    }

    /// There is a connection.
    pub fn on_connected(&mut self) {
        self.has_connected = true;
    }

    /// The connection was lost. All leases are renewed soon: how long the server was away is not known.
    pub fn on_disconnected(&mut self, now: BootInstant) {
        let held = self
            .entries
            .iter()
            .filter_map(|(number, entry)| match &entry.stage {
                Stage::Held(holding) => Some((*number, Arc::clone(&holding.held))),
                _ => None,
            });
        for (number, held) in held.collect::<Vec<_>>() {
            let pause = RENEWED_AFTER_LOSS.mul_f64(rand::random_range(0.0..=1.0));
            held.hold().renew_by(now + pause);
            self.set_timer(number);
        }
    }

    /// There is no connection. Those who can wait do so; the others are told why.
    pub fn on_connect_failed(&mut self, error: &Error, now: BootInstant) {
        let urgent = self.urgent.iter().chain(&self.acquisitions).copied();
        for number in urgent.collect::<Vec<_>>() {
            let has_connected = self.has_connected;
            let Some(entry) = self.entries.get_mut(&number) else {
                continue;
            };
            let ends = match &mut entry.stage {
                Stage::Waiting(waiting) => {
                    waiting.note(error.clone(), now);
                    !waiting.is_patient() || !has_connected
                }
                Stage::Asking(_) => true,
                Stage::Releasing(releasing) => {
                    releasing.note(error.clone());
                    false
                }
                Stage::GivingBack(giving) if giving.until <= now => {
                    self.remove(number);
                    continue;
                }
                Stage::Held(holding) => {
                    if holding.renewal.take().is_some() {
                        entry.is_ready = false;
                        self.on_renewed(number, now, Err(error.clone()), now);
                    }
                    false
                }
                Stage::GivingBack(_) | Stage::Over => false,
            };
            // The caller of a release waits for a limited time from now on.
            self.set_timer(number);
            if ends {
                self.fail(number, error.clone(), now);
            }
        }
    }

    /// Does what is due.
    pub fn on_time(&mut self, now: BootInstant) {
        while let Some(&(at, number)) = self.timers.first() {
            if at > now + RENEWED_TOGETHER {
                break;
            }
            self.timers.pop_first();
            let Some(entry) = self.entries.get_mut(&number) else {
                continue;
            };
            entry.timer = None;
            if at > now && !entry.stage.is_renewed_by(at, now) {
                self.set_timer(number);
                break;
            }
            self.on_due(number, at, now);
        }
    }

    fn on_due(&mut self, number: u64, at: BootInstant, now: BootInstant) {
        let Some(entry) = self.entries.get_mut(&number) else {
            return;
        };
        if entry
            .resumes_at
            .take_if(|resumes_at| *resumes_at <= now)
            .is_some()
        {
            self.ready(number);
        }
        let Some(entry) = self.entries.get_mut(&number) else {
            return;
        };
        match &mut entry.stage {
            Stage::Waiting(waiting) if waiting.is_timed_out(now) => {
                let error = waiting.timeout(self.reader_trouble.as_ref(), now);
                self.fail(number, error, now);
            }
            Stage::Asking(asking) if asking.until <= now => {
                let error = asking.last.take().unwrap_or_else(Error::no_response);
                self.fail(number, error, now);
            }
            // A renewal that is due a little later is sent with the others now.
            Stage::Held(holding) => {
                let action = holding.held.hold().on_time(at.max(now));
                self.perform(number, action, now);
            }
            Stage::Releasing(_) => self.on_release_due(number, now),
            _ => {}
        }
        self.set_timer(number);
    }

    /// Grants that replicas must acknowledge.
    #[cfg(feature = "replicas")]
    pub fn take_unacknowledged(&mut self) -> Vec<(Arc<Held>, Acknowledgement)> {
        std::mem::take(&mut self.unacknowledged)
    }

    // Holds.

    fn on_renewed(
        &mut self,
        number: u64,
        sent_at: BootInstant,
        reply: Result<Value, Error>,
        now: BootInstant,
    ) {
        let Some(Stage::Held(holding)) = self.entries.get_mut(&number).map(|entry| &mut entry.stage) else {
            return;
        };
        let lease = reply.and_then(milliseconds);
        let held = Arc::clone(&holding.held);
        let action = held.hold().on_renewed(sent_at, &lease, now);
        let was_failing = std::mem::replace(&mut holding.is_failing, lease.is_err());
        match (lease, action) {
            (Err(error), None) => self.report(&held.identity, EventKind::RenewFailed { error }),
            (Ok(_), None) if was_failing => self.report(&held.identity, EventKind::RenewedAgain),
            _ => {}
        }
        self.perform(number, action, now);
    }

    fn perform(&mut self, number: u64, action: Option<Action>, now: BootInstant) {
        match action {
            Some(Action::Extend(lease)) => {
                if let Some(Stage::Held(holding)) =
                    self.entries.get_mut(&number).map(|entry| &mut entry.stage)
                {
                    holding.renewal = Some(lease);
                }
                self.ready(number);
            }
            Some(Action::NotifyLost(lost)) => self.lose(number, lost, now),
            None => {}
        }
        self.set_timer(number);
    }

    // Questions.

    fn ask(&mut self, question: Question, until: BootInstant) {
        let number = self.settings.numbers.fetch_add(1, Ordering::Relaxed);
        let asking = Asking {
            question,
            until,
            last: None,
        };
        self.insert(number, Stage::Asking(Box::new(asking)));
    }

    fn on_answered(
        &mut self,
        number: u64,
        sent_at: BootInstant,
        answer: Result<Value, Error>,
        now: BootInstant,
    ) {
        let Some(entry) = self.entries.get_mut(&number) else {
            return;
        };
        let Stage::Asking(asking) = &mut entry.stage else {
            return;
        };
        if let Err(error) = &answer
            && error.is_ambiguous()
            && asking.is_idempotent()
            && now < asking.until
        {
            asking.last = Some(error.clone());
            return self.retry(number, true, now);
        }
        let Some(entry) = self.entries.remove(&number) else {
            return;
        };
        self.forget_timer(number, &entry);
        if let Stage::Asking(asking) = entry.stage {
            self.answer(asking.question, sent_at, answer, now);
        }
    }

    fn answer(
        &mut self,
        question: Question,
        sent_at: BootInstant,
        answer: Result<Value, Error>,
        now: BootInstant,
    ) {
        match question {
            Question::Command { reply, .. } => {
                if let Some(reply) = reply {
                    // A caller that is gone does not want it.
                    let _ = reply.send(answer);
                }
            }
            Question::Extend { held, reply, .. } => {
                let lease = answer.and_then(milliseconds);
                let (action, outcome) = {
                    let mut hold = held.hold();
                    let action = hold.on_extended(sent_at, &lease, now);
                    let outcome = match (hold.lost(now), lease) {
                        (Some(lost), _) => Err(Error::Lost(lost)),
                        (None, lease) => lease.map(|_| hold.remaining(now)),
                    };
                    (action, outcome)
                };
                if let Some(reply) = reply {
                    let _ = reply.send(outcome);
                }
                self.perform(held.identity.number, action, now);
            }
        }
    }

    // The table.

    pub(crate) fn insert(&mut self, number: u64, stage: Stage) {
        let entry = Entry {
            stage,
            sendings: 0,
            awaits: None,
            is_ready: false,
            resumes_at: None,
            timer: None,
            backoff: Backoff::default(),
        };
        self.entries.insert(number, entry);
        self.ready(number);
        self.set_timer(number);
    }

    /// Ends an entry with an error.
    pub(crate) fn fail(&mut self, number: u64, error: Error, now: BootInstant) {
        match self.entries.get(&number).map(|entry| &entry.stage) {
            Some(Stage::Waiting(_)) => self.finish(number, Err(error), now),
            Some(Stage::Asking(_)) => {
                let Some(entry) = self.entries.remove(&number) else {
                    return;
                };
                self.forget_timer(number, &entry);
                if let Stage::Asking(asking) = entry.stage {
                    self.answer(asking.question, now, Err(error), now);
                }
            }
            _ => {}
        }
    }

    /// Moves an entry to another stage. No reply to what was sent before counts.
    pub(crate) fn enter(&mut self, number: u64, stage: Stage) -> Option<Stage> {
        self.acquisitions.remove(&number);
        let entry = self.entries.get_mut(&number)?;
        entry.awaits = None;
        entry.is_ready = false;
        entry.resumes_at = None;
        entry.backoff = Backoff::default();
        let earlier = std::mem::replace(&mut entry.stage, stage);
        self.set_timer(number);
        Some(earlier)
    }

    pub(crate) fn remove(&mut self, number: u64) {
        if let Some(entry) = self.entries.remove(&number) {
            self.forget_timer(number, &entry);
            self.acquisitions.remove(&number);
        }
    }

    /// There is something to send for this entry.
    pub(crate) fn ready(&mut self, number: u64) {
        let Some(entry) = self.entries.get_mut(&number) else {
            return;
        };
        let is_queueable = matches!(&entry.stage, Stage::Waiting(waiting) if waiting.is_patient());
        if std::mem::replace(&mut entry.is_ready, true) && !is_queueable {
            return;
        }
        match is_queueable {
            true => _ = self.acquisitions.insert(number),
            false => self.urgent.push_back(number),
        }
    }

    /// Sends again: at once if a connection was lost, since a new one takes its time; else after a pause.
    pub(crate) fn retry(&mut self, number: u64, is_connection_lost: bool, now: BootInstant) {
        if is_connection_lost {
            self.ready(number);
        } else if let Some(entry) = self.entries.get_mut(&number) {
            entry.resumes_at = Some(now + entry.backoff.pause());
        }
        self.set_timer(number);
    }

    /// Sends again at this time.
    pub(crate) fn resume_at(&mut self, number: u64, at: BootInstant) {
        if let Some(entry) = self.entries.get_mut(&number) {
            entry.resumes_at = Some(at);
        }
        self.set_timer(number);
    }

    pub(crate) fn set_timer(&mut self, number: u64) {
        let Some(entry) = self.entries.get_mut(&number) else {
            return;
        };
        let at = match (entry.stage.wakes_at(), entry.resumes_at) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        // One that is set too early does no harm, and is corrected then.
        if let Some(at) = at
            && entry.timer.is_none_or(|earlier| at < earlier)
        {
            let earlier = entry.timer.replace(at);
            earlier.map(|earlier| self.timers.remove(&(earlier, number)));
            self.timers.insert((at, number));
        }
    }

    fn forget_timer(&mut self, number: u64, entry: &Entry) {
        if let Some(at) = entry.timer {
            self.timers.remove(&(at, number));
        }
    }

    pub(crate) fn report(&self, identity: &Identity, kind: EventKind) {
        self.settings.hook.report(&Event {
            key: Arc::clone(&identity.key),
            owner: identity.owner.clone(),
            kind,
        });
    }
}

fn milliseconds(value: Value) -> Result<Duration, Error> {
    let Milliseconds(lease) = Milliseconds::from_redis_value(value).map_err(redis::RedisError::from)?;
    Ok(lease)
}

#[cfg(all(test, feature = "testing"))]
mod tests;
