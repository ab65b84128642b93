//! Grants that no reply has carried yet.
//!
//! Should the client of one be gone, the grant is rolled back, unless the owner has asked for it again meanwhile, by its
//! request id: the reply to that has carried it.

use std::collections::{BTreeMap, VecDeque};

use super::answers::Answered;
use crate::names::{LockName, Owner, RequestId, RequestKey};
use crate::time::Instant;

/// A grant whose client is gone.
#[derive(Clone, Debug)]
pub struct Undelivered {
    /// The lock.
    pub name: LockName,
    /// The holder.
    pub owner: Owner,
    /// The request id of the hold.
    pub request_id: Option<RequestId>,
    /// The fence of the grant.
    pub fence: u64,
    /// When its lease ends: later it need not be rolled back.
    pub lease_end: Instant,
    cursor: u64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct InFlight {
    /// The grants with request ids, and the cursors of their answers.
    by_request: BTreeMap<RequestKey, u64>,
    /// Those to be rolled back.
    pub(super) undelivered: VecDeque<Undelivered>,
}

impl InFlight {
    pub(super) fn add(&mut self, answered: &Answered) {
        if answered.request_id.is_some()
            && answered.granted().is_some()
            && let Some(request) = key_of(answered)
        {
            self.by_request.insert(request, answered.cursor);
        }
    }

    /// A reply carries the grant of this request.
    pub(super) fn carry(&mut self, request: &RequestKey) {
        self.by_request.remove(request);
    }

    /// A reply carries this answer.
    pub(super) fn carry_answered(&mut self, answered: &Answered) {
        if answered.request_id.is_some() && answered.granted().is_some() {
            let request = key_of(answered);
            self.claim(request.as_ref(), answered.cursor);
        }
    }

    /// Nobody will get this answer: a grant is to be rolled back.
    pub(super) fn give_up(&mut self, answered: Answered) {
        if let Some(granted) = answered.granted() {
            let (fence, lease_end) = (granted.fence, answered.at.after_ms(granted.lease_ms));
            self.undelivered.push_back(Undelivered {
                name: answered.name,
                owner: answered.owner,
                request_id: answered.request_id,
                fence,
                lease_end,
                cursor: answered.cursor,
            });
        }
    }

    /// Whether no reply carried this grant. From now on none can.
    pub(super) fn claim_grant(&mut self, grant: &Undelivered) -> bool {
        let request_id = grant.request_id.clone();
        let request = request_id.map(|id| RequestKey::new(grant.name.clone(), grant.owner.clone(), id));
        self.claim(request.as_ref(), grant.cursor)
    }

    fn claim(&mut self, request: Option<&RequestKey>, cursor: u64) -> bool {
        let Some(request) = request else {
            return true;
        };
        let is_unclaimed = self.by_request.get(request) == Some(&cursor);
        if is_unclaimed {
            self.by_request.remove(request);
        }
        is_unclaimed
    }
}

fn key_of(answered: &Answered) -> Option<RequestKey> {
    let request_id = answered.request_id.clone()?;
    Some(RequestKey::new(
        answered.name.clone(),
        answered.owner.clone(),
        request_id,
    ))
}
