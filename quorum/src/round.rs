//! Runs an acquisition: sends what it asks for, and tells it what happens.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{AbortHandle, Abortable};
use futures_util::stream::{FuturesUnordered, StreamExt};
use redis_dlock_client::{self as client, BootInstant, Owner};
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use crate::acquisition::{Acquisition, Input, Output};
use crate::error::{Error, NoQuorum, NodeFailure};
use crate::events::EventKind;
use crate::guard::Guard;
use crate::held::{Held, Hold};
use crate::servers::Servers;

/// How long to wait for replies that may make a raise needless.
const PATIENCE: Duration = Duration::from_millis(1);
/// How long a try whose votes were split stays in the queues.
const SPLIT_TRY: Duration = Duration::from_millis(100);
/// After a request failed, the next one is sent not before this time.
const PAUSE: Duration = Duration::from_millis(50);
/// While a request waits, the servers are in use.
const KEPT_IN_USE: Duration = Duration::from_secs(3);
/// After so many turns of the thread, what was asked for is sent.
const TURNS: usize = 5;
const DOORWAY: &[u8] = b":doorway";

/// An acquisition, as the application asked for it.
#[derive(Clone)]
pub(crate) struct Request {
    pub key: Arc<[u8]>,
    pub lease: Duration,
    pub is_shared: bool,
    pub max_hold: Option<Duration>,
    /// Whether it waits if others hold the lock.
    pub waits: bool,
    pub timeout: Duration,
}

/// What happened.
enum Step {
    Asked(usize, Result<Option<client::Guard>, Option<client::Error>>),
    Raised(usize, u64, Result<(), Option<client::Error>>),
    /// The hold on a server was lost, or the server may be asked again.
    AskAgain(usize),
    InDoorway(Result<client::Guard, client::Error>),
    PatienceOver,
    /// Whether somebody holds a majority.
    LookedAround(bool),
}

type Steps = FuturesUnordered<Abortable<Pin<Box<dyn Future<Output = Step> + Send>>>>;

struct Round {
    servers: Arc<Servers>,
    request: Request,
    begun: BootInstant,
    owner: Owner,
    acquisition: Acquisition,
    /// Whether it waits in the queues.
    queues: bool,
    steps: Steps,
    places: Vec<Place>,
    /// At which server it waits for the doorway.
    doorway: Option<(usize, AbortHandle)>,
    /// Whether a server said that others hold the lock.
    was_refused: bool,
    /// When to look around, as some servers have granted the lock and others have not.
    looks_at: Option<Instant>,
    /// What to report. `None`: the caller is gone.
    end: Option<EventKind>,
}

/// The request at one server.
#[derive(Default)]
struct Place {
    under_way: Vec<AbortHandle>,
    grant: Option<Arc<client::Guard>>,
    /// Why it has not granted the lock.
    failure: Option<NodeFailure>,
    /// Whether it rejects the request for good.
    is_rejected: bool,
    /// Whether it was asked for any fence, as it accepts no such one as the others.
    any_fence: bool,
}

/// How an attempt ended.
enum Outcome {
    Guard(Guard),
    Busy { may_be_split: bool },
    TooFew(NoQuorum),
}

/// `None`: others hold the lock, and the request does not wait.
pub(crate) async fn acquire(servers: Arc<Servers>, request: Request) -> Result<Option<Guard>, Error> {
    let mut round = Round::new(servers, request);
    let outcome = round.run_in_time().await;
    let took = round.took();
    round.end = Some(match &outcome {
        Ok(Some(guard)) => EventKind::Acquired {
            fence: guard.fence(),
            took,
        },
        refused => EventKind::NotAcquired {
            error: refused.as_ref().err().cloned(),
            took,
        },
    });
    outcome
}

