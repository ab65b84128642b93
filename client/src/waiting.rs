//! Acquisitions that wait for their grant.

use std::sync::Arc;
use std::time::Duration;

use redis::{FromRedisValue, Value};
use tokio::sync::oneshot;

use crate::clock::BootInstant;
use crate::command::Grant;
use crate::error::{Error, Lost};
use crate::events::EventKind;
use crate::hold::Hold;
use crate::release::given_back_until;
use crate::request::{Acquired, Held, Identity, Pending};
use crate::session::{Entry, Session};
use crate::stage::{Holding, Stage, Waiting};

/// What an inbox has for a request.
struct Answer<'a> {
    word: &'a [u8],
    id: &'a [u8],
    key: &'a [u8],
    owner: &'a [u8],
    rest: &'a [Value],
}

impl Session {
    /// The reply to an ACQUIRE.
    pub(crate) fn on_acquire_reply(
        &mut self,
        number: u64,
        sent_at: BootInstant,
        reply: Result<Value, Error>,
        now: BootInstant,
    ) {
        match reply {
            Ok(Value::Array(numbers)) if numbers.len() >= 4 => {
                match Grant::from_redis_value(Value::Array(numbers)) {
                    Ok(grant) => self.on_granted(number, &grant, sent_at, now),
                    Err(error) => self.fail(number, redis::RedisError::from(error).into(), now),
                }
            }
            Ok(Value::Nil) => self.finish(number, Ok(None), now),
            Ok(_) => self.on_queued(number, now),
            Err(error) if error.has_code("NOINBOX") => self.on_no_inbox(number, now),
            Err(error) => self.on_acquire_error(number, error, now),
        }
    }

    /// The request has its place in the server's queue.
    fn on_queued(&mut self, number: u64, now: BootInstant) {
        let epoch = self.inbox.epoch();
        let Some(waiting) = self.waiting(number) else {
            return;
        };
        waiting.last = None;
        waiting.is_queued = true;
        waiting.was_queued = true;
        waiting.found_no_inbox = false;
        let is_current = waiting.sent_to.is_some_and(|(sent_to, _)| sent_to == epoch);
        self.report_waiting(number);
        if !is_current {
            // It keeps its place, and its answer goes to the new inbox.
            self.ready(number);
        }
        self.set_timer(number);
        self.inbox.use_or_close(true, now);
    }

    /// The request has to wait, and there is no such inbox.
    fn on_no_inbox(&mut self, number: u64, now: BootInstant) {
        let epoch = self.inbox.epoch();
        let Some(waiting) = self.waiting(number) else {
            return;
        };
        waiting.last = None;
        waiting.is_queued = false;
        waiting.found_no_inbox = true;
        let sent_to = waiting.sent_to;
        self.report_waiting(number);
        let was_open = sent_to == Some((epoch, true));
        match was_open {
            true => self.end_inbox(epoch),
            false => self.inbox.want(),
        }
        if self.inbox.is_unreachable() {
            self.parked.insert(number);
        } else {
            // A node that readers do not know yet has none the next time either.
            self.retry(number, !was_open, now);
        }
    }

    fn on_acquire_error(&mut self, number: u64, error: Error, now: BootInstant) {
        let patience = self.settings.patience;
        let Some(waiting) = self.waiting(number) else {
            return;
        };
        let is_lost = error.is_ambiguous();
        waiting.has_copies |= is_lost;
        // One that does not wait takes the server's word.
        let is_awaited = is_lost || (waiting.is_patient() && error.is_transient());
        if !is_awaited {
            return self.fail(number, error, now);
        }
        // Another node, or the same one soon, has the lock: the server says where and when.
        waiting.note(error, now);
        if !waiting.is_patient() {
            waiting.tried_until.get_or_insert(now + patience);
        }
        self.retry(number, is_lost, now);
    }

    /// A server does not reply to its reader: answers may be late.
    pub fn on_reader_failed(&mut self, error: Error, now: BootInstant) {
        self.reader_trouble.get_or_insert((error, now));
    }

