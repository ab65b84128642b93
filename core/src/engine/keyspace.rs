//! What the server does with values without a transition: it loads them, and takes them away.

use super::host::Process;
use super::lock_value::{LockValue, check_plausible};
use super::wait_timer;
use crate::lock::Lock;
use crate::names::LockNameRef;
use crate::time::{Environment, Instant};

/// A value was loaded, under this name if the server says so, by a server that is an active primary or not. The error says
/// why it cannot be used.
pub fn loaded(
    lock: Lock,
    process: &mut impl Process,
    name: Option<LockNameRef<'_>>,
    is_active_primary: bool,
) -> Result<LockValue, &'static str> {
    let value = LockValue::new(lock);
    if is_active_primary {
        // RESTORE
        check_restored(process, &value.lock)?;
        process.state().restored.extend(name.map(LockNameRef::to_name));
        wait_timer::arm(process);
    } else if let Some(name) = name {
        let now = process.now();
        value.adopt(process.state(), name, now);
    }
    Ok(value)
}

/// A value leaves this name: it is deleted, overwritten or renamed. RENAME and MOVE put it under another one, without a
/// word: it is not indexed until a command opens it there.
pub fn unlinked(value: &LockValue, process: &mut impl Process, name: LockNameRef<'_>) {
    // A free lock is one that the engine itself deletes.
    if value.lock.is_free() {
        return;
    }
    let now = process.now();
    let state = process.state();
    value.adopt(state, name, now);
    value.cancel_expiry(state, name);
    if state.server.wait_table.queue(name).is_some() {
        state.server.wait_table.schedule(name, Instant::DISTANT_PAST);
        wait_timer::arm(process);
    }
}

fn check_restored(process: &mut impl Process, lock: &Lock) -> Result<(), &'static str> {
    let (now, wall_clock) = (process.now(), process.environment().wall_clock());
    let state = process.state();
    let clock = state.server.clock(now);
    let fence = lock.holders().iter().map(|holder| holder.fence()).max();
    let lease_ms = lock.holders().iter().map(|holder| holder.lease_ms(clock)).max();
    check_plausible(state, wall_clock, fence.unwrap_or(0), lease_ms.unwrap_or(0))
}