impl Round {
    fn new(servers: Arc<Servers>, request: Request) -> Self {
        let count = servers.locks.len();
        Self {
            begun: BootInstant::now(),
            acquisition: Acquisition::new(count, !request.is_shared, 0),
            owner: Owner::unique(),
            queues: false,
            steps: FuturesUnordered::new(),
            places: (0..count).map(|_| Place::default()).collect(),
            doorway: None,
            was_refused: false,
            looks_at: None,
            end: None,
            servers,
            request,
        }
    }

    async fn run_in_time(&mut self) -> Result<Option<Guard>, Error> {
        self.servers.use_now(&self.request.key).await?;
        self.begin();
        let end = Instant::now()
            .checked_add(self.request.timeout)
            .filter(|_| self.request.waits);
        let outcome = match end {
            Some(end) => timeout_at(end, self.run()).await,
            None => Ok(self.run().await),
        };
        outcome.unwrap_or_else(|_| Err(self.timed_out()))
    }

    async fn run(&mut self) -> Result<Option<Guard>, Error> {
        if self.request.waits && self.servers.is_contended(&self.request.key) {
            self.was_refused = true;
            return self.wait().await;
        }
        loop {
            let servers = Arc::clone(&self.servers);
            let outputs = self.acquisition.attempt(|server| !servers.is_down(server));
            match self.follow(outputs).await {
                Outcome::Guard(guard) => return Ok(Some(guard)),
                Outcome::Busy { may_be_split } if self.request.waits || may_be_split => {
                    self.servers.set_contended(&self.request.key);
                    return self.wait().await;
                }
                Outcome::Busy { .. } => return Ok(None),
                Outcome::TooFew(failure) if self.is_final() => return Err(Error::NoQuorum(failure)),
                Outcome::TooFew(_) => self.servers.until_majority().await,
            }
            self.begin_anew();
        }
    }

    /// In the queues of the servers.
    async fn wait(&mut self) -> Result<Option<Guard>, Error> {
        self.queues = true;
        if !self.request.waits {
            // A try whose votes were split.
            return timeout(SPLIT_TRY, self.wait_in_queues())
                .await
                .unwrap_or(Ok(None));
        }
        self.wait_in_queues().await
    }

    async fn wait_in_queues(&mut self) -> Result<Option<Guard>, Error> {
        loop {
            self.begin_anew();
            let outputs = self.acquisition.queue();
            match self.follow(outputs).await {
                Outcome::Guard(guard) => return Ok(Some(guard)),
                Outcome::Busy { .. } => return Ok(None),
                Outcome::TooFew(failure) if self.is_final() => return Err(Error::NoQuorum(failure)),
                // The leases had expired before it could be handed out.
                Outcome::TooFew(_) => {}
            }
        }
    }

    /// Whether to give up: the request does not wait, or too many servers reject it for good.
    fn is_final(&self) -> bool {
        !self.request.waits || self.is_rejected()
    }

    fn is_rejected(&self) -> bool {
        let rejected = self.places.iter().filter(|place| place.is_rejected).count();
        self.servers.majority.is_blocked_by(rejected)
    }

    /// Nothing of an earlier attempt concerns the next one.
    fn begin_anew(&mut self) {
        let outputs = self.acquisition.end();
        for output in outputs {
            if let Output::GiveBack(server) = output {
                self.give_back(server);
            }
        }
        self.leave_doorway();
        self.looks_at = None;
        self.places.iter_mut().for_each(|place| place.any_fence = false);
        self.owner = Owner::unique();
        self.begin();
    }

    /// With what the clocks of the servers say by now.
    fn begin(&mut self) {
        let min_fence = self.servers.guess();
        self.acquisition = Acquisition::new(self.places.len(), !self.request.is_shared, min_fence);
    }

