use super::{authorized, vanished};
use crate::context::TransitionContext;
use crate::error::Error;
use crate::lock::Lock;
use crate::request::Guard;

impl Guard<'_> {
    /// Whether the owner holds the lock under this fence now, alone or with others: what remains of the lease, in
    /// milliseconds. No transition: it changes nothing, and is the same during a grace period. A holder that is known
    /// then is the one whose writes are known.
    pub fn check(&self, lock: &Lock, cx: &TransitionContext) -> Result<u64, Error> {
        let is_live = |holder: &_| cx.is_live(holder);
        let index = authorized(lock, self.owner, Some(self.fence), is_live)?;
        let holder = lock.holders().get(index).ok_or_else(vanished)?;
        Ok(cx.lease_ms(holder))
    }
}
