use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex whose holders leave no change half done: after a panic of one of them the data is still
/// good, and the rest of the program goes on.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The same, under the eyes of a scheduler that tries all orders when it is tested.
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
