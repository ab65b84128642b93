//! `SET NX PX`, then `DEL`: the lower bound. It does not check the owner, so a late DEL removes the lock of another
//! owner. It has no retry policy.

use crate::implementations::command::{Command, Implementation, KEY, LEASE_MS, OWNER, is_ok, is_one};

impl Implementation {
    /// The lower bound of the cost of a lock: no ownership check, no re-entry, no fence.
    pub fn set_and_del() -> Self {
        Self::new(
            Command::new(&["SET", KEY, OWNER, "NX", "PX", LEASE_MS], is_ok),
            Command::new(&["DEL", KEY], is_one),
        )
    }
}
