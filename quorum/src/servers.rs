//! The servers: which are down, what their clocks say, and whether they are as many as they seem.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::future::{join_all, join3};
use redis_dlock_client::redis::{Value, cmd};
use redis_dlock_client::{self as client, BootInstant, Owner};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::clocks::Clocks;
use crate::error::{Error, NoQuorum, NodeFailure};
use crate::events::{Event, EventKind, Hook};
use crate::majority::Majority;
use crate::thread::Thread;

/// How often servers are asked for the time while they are in use.
const LOOKS_EVERY: Duration = Duration::from_secs(1);
/// Between attempts, and between looks.
const PAUSE: Duration = Duration::from_millis(50);
/// Servers that were not used for this long are not looked at.
const IDLE: Duration = Duration::from_secs(10);
/// A lock that was busy this long ago is queued for at once.
const CONTENDED_FOR: Duration = Duration::from_secs(1);
/// More keys than this are not remembered.
const MAX_CONTENDED: usize = 10_000;

pub(crate) struct Servers {
    /// The locks of each server.
    pub locks: Vec<client::Locks>,
    /// Their addresses.
    pub labels: Vec<Arc<str>>,
    pub majority: Majority,
    /// How long a server may take to reply.
    pub node_timeout: Duration,
    hook: Hook,
    pub thread: Thread,
    health: watch::Sender<Vec<Server>>,
    /// The last use.
    used: watch::Sender<Option<Use>>,
    begun: BootInstant,
    known: Mutex<Known>,
}

/// What is known of a server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Server {
    was_asked: bool,
    /// Why it is down, if it is.
    failure: Option<NodeFailure>,
    /// The same for all names of one server.
    run_id: Option<String>,
}

impl Server {
    fn is_up(&self) -> bool {
        self.was_asked && self.failure.is_none()
    }
}

/// When the servers were used, and for which key.
type Use = (BootInstant, Arc<[u8]>);

struct Known {
    clocks: Clocks,
    contended: HashMap<Arc<[u8]>, BootInstant>,
}

impl Servers {
    pub fn new(
        locks: Vec<client::Locks>,
        labels: Vec<Arc<str>>,
        node_timeout: Duration,
        hook: Hook,
        thread: Thread,
    ) -> Arc<Self> {
        let count = locks.len();
        let this = Arc::new(Self {
            locks,
            labels,
            majority: Majority::of(count),
            node_timeout,
            hook,
            thread,
            health: watch::Sender::new(vec![Server::default(); count]),
            used: watch::Sender::new(None),
            begun: BootInstant::now(),
            known: Mutex::new(Known {
                clocks: Clocks::new(count),
                contended: HashMap::new(),
            }),
        });
        for server in 0..count {
            this.thread.runtime.spawn(look(Arc::downgrade(&this), server));
        }
        this
    }

    /// Before a request: waits, the first time only, until each server has been looked at.
    pub async fn use_now(&self, key: &Arc<[u8]>) -> Result<(), Error> {
        self.keep_in_use(key);
        let asked = |servers: &[Server]| servers.iter().filter(|server| server.was_asked).count();
        let mut health = self.health.subscribe();
        let all = health.wait_for(|servers| asked(servers) == servers.len());
        // A silent one is not waited for.
        if timeout(self.node_timeout / 10, all).await.is_err() {
            // The sender lives as long as this.
            let _ = health
                .wait_for(|servers| asked(servers) >= self.majority.needed())
                .await;
        }
        let servers = self.health.borrow().clone();
        match find_alias(&servers) {
            Some((one, other)) => Err(Error::Invalid(format!(
                "{} and {} are the same server, which has one vote: name each server once",
                self.labels[one], self.labels[other]
            ))),
            None => Ok(()),
        }
    }

    /// Whether a majority replies.
    pub async fn ping(&self) -> Result<(), Error> {
        let pings = join_all(self.locks.iter().map(client::Locks::ping));
        let pings = self.thread.lend(pings).await;
        let agreed = pings.iter().flatten().count();
        if agreed >= self.majority.needed() {
            return Ok(());
        }
        let failures = pings
            .into_iter()
            .enumerate()
            .filter_map(|(server, ping)| Some(self.failure(server, Some(ping.err()?))));
        Err(Error::NoQuorum(self.no_quorum(agreed, failures.collect())))
    }

