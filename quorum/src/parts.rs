use std::time::Duration;

use crate::owner::Owner;
use crate::renewal::SharedHold;

/// What identifies a hold: see [`Guard::into_parts`](crate::Guard::into_parts). Serialize it field by field. Whoever
/// has it can extend and release the hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuardParts {
    /// The key of the lock.
    pub key: Vec<u8>,
    /// The owner, 1 to 512 bytes.
    pub owner: Owner,
    /// The fencing token.
    pub fence: u64,
    /// How many holds the owner had when this one was granted.
    pub holds: u64,
    /// The request id, 32 hexadecimal digits.
    pub request_id: [u8; 32],
    /// The length of a lease.
    pub lease: Duration,
}

impl GuardParts {
    pub(crate) fn of(held: &SharedHold) -> Self {
        Self {
            key: held.identity.key.to_vec(),
            owner: held.identity.owner.clone(),
            fence: held.fence(),
            holds: held.holds,
            request_id: held.identity.id,
            lease: held.with(|hold| hold.lease()),
        }
    }
}
