//! SIGINT and SIGTERM end the run like an error, so that every server is stopped on the way out.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

static INTERRUPTED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

pub fn install_handlers() -> io::Result<()> {
    for signal in [SIGINT, SIGTERM] {
        flag::register(signal, Arc::clone(&INTERRUPTED))?;
    }
    Ok(())
}

/// An error once a signal has arrived.
pub fn check() -> io::Result<()> {
    // Not `ErrorKind::Interrupted`: readers and writers retry on that one.
    if INTERRUPTED.load(Ordering::Relaxed) {
        Err(io::Error::other("interrupted by a signal"))
    } else {
        Ok(())
    }
}
