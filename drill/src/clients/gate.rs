//! Pauses a client thread, as SIGSTOP pauses a process.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// A gate that a client passes before each step.
#[derive(Clone, Default)]
pub struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    /// The client pauses before its next step.
    pub fn close(&self) {
        self.set(true);
    }

    /// The client continues.
    pub fn open(&self) {
        self.set(false);
    }

    fn set(&self, is_closed: bool) {
        let (state, changed) = &*self.0;
        *state.lock().unwrap_or_else(PoisonError::into_inner) = is_closed;
        changed.notify_all();
    }

    /// Blocks while the gate is closed.
    pub fn pass(&self) {
        let (state, changed) = &*self.0;
        let state = state.lock().unwrap_or_else(PoisonError::into_inner);
        drop(changed.wait_while(state, |is_closed| *is_closed));
    }
}
