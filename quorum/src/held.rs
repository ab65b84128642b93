//! A lock that a majority of the servers has granted: the holds on them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use redis_dlock_client::{self as client, CancellationToken, Lost, Owner};

use crate::error::{Error, NoQuorum, NodeFailure};
use crate::events::EventKind;
use crate::servers::Servers;
use crate::standing::{Member, Standing};

/// A lock that is held. Each of the holds that it consists of is renewed on its own.
pub(crate) struct Held {
    pub servers: Arc<Servers>,
    pub key: Arc<[u8]>,
    pub owner: Owner,
    /// 0: of a shared lock.
    pub fence: u64,
    standing: Mutex<Standing<Arc<Hold>>>,
    /// Cancelled when the lock is lost or given up.
    pub token: CancellationToken,
}

/// The hold on one server.
pub(crate) struct Hold {
    server: usize,
    guard: Arc<client::Guard>,
}

impl Held {
    pub fn new(
        servers: &Arc<Servers>,
        (key, owner, fence): (Arc<[u8]>, Owner, u64),
        guards: Vec<(usize, Arc<client::Guard>)>,
    ) -> Arc<Self> {
        let holds = guards
            .into_iter()
            .map(|(server, guard)| Arc::new(Hold { server, guard }));
        let held = Arc::new(Self {
            servers: Arc::clone(servers),
            key,
            owner,
            fence,
            standing: Mutex::new(Standing::held(servers.majority, holds.collect())),
            token: CancellationToken::new(),
        });
        held.holds().iter().for_each(|hold| held.watch(hold));
        held
    }

    /// Adds the hold on a server. It is released if the lock is not held any more.
    pub fn join(self: &Arc<Self>, server: usize, guard: Arc<client::Guard>) {
        let hold = Arc::new(Hold { server, guard });
        let refused = self.standing().join(Arc::clone(&hold));
        if refused.is_none() {
            self.watch(&hold);
        }
    }

    fn watch(self: &Arc<Self>, hold: &Hold) {
        let (held, token): (Weak<Self>, _) = (Arc::downgrade(self), hold.guard.token());
        self.servers.tasks.spawn(async move {
            // Also when it is released: then nothing is lost.
            token.cancelled().await;
            if let Some(held) = held.upgrade() {
                held.notify_loss();
            }
        });
    }

    pub fn remaining(&self) -> Duration {
        self.standing().remaining()
    }

    pub fn lost(&self) -> Option<Lost> {
        self.standing().lost()
    }

    fn notify_loss(&self) {
        let lost = self.standing().on_loss();
        if let Some(lost) = lost {
            // A holder that needs time to stop keeps what it has left, for the rest of the leases.
            for hold in self.holds() {
                client::several::stop_renewing(&hold.guard);
            }
            self.token.cancel();
            self.report(Some(lost));
        }
    }

    fn report(&self, lost: Option<Lost>) {
        let kind = EventKind::Ended { lost };
        self.servers.report(&self.key, &self.owner, kind);
    }

    /// Extends the leases. The rest goes on when a majority has replied.
    pub async fn extend(&self, lease: Duration) -> Result<Duration, Error> {
        let extend = |hold: Arc<Hold>| async move { (hold.server, hold.guard.extend(lease).await) };
        let mut extensions: FuturesUnordered<_> = self.holds().into_iter().map(extend).collect();
        let needed = self.servers.majority.needed();
        let (mut agreed, mut failures) = (0, vec![]);
        while agreed < needed
            && let Some((server, extended)) = extensions.next().await
        {
            match extended {
                Ok(_) => agreed += 1,
                Err(error) => failures.push(self.failure(server, error)),
            }
        }
        self.servers
            .tasks
            .spawn(extensions.for_each(|_| std::future::ready(())));
        match self.lost() {
            Some(lost) => Err(Error::Lost(lost)),
            None if agreed >= needed => Ok(self.remaining()),
            None => Err(Error::NoQuorum(NoQuorum {
                needed,
                agreed,
                failures,
            })),
        }
    }

    /// Releases all holds. A majority decides whether the lock was held until then.
    pub async fn release(&self) -> Result<(), Error> {
        let Some(holds) = self.give_up() else {
            return Err(Error::Lost(self.lost().unwrap_or(Lost::LeaseExpired)));
        };
        let count = holds.len();
        let release = |hold: Arc<Hold>| async move {
            let server = hold.server;
            match Arc::into_inner(hold).and_then(|hold| Arc::into_inner(hold.guard)) {
                Some(guard) => {
                    // Where the fence is not known, a release proves nothing.
                    let proves = guard.fence() != 0;
                    (server, proves, guard.release().await)
                }
                // An extension is under way. Dropped with it, the hold is released.
                None => (server, false, Ok(())),
            }
        };
        let mut releases: FuturesUnordered<_> = holds.into_iter().map(release).collect();
        let needed = self.servers.majority.needed();
        let (mut agreed, mut lost, mut failures) = (0, 0, vec![]);
        while agreed < needed
            && count - lost >= needed
            && let Some((server, proves, released)) = releases.next().await
        {
            match released {
                Ok(()) => agreed += usize::from(proves),
                Err(client::Error::Lost(_)) => lost += 1,
                Err(error) => failures.push(self.failure(server, error)),
            }
        }
        self.servers
            .tasks
            .spawn(releases.for_each(|_| std::future::ready(())));
        if agreed >= needed {
            self.report(None);
            return Ok(());
        }
        if count - lost < needed {
            self.report(Some(Lost::NotHeld));
            return Err(Error::Lost(Lost::NotHeld));
        }
        self.report(None);
        Err(Error::NoQuorum(NoQuorum {
            needed,
            agreed,
            failures,
        }))
    }

    /// Gives the lock up. The holds that are returned are released when they are dropped. None if it is lost, or given up.
    fn give_up(&self) -> Option<Vec<Arc<Hold>>> {
        let (lost, holds) = self.standing().give_up();
        self.token.cancel();
        (lost.is_none() && !holds.is_empty()).then_some(holds)
    }

    /// In the background.
    pub fn drop_holds(&self) {
        if self.give_up().is_some() {
            self.report(None);
        }
    }

    fn failure(&self, server: usize, error: client::Error) -> NodeFailure {
        NodeFailure {
            server: Arc::clone(&self.servers.labels[server]),
            error: Some(error),
        }
    }

    fn holds(&self) -> Vec<Arc<Hold>> {
        self.standing().members().to_vec()
    }

    fn standing(&self) -> MutexGuard<'_, Standing<Arc<Hold>>> {
        // Each change under it is a whole one.
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Member for Arc<Hold> {
    fn remaining(&self) -> Duration {
        self.guard.remaining()
    }

    fn lost(&self) -> Option<Lost> {
        // Not awaited: it says at once why a hold is lost that is not held.
        (!self.guard.is_held())
            .then(|| client::several::lost(&self.guard))
            .flatten()
    }
}
