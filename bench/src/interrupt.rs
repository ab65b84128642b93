//! Ctrl-C and TERM end the run as an error does: what was started is stopped on the way out.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

static ASKED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

pub fn listen() -> io::Result<()> {
    for signal in [SIGINT, SIGTERM] {
        flag::register(signal, Arc::clone(&ASKED))?;
    }
    Ok(())
}

/// An error once somebody has asked the run to end.
pub fn check() -> io::Result<()> {
    // Not `ErrorKind::Interrupted`: that one means "try again".
    if ASKED.load(Ordering::Relaxed) {
        Err(io::Error::other("stopped by a signal"))
    } else {
        Ok(())
    }
}
