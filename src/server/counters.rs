//! What `INFO dlock` counts.

use crate::lock::{Event, Refusal};

/// Counters since the start of the server, as a primary.
pub struct Counters {
    /// Owners that became holders.
    pub acquired: u64,
    /// Holds given to owners that were holders already.
    pub reentered: u64,
    /// ACQUIREs that were not granted.
    pub not_granted: u64,
    /// Holders that gave up their last hold.
    pub released: u64,
    /// EXTENDs that were answered.
    pub extended: u64,
    /// Holders that were removed because their lease had ended.
    pub expired: u64,
    /// Refused requests by their first word.
    pub errors: Errors,
}

pub struct Errors {
    pub err: u64,
    pub wrongtype: u64,
    pub notheld: u64,
    pub notowner: u64,
    pub stale: u64,
    pub quarantine: u64,
    pub unsafe_eviction: u64,
}

impl Counters {
    pub const fn new() -> Self {
        Self {
            acquired: 0,
            reentered: 0,
            not_granted: 0,
            released: 0,
            extended: 0,
            expired: 0,
            errors: Errors {
                err: 0,
                wrongtype: 0,
                notheld: 0,
                notowner: 0,
                stale: 0,
                quarantine: 0,
                unsafe_eviction: 0,
            },
        }
    }

    pub fn event(&mut self, event: Event) {
        add(match event {
            Event::Acquired => &mut self.acquired,
            Event::Released => &mut self.released,
            Event::Extended => &mut self.extended,
            Event::Expired => &mut self.expired,
        });
    }

    pub fn refused(&mut self, refusal: &Refusal) {
        add(match refusal {
            Refusal::NotHeld => &mut self.errors.notheld,
            Refusal::NotOwner => &mut self.errors.notowner,
            Refusal::Stale(_) => &mut self.errors.stale,
            Refusal::Quarantine(_) => &mut self.errors.quarantine,
            Refusal::Unsafe => &mut self.errors.unsafe_eviction,
            _ => &mut self.errors.err,
        });
    }
}

/// One more.
pub fn add(counter: &mut u64) {
    *counter = counter.wrapping_add(1);
}