    /// The reader of a server has received these answers, by a call that was first sent at `sent_at`.
    pub fn on_answers(
        &mut self,
        sent_at: BootInstant,
        waited: Duration,
        answers: &[Value],
        now: BootInstant,
    ) {
        self.reader_trouble = None;
        for answer in answers.iter().filter_map(Answer::of) {
            let process = &self.settings.process;
            if let Some((number, attempt)) = Identity::parse(answer.id, process) {
                self.on_answer(number, attempt, &answer, (sent_at, waited), now);
            }
        }
    }

    fn on_answer(
        &mut self,
        number: u64,
        attempt: u32,
        answer: &Answer<'_>,
        (sent_at, waited): (BootInstant, Duration),
        now: BootInstant,
    ) {
        let is_known = match self.entries.get(&number).map(|entry| &entry.stage) {
            Some(Stage::Waiting(waiting)) => waiting.request.identity.attempt == attempt,
            Some(Stage::Held(holding)) => holding.held.identity.attempt == attempt,
            Some(Stage::Releasing(releasing)) => releasing.held.identity.attempt == attempt,
            _ => false,
        };
        match answer.word {
            b"granted" if !is_known => {
                // Nobody waits for it, or not any more.
                let (key, owner) = (answer.key, answer.owner);
                let identity = Identity::answered(key, owner, number, attempt, &self.settings.process);
                let lease = answer.grant(waited).map_or(Duration::ZERO, |grant| grant.lease);
                self.give_back(number, identity, None, given_back_until(lease, now));
            }
            _ if !is_known || self.waiting(number).is_none() => {}
            b"granted" => {
                if let Some(grant) = answer.grant(waited) {
                    self.on_granted(number, &grant, sent_at, now);
                }
            }
            b"error" => self.on_acquire_error(number, answer.error(), now),
            // No request of ours has a timeout of the server's.
            b"timeout" | b"withdrawn" => self.retry(number, false, now),
            _ => {}
        }
    }

    fn on_granted(&mut self, number: u64, grant: &Grant, sent_at: BootInstant, now: BootInstant) {
        let Some(waiting) = self.waiting(number) else {
            return;
        };
        let request = &waiting.request;
        let hold = Hold::granted(request.plan, sent_at, grant.waited, grant.lease);
        if hold.lost(now).is_some() {
            return self.on_granted_late(number, now);
        }
        let held = Arc::new(Held::new(
            request.identity.clone(),
            grant.fence,
            request.min_fence.is_some(),
            hold,
        ));
        let acknowledgement = request.acknowledgement;
        let holding = Holding::new(Arc::clone(&held), waiting.has_copies);
        let Some(Stage::Waiting(waiting)) = self.enter(number, Stage::Held(holding)) else {
            return;
        };
        if let Some(acknowledgement) = acknowledgement {
            self.unacknowledged.push((held, acknowledgement));
            if let Some(Stage::Held(holding)) = self.entries.get_mut(&number).map(|entry| &mut entry.stage) {
                holding.unconfirmed = Some((waiting.reply, waiting.begun));
            }
            return;
        }
        self.hand_over(&held, waiting.reply, waiting.begun, now);
    }

    /// Tells the caller that it holds the lock.
    pub(crate) fn hand_over(
        &mut self,
        held: &Arc<Held>,
        reply: oneshot::Sender<Acquired>,
        begun: BootInstant,
        now: BootInstant,
    ) {
        let (fence, took) = (held.fence(), now - begun);
        self.report(&held.identity, EventKind::Acquired { fence, took });
        // A caller that is gone has abandoned it, or will: then it is released.
        let _ = reply.send(Ok(Some(Arc::clone(held))));
    }

