//! The invariants of holders, stated independently of the core.

use dlock_core::{Holder, Limit, Lock, MAX_FENCE};

/// The longest owner.
pub const MAX_OWNER_BYTES: usize = 512;

/// A holder without its lease: replicas have exactly the same.
pub type Who = (Vec<u8>, u64, Limit, u64);

pub fn who(lock: &Lock) -> Vec<Who> {
    let who = |holder: &Holder| {
        (
            holder.owner().to_vec(),
            holder.fence(),
            holder.limit(),
            holder.holds(),
        )
    };
    lock.holders().iter().map(who).collect()
}

/// Panics unless requests could have made this lock.
pub fn assert_sound(lock: &Lock) {
    let holders = lock.holders();
    for (index, holder) in holders.iter().enumerate() {
        let owner = holder.owner();
        assert!((1..=MAX_OWNER_BYTES).contains(&owner.len()), "{lock:?}");
        assert!((1..=MAX_FENCE).contains(&holder.fence()), "{lock:?}");
        assert!(holder.holds() > 0, "{lock:?}");
        let limit = holder.limit().get();
        let is_expected = limit.is_none_or(|n| holders.len() as u64 <= u64::from(n));
        assert!(is_expected, "{lock:?}");
        for later in &holders[index + 1..] {
            let is_expected = holder.fence() < later.fence() && owner != later.owner();
            assert!(is_expected, "{lock:?}");
        }
    }
}
