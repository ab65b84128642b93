use super::authorize::{authorize, vanished};
use super::rules::Rules;
use crate::fence::Fence;
use crate::lock::Holder;
use crate::names::Limit;
use crate::wire::{Error, Event, Extend, GrantRef};

impl Rules<'_> {
    /// During a grace period the owner may have released and re-acquired the lock before the failover. Only the
    /// fence or a request id proves that the request means this grant.
    pub(super) fn extend(
        &mut self,
        request: &Extend<'_>,
        min_fence: Result<(), Error>,
    ) -> Result<u64, Error> {
        let lease_ms = min_fence.and_then(|()| self.extend_lease(request));
        self.grant_waiters();
        lease_ms
    }

    fn extend_lease(&mut self, request: &Extend<'_>) -> Result<u64, Error> {
        let clock = self.clock;
        let (fence, request_id) = match (request.grant, clock.grace_left_ms()) {
            (GrantRef::Current, Some(left_ms)) => return Err(Error::Grace(left_ms)),
            (GrantRef::Current, None) => (None, None),
            (GrantRef::Fence(fence), _) => (Some(fence), None),
            (GrantRef::RequestId(id), _) => (None, Some(id)),
        };
        let holder = authorize(self.lock, request.owner, fence, |holder| holder.is_live(clock))?;
        if request_id.is_some_and(|id| !holder.has_request_id(id)) {
            return Err(Error::StaleRequestId);
        }
        if let Some(min) = self.lacks_replicas {
            return Err(Error::FewReplicas(min));
        }
        let raised = raised_fence(holder, request.min_fence)?;
        if let Some(fence) = raised {
            holder.fence = fence;
            self.effects.is_fence_raised = true;
        }
        if let Some(min) = request.min_fence {
            // Also of a holder that has this fence: RENAME may have brought it to a name whose bucket is lower.
            self.fences.raise(self.name, min);
        }
        let is_longer = holder.extend(request.lease_ms, clock);
        self.expire_holders();
        let holder = self.lock.get(request.owner).ok_or_else(vanished)?;
        if is_longer || raised.is_some() {
            self.effects.updated(holder, clock);
        }
        self.effects.events.push(Event::Extended);
        Ok(holder.lease_ms(clock))
    }
}

/// The fence that a minimum raises this holder's to. A larger one stays what it is: the client must use that.
fn raised_fence(holder: &Holder, min_fence: Option<Fence>) -> Result<Option<Fence>, Error> {
    match min_fence {
        None => Ok(None),
        Some(_) if holder.limit != Limit::MUTEX => Err(Error::RaiseOfShared),
        Some(min) if holder.fence > min => Err(Error::Stale),
        Some(min) => Ok((holder.fence < min).then_some(min)),
    }
}
