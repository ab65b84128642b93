//! Clients that wait for a reply, by their calls and by the server's names for them.

use dlock_core::{Call, IdMap, Shrink as _};

use crate::redis::{BlockedClient, BlockedId};

#[derive(Default)]
pub struct Readers {
    by_call: IdMap<Call, BlockedClient>,
    by_id: IdMap<BlockedId, Call>,
    /// Unblocked ids, removed from `by_id` lazily to keep grants short. The server may reuse them at the next block.
    unblocked: Vec<BlockedId>,
    /// How many of them were unblocked before the last [`Readers::forget_unblocked`].
    unblocked_before: usize,
}

impl Readers {
    pub fn insert(&mut self, call: Call, blocked: BlockedClient) {
        self.forget(self.unblocked.len());
        self.by_id.insert(blocked.id(), call);
        self.by_call.insert(call, blocked);
    }

    /// Whoever takes a client out must unblock it.
    pub fn take(&mut self, call: Call) -> Option<BlockedClient> {
        let blocked = self.by_call.remove(&call)?;
        self.by_call.shrink_if_sparse();
        self.unblocked.push(blocked.id());
        Some(blocked)
    }

    /// The call of a client, which may have been taken out since the server has last called the module.
    pub fn call_of(&self, id: BlockedId) -> Option<Call> {
        self.by_id.get(&id).copied()
    }

    /// Called by the cron, for when nobody blocks any more. The server may still ask about those that were unblocked
    /// in this iteration of its loop: they wait for the next time.
    pub fn forget_unblocked(&mut self) {
        self.forget(self.unblocked_before);
        self.unblocked_before = self.unblocked.len();
    }

    fn forget(&mut self, count: usize) {
        for id in self.unblocked.drain(..count.min(self.unblocked.len())) {
            self.by_id.remove(&id);
        }
        self.unblocked_before = 0;
        self.by_id.shrink_if_sparse();
        self.unblocked.shrink_if_sparse();
    }
}
