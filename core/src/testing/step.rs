//! What can happen to a server, and what its clients remember.

use super::ops::{Answer, Micros, Reply, Request};
use crate::fence::Fence;

#[derive(Clone, Copy, Debug)]
pub enum Step {
    Ask {
        lock: usize,
        /// The smallest fence that it asks for is counted from 4 less than the latest grant.
        request: Request<'static>,
        given: GivenFence,
    },
    /// Time passes, and no timer fires.
    Pass(Pass),
    /// Expired holders are removed from a lock without waiters.
    Expire,
    /// The timers of all due locks fire.
    FireTimers,
    /// A client that waits for this lock (its index wraps) disconnects.
    Disconnect {
        lock: usize,
        place: usize,
    },
    /// The client of the next grant to a waiter disconnects before the grant reaches it.
    LoseNextGrant,
    Admin(Admin),
    /// A grace period starts: waiters are sent away.
    Grace(u64),
    /// The server restarts from what it stored; its clock has another origin.
    Restart {
        grace_ms: u64,
        origin: Micros,
    },
    /// It becomes the primary.
    Promotion(u64),
    /// Whether the server may evict locks.
    Evictable(bool),
    /// Whether the server may not grant: paused clients, too few replicas, a full disk.
    GrantsPaused(bool),
    DetectDeadlocks(bool),
}

/// Commands of an administrator.
#[derive(Clone, Copy, Debug)]
pub enum Admin {
    Delete(usize),
    Rename {
        from: usize,
        to: usize,
    },
    /// Keeps the value for a RESTORE.
    Dump(usize),
    Restore(usize),
    /// SET and DEL: for a moment the key has another type, and waiters get an error.
    OtherType(usize),
}

/// The fence that an owner gives with a request.
#[derive(Clone, Copy, Debug)]
pub enum GivenFence {
    None,
    /// Of its latest grant: valid as long as that lasts.
    Latest,
    /// Of the grant before.
    Earlier,
    /// Of the latest grant of another owner.
    Foreign,
}

/// How time passes. Never backwards: a past target means now.
#[derive(Clone, Copy, Debug)]
pub enum Pass {
    Micros(Micros),
    /// To the end of the lease of a live holder (its index wraps), or a microsecond before or after.
    ToLeaseEnd {
        holder: usize,
        offset: Micros,
    },
    ToGraceEnd {
        offset: Micros,
    },
    /// To the next time at which a lock changes without a request, or a microsecond before or after.
    ToChange {
        lock: usize,
        offset: Micros,
    },
}

impl Pass {
    /// `next_change`: when the given lock changes without a request.
    pub fn target(
        self,
        now: Micros,
        lease_ends: &[Micros],
        grace_end: Option<Micros>,
        next_change: impl FnOnce(usize) -> Option<Micros>,
    ) -> Micros {
        let target = match self {
            Self::Micros(micros) => now + micros,
            Self::ToLeaseEnd { .. } if lease_ends.is_empty() => now,
            Self::ToLeaseEnd { holder, offset } => lease_ends[holder % lease_ends.len()] + offset,
            Self::ToGraceEnd { offset } => grace_end.map_or(now, |end| end + offset),
            Self::ToChange { lock, offset } => next_change(lock).unwrap_or(now) + offset,
        };
        target.max(now)
    }
}

/// All fences of the grants of a lock, newest last.
#[derive(Debug, Default)]
pub struct Memory {
    grants: Vec<(&'static [u8], Fence)>,
}

impl Memory {
    pub fn note(&mut self, owner: &'static [u8], reply: &Reply) {
        if let Ok(Answer::Granted(granted)) = reply
            && !self.grants.contains(&(owner, granted.fence))
        {
            self.grants.push((owner, granted.fence));
        }
    }

    /// The request with the fences that its owner gives. If there is none it gives 1, which no grant ever has.
    pub fn with_fence(&self, mut request: Request<'static>, given: GivenFence) -> Request<'static> {
        if let Some(min) = request.min_fence() {
            *min += self.grants.iter().map(|grant| grant.1 - 4).max().unwrap_or(0);
        }
        let mut newest_first = self.grants.iter().rev();
        let is_own = |grant: &&(&[u8], Fence)| grant.0 == request.owner();
        let grant = match given {
            GivenFence::None => return request,
            GivenFence::Latest => newest_first.find(is_own),
            GivenFence::Earlier => newest_first.filter(is_own).nth(1),
            GivenFence::Foreign => newest_first.find(|grant| !is_own(grant)),
        };
        request.with_fence(grant.map_or(1, |grant| grant.1))
    }
}
