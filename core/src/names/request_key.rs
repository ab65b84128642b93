//! What names a request that may be sent again.

use super::{LockName, LockNameRef};
use crate::names::{Owner, RequestId};

/// A request id is unique for an owner and a lock.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestKey {
    name: LockName,
    owner: Owner,
    request_id: RequestId,
}

impl RequestKey {
    pub(crate) fn new(name: LockName, owner: Owner, request_id: RequestId) -> Self {
        Self {
            name,
            owner,
            request_id,
        }
    }

    /// `None` for a request without an id.
    pub(crate) fn of(name: LockNameRef<'_>, owner: &[u8], request_id: Option<&[u8]>) -> Option<Self> {
        Some(Self {
            name: name.to_name(),
            owner: owner.into(),
            request_id: request_id?.into(),
        })
    }
}
