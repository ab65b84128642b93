use super::rules::Rules;
use crate::effects::{Answer, Effects};
use crate::lease_clock::LeaseClock;
use crate::queue::Queue;

impl Rules<'_> {
    /// Times out waiters, expires holders, and grants the lock to the waiters that are left.
    pub(super) fn on_timer(&mut self) {
        if let Some(queue) = &mut self.queue {
            time_out_waiters(queue, self.clock, self.effects);
        }
        self.expire_holders();
        self.grant_waiters();
    }
}

/// Removes the waiters whose timeouts have passed.
pub(super) fn time_out_waiters(queue: &mut Queue, clock: LeaseClock, effects: &mut Effects) {
    while let Some(ticket) = queue.remove_timed_out(clock.now) {
        effects.wake(ticket, Answer::TimedOut);
    }
}
