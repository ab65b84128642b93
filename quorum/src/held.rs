//! A lock that a majority of the servers has granted: the holds on them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, Stream, StreamExt};
use redis_dlock_client::{self as client, CancellationToken, Lost, Owner};
use tokio::time::timeout;

use crate::error::Error;
use crate::events::EventKind;
use crate::servers::Servers;
use crate::standing::{Member, Standing};
use crate::thread::Running;

/// A lock that is held. Each of the holds that it consists of is renewed on its own.
pub(crate) struct Held {
    pub servers: Arc<Servers>,
    pub key: Arc<[u8]>,
    pub owner: Owner,
    /// 0: of a shared lock.
    pub fence: u64,
    standing: Mutex<Standing<Hold>>,
    /// Waits for what may still be granted.
    late: Mutex<Option<Running<()>>>,
    /// Cancelled when the lock is lost or given up.
    pub token: CancellationToken,
}

/// The hold on one server.
#[derive(Clone)]
pub(crate) struct Hold {
    pub server: usize,
    pub guard: Arc<client::Guard>,
}

impl Held {
    pub fn new(
        servers: &Arc<Servers>,
        (key, owner, fence): (Arc<[u8]>, Owner, u64),
        holds: Vec<Hold>,
    ) -> Arc<Self> {
        let held = Arc::new(Self {
            servers: Arc::clone(servers),
            key,
            owner,
            fence,
            standing: Mutex::new(Standing::held(servers.majority, holds)),
            late: Mutex::default(),
            token: CancellationToken::new(),
        });
        held.holds().iter().for_each(|hold| held.watch(hold));
        held
    }

    /// What is granted late joins the lock, for a while and as long as it is held. The rest is given back.
    pub fn join_late(self: &Arc<Self>, late: impl Stream<Item = Hold> + Send + 'static) {
        let (held, limit): (Weak<Self>, _) = (Arc::downgrade(self), self.servers.node_timeout);
        let joining = async move {
            let join = late.for_each(async |hold| {
                if let Some(held) = held.upgrade() {
                    held.watch(&hold);
                    held.standing().join(hold);
                }
            });
            let _ = timeout(limit, join).await;
        };
        *self.late() = Some(self.servers.thread.spawn(joining));
    }

    fn drop_late(&self) {
        let late = self.late().take();
        drop(late);
    }

    fn watch(self: &Arc<Self>, hold: &Hold) {
        let (held, ended): (Weak<Self>, _) = (Arc::downgrade(self), self.token.clone());
        let token = hold.guard.token();
        self.servers.thread.runtime.spawn(async move {
            let lost = ended.run_until_cancelled(token.cancelled()).await;
            if lost.is_some()
                && let Some(held) = held.upgrade()
            {
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
                hold.guard.stop_renewing();
            }
            self.drop_late();
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
        let extend = |hold: Hold| async move { (hold.server, hold.guard.extend(lease).await) };
        let mut extensions: FuturesUnordered<_> = self.holds().into_iter().map(extend).collect();
        let needed = self.servers.majority.needed();
        let (mut agreed, mut failures) = (0, vec![]);
        while agreed < needed
            && let Some((server, extended)) = extensions.next().await
        {
            match extended {
                Ok(_) => agreed += 1,
                Err(error) => failures.push(self.servers.failure(server, Some(error))),
            }
        }
        self.leave(extensions);
        match self.lost() {
            Some(lost) => Err(Error::Lost(lost)),
            None if agreed >= needed => Ok(self.remaining()),
            None => Err(Error::NoQuorum(self.servers.no_quorum(agreed, failures))),
        }
    }

    /// Releases all holds. A majority decides whether the lock was held until then.
    pub async fn release(&self) -> Result<(), Error> {
        let Some(holds) = self.give_up() else {
            return Err(Error::Lost(self.lost().unwrap_or(Lost::LeaseExpired)));
        };
        let mut ending = Ending {
            held: self,
            lost: None,
        };
        let count = holds.len();
        let release = |Hold { server, guard }: Hold| async move {
            match Arc::into_inner(guard) {
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
                Err(error) => failures.push(self.servers.failure(server, Some(error))),
            }
        }
        self.leave(releases);
        if agreed >= needed {
            return Ok(());
        }
        if count - lost < needed {
            ending.lost = Some(Lost::NotHeld);
            return Err(Error::Lost(Lost::NotHeld));
        }
        Err(Error::NoQuorum(self.servers.no_quorum(agreed, failures)))
    }

    /// What nobody waits for any more goes on.
    fn leave(&self, rest: FuturesUnordered<impl Future<Output: Send> + Send + 'static>) {
        let rest = rest.for_each(|_| std::future::ready(()));
        self.servers.thread.runtime.spawn(rest);
    }

    /// Gives the lock up. The holds that are returned are released when they are dropped. None if it is lost, or given up.
    fn give_up(&self) -> Option<Vec<Hold>> {
        self.drop_late();
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

    fn holds(&self) -> Vec<Hold> {
        self.standing().members().to_vec()
    }

    // Each change under these locks is a whole one.

    fn standing(&self) -> MutexGuard<'_, Standing<Hold>> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn late(&self) -> MutexGuard<'_, Option<Running<()>>> {
        self.late.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A release under way. Its end is reported even if nobody waits for it.
struct Ending<'a> {
    held: &'a Held,
    lost: Option<Lost>,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.held.report(self.lost);
    }
}

impl Member for Hold {
    fn remaining(&self) -> Duration {
        self.guard.remaining()
    }

    fn lost(&self) -> Option<Lost> {
        self.guard.lost_now()
    }
}
