//! The way of a request: into the table, over a link to the server, and, if the lock is taken, until an answer comes.

use std::num::NonZeroU64;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::command::{Limit, Owner, Request};
use crate::error::{Error, Lost};
use crate::events::EventKind;
use crate::hold::{Backoff, BootInstant, Plan};
use crate::link::{Link, Sent, Turn};
use crate::session::Session;
use crate::table::{Held, Outcome, Sending, Told};

/// A lease that is shorter than the way to the server never arrives in time: after so many it is given up.
const MAX_LATE_GRANTS: u32 = 10;

/// What an application asks for.
#[derive(Clone)]
pub(crate) struct Wanted {
    pub begun: BootInstant,
    pub key: Arc<[u8]>,
    pub key_hash: u64,
    pub owner: Option<Owner>,
    pub limit: Limit,
    pub min_fence: Option<NonZeroU64>,
    pub plan: Plan,
    /// Whether to wait if the lock is taken.
    pub waits: bool,
    /// How long, if there is a limit.
    pub timeout: Option<Duration>,
}

/// An acquisition without an outcome. If it is dropped, the request is taken back.
pub(crate) struct Acquiring {
    session: Arc<Session>,
    /// Over which it is sent next.
    link: Arc<Link>,
    request: Arc<Request>,
    timeout: Option<Duration>,
    begun: BootInstant,
    /// The sending that has no reply yet.
    sent: Option<Sent>,
    /// Why there is no outcome, and since when.
    last: Option<Box<(Error, BootInstant)>>,
    backoff: Backoff,
    late_grants: u32,
    is_over: bool,
}

/// Acquires a lock; `None`: others hold it, or wait for it.
pub(crate) async fn acquire(mut acquiring: Acquiring) -> Result<Option<Arc<Held>>, Error> {
    let outcome = match acquiring.timeout {
        None => acquiring.run().await,
        // Apart, as there may be very many that wait without a limit.
        Some(limit) => Box::pin(acquiring.run_within(limit)).await,
    };
    acquiring.finish(&outcome);
    outcome.map_err(|error| error.at(acquiring.session.links.label()))
}

impl Acquiring {
    pub fn new(session: Arc<Session>, link: Arc<Link>, wanted: Wanted) -> Self {
        let timeout = match wanted.waits {
            true => wanted.timeout,
            // One that does not wait is repeated for a while if replies are lost.
            false => Some(session.patience()),
        };
        let number = session.next_number();
        let process = Arc::clone(&session.process);
        let request = Arc::new(Request {
            key: wanted.key,
            key_hash: wanted.key_hash,
            owner: wanted.owner.map_or_else(OnceLock::new, OnceLock::from),
            number,
            process,
            limit: wanted.limit,
            min_fence: wanted.min_fence,
            plan: wanted.plan,
            waits: wanted.waits,
        });
        Self {
            session,
            link,
            request,
            timeout,
            begun: wanted.begun,
            sent: None,
            last: None,
            backoff: Backoff::default(),
            late_grants: 0,
            is_over: false,
        }
    }

    async fn run_within(&mut self, limit: Duration) -> Result<Option<Arc<Held>>, Error> {
        let left = limit.saturating_sub(BootInstant::now() - self.begun);
        match timeout(left, self.run()).await {
            Ok(outcome) => outcome,
            Err(_) => Err(self.timed_out().await),
        }
    }

    /// Sends the request, and sends it again, until it has an outcome.
    async fn run(&mut self) -> Result<Option<Arc<Held>>, Error> {
        loop {
            // Apart, so that those who wait for the outcome are small.
            let pause = match Box::pin(self.ask()).await {
                Err(unsent) => self.pause_for_link(unsent)?,
                Ok(()) => match self.session.outcome(&self.request).await {
                    Outcome::Granted(held) => return Ok(Some(held)),
                    Outcome::Told(Told::Taken) => return Ok(None),
                    Outcome::Told(Told::Late) => self.begin_anew()?,
                    Outcome::Told(Told::Again(error)) => self.pause_after(error)?,
                },
            };
            Box::pin(sleep(pause)).await;
            self.link = self.session.links.here();
        }
    }

    /// Sends the request once. The table has the outcome, or will have it.
    ///
    /// # Errors
    ///
    /// There is no connection, and it was not sent.
    async fn ask(&mut self) -> Result<(), Error> {
        let Some(sending) = Arc::clone(&self.link).turn().await.map(|turn| self.send(turn))? else {
            return Ok(());
        };
        let reply = match &mut self.sent {
            Some(sent) => sent.reply().await,
            None => return Ok(()),
        };
        self.sent = None;
        if reply.is_ok() {
            (self.last, self.backoff) = (None, Backoff::default());
        }
        self.session.on_reply(&self.request, sending, reply);
        Ok(())
    }

