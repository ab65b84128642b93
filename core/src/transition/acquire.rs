use super::authorize::vanished;
use super::rules::{Occupancy, Rules, above_holders, granted};
use crate::lock::Holder;
use crate::names::RequestKey;
use crate::wire::{Acquire, Error, Granted, Outcome};

impl Rules<'_> {
    /// `None`: not granted, a request that blocks must wait. `min_fence`: whether the request may ask for its fence.
    pub(super) fn acquire(
        &mut self,
        request: &Acquire<'_>,
        min_fence: Result<(), Error>,
    ) -> Result<Option<Granted>, Error> {
        if self.queue.is_some() {
            self.grant_waiters();
        }
        min_fence?;
        let clock = self.clock;
        let holder = self.lock.find(request.owner);
        let holder = holder.filter(|(_, holder)| holder.is_live(clock));
        let index = holder.map(|(index, _)| index);
        if let Some((_, holder)) = holder {
            // At once, even if the request could wait: waiting would not help.
            if request.limit < holder.limit {
                return Err(Error::Upgrade(holder.limit));
            }
            if request.request_id.is_some_and(|id| holder.has_request_id(id)) {
                self.effects.outcome = Outcome::Repeated;
                self.effects.repeated = RequestKey::of(self.name, request.owner, request.request_id);
                return Ok(Some(granted(holder, clock, 0)));
            }
            self.effects.is_limit_mismatch = request.limit.contradicts(holder.limit);
        }
        if let Some(min) = self.lacks_replicas {
            return request.wait.map(|_| None).ok_or(Error::FewReplicas(min));
        }
        match (clock.grace_left_ms(), index) {
            (Some(_), _) if request.wait.is_some() => Ok(None),
            (Some(left_ms), _) => Err(Error::Grace(left_ms)),
            (None, Some(index)) => self.reenter(index, request).map(Some),
            (None, None) => self.admit(request),
        }
    }

    /// One more hold for a holder. Its limit stays, its lease is never shortened.
    fn reenter(&mut self, index: usize, request: &Acquire<'_>) -> Result<Granted, Error> {
        let holder = self.lock.holders_mut().get_mut(index).ok_or_else(vanished)?;
        holder.add_hold(request.request_id)?;
        holder.extend(request.lease_ms, self.clock);
        self.expire_holders();
        let holder = self.lock.get(request.owner).ok_or_else(vanished)?;
        self.effects.outcome = Outcome::Reentered;
        self.effects.updated(holder, self.clock);
        Ok(granted(holder, self.clock, 0))
    }

    /// A new holder, if no request waits and the limits allow it.
    fn admit(&mut self, request: &Acquire<'_>) -> Result<Option<Granted>, Error> {
        let clock = self.clock;
        if self.evictable {
            return Err(Error::Evictable);
        }
        let occupancy = Occupancy::of(self.lock, clock);
        self.effects.is_limit_mismatch = occupancy.holders > 0 && request.limit.contradicts(occupancy.limit);
        let has_waiters = self.queue.as_ref().is_some_and(|queue| !queue.is_empty());
        if has_waiters || !occupancy.allows(request.limit, self.max_holders) {
            return Ok(None);
        }
        let min_fence = request.min_fence.map(|min| above_holders(min, self.lock, clock));
        let fence = self.fences.next_fence(self.name, min_fence);
        let fence = fence.ok_or(Error::FencesUsedUp)?;
        let lease_ms = request.lease_ms;
        let mut holder = Holder::granted(request.owner, request.limit, fence, lease_ms, clock);
        holder.add_hold(request.request_id)?;
        if occupancy.has_expired {
            self.expire_holders();
        }
        self.effects.outcome = Outcome::New;
        self.effects.acquired(&holder, clock);
        self.lock.push(holder);
        Ok(Some(Granted {
            fence,
            holds: 1,
            lease_ms,
            waited_ms: 0,
        }))
    }
}
