//! By which leases are saved on another thread than the main one, where no state can be reached: the grace period of the
//! moment at which the snapshot began.

use std::sync::{Mutex, PoisonError};

use dlock_core::engine::Process;
use dlock_core::{Instant, LeaseClock};

use crate::redis::Gil;

static AT_BEGIN: Mutex<Option<LeaseClock>> = Mutex::new(None);

/// A snapshot begins.
pub fn note(gil: &mut Gil<'_>) {
    let now = gil.now();
    let clock = gil.state().server.clock(now);
    *AT_BEGIN.lock().unwrap_or_else(PoisonError::into_inner) = Some(clock);
}

/// The clock of that snapshot, at this time.
pub fn at(now: Instant) -> LeaseClock {
    let at_begin = *AT_BEGIN.lock().unwrap_or_else(PoisonError::into_inner);
    at_begin.map_or(LeaseClock::at(now), |clock| LeaseClock { now, ..clock })
}
