//! Clients that wait for a reply, by their calls and by the server's names for them.

use dlock_core::{Call, IdMap};

use crate::redis::{BlockedClient, BlockedId};

#[derive(Default)]
pub struct Readers {
    by_call: IdMap<Call, BlockedClient>,
    by_id: IdMap<BlockedId, Call>,
    /// Unblocked ids, removed from `by_id` lazily to keep grants short. The server may reuse them at the next block.
    unblocked: Vec<BlockedId>,
}

impl Readers {
    pub fn insert(&mut self, call: Call, blocked: BlockedClient) {
        for id in self.unblocked.drain(..) {
            self.by_id.remove(&id);
        }
        self.by_id.insert(blocked.id(), call);
        self.by_call.insert(call, blocked);
    }

    /// Whoever takes a client out must unblock it.
    pub fn take(&mut self, call: Call) -> Option<BlockedClient> {
        let blocked = self.by_call.remove(&call)?;
        self.unblocked.push(blocked.id());
        Some(blocked)
    }

    /// The call of a client, which may have been taken out since the server has last called the module.
    pub fn call_of(&self, id: BlockedId) -> Option<Call> {
        self.by_id.get(&id).copied()
    }
}
