use std::rc::Rc;

use super::rules::Rules;
use super::server_state::ServerState;
use crate::effects::{Answer, Effects};
use crate::names::LockNameRef;
use crate::time::{Instant, LeaseClock};
use crate::waiting::Queue;

impl Rules<'_> {
    /// Times out waiters, expires holders, and grants the lock to the waiters that are left.
    pub(super) fn on_timer(&mut self) {
        if let Some(queue) = &mut self.queue {
            queue.is_cut = false;
            time_out_waiters(queue, self.clock, self.effects);
        }
        self.expire_holders();
        self.grant_waiters();
    }
}

impl ServerState {
    /// Times out waiters of a lock that cannot be granted now. As many as one transition may: the next run goes on.
    pub fn time_out_waiters(&mut self, name: LockNameRef<'_>, now: Instant, effects: &mut Effects) {
        let clock = self.clock(now);
        effects.begin(clock, true);
        if let Some(queue) = self.wait_table.queue_mut(name) {
            queue.is_cut = false;
            time_out_waiters(queue, clock, effects);
        }
        self.wait_table.remove_if_empty(name);
    }

    /// Answers waiters of a lock that cannot be granted here any more with an error of the server's own kind. As
    /// many as one transition may: the queue of the others is due.
    pub fn turn_away_waiters(
        &mut self,
        name: LockNameRef<'_>,
        error: &str,
        now: Instant,
        effects: &mut Effects,
    ) {
        effects.begin(self.clock(now), true);
        let error: Rc<str> = error.into();
        for (ticket, waiter) in self.wait_table.remove_first(name, effects.max_answers.0, now) {
            effects.wake(ticket, waiter, Answer::Elsewhere(Rc::clone(&error)));
        }
    }
}

/// Removes the waiters whose timeouts have passed.
pub(super) fn time_out_waiters(queue: &mut Queue, clock: LeaseClock, effects: &mut Effects) {
    while let Some(ticket) = queue.first_timed_out(clock.now) {
        if effects.is_full() {
            queue.is_cut = true;
            return;
        }
        if let Some(waiter) = queue.remove(ticket) {
            effects.wake(ticket, waiter, Answer::TimedOut);
        }
    }
}
