//! A limit on how often all clients together ask for locks.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Hands out points in time, evenly spaced. Clones share them.
#[derive(Clone, Debug)]
pub struct Pace {
    interval: Duration,
    next: Arc<Mutex<Instant>>,
}

impl Pace {
    pub fn per_second(count: u32) -> Self {
        Self {
            interval: Duration::from_secs(1) / count.max(1),
            next: Arc::new(Mutex::new(Instant::now())),
        }
    }

    /// Blocks until the next point in time that nobody else has.
    pub fn pass(&self) {
        thread::sleep(self.reserve().saturating_duration_since(Instant::now()));
    }

    fn reserve(&self) -> Instant {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        // Points that nobody has used are gone: there is no burst after a pause.
        let slot = Instant::now().max(*next);
        *next = slot + self.interval;
        slot
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_share_points_in_time_that_are_evenly_spaced() {
        let pace = Pace::per_second(10);
        let other = pace.clone();
        let first = pace.reserve();
        for n in 1..20 {
            let slot = if n % 2 == 0 {
                pace.reserve()
            } else {
                other.reserve()
            };
            assert!(slot >= first + Duration::from_millis(100) * n, "{n}");
        }
    }
}
