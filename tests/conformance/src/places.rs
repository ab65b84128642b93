//! How much runs at once in this process: tests, levels and scenarios are many threads.

use std::sync::{Condvar, LazyLock, Mutex, PoisonError};
use std::thread;

/// For scenarios: most of their time passes with waiting.
pub static SCENARIOS: LazyLock<Places> = LazyLock::new(|| Places::per_core(16));
/// For drivers that start: that takes an interpreter much computing, which delays what is timed elsewhere.
pub static STARTS: LazyLock<Places> = LazyLock::new(|| Places::per_core(2));

/// A number of places. Each is taken by one at a time.
pub struct Places {
    free: Mutex<usize>,
    freed: Condvar,
}

/// A place that is taken until this is dropped.
pub struct Place<'a>(&'a Places);

impl Places {
    fn per_core(places: usize) -> Self {
        let cores = thread::available_parallelism().map_or(2, usize::from);
        Self {
            free: Mutex::new(places * cores),
            freed: Condvar::new(),
        }
    }

    /// Waits for a place.
    pub fn take(&self) -> Place<'_> {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let free = self.freed.wait_while(free, |free| *free == 0);
        *free.unwrap_or_else(PoisonError::into_inner) -= 1;
        Place(self)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        *self.0.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.freed.notify_one();
    }
}