    async fn follow(&mut self, outputs: Vec<Output>) -> Outcome {
        if let Some(outcome) = self.perform(outputs) {
            return outcome;
        }
        let mut health = self.servers.subscribe();
        loop {
            let looks_at = self.looks_at.unwrap_or_else(Instant::now);
            let step = tokio::select! {
                // What there is to know comes before the time is up.
                biased;
                // Unless it was given back.
                Some(step) = self.steps.next() => step.ok(),
                () = sleep_until(looks_at), if self.looks_at.is_some() => {
                    self.look_around();
                    None
                }
                _ = timeout(KEPT_IN_USE, health.changed()) => {
                    self.on_health();
                    None
                }
            };
            let outputs = step.map(|step| self.on_step(step)).unwrap_or_default();
            if let Some(outcome) = self.perform(outputs) {
                return outcome;
            }
            if self.queues && self.is_rejected() {
                return Outcome::TooFew(self.no_quorum());
            }
        }
    }

    fn perform(&mut self, outputs: Vec<Output>) -> Option<Outcome> {
        for output in outputs {
            match output {
                Output::Ask {
                    server,
                    queues,
                    min_fence,
                } => self.ask(server, queues, min_fence),
                Output::GiveBack(server) => self.give_back(server),
                Output::Raise(server, to) => self.raise(server, to),
                Output::StartPatience => {
                    self.push(async {
                        sleep(PATIENCE).await;
                        Step::PatienceOver
                    });
                }
                Output::EnterDoorway => self.enter_doorway(),
                Output::HandOut(fence) => return self.hand_out(fence),
                Output::Busy { may_be_split } => {
                    self.was_refused = true;
                    return Some(Outcome::Busy { may_be_split });
                }
                Output::TooFew => return Some(Outcome::TooFew(self.no_quorum())),
            }
        }
        if self.queues {
            let has_grants = self.acquisition.has_grants();
            self.looks_at = match self.looks_at {
                Some(at) if has_grants => Some(at),
                _ if has_grants => Some(Instant::now() + self.a_while()),
                _ => None,
            };
        }
        None
    }

    /// At random, so that of clients that wait for each other one gives way first.
    fn a_while(&self) -> Duration {
        self.servers.node_timeout.mul_f64(rand::random_range(1.0..2.0))
    }

    fn push(&mut self, step: impl Future<Output = Step> + Send + 'static) -> AbortHandle {
        let (handle, registration) = AbortHandle::new_pair();
        let step: Pin<Box<dyn Future<Output = Step> + Send>> = Box::pin(step);
        self.steps.push(Abortable::new(step, registration));
        handle
    }

    fn push_at(&mut self, server: usize, step: impl Future<Output = Step> + Send + 'static) {
        let under_way = self.push(step);
        self.places[server].under_way.push(under_way);
    }

    fn ask(&mut self, server: usize, queues: bool, min_fence: u64) {
        let Request { key, lease, .. } = &self.request;
        let mut lock = self.servers.locks[server]
            .lock(key)
            .lease(*lease)
            .owner(&self.owner)
            .min_fence(min_fence);
        if self.request.is_shared {
            lock = lock.shared();
        }
        if let Some(time) = self.request.max_hold {
            lock = lock.max_hold(time);
        }
        let limit = self.servers.node_timeout;
        self.push_at(server, async move {
            let outcome = match queues {
                true => lock.acquire().await.map(Some).map_err(Some),
                false => match timeout(limit, lock.try_acquire()).await {
                    Ok(outcome) => outcome.map_err(Some),
                    Err(_) => Err(None),
                },
            };
            Step::Asked(server, outcome)
        });
    }

    /// Whatever was granted, and whatever is under way.
    fn give_back(&mut self, server: usize) {
        let place = &mut self.places[server];
        for under_way in place.under_way.drain(..) {
            under_way.abort();
        }
        place.grant = None;
    }

    fn raise(&mut self, server: usize, to: u64) {
        let Some(guard) = self.places[server].grant.clone() else {
            return;
        };
        let (limit, lease) = (self.servers.node_timeout, self.request.lease);
        self.push_at(server, async move {
            let outcome = timeout(limit, guard.raise_fence(lease, to)).await;
            let outcome = outcome.map_or(Err(None), |outcome| outcome.map_err(Some));
            Step::Raised(server, to, outcome)
        });
    }