    /// The lease has expired before the grant arrived. It is given back, and asked for anew.
    fn on_granted_late(&mut self, number: u64, now: BootInstant) {
        let patience = self.settings.patience;
        let Some(waiting) = self.waiting(number) else {
            return;
        };
        let (late, lease) = (waiting.request.identity.clone(), waiting.request.plan.lease);
        waiting.request.identity.attempt += 1;
        waiting.has_copies = false;
        waiting.is_queued = false;
        waiting.was_queued = false;
        waiting.note(Error::Lost(Lost::LeaseExpired), now);
        if !waiting.is_patient() {
            waiting.tried_until.get_or_insert(now + patience);
        }
        if let Some(entry) = self.entries.get_mut(&number) {
            // A reply that is on its way belongs to the late attempt.
            entry.awaits = None;
        }
        self.give_back_late(late, given_back_until(lease, now));
        self.retry(number, false, now);
    }

    /// The caller is gone.
    pub(crate) fn abandon(&mut self, number: u64, pending: Pending, now: BootInstant) {
        let held = match self.entries.get(&number).map(|entry| &entry.stage) {
            Some(Stage::Waiting(_)) => return self.finish_with(number, Ok(None), Some(pending), now),
            Some(Stage::Held(holding)) if holding.unconfirmed.is_some() => {
                self.refuse(number, Ok(None), Some(pending), now);
                return;
            }
            Some(Stage::Held(holding)) => Arc::clone(&holding.held),
            _ => return,
        };
        // It was granted, but the caller did not learn of it.
        self.release(&held, false, None, pending, now);
    }

    /// Ends an acquisition without the lock.
    pub(crate) fn finish(&mut self, number: u64, outcome: Acquired, now: BootInstant) {
        self.finish_with(number, outcome, None, now);
    }

    fn finish_with(&mut self, number: u64, outcome: Acquired, pending: Option<Pending>, now: BootInstant) {
        let Some(entry) = self.entries.get(&number) else {
            return;
        };
        let is_unanswered = entry.awaits.is_some();
        let Some(Stage::Waiting(waiting)) = self.enter(number, Stage::Over) else {
            return;
        };
        let Waiting {
            request,
            reply,
            begun,
            was_queued,
            has_copies,
            ..
        } = *waiting;
        let (error, took) = (outcome.as_ref().err().cloned(), now - begun);
        let pending = pending.unwrap_or_else(|| self.settings.exit.begin_in_background());
        self.report(&request.identity, EventKind::NotAcquired { error, took });
        let _ = reply.send(outcome);
        if was_queued || has_copies || is_unanswered {
            let until = given_back_until(request.plan.lease, now);
            self.give_back(number, request.identity, Some(pending), until);
        } else {
            self.remove(number);
        }
    }

    /// Ends an acquisition that was granted, but not acknowledged by its replicas: `false` if it was.
    pub(crate) fn refuse(
        &mut self,
        number: u64,
        outcome: Acquired,
        pending: Option<Pending>,
        now: BootInstant,
    ) -> bool {
        let Some(Stage::Held(holding)) = self.entries.get_mut(&number).map(|entry| &mut entry.stage) else {
            return false;
        };
        let Some((reply, begun)) = holding.unconfirmed.take() else {
            return false;
        };
        let identity = holding.held.identity.clone();
        let until = given_back_until(holding.held.hold().remaining(now), now);
        let (error, took) = (outcome.as_ref().err().cloned(), now - begun);
        let pending = pending.unwrap_or_else(|| self.settings.exit.begin_in_background());
        self.report(&identity, EventKind::NotAcquired { error, took });
        let _ = reply.send(outcome);
        self.enter(number, Stage::Over);
        self.give_back(number, identity, Some(pending), until);
        true
    }

    /// The inbox is open: those who wait are queued, the oldest first.
    pub fn on_inbox_open(&mut self, epoch: u64, now: BootInstant) {
        if epoch == self.inbox.epoch() {
            self.inbox.opened(now);
            self.unpark();
        }
    }

    /// A reader cannot create the inbox. It goes on trying.
    pub fn on_inbox_unreachable(&mut self, epoch: u64) {
        if epoch == self.inbox.epoch() {
            self.inbox.failed();
            self.unpark();
        }
    }

