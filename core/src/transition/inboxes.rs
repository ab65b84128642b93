use super::server_state::ServerState;
use crate::effects::Effects;
use crate::inbox::{InboxStep, Received};
use crate::names::{Call, LockNameRef};
use crate::time::{Inputs, Instant};
use crate::wire::{Caller, Error, Full, Grants};

/// What concerns inboxes together with queues.
impl ServerState {
    /// Carries out a GRANTS. A request that is rejected changes nothing.
    pub fn receive(
        &mut self,
        request: &Grants<'_>,
        caller: Caller<'_>,
        inputs: &Inputs<'_>,
    ) -> Result<Received, Error> {
        let max = self.policy.max_inboxes;
        let room = if self.inboxes.len() < max {
            Ok(())
        } else {
            Err(Error::QueueFull(Full::Inboxes(max)))
        };
        let (fences, environment) = (&self.fences, inputs.environment);
        let first_cursor = || fences.first_cursor(environment.wall_clock(), environment.random());
        self.inboxes
            .receive(request, caller, inputs.now, room, first_cursor)
    }

    /// Puts the answers of a transition into the inboxes of their waiters. [`Effects::calls`] are those that are to be
    /// replied to, by [`crate::Inboxes::reply`].
    #[inline]
    pub fn deliver(&mut self, effects: &mut Effects) {
        if !effects.wakes.is_empty() || effects.repeated.is_some() {
            self.inboxes.deliver(effects);
        }
    }

    /// The request that waits now leaves its queue again, without an answer: its lock could not be stored, and its reply
    /// is an error.
    #[cold]
    pub fn undo_queued(&mut self, lock: LockNameRef<'_>, effects: &mut Effects) {
        if let Some(own) = effects.own_answer.take() {
            self.inboxes.expect_no_more(own.waiter.inbox(), own.ticket);
        }
        let ticket = effects.queued.take();
        if let Some(call) = effects.parked.take() {
            self.lose_reader(call, effects.clock.now);
        } else if let Some(ticket) = ticket
            && let Some(waiter) = self.wait_table.queue(lock).and_then(|queue| queue.get(ticket))
        {
            self.inboxes.expect_no_more(waiter.inbox(), ticket);
            self.wait_table.remove_waiter(lock, ticket);
        }
    }

    /// The client of a call is gone, before any reply was written.
    pub fn lose_reader(&mut self, call: Call, now: Instant) {
        if let Some((lock, ticket)) = self.inboxes.lose_reader(call, now) {
            self.wait_table.remove_waiter(lock.as_ref(), ticket);
        }
    }

    /// Does one of the things that are due in inboxes; `None` if nothing is.
    pub fn process_inboxes(&mut self, now: Instant) -> Option<InboxStep> {
        let step = self.inboxes.process(now)?;
        if let InboxStep::Leave(lock, ticket) = &step {
            self.wait_table.remove_waiter(lock.as_ref(), *ticket);
        }
        Some(step)
    }
}