    pub fn failure(&self, server: usize, error: Option<client::Error>) -> NodeFailure {
        NodeFailure {
            server: Arc::clone(&self.labels[server]),
            error,
        }
    }

    pub fn no_quorum(&self, agreed: usize, failures: Vec<NodeFailure>) -> NoQuorum {
        NoQuorum {
            needed: self.majority.needed(),
            agreed,
            failures,
        }
    }

    pub fn report(&self, key: &Arc<[u8]>, owner: &Owner, kind: EventKind) {
        self.hook.report(&Event {
            key: Arc::clone(key),
            owner: owner.clone(),
            kind,
        });
    }

    /// Sees to it that the servers are looked at.
    pub fn keep_in_use(&self, key: &Arc<[u8]>) {
        self.used
            .send_replace(Some((BootInstant::now(), Arc::clone(key))));
    }

    /// Whether it is known to be down. At first nothing is known.
    pub fn is_down(&self, server: usize) -> bool {
        let health = self.health.borrow();
        health.get(server).is_none_or(|server| server.failure.is_some())
    }

    pub fn is_up(&self, server: usize) -> bool {
        self.health.borrow().get(server).is_some_and(Server::is_up)
    }

    /// Waits until enough servers are up.
    pub async fn until_majority(&self) {
        let mut health = self.health.subscribe();
        // Who has failed just now is looked at soon.
        sleep(PAUSE).await;
        let up = |servers: &Vec<Server>| servers.iter().filter(|server| server.is_up()).count();
        let _ = health
            .wait_for(|servers| up(servers) >= self.majority.needed())
            .await;
    }

    /// The first server in the configured order that is up, apart from those that reject a request.
    pub fn first(&self, is_rejected: impl Fn(usize) -> bool) -> Option<usize> {
        (0..self.locks.len()).find(|server| self.is_up(*server) && !is_rejected(*server))
    }

    /// Is told when what is known of a server changes.
    pub fn subscribe(&self) -> watch::Receiver<Vec<Server>> {
        self.health.subscribe()
    }

    /// A server has not replied to a request in time, or has rejected it.
    pub fn set_failure(&self, server: usize, error: Option<client::Error>) {
        let failure = self.failure(server, error);
        self.health.send_if_modified(|servers| {
            servers
                .get_mut(server)
                .is_some_and(|server| server.failure.replace(failure).is_none())
        });
    }

    /// By server, why it is down, if it is.
    pub fn failures(&self) -> Vec<Option<NodeFailure>> {
        let health = self.health.borrow();
        health.iter().map(|server| server.failure.clone()).collect()
    }

    /// The fence to ask for.
    pub fn guess(&self) -> u64 {
        self.known().clocks.guess(self.now(), |server| self.is_up(server))
    }

    fn now(&self) -> Duration {
        BootInstant::now() - self.begun
    }

    pub fn forget_clock(&self, server: usize) {
        self.known().clocks.forget(server);
    }

    pub fn on_handed_out(&self, fence: u64) {
        self.known().clocks.on_handed_out(fence);
    }

    pub fn is_contended(&self, key: &Arc<[u8]>) -> bool {
        let now = BootInstant::now();
        self.known()
            .contended
            .get(key)
            .is_some_and(|at| now - *at < CONTENDED_FOR)
    }

    pub fn set_contended(&self, key: &Arc<[u8]>) {
        let (mut known, now) = (self.known(), BootInstant::now());
        if known.contended.len() >= MAX_CONTENDED {
            known.contended.retain(|_, at| now - *at < CONTENDED_FOR);
        }
        if known.contended.len() < MAX_CONTENDED {
            known.contended.insert(Arc::clone(key), now);
        }
    }

