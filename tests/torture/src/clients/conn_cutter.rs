//! Cuts connections of clients.

use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Cuts the current connection of a client from another thread.
#[derive(Clone, Default)]
pub struct ConnCutter(Arc<Mutex<Option<TcpStream>>>);

impl ConnCutter {
    /// Closes the connection, as if the client had died.
    pub fn cut(&self) {
        if let Some(stream) = self.stream().as_ref() {
            // An error means that it is closed already.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// The connection to cut from now on.
    pub(super) fn set(&self, stream: Option<TcpStream>) {
        *self.stream() = stream;
    }

    fn stream(&self) -> MutexGuard<'_, Option<TcpStream>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