    /// None: the table says that it must not be sent now.
    fn send(&mut self, turn: Turn) -> Option<Sending> {
        let begun = self.session.table().begin(&self.request, BootInstant::now());
        let Some((inbox, sending)) = begun else {
            self.session.wakeup.notify_one();
            return None;
        };
        self.sent = Some(turn.send(self.request.acquire(&inbox)));
        Some(sending)
    }

    /// Those who can wait for a connection do so. A link has its own pauses.
    fn pause_for_link(&mut self, unsent: Error) -> Result<Duration, Error> {
        if !self.request.waits || !self.session.links.has_connected() {
            return Err(unsent);
        }
        self.note(unsent);
        Ok(Duration::ZERO)
    }

    /// Before the request is sent again, perhaps to another node, or to the same one when it is ready.
    fn pause_after(&mut self, error: Option<Box<Error>>) -> Result<Duration, Error> {
        let Some(error) = error else {
            return Ok(self.backoff.pause());
        };
        let is_lost = error.is_ambiguous();
        // One that does not wait takes the server's word.
        let may_pass = is_lost || (self.request.waits && error.is_transient());
        if !may_pass {
            return Err(*error);
        }
        self.note(*error);
        Ok(self.backoff.pause_after(is_lost))
    }

    /// The grant came too late: it is given back, and asked for anew.
    fn begin_anew(&mut self) -> Result<Duration, Error> {
        self.late_grants += 1;
        let late = Error::Lost(Lost::LeaseExpired);
        if self.late_grants > MAX_LATE_GRANTS {
            return Err(late);
        }
        self.note(late);
        let request = self.request.anew(self.session.next_number());
        let pending = self.session.exit.begin_in_background();
        self.session.leave(&self.request, None, pending);
        self.request = Arc::new(request);
        Ok(self.backoff.pause())
    }

    fn note(&mut self, error: Error) {
        let since = match self.last.as_deref() {
            Some((last, since)) if *last == error => *since,
            _ => BootInstant::now(),
        };
        self.last = Some(Box::new((error, since)));
    }

    /// Why it is over when its time is.
    async fn timed_out(&mut self) -> Error {
        let (is_queued, was_told, trouble) = {
            let table = self.session.table();
            let (is_queued, was_told) = table.is_queued(self.request.number);
            (is_queued, was_told, table.trouble())
        };
        // Others are not blamed before the server has said that the lock is taken, or while its answers do not arrive.
        let silent = || (!was_told).then(|| (Error::no_response(), self.begun));
        let last = match self.last.take().map(|last| *last) {
            None if trouble.is_some() => trouble,
            None if is_queued => self.grace().await,
            last => last.or_else(silent),
        };
        let now = BootInstant::now();
        if !self.request.waits {
            return last.map_or_else(Error::no_response, |(last, _)| last);
        }
        let last_for = last.as_ref().map_or(Duration::ZERO, |(_, since)| now - *since);
        Error::Timeout {
            key: String::from_utf8_lossy(&self.request.key).into_owned(),
            waited: now - self.begun,
            last: last.map(|(last, _)| Box::new(last)),
            last_for,
        }
    }

    /// Whether it is no other holder, but a grace period of the server, for which it waits in the queue.
    async fn grace(&mut self) -> Option<(Error, BootInstant)> {
        const LIMIT: Duration = Duration::from_millis(200);
        // It changes nothing: an owner that waits holds no lock.
        let asking = self.session.send(|| self.request.extend_any());
        match timeout(LIMIT, asking).await {
            Ok(Err(grace @ Error::Grace(_))) => Some((grace, self.begun)),
            _ => None,
        }
    }

    fn finish(&mut self, outcome: &Result<Option<Arc<Held>>, Error>) {
        self.is_over = true;
        let took = || BootInstant::now() - self.begun;
        let error = match outcome {
            Ok(Some(held)) => {
                self.session.watch(held);
                let (fence, took) = (held.fence(), took);
                let acquired = || EventKind::Acquired { fence, took: took() };
                return self.session.report(&self.request, acquired);
            }
            Ok(None) => None,
            Err(error) => Some(error.clone()),
        };
        let not_acquired = || EventKind::NotAcquired { error, took: took() };
        self.session.report(&self.request, not_acquired);
        // As if it were dropped: what is in flight may still be granted.
        let pending = match self.sent {
            Some(_) => self.session.exit.begin(),
            None => self.session.exit.begin_in_background(),
        };
        self.session.leave(&self.request, self.sent.take(), pending);
    }
}

impl Drop for Acquiring {
    fn drop(&mut self) {
        if self.is_over || !self.session.is_at_home() {
            return;
        }
        let took = BootInstant::now() - self.begun;
        self.session
            .report(&self.request, || EventKind::NotAcquired { error: None, took });
        let pending = self.session.exit.begin();
        self.session.leave(&self.request, self.sent.take(), pending);
    }
}
