//! `SET NX PX`, then `DEL`: the floor. It knows no owner, so a late DEL removes somebody else's lock; it has no
//! rule of waiting of its own.

use crate::contenders::command::{Command, Contender, KEY, LEASE_MS, OWNER, is_ok, is_one};

impl Contender {
    /// The least that a lock can cost: no ownership check, no re-entry, no fence.
    pub fn set_and_del() -> Self {
        Self::new(
            Command::new(&["SET", KEY, OWNER, "NX", "PX", LEASE_MS], is_ok),
            Command::new(&["DEL", KEY], is_one),
        )
    }
}