    /// All at once then, in the same order as other clients, to wait in the queues of the servers.
    fn enter_doorway(&mut self) {
        self.leave_doorway();
        // What was given back may arrive later: it must not be re-entered.
        self.owner = Owner::unique();
        // Without any, until one is up: see `on_health`.
        let Some(first) = self.servers.first(|server| self.places[server].is_rejected) else {
            return;
        };
        let key = [&*self.request.key, DOORWAY].concat();
        // A client that is gone delays the others for this time.
        let lease = self.servers.node_timeout.min(self.request.lease);
        let lock = self.servers.locks[first].lock(key).lease(lease).min_fence(1);
        let handle = self.push(async move { Step::InDoorway(lock.acquire().await) });
        self.doorway = Some((first, handle));
    }

    fn leave_doorway(&mut self) {
        if let Some((_, waiting)) = self.doorway.take() {
            waiting.abort();
        }
    }

    fn on_step(&mut self, step: Step) -> Vec<Output> {
        match step {
            Step::Asked(server, Ok(Some(guard))) => self.on_granted(server, guard),
            Step::Asked(server, Ok(None)) => {
                self.was_refused = true;
                self.acquisition.on(Input::Refused(server))
            }
            Step::Asked(server, Err(error)) => self.on_failed(server, error),
            Step::Raised(server, to, Ok(())) => self.acquisition.on(Input::Raised(server, to)),
            Step::Raised(server, _, Err(Some(error))) if is_rejection(&error) => {
                self.acquisition.on(Input::RaiseRejected(server))
            }
            Step::Raised(server, _, Err(_)) | Step::AskAgain(server) => {
                self.acquisition.on(Input::Lost(server))
            }
            Step::InDoorway(Ok(doorway)) => self.on_doorway(doorway),
            Step::InDoorway(Err(error)) => {
                if let Some((first, _)) = self.doorway.take() {
                    match error.is_transient() {
                        true => self.servers.set_failure(first, Some(error)),
                        false => self.reject(first, error),
                    }
                }
                self.enter_doorway();
                vec![]
            }
            Step::PatienceOver => self.acquisition.on(Input::PatienceOver),
            Step::LookedAround(true) => {
                self.looks_at = Some(Instant::now() + self.a_while());
                vec![]
            }
            // Others may wait for what this client holds, and it for what they hold. It gives up everything, its places
            // too, and passes the doorway again: only then do the queues agree.
            Step::LookedAround(false) => self.acquisition.on(Input::Split),
        }
    }

    fn on_granted(&mut self, server: usize, guard: client::Guard) -> Vec<Output> {
        let (fence, token) = (guard.fence(), guard.token());
        let place = &mut self.places[server];
        place.failure = None;
        place.under_way.clear();
        place.grant = Some(Arc::new(guard));
        self.push_at(server, async move {
            token.cancelled().await;
            Step::AskAgain(server)
        });
        let fence = if self.request.is_shared { 0 } else { fence };
        self.acquisition.on(Input::Granted(server, fence))
    }

    fn on_failed(&mut self, server: usize, error: Option<client::Error>) -> Vec<Output> {
        if error.as_ref().is_some_and(is_rejection)
            && !std::mem::replace(&mut self.places[server].any_fence, true)
        {
            self.servers.forget_clock(server);
            return self.acquisition.on(Input::TooLarge(server));
        }
        match error {
            Some(error) if !error.is_transient() => self.reject(server, error),
            error => {
                self.servers.set_failure(server, error.clone());
                self.note(server, error);
                self.ask_again_when_up(server);
            }
        }
        self.acquisition.on(Input::Failed(server))
    }

    /// It would say the same again.
    fn reject(&mut self, server: usize, error: client::Error) {
        self.places[server].is_rejected = true;
        self.note(server, Some(error));
    }

