use std::sync::{Mutex, MutexGuard, PoisonError};

/// Ignores poisoning: no change is left half done, so the data is valid after a panic, too.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The same, under a scheduler that explores interleavings in tests.
pub mod model_checked {
    use std::sync::PoisonError;

    #[cfg(test)]
    pub use shuttle::sync::{Mutex, MutexGuard};
    #[cfg(not(test))]
    pub use std::sync::{Mutex, MutexGuard};

    /// See [`lock`](super::lock).
    pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
