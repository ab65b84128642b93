use super::{Occupancy, Step, vanished};
use crate::context::TransitionContext;
use crate::error::Error;
use crate::fence::Fence;
use crate::lock::{Holder, Lock};
use crate::outcome::Granted;
use crate::request::Acquire;

impl Step<'_> {
    /// `None`: not granted, a request that blocks must wait.
    pub(super) fn acquire(&mut self, request: &Acquire<'_>) -> Result<Option<Granted>, Error> {
        self.grant_waiters();
        let cx = self.cx;
        cx.check_min_fence(request.min_fence)?;
        let holder = self.lock.find(request.owner);
        let holder = holder.filter(|(_, holder)| cx.is_live(holder));
        let index = holder.map(|(index, _)| index);
        if let Some((_, holder)) = holder {
            // At once, even if the request could wait: waiting would not help.
            if request.limit < holder.limit {
                return Err(Error::Upgrade(holder.limit));
            }
            if request.request_id.is_some_and(|id| holder.has_request_id(id)) {
                return Ok(Some(granted(holder, cx, 0)));
            }
        }
        match (cx.grace_left_ms(), index) {
            (Some(_), _) if request.block.is_some() => Ok(None),
            (Some(left_ms), _) => Err(Error::Grace(left_ms)),
            (None, Some(index)) => self.reenter(index, request).map(Some),
            (None, None) => self.admit(request),
        }
    }

    /// One more hold for a holder. Its limit stays, its lease is never shortened.
    fn reenter(&mut self, index: usize, request: &Acquire<'_>) -> Result<Granted, Error> {
        let holder = self.lock.holders_mut().get_mut(index).ok_or_else(vanished)?;
        add_hold(holder, request.request_id)?;
        holder.lease_end = self.cx.extended_lease_end(holder, request.lease_ms);
        self.expire_holders();
        let holder = self.lock.get(request.owner).ok_or_else(vanished)?;
        self.effects.updated(holder, self.cx);
        Ok(granted(holder, self.cx, 0))
    }

    /// A new holder, if no request waits and the limits allow it.
    fn admit(&mut self, request: &Acquire<'_>) -> Result<Option<Granted>, Error> {
        let cx = self.cx;
        if cx.evictable {
            return Err(Error::Evictable);
        }
        let fits = || Occupancy::of(self.lock, cx).with(request.limit).is_within_limit();
        if !self.queue.is_empty() || !fits() {
            return Ok(None);
        }
        let min_fence = above_holders(request.min_fence, self.lock, cx);
        let fence = self
            .fences
            .next_fence(self.name, min_fence)
            .ok_or(Error::FencesUsedUp)?;
        let lease_end = cx.now.after_ms(request.lease_ms);
        let mut holder = Holder::new(request.owner, request.limit, fence, cx.now, lease_end);
        add_hold(&mut holder, request.request_id)?;
        self.expire_holders();
        self.effects.acquired(&holder, cx);
        let granted = granted(&holder, cx, 0);
        self.lock.push(holder);
        Ok(Some(granted))
    }
}

/// The holders may have fences above those of the name: RENAME brought them.
pub(super) fn above_holders(min_fence: Option<Fence>, lock: &Lock, cx: &TransitionContext) -> Option<Fence> {
    let min_fence = min_fence?;
    let youngest = lock.holders().iter().rfind(|holder| cx.is_live(holder));
    Some(youngest.map_or(min_fence, |holder| min_fence.max(holder.fence.saturating_add(1))))
}

pub(super) fn add_hold(holder: &mut Holder, request_id: Option<&[u8]>) -> Result<(), Error> {
    match request_id {
        Some(id) => holder.add_with_id(id),
        None => holder.add_anonymous(1),
    }
}

pub(super) fn granted(holder: &Holder, cx: &TransitionContext, waited_ms: u64) -> Granted {
    Granted {
        fence: holder.fence,
        holds: holder.holds(),
        lease_ms: cx.lease_ms(holder),
        waited_ms,
    }
}
