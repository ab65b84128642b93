//! Grants that no reply has carried yet.
//!
//! Should the client of one be gone, the grant is rolled back, unless the owner has asked for it again meanwhile, by its
//! request id: the reply to that has carried it.

use std::collections::{BTreeMap, VecDeque};

use super::answers::Answered;
use crate::name::{LockName, LockNameRef};
use crate::queue::{Owner, RequestId};
use crate::request::Acquire;

/// A request id is unique for an owner and a lock.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestKey {
    name: LockName,
    owner: Owner,
    request_id: RequestId,
}

impl RequestKey {
    /// `None` for a request without an id.
    pub(crate) fn of(name: LockNameRef<'_>, request: &Acquire<'_>) -> Option<Self> {
        Some(Self {
            name: name.to_name(),
            owner: request.owner.into(),
            request_id: request.request_id?.into(),
        })
    }

    fn of_answered(answered: &Answered) -> Option<Self> {
        Some(Self {
            name: answered.name.clone(),
            owner: answered.owner.clone(),
            request_id: answered.request_id.clone()?,
        })
    }
}

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
    cursor: u64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct InFlight {
    /// The grants with request ids, and the cursors of their answers.
    by_request: BTreeMap<RequestKey, u64>,
    /// Those to be rolled back.
    undelivered: VecDeque<Undelivered>,
}

impl InFlight {
    pub(super) fn add(&mut self, answered: &Answered) {
        if answered.request_id.is_some()
            && answered.granted().is_some()
            && let Some(request) = RequestKey::of_answered(answered)
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
            let request = RequestKey::of_answered(answered);
            self.claim(request.as_ref(), answered.cursor);
        }
    }

    /// Nobody will get this answer: a grant is to be rolled back.
    pub(super) fn give_up(&mut self, answered: Answered) {
        if let Some(granted) = answered.granted() {
            let fence = granted.fence;
            self.undelivered.push_back(Undelivered {
                name: answered.name,
                owner: answered.owner,
                request_id: answered.request_id,
                fence,
                cursor: answered.cursor,
            });
        }
    }

    /// Whether no reply carried this grant. From now on none can.
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

/// What the shell rolls back.
impl super::Inboxes {
    /// The number of grants to be rolled back.
    pub fn undelivered(&self) -> usize {
        self.in_flight.undelivered.len()
    }

    /// The next grant to be rolled back, if [`Self::claim`] says so.
    pub fn next_undelivered(&mut self) -> Option<Undelivered> {
        self.in_flight.undelivered.pop_front()
    }

    /// It cannot be rolled back now.
    pub fn put_back(&mut self, grant: Undelivered) {
        self.in_flight.undelivered.push_back(grant);
    }

    /// Whether no reply has carried this grant meanwhile. From now on none does.
    pub fn claim(&mut self, grant: &Undelivered) -> bool {
        let request = grant.request_id.clone().map(|request_id| RequestKey {
            name: grant.name.clone(),
            owner: grant.owner.clone(),
            request_id,
        });
        self.in_flight.claim(request.as_ref(), grant.cursor)
    }
}