    /// Whether somebody holds the lock on a majority.
    pub async fn is_held(&self, key: &[u8]) -> bool {
        let limit = self.node_timeout / 2;
        let command = cmd("DLOCK.OWNER").arg(key).take();
        let locks = self.locks.iter().enumerate();
        let asked = locks.filter(|(server, _)| self.is_up(*server));
        let asked = asked.map(|(_, locks)| timeout(limit, locks.query::<Option<Owner>>(&command)));
        let replies = join_all(asked).await;
        let owners: Vec<Owner> = replies
            .into_iter()
            .filter_map(|reply| reply.ok()?.ok()?)
            .collect();
        let held_by = |owner| owners.iter().filter(|other| *other == owner).count();
        owners
            .iter()
            .any(|owner| held_by(owner) >= self.majority.needed())
    }

    /// Looks at a server, and notes whether it is there.
    async fn look_at(&self, server: usize, key: &[u8]) {
        let (run_id, failure) = match self.find_run_id(server, key).await {
            Ok(run_id) => (run_id, None),
            Err(error) => (None, Some(self.failure(server, error))),
        };
        self.health.send_if_modified(|servers| {
            let Some(known) = servers.get_mut(server) else {
                return false;
            };
            let is_news = !known.was_asked || known.failure.is_some() != failure.is_some();
            known.was_asked = true;
            known.run_id = run_id.or(known.run_id.take());
            known.failure = failure;
            is_news
        });
    }

    /// The server's run id, or why it is down. Also asks for the time.
    async fn find_run_id(&self, server: usize, key: &[u8]) -> Result<Option<String>, Option<client::Error>> {
        let locks = &self.locks[server];
        // Nobody holds a lock as this owner. A server that grants nothing for now says so.
        let probe = cmd("DLOCK.EXTEND").arg(key).arg(Owner::unique()).arg(1).take();
        let (time, info) = (cmd("TIME"), cmd("INFO").arg("server").take());
        let asking = join3(
            locks.query::<Value>(&probe),
            locks.query::<(u64, u64)>(&time),
            locks.query::<String>(&info),
        );
        let Ok((probe, time, info)) = timeout(self.node_timeout, asking).await else {
            return Err(None);
        };
        if let Err(error) = probe
            && error.is_transient()
        {
            return Err(Some(error));
        }
        // Without permission for it, the guess is the process's own last fence.
        if let Ok((seconds, micros)) = time {
            let unix_ms = seconds * 1000 + micros / 1000;
            self.known().clocks.on_time(server, unix_ms, self.now());
        }
        Ok(info.ok().and_then(|info| {
            let line = info.lines().find_map(|line| line.strip_prefix("run_id:"));
            line.map(|id| id.trim_end().to_owned())
        }))
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        // Each change under it is a whole one.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The first two names of one server.
fn find_alias(servers: &[Server]) -> Option<(usize, usize)> {
    servers.iter().enumerate().find_map(|(one, server)| {
        let run_id = server.run_id.as_ref()?;
        let other = servers
            .iter()
            .skip(one + 1)
            .position(|other| other.run_id.as_ref() == Some(run_id))?;
        Some((one, one + 1 + other))
    })
}

/// Looks at a server from time to time while it is in use: its clock, its identity, and whether it is there. A server that
/// is down is looked at more often.
async fn look(servers: Weak<Servers>, server: usize) {
    let subscribed = servers
        .upgrade()
        .map(|servers| (servers.health.subscribe(), servers.used.subscribe()));
    let Some((mut health, mut used)) = subscribed else {
        return;
    };
    while let Some(key) = until_used(&mut used).await
        && let Some(this) = servers.upgrade()
    {
        this.look_at(server, &key).await;
        let pause = match this.is_up(server) {
            true => LOOKS_EVERY.min(this.node_timeout),
            false => this.node_timeout / 4,
        };
        drop(this);
        health.mark_unchanged();
        // At once if a request has failed; but no more often than a request.
        sleep(PAUSE).await;
        let _ = timeout(pause, health.changed()).await;
    }
}

/// Waits until the servers are in use: for which key. `None`: never again.
async fn until_used(used: &mut watch::Receiver<Option<Use>>) -> Option<Arc<[u8]>> {
    let is_new = |last: &Option<Use>| {
        last.as_ref()
            .is_some_and(|(at, _)| BootInstant::now() - *at < IDLE)
    };
    let last = used.wait_for(is_new).await.ok()?;
    last.as_ref().map(|(_, key)| Arc::clone(key))
}
