//! A hold as a guard and the renewal thread share it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::clock::BootInstant;
use crate::command::Grant;
use crate::connect::Link;
use crate::events::Reporter;
use crate::hold::{Hold, PendingRelease};
use crate::identity::RequestIdentity;
use crate::sync::model_checked::{Mutex, lock};

/// The connection over which the renewal thread maintains holds, and where it reports.
pub(crate) struct RenewalContext {
    pub link: Arc<Link>,
    pub reporter: Reporter,
    /// Notified when the connection is lost.
    pub disconnected: Arc<Notify>,
}

/// A hold with its guard.
pub(crate) struct SharedHold {
    pub context: Arc<RenewalContext>,
    pub identity: RequestIdentity,
    pub fence: u64,
    pub holds: u64,
    /// Whether a late duplicate of the request may still arrive.
    pub is_repeated: bool,
    /// Distinguishes holds that are due at the same time.
    pub(super) number: u64,
    hold: Mutex<Hold>,
    /// When it is due, according to the queue. Changed only while the queue is locked.
    pub(super) due: Mutex<Option<BootInstant>>,
    /// Created on demand.
    token: Mutex<Option<CancellationToken>>,
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
            fence: grant.fence,
            holds: grant.holds,
            is_repeated,
            number: next_number(),
            hold: Mutex::new(hold),
            due: Mutex::new(None),
            token: Mutex::new(None),
        })
    }

    pub fn with<T>(&self, access: impl FnOnce(&mut Hold) -> T) -> T {
        access(&mut lock(&self.hold))
    }

    /// Cancelled when the hold is lost or given up.
    pub fn token(&self) -> CancellationToken {
        let token = lock(&self.token).get_or_insert_default().clone();
        // If the hold ended before there was a token, nothing was cancelled then.
        if self.with(|hold| hold.is_over()) {
            token.cancel();
        }
        token
    }

    /// Gives the hold up. The caller removes it from the queue afterwards.
    pub fn give_up(&self, now: BootInstant) -> PendingRelease {
        let pending = self.with(|hold| hold.give_up(now));
        self.cancel();
        pending
    }

    pub fn cancel(&self) {
        if let Some(token) = &*lock(&self.token) {
            token.cancel();
        }
    }
}

fn next_number() -> u64 {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    NUMBER.fetch_add(1, Ordering::Relaxed)
}
