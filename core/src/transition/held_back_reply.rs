use super::Transition;
use crate::effects::{Answer, Wake};
use crate::names::{InboxId, Limit};
use crate::waiting::Waiter;
use crate::wire::{Acquire, Acquired, Caller, Error, Extend, Full, Timeout, Wait};

/// With `dlock.min-sync-replicas` the reply to a request is an answer that comes later, in an inbox, as if the request had
/// waited in a queue. Out of line, so that the code of what is told at once stays small.
impl Transition<'_> {
    /// The request is answered later: its client is blocked, or reads an inbox.
    pub fn is_held_back(&self) -> bool {
        self.effects.own_answer.is_some()
    }

    /// Where the answer to a request goes.
    #[cold]
    pub(super) fn inbox_of(&mut self, wait: Option<Wait<'_>>, user: &[u8]) -> Result<InboxId, Error> {
        let Some(name) = wait.and_then(|wait| wait.inbox) else {
            return Ok(self.server.inboxes.of_client());
        };
        let (inboxes, max) = (&mut self.server.inboxes, self.server.policy.max_waiters);
        if inboxes.waiters().saturating_add(inboxes.answers()) >= max {
            return Err(Error::QueueFull(Full::Server(max)));
        }
        let db = self.name.db;
        inboxes.of(Some(name), Caller { db, user })
    }

    #[cold]
    pub(super) fn hold_back(&mut self, request: &Acquire<'_>, inbox: InboxId, answer: Answer) -> Acquired {
        let ticket = self.server.wait_table.next_ticket();
        let waiter = Waiter::new(request, Timeout::Infinite, inbox, self.clock.now);
        self.effects.parked = self.server.inboxes.expect(inbox, ticket, self.name.to_name());
        self.effects.own_answer = Some(Wake {
            ticket,
            waiter,
            answer,
        });
        Acquired::Queued(0)
    }

    #[cold]
    pub(super) fn hold_back_lease(&mut self, request: &Extend<'_>, lease_ms: Option<&u64>) {
        let Some(lease_ms) = lease_ms else { return };
        let inbox = self.server.inboxes.of_client();
        let request = Acquire {
            owner: request.owner,
            lease_ms: request.lease_ms,
            limit: Limit::MUTEX,
            wait: None,
            request_id: None,
            min_fence: None,
        };
        self.hold_back(&request, inbox, Answer::Extended(*lease_ms));
    }
}