    fn note(&mut self, server: usize, error: Option<client::Error>) {
        self.places[server].failure = Some(self.servers.failure(server, error));
    }

    fn ask_again_when_up(&mut self, server: usize) {
        if !self.queues {
            return;
        }
        let servers = Arc::clone(&self.servers);
        self.push_at(server, async move {
            sleep(PAUSE).await;
            let mut health = servers.subscribe();
            while !servers.is_up(server) && health.changed().await.is_ok() {}
            Step::AskAgain(server)
        });
    }

    /// Asks all servers, and leaves when that is sent.
    fn on_doorway(&mut self, doorway: client::Guard) -> Vec<Output> {
        self.doorway = None;
        let fence = doorway.fence();
        self.servers.thread.runtime.spawn(async move {
            // In the first one the requests are handed to the connections, which send them in the next ones.
            for _ in 0..TURNS {
                tokio::task::yield_now().await;
            }
            drop(doorway);
        });
        self.acquisition.on(Input::InDoorway(fence))
    }

    fn on_health(&mut self) {
        self.servers.keep_in_use(&self.request.key);
        let is_left = |first: usize| !self.servers.is_up(first);
        let waits_nowhere = self.queues && self.doorway.is_none() && self.acquisition.is_in_doorway();
        if waits_nowhere || self.doorway.as_ref().is_some_and(|(first, _)| is_left(*first)) {
            self.enter_doorway();
        }
    }

    fn look_around(&mut self) {
        self.looks_at = None;
        let (servers, key) = (Arc::clone(&self.servers), Arc::clone(&self.request.key));
        servers.keep_in_use(&key);
        self.push(async move { Step::LookedAround(servers.is_held(&key).await) });
    }

    /// Hands the lock out, unless that took longer than its leases. What is still under way joins it later.
    fn hand_out(&mut self, fence: u64) -> Option<Outcome> {
        let places = self.places.iter_mut().enumerate();
        let holds: Vec<_> = places
            .filter_map(|(server, place)| place.grant.take().map(|guard| Hold { server, guard }))
            .collect();
        let is_complete = holds.len() == self.places.len();
        let owned = (Arc::clone(&self.request.key), self.owner.clone(), fence);
        let held = Held::new(&self.servers, owned, holds);
        if held.remaining().is_zero() {
            return Some(Outcome::TooFew(self.no_quorum()));
        }
        self.servers.on_handed_out(fence);
        if !is_complete {
            let late = std::mem::take(&mut self.steps).filter_map(async |step| match step {
                Ok(Step::Asked(server, Ok(Some(guard)))) => {
                    let guard = Arc::new(guard);
                    Some(Hold { server, guard })
                }
                _ => None,
            });
            held.join_late(late);
        }
        Some(Outcome::Guard(Guard::new(held)))
    }

    fn no_quorum(&self) -> NoQuorum {
        let down = self.servers.failures();
        let failures = self.places.iter().zip(down);
        let failures = failures.filter_map(|(place, down)| place.failure.clone().or(down));
        self.servers
            .no_quorum(self.acquisition.grants(), failures.collect())
    }

    fn timed_out(&self) -> Error {
        let last = (!self.was_refused).then(|| self.no_quorum());
        Error::Timeout {
            key: String::from_utf8_lossy(&self.request.key).into_owned(),
            waited: Duration::from_millis(self.took().as_millis() as u64),
            last,
        }
    }

    fn took(&self) -> Duration {
        BootInstant::now() - self.begun
    }
}

impl Drop for Round {
    /// Reports how it ended, also if its caller is gone.
    fn drop(&mut self) {
        let (error, took) = (None, self.took());
        let kind = self.end.take();
        let kind = kind.unwrap_or(EventKind::NotAcquired { error, took });
        self.servers.report(&self.request.key, &self.owner, kind);
    }
}

fn is_rejection(error: &client::Error) -> bool {
    error.code() == Some("ERR")
}
