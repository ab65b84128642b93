use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex whose holders keep no half-done change: after a panic of one of them the data is still
/// good, and the rest of the program goes on.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
