use super::authorize::{authorized, vanished};
use crate::lock::{Holder, Lock};
use crate::time::LeaseClock;
use crate::wire::{Error, Guard};

impl Guard<'_> {
    /// Whether the owner holds the lock under this fence now, alone or with others: what remains of the lease, in
    /// milliseconds. No transition: it changes nothing, and is the same during a grace period. A holder that is known
    /// then is the one whose writes are known.
    pub fn check(&self, lock: &Lock, clock: LeaseClock) -> Result<u64, Error> {
        let is_live = |holder: &Holder| holder.is_live(clock);
        let index = authorized(lock, self.owner, Some(self.fence), is_live)?;
        let holder = lock.holders().get(index).ok_or_else(vanished)?;
        Ok(holder.lease_ms(clock))
    }
}
