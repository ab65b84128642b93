//! The servers: which are down, what their clocks say, and whether they are as many as they seem.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use redis_dlock_client::redis::{self, cmd};
use redis_dlock_client::several::Hook;
use redis_dlock_client::{self as client, BootInstant, GetOwner, Owner, several};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::clocks::Clocks;
use crate::error::{Error, NoQuorum, NodeFailure};
use crate::events::{Event, EventKind};
use crate::majority::Majority;

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
    pub labels: Vec<Arc<str>>,
    pub majority: Majority,
    /// How long a server may take to reply.
    pub node_timeout: Duration,
    hook: Hook<Event>,
    /// The thread of the locks.
    pub tasks: Handle,
    health: watch::Sender<Vec<Server>>,
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

struct Known {
    clocks: Clocks,
    begun: BootInstant,
    /// When the servers were used last, and for which key.
    used_at: BootInstant,
    key: Arc<[u8]>,
    /// By server, whether it is looked at.
    looks: Vec<bool>,
    contended: HashMap<Arc<[u8]>, BootInstant>,
}

impl Servers {
    pub fn new(
        locks: Vec<client::Locks>,
        node_timeout: Duration,
        hook: Hook<Event>,
        tasks: Handle,
    ) -> Arc<Self> {
        let (count, now) = (locks.len(), BootInstant::now());
        locks.iter().for_each(several::keep_inbox);
        Arc::new(Self {
            labels: locks.iter().map(several::label).collect(),
            majority: Majority::of(count),
            node_timeout,
            hook,
            tasks,
            health: watch::Sender::new(vec![Server::default(); count]),
            known: Mutex::new(Known {
                clocks: Clocks::new(count),
                begun: now,
                used_at: now,
                key: Arc::default(),
                looks: vec![false; count],
                contended: HashMap::new(),
            }),
            locks,
        })
    }

    /// Before a request: waits, the first time only, until each server has been looked at.
    pub async fn use_now(self: &Arc<Self>, key: &Arc<[u8]>) -> Result<(), Error> {
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

    /// That it has the thread.
    pub fn check_process(&self) -> Result<(), Error> {
        self.locks.iter().try_for_each(several::check_process)?;
        Ok(())
    }

    /// Whether a majority replies.
    pub async fn ping(&self) -> Result<(), Error> {
        let pings = join_all(self.locks.iter().map(client::Locks::ping)).await;
        let (needed, agreed) = (self.majority.needed(), pings.iter().flatten().count());
        let failures = pings.into_iter().zip(&self.labels).filter_map(|(ping, label)| {
            let server = Arc::clone(label);
            let error = Some(ping.err()?);
            Some(NodeFailure { server, error })
        });
        match agreed >= needed {
            true => Ok(()),
            false => Err(Error::NoQuorum(NoQuorum {
                needed,
                agreed,
                failures: failures.collect(),
            })),
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
    pub fn keep_in_use(self: &Arc<Self>, key: &Arc<[u8]>) {
        let mut known = self.known();
        known.used_at = BootInstant::now();
        known.key = Arc::clone(key);
        for (server, looks) in known.looks.iter_mut().enumerate() {
            if !std::mem::replace(looks, true) {
                self.tasks.spawn(look(Arc::downgrade(self), server));
            }
        }
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
        let failure = NodeFailure {
            server: Arc::clone(&self.labels[server]),
            error,
        };
        self.health.send_if_modified(|servers| {
            servers
                .get_mut(server)
                .is_some_and(|server| server.failure.replace(failure).is_none())
        });
    }

    /// The servers that are down, and why.
    pub fn no_quorum(&self, agreed: usize, rejections: &[Option<NodeFailure>]) -> NoQuorum {
        let down = self.health.borrow();
        let failures = down.iter().zip(rejections);
        let failures =
            failures.filter_map(|(server, rejection)| rejection.clone().or_else(|| server.failure.clone()));
        NoQuorum {
            needed: self.majority.needed(),
            agreed,
            failures: failures.collect(),
        }
    }

    /// The fence to ask for.
    pub fn guess(&self) -> u64 {
        let known = self.known();
        let now = BootInstant::now() - known.begun;
        known.clocks.guess(now, |server| self.is_up(server))
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
        let asked = self
            .locks
            .iter()
            .enumerate()
            .filter(|(server, _)| self.is_up(*server));
        let asked = asked.map(|(_, locks)| async move {
            let asking = several::query(locks, GetOwner::new(key).into(), limit);
            let reply = timeout(limit, asking).await.ok()?.ok()?;
            redis::from_redis_value::<Option<Owner>>(reply).ok()?
        });
        let owners: Vec<Owner> = join_all(asked).await.into_iter().flatten().collect();
        let held_by = |owner| owners.iter().filter(|other| *other == owner).count();
        owners
            .iter()
            .any(|owner| held_by(owner) >= self.majority.needed())
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
    let Some(mut health) = servers.upgrade().map(|servers| servers.subscribe()) else {
        return;
    };
    loop {
        let Some(this) = servers.upgrade() else { return };
        let found = look_once(&this, server).await;
        let failure = found.as_ref().err().cloned().map(|error| NodeFailure {
            server: Arc::clone(&this.labels[server]),
            error,
        });
        let run_id = found.ok().flatten();
        this.health.send_if_modified(|servers| {
            let Some(known) = servers.get_mut(server) else {
                return false;
            };
            let is_news =
                !known.was_asked || known.failure.is_some() != failure.is_some() || known.run_id != run_id;
            known.was_asked = true;
            known.run_id = run_id.or(known.run_id.take());
            known.failure = failure;
            is_news
        });
        let pause = match this.is_up(server) {
            true => LOOKS_EVERY.min(this.node_timeout),
            false => this.node_timeout / 4,
        };
        {
            let mut known = this.known();
            if BootInstant::now() - known.used_at > IDLE {
                known.looks[server] = false;
                return;
            }
        }
        drop(this);
        health.mark_unchanged();
        // At once if a request has failed; but no more often than a request.
        sleep(PAUSE).await;
        let _ = timeout(pause, health.changed()).await;
    }
}

/// The server's run id, or why it is down.
async fn look_once(servers: &Servers, server: usize) -> Result<Option<String>, Option<client::Error>> {
    let (locks, limit) = (&servers.locks[server], servers.node_timeout);
    let key = Arc::clone(&servers.known().key);
    let looking = async {
        // Nobody holds a lock as this owner. A server that grants nothing for now says so.
        let probe = client::Extend::new(&*key, Owner::unique(), limit).into();
        let time = several::query(locks, cmd("TIME"), limit);
        let info = several::query(locks, cmd("INFO").arg("server").take(), limit);
        futures_util::future::join3(several::query(locks, probe, limit), time, info).await
    };
    let Ok((probe, time, info)) = timeout(limit, looking).await else {
        return Err(None);
    };
    if let Err(error) = probe
        && error.is_transient()
    {
        return Err(Some(error));
    }
    // Without permission for it, the guess is the process's own last fence.
    if let Ok(time) = time
        && let Ok((seconds, micros)) = redis::from_redis_value::<(u64, u64)>(time)
    {
        let mut known = servers.known();
        let now = BootInstant::now() - known.begun;
        known.clocks.on_time(server, seconds * 1000 + micros / 1000, now);
    }
    let info = info
        .ok()
        .and_then(|info| redis::from_redis_value::<String>(info).ok());
    Ok(info.and_then(|info| {
        let line = info.lines().find_map(|line| line.strip_prefix("run_id:"));
        line.map(|id| id.trim_end().to_owned())
    }))
}
