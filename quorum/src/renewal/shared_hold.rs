//! A hold as a guard and the renewal thread share it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use redis::Cmd;
use tokio_util::sync::CancellationToken;

use crate::clock::BootInstant;
use crate::command::Grant;
use crate::connect::Link;
use crate::events::{EventKind, Reporter};
use crate::hold::{Hold, PendingRelease};
use crate::identity::RequestIdentity;
use crate::sync::model_checked::{Mutex, lock};

/// The connection over which the renewal thread maintains holds, and where it reports.
pub(crate) struct RenewalContext {
    pub link: Arc<Link>,
    pub reporter: Arc<Reporter>,
    /// Whether the server is one of several that share their locks.
    pub is_member: bool,
}

impl RenewalContext {
    /// How much of a time of the server is certain, apart from what [`Hold`] subtracts, 0.1 % and 2 ms. The clocks of
    /// several servers may differ more than those of two machines: in all, 1 % is subtracted.
    pub fn certain(&self, time: Duration) -> Duration {
        if self.is_member {
            time - time / 1000 * 9
        } else {
            time
        }
    }

    /// Reports an event. What becomes of a lock on several servers is reported once, not for each of them.
    pub fn report(&self, identity: &RequestIdentity, kind: EventKind) {
        use EventKind::{Cancelled, RenewFailed, Renewed};
        if !self.is_member || matches!(kind, Cancelled | Renewed { .. } | RenewFailed { .. }) {
            self.reporter.report(&self.link.address, identity, kind);
        }
    }
}

/// Called when a hold is lost.
type LossListener = dyn Fn() + Send + Sync;

/// A hold with its guard.
pub(crate) struct SharedHold {
    pub context: Arc<RenewalContext>,
    pub identity: RequestIdentity,
    /// 0: not known, a request to raise it may have been carried out.
    fence: AtomicU64,
    pub holds: u64,
    /// Whether a late duplicate of the request may still arrive.
    pub is_repeated: bool,
    /// Distinguishes holds that are due at the same time.
    pub(super) number: u64,
    hold: Mutex<Hold>,
    /// When it is due, according to the queue. Changed only while the queue is locked.
    pub(super) due: Mutex<Option<BootInstant>>,
    /// Cancelled when the hold is lost or given up.
    pub token: CancellationToken,
    /// The lock of which this hold is a part, if it is one.
    pub loss_listener: OnceLock<Box<LossListener>>,
}

impl SharedHold {
    pub fn new(
        context: &Arc<RenewalContext>,
        identity: RequestIdentity,
        grant: Grant,
        is_repeated: bool,
        hold: Hold,
    ) -> Arc<Self> {
        Arc::new(Self {
            context: Arc::clone(context),
            identity,
            fence: AtomicU64::new(grant.fence),
            holds: grant.holds,
            is_repeated,
            number: next_number(),
            hold: Mutex::new(hold),
            due: Mutex::new(None),
            token: CancellationToken::new(),
            loss_listener: OnceLock::new(),
        })
    }

    pub fn with<T>(&self, access: impl FnOnce(&mut Hold) -> T) -> T {
        access(&mut lock(&self.hold))
    }

    /// The same, with the time.
    pub fn now<T>(&self, access: impl FnOnce(&mut Hold, BootInstant) -> T) -> T {
        self.with(|hold| access(hold, BootInstant::now()))
    }

    pub fn fence(&self) -> u64 {
        self.fence.load(Ordering::Acquire)
    }

    #[cfg(feature = "quorum")]
    pub fn set_fence(&self, fence: u64) {
        self.fence.store(fence, Ordering::Release);
    }

    /// The request that extends the lease.
    pub fn extend(&self, lease: Duration) -> Cmd {
        #[cfg(feature = "quorum")]
        if self.context.is_member {
            return self.identity.extend_by_id(lease).into();
        }
        self.identity.extend(lease, self.fence())
    }

    /// The request that releases the hold: with the fence, the reply says whether it was held.
    pub fn release(&self) -> Cmd {
        match self.fence() {
            0 => self.identity.cancel(),
            fence => self.identity.release(fence),
        }
    }

    /// Gives the hold up. The caller removes it from the queue afterwards.
    pub fn give_up(&self, now: BootInstant) -> PendingRelease {
        let pending = self.with(|hold| hold.give_up(now));
        self.token.cancel();
        pending
    }
}

fn next_number() -> u64 {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    NUMBER.fetch_add(1, Ordering::Relaxed)
}