    /// Requests that have to wait cannot.
    pub fn on_inbox_refused(&mut self, epoch: u64, error: &Error, now: BootInstant) {
        if epoch != self.inbox.epoch() {
            return;
        }
        self.inbox.refused();
        let has_to_wait =
            |entry: &Entry| matches!(&entry.stage, Stage::Waiting(waiting) if waiting.found_no_inbox);
        let waiting = self.entries.iter().filter(|(_, entry)| has_to_wait(entry));
        for number in waiting.map(|(number, _)| *number).collect::<Vec<_>>() {
            self.fail(number, error.clone(), now);
        }
        self.unpark();
    }

    fn unpark(&mut self) {
        for number in std::mem::take(&mut self.parked) {
            self.ready(number);
        }
    }

    /// The inbox has ended, or its name is taken. Requests that waited there are sent again.
    pub fn end_inbox(&mut self, epoch: u64) {
        if epoch != self.inbox.epoch() {
            return;
        }
        let waiting = self.entries.iter_mut().filter_map(|(number, entry)| {
            let Stage::Waiting(waiting) = &mut entry.stage else {
                return None;
            };
            std::mem::take(&mut waiting.is_queued).then_some(*number)
        });
        let numbers: Vec<u64> = waiting.collect();
        self.inbox.ended(!numbers.is_empty());
        for number in numbers {
            self.ready(number);
        }
        self.unpark();
    }

    /// Called from time to time while there are readers: whether they can go, because nobody has waited for a while.
    pub fn close_idle_inbox(&mut self, now: BootInstant) -> bool {
        let is_used = self.entries.values().any(|entry| match &entry.stage {
            Stage::Waiting(waiting) => waiting.is_patient(),
            _ => false,
        });
        self.inbox.use_or_close(is_used, now)
    }

    fn report_waiting(&mut self, number: u64) {
        let Some(waiting) = self.waiting(number) else {
            return;
        };
        if !std::mem::replace(&mut waiting.is_reported, true) {
            let identity = waiting.request.identity.clone();
            self.report(&identity, EventKind::Waiting);
        }
    }

    fn waiting(&mut self, number: u64) -> Option<&mut Waiting> {
        match self.entries.get_mut(&number).map(|entry| &mut entry.stage) {
            Some(Stage::Waiting(waiting)) => Some(waiting),
            _ => None,
        }
    }
}

impl<'a> Answer<'a> {
    /// Answers that this client does not know are ignored.
    fn of(value: &'a Value) -> Option<Self> {
        let Value::Array(fields) = value else {
            return None;
        };
        let [word, id, key, owner, rest @ ..] = &fields[..] else {
            return None;
        };
        Some(Self {
            word: bytes(word)?,
            id: bytes(id)?,
            key: bytes(key)?,
            owner: bytes(owner)?,
            rest,
        })
    }

    /// What was granted. It waited for as long as the reply with it.
    fn grant(&self, waited: Duration) -> Option<Grant> {
        let [Value::Int(fence), Value::Int(holds), Value::Int(lease_ms), ..] = self.rest else {
            return None;
        };
        Some(Grant {
            fence: u64::try_from(*fence).ok()?,
            holds: u64::try_from(*holds).ok()?,
            lease: Duration::from_millis(u64::try_from(*lease_ms).ok()?),
            waited,
        })
    }

    fn error(&self) -> Error {
        let message = self.rest.first().and_then(bytes).unwrap_or_default();
        let message = String::from_utf8_lossy(message);
        let (code, detail) = message.split_once(' ').unwrap_or((&message, ""));
        redis::make_extension_error(code.to_owned(), Some(detail.to_owned())).into()
    }
}

fn bytes(value: &Value) -> Option<&[u8]> {
    match value {
        Value::BulkString(bytes) => Some(bytes),
        Value::SimpleString(text) => Some(text.as_bytes()),
        _ => None,
    }
}
